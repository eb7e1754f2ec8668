"""On which node a replica is started, where ranks steer that: consecutive ranks on one node (R11)."""

from rankcore.draft import Draft
from rankcore.values import NodeId

PACK = "pack_ranks"


def has_room(draft: Draft) -> bool:
    """Whether a replica can be started now. Without a placement policy the executor finds the room, or waits for it."""
    return draft.spec.placement != PACK or bool(draft.nodes_by_room)


def choose_node(draft: Draft, rank: int) -> NodeId | None:
    """The node for a rank: next to its neighbours in rank, else where most fits. Ask only while there is room.

    Returns:
        None where the executor is free to choose.
    """
    if draft.spec.placement != PACK:
        return None
    for neighbour in (rank - 1, rank + 1):
        slot = draft.slots.get(neighbour)
        holder = draft.replicas[slot.holder] if slot is not None and slot.holder is not None else None
        node_id = (holder.node_id or holder.reserved_node_id) if holder is not None else None
        if node_id is not None and draft.nodes[node_id].room:
            return node_id
    most = max(room for room, _ in draft.nodes_by_room.items())
    return draft.node_ids[draft.nodes_by_room[most].lowest()]
