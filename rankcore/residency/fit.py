"""Best fit: where a replica fits into what is free, leaving the least free beside it."""

from collections.abc import Sequence
from typing import NamedTuple

from rankcore.residency.spec import ModelSpec
from rankcore.residency.state import ResidencyNode
from rankcore.values import NodeId


class Place(NamedTuple):
    """GPUs of one node, and what a replica needs on each of them.

    Attributes:
        gpus: Their numbers, ascending.
        each_bytes: The same on all of them.
    """

    node_id: NodeId
    gpus: tuple[int, ...]
    each_bytes: int


def fewest_gpus(capacities: Sequence[int], spec: ModelSpec, total_bytes: int) -> int | None:
    """On how many of GPUs, the largest first, a replica has to be at least.

    Returns:
        None: it is too large for all of them together, whatever is free.
    """
    for degree, capacity in enumerate(capacities, 1):
        if capacity >= share(spec, total_bytes, degree) and is_listed(spec, degree):
            return degree
    return None


def degree_on(node: ResidencyNode, spec: ModelSpec, total_bytes: int) -> int | None:
    """On how many GPUs of a node a replica is to be; None: it is too large for it."""
    gpus = spec.gpus
    if gpus is not None:
        each_bytes = share(spec, total_bytes, gpus)
        return gpus if sum([gpu.capacity_bytes - gpu.excess_bytes >= each_bytes for gpu in node.gpus]) >= gpus else None
    return fewest_gpus(sorted([gpu.real_bytes for gpu in node.gpus], reverse=True), spec, total_bytes)


def is_listed(spec: ModelSpec, degree: int) -> bool:
    """Whether a replica may be on so many GPUs."""
    return not spec.shard_bytes or any(each == degree for each, _ in spec.shard_bytes)


def share(spec: ModelSpec, total_bytes: int, degree: int) -> int:
    """What a replica needs on each of so many GPUs: an equal part, or what the fullest takes where parts are uneven."""
    part = -(-total_bytes // degree)
    for listed, shard_bytes in spec.shard_bytes:
        if listed == degree:
            return max(part, shard_bytes)
    return part


def tightest(node: ResidencyNode, degree: int, each_bytes: int) -> tuple[int, tuple[int, ...]] | None:
    """The GPUs of a node that have just enough free.

    Returns:
        What would stay free on them, and their numbers; None: it does not fit.
    """
    free = [(gpu.free_bytes, number) for number, gpu in enumerate(node.gpus) if gpu.free_bytes >= each_bytes]
    if len(free) < degree:
        return None
    chosen = sorted(free)[:degree]
    left = sum([size for size, _ in chosen]) - degree * each_bytes
    return left, tuple(sorted([number for _, number in chosen]))
