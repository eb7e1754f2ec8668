"""What has fallen due by the clock: repeats, start time-outs, ends of back-off, late reports (section 2.4), progress (V9)."""

from msgspec.structs import replace

from rankcore.book import evictions, replicas
from rankcore.commands import KillReplica, StopReplica
from rankcore.draft import NEVER, Draft
from rankcore.notes import REPEATED
from rankcore.rules import evict, leaving, stall
from rankcore.rules.bind import go_without
from rankcore.rules.failures import count_failure
from rankcore.rules.prove import mature
from rankcore.state import Replica
from rankcore.timers import Retry
from rankcore.values import PREPARING, STARTING


def expire(draft: Draft) -> None:
    """Do what is due. Ask only from the time on that the executor was asked to wake the core at."""
    _expire_reports(draft)
    mature(draft)
    _expire_starts(draft)
    _expire_patience(draft)
    _expire_retries(draft)
    _repeat(draft)
    if draft.evictions.asked:
        evict.enforce(draft)
    stall.expire(draft)
    draft.wake_at = None
    draft.wake(next_due(draft))


def _expire_reports(draft: Draft) -> None:
    if draft.recovery.reports_due_at is None or draft.clock < draft.recovery.reports_due_at:
        return
    draft.recovery = replace(draft.recovery, reports_due_at=None)
    for replica in draft.those(draft.recovery.unreported):
        if type(replica.pending) is not KillReplica:
            leaving.kill(draft, replica, "2.4", "it was discovered and has not reported in time")


def _expire_starts(draft: Draft) -> None:
    # Compared as `next_due` adds it up: at - period and at + period do not round alike.
    timeout_s = draft.spec.start_timeout_s
    while draft.starting.items and draft.starting.first().at + timeout_s <= draft.clock:
        replica = draft.replicas[draft.starting.first().replica_id]
        draft.starting = draft.starting.pop()
        what, then = _OVERDUE.get(replica.state, ("its user_config not acknowledged", "sent"))
        because = f"{what} {draft.spec.start_timeout_s:g} s after it was {then}"
        count_failure(draft, replica, because)
        leaving.kill(draft, draft.replicas[replica.replica_id], "2.3", because)


_OVERDUE = {STARTING: ("not ready", "placed"), PREPARING: ("not prepared", "told to be")}


def _expire_patience(draft: Draft) -> None:
    patience_s = draft.spec.surge_patience_s
    while draft.patience.items and draft.patience.first().at + patience_s <= draft.clock:
        successor = draft.replicas[draft.patience.first().replica_id]
        go_without(draft, successor, f"it has found no place for {patience_s:g} s")


def _expire_retries(draft: Draft) -> None:
    for wait_s in sorted(draft.retries):
        queue = draft.retries[wait_s]
        while queue.items and (queue.first().at <= draft.clock or _retry_is_over(draft, queue.first())):
            entry = queue.first()
            queue = queue.pop()
            if not _retry_is_over(draft, entry) and entry.rank in draft.vacant:
                draft.ready = draft.ready.add(entry.rank)
        draft.retries = draft.retries.set(wait_s, queue) if queue.items else draft.retries.delete(wait_s)


def _retry_is_over(draft: Draft, entry: Retry) -> bool:
    slot = draft.slots.get(entry.rank)
    return slot is None or slot.retry_at != entry.at


def _repeat(draft: Draft) -> None:
    period_s = draft.spec.repeat_period_s
    end = draft.unacknowledged.tail  # what is repeated comes behind it, and falls due another time
    while (queue := draft.unacknowledged).head < end and queue.first().at + period_s <= draft.clock:
        draft.unacknowledged = queue.pop()
        _repeat_one(draft, draft.replicas[queue.first().replica_id])


def _repeat_one(draft: Draft, replica: Replica) -> None:
    pending = replica.pending
    if type(pending) is StopReplica:
        # The executor ends a stopping replica when its time is up; one that cannot is given a harder push.
        patience_s = pending.timeout_s + draft.spec.health_check_timeout_s
        if draft.clock >= replica.since + patience_s:
            return leaving.kill(draft, replica, "2.4", f"still there {patience_s:g} s after it was told to stop")
    assert pending is not None, f"{replica.replica_id} has nothing to be repeated"
    draft.note(REPEATED, "2.4", replica.replica_id, f"{type(pending).__name__} is not acknowledged")
    replicas.ask(draft, replica, pending)


def next_due(draft: Draft) -> float:
    """The earliest time at which anything else falls due."""
    due = NEVER if draft.recovery.reports_due_at is None else draft.recovery.reports_due_at
    if draft.unacknowledged.items:
        due = min(due, draft.unacknowledged.first().at + draft.spec.repeat_period_s)
    if draft.starting.items:
        due = min(due, draft.starting.first().at + draft.spec.start_timeout_s)
    if draft.patience.items:
        due = min(due, draft.patience.first().at + draft.spec.surge_patience_s)
    if draft.maturing.items:
        due = min(due, draft.maturing.first().at + draft.spec.min_ready_s)
    if draft.ripening.items:
        due = min(due, draft.ripening.first().at + draft.spec.min_ready_s)
    if draft.evictions.asked:
        due = min(due, evictions.next_due(draft))
    for _, queue in draft.retries.items():
        due = min(due, queue.first().at)
    return due
