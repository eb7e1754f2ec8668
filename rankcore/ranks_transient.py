"""The same rank table, changed in place on plain dicts: for a start-up, a recovery or the loss of a rack."""

from collections.abc import Iterable
from heapq import heappop, heappush

from rankcore.frozen import PMap
from rankcore.ranks import RankTable
from rankcore.ranks_nodes import Node, NodeTable, Pairs, holes_among
from rankcore.ranks_recovery import Report, settle
from rankcore.ranks_seats import (
    Move,
    Seat,
    Shift,
    already_seated,
    check_ranks,
    check_size,
    refuse_held,
    reseat,
    unknown,
)
from rankcore.rankset import RankSet
from rankcore.values import NodeId, ReplicaId, ReplicaRank


class RankTransient:
    """A `RankTable` that changes in place: the same operations with the same results, several times faster.

    To make one from a table, and a table from it, costs O(N); neither shares anything with the other afterwards.

    >>> ranks = RankTransient()
    >>> [ranks.assign(replica_id, "node-1").rank for replica_id in ("a", "b", "c")]
    [0, 1, 2]
    >>> ranks.release("a")
    >>> [(move.replica_id, move.after.rank) for move in ranks.compact()]
    [('c', 0)]
    >>> ranks.freeze().holder_of(0)
    'c'
    """

    def __init__(self, table: RankTable | None = None) -> None:
        """Start with what a table holds; None: empty."""
        table = table or RankTable()
        nodes = table.nodes
        self._seats = dict(table.seats)
        self._ranks = _Level(dict(table.holders), list(table.holes))
        self._node_ranks = _Level(dict(nodes.ids), list(nodes.holes))
        self._nodes = {node_id: _Node(node.rank, dict(node.holders), list(node.holes)) for node_id, node in nodes.nodes.items()}
        self._gappy = set(nodes.gappy)

    @classmethod
    def recover(cls, reports: Iterable[Report]) -> tuple["RankTransient", tuple[Move, ...]]:
        """Learn all ranks from the running replicas, and repair what does not fit: as `RankTable.recover`."""
        found = settle(reports)
        ranks = cls()
        ranks._seats = found.seats
        ranks._ranks = _Level(found.holders, list(holes_among(found.holders)))
        ranks._node_ranks = _Level(found.ids, list(holes_among(found.ids)))
        for rank, node_id in found.ids.items():
            holders = found.locals_of[node_id]
            ranks._nodes[node_id] = node = _Node(rank, holders, list(holes_among(holders)))
            if node.spare:
                ranks._gappy.add(node_id)
        return ranks, found.moves()

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, replica_id: object) -> bool:
        return replica_id in self._seats

    def rank_of(self, replica_id: ReplicaId) -> ReplicaRank:
        """The three ranks that a replica holds. Raises `UnknownReplicaError` where it holds none."""
        seat = self._seat(replica_id)
        return ReplicaRank(seat.rank, self._nodes[seat.node_id].rank, seat.local_rank)

    def node_of(self, replica_id: ReplicaId) -> NodeId:
        """The node that a replica is on. Raises `UnknownReplicaError` where it holds no rank."""
        return self._seat(replica_id).node_id

    def holder_of(self, rank: int) -> ReplicaId | None:
        """The replica that holds this global rank; None: nobody does."""
        return self._ranks.holders.get(rank)

    def is_compact(self, size: int | None = None) -> bool:
        """Whether `compact(size)` would move nobody. O(1)."""
        size = len(self._seats) if size is None else size
        return self._ranks.bound <= size and self._node_ranks.bound == len(self._nodes) and not self._gappy

    def assign(self, replica_id: ReplicaId, node_id: NodeId) -> ReplicaRank:
        """Give a new replica the lowest available number at each level: as `RankTable.assign`."""
        if replica_id in self._seats:
            raise already_seated(self.rank_of(replica_id), replica_id)
        return self._sit(replica_id, node_id, self._ranks.take(replica_id))

    def release(self, replica_id: ReplicaId) -> None:
        """Make a replica's ranks available again: as `RankTable.release`."""
        seat = self._seat(replica_id)
        self._ranks.free(seat.rank)
        self._leave(replica_id, seat)

    def replace(self, old_id: ReplicaId, new_id: ReplicaId, node_id: NodeId) -> ReplicaRank:
        """Put a replacement in the place of a crashed replica, with the same global rank: as `RankTable.replace`."""
        seat = self._seat(old_id)
        if new_id in self._seats:
            raise already_seated(self.rank_of(new_id), new_id)
        self._leave(old_id, seat)
        self._ranks.holders[seat.rank] = new_id
        return self._sit(new_id, node_id, seat.rank)

    def recover_rank(self, replica_id: ReplicaId, node_id: NodeId, rank: ReplicaRank) -> None:
        """Learn the ranks of one more running replica: as `RankTable.recover_rank`."""
        check_ranks((rank.rank, rank.node_rank, rank.local_rank))
        if replica_id in self._seats:
            raise already_seated(self.rank_of(replica_id), replica_id)
        refuse_held("rank", rank.rank, replica_id, self._ranks.holders)
        node = self._nodes.get(node_id)
        if node is None:
            refuse_held("node rank", rank.node_rank, node_id, self._node_ranks.holders)
            node = self._nodes[node_id] = _Node(rank.node_rank, {}, [])
            self._node_ranks.put(rank.node_rank, node_id)
        refuse_held("local rank", rank.local_rank, replica_id, node.holders)
        self._ranks.put(rank.rank, replica_id)
        node.put(rank.local_rank, replica_id)
        self._note_gaps(node_id, node)
        self._seats[replica_id] = Seat(rank.rank, node_id, rank.local_rank)

    def compact(self, size: int | None = None) -> tuple[Move, ...]:
        """Close the gaps at all three levels, moving as few replicas as possible: as `RankTable.compact`.

        Costs O(what moves, and what was released since the last time).
        """
        size = len(self._seats) if size is None else size
        check_size(size, len(self._seats))
        if self.is_compact(size):
            return ()
        shift = Shift({}, {}, {}, set())
        for _, rank in self._ranks.close(size):
            shift.ranks[self._ranks.holders[rank]] = rank
        for old, rank in self._node_ranks.close(len(self._nodes)):
            node_id = self._node_ranks.holders[rank]
            self._nodes[node_id].rank = rank
            shift.old_node_ranks[node_id] = old
            shift.renumbered.update(self._nodes[node_id].holders.values())
        for node_id in self._gappy:
            node = self._nodes[node_id]
            for _, local_rank in node.close(len(node.holders)):
                shift.local_ranks[node.holders[local_rank]] = local_rank
        self._gappy = set()
        changed, moves = reseat(shift, self._seats, self._nodes)
        self._seats.update(changed)
        return moves

    def freeze(self) -> RankTable:
        """The table as it is now. What happens here afterwards does not change it."""
        nodes = {
            node_id: Node(node.rank, PMap(node.holders), RankSet.of(node.holes())) for node_id, node in self._nodes.items()
        }
        ids, gappy = self._node_ranks, dict.fromkeys(self._gappy, True)
        node_table = NodeTable(PMap(nodes), PMap(ids.holders), RankSet.of(ids.holes()), PMap(gappy))
        return RankTable(PMap(self._seats), PMap(self._ranks.holders), RankSet.of(self._ranks.holes()), node_table)

    def _sit(self, replica_id: ReplicaId, node_id: NodeId, rank: int) -> ReplicaRank:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(self._node_ranks.take(node_id), {}, [])
        local_rank = node.take(replica_id)
        self._note_gaps(node_id, node)
        self._seats[replica_id] = Seat(rank, node_id, local_rank)
        return ReplicaRank(rank, node.rank, local_rank)

    def _leave(self, replica_id: ReplicaId, seat: Seat) -> None:
        node = self._nodes[seat.node_id]
        node.free(seat.local_rank)
        self._note_gaps(seat.node_id, node)
        if not node.holders:
            self._node_ranks.free(node.rank)
            del self._nodes[seat.node_id]
        del self._seats[replica_id]

    def _note_gaps(self, node_id: NodeId, node: "_Node") -> None:
        if node.bound != len(node.holders):
            self._gappy.add(node_id)
        elif node_id in self._gappy:
            self._gappy.remove(node_id)

    def _seat(self, replica_id: ReplicaId) -> Seat:
        try:
            return self._seats[replica_id]
        except KeyError:
            raise unknown(replica_id) from None


class _Level:
    """Numbers from 0 and who holds them, for one level.

    Attributes:
        holders: Who holds which number.
        bound: One more than the greatest number held.
        spare: A heap with every free number below `bound`. Others may be in it, so look before you take one.
    """

    __slots__ = ("bound", "holders", "spare")

    def __init__(self, holders: dict[int, str], spare: list[int]) -> None:
        """`spare`: the free numbers below the greatest held, ascending."""
        self.holders = holders
        self.bound = len(holders) + len(spare)
        self.spare = spare

    def take(self, holder: str) -> int:
        """Give out the lowest available number."""
        while self.spare:
            number = heappop(self.spare)
            if number < self.bound and number not in self.holders:
                break
        else:
            number = self.bound
            self.bound += 1
        self.holders[number] = holder
        return number

    def put(self, number: int, holder: str) -> None:
        """Give out this number, which is free."""
        for hole in range(self.bound, number):
            heappush(self.spare, hole)
        self.bound = max(self.bound, number + 1)
        self.holders[number] = holder

    def free(self, number: int) -> None:
        """Take a number back."""
        del self.holders[number]
        if number == self.bound - 1:
            self._lower(number)
        else:
            heappush(self.spare, number)

    def holes(self) -> list[int]:
        """The free numbers below the greatest held, ascending."""
        return sorted({number for number in self.spare if number < self.bound and number not in self.holders})

    def close(self, size: int) -> Pairs:
        """Bring every number >= size down to the lowest holes; (from, to) of each, both ascending."""
        above = [number for number in range(size, self.bound) if number in self.holders]
        holes = self.holes()
        pairs = list(zip(above, holes, strict=False))
        for old, new in pairs:
            self.holders[new] = self.holders.pop(old)
        self.spare = holes[len(pairs) :]
        self._lower(min(self.bound, size))
        return pairs

    def _lower(self, bound: int) -> None:
        """Nothing from `bound` on is held any more."""
        while bound and bound - 1 not in self.holders:
            bound -= 1
        self.bound = bound


class _Node(_Level):
    """One node: its node rank, and who holds its local ranks."""

    __slots__ = ("rank",)

    def __init__(self, rank: int, holders: dict[int, str], spare: list[int]) -> None:
        super().__init__(holders, spare)
        self.rank = rank
