"""An update without any progress is stalled, by what has become of the replicas from one state to the next (V9)."""

from collections.abc import Iterable
from operator import attrgetter

import attrs

from rankcore.book.slots import RUNNING, is_serving
from rankcore.kernel import Violation
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Replica
from rankcore.values import (
    DELETED,
    DELETING,
    DEPLOY_FAILED,
    DRAINING,
    FAILED,
    HEALTHY,
    PREPARED,
    PREPARING,
    RECOVERING,
    DeploymentStatus,
)

RULE = "V9"
_all_but_target = attrgetter(*(field.name for field in attrs.fields(DeploymentSpec) if field.name != "target_replicas"))


def is_updating(state: DeploymentState, replicas: list[Replica]) -> bool:
    """Whether an update is under way that is not paused, by who holds which rank; `replicas`: the live ones."""
    if state.status in (HEALTHY, DEPLOY_FAILED, DELETING, DELETED) or state.kept_below >= state.world_size:
        return state.status is RECOVERING
    holders = (r for r in replicas if r.slot is not None and state.holder_of(r.slot) == r.replica_id and r.leaving is None)
    behind = any(
        r.slot is not None
        and r.slot >= state.kept_below
        and r.state is not FAILED
        and (r.generation != state.spec.generation or (r.state in RUNNING and r.config_id != state.spec.config_id))
        for r in holders
    )
    if behind or state.status is RECOVERING:
        return True
    running = [each for each in replicas if each.state in RUNNING]
    all_run = len(running) == state.world_size == len(state.tables.slots) and all(
        _is_available(state, each) for each in running
    )
    return state.status is DeploymentStatus.UPDATING and not (all_run and not state.tables.bundles.misfits.size)


def check_stall(state: DeploymentState, replicas: list[Replica]) -> Iterable[Violation]:
    """Stalled exactly when the last progress is too long ago; `replicas`: the live ones."""
    deadline_s, last, since = state.spec.progress_deadline_s, state.tables.progress_at, state.stalled_since
    if deadline_s is None or not is_updating(state, replicas):
        if since is not None or (last is not None and deadline_s is None):
            yield Violation(RULE, f"stalled since {since}, and no update is under way that has a deadline")
        return
    due = None if last is None else last + deadline_s
    if due is None or (state.clock >= due if since is None else not due <= since <= state.clock):
        yield Violation(RULE, f"the last progress was at {last}, it is {state.clock:g} s, and it is stalled since {since}")


def check_progress(before: DeploymentState, state: DeploymentState) -> Iterable[Violation]:
    """The clock begins anew with progress, and with nothing else."""
    last, now = before.tables.progress_at, state.tables.progress_at
    if now is None or last is None:
        return
    progress = _has_progressed(before, state)
    if progress and now != state.clock:
        yield Violation(RULE, f"{progress}, and the last progress is of {now:g} s")
    if not progress and now != last and not _may_have_for_a_moment(before, state):
        yield Violation(RULE, f"the last progress was at {last:g} s, and is at {now:g} s, and there was none")


def _has_progressed(before: DeploymentState, state: DeploymentState) -> str:
    new = state.spec
    if _all_but_target(before.spec) != _all_but_target(new):
        return "another spec is wanted"
    for replica_id, was in before.replicas.items():
        replica = state.replicas.get(replica_id)
        ended = was.state is not FAILED and (replica is None or replica.state is FAILED)
        if ended and (_is_outdated(before, was) or replica_id in before.tables.evictions.asked):
            return f"{replica_id} has ended"
        confirmed = replica is not None and replica.ready_at is not None and replica.state in RUNNING
        if confirmed and is_serving(was) and was.ready_at is None:
            return f"{replica_id} has confirmed a user_config"
    for replica_id, each in state.replicas.items():
        if _counts_as_available(state, each) and each.generation == new.generation:
            known = before.replicas.get(replica_id)
            if known is None or not _counts_as_available(before, known):
                return f"{replica_id} has become available"
        if _may_succeed(state, each) and each.generation == new.generation:
            known = before.replicas.get(replica_id)
            if known is None or not _may_succeed(before, known):
                return f"{replica_id} has been prepared for long enough"
    return ""


def _may_have_for_a_moment(before: DeploymentState, state: DeploymentState) -> bool:
    """Whether somebody may have become available, or confirmed, in this step, and have been stopped or told another at once."""
    for replica in before.replicas.values():
        now = state.replicas.get(replica.replica_id, replica)
        began = replica.state not in RUNNING and (now.state in RUNNING or now.state is DRAINING)
        matured = _is_available(before, replica, state.clock) and not _is_available(before, replica)
        confirmed = replica.state in RUNNING and replica.ready_at is None and now.state is DRAINING
        ripe = replica.state in (PREPARING, PREPARED) and (now.state is not PREPARING or now.revision != replica.revision)
        again = replica.unready is not None and now.unready is None and now.state is DRAINING
        if confirmed or (now.generation == before.spec.generation and (began or matured or ripe or again)):
            return True
    return False


def _is_outdated(state: DeploymentState, replica: Replica) -> bool:
    kept = replica.slot is not None and replica.slot < state.kept_below
    return not kept and replica.generation != state.spec.generation


def _may_succeed(state: DeploymentState, replica: Replica) -> bool:
    """Whether it has been prepared for `min_ready_s`, and somebody has the rank that it was started for."""
    slot = state.tables.slots.get(replica.slot) if replica.slot is not None else None
    ripe = replica.state is PREPARED and replica.since + state.spec.min_ready_s <= state.clock
    return ripe and slot is not None and slot.successor == replica.replica_id


def _counts_as_available(state: DeploymentState, replica: Replica) -> bool:
    """Whether it is available to an update, which asks for how long it has been ready once all have reported (R10)."""
    return _is_available(state, replica) and not (state.spec.min_ready_s and state.tables.recovery.unreported)


def _is_available(state: DeploymentState, replica: Replica, at: float | None = None) -> bool:
    ready_at, clock = replica.ready_at, state.clock if at is None else at
    return replica.state in RUNNING and replica.routed and ready_at is not None and ready_at + state.spec.min_ready_s <= clock
