"""Failures: how long a slot waits before it is started again, and when a build is given up (section 2.3).

**What.** Every end of a replica by its own fault is a failure of its build in its slot: it died, in whatever state; it was
killed for being unhealthy, or for not being ready in time; its `reconfigure` failed. A lost node is none, nor is what it was
told to do: a drain, a stop, a kill after either. The n-th failure in a row of one build in one slot has the slot wait

    never ready on this build:  start_backoff_s * 2^(n-1)
    ready on it before:         0 for n = 1, else start_backoff_s * 2^(n-2)

and never longer than `start_backoff_max_s`. So one crash is replaced at once, and a crash loop slows down whether the replica
dies before it is ready or a second after. Becoming ready clears nothing: it would let a version that dies one second after it
was ready start 76 times a slot in two minutes, where these are 8. A replica that was ready for `stable_after_s` clears what
its slot has counted when it ends, for whatever reason, and only then: its own failure, if it is one, is the first of the next
row.

**What is given up.** A build that was never proven, and reaches `max_start_failures` in one slot, fails the deployment, or is
rolled back. One that is proven is tried for ever, with its waits.

**What it costs.** O(log N); nothing is woken for `stable_after_s`, since only an end asks how long the replica was ready.

The races: the end of a replica that was killed for its fault follows the kill, which has counted it: who is DRAINING is not
counted again. A build that nobody wants any more is not counted: the crash of an old version must not end the wait of the new
one.
"""

from msgspec.structs import replace

from rankcore.book import slots
from rankcore.draft import Draft
from rankcore.frozen import EMPTY
from rankcore.lifecycle import Milestone
from rankcore.notes import NoteKind
from rankcore.rules import budget, leaving
from rankcore.rules.configure import change_config
from rankcore.rules.rollback import roll_back
from rankcore.spec import DeploymentSpec
from rankcore.state import Replica
from rankcore.values import DEPLOY_FAILED, DRAINING, REFILL

DOUBLINGS_MAX = 32
"""Back-off stops growing after so many failures, long after any sensible `start_backoff_max_s` has capped it."""


def backoff_s(spec: DeploymentSpec, failures: int, *, was_ready: bool) -> float:
    """How long a slot waits after so many failures in a row, the last of a replica that was ready on its build, or was not."""
    doublings = failures - 2 if was_ready else failures - 1
    if doublings < 0:
        return 0.0
    return min(spec.start_backoff_s * 2.0 ** min(doublings, DOUBLINGS_MAX), spec.start_backoff_max_s)


def count_failure(draft: Draft, replica: Replica, because: str) -> None:
    """Count a replica's failure against its slot; back off, and give up a build that fails again and again."""
    slot = draft.slots.get(replica.slot) if replica.slot is not None else None
    if replica.slot is None or slot is None or replica.state is DRAINING or draft.recipe is None:
        return
    started_with = draft.recipe_of(replica.slot)
    build = replica.version, replica.config_id if replica.config_id is not None else started_with.config_id
    if build != started_with.build and (started_with is draft.spec or build != draft.spec.build):
        return
    in_a_row = slot.failed_build == build and not slots.has_served_long(draft, replica)
    failures = slot.failures + 1 if in_a_row else 1
    was_ready = replica.ready_at is not None
    wait_s = backoff_s(draft.spec, failures, was_ready=was_ready)
    retry_at = draft.clock + wait_s
    draft.slots = draft.slots.set(
        replica.slot, replace(slot, failures=failures, failed_build=build, retry_at=retry_at, served_s=0.0)
    )
    if wait_s:
        slots.back_off(draft, replica.slot, wait_s, retry_at)
        kind = NoteKind.BACKED_OFF if was_ready else NoteKind.START_FAILED
        because = f"{because}; failure {failures} in its slot, next start after {wait_s:g} s"
        draft.note(kind, "2.3", replica.replica_id, because, rank=replica.slot)
    if failures >= draft.spec.max_start_failures and slots.is_unproven(draft, build):
        _give_up_build(draft, replica, failures)


def _give_up_build(draft: Draft, failed: Replica, failures: int) -> None:
    known = draft.proven is not None and draft.proven.version == draft.spec.version
    what = f"{'the user_config of ' if known else ''}version {draft.spec.version!r}"
    trial = f" for {draft.spec.min_ready_s:g} s" if draft.spec.min_ready_s else ""
    because = f"{what} failed {failures} times in one slot and was never ready{trial}"
    if draft.spec.rollback and roll_back(draft, because, failed):
        return
    if draft.status is DEPLOY_FAILED:
        return  # another slot has said so before
    draft.reach(Milestone.STARTS_EXHAUSTED, because)
    if draft.status is not DEPLOY_FAILED:
        return
    draft.note(NoteKind.DEPLOY_FAILED, "2.3", because=because)
    draft.rollout = replace(draft.rollout, stale_config=EMPTY)
    if draft.proven is not None:
        change_config(draft, draft.proven)
    for rank in (*_unstarted(draft), *draft.rollout.surging):
        _withdraw(draft, rank, failed)


def _unstarted(draft: Draft) -> list[int]:
    """Slots whose holder has the spec's version, and is not running yet; below the partition that is not what failed (V12)."""
    unstarted = [each for each in slots.holders(draft, slots.UNSTARTED) if each.version == draft.spec.version]
    return sorted(each.slot for each in unstarted if each.slot is not None and each.slot >= draft.kept_below)


def withdraw(draft: Draft) -> None:
    """Stop what still starts on a build that was given up, once it is not needed: the proven one takes its place.

    A recovery may have found it so, or it served without a rank, and too few others did.
    """
    for rank in _unstarted(draft):
        holder = slots.holder_of(draft, rank)
        if holder.build == draft.spec.build and not budget.is_needed(draft, holder):
            leaving.stop(draft, holder, REFILL, "2.3", "its version has failed")


def _withdraw(draft: Draft, rank: int, failed: Replica) -> None:
    """Stop what has not come up on a failed build; the one that failed last is gone, or about to be killed."""
    slot = draft.slots[rank]
    if slot.successor is not None and slot.successor != failed.replica_id:
        leaving.dismiss_successor(draft, rank, "its version has failed")
    holder = draft.replicas[slot.holder] if slot.holder is not None else None
    if holder is None or holder is failed or holder.state not in slots.UNSTARTED:
        return
    if not budget.is_needed(draft, holder, failed):
        leaving.stop(draft, holder, REFILL, "2.3", "its version has failed")
