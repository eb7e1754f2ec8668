"""Nodes: who is where, and which local and node ranks are held or may be believed.

Each of these is called by what happens to a replica: it is placed, is told other ranks, begins to leave, or is gone.
"""

from collections.abc import Callable
from operator import attrgetter

from msgspec.structs import replace

from rankcore.draft import Draft
from rankcore.frozen import PMap
from rankcore.rankset import RankCounts, RankSet
from rankcore.state import Ids, Node, Replica, without
from rankcore.values import DRAINING, NodeId, ReplicaId, ReplicaRank


def node_of(draft: Draft, node_id: NodeId) -> Node:
    """This node's record, made when it is heard of for the first time."""
    node = draft.nodes.get(node_id)
    if node is None:
        index = draft.next_node
        draft.next_node = index + 1
        node = Node(index)
        draft.node_ids = draft.node_ids.set(index, node_id)
        draft.nodes = draft.nodes.set(node_id, node)
    return node


def store(draft: Draft, node_id: NodeId, old: Node, new: Node) -> None:
    """Put a node's new record in place of its old one, and everything that is derived from it."""
    draft.nodes = draft.nodes.set(node_id, new)
    before, after = old.staying, new.staying
    if before != after:
        if before:
            draft.nodes_by_staying = draft.nodes_by_staying.discard((before, -old.newest, node_id))
        if after:
            draft.nodes_by_staying = draft.nodes_by_staying.add((after, -new.newest, node_id))
    if after < before or len(new.members) < len(old.members):
        draft.touched = draft.touched.set(node_id, new.index) if new.has_gap else without(draft.touched, node_id)
    if new.capacity is not None or old.capacity is not None:
        _follow_room(draft, old, new)


def _follow_room(draft: Draft, old: Node, new: Node) -> None:
    before, after = old.room, new.room
    if before != after:
        if before:
            draft.nodes_by_room = drop(draft.nodes_by_room, before, old.index)
        if after:
            draft.nodes_by_room = put(draft.nodes_by_room, after, new.index)


def put(sets: PMap[int, RankSet], key: int, member: int) -> PMap[int, RankSet]:
    """With this member in the set under this key."""
    return sets.set(key, sets.get(key, RankSet()).add(member))


def drop(sets: PMap[int, RankSet], key: int, member: int) -> PMap[int, RankSet]:
    """Without this member in the set under this key; empty sets are not kept."""
    rest = sets[key].discard(member)
    return sets.set(key, rest) if rest.size else sets.delete(key)


def reserve(draft: Draft, node_id: NodeId, replica: Replica) -> None:
    """Count a requested replica as one that this node will hold."""
    node = node_of(draft, node_id)
    store(draft, node_id, node, replace(node, reserved=node.reserved.set(replica.replica_id, replica.birth)))


def unreserve(draft: Draft, node_id: NodeId, replica_id: ReplicaId) -> None:
    """Count it no longer, because it is placed, here or elsewhere, or gone."""
    node = draft.nodes[node_id]
    store(draft, node_id, node, replace(node, reserved=without(node.reserved, replica_id)))


def set_node_rank(draft: Draft, node_id: NodeId, node_rank: int) -> None:
    """Write a node's rank into the book. What its replicas believe of the one before counts for itself from now on."""
    node = draft.nodes[node_id]
    counts = draft.node_ranks.add(node_rank)
    if node.node_rank is not None and draft.node_of_rank.get(node.node_rank) == node_id:
        draft.node_of_rank = draft.node_of_rank.delete(node.node_rank)
        counts = counts.discard(node.node_rank)
    for member in draft.those(node.members):
        for number in beliefs(member, NODE):
            if number == node_rank:
                counts = counts.discard(number)
            elif number == node.node_rank:
                counts = counts.add(number)
    draft.node_ranks = counts
    draft.node_of_rank = draft.node_of_rank.set(node_rank, node_id)
    draft.nodes = draft.nodes.set(node_id, replace(node, node_rank=node_rank))


def believed_only_here(draft: Draft, node_id: NodeId, node_rank: int) -> bool:
    """Whether no replica on another node may believe a node's rank: it counts once for its node, and once for each of those."""
    assert draft.node_of_rank.get(node_rank) == node_id, f"{node_id} does not have node rank {node_rank}"
    return draft.node_ranks.count(node_rank) == 1


def join(draft: Draft, replica: Replica) -> None:
    """A replica is on a node from now on."""
    assert replica.node_id is not None, f"{replica.replica_id} is placed on no node"
    node = node_of(draft, replica.node_id)
    members = node.members.set(replica.replica_id, replica.birth)
    staying, newest = node.staying, node.newest
    if replica.state is not DRAINING:
        staying, newest = staying + 1, max(newest, replica.birth)
    store(draft, replica.node_id, node, replace(node, members=members, staying=staying, newest=newest))


def begin_to_leave(draft: Draft, replica: Replica) -> None:
    """A replica counts no longer among those that stay on its node."""
    if replica.node_id is not None:
        node = draft.nodes[replica.node_id]
        store(draft, replica.node_id, node, replace(node, staying=node.staying - 1, newest=_newest_but(draft, node, replica)))


def leave(draft: Draft, gone: Replica) -> None:
    """A replica is on its node no longer, and believes nothing."""
    if gone.node_id is not None:
        node = draft.nodes[gone.node_id]
        members, staying, newest = node.members.delete(gone.replica_id), node.staying, node.newest
        if gone.state is not DRAINING:
            staying, newest = staying - 1, _newest_but(draft, node, gone)
        locals_ = _counted(node.locals, beliefs(gone, LOCAL), ())
        draft.node_ranks = _counted(draft.node_ranks, beliefs(gone, NODE), (), node.node_rank)
        node_rank = _still_believed(draft, members, locals_, node.node_rank)
        node_now = replace(node, node_rank=node_rank, members=members, staying=staying, newest=newest, locals=locals_)
        store(draft, gone.node_id, node, node_now)


def _newest_but(draft: Draft, node: Node, leaver: Replica) -> int:
    """The birth of the newest that stays on a node without this one; only looked for where that was the newest."""
    if leaver.birth != node.newest:
        return node.newest
    others = draft.those(node.members.delete(leaver.replica_id))
    return max((each.birth for each in others if each.state is not DRAINING), default=-1)


def believe(draft: Draft, old: Replica, new: Replica) -> None:
    """A replica on a node may believe other ranks than before."""
    assert new.node_id is not None, f"{new.replica_id} believes a rank, and is on no node"
    node = draft.nodes[new.node_id]
    locals_ = _counted(node.locals, beliefs(old, LOCAL), beliefs(new, LOCAL))
    draft.node_ranks = _counted(draft.node_ranks, beliefs(old, NODE), beliefs(new, NODE), node.node_rank)
    node_rank = _still_believed(draft, node.members, locals_, node.node_rank)
    node = replace(node, node_rank=node_rank, locals=locals_)
    draft.nodes = draft.nodes.set(new.node_id, node)
    if draft.touched and not node.has_gap:
        draft.touched = without(draft.touched, new.node_id)


def _still_believed(draft: Draft, members: Ids, locals_: RankCounts, node_rank: int | None) -> int | None:
    """A node's rank; it is free, and the node has none, once the last of its replicas that believed it is gone."""
    counts, believed = draft.node_ranks, locals_.taken.size > 0
    if believed and (counts.extra or counts.taken.size != len(draft.node_of_rank)):
        # Somebody believes another than its node's: who has a local rank here may be one who came with that.
        believed = any(node_rank in beliefs(member, NODE) for member in draft.those(members))
    if believed or node_rank is None:
        return node_rank
    draft.node_of_rank = draft.node_of_rank.delete(node_rank)
    draft.node_ranks = draft.node_ranks.discard(node_rank)
    return None


def _counted(counts: RankCounts, before: tuple[int, ...], after: tuple[int, ...], own: int | None = None) -> RankCounts:
    """With what a replica believes after instead of before; what is its node's own is counted once for the node."""
    for number in after:
        if number not in before and number != own:
            counts = counts.add(number)
    for number in before:
        if number not in after and number != own:
            counts = counts.discard(number)
    return counts


GLOBAL, NODE, LOCAL = attrgetter("rank"), attrgetter("node_rank"), attrgetter("local_rank")


def beliefs(replica: Replica, level: Callable[[ReplicaRank], int]) -> tuple[int, ...]:
    """The numbers of one level that a replica may believe, each once."""
    if replica.told is None:
        return ()
    if not replica.believed:
        return (level(replica.told),)
    return tuple({level(replica.told), *map(level, replica.believed)})
