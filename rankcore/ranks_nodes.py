"""The two lower levels of a rank table: which node has which node rank, and who holds which local rank on it.

One rule at every level: the numbers in use start at 0, and `holes` are the free numbers below the greatest one in use.
The lowest available number is the lowest hole, or else the count of holders; and there is something to compact exactly
when there is a hole. So where no hole exists, which is nearly always, no set of numbers has to be kept up to date.

What is frozen cannot come to hold itself, so the garbage collector need not look at these structs (`gc=False`).
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from rankcore.compaction import Level
from rankcore.frozen import EMPTY, PMap
from rankcore.ranks_seats import refuse_held
from rankcore.rankset import RankSet
from rankcore.values import NodeId, ReplicaId

NO_HOLES = RankSet()

Holder = TypeVar("Holder", int, str)


class Node(Struct, frozen=True, gc=False):
    """One node that the deployment uses.

    Attributes:
        rank: Its node rank.
        holders: The replica that holds each local rank.
        holes: The free local ranks below the greatest held.
    """

    rank: int
    holders: PMap[int, ReplicaId]
    holes: RankSet


class NodeTable(Struct, frozen=True, gc=False):
    """Node ranks and local ranks. Every change returns a new table; the old one stays valid.

    Attributes:
        nodes: The nodes in use, by id.
        ids: The node that holds each node rank.
        holes: The free node ranks below the greatest held.
        gappy: The nodes that have holes, so that compaction finds them without a scan.
    """

    nodes: PMap[NodeId, Node] = EMPTY
    ids: PMap[int, NodeId] = EMPTY
    holes: RankSet = NO_HOLES
    gappy: PMap[NodeId, bool] = EMPTY

    def join(self, replica_id: ReplicaId, node_id: NodeId) -> tuple["NodeTable", int, int]:
        """Seat a replica on a node, at the lowest available local rank; a new node gets the lowest available node rank.

        Returns:
            The new table, the node rank and the local rank.
        """
        node = self.nodes.get(node_id)
        if node is None:
            rank, holes = lowest_available(len(self.ids), self.holes)
            node = Node(rank, EMPTY.set(0, replica_id), NO_HOLES)
            return NodeTable(self.nodes.set(node_id, node), self.ids.set(rank, node_id), holes, self.gappy), rank, 0
        gappy = self.gappy
        holders, holes = node.holders, node.holes
        local_rank = len(holders)
        if holes.size:
            local_rank, holes = lowest_available(local_rank, holes)
            if not holes.size:
                gappy = gappy.delete(node_id)
        new = Node(node.rank, holders.set(local_rank, replica_id), holes)
        return NodeTable(self.nodes.set(node_id, new), self.ids, self.holes, gappy), node.rank, local_rank

    def leave(self, node_id: NodeId, local_rank: int) -> "NodeTable":
        """Free a local rank; with the last replica on a node its node rank is freed too."""
        node = self.nodes[node_id]
        holders, gappy = node.holders.delete(local_rank), self.gappy
        if not holders:
            ids = self.ids.delete(node.rank)
            if node.holes.size:
                gappy = gappy.delete(node_id)
            return NodeTable(self.nodes.delete(node_id), ids, freed(node.rank, len(ids), self.holes), gappy)
        holes = freed(local_rank, len(holders), node.holes)
        if bool(holes.size) is not bool(node.holes.size):
            gappy = gappy.set(node_id, True) if holes.size else gappy.delete(node_id)
        node = Node(node.rank, holders, holes)
        return NodeTable(self.nodes.set(node_id, node), self.ids, self.holes, gappy)

    def swap(self, node_id: NodeId, local_rank: int, replica_id: ReplicaId) -> tuple["NodeTable", int, int]:
        """Let a replica take the place of another on the same node: the same as `leave` and then `join`."""
        node = self.nodes[node_id]
        if node.holes.size or (self.holes.size and len(node.holders) == 1):
            return self.leave(node_id, local_rank).join(replica_id, node_id)
        new = Node(node.rank, node.holders.set(local_rank, replica_id), node.holes)
        return NodeTable(self.nodes.set(node_id, new), self.ids, self.holes, self.gappy), node.rank, local_rank

    def recover(self, replica_id: ReplicaId, node_id: NodeId, rank: int, local_rank: int) -> "NodeTable":
        """Seat a replica where it says it is; the node keeps the rank that it has, if it has one.

        Raises:
            DuplicateRankError: Another replica holds that local rank there, or another node that node rank.
        """
        ids, node_holes, gappy = self.ids, self.holes, self.gappy
        node = self.nodes.get(node_id)
        if node is None:
            refuse_held("node rank", rank, node_id, ids)
            ids, node_holes = ids.set(rank, node_id), occupied(rank, len(ids), node_holes)
            node = Node(rank, EMPTY, NO_HOLES)
        refuse_held("local rank", local_rank, replica_id, node.holders)
        holes = occupied(local_rank, len(node.holders), node.holes)
        if bool(holes.size) is not bool(node.holes.size):
            gappy = gappy.set(node_id, True) if holes.size else gappy.delete(node_id)
        node = Node(node.rank, node.holders.set(local_rank, replica_id), holes)
        return NodeTable(self.nodes.set(node_id, node), ids, node_holes, gappy)

    def without_gaps(self, ranks: dict[NodeId, int], there: dict[NodeId, PMap[int, ReplicaId]]) -> "NodeTable":
        """The table once a compaction has closed all gaps.

        Args:
            ranks: The node rank of each node that gets another one.
            there: Who holds which local rank now, on each node that had gaps.
        """
        nodes, ids = self.nodes.mutate(), self.ids.mutate()
        for node_id, holders in there.items():
            nodes[node_id] = Node(nodes[node_id].rank, holders, NO_HOLES)
        for node_id, rank in ranks.items():
            ids[rank] = ids.pop(nodes[node_id].rank)
            nodes[node_id] = Node(rank, nodes[node_id].holders, NO_HOLES)
        return NodeTable(nodes.finish(), ids.finish(), NO_HOLES, EMPTY)


def node_table(ids: Mapping[int, NodeId], locals_of: Mapping[NodeId, dict[int, ReplicaId]]) -> NodeTable:
    """Build a table in one go, from the node of each node rank and the replica of each local rank on each node."""
    nodes: dict[NodeId, Node] = {}
    gappy: dict[NodeId, bool] = {}
    for rank, node_id in ids.items():
        there = locals_of[node_id]
        holes = holes_among(there)
        nodes[node_id] = Node(rank, PMap(there), holes)
        if holes.size:
            gappy[node_id] = True
    return NodeTable(PMap(nodes), PMap(ids), holes_among(ids), PMap(gappy))


def holes_among(numbers: Mapping[int, object]) -> RankSet:
    """The integers below the greatest of these that are not among them."""
    return NO_HOLES if max(numbers, default=-1) < len(numbers) else RankSet.of(numbers).gaps()


def lowest_available(count: int, holes: RankSet) -> tuple[int, RankSet]:
    """The lowest number not in use, where `count` numbers are, and the holes that remain once it is taken."""
    if not holes.size:
        return count, holes
    return holes.pop_lowest()


def freed(number: int, count: int, holes: RankSet) -> RankSet:
    """The holes once `number` is no longer in use and `count` others still are."""
    if number < count + holes.size:
        return holes.add(number)
    # It was the greatest: holes right below it are no longer below anything in use.
    return holes.trimmed(number) if holes.size else holes


def occupied(number: int, count: int, holes: RankSet) -> RankSet:
    """The holes once `number`, which was free, is in use beside `count` others."""
    bound = count + holes.size
    return holes.discard(number) if number < bound else holes.with_range(bound, number)


def level(holders: PMap[int, Holder], holes: RankSet, size: int) -> Level[Holder]:
    """These numbers as compaction sees them: those from `size` on are to move into the holes."""
    return Level(holes.free_below(len(holders) + holes.size, size), holes, holders.__getitem__)
