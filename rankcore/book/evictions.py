"""Who is asked to go, by when, and when that has to be looked at again."""

from msgspec.structs import replace

from rankcore.book import slots
from rankcore.commands import KillReplica
from rankcore.draft import NEVER, Draft
from rankcore.evictions import Eviction
from rankcore.state import Replica
from rankcore.values import DRAINING, NodeId


def ask(draft: Draft, replica: Replica, eviction: Eviction) -> None:
    """A replica is to be replaced from now on."""
    draft.evictions = replace(draft.evictions, asked=draft.evictions.asked.set(replica.replica_id, eviction))
    if replica.slot is not None and replica.state is not DRAINING and slots.is_holder(draft, replica):
        slots.note_evicted(draft, replica.slot)


def forget(draft: Draft, replica: Replica) -> None:
    """A replica may stay."""
    draft.evictions = replace(draft.evictions, asked=draft.evictions.asked.delete(replica.replica_id))
    if replica.slot is not None and replica.state is not DRAINING and slots.is_holder(draft, replica):
        slots.forget_evicted(draft, replica.slot)


def deadline_of(draft: Draft, replica: Replica) -> float | None:
    """When a replica is to be gone: its own deadline, or that of the drain of its node, whichever is earlier."""
    asked = draft.evictions.asked.get(replica.replica_id)
    if asked is None:
        return None
    of_node = drain_deadline(draft, replica.node_id)
    if asked.deadline_at is None or of_node is None:
        return of_node if asked.deadline_at is None else asked.deadline_at
    return min(asked.deadline_at, of_node)


def drain_deadline(draft: Draft, node_id: NodeId | None) -> float | None:
    """When everybody on a node is to be gone; None: there is time, or it is not drained."""
    node = draft.nodes.get(node_id) if node_id is not None else None
    return node.drain.deadline_at if node is not None and node.drain is not None else None


def last_call(draft: Draft, deadline_at: float) -> float:
    """When to stop, outside the budget, who is to be gone by then."""
    return deadline_at - draft.spec.graceful_shutdown_timeout_s


def due_of(draft: Draft, replica: Replica) -> float:
    """When a deadline has to be looked at again for a replica."""
    deadline_at = deadline_of(draft, replica)
    if deadline_at is None or type(replica.pending) is KillReplica:
        return NEVER
    return deadline_at if replica.state is DRAINING else last_call(draft, deadline_at)


def next_due(draft: Draft) -> float:
    """The earliest of these times."""
    return min((due_of(draft, draft.replicas[each]) for each in draft.evictions.asked), default=NEVER)
