"""Replica ranks on their own: a persistent three-level table for a scheduler that wants the bookkeeping and no more.

`RankTable` decides at once, on plain calls: it knows nothing of acknowledgements, so what R3 says about beliefs is up
to its caller (`rankcore.step` does all of that). Every change returns a new table and the old one stays valid: keep it
to go back, or to compare. Operations cost O(log N) plus the size of what they change; nothing scans all replicas.

The `ReplicaRank` of a replica is put together when it is asked for: a node that gets another node rank changes the
ranks of all replicas on it without touching their records.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from rankcore.compaction import close_gaps
from rankcore.frozen import EMPTY, PMap
from rankcore.ranks_nodes import (
    NO_HOLES,
    NodeTable,
    freed,
    holes_among,
    level,
    lowest_available,
    node_table,
    occupied,
)
from rankcore.ranks_recovery import Report, settle
from rankcore.ranks_seats import (
    Move,
    Seat,
    already_seated,
    check_ranks,
    check_size,
    refuse_held,
    unknown,
)
from rankcore.rankset import RankSet
from rankcore.values import NodeId, ReplicaId, ReplicaRank


class RankTable(Struct, frozen=True, gc=False):
    """Who holds which rank, node rank and local rank. `RankTable()` is empty.

    >>> table, rank = RankTable().assign("a", "node-1")
    >>> rank
    ReplicaRank(rank=0, node_rank=0, local_rank=0)
    >>> table, rank = table.assign("b", "node-1")
    >>> table, moves = table.release("a").compact()
    >>> [(move.replica_id, move.after) for move in moves]
    [('b', ReplicaRank(rank=0, node_rank=0, local_rank=0))]

    Attributes:
        seats: Rank, node and local rank of each replica.
        holders: The replica that holds each rank.
        holes: The free ranks below the greatest held.
        nodes: Node ranks and local ranks.
    """

    seats: PMap[ReplicaId, Seat] = EMPTY
    holders: PMap[int, ReplicaId] = EMPTY
    holes: RankSet = NO_HOLES
    nodes: NodeTable = NodeTable()

    @classmethod
    def recover(cls, reports: Iterable[Report]) -> tuple["RankTable", tuple[Move, ...]]:
        """Learn all ranks from the running replicas, and repair what does not fit (R10).

        Of two replicas that report one rank the earlier keeps it, and the other gets one that nobody reported; the same
        goes for local ranks on a node, and for the node ranks of nodes. The first replica on a node speaks for its node
        rank. Ranks that nobody reported are available.

        Args:
            reports: (replica id, node id, rank that it believes) of each replica, the oldest first.

        Returns:
            The table, and the replicas that have to be told other ranks than they reported, by their new rank.

        Raises:
            DuplicateRankError: One replica is reported twice.
            RankError: A rank is not an integer from 0 to 10,000,000.
        """
        found = settle(reports)
        nodes = node_table(found.ids, found.locals_of)
        table = cls(PMap(found.seats), PMap(found.holders), holes_among(found.holders), nodes)
        return table, found.moves()

    def __len__(self) -> int:
        return len(self.seats)

    def __contains__(self, replica_id: object) -> bool:
        return replica_id in self.seats

    @property
    def ranks(self) -> Mapping[ReplicaId, ReplicaRank]:
        """The ranks of all replicas: a view, in the order of rank."""
        return _Ranks(self)

    def rank_of(self, replica_id: ReplicaId) -> ReplicaRank:
        """The three ranks that a replica holds.

        Raises:
            UnknownReplicaError: It holds none.
        """
        seat = self._seat(replica_id)
        return ReplicaRank(seat.rank, self.nodes.nodes[seat.node_id].rank, seat.local_rank)

    def node_of(self, replica_id: ReplicaId) -> NodeId:
        """The node that a replica is on.

        Raises:
            UnknownReplicaError: It holds no rank.
        """
        return self._seat(replica_id).node_id

    def holder_of(self, rank: int) -> ReplicaId | None:
        """The replica that holds this global rank; None: nobody does."""
        return self.holders.get(rank)

    def is_compact(self, size: int | None = None) -> bool:
        """Whether `compact(size)` would move nobody. O(1)."""
        size = len(self.seats) if size is None else size
        nodes = self.nodes
        return len(self.holders) + self.holes.size <= size and not nodes.holes.size and not nodes.gappy

    def assign(self, replica_id: ReplicaId, node_id: NodeId) -> tuple["RankTable", ReplicaRank]:
        """Give a new replica the lowest available number at each level (R4); nobody else's changes (R5).

        Args:
            replica_id: Must be new to the table.
            node_id: Where it runs. A node that the table does not know yet gets the lowest available node rank.

        Raises:
            DuplicateRankError: It has a rank already.
        """
        if replica_id in self.seats:
            raise already_seated(self.rank_of(replica_id), replica_id)
        rank, holes = len(self.holders), self.holes
        if holes.size:
            rank, holes = lowest_available(rank, holes)
        nodes, node_rank, local_rank = self.nodes.join(replica_id, node_id)
        seats = self.seats.set(replica_id, Seat(rank, node_id, local_rank))
        table = RankTable(seats, self.holders.set(rank, replica_id), holes, nodes)
        return table, ReplicaRank(rank, node_rank, local_rank)

    def release(self, replica_id: ReplicaId) -> "RankTable":
        """Make a replica's ranks available again, once it has fully stopped (R7); nobody else's change (R5).

        Raises:
            UnknownReplicaError: It holds none.
        """
        seat = self._seat(replica_id)
        holders = self.holders.delete(seat.rank)
        holes = freed(seat.rank, len(holders), self.holes)
        nodes = self.nodes.leave(seat.node_id, seat.local_rank)
        return RankTable(self.seats.delete(replica_id), holders, holes, nodes)

    def replace(self, old_id: ReplicaId, new_id: ReplicaId, node_id: NodeId) -> tuple["RankTable", ReplicaRank]:
        """Put a replacement in the place of a crashed replica: it gets the same global rank (R6).

        Its node and local rank are the lowest available where it is placed, once those of the old one are free.

        Args:
            old_id: The replica that is gone.
            new_id: Its replacement; must be new to the table, since ids are never reused.
            node_id: Where the replacement runs.

        Raises:
            UnknownReplicaError: The old replica holds no rank.
            DuplicateRankError: The new one has a rank already.
        """
        old = self._seat(old_id)
        if new_id in self.seats:
            raise already_seated(self.rank_of(new_id), new_id)
        if node_id == old.node_id:
            nodes, node_rank, local_rank = self.nodes.swap(node_id, old.local_rank, new_id)
        else:
            nodes, node_rank, local_rank = self.nodes.leave(old.node_id, old.local_rank).join(new_id, node_id)
        rank = old.rank
        seats = self.seats.delete(old_id).set(new_id, Seat(rank, node_id, local_rank))
        table = RankTable(seats, self.holders.set(rank, new_id), self.holes, nodes)
        return table, ReplicaRank(rank, node_rank, local_rank)

    def recover_rank(self, replica_id: ReplicaId, node_id: NodeId, rank: ReplicaRank) -> "RankTable":
        """Learn the ranks of one more running replica (R10). `recover` takes many at once, and repairs duplicates.

        Args:
            replica_id: Must be new to the table.
            node_id: Where it runs. A node that has a node rank already keeps it, whatever this replica believes.
            rank: What it believes.

        Raises:
            DuplicateRankError: It has a rank already, or another holds its rank, its local rank, or its node's rank.
            RankError: A rank is not an integer from 0 to 10,000,000.
        """
        check_ranks((rank.rank, rank.node_rank, rank.local_rank))
        if replica_id in self.seats:
            raise already_seated(self.rank_of(replica_id), replica_id)
        refuse_held("rank", rank.rank, replica_id, self.holders)
        nodes = self.nodes.recover(replica_id, node_id, rank.node_rank, rank.local_rank)
        seats = self.seats.set(replica_id, Seat(rank.rank, node_id, rank.local_rank))
        holes = occupied(rank.rank, len(self.holders), self.holes)
        return RankTable(seats, self.holders.set(rank.rank, replica_id), holes, nodes)

    def compact(self, size: int | None = None) -> tuple["RankTable", tuple[Move, ...]]:
        """Close the gaps at all three levels, moving as few replicas as possible (R8).

        Exactly the replicas move whose rank is >= N, whose local rank is >= K, the number of replicas on their node, or
        whose node's rank is >= M, the number of nodes; each goes to the lowest available number, in the order of what
        it had. Costs what it changes: O(1) where nothing is to do.

        Args:
            size: N, the number of ranks to end up below; None: as many as there are replicas.

        Returns:
            The table, and the moves by new rank.

        Raises:
            RankError: There are more than `size` replicas, so that some would have no rank to move to.
        """
        size = len(self.seats) if size is None else size
        check_size(size, len(self.seats))
        if self.is_compact(size):
            return self, ()
        nodes = self.nodes
        shift = close_gaps(
            level(self.holders, self.holes, size),
            level(nodes.ids, nodes.holes, len(nodes.ids)),
            (level(node.holders, node.holes, len(node.holders)) for node in map(nodes.nodes.__getitem__, nodes.gappy)),
            lambda node_id: nodes.nodes[node_id].holders.values(),
        )
        seats, holders, moves = {}, self.holders.mutate(), {}
        there = {node_id: nodes.nodes[node_id].holders.mutate() for node_id in nodes.gappy}
        new_ranks, new_node_ranks, new_local_ranks = shift.ranks, shift.node_ranks, shift.local_ranks
        for replica_id in shift.movers():
            old = self.seats[replica_id]
            node_id, before = old.node_id, old.local_rank
            rank, after = new_ranks.get(replica_id, old.rank), new_local_ranks.get(replica_id, before)
            if rank != old.rank:
                holders[rank] = holders.pop(old.rank)
            if after != before:
                there[node_id][after] = there[node_id].pop(before)
            seats[replica_id] = Seat(rank, node_id, after)
            old_node_rank = nodes.nodes[node_id].rank
            node_rank = new_node_ranks.get(node_id, old_node_rank)
            moves[rank] = Move(replica_id, old.rank, old_node_rank, before, rank, node_rank, after)
        holes = self.holes if size > len(self.seats) else NO_HOLES
        for rank in new_ranks.values() if holes.size else ():
            holes = holes.discard(rank)
        holes = holes.trimmed(size) if holes.size else holes
        nodes = nodes.without_gaps(new_node_ranks, {node_id: locals_.finish() for node_id, locals_ in there.items()})
        table = RankTable(self.seats.update(seats), holders.finish(), holes, nodes)
        return table, tuple(moves[rank] for rank in sorted(moves))

    def _seat(self, replica_id: ReplicaId) -> Seat:
        try:
            return self.seats[replica_id]
        except KeyError:
            raise unknown(replica_id) from None


class _Ranks(Mapping[ReplicaId, ReplicaRank]):
    """The ranks of a table as a mapping, without a copy."""

    def __init__(self, table: RankTable) -> None:
        self._table = table

    def __getitem__(self, replica_id: ReplicaId) -> ReplicaRank:
        if replica_id not in self._table:
            raise KeyError(replica_id)
        return self._table.rank_of(replica_id)

    def __iter__(self) -> Iterator[ReplicaId]:
        holders = self._table.holders
        for rank in self._table.holes.free_below(len(holders) + self._table.holes.size):
            yield holders[rank]

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return repr(dict(self))
