"""News of nodes: one came or changed, or one is gone with all that was on it."""

from msgspec.structs import replace

from rankcore.book.nodes import node_of, store
from rankcore.draft import Draft
from rankcore.events import NodeChanged, NodeLost
from rankcore.notes import LATE, NoteKind
from rankcore.rules import forget, leaving, static
from rankcore.rules.endings import ended
from rankcore.state import oldest_first


def on_node_changed(draft: Draft, event: NodeChanged) -> None:
    """Remember how many replicas of this deployment a node can hold."""
    if event.node_id not in draft.nodes and event.at <= draft.evictions.forgotten_at:
        draft.note(LATE, "2", because=f"NodeChanged of {event.node_id}, from before nodes that are forgotten by now were lost")
        return
    node = node_of(draft, event.node_id)
    if event.at < max(node.lost_at, node.capacity_at):
        draft.note(LATE, "2", because=f"NodeChanged of {event.node_id}, which was lost or has changed since")
        return
    draft.note(NoteKind.NODE_CHANGED, "R11", because=f"{event.node_id} can hold {event.capacity} replicas")
    node = replace(node, capacity=event.capacity, capacity_at=event.at)
    store(draft, event.node_id, draft.nodes[event.node_id], node)
    # Others may have taken the room that was meant for a replica on its way: it is wanted elsewhere now.
    crowd = len(node.members) + len(node.reserved) - event.capacity
    for replica_id in reversed(oldest_first(node.reserved)[-crowd:] if crowd > 0 else ()):
        because = f"node {event.node_id} has no room for it any more"
        leaving.kill(draft, draft.replicas[replica_id], "R11", because)


def on_node_lost(draft: Draft, event: NodeLost) -> None:
    """End what was placed or reported there no later than the loss; what the core only wanted there goes elsewhere."""
    node = draft.nodes.get(event.node_id)
    if event.at <= (draft.evictions.forgotten_at if node is None else node.lost_at):
        draft.note(LATE, "2", because=f"NodeLost of {event.node_id}, known already")
        return
    node = node_of(draft, event.node_id)
    draft.note(NoteKind.NODE_LOST, "2", because=f"{event.node_id} with {len(node.members)} replicas")
    capacity = 0 if node.capacity is not None and node.capacity_at <= event.at else node.capacity
    lost = replace(node, capacity=capacity, lost_at=event.at)
    if node.cordon_at <= event.at:
        lost = replace(lost, cordoned=False, drain=None)
    store(draft, event.node_id, node, lost)
    forget.remember_loss(draft, event.node_id)
    there = draft.those(node.members)
    gone = [replica for replica in there if replica.seen_at <= event.at]
    for replica in gone:  # all bundles first: one may belong to the rank of another that ends here
        static.lose_with_node(draft, replica, event.node_id, event.at)
    for replica in gone:
        ended(draft, replica, f"node {event.node_id} was lost", node_lost=True)
    for replica in draft.those(node.reserved):
        if replica.since <= event.at:
            leaving.kill(draft, replica, "R11", f"node {event.node_id} was lost before it came there")
