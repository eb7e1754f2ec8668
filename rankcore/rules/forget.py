"""Lost nodes are forgotten: a cluster of spot nodes loses thousands, and each has an id of its own (V20).

A lost node is remembered because news from before its loss may come late: a replica that was placed there is gone, and a cordon
of it means nothing. Both need somebody who is older than the loss, or a message that took long; so a node is forgotten
`node_memory_s` after its loss if nobody is there, wanted there, or believes its rank, and nobody who was requested before the
loss is without a place or has still to report. Of an unknown node, news that is not later than the last loss of a forgotten one
is late: it may be of one of those.

It costs O(N) for each node that is forgotten, and wakes nobody: there is time until the next step.
"""

from msgspec.structs import replace

from rankcore.draft import Draft
from rankcore.evictions import Departed
from rankcore.notes import NoteKind
from rankcore.state import Node, without
from rankcore.values import FAILED, NodeId


def remember_loss(draft: Draft, node_id: NodeId) -> None:
    """A node was lost, and is to be forgotten some time."""
    _look_later(draft, Departed(node_id, draft.nodes[node_id].lost_at, draft.next_birth, draft.clock))


def _look_later(draft: Draft, departed: Departed) -> None:
    draft.evictions = replace(draft.evictions, departed=draft.evictions.departed.push(departed))


def forget(draft: Draft) -> None:
    """Forget what was lost long ago; what cannot be forgotten yet is looked at again as long after this."""
    memory_s, end = draft.spec.node_memory_s, draft.evictions.departed.tail
    while (queue := draft.evictions.departed).head < end and queue.first().at + memory_s <= draft.clock:
        departed = queue.first()
        draft.evictions = replace(draft.evictions, departed=queue.pop())
        node = draft.nodes[departed.node_id]
        if node.lost_at != departed.lost_at or node.capacity or max(node.capacity_at, node.cordon_at) > node.lost_at:
            continue  # lost once more, or there again, were it in the same instant
        if _is_needed(draft, node, departed.births):
            _look_later(draft, replace(departed, at=draft.clock))
        else:
            _forget(draft, departed.node_id, node)


def _is_needed(draft: Draft, node: Node, births: int) -> bool:
    if node.members or node.reserved or node.node_rank is not None:
        return True
    everybody = draft.replicas.values()
    return any(each.node_id is None and each.birth < births and each.state is not FAILED for each in everybody)


def _forget(draft: Draft, node_id: NodeId, node: Node) -> None:
    draft.note(NoteKind.NODE_FORGOTTEN, "V20", because=f"{node_id}, lost at {node.lost_at:g} s")
    draft.nodes = draft.nodes.delete(node_id)
    draft.node_ids = draft.node_ids.delete(node.index)
    draft.touched = without(draft.touched, node_id)
    forgotten_at = max(draft.evictions.forgotten_at, node.lost_at)
    draft.evictions = replace(draft.evictions, forgotten_at=forgotten_at)
