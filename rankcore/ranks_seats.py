"""One replica's place in a rank table, its move to another, and what is refused."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from rankcore.checks import COUNT_MAX
from rankcore.errors import DuplicateRankError, RankError, UnknownReplicaError, shown
from rankcore.values import NodeId, ReplicaId, ReplicaRank


class Seat(Struct, frozen=True, gc=False):
    """Where one replica sits: without the node rank, which its node knows."""

    rank: int
    node_id: NodeId
    local_rank: int


class Move(Struct, frozen=True, gc=False):
    """One replica that has to be told other ranks: its id, the three that it had, and the three that it has now.

    Plain numbers, since a compaction makes many of these and few are looked at; `before` and `after` put them together.
    """

    replica_id: ReplicaId
    old_rank: int
    old_node_rank: int
    old_local_rank: int
    new_rank: int
    new_node_rank: int
    new_local_rank: int

    @classmethod
    def of(cls, replica_id: ReplicaId, before: ReplicaRank, after: ReplicaRank) -> "Move":
        """From two full ranks."""
        old = (before.rank, before.node_rank, before.local_rank)
        return cls(replica_id, *old, after.rank, after.node_rank, after.local_rank)

    @property
    def before(self) -> ReplicaRank:
        """The ranks that it had; at recovery: that it reported."""
        return ReplicaRank(self.old_rank, self.old_node_rank, self.old_local_rank)

    @property
    def after(self) -> ReplicaRank:
        """The ranks that it has now."""
        return ReplicaRank(self.new_rank, self.new_node_rank, self.new_local_rank)


def unknown(replica_id: ReplicaId) -> UnknownReplicaError:
    """Somebody asked for a replica that holds no rank."""
    return UnknownReplicaError(f"replica {replica_id!r} holds no rank in this table")


def already_seated(rank: ReplicaRank, replica_id: ReplicaId) -> DuplicateRankError:
    """Somebody wants to seat a replica for the second time."""
    return DuplicateRankError(f"replica {replica_id!r} has a rank already: {rank}")


def refuse_held(level: str, number: int, claimant: str, holders: Mapping[int, str]) -> None:
    """Refuse a number that is held.

    Raises:
        DuplicateRankError: It is; the text names both.
    """
    if number in holders:
        raise DuplicateRankError(f"{level} {number} of {claimant!r} is held by {holders[number]!r}")


def check_size(size: int, count: int) -> None:
    """Refuse a size that some replicas would find no rank below.

    Raises:
        RankError: There are more than `size` replicas.
    """
    if size < count:
        raise RankError(f"compact(size={size}) takes at most {size} replicas, and the table holds {count}")


def check_ranks(ranks: Collection[object]) -> None:
    """Refuse what cannot be a rank.

    Raises:
        RankError: One of them is not an integer from 0 to 10,000,000; the text shows it.
    """
    for rank in ranks:
        if type(rank) is not int or not 0 <= rank <= COUNT_MAX:
            raise RankError(f"a reported rank must be an integer from 0 to {COUNT_MAX}, got {shown(rank)}")
