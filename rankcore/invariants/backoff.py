"""Failures are counted and waited for, worked out once more from the two states and the event (2.3, V8)."""

from collections.abc import Iterable
from operator import itemgetter

from rankcore.book.slots import SERVED_S
from rankcore.commands import KillReplica, StartReplica
from rankcore.draft import Step
from rankcore.events import (
    Event,
    ReplicaDied,
    ReplicaMissing,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    RetryRequested,
    TrialRequested,
)
from rankcore.kernel import Violation
from rankcore.notes import NoteKind
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Replica, Slot
from rankcore.values import DELETED, DELETING, DEPLOY_FAILED, DRAINING, FAILED, PREPARING

OWN_FAULTS: frozenset[type[Event]] = frozenset(
    {ReplicaDied, ReplicaStopped, ReplicaMissing, ReplicaStartFailed, ReplicaUnhealthy}
)
"""News of a replica's fault, unless it was told to go."""


def check_back_off(before: DeploymentState, event: Event, step: Step) -> Iterable[Violation]:
    """2.3: what ended by its own fault is counted in its slot, which waits the longer the more failed in a row."""
    replica = before.replicas.get(getattr(event, "replica_id", ""))
    spec = _recipe(before)
    if spec is not None and before.previous is not None and replica is not None and (replica.slot or 0) < before.kept_below:
        spec = before.previous
    if replica is None or replica.slot is None or replica.state in (DRAINING, FAILED) or spec is None:
        return ()
    old, new = before.tables.slots.get(replica.slot), step.state.tables.slots.get(replica.slot)
    build: tuple[str, str | None] = replica.version, replica.config_id or spec.config_id
    if old is None or new is None or old.holder != replica.replica_id or not _is_of(build, spec, before.spec):
        return ()
    if any(note.kind is NoteKind.RANK_CHOSEN and note.rank == replica.slot for note in step.notes):
        return ()  # it was given up, and is another one's: R6 says whether it may be
    clock, ready_at = step.state.clock, replica.ready_at
    until = clock if replica.unready is None else replica.unready.since
    stable = ready_at is not None and ready_at + before.spec.stable_after_s <= until
    failures = old.failures + 1 if old.failed_build == build and not stable else 1
    doublings = failures - (1 if ready_at is None else 2)
    successor = before.replicas.get(old.successor or "")
    if successor is not None and _took_too_long(before, spec, step, successor):
        failures = failures + 1 if successor.build == build else 1
        build = successor.build
        doublings = failures - 1
    wait_s = min(before.spec.start_backoff_s * 2.0**doublings, before.spec.start_backoff_max_s) if doublings >= 0 else 0.0
    if (new.failures, new.failed_build, new.retry_at, new.served_s) == (failures, build, clock + wait_s, 0.0):
        return ()
    found = f"{new.failures} failures of {new.failed_build} until {new.retry_at:g}"
    served = f", and {new.served_s:g} s that were served before" if new.served_s else ""
    text = f"{replica.replica_id} failed: {found}{served}, expected {failures} of {build} until {clock + wait_s:g}"
    return (Violation("2.3", text),)


def _took_too_long(before: DeploymentState, spec: DeploymentSpec, step: Step, successor: Replica) -> bool:
    """Whether its preparation has taken too long by this step: that is a failure of its own, in the slot of its predecessor."""
    now = step.state.replicas.get(successor.replica_id)
    due_at = successor.since + before.spec.start_timeout_s
    killed = now is not None and type(now.pending) is KillReplica
    wanted = _is_of(successor.build, spec, before.spec)
    return wanted and successor.state is PREPARING and killed and due_at <= step.state.clock


def _is_of(build: tuple[str, str | None], *specs: DeploymentSpec) -> bool:
    """Whether one of these asks for it."""
    return any(build == spec.build for spec in specs)


def check_nobody_starts_early(before: DeploymentState, event: Event, step: Step) -> Iterable[Violation]:
    """2.3: what has failed in a slot is not started there before its wait is over, unless that is asked for."""
    recipe = _recipe(step.state)
    if recipe is None or type(event) in (RetryRequested, TrialRequested) or before.spec.placement != step.state.spec.placement:
        return  # nothing to start; asked for; or what failed on other bundles counts no longer
    for command in step.commands:
        if type(command) is not StartReplica or command.replica_id in before.replicas:
            continue
        slot = before.tables.slots.get(command.rank) or before.tables.former.get(command.rank)
        failed = getattr(event, "replica_id", "") if type(event) in OWN_FAULTS else ""
        if slot is not None and failed in (slot.holder, slot.successor):
            slot = step.state.tables.slots.get(command.rank)  # it counts the last build that has failed in it, and no other
        if before.status is DEPLOY_FAILED or command.rank in before.tables.ready:
            continue  # its build was given up, for which nobody waits, and is proven by now
        holder = before.replicas.get(slot.holder or "") if slot is not None else None
        if holder is not None and holder.ready_at is not None:
            if holder.ready_at + before.spec.stable_after_s <= step.state.clock:
                continue  # it was ready for long: what its successor failed with before is over, and so is the wait
        previous = step.state.previous
        wanted = previous if previous is not None and command.rank < step.state.kept_below else recipe
        if slot is not None and slot.failed_build == wanted.build and slot.retry_at > step.state.clock:
            yield Violation("2.3", f"rank {command.rank} is started at {step.state.clock:g}, and rests until {slot.retry_at:g}")


def check_counts_outlive_slots(before: DeploymentState, event: Event, step: Step) -> Iterable[Violation]:
    """2.3: what was counted in a slot that is given up is kept until it is opened again, unless it is served off."""
    old, new = before.tables, step.state.tables
    if len(old.slots) <= len(new.slots) and old.former is new.former:
        return  # no slot was given up, and none of those that were is opened
    if (
        type(event) is RetryRequested
        or step.state.status in (DELETING, DELETED)
        or before.spec.placement != step.state.spec.placement
    ):
        return
    given_up = [(rank, slot) for rank, slot in old.slots.items() if rank not in new.slots]
    kept = [each for tables in (new.slots, new.former) for _, each in tables.items() if each.failures]
    counted = [(rank, slot) for rank, slot in (*given_up, *old.former.items()) if slot.failures]
    for rank, slot in sorted(counted, key=itemgetter(0)):
        now_there = new.slots.get(rank) or new.former.get(rank)
        goes_on = any(each.failed_build == slot.failed_build and each.failures >= slot.failures for each in kept)
        goes_on = goes_on or (now_there is not None and now_there.failed_build not in (None, slot.failed_build))
        if not goes_on and not _is_served_off(before, slot, step.state.clock):
            text = f"rank {rank} was given up with {slot.failures} failures of {slot.failed_build}, which nobody knows any more"
            yield Violation("2.3", text)


def _is_served_off(before: DeploymentState, slot: Slot, now: float) -> bool:
    """Whether those who held a slot were ready for long enough, all together."""
    holder = before.replicas.get(slot.holder or "")
    ready_at = holder.ready_at if holder is not None else None
    return slot.served_s + (now - ready_at if ready_at is not None else 0.0) >= min(SERVED_S, before.spec.stable_after_s)


def _recipe(state: DeploymentState) -> DeploymentSpec | None:
    return state.proven if state.status is DEPLOY_FAILED else state.spec
