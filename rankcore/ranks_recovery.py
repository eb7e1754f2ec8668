"""What the replicas of a restarted controller believe, put together and repaired (R10).

The first report of a rank holds it; whoever reports the same rank later gets one that *nobody* reported, since what is
reported is believed by somebody until told otherwise (R3). The first replica on a node speaks for its node rank.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from rankcore.checks import COUNT_MAX
from rankcore.errors import DuplicateRankError
from rankcore.ranks_seats import Move, Seat, check_ranks
from rankcore.rankset import RankSet
from rankcore.values import NodeId, ReplicaId, ReplicaRank

Report: TypeAlias = tuple[ReplicaId, NodeId, ReplicaRank]


class Recovered(NamedTuple):
    """All that a rank table is made of, as dicts of the caller's own; and what was repaired.

    Attributes:
        seats: Of each replica, the oldest first.
        holders: The replica that holds each rank.
        ids: The node that holds each node rank.
        locals_of: On each node, the replica that holds each local rank.
        refused: What each replica reported that has other ranks than those now.
    """

    seats: dict[ReplicaId, Seat]
    holders: dict[int, ReplicaId]
    ids: dict[int, NodeId]
    locals_of: dict[NodeId, dict[int, ReplicaId]]
    refused: dict[ReplicaId, ReplicaRank]

    def moves(self) -> tuple[Move, ...]:
        """Whom to tell which ranks, by new rank."""
        node_ranks = {node_id: rank for rank, node_id in self.ids.items()} if self.refused else {}
        moves: dict[int, Move] = {}
        for replica_id, reported in self.refused.items():
            seat = self.seats[replica_id]
            after = ReplicaRank(seat.rank, node_ranks[seat.node_id], seat.local_rank)
            moves[seat.rank] = Move.of(replica_id, reported, after)
        return tuple(moves[rank] for rank in sorted(moves))


def settle(reports: Iterable[Report]) -> Recovered:
    """Give every replica the ranks that it reports where nobody before it reported the same, and repair the others.

    Args:
        reports: What each replica believes, the oldest replica first.

    Raises:
        DuplicateRankError: One replica is reported twice.
        RankError: A rank is not an integer from 0 to 10,000,000.
    """
    oldest_first = list(reports)
    seats = {replica_id: Seat(rank.rank, node_id, rank.local_rank) for replica_id, node_id, rank in oldest_first}
    if len(seats) < len(oldest_first):
        raise DuplicateRankError(f"replica {_repeated(oldest_first)!r} is reported twice, and a replica has one rank")
    # Read from the youngest to the oldest, so that what the oldest says stays. Every reported number becomes a key.
    holders = {seat.rank: replica_id for replica_id, seat in reversed(seats.items())}
    locals_of: dict[NodeId, dict[int, ReplicaId]] = {}
    node_ranks: dict[NodeId, int] = {}
    for replica_id, node_id, rank in reversed(oldest_first):
        if node_id in locals_of:
            locals_of[node_id][rank.local_rank] = replica_id
        else:
            locals_of[node_id] = {rank.local_rank: replica_id}
        node_ranks[node_id] = rank.node_rank
    refused = _refused(oldest_first, holders, locals_of, node_ranks)
    _check(set(holders).union(node_ranks.values(), *locals_of.values(), (rank.node_rank for rank in refused.values())))
    _repair_seats(seats, holders, locals_of, refused)
    ids = _repair_nodes(seats, locals_of, node_ranks, refused)
    return Recovered(seats, holders, ids, locals_of, refused)


def _refused(
    reports: list[Report],
    holders: dict[int, ReplicaId],
    locals_of: dict[NodeId, dict[int, ReplicaId]],
    node_ranks: dict[NodeId, int],
) -> dict[ReplicaId, ReplicaRank]:
    """The reports that an older one contradicts, the oldest first."""
    agreed = len(holders) == len(reports) == sum(map(len, locals_of.values()))
    if agreed and all(node_ranks[node_id] == rank.node_rank for _, node_id, rank in reports):
        return {}
    return {
        replica_id: rank
        for replica_id, node_id, rank in reports
        if holders[rank.rank] != replica_id
        or locals_of[node_id][rank.local_rank] != replica_id
        or node_ranks[node_id] != rank.node_rank
    }


def _check(ranks: set[int]) -> None:
    if set(map(type, ranks)) != {int} or min(ranks) < 0 or max(ranks) > COUNT_MAX:
        check_ranks(ranks)


def _repeated(reports: list[Report]) -> ReplicaId:
    counts = Counter(replica_id for replica_id, _, _ in reports)
    return counts.most_common(1)[0][0]


def _repair_seats(
    seats: dict[ReplicaId, Seat],
    holders: dict[int, ReplicaId],
    locals_of: dict[NodeId, dict[int, ReplicaId]],
    refused: dict[ReplicaId, ReplicaRank],
) -> None:
    spare = _unreported(holders)
    spare_on: dict[NodeId, Iterator[int]] = {}
    for replica_id in refused:
        seat = seats[replica_id]
        rank, node_id, local_rank = seat.rank, seat.node_id, seat.local_rank
        if holders[rank] != replica_id:
            rank = next(spare)
            holders[rank] = replica_id
        there = locals_of[node_id]
        if there[local_rank] != replica_id:
            if node_id not in spare_on:
                spare_on[node_id] = _unreported(there)
            local_rank = next(spare_on[node_id])
            there[local_rank] = replica_id
        seats[replica_id] = Seat(rank, node_id, local_rank)


def _repair_nodes(
    seats: dict[ReplicaId, Seat],
    locals_of: dict[NodeId, dict[int, ReplicaId]],
    node_ranks: dict[NodeId, int],
    refused: dict[ReplicaId, ReplicaRank],
) -> dict[int, NodeId]:
    """Which node has which rank, by the same rule. Everybody on a node that loses its rank counts as refused, too."""
    ids = {rank: node_id for node_id, rank in node_ranks.items()}
    if len(ids) == len(node_ranks):
        return ids
    reported = {believed.node_rank for believed in refused.values()}.union(node_ranks.values())
    spare = _unreported(reported)
    ids = {}
    for node_id in dict.fromkeys(seat.node_id for seat in seats.values()):
        rank = node_ranks[node_id]
        if ids.setdefault(rank, node_id) == node_id:
            continue
        ids[next(spare)] = node_id
        for replica_id in locals_of[node_id].values():
            seat = seats[replica_id]
            refused.setdefault(replica_id, ReplicaRank(seat.rank, rank, seat.local_rank))
    return ids


def _unreported(numbers: Iterable[int]) -> Iterator[int]:
    """The numbers that are not among these, ascending. They are read when the first one is asked for, and not again."""
    yield from RankSet.of(numbers).free_below(2 * COUNT_MAX)
