"""R3 against what replicas believe, not against the controller's book, at every change of a belief.

It keeps who believes what, so that a change costs the size of itself and not a scan of all replicas.
"""

from typing import TypeAlias

from rankcore.invariants import Violation
from rankcore.values import NodeId, ReplicaId, ReplicaRank

Key: TypeAlias = tuple[str, int] | tuple[str, NodeId, int]


class Believers:
    """What the live, initialised replicas of one deployment believe, draining ones included.

    No two may believe the same rank, nor the same local rank on one node; and no two nodes may have replicas that
    believe the same node rank, while replicas of one node may differ. A duplicate that is there when a controller comes
    back is tolerated until it is resolved, among those who share it and nobody else (R3's one exception).
    """

    def __init__(self) -> None:
        self._of: dict[ReplicaId, tuple[NodeId, ReplicaRank]] = {}
        self._believers: dict[Key, dict[ReplicaId, None]] = {}
        self._nodes: dict[int, dict[NodeId, int]] = {}
        self._tolerated: dict[Key, frozenset[str]] = {}

    def changed(self, replica_id: ReplicaId, node_id: NodeId, rank: ReplicaRank) -> list[Violation]:
        """A replica believes this from now on; what that breaks, if anything."""
        before = self._of.get(replica_id)
        if before is not None:
            self._remove(replica_id, *before)
        self._of[replica_id] = (node_id, rank)
        for key in self._keys(node_id, rank):
            self._believers.setdefault(key, {})[replica_id] = None
        counts = self._nodes.setdefault(rank.node_rank, {})
        counts[node_id] = counts.get(node_id, 0) + 1
        if before is not None:
            self._forget_resolved(*before)  # only now: who believes the same again has resolved nothing
        return self._broken(node_id, rank)

    def ended(self, replica_id: ReplicaId) -> None:
        """A replica is gone, and its belief with it."""
        before = self._of.pop(replica_id, None)
        if before is not None:
            self._remove(replica_id, *before)
            self._forget_resolved(*before)

    def tolerate_present_duplicates(self) -> None:
        """A controller comes back: what it finds double is its to repair, and no fault of its own."""
        for key, believers in self._believers.items():
            if len(believers) > 1:
                self._tolerated[key] = frozenset(believers)
        for node_rank, counts in self._nodes.items():
            if len(counts) > 1:
                self._tolerated["node_rank", node_rank] = frozenset(counts)

    def believer_of(self, rank: int) -> ReplicaId | None:
        """Who believes to have a global rank; None: nobody."""
        return next(iter(self._believers.get(("rank", rank), ())), None)

    def of(self, replica_id: ReplicaId) -> ReplicaRank | None:
        """What a live replica believes; None: it was never initialised, or is gone."""
        belief = self._of.get(replica_id)
        return belief[1] if belief is not None else None

    def _remove(self, replica_id: ReplicaId, node_id: NodeId, rank: ReplicaRank) -> None:
        for key in self._keys(node_id, rank):
            believers = self._believers[key]
            del believers[replica_id]
            if not believers:
                del self._believers[key]
        counts = self._nodes[rank.node_rank]
        counts[node_id] -= 1
        if not counts[node_id]:
            del counts[node_id]

    def _forget_resolved(self, node_id: NodeId, rank: ReplicaRank) -> None:
        """A duplicate that is none any more is not tolerated another time."""
        for key in self._keys(node_id, rank):
            if len(self._believers.get(key, ())) < 2:
                self._tolerated.pop(key, None)
        if len(self._nodes[rank.node_rank]) < 2:
            self._tolerated.pop(("node_rank", rank.node_rank), None)

    def _broken(self, node_id: NodeId, rank: ReplicaRank) -> list[Violation]:
        found = []
        for key in self._keys(node_id, rank):
            believers = frozenset(self._believers[key])
            if len(believers) > 1 and not believers <= self._tolerated.get(key, frozenset()):
                what = f"rank {rank.rank}" if key[0] == "rank" else f"local rank {rank.local_rank} on node {node_id}"
                found.append(Violation("R3", f"replicas {', '.join(sorted(believers))} all believe {what}"))
        nodes = frozenset(self._nodes[rank.node_rank])
        if len(nodes) > 1 and not nodes <= self._tolerated.get(("node_rank", rank.node_rank), frozenset()):
            text = f"nodes {', '.join(sorted(nodes))} all have replicas that believe node rank {rank.node_rank}"
            found.append(Violation("R3", text))
        return found

    @staticmethod
    def _keys(node_id: NodeId, rank: ReplicaRank) -> tuple[Key, Key]:
        return ("rank", rank.rank), ("local_rank", node_id, rank.local_rank)
