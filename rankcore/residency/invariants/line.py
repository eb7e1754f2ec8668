"""Promises to who is first in line: its place is its own, it is promised, and nobody takes what it counts on (T12, T13)."""

from collections.abc import Iterable

from rankcore.kernel import Violation
from rankcore.residency.events import Event, OffloadFailed, OffloadFinished, ReplicaLost
from rankcore.residency.fit import is_listed, share
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Phase
from rankcore.residency.notes import ResidencyNote, ResidencyNoteKind
from rankcore.residency.state import ResidencyState, Resident
from rankcore.residency.turns import LINE_MAX, earliest, turn_in_line


def check_line(state: ResidencyState) -> Iterable[Violation]:
    """Of a state: who is first in line has a reservation, and it is whole."""
    if state.head is None:
        if state.policy.reserves:
            yield from _nobody_waits_without_need(state)
        return
    record = state.replicas.get(state.head.replica_id)
    if record is None or record.phase is not Phase.RESERVING or record.due_at is None:
        yield Violation("T12", f"{state.head.replica_id} is first in line, and has no place")
        return
    yield from _what_it_counts_on_is_enough(state, record)


def _nobody_waits_without_need(state: ResidencyState) -> Iterable[Violation]:
    """The first that could have a reservation has one; looked for with nobody's help."""
    ledger = Ledger(state, state.clock)
    for model in sorted(ledger.queue.lacks, key=lambda each: turn_in_line(ledger, each))[:LINE_MAX]:
        for replica_id in state.wanted_replicas(model)[:1]:
            record = state.replicas[replica_id]
            if record.phase is Phase.WAITING and earliest(ledger, record) is not None:
                yield Violation("T12", f"{replica_id} waits, could have a place, and nobody is first in line")


def _what_it_counts_on_is_enough(state: ResidencyState, record: Resident) -> Iterable[Violation]:
    """What it holds, and what those hold that are to leave, comes to its need; what they are owed themselves aside."""
    assert record.node_id is not None
    here = [state.replicas[each] for each in state.index.roster.on_gpus.get(record.node_id, ()) if each != record.replica_id]
    for gpu, need in zip(record.gpus, record.need_bytes, strict=True):
        stay = [each for each in here if gpu in each.gpus and each.phase is not Phase.LEAVING]
        held = sum(each.need_bytes[each.gpus.index(gpu)] for each in stay if each.replica_id not in record.waits_for)
        capacity = state.nodes[record.node_id].gpus[gpu].real_bytes
        if held + need > capacity:
            yield Violation("T12", f"{record.replica_id} needs {need} of GPU {gpu}, of {capacity}, and {held} stay")


def check_promise(before: ResidencyState, after: ResidencyState, notes: Iterable[ResidencyNote]) -> Iterable[Violation]:
    """Of a step: what was promised is not put off without a word."""
    slipped = {note.replica_id for note in notes if note.kind is ResidencyNoteKind.SLIPPED}
    for replica_id in sorted(after.replicas):
        old, new = before.replicas.get(replica_id), after.replicas[replica_id]
        if old is None or old.due_at is None or replica_id in slipped:
            continue
        if new.due_at is not None and new.due_at > old.due_at:
            yield Violation("T13", f"{replica_id} was promised to be HOT by {old.due_at}, and now by {new.due_at}")
        if new.phase is Phase.WAITING:
            yield Violation("T13", f"{replica_id} was promised to be HOT by {old.due_at}, and waits again")


def check_successor(before: ResidencyState, event: Event, after: ResidencyState) -> Iterable[Violation]:
    """Of a step: what a replica leaves is its successor's, ahead of who is first in line, who is put off once by each (T12)."""
    if not isinstance(event, OffloadFinished | OffloadFailed | ReplicaLost) or event.heir is None or before.head is None:
        return
    leaver, head, model = before.replicas.get(event.replica_id), before.head, event.heir.model
    come = [after.replicas[each] for each in after.wanted_replicas(model) if each not in before.wanted_replicas(model)]
    if leaver is None or not come or before.replicas[head.replica_id].model == model:
        return
    if event.replica_id in head.heirs:
        if after.head is not None and after.head.replica_id == head.replica_id and after.head.heirs != head.heirs:
            yield Violation("T12", f"{come[0].replica_id} goes ahead of {head.replica_id}, as {event.replica_id} has")
        return
    each_bytes = share(event.heir, max(event.heir.total_bytes, come[0].size_bytes), len(leaver.gpus) or 1)
    would_fit = leaver.makes_room_for is None and leaver.phase in (Phase.SERVING, Phase.LEAVING)
    would_fit = would_fit and not event.heir.spread and leaver.node_id not in event.heir.avoids
    would_fit = would_fit and is_listed(event.heir, len(leaver.gpus))
    would_fit = would_fit and event.heir.gpus in (None, len(leaver.gpus)) and min(leaver.gpu_bytes, default=0) >= each_bytes
    if would_fit and (come[0].phase is Phase.WAITING or come[0].due_at is not None):
        yield Violation("T12", f"{come[0].replica_id} waits, though {event.replica_id} has left it its place")


def overdue(state: ResidencyState) -> Iterable[Violation]:
    """Of a state of a world that keeps its estimates: nobody is late."""
    for replica_id in sorted(state.replicas):
        due_at = state.replicas[replica_id].due_at
        if due_at is not None and state.clock > due_at:
            yield Violation("T13", f"{replica_id} was promised to be HOT by {due_at}, and it is {state.clock}")
