"""Free GPU memory that is of no use: what a replica that somebody might want next could not be put into.

The measure is the one of "Beware of Fragmentation" (USENIX ATC 2023), for memory: the free bytes of a node count as
fragmented for a model of which one more replica does not fit there now, though it would fit if the node were empty; they
are averaged over the models, each weighed by its share of the requests.
"""

from collections.abc import Mapping, Sequence

import attrs

from executors.simulator.scenario.gpu_nodes import NodeShape


@attrs.frozen
class Need:
    """What a replica of a model needs: bytes in all, on so many GPUs (None: the fewest that hold it), of such a weight."""

    size_bytes: int
    gpus: int | None
    weight: float


def gpus_needed(need: Need, gpu_bytes: Sequence[int]) -> int | None:
    """Over how many GPUs of an empty node a replica is split; None: it does not fit."""
    counts = range(1, len(gpu_bytes) + 1) if need.gpus is None else (need.gpus,)
    largest = sorted(gpu_bytes, reverse=True)
    return next((count for count in counts if count <= len(largest) and share(need, count) <= largest[count - 1]), None)


def share(need: Need, gpus: int) -> int:
    """Bytes on each of its GPUs."""
    return -(-need.size_bytes // gpus)


class Fragments:
    """Knows how much of a node's free memory is fragmented. What it needs of the node's shape is worked out once."""

    def __init__(self, shapes: Sequence[NodeShape], needs: Mapping[str, Need]) -> None:
        self._splits: dict[str, list[tuple[int, int, float]]] = {}
        for shape in shapes:
            found = [(need, gpus_needed(need, shape.gpu_bytes)) for need in needs.values()]
            fitting = [(count, share(need, count), need.weight) for need, count in found if count is not None]
            total = sum(weight for _, _, weight in fitting)
            self._splits[shape.node_id] = [(count, size, weight / total) for count, size, weight in fitting] if total else []

    def of(self, node_id: str, free: Sequence[int]) -> float:
        """Bytes, of a node with so much free on each GPU."""
        lost = 0.0
        for count, size, weight in self._splits[node_id]:
            if sum(each >= size for each in free) < count:
                lost += weight
        return lost * sum(free)
