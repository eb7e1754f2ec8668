"""Nodes: who is where, and which local and node ranks are held or may be believed."""

from msgspec.structs import replace

from rankcore.book.slots import drop, put
from rankcore.draft import Draft
from rankcore.rankset import RankCounts, RankSet
from rankcore.state import Birth, Node, Replica
from rankcore.values import DRAINING, NodeId


def node_of(draft: Draft, node_id: NodeId) -> Node:
    """This node's record, made when it is heard of for the first time."""
    node = draft.nodes.get(node_id)
    if node is None:
        index = len(draft.node_ids)
        node = Node(index)
        draft.node_ids = draft.node_ids.set(index, node_id)
        draft.nodes = draft.nodes.set(node_id, node)
    return node


def store(draft: Draft, node_id: NodeId, old: Node, new: Node) -> None:
    """Put a node's new record in place of its old one, and everything that is derived from it."""
    draft.nodes = draft.nodes.set(node_id, new)
    draft.nodes_used += (new.staying.size > 0) - (old.staying.size > 0)
    if new.staying.size < old.staying.size or new.members.size < old.members.size:
        draft.touched = draft.touched.add(new.index)
    if new.capacity is not None or old.capacity is not None:
        _follow_room(draft, old, new)


def _follow_room(draft: Draft, old: Node, new: Node) -> None:
    before, after = old.room, new.room
    if before != after:
        if before:
            draft.nodes_by_room = drop(draft.nodes_by_room, before, old.index)
        if after:
            draft.nodes_by_room = put(draft.nodes_by_room, after, new.index)


def reserve(draft: Draft, node_id: NodeId, birth: Birth) -> None:
    """Count a requested replica as one that this node will hold."""
    node = node_of(draft, node_id)
    store(draft, node_id, node, replace(node, reserved=node.reserved.add(birth)))


def unreserve(draft: Draft, node_id: NodeId, birth: Birth) -> None:
    """Count it no longer, because it is placed, here or elsewhere, or gone."""
    node = draft.nodes[node_id]
    store(draft, node_id, node, replace(node, reserved=node.reserved.discard(birth)))


def set_node_rank(draft: Draft, node_id: NodeId, node_rank: int) -> None:
    """Write a node's rank into the book. Which replicas believe it is counted with the replicas."""
    node = draft.nodes[node_id]
    if node.node_rank is not None and draft.node_of_rank.get(node.node_rank) == node_id:
        draft.node_of_rank = draft.node_of_rank.delete(node.node_rank)
    draft.node_of_rank = draft.node_of_rank.set(node_rank, node_id)
    draft.nodes = draft.nodes.set(node_id, replace(node, node_rank=node_rank))


def free_node_rank(draft: Draft) -> int:
    """The lowest node rank that no node has and nobody believes."""
    node_rank = draft.node_ranks.lowest_free()
    while node_rank in draft.node_of_rank or node_rank in draft.node_ranks:
        node_rank += 1
    return node_rank


def believed_only_here(draft: Draft, node_id: NodeId, node_rank: int) -> bool:
    """Whether no replica on another node may believe this node rank. Looks at the replicas of this node."""
    members = (draft.replicas[draft.ids[birth]] for birth in draft.nodes[node_id].members)
    return draft.node_ranks.count(node_rank) == sum(node_rank in beliefs(member, NODE) for member in members)


def follow(draft: Draft, old: Replica | None, new: Replica | None) -> None:
    """Bring a node's record from what a replica was to what it is; None: not there before, or no longer."""
    if new is not None and new.node_id is not None:
        node_id, birth = new.node_id, new.birth
    elif old is not None and old.node_id is not None:
        node_id, birth = old.node_id, old.birth
    else:
        return
    node = draft.nodes.get(node_id) or node_of(draft, node_id)
    members, staying, locals_, node_rank = node.members, node.staying, node.locals, node.node_rank
    if new is None:
        members, staying = members.discard(birth), staying.discard(birth)
    elif old is None or old.node_id is None:
        members = members.add(birth)
        if new.state is not DRAINING:
            staying = staying.add(birth)
    elif new.state is DRAINING:
        staying = staying.discard(birth)
    if old is None or new is None or old.told is not new.told or old.believed is not new.believed:
        locals_ = _recount(locals_, LOCAL, old, new)
        draft.node_ranks = _recount(draft.node_ranks, NODE, old, new)
        if node_rank is not None and not _is_believed(draft, members, node_rank):
            # The last replica that believed it is gone; who leaves this node late may still believe an older one.
            draft.node_of_rank = draft.node_of_rank.delete(node_rank)
            node_rank = None
    after = Node(node.index, node_rank, members, staying, locals_, node.reserved, node.capacity, node.capacity_at, node.lost_at)
    store(draft, node_id, node, after)


def _is_believed(draft: Draft, members: RankSet, node_rank: int) -> bool:
    """Whether any of a node's replicas may believe its rank. Others may only while a recovery's duplicates last."""
    if not members.size or not draft.disputed.size:
        return members.size > 0 and node_rank in draft.node_ranks
    return any(node_rank in beliefs(draft.replicas[draft.ids[birth]], NODE) for birth in members)


def _recount(counts: RankCounts, level: str, old: Replica | None, new: Replica | None) -> RankCounts:
    before = beliefs(old, level) if old is not None and old.told is not None else ()
    after = beliefs(new, level) if new is not None and new.told is not None else ()
    for number in after:
        if number not in before:
            counts = counts.add(number)
    for number in before:
        if number not in after:
            counts = counts.discard(number)
    return counts


GLOBAL, NODE, LOCAL = "rank", "node_rank", "local_rank"


def beliefs(replica: Replica | None, level: str) -> tuple[int, ...]:
    """The numbers of one level that a replica may believe, each once."""
    if replica is None or replica.told is None:
        return ()
    told: int = getattr(replica.told, level)
    if not replica.believed:
        return (told,)
    return tuple({told, *(getattr(rank, level) for rank in replica.believed)})
