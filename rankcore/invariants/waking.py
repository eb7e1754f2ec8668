"""Wake-ups: whatever a state waits for falls due some time, and the executor was asked to wake the core by then (2.4)."""

from collections.abc import Collection, Iterable

from rankcore.book.readiness import ready_since
from rankcore.book.slots import RUNNING, is_serving
from rankcore.commands import WakeAt
from rankcore.draft import Step
from rankcore.invariants.availability import hangs_at
from rankcore.invariants.evictions import deadlines
from rankcore.invariants.scarcity import starved_at
from rankcore.kernel import Violation
from rankcore.state import DeploymentState, Replica
from rankcore.values import ReplicaId, ReplicaState
from rankcore.waits import UNDECIDED


def due_at(state: DeploymentState, parked: Collection[ReplicaId] = ()) -> float | None:
    """When the next thing falls due that a state waits for, by what it promises its replicas; None: it waits for nothing.

    Args:
        parked: Those of whom it does not count that they are asked for once more.
    """
    spec, times = state.spec, []
    rolls = not state.tables.recovery.unreported and state.status not in UNDECIDED
    rolled = set(state.tables.rollout.running) if rolls else set()
    for replica in state.replicas.values():
        if replica.is_repeated and replica.replica_id not in parked:
            times.append(replica.sent_at + spec.repeat_period_s)
        if replica.state in (ReplicaState.STARTING, ReplicaState.PREPARING) or (
            is_serving(replica) and replica.ready_at is None
        ):
            times.append(replica.since + spec.start_timeout_s)
        hung_at = hangs_at(state, replica) if replica.slot in rolled else None
        if hung_at is not None and hung_at > state.clock:
            times.append(hung_at)
        ready_at = ready_since(replica)
        if ready_at is not None and ready_at + spec.min_ready_s > state.clock and not state.tables.recovery.unreported:
            times.append(ready_at + spec.min_ready_s)
        times += deadlines(state, replica)
    for rank, slot in state.tables.slots.items():
        holder = state.replicas.get(slot.holder) if slot.holder is not None else None
        if (holder is None or holder.state in RUNNING) and rank not in state.tables.ready and slot.retry_at > state.clock:
            times.append(slot.retry_at)
        successor = state.replicas.get(slot.successor) if slot.successor is not None else None
        waits = successor is not None and successor.state is ReplicaState.REQUESTED
        if successor is not None and waits and rank not in state.tables.rollout.stoppable:
            times.append(successor.since + spec.surge_patience_s)
    kept = [each for each in state.replicas.values() if each.state is ReplicaState.REQUESTED and _is_kept_holder(state, each)]
    if kept and state.tables.rollout.surging.size:
        lowest = min(kept, key=lambda each: each.slot or 0)
        if lowest.since + spec.surge_patience_s > state.clock:
            times.append(lowest.since + spec.surge_patience_s)
    starves_at = starved_at(state)
    if starves_at is not None and starves_at > state.clock:
        times.append(starves_at)
    if state.tables.progress_at is not None and state.stalled_since is None and spec.progress_deadline_s is not None:
        times.append(state.tables.progress_at + spec.progress_deadline_s)
    if state.tables.recovery.reports_due_at is not None and state.tables.recovery.unreported:
        times.append(state.tables.recovery.reports_due_at)
    return min(times, default=None)


def _is_kept_holder(state: DeploymentState, replica: Replica) -> bool:
    """Whether it is to fill a rank below the partition, which no successor may."""
    rank = replica.slot
    return rank is not None and rank < state.kept_below and state.holder_of(rank) == replica.replica_id


def check_waking(state: DeploymentState) -> Iterable[Violation]:
    """A state that waits for something is woken for it."""
    due, wake_at = due_at(state), state.wake_at
    if due is not None and (wake_at is None or wake_at > due):
        yield Violation("2.4", f"something falls due at {due:g} s, and the core asks to be woken at {wake_at}")


def check_asked_to_be_woken(before: DeploymentState, step: Step) -> Iterable[Violation]:
    """What the state waits for is what the executor was told last: a wake-up in the book alone wakes nobody."""
    told = [command.at for command in step.commands if type(command) is WakeAt]
    expected = told[-1] if told else before.wake_at
    wake_at = step.state.wake_at
    if wake_at is not None and wake_at != expected:
        yield Violation("2.4", f"the state waits to be woken at {wake_at:g} s, and the executor was told {expected}")
