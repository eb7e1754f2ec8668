"""What replicas ask of their nodes, and whether a node has room for one."""

from collections.abc import Mapping
from typing import Any

from ray._common.utils import RESOURCE_CONSTRAINT_PREFIX

from executors.ray_gpu.world import NodeInfo
from rankcore.values import NodeId

OF_THAT_TYPE = 0.001
"""What Ray asks of a node for an accelerator_type."""
UNLIMITED = 10_000
"""What a node holds of replicas that ask for no resources."""


def demands(actor_options: Mapping[str, Any]) -> dict[str, float]:
    """What one replica asks of its node, by Ray's names of resources."""
    asked = {
        "CPU": actor_options.get("num_cpus", 1) or 0,
        "GPU": actor_options.get("num_gpus") or 0,
        "memory": actor_options.get("memory") or 0,
        **(actor_options.get("resources") or {}),
    }
    if actor_options.get("accelerator_type"):
        asked[f"{RESOURCE_CONSTRAINT_PREFIX}{actor_options['accelerator_type']}"] = OF_THAT_TYPE
    return {name: float(amount) for name, amount in asked.items() if amount}


def fitting(node: NodeInfo, demand: Mapping[str, float]) -> int:
    """How many more replicas fit."""
    counts = [int(node.free.get(name, 0.0) // amount) for name, amount in demand.items()]
    return min(counts, default=UNLIMITED)


def obstacle(nodes: Mapping[NodeId, NodeInfo], demand: Mapping[str, float]) -> str:
    """Why no node can hold a replica: what it asks for, and what the largest node has; "": one can."""
    asked = ", ".join(f"{name} {amount:g}" for name, amount in demand.items()) or "nothing"
    for name, amount in demand.items():
        largest = max((node.total.get(name, 0.0) for node in nodes.values()), default=0.0)
        if largest < amount:
            return f"no node can ever hold it: it asks for {asked}; the largest node has {name} {largest:g}"
    if not any(all(node.total.get(name, 0.0) >= amount for name, amount in demand.items()) for node in nodes.values()):
        return f"no node can ever hold it: it asks for {asked}, which no node has all of"
    if not any(fitting(node, demand) for node in nodes.values()):
        free = max(nodes.values(), key=lambda node: sum(node.free.get(name, 0.0) for name in demand), default=None)
        shown = ", ".join(f"{name} {free.free.get(name, 0.0):g}" for name in demand) if free is not None else "no node"
        return f"it waits for room: it asks for {asked}; the node with the most free has {shown}"
    return ""
