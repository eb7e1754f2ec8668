"""How much each GPU of a node could hold for a newcomer, and whose needs that meets: who is worth a try (T7)."""

from collections.abc import Iterator, Sequence

from rankcore.residency.displacement import yields_to
from rankcore.residency.index import Kind
from rankcore.residency.ledger import Ledger
from rankcore.residency.state import ResidencyNode
from rankcore.values import NodeId

Spans = tuple[tuple[int, int], ...]
"""Sizes that some GPUs of a node could hold: above the first number, and up to the second one."""


class Reach:
    """What could be held by some nodes, as they are now.

    It is what is free and what those may give up who yield to a newcomer. That its own model yields to nobody of it, and that
    replicas may have to be spread, is left out: who is not within reach does not fit there, and nearly all others do.
    """

    def __init__(self, ledger: Ledger, nodes: Sequence[NodeId]) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._spans: dict[tuple[NodeId, Kind, int | None], Spans] = {}
        self._requests = {
            node_id: frozenset(ledger.asked[record.model] for record in ledger.on_gpus(node_id)) for node_id in nodes
        }

    def holds(self, kind: Kind, asked: int, size: int) -> bool:
        """Whether one of the nodes could hold a replica of this size."""
        return any(_is_within(size, self._on(node_id, kind, asked)) for node_id in self._nodes)

    def waiting(self) -> Iterator[tuple[str, int]]:
        """The models that wait, and their sizes, that one of the nodes could hold; in no order, and more than once.

        Costs O(log N) for each of these, each node and each kind; nothing for those that could not be held, but for those that
        could if they were not of the request of somebody there.
        """
        queue = self._ledger.queue
        for node_id in self._nodes:
            here = self._requests[node_id]
            for kind, sizes in queue.sizes.items():
                for above, upto in self._on(node_id, kind, None):
                    for size, asked, model in sizes.since((above + 1,)):
                        if size > upto:
                            break
                        if asked not in here or _is_within(size, self._on(node_id, kind, asked)):
                            yield model, size

    def _on(self, node_id: NodeId, kind: Kind, asked: int | None) -> Spans:
        """On one node, for a model of a request; None: of one that nobody there is of."""
        key = (node_id, kind, asked if asked in self._requests[node_id] else None)
        if key not in self._spans:
            self._spans[key] = self._look(*key)
        return self._spans[key]

    def _look(self, node_id: NodeId, kind: Kind, asked: int | None) -> Spans:
        ledger, node = self._ledger, self._ledger.nodes[node_id]
        if not dict(kind.labels).items() <= node.labels.items():
            return ()
        within = [gpu.free_bytes for gpu in node.gpus]
        for record in ledger.on_gpus(node_id):
            if ledger.asked[record.model] != asked and yields_to(record, ledger, kind.priority, kind.dedicated):
                for gpu, held in zip(record.gpus, record.gpu_bytes, strict=True):
                    within[gpu] += held
        most = [0 if gpu.excess_bytes else size for gpu, size in zip(node.gpus, within, strict=True)]
        return tuple(_spans(node, sorted(most, reverse=True), kind))


def _is_within(size: int, spans: Spans) -> bool:
    return any(above < size <= upto for above, upto in spans)


def _spans(node: ResidencyNode, within: list[int], kind: Kind) -> Iterator[tuple[int, int]]:
    """The sizes, by the number of GPUs that replicas of them are to be on: as `fit.degree_on` says."""
    if kind.gpus is not None:
        if kind.gpus <= len(within) and within[kind.gpus - 1]:
            yield 0, kind.gpus * within[kind.gpus - 1]
        return
    capacities, below = sorted([gpu.real_bytes for gpu in node.gpus], reverse=True), 0
    # Of uneven parts the fullest has to fit as well, whatever its share of the size is.
    for degree, shard_bytes in kind.shards or [(each, 0) for each in range(1, len(capacities) + 1)]:
        if degree > len(capacities) or capacities[degree - 1] < shard_bytes:
            continue
        limit = degree * capacities[degree - 1]
        upto = min(limit, degree * within[degree - 1]) if within[degree - 1] >= shard_bytes else 0
        if upto > below:
            yield below, upto
        below = max(below, limit)
