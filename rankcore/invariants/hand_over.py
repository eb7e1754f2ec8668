"""Hand-over: who has no rank is in no count, and nobody goes before its successor is up (V4)."""

from collections.abc import Iterable

from rankcore.book.slots import RANKLESS, RUNNING
from rankcore.commands import Command, StopReplica
from rankcore.draft import Step
from rankcore.events import Event, StopRequested
from rankcore.invariants.availability import hangs
from rankcore.invariants.evictions import is_overdue
from rankcore.kernel import Violation
from rankcore.placement import ANYWHERE
from rankcore.state import DeploymentState, Replica
from rankcore.values import PREPARED, REFILL, REQUESTED


def check_rankless(replicas: list[Replica]) -> Iterable[Violation]:
    """R2: who was never initialised was told no rank, and nobody is both."""
    for replica in replicas:
        if replica.state in RANKLESS and (replica.told is not None or replica.rank is not None or replica.believed):
            yield Violation("R2", f"{replica.replica_id} is {replica.state}, and was told {replica.told}")


def check_prepared_first(before: DeploymentState, event: Event, step: Step, fresh: list[Command]) -> Iterable[Violation]:
    """V4: a serving replica is replaced once its successor has been prepared for `min_ready_s`, or where there is no room."""
    state = step.state
    if state.spec.hand_over == "none" or isinstance(event, StopRequested):
        return
    for command in fresh:
        old = before.replicas.get(command.replica_id) if type(command) is StopReplica else None
        new = state.replicas.get(old.replica_id) if old is not None else None
        if old is None or new is None or old.state not in RUNNING or new.leaving is not REFILL or is_overdue(state, new):
            continue
        if new.unready is not None or hangs(state, old):
            continue  # it serves nobody (V16), or nobody knows whether it does
        if old.place != ANYWHERE:
            continue  # it stands where a static placement wanted it, which is no longer wanted: it moves (S7)
        slot = state.tables.slots.get(new.slot) if new.slot is not None else None
        successor = state.replicas.get(slot.successor) if slot is not None and slot.successor is not None else None
        if successor is None or successor.state is REQUESTED:
            packs, keeps, rollout = state.spec.placement is not None, state.kept_below, state.tables.rollout
            in_vain = successor is not None and successor.start_timer not in state.tables.patience.items
            if not (rollout.full or in_vain or packs or keeps):
                yield Violation("V4", f"{old.replica_id} is stopped, nobody is up to succeed it, and nobody found no room")
        elif new.slot is not None and new.slot in state.tables.rollout.unwanted:
            yield Violation("V3", f"{old.replica_id} is stopped for {successor.replica_id}, which is not wanted any more")
        elif successor.state is not PREPARED or successor.since + state.spec.min_ready_s > state.clock:
            yield Violation("V4", f"{old.replica_id} is stopped, and {successor.replica_id} is {successor.state}")
