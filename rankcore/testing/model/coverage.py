"""Which rows of the life cycles and which kinds of notes an exploration has exercised, and which not."""

from collections import Counter
from collections.abc import Iterable

from rankcore.draft import Step
from rankcore.events import Event, NodeLost, ReplicaPlaced, ReplicaReported
from rankcore.lifecycle import DEPLOYMENT_ROWS, REPLICA_ROWS, Loss, Report, trigger_name
from rankcore.notes import NoteKind
from rankcore.state import DeploymentState
from rankcore.values import FAILED, ReplicaState

REPLICA_ROW_NAMES = tuple(f"{source} --{trigger_name(trigger)}--> {dest}" for source, trigger, dest in REPLICA_ROWS)
STATUS_NAMES = tuple(dict.fromkeys(f"{source} --> {dest}" for source, _, dest in DEPLOYMENT_ROWS if source is not dest))
"""Rows that stay where they are leave no trace and are left out; those that join the same statuses count as one."""
STATUS_CHANGED, STOPPED = NoteKind.STATUS_CHANGED, ReplicaState.STOPPED
_NAMED: dict[tuple[ReplicaState, object], tuple[str, ReplicaState]] = {
    (source, trigger): (name, dest) for (source, trigger, dest), name in zip(REPLICA_ROWS, REPLICA_ROW_NAMES, strict=True)
}
NOTE_NAMES = tuple(str(kind) for kind in NoteKind)


class Coverage:
    """Counts, by name, how often each row and note kind was exercised; in a counter of its own, or in the one it is given."""

    def __init__(self, counts: "Counter[str] | None" = None) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts

    def count(self, before: DeploymentState, event: Event | None, step: Step) -> None:
        """Count one step of the controller: the state before it, the event (None: it has begun), and the step."""
        counts = self.counts
        for note in step.notes:
            counts[note.kind] += 1
            if note.kind is STATUS_CHANGED:
                source, _, dest = note.because.partition(":")[0].partition(" -> ")
                counts[f"{source} --> {dest}"] += 1
        if event is not None:
            self._follow_replicas(before, event, step)

    def _follow_replicas(self, state: DeploymentState, event: Event, step: Step) -> None:
        before, after = state.tables.replicas, step.state.tables.replicas
        asked: dict[str, list[object]] = {getattr(event, "replica_id", ""): [_trigger(event)]}
        if isinstance(event, NodeLost):
            asked = {each.replica_id: [NodeLost] for each in before.values() if each.node_id == event.node_id}
        for command in step.commands:
            asked.setdefault(getattr(command, "replica_id", ""), []).append(type(command))
        for name, triggers in asked.items():
            old, new = before.get(name), after.get(name)
            if old is None:
                continue
            replica_state = old.state
            has_ended = new is None or new.state is FAILED
            if has_ended and isinstance(event, (ReplicaPlaced, ReplicaReported)):
                # It had come to a node of which the loss is known by now: it is where it said, and ends with that.
                if isinstance(event, ReplicaPlaced):
                    replica_state = self._follow(replica_state, triggers, gone=False)
                triggers = [NodeLost]
            if replica_state is not FAILED and has_ended and new is not None:
                triggers = [Loss.ENDED_WITHOUT_BUNDLE]
            self._follow(replica_state, triggers, new is None)
        if state.tables.bundles.stranded.size:
            for replica in before.values():
                if replica.state is FAILED and replica.replica_id not in after:
                    self._follow(replica.state, [type(event)], gone=True)

    def _follow(self, state: ReplicaState, triggers: Iterable[object], gone: bool) -> ReplicaState:
        for trigger in triggers:
            name_and_dest = _NAMED.get((state, trigger))
            if name_and_dest is not None and (name_and_dest[1] is not STOPPED or gone):
                name, state = name_and_dest
                self.counts[name] += 1
        return state

    def missing(self, names: Iterable[str]) -> list[str]:
        """Which of these were never exercised."""
        return [name for name in names if not self.counts[name]]


def _trigger(event: object) -> object:
    if not isinstance(event, ReplicaReported):
        return type(event)
    if event.draining:
        return Report.SAYS_DRAINING
    if event.prepared and event.rank is None:
        return Report.SAYS_PREPARED
    return Report.SAYS_READY if event.ready else Report.SAYS_STARTING
