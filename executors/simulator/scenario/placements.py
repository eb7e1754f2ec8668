"""Placement groups that somebody else owns, and which ranks of a deployment stand on their bundles."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from executors.simulator.fields import Check, FieldProblem, FileProblem, integer, name, number, optional
from executors.simulator.scenario.hardware import MEMORY_GB_MAX, NodeGroup
from rankcore import StaticPlacement
from rankcore.checks import COUNT_MAX
from rankcore.errors import PlacementError

BUNDLES_MAX = 100_000
POLICY = "pack_ranks"


@attrs.frozen(kw_only=True)
class Bundles:
    """Some equal bundles on a node, or on each node of a group. Indices count on in the order in which they are listed.

    Attributes:
        node: Name of the node.
        nodes: Name of a node group, in place of `node`: so many bundles on each of its nodes.
        count: How many.
        gpus, memory_gb: What each of them has reserved.
    """

    node: str | None = attrs.field(default=None, validator=optional(name))
    nodes: str | None = attrs.field(default=None, validator=optional(name))
    count: int = attrs.field(default=1, validator=integer(1, BUNDLES_MAX))
    gpus: int = attrs.field(default=1, validator=integer(0, 1024))
    memory_gb: float = attrs.field(default=0.0, validator=number(least=0.0, most=MEMORY_GB_MAX))

    def __attrs_post_init__(self) -> None:
        if (self.node is None) == (self.nodes is None):
            raise FieldProblem(("node",), self.node, "either a node, or nodes, the name of a node group")


@attrs.frozen(kw_only=True)
class PlacementGroup:
    """GPUs that somebody else has reserved, such as the trainers of an RL job. Deployments use it, and nobody else gets them.

    What a bundle stands for is lost with its node, and there again, empty, when that is back.

    Attributes:
        bundles: What it is made of; the first bundle has index 0.
    """

    name: str = attrs.field(validator=name)
    bundles: tuple[Bundles, ...]

    def __attrs_post_init__(self) -> None:
        if not self.bundles:
            raise FieldProblem(("bundles",), [], "at least one bundle")

    def spread(self, nodes: Sequence[NodeGroup]) -> Iterator[tuple[str, Bundles]]:
        """The node of each bundle, in the order of their indices, with what it has."""
        for row in self.bundles:
            on = (row.node,) if row.node is not None else next(group.node_ids for group in nodes if group.name == row.nodes)
            for node_id in on:
                yield from ((node_id, row) for _ in range(row.count))


class Placement(Check):
    """A policy for nodes, or ranks on bundles of a placement group; that these exist is looked at when it is read."""

    @property
    def allowed(self) -> str:
        """In words."""
        return f"{POLICY}, or {{group: NAME, bundles: [[0, 1], [2, 3]]}}, or null"

    def accepts(self, value: object) -> bool:
        """Whether it is one, on the face of it."""
        return value is None or value == POLICY or isinstance(value, Mapping)


def static_placement(data: Mapping[str, Any], bundle_counts: Mapping[str, int] | None) -> StaticPlacement:
    """Read what stands under `placement`.

    Args:
        data: The mapping; ranks are the places of a list, or the keys of a mapping.
        bundle_counts: How many bundles each placement group has; None: that is not known, and told elsewhere.

    Raises:
        FieldProblem: With the key path in `data`.
    """
    for key in data:
        if key not in ("group", "bundles"):
            raise FieldProblem((key,), key, "one of the keys group, bundles")
    for key in ("group", "bundles"):
        if key not in data:
            raise FieldProblem((), dict(data), f"a mapping with {key}, such as {{group: NAME, bundles: [[0, 1], [2, 3]]}}")
    group = data["group"]
    if bundle_counts is not None and group not in bundle_counts:
        known = ", ".join(list(bundle_counts)[:8]) or "there is none: add placement_groups to the scenario"
        raise FieldProblem(("group",), group, f"one of the placement groups ({known})")
    bundles = data["bundles"]
    if isinstance(bundles, Mapping):
        bundles = {int(rank) if str(rank).isdecimal() else rank: bundles[rank] for rank in bundles}
    count = COUNT_MAX if bundle_counts is None else bundle_counts[group]
    try:
        return StaticPlacement(bundles, count, group=group)
    except PlacementError as error:
        rank: Any = (error.rank,) if error.rank is not None else ()
        keys = tuple(str(each) if isinstance(bundles, dict) else each for each in rank)
        raise FileProblem(("bundles", *keys), data["bundles"], str(error)) from None


def check_groups(groups: Sequence[PlacementGroup], nodes: Sequence[NodeGroup]) -> None:
    """Raise `FieldProblem` for groups on nodes that do not exist, or that do not have so much."""
    known = {node_id: group for group in nodes for node_id in group.node_ids}
    gpus: dict[str, int] = {}
    memory_gb: dict[str, float] = {}
    names: set[str] = set()
    bundles = 0
    for index, group in enumerate(groups):
        if group.name in names:
            raise FieldProblem(("placement_groups", index, "name"), group.name, "a name that no other placement group has")
        names.add(group.name)
        for place, row in enumerate(group.bundles):
            _check_row(("placement_groups", index, "bundles", place), row, nodes, known)
            bundles += row.count * next((len(each.node_ids) for each in nodes if each.name == row.nodes), 1)
            if bundles > BUNDLES_MAX:
                allowed = f"at most {BUNDLES_MAX} bundles in all groups"
                raise FieldProblem(("placement_groups", index, "bundles", place, "count"), row.count, allowed)
            for node_id, each in PlacementGroup(name=group.name, bundles=(row,)).spread(nodes):
                gpus[node_id] = gpus.get(node_id, 0) + each.gpus
                memory_gb[node_id] = memory_gb.get(node_id, 0.0) + each.memory_gb
                _check_reserved(("placement_groups", index, "bundles", place), node_id, known[node_id], gpus, memory_gb)


def _check_row(keys: tuple[str | int, ...], row: Bundles, nodes: Sequence[NodeGroup], known: Mapping[str, NodeGroup]) -> None:
    if row.node is not None and row.node not in known:
        shown = list(known)
        more = f", ... ({len(shown)} in all)" if len(shown) > 8 else ""
        raise FieldProblem((*keys, "node"), row.node, f"one of the nodes {', '.join(shown[:8])}{more}")
    if row.nodes is not None and row.nodes not in (group.name for group in nodes):
        allowed = f"one of the groups of nodes {', '.join(group.name for group in nodes[:8])}"
        raise FieldProblem((*keys, "nodes"), row.nodes, allowed)


def _check_reserved(
    keys: tuple[str | int, ...], node_id: str, node: NodeGroup, gpus: Mapping[str, int], memory_gb: Mapping[str, float]
) -> None:
    if gpus[node_id] > node.gpus:
        allowed = f"bundles for which node {node_id} has room: {node.gpus} GPUs in all"
        raise FieldProblem((*keys, "gpus"), gpus[node_id], allowed)
    if node.memory_gb is not None and memory_gb[node_id] > node.memory_gb:
        allowed = f"bundles for which node {node_id} has room: {node.memory_gb:g} GB in all"
        raise FieldProblem((*keys, "memory_gb"), memory_gb[node_id], allowed)


def check_fits(
    keys: tuple[str | int, ...],
    placement: StaticPlacement,
    rows: Sequence[tuple[str, Bundles]],
    gpus_per_replica: int,
    memory_gb_per_replica: float,
) -> None:
    """Raise `FieldProblem` for a rank whose bundles together are too small for its replica."""
    for rank, indices in enumerate(placement.bundles):
        gpus = sum(rows[bundle][1].gpus for bundle in indices)
        memory_gb = sum(rows[bundle][1].memory_gb for bundle in indices)
        where = f"the bundles of rank {rank} in {placement.group_shown}"
        if gpus < gpus_per_replica:
            raise FieldProblem((*keys, "gpus_per_replica"), gpus_per_replica, f"at most {gpus}, the GPUs of {where}")
        if memory_gb < memory_gb_per_replica:
            allowed = f"at most {memory_gb:g}, the memory of {where}"
            raise FieldProblem((*keys, "memory_gb_per_replica"), memory_gb_per_replica, allowed)
