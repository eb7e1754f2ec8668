"""Since when a replica has been ready on its build, who has not been for `min_ready_s`, and who owes a user_config."""

from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from rankcore.draft import Draft
from rankcore.state import Replica, without
from rankcore.timers import NO_TIMER, Queue, Sent
from rankcore.values import PREPARED, ReplicaId


def begin(draft: Draft, replica: Replica, ready_for_s: float = 0.0) -> dict[str, Any]:
    """A replica is ready on its build, for so long already. Returns what its record says of it.

    Who took requests while it had no rank, and was not told another user_config with it, has been ready all the while (V3).
    """
    if replica.unready is not None:  # that it is up counts once it is ready again
        draft.progressed = draft.progressed or replica.replica_id in draft.configuring
        end(draft, replica)
        return {"ready_at": draft.clock, "ready_timer": NO_TIMER}
    if replica.routed and replica.ready_at is not None:
        if replica.ready_at + draft.spec.min_ready_s <= draft.clock:
            notice_available(draft, replica)
        return {}
    if draft.configuring and replica.replica_id in draft.configuring:
        draft.configuring = draft.configuring.delete(replica.replica_id)
        draft.progressed = True
    since = draft.clock - ready_for_s
    timer = _enter(draft, replica.replica_id, since) if draft.spec.min_ready_s else NO_TIMER
    if since + draft.spec.min_ready_s <= draft.clock:
        notice_available(draft, replica)
    return {"ready_at": since, "ready_timer": timer}


def notice_available(draft: Draft, replica: Replica) -> None:
    """A replica has been ready, or prepared, for `min_ready_s`: where it is what an update wants, that comes forward (V9)."""
    if replica.is_of(draft.spec):
        draft.progressed = True


def await_config(draft: Draft, replica: Replica) -> dict[str, Any]:
    """It is told another user_config, and has to be ready on that. Returns what its record says of it."""
    end(draft, replica)
    draft.configuring = draft.configuring.set(replica.replica_id, replica.birth)
    return {"ready_at": None, "ready_timer": NO_TIMER}


def suspend(draft: Draft, replica: Replica) -> dict[str, Any]:
    """It is unready: it comes no nearer to being available. Returns what its record says of it."""
    draft.maturing = draft.maturing.discard(replica.ready_timer)
    return {"ready_timer": NO_TIMER}


def begin_prepared(draft: Draft, replica: Replica, prepared_for_s: float = 0.0) -> dict[str, Any]:
    """Its user code is up without a rank, for so long already, and takes no requests. Returns what its record says of it."""
    since = draft.clock - prepared_for_s
    return {"since": since, "ready_timer": _enter_prepared(draft, replica.replica_id, since)}


def begin_early(draft: Draft, replica: Replica, prepared_for_s: float = 0.0) -> dict[str, Any]:
    """Its user code is up without a rank, for so long already, and takes requests. Returns what its record says of it."""
    since = draft.clock - prepared_for_s
    timer = _enter(draft, replica.replica_id, since)
    return {"since": since, "ready_at": since, "ready_timer": timer, "routed": True}


def end_prepared(draft: Draft, replica: Replica) -> None:
    """Who took no requests is told its first ranks, is prepared anew, or goes."""
    draft.ripening = draft.ripening.discard(replica.ready_timer)


def end(draft: Draft, replica: Replica) -> None:
    """It serves no longer, or is to run another build."""
    if replica.ready_timer != NO_TIMER:
        draft.maturing = draft.maturing.discard(replica.ready_timer)
    if draft.configuring:
        draft.configuring = without(draft.configuring, replica.replica_id)


def follow_spec(draft: Draft) -> list[Replica]:
    """Make the queue anew for another `min_ready_s`: O(N). Returns who is ready or prepared, for longest first."""
    draft.maturing, draft.ripening = Queue(), Queue()
    ready = [(at, replica.birth, replica) for replica in draft.replicas.values() if (at := ready_since(replica)) is not None]
    ready.sort(key=itemgetter(0, 1))
    for at, _, replica in ready:
        enter = _enter if replica.routed else _enter_prepared
        number = enter(draft, replica.replica_id, at)
        draft.replicas = draft.replicas.set(replica.replica_id, replace(replica, ready_timer=number))
    return [replica for _, _, replica in ready]


def ready_since(replica: Replica) -> float | None:
    """Since when it has been ready on its build, or prepared; None: it is neither, or unready."""
    if replica.state is PREPARED and not replica.routed:
        return replica.since
    return replica.ready_at if replica.routed else None


def _enter(draft: Draft, replica_id: ReplicaId, ready_at: float) -> int:
    # Reports come in any order, and the queues are in that of time: they are made once all have reported (`recovery.repair`).
    if ready_at + draft.spec.min_ready_s <= draft.clock or draft.recovery.unreported:
        return NO_TIMER
    draft.maturing = draft.maturing.push(Sent(replica_id, ready_at))
    draft.wake(ready_at + draft.spec.min_ready_s)
    return draft.maturing.tail - 1


def _enter_prepared(draft: Draft, replica_id: ReplicaId, since: float) -> int:
    if since + draft.spec.min_ready_s <= draft.clock or draft.recovery.unreported:
        return NO_TIMER
    draft.ripening = draft.ripening.push(Sent(replica_id, since))
    draft.wake(since + draft.spec.min_ready_s)
    return draft.ripening.tail - 1
