"""A replica is gone: its slot is kept for a replacement (R6), or its rank is released (R7). Start failures are counted here."""

import attrs
from msgspec.structs import replace

from rankcore.book import replicas, slots
from rankcore.draft import Draft
from rankcore.lifecycle import Milestone
from rankcore.notes import LATE, RANK_INHERITED, RANK_KEPT, RANK_RELEASED, REPLICA_LOST, NoteKind
from rankcore.rules import leaving, static
from rankcore.rules.configure import change_build
from rankcore.state import Replica
from rankcore.values import DEPLOY_FAILED, DRAINING, FAILED, PLACED, REFILL, RELEASE, STARTING, DeploymentStatus

DOUBLINGS_MAX = 32
"""Back-off stops growing after so many failures, long after any sensible `start_backoff_max_s` has capped it."""


def ended(draft: Draft, replica: Replica, because: str, *, start_failed: bool = False, node_lost: bool = False) -> None:
    """A replica is gone, asked to or not.

    Args:
        start_failed: The executor says that it was the start that failed.
        node_lost: Its node is gone, which is no fault of the replica's.
    """
    if replica.state is FAILED:
        draft.note(LATE, "2", replica.replica_id, f"{because}: it had ended before")
        return
    asked_to = replica.state is DRAINING
    if not asked_to:
        draft.note(REPLICA_LOST, "R6", replica.replica_id, because, rank=replica.slot, before=replica.rank)
        if start_failed or (replica.state is STARTING and not node_lost):
            count_failure(draft, replica, because)
    rank = replica.slot
    held = slots.is_holder(draft, replica)
    if rank is not None and held and rank in draft.bundles.stranded:
        return static.fail(draft, draft.replicas[replica.replica_id], rank)
    if rank is not None and held:
        slots.unseat(draft, rank, draft.replicas[replica.replica_id])
    elif rank is not None and slots.is_successor(draft, replica):
        slots.set_successor(draft, rank, None)
    replicas.remove(draft, replica)
    if rank is not None and held:
        _pass_on(draft, rank, replica)
    elif replica.leaving is RELEASE:
        draft.note(RANK_RELEASED, "R7", replica.replica_id, because, rank=rank, before=replica.rank)


def _pass_on(draft: Draft, rank: int, gone: Replica) -> None:
    successor_id = draft.slots[rank].successor
    if successor_id is not None:
        successor = draft.replicas[successor_id]
        slots.seat(draft, rank, successor)
        slots.set_successor(draft, rank, None)
        replicas.disarm_start_timer(draft, successor)
        if successor.state is PLACED:
            draft.placed = draft.placed.set(successor.replica_id, successor.birth)
        draft.note(RANK_INHERITED, "R6", successor_id, f"its predecessor {gone.replica_id} has ended", rank=rank)
    elif rank >= draft.spec.target_replicas:
        slots.close_slot(draft, rank)
        draft.note(RANK_RELEASED, "R6", gone.replica_id, "the world has become smaller", rank=rank)
    else:
        draft.note(RANK_KEPT, "R6", gone.replica_id, "for its replacement", rank=rank, before=gone.rank)


def count_failure(draft: Draft, replica: Replica, because: str) -> None:
    """Count a start failure against the replica's slot; back off, and give up a build that fails again and again."""
    slot = draft.slots.get(replica.slot) if replica.slot is not None else None
    started_with = draft.recipe
    if replica.slot is None or slot is None or replica.leaving is RELEASE or started_with is None:
        return
    build = replica.version, replica.config_id if replica.config_id is not None else started_with.config_id
    failures = slot.failures + 1 if slot.failed_build == build else 1
    spec = draft.spec
    wait_s = min(spec.start_backoff_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX), spec.start_backoff_max_s)
    retry_at = draft.clock + wait_s
    draft.slots = draft.slots.set(replica.slot, replace(slot, failures=failures, failed_build=build, retry_at=retry_at))
    slots.back_off(draft, replica.slot, wait_s, retry_at)
    draft.note(
        NoteKind.START_FAILED,
        "2.3",
        replica.replica_id,
        f"{because}; failure {failures} in its slot, next start after {wait_s:g} s",
        rank=replica.slot,
    )
    proven = draft.proven is not None and draft.proven.build == build
    if failures >= spec.max_start_failures and build == spec.build and not proven:
        _give_up_build(draft, replica, failures)


def _give_up_build(draft: Draft, failed: Replica, failures: int) -> None:
    previous = draft.previous
    because = f"version {draft.spec.version!r} failed to start {failures} times in one slot and was never ready"
    if draft.spec.rollback and previous is not None and previous.build != draft.spec.build:
        draft.note(NoteKind.ROLLED_BACK, "2.3", because=f"{because}; back to version {previous.version!r}")
        back = attrs.evolve(draft.spec, version=previous.version, user_config=previous.user_config)
        change_build(draft, back, failed)
        if draft.status is not DeploymentStatus.RECOVERING:
            draft.reach(Milestone.VERSION_CHANGED, "rolled back")
        return
    draft.reach(Milestone.STARTS_EXHAUSTED, because)
    if draft.status is not DEPLOY_FAILED:
        return
    draft.note(NoteKind.DEPLOY_FAILED, "2.3", because=because)
    for rank in (*_unstarted(draft), *draft.rollout.surging):
        _withdraw(draft, rank, failed)


def _unstarted(draft: Draft) -> list[int]:
    """Slots whose holder has the spec's version, and is not running yet."""
    unstarted = slots.holders(draft, slots.UNSTARTED)
    return sorted(each.slot for each in unstarted if each.version == draft.spec.version and each.slot is not None)


def withdraw_found(draft: Draft) -> None:
    """Stop what a recovery found starting on a build that was given up before; the proven one takes its place."""
    for rank in _unstarted(draft):
        holder = slots.holder_of(draft, rank)
        if holder.build == draft.spec.build:
            leaving.stop(draft, holder, REFILL, "2.3", "its version has failed")


def _withdraw(draft: Draft, rank: int, failed: Replica) -> None:
    """Stop what has not come up on a failed build; the one that failed last is gone, or about to be killed."""
    slot = draft.slots[rank]
    if slot.successor is not None and slot.successor != failed.replica_id:
        leaving.dismiss_successor(draft, rank, "its version has failed")
    holder = draft.replicas[slot.holder] if slot.holder is not None else None
    if holder is not None and holder is not failed and holder.state in slots.UNSTARTED:
        leaving.stop(draft, holder, REFILL, "2.3", "its version has failed")
