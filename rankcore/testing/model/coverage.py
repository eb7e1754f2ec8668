"""Which rows of the life cycles and which kinds of notes an exploration has exercised, and which not."""

from collections import Counter
from collections.abc import Iterable, Mapping

from rankcore.events import NodeLost, ReplicaPlaced, ReplicaReported
from rankcore.lifecycle import DEPLOYMENT_ROWS, REPLICA_MOVES, REPLICA_ROWS, Loss, Report, trigger_name
from rankcore.notes import NoteKind
from rankcore.testing.model.steps import Told
from rankcore.values import FAILED, ReplicaState

REPLICA_ROW_NAMES = tuple(f"{source} --{trigger_name(trigger)}--> {dest}" for source, trigger, dest in REPLICA_ROWS)
STATUS_NAMES = tuple(dict.fromkeys(f"{source} --> {dest}" for source, _, dest in DEPLOYMENT_ROWS if source is not dest))
"""Rows that stay where they are leave no trace and are left out; those that join the same statuses count as one."""
STATUS_CHANGED, STOPPED = NoteKind.STATUS_CHANGED, ReplicaState.STOPPED
NOTE_NAMES = tuple(str(kind) for kind in NoteKind)


class Coverage:
    """Counts, by name, how often each row and note kind was exercised."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts: Counter[str] = Counter(counts)

    def add(self, told: Told) -> None:
        """Count one step of the controller."""
        for note in told.result.notes:
            self.counts[note.kind] += 1
            if note.kind is STATUS_CHANGED:
                source, _, dest = note.because.partition(":")[0].partition(" -> ")
                self.counts[f"{source} --> {dest}"] += 1
        if told.event is not None:
            self._follow_replicas(told)

    def _follow_replicas(self, told: Told) -> None:
        event, before, after = told.event, told.before.replicas, told.result.state.replicas
        about = {getattr(event, "replica_id", "")}
        if isinstance(event, NodeLost):
            about = {each.replica_id for each in before.values() if each.node_id == event.node_id}
        asked: dict[str, list[object]] = {name: [_trigger(event)] for name in about}
        for command in told.result.commands:
            asked.setdefault(getattr(command, "replica_id", ""), []).append(type(command))
        for name, triggers in asked.items():
            if name not in before:
                continue
            state = before[name].state
            if isinstance(event, (ReplicaPlaced, ReplicaReported)) and _has_ended(told, name):
                # It had come to a node of which the loss is known by now: it is where it said, and ends with that.
                if isinstance(event, ReplicaPlaced):
                    state = self._follow(state, triggers, gone=False)
                triggers = [NodeLost]
            if state is not FAILED and name in after and after[name].state is FAILED:
                triggers = [Loss.ENDED_WITHOUT_BUNDLE]
            self._follow(state, triggers, name not in after)
        for replica in before.values():
            if replica.state is FAILED and replica.replica_id not in after:
                self._follow(replica.state, [type(event)], gone=True)

    def _follow(self, state: ReplicaState, triggers: Iterable[object], gone: bool) -> ReplicaState:
        for trigger in triggers:
            dest = REPLICA_MOVES.get((state, trigger))  # type: ignore[arg-type]
            if dest is not None and (dest is not STOPPED or gone):
                self.counts[f"{state} --{_name(trigger)}--> {dest}"] += 1
                state = dest
        return state

    def missing(self, names: Iterable[str]) -> list[str]:
        """Which of these were never exercised."""
        return [name for name in names if not self.counts[name]]


def _has_ended(told: Told, name: str) -> bool:
    replica = told.result.state.replicas.get(name)
    return replica is None or replica.state is FAILED


def _trigger(event: object) -> object:
    if not isinstance(event, ReplicaReported):
        return type(event)
    if event.draining:
        return Report.SAYS_DRAINING
    return Report.SAYS_READY if event.ready else Report.SAYS_STARTING


def _name(trigger: object) -> str:
    return trigger_name(trigger)  # type: ignore[arg-type]
