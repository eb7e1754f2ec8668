"""Compaction: gaps among ranks are closed with the fewest possible moves, at all three levels (R8).

**What.** A level is a set of numbers, each with one holder, and a bound: the global ranks and N, the world size; the node
ranks and M, the number of nodes in use; the local ranks on one node and K, the number of replicas there. A level is compact
when everybody's number is below the bound. `close_gaps` says who gets which number instead, at all levels at once, so that
each replica is told once; it changes nothing itself. The rules of the machine and `RankTable` both ask it.

**Fewest.** Whoever has a number at or above the bound has to move, whatever is done about the others. Nobody else has to:
no more hold a number than the bound says, so below it at least as many are free as are held above it. Exactly the forced
move; of those the lowest takes the lowest free number, so that movers keep their order, and nothing but the numbers
decides. A node that gets another rank takes its replicas along: all of them are told, and no fewer could be.

**Beliefs.** Where replicas are told by message, a number that somebody may still believe is not free (R3). Then fewer may be
free than are needed: the lowest of the movers go, the others wait until an acknowledgement or an end frees a number.

**Why it ends.** Each move takes a holder from above the bound to below it, and none goes the other way, so that the number of
holders above it falls until it is 0. The levels do not disturb each other: a move at one leaves the numbers of the others as
they are. While the bounds stay, nobody is moved twice at one level.

**Cost.** O(what moves, and the words of 1,024 numbers in which free ones are looked for). That nothing is to do is known in
O(1), by the highest number taken.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct, field

from rankcore.values import NodeId

Who = TypeVar("Who", int, str)


class Level(Struct, Generic[Who], gc=False):
    """One level, as far as compaction asks about it.

    Attributes:
        above: The numbers at or above the bound whose holders are to move, ascending. Taken from it are only those that can.
        free: The numbers below the bound that nobody holds or may believe, ascending.
        holder: Who holds a number.
    """

    above: Iterable[int]
    free: Iterable[int]
    holder: Callable[[int], Who]


class Shift(Struct, Generic[Who]):
    """What a compaction changes, level by level.

    Attributes:
        ranks: The new rank of each replica that gets another one.
        node_ranks: The new node rank of each node that gets another one.
        on_nodes: The replicas on those nodes.
        local_ranks: The new local rank of each replica that gets another one.
    """

    ranks: dict[Who, int] = field(default_factory=dict)
    node_ranks: dict[NodeId, int] = field(default_factory=dict)
    on_nodes: dict[Who, None] = field(default_factory=dict)
    local_ranks: dict[Who, int] = field(default_factory=dict)

    def movers(self) -> Iterable[Who]:
        """Everybody who is to be told other ranks, once each."""
        return {**self.ranks, **self.on_nodes, **self.local_ranks}


def close_gaps(
    ranks: Level[Who],
    node_ranks: Level[NodeId],
    local_ranks: Iterable[Level[Who]],
    on_node: Callable[[NodeId], Iterable[Who]],
) -> Shift[Who]:
    """Find the least changes that bring every number below its level's bound.

    Args:
        ranks: The global ranks.
        node_ranks: The node ranks, which nodes hold.
        local_ranks: The local ranks of each node that may have gaps.
        on_node: Who is on a node, and has a rank.
    """
    shift: Shift[Who] = Shift()
    for after, before in forced_moves(ranks):
        shift.ranks[ranks.holder(before)] = after
    for after, before in forced_moves(node_ranks):
        node_id = node_ranks.holder(before)
        shift.node_ranks[node_id] = after
        shift.on_nodes.update(dict.fromkeys(on_node(node_id)))
    for level in local_ranks:
        for after, before in forced_moves(level):
            shift.local_ranks[level.holder(before)] = after
    return shift


def forced_moves(level: Level[Who]) -> Iterator[tuple[int, int]]:
    """The moves of one level as (to, from), both ascending: as many as there are above, or as are free below."""
    return zip(level.free, level.above, strict=False)
