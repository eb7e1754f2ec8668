"""An update that makes no progress says so (V9, section 2.3).

**What.** An update is under way while something is to be replaced or reconfigured and the partition lets it, or the status is
UPDATING and not all N run what is wanted, or a recovery has still to find out. That somebody who runs it is to be replaced
elsewhere keeps the status UPDATING, and is no update. Its *progress* is that

    a replica of another generation, or one that is asked to go, has ended,
    one of the generation that is wanted has become available, or could succeed its predecessor (V4),
    one has confirmed another user_config, or
    another spec is wanted: anything but another target alone, since an autoscaler that changes it again and again would
    otherwise hide for ever that nothing goes on.

Without any for `progress_deadline_s` the update is *stalled*, from the first step at or after that moment until the next
progress. That is said, with what it waits for (`rankcore/waits.py`), in a note and in every status. Nothing else follows, since
what is wrong may be over any moment, unless `rollback` is asked for: then what was healthy last is wanted again, and the clock
begins anew. Where it was wanted already, there is nothing to go back to. Nor is there where the build is *out*: it is proven,
nobody is behind, and all run it that have a place, so that what is missing is room. Another build would have no more of that,
and who serves would be stopped for it. A slot that this build has failed in lacks more than room, whatever it waits for.

**What it costs.** O(1) a step: the rules that cause progress set a flag, and the clock is looked at where a step closes; O(N)
where a stall is noticed. After a crash of the controller the clock begins anew.
"""

from rankcore.book.slots import RUNNING
from rankcore.draft import Draft
from rankcore.notes import NoteKind
from rankcore.rules.rollback import roll_back
from rankcore.state import Replica, Slot
from rankcore.values import HEALTHY, REQUESTED, UNHEALTHY
from rankcore.waits import cause, is_behind, is_under_way

RULE = "V9"
BETWEEN_UPDATES = (HEALTHY, UNHEALTHY)
"""With these an update is under way only while somebody is behind."""


def notice_end(draft: Draft, replica: Replica) -> None:
    """A replica has ended: one that is to be replaced is one less."""
    outdated = not replica.is_of(draft.spec) and (replica.slot is None or replica.slot >= draft.kept_below)
    if outdated or replica.replica_id in draft.evictions.asked:
        draft.progressed = True


def expire(draft: Draft) -> None:
    """Say it when there was no progress for too long, and roll back where that is asked for."""
    deadline_s = draft.spec.progress_deadline_s
    if draft.progress_at is None or draft.progressed or draft.stalled_since is not None or deadline_s is None:
        return
    if draft.clock < draft.progress_at + deadline_s:
        return
    if not is_under_way(draft.spec, draft.status, draft):
        draft.progress_at = None
        return
    draft.stalled_since = draft.clock
    because = f"no progress for {deadline_s:g} s: {cause(draft.spec, draft.status, draft, draft.clock) or 'nobody moves'}"
    draft.note(NoteKind.STALLED, RULE, because=because)
    if draft.spec.rollback and not _is_out(draft):
        roll_back(draft, because)


def _is_out(draft: Draft) -> bool:
    """Whether the build is proven, all run it that have a place, and nobody is unready with it."""
    proven = draft.proven is not None and draft.proven.build == draft.spec.build
    if is_behind(draft) or draft.configuring or draft.unready or not proven:
        return False
    return all(_runs_or_lacks_room(draft, slot) for slot in draft.slots.values())


def _runs_or_lacks_room(draft: Draft, slot: Slot) -> bool:
    state = draft.replicas[slot.holder].state if slot.holder is not None else REQUESTED
    has_failed = bool(slot.failures) and slot.failed_build == draft.spec.build
    return state in RUNNING or (state is REQUESTED and not has_failed)


def watch(draft: Draft) -> None:
    """Let the clock run while an update is under way, anew with every progress."""
    if draft.progress_at is None and draft.status in BETWEEN_UPDATES and not is_behind(draft):
        return
    deadline_s = draft.spec.progress_deadline_s
    if deadline_s is None or not is_under_way(draft.spec, draft.status, draft):
        if draft.progress_at is not None:
            draft.progress_at = None
            if draft.stalled_since is not None:
                _go_on(draft, "no update is under way any more")
        return
    if draft.progressed or draft.progress_at is None:
        draft.progress_at = draft.clock
        if draft.stalled_since is not None:
            _go_on(draft, "it goes on")
    due = draft.progress_at + deadline_s
    if draft.stalled_since is None and (draft.wake_at is None or due < draft.wake_at):
        draft.wake(due)


def _go_on(draft: Draft, because: str) -> None:
    draft.note(NoteKind.STALL_OVER, RULE, because=f"{because}; it was stalled since {draft.stalled_since:g} s")
    draft.stalled_since = None
