"""Who is on the routes, whether routers are told so, and that nobody who is needed there is taken off (V3)."""

from collections.abc import Iterable

from rankcore.book.slots import RUNNING
from rankcore.commands import Command, KillReplica, PublishRoutes
from rankcore.draft import Step
from rankcore.events import Event, ReplicaPrepared, ReplicasLeave, SpecChanged, StopRequested
from rankcore.invariants.availability import available
from rankcore.invariants.evictions import is_overdue
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica
from rankcore.values import DEPLOY_FAILED, PREPARED, PREPARING, STARTING

RULE = "V3"


def check_routed(replicas: list[Replica]) -> Iterable[Violation]:
    """P5: whoever runs and is not unready is on the routes; else only one whose user code is up, on its way to a rank."""
    for replica in replicas:
        if replica.state in RUNNING and replica.routed is not (replica.unready is None):
            where = "on the routes and unready" if replica.routed else "not on the routes"
            yield Violation("P5", f"{replica.replica_id} is {replica.state}, and {where}")
        elif replica.routed and replica.state not in RUNNING and replica.state not in (PREPARED, STARTING):
            yield Violation(RULE, f"{replica.replica_id} is {replica.state}, and on the routes")


def check_unwanted(state: DeploymentState) -> Iterable[Violation]:
    """A successor that is not wanted is there only as long as it is needed, and nobody goes for it."""
    unwanted = state.tables.rollout.unwanted
    if not unwanted.size or state.unreported:
        return
    floor = state.world_size - state.spec.unavailable_max
    for rank in unwanted:
        successor = state.replicas[state.tables.slots[rank].successor or ""]
        if not _was_available(successor, state) or available(state) > floor:
            yield Violation(RULE, f"{successor.replica_id} is not wanted, not needed, and {successor.state}")


def check_given_up(state: DeploymentState) -> Iterable[Violation]:
    """Who still starts on a build that was given up is there only as long as it is needed."""
    if state.status is not DEPLOY_FAILED or not state.tables.early or state.unreported:
        return
    if available(state) <= state.world_size - state.spec.unavailable_max:
        return
    for replica in state.replicas.values():
        given_up = replica.state is STARTING and replica.routed and replica.build == state.spec.build
        if given_up and (replica.slot or 0) >= state.kept_below:
            yield Violation(RULE, f"{replica.replica_id} starts on a build that was given up, and is not needed")


def check_published(before: DeploymentState, event: Event, step: Step) -> Iterable[Violation]:
    """Routers are told in the step itself who is on the routes; and with its rank of whoever was there without one (Q9)."""
    state = step.state
    if state.unreported or not before.tables.recovery.routes_complete:
        return
    added: set[str] = set()
    removed: set[str] = set()
    for command in step.commands:
        if type(command) is PublishRoutes:
            added.update(command.added)
            removed.update(command.removed)
    was = {each.replica_id for each in before.replicas.values() if each.routed}
    now = {each.replica_id for each in state.replicas.values() if each.routed}
    adopted = [each for each in was & now if before.replicas[each].state not in RUNNING]
    come, gone = (now - was).union(each for each in adopted if state.replicas[each].state in RUNNING), was - now
    if (added, removed) != (come, gone):
        found = f"added {sorted(added)}, removed {sorted(removed)}"
        yield Violation(RULE, f"published: {found}; expected: added {sorted(come)}, removed {sorted(gone)}")
    if type(event) is ReplicaPrepared and state.spec.hand_over == "overlap":
        replica = state.replicas.get(event.replica_id)
        if replica is not None and replica.state is PREPARED and not replica.routed:
            yield Violation(RULE, f"{replica.replica_id} is {PREPARED}, and takes no requests")


def check_nobody_needed_ends(before: DeploymentState, event: Event, step: Step, fresh: list[Command]) -> Iterable[Violation]:
    """V1: who serves without having run yet is ended, or prepared anew, only where enough are left, as whoever runs is."""
    state = step.state
    if isinstance(event, (StopRequested, ReplicasLeave)) or before.spec.placement != state.spec.placement:
        return
    about = {getattr(event, "replica_id", None), *(event.stop_first if isinstance(event, SpecChanged) else ())}
    ended, anew = [], []
    for command in fresh:
        old = before.replicas.get(getattr(command, "replica_id", ""))
        if old is None or old.state in RUNNING or not _was_available(old, state) or type(command) is KillReplica:
            continue
        new = state.replicas[old.replica_id]
        if new.routed or old.replica_id in about or is_overdue(state, new):
            continue
        if new.state is PREPARING:
            anew.append(old.replica_id)
        elif old.slot is None or old.slot in state.tables.slots:  # else its rank is given up
            ended.append(old.replica_id)
    floor = state.world_size - state.spec.unavailable_max
    if ended and available(state) + told_another_config(before, state) < floor:
        left = f"{available(state)} of {state.world_size} are left, at least {floor} have to be"
        yield Violation("V1", f"{ended} are ended, and {left}")
    rolls = state.spec.config_rollout == "rolling"  # else everybody is told at once, whatever the budget is
    if anew and rolls and available(state) < state.world_size - max(1, state.spec.unavailable_max):
        yield Violation("V1", f"{anew} are prepared anew, and {available(state)} of {state.world_size} are left")


def told_another_config(before: DeploymentState, state: DeploymentState) -> int:
    """How many owe a user_config since this step, which with a budget of 0 takes one more out of service (V5)."""
    if state.spec.unavailable_max and state.spec.config_rollout != "at_once":
        return 0
    since = 0
    for replica_id, old in before.replicas.items():
        new = state.replicas.get(replica_id)
        if new is not None and old.routed and old.ready_at is not None:
            since += new.state is PREPARING or (new.routed and new.ready_at is None)
    return since


def _was_available(replica: Replica, state: DeploymentState) -> bool:
    ready_at = replica.ready_at
    return replica.routed and ready_at is not None and ready_at + state.spec.min_ready_s <= state.clock
