"""Wake-ups: whatever a state waits for falls due some time, and the executor was asked to wake the core by then (2.4)."""

from collections.abc import Iterable

from rankcore.book.slots import RUNNING
from rankcore.commands import WakeAt
from rankcore.draft import Step
from rankcore.kernel import Violation
from rankcore.state import DeploymentState
from rankcore.values import ReplicaState


def due_at(state: DeploymentState) -> float | None:
    """When the next thing falls due that a state waits for, by what it promises its replicas; None: it waits for nothing."""
    spec, times = state.spec, []
    for replica in state.replicas.values():
        if replica.pending is not None:
            times.append(replica.sent_at + spec.repeat_period_s)
        if replica.state is ReplicaState.STARTING:
            times.append(replica.since + spec.start_timeout_s)
    for rank, slot in state.tables.slots.items():
        holder = state.replicas.get(slot.holder) if slot.holder is not None else None
        if (holder is None or holder.state in RUNNING) and rank not in state.tables.ready and slot.retry_at > state.clock:
            times.append(slot.retry_at)
        successor = state.replicas.get(slot.successor) if slot.successor is not None else None
        if successor is not None and rank not in state.tables.rollout.stoppable:
            times.append(successor.since + spec.surge_patience_s)
    if state.tables.recovery.reports_due_at is not None and state.tables.recovery.unreported:
        times.append(state.tables.recovery.reports_due_at)
    return min(times, default=None)


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
