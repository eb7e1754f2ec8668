"""The index of a state, made from its books alone: for states that are read from JSON, and to check the one that is kept."""

from rankcore.residency.index import Index, Queue, Room, Roster
from rankcore.residency.queue import QueueDraft
from rankcore.residency.room import Books, RoomDraft
from rankcore.residency.roster import RosterDraft, ripe_at
from rankcore.residency.state import ResidencyState


def derive_index(state: ResidencyState, degrees: tuple[int, ...] = ()) -> Index:
    """All of an index; O(size of the state).

    Args:
        state: Whose books.
        degrees: The numbers of GPUs to make shelves for; others are made when somebody looks for them.
    """
    roster, queue = RosterDraft(Roster()), QueueDraft(Queue())
    for replica_id in sorted(state.replicas):
        record = state.replicas[replica_id]
        spec = state.models[record.model]
        roster.change(None, record, spec)
        roster.ripen(replica_id, None, ripe_at(record, spec), state.clock)
        queue.change(None, record, spec, state.asked[record.model])
    room = RoomDraft(Room(degrees=degrees))
    books = Books(state.nodes, state.replicas, state.models, roster.on_gpus, state.policy, state.clock)
    for node_id in sorted(state.nodes):
        room.refresh(node_id, books)
    return Index(roster=roster.freeze(), queue=queue.freeze(), room=room.freeze())
