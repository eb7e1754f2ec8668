"""What replicas ask of their nodes, and whether a node has room for one."""

import re
from collections.abc import Mapping
from typing import Any

from ray._common.utils import RESOURCE_CONSTRAINT_PREFIX
from ray._raylet import IMPLICIT_RESOURCE_PREFIX

from executors.ray_gpu.world import NodeInfo
from rankcore.values import NodeId

OF_THAT_TYPE = 0.001
"""What Ray asks of a node for an accelerator_type."""
NODE_ID = "ray.io/node-id"
"""Label that Ray gives each node."""
ROUNDING = 1e-6
"""Shares such as a third do not add up to 1; Ray keeps four digits of them."""
OWN_GROUP = "own_placement_group"
"""In a replica's options: the placement group that is made for it (`own_groups`)."""
UNLIMITED = 10_000
"""What a node holds of replicas that ask for no resources."""


def one_of_each_node(name: str) -> str:
    """A resource that each node has 1 of, without having been started with it: Ray's way to bound how many go to one node."""
    return f"{IMPLICIT_RESOURCE_PREFIX}{name}"


def amount_of(found: Mapping[str, float], name: str) -> float:
    """What there is of a resource. Of those that all nodes have, only what is not whole any more is said."""
    return found.get(name, 1.0 if name.startswith(IMPLICIT_RESOURCE_PREFIX) else 0.0)


def demands(actor_options: Mapping[str, Any]) -> dict[str, float]:
    """What one replica asks of its node, by Ray's names of resources. Of a group of its own: all of it where it has to be on
    one node, else the first bundle.
    """
    if (group := actor_options.get(OWN_GROUP)) is not None:
        there = group["bundles"] if group["strategy"] == "STRICT_PACK" else group["bundles"][:1]
        return {name: float(sum(each.get(name, 0.0) for each in there)) for each in there for name in each}
    asked = {
        "CPU": actor_options.get("num_cpus", 1) or 0,
        "GPU": actor_options.get("num_gpus") or 0,
        "memory": actor_options.get("memory") or 0,
        **(actor_options.get("resources") or {}),
    }
    if actor_options.get("accelerator_type"):
        asked[f"{RESOURCE_CONSTRAINT_PREFIX}{actor_options['accelerator_type']}"] = OF_THAT_TYPE
    return {name: float(amount) for name, amount in asked.items() if amount}


def elsewhere(selector: Mapping[str, str] | None, cordoned: frozenset[NodeId]) -> dict[str, str] | None:
    """Labels of nodes that an actor may be placed on: those that the user wants, but for what is cordoned.

    Returns:
        None: the user names nodes, and all of them are cordoned. An actor that Ray is told of no such node dies at once.
    """
    asked = dict(selector or {})
    if not cordoned:
        return asked
    wanted = asked.get(NODE_ID, "!")
    named = values_of(wanted)
    if wanted.startswith("!"):
        return asked | {NODE_ID: f"!in({','.join(sorted(named | cordoned))})"}
    return asked | {NODE_ID: f"in({','.join(sorted(named - cordoned))})"} if named - cordoned else None


def values_of(wanted: str) -> set[str]:
    """Those of "a", "!a", "in(a,b)" and "!in(a,b)"."""
    return set(re.findall(r"[\w.-]+", wanted.removeprefix("!").removeprefix("in(")))


def carries(node: NodeInfo, selector: Mapping[str, str]) -> bool:
    """Whether a node has the labels that are wanted."""
    labels = {**node.labels, NODE_ID: node.node_id}
    return all((labels.get(key) in values_of(wanted)) is not wanted.startswith("!") for key, wanted in selector.items())


def fitting(node: NodeInfo, demand: Mapping[str, float]) -> int:
    """How many more replicas fit."""
    counts = [int((amount_of(node.free, name) + ROUNDING) // amount) for name, amount in demand.items()]
    return min(counts, default=UNLIMITED)


def obstacle(
    nodes: Mapping[NodeId, NodeInfo],
    demand: Mapping[str, float],
    cordoned: frozenset[NodeId] = frozenset(),
    selector: Mapping[str, str] | None = None,
) -> str:
    """Why no node can hold a replica: what it asks for, and what the largest node has; "": one can.

    Args:
        nodes: All that are alive.
        cordoned: Of these, where nothing new is to come.
        selector: The labels that the user wants a node to have.
    """
    labels = ", ".join(f"{key}={wanted}" for key, wanted in (selector or {}).items())
    nodes = {node_id: node for node_id, node in nodes.items() if carries(node, selector or {})}
    if labels and not nodes:
        return f"it waits for a node: none carries the label {labels}"
    asked = ", ".join(f"{name} {amount:g}" for name, amount in demand.items()) or "nothing"
    for name, amount in demand.items():
        largest = max((amount_of(node.total, name) for node in nodes.values()), default=0.0)
        if largest < amount:
            return f"no node can ever hold it: it asks for {asked}; the largest node has {name} {largest:g}"
    if not any(all(amount_of(node.total, name) >= amount for name, amount in demand.items()) for node in nodes.values()):
        return f"no node can ever hold it: it asks for {asked}, which no node has all of"
    open_nodes = [node for node_id, node in nodes.items() if node_id not in cordoned]
    if not open_nodes and labels:
        return f"it waits for room: no other node than those that are cordoned carries the label {labels}"
    if not open_nodes:
        return "it waits for room: every node is cordoned"
    if not any(fitting(node, demand) for node in open_nodes):
        free = max(open_nodes, key=lambda node: sum(amount_of(node.free, name) for name in demand))
        shown = ", ".join(f"{name} {amount_of(free.free, name):g}" for name in demand)
        closed = len(nodes) - len(open_nodes)
        without = f", and {closed} {'is' if closed == 1 else 'are'} cordoned" if closed else ""
        return f"it waits for room: it asks for {asked}; the node with the most free has {shown}{without}"
    return ""
