"""Promises about one step: who may be displaced, what becomes of them, and what is left alone."""

from collections.abc import Iterable

from msgspec.structs import replace

from rankcore.kernel import Violation
from rankcore.residency.commands import LoadToGpu, OffloadToCpu, UnloadFromGpu, WakeAt
from rankcore.residency.events import (
    DeployRequested,
    Event,
    LoadFailed,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
)
from rankcore.residency.invariants.line import check_promise, check_successor
from rankcore.residency.invariants.states import fits_on
from rankcore.residency.levels import Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.roster import is_over
from rankcore.residency.state import ResidencyState, Resident, replica_id_of
from rankcore.residency.step import ResidencyStep, residency_step
from rankcore.residency.turns import LEAST_LOADS
from rankcore.values import NodeId, ReplicaId


def check_step(before: ResidencyState, event: Event, step: ResidencyStep) -> list[Violation]:
    """Check what a step did against the promises.

    Returns:
        What is broken; empty when all promises hold.
    """
    after = step.state
    changed = [
        (before.replicas.get(replica_id), after.replicas[replica_id])
        for replica_id in sorted(after.replicas)
        if before.replicas.get(replica_id) != after.replicas[replica_id]
    ]
    return [
        *_is_a_function(before, event, step),
        *_records_stay(before, event, after),
        *(found for old, new in changed for found in _victim_is_permitted(before, step, old, new)),
        *(found for old, new in changed for found in _victims_are_needed(after, old, new)),
        *(found for old, new in changed for found in _becomes_warm_if_it_can(before, after, old, new)),
        *_smallest_copies_go_first(before, after, changed),
        *_copies_are_worth_it(after, changed),
        *_no_warm_replica_is_passed_over(before, after, changed),
        *_what_fits_nowhere_disturbs_nobody(before, event, step),
        *_loads_come_last(after, step),
        *check_promise(before, after, step.notes),
        *check_successor(before, event, after),
    ]


def _is_a_function(before: ResidencyState, event: Event, step: ResidencyStep) -> Iterable[Violation]:
    if residency_step(before, event) != step:
        yield Violation("pure", f"{type(event).__name__} came to something else the second time")
    if step.state.clock != max(before.clock, event.at):
        yield Violation("pure", f"the clock is {step.state.clock} after {before.clock} and {event.at}")


def _records_stay(before: ResidencyState, event: Event, after: ResidencyState) -> Iterable[Violation]:
    """T2, T3: no record of a process vanishes without news of its end; who serves and goes on serving does so where it was."""
    for replica_id in sorted(before.replicas):
        old, new = before.replicas[replica_id], after.replicas.get(replica_id)
        if new is None and _has_process(old) and not _may_have_ended(old, event):
            yield Violation("T2", f"the record of {replica_id} is gone")
        elif new is not None and old.phase is new.phase is Phase.SERVING and (old.node_id, old.gpus) != (new.node_id, new.gpus):
            yield Violation("T3", f"{replica_id} was moved while it served")


def _has_process(record: Resident) -> bool:
    return record.phase in (Phase.LOADING, Phase.SERVING, Phase.LEAVING) or record.copy_node_id is not None


def _may_have_ended(record: Resident, event: Event) -> bool:
    if isinstance(event, (LoadFailed, OffloadFinished, OffloadFailed, ReplicaLost)):
        return event.replica_id == record.replica_id
    return isinstance(event, (NodeJoined, NodeLost)) and event.node_id in (record.node_id, record.copy_node_id)


def _victim_is_permitted(
    before: ResidencyState, step: ResidencyStep, old: Resident | None, new: Resident
) -> Iterable[Violation]:
    """T4; of one that was being loaded, be it since this very step, T16."""
    newly = new.phase is Phase.LEAVING and (old is None or old.phase is not Phase.LEAVING)
    if not newly or new.makes_room_for is None:
        return
    after = step.state
    newcomer = after.replicas[new.makes_room_for]
    loads = old if old is not None and old.phase is Phase.LOADING else None
    begins = any(isinstance(each, LoadToGpu) and each.replica_id == new.replica_id for each in step.commands)
    spec, wanted = after.models[new.model], after.models[newcomer.model]
    complaints = {
        "is dedicated": spec.dedicated,
        "has a higher priority": spec.priority > wanted.priority,
        "is of the same model": new.model == newcomer.model,
        "is of the same request": after.asked[new.model] == after.asked[newcomer.model],
        "did not serve": new.hot_since is None and loads is None and not begins,
        "has not had its turn": not wanted.dedicated and not _has_had_its_turn(before, after, new, newcomer),
        "is younger than its minimum time": not wanted.dedicated
        and new.hot_since is not None
        and after.clock < new.hot_since + spec.min_hot_s,
    }
    for complaint, broken in complaints.items():
        if broken:
            yield Violation("T4", f"{new.replica_id}, displaced by {newcomer.replica_id}, {complaint}")
    if new.hot_since is not None or (loads is None and not begins):
        return
    last = before.broken_off.get(new.model)
    amiss = {
        "for one of no higher priority": spec.priority >= wanted.priority,
        "with more than half of it done": loads is not None and after.clock - loads.since > loads.hot_by - after.clock,
        "twice in a row": last is not None and after.clock - last < after.policy.reuse_horizon_s,
    }
    for complaint, broken in amiss.items():
        if broken:
            yield Violation("T16", f"the load of {new.replica_id} is broken off for {newcomer.replica_id}, {complaint}")


def _has_had_its_turn(before: ResidencyState, after: ResidencyState, victim: Resident, newcomer: Resident) -> bool:
    """T13: its turn is over, or it was cut for the first in line as far as that may be."""
    if victim.hot_since is None:
        return True
    spec = after.models[victim.model]
    over = is_over(replace(victim, phase=Phase.SERVING), spec, after.clock)
    if over or newcomer.due_at is None:
        return over
    head = after.head or before.head
    least_s = min(victim.turn_s, LEAST_LOADS * victim.load_s) if victim.in_flight else 0.0
    pressed = (
        spec.priority < after.models[newcomer.model].priority
        or head is None
        or (head.begins_by is not None and head.begins_by <= after.clock)
    )
    return pressed and after.clock >= victim.hot_since + least_s


def _victims_are_needed(after: ResidencyState, old: Resident | None, new: Resident) -> Iterable[Violation]:
    """T5: with its victims a newcomer has enough, and without any one of them it has not.

    Where more is held than there is, what they give up ends that first.
    """
    if new.phase is not Phase.RESERVING or not new.waits_for or (old is not None and old.phase is Phase.RESERVING):
        return
    if new.due_at is not None:
        return  # what it counts on is no victim yet: `line`
    given = {victim_id: _held(after.replicas[victim_id]) for victim_id in new.waits_for}
    assert new.node_id is not None
    gpus = after.nodes[new.node_id].gpus
    for spared in (None, *new.waits_for):
        room = [
            own
            + max(0, sum(held.get(gpu, 0) for victim_id, held in given.items() if victim_id != spared) - gpus[gpu].excess_bytes)
            for gpu, own in zip(new.gpus, new.gpu_bytes, strict=True)
        ]
        enough = all(has >= need for has, need in zip(room, new.need_bytes, strict=True))
        if spared is None and not enough:
            yield Violation("T5", f"{new.replica_id} has not enough with all of its victims")
        if spared is not None and enough:
            yield Violation("T5", f"{new.replica_id} has enough without {spared}")


def _becomes_warm_if_it_can(
    before: ResidencyState, after: ResidencyState, old: Resident | None, new: Resident
) -> Iterable[Violation]:
    """T6: nobody becomes COLD beside CPU memory that is free, that others do not need all of, or that copies at rest hold.

    Where those copies stay that save most, beside what is free.
    """
    if old is None or old.phase is not Phase.SERVING or new.phase is not Phase.LEAVING or new.forgets:
        return
    assert new.node_id is not None
    saves, node = after.policy.warm_eviction == "saving", after.nodes[new.node_id]
    room = node.cpu_free_bytes - node.cpu_excess_bytes if saves else _room_for_copies(before, after, new.node_id)
    if new.copy_node_id is None and room >= after.models[new.model].weight_bytes:
        yield Violation("T6", f"{new.replica_id} becomes COLD, and would fit into CPU memory")


def _room_for_copies(before: ResidencyState, after: ResidencyState, node_id: NodeId) -> int:
    """Bytes of CPU memory on a node that a copy could have had in the step from one state to the other."""
    node = after.nodes[node_id]
    there = [after.replicas[each] for each in after.index.roster.copies.get(node_id, ())]
    at_rest = [
        each.cpu_bytes
        for each in there
        if each.phase is Phase.RESTING
        and each.replica_id in before.replicas
        and before.replicas[each.replica_id].phase is Phase.RESTING
    ]
    waiting = [each for each in there if each.phase is Phase.LEAVING and each.waits_for]
    lacked = sum(each.cpu_need_bytes - each.cpu_bytes for each in waiting)
    awaited = {replica_id for each in waiting for replica_id in each.waits_for}
    coming = sum(after.replicas[each].cpu_bytes for each in awaited)
    return node.cpu_free_bytes - node.cpu_excess_bytes + sum(at_rest) + max(0, coming - lacked)


def _smallest_copies_go_first(
    before: ResidencyState, after: ResidencyState, changed: Iterable[tuple[Resident | None, Resident]]
) -> Iterable[Violation]:
    """T6: no copy that stays is smaller than one that was dropped for another one."""
    if after.policy.warm_eviction == "saving":
        return
    for old, new in changed:
        if old is None or old.phase is not Phase.RESTING or new.phase is not Phase.DROPPING or new.makes_room_for is None:
            continue
        assert new.copy_node_id is not None
        for other_id in after.index.roster.copies[new.copy_node_id]:
            was, other = before.replicas.get(other_id), after.replicas[other_id]
            stays = was is not None and was.phase is other.phase is Phase.RESTING
            if stays and (other.cpu_bytes, other_id) < (new.cpu_bytes, new.replica_id):
                yield Violation("T6", f"{new.replica_id} is dropped, and the smaller {other_id} stays")


def _copies_are_worth_it(after: ResidencyState, changed: Iterable[tuple[Resident | None, Resident]]) -> Iterable[Violation]:
    """T17: copies that are dropped for another one save no more than it, and none of them could be spared."""
    if after.policy.warm_eviction != "saving":
        return
    dropped: dict[ReplicaId, list[Resident]] = {}
    for old, new in changed:
        if old is not None and old.phase is Phase.RESTING and new.phase is Phase.DROPPING and new.makes_room_for is not None:
            dropped.setdefault(new.makes_room_for, []).append(new)
    for newcomer_id, copies in dropped.items():
        newcomer = after.replicas[newcomer_id]
        saved = _saving(after, newcomer, newcomer.cpu_need_bytes)
        lost = [_saving(after, each, each.cpu_bytes) for each in copies]
        if sum(lost) > saved * (1.0 + 1e-9):
            yield Violation("T17", f"copies are dropped for {newcomer_id} that save {sum(lost):g}, and it saves {saved:g}")
        lacks = newcomer.cpu_need_bytes - newcomer.cpu_bytes
        coming = sum(after.replicas[each].cpu_bytes for each in newcomer.waits_for)
        alone = {*newcomer.waits_for} == {each.replica_id for each in copies}  # others need none of what they bring
        if alone and any(coming - each.cpu_bytes >= lacks for each in copies):
            yield Violation("T17", f"a copy is dropped for {newcomer_id} that could be spared")


def _saving(after: ResidencyState, record: Resident, size: int) -> float:
    horizon_s = after.policy.reuse_horizon_s
    return size * horizon_s / (horizon_s + after.clock - record.last_used)


def _no_warm_replica_is_passed_over(
    before: ResidencyState, after: ResidencyState, changed: Iterable[tuple[Resident | None, Resident]]
) -> Iterable[Violation]:
    """T3: nobody is displaced for a replica, and none waits, while a WARM one of its model rests that fits beside its copy."""
    wanted = {
        new.model: new.replica_id
        for old, new in changed
        if (old is None or old.phase in (Phase.RESTING, Phase.DROPPING))
        and (new.phase is Phase.WAITING or (new.phase is Phase.RESERVING and new.waits_for))
    }
    for model, replica_id in wanted.items():
        for serial in after.index.roster.groups.get((model, "warm"), ()):
            other = after.replicas[replica_id_of(model, serial)]
            was, node_id = before.replicas.get(other.replica_id), other.copy_node_id
            assert node_id is not None
            if was is not None and was.phase is Phase.RESTING and fits_on(after, other, node_id):
                yield Violation("T3", f"{other.replica_id} fits beside its copy, and {replica_id} was taken instead")


def _what_fits_nowhere_disturbs_nobody(before: ResidencyState, event: Event, step: ResidencyStep) -> Iterable[Violation]:
    """T7."""
    cant = [note for note in step.notes if note.kind is ResidencyNoteKind.CANT_ACCOMMODATE]
    for note in cant:
        if note.cant is None or (step.state.nodes and not note.cant.reasons):
            yield Violation("T7", f"{note.replica_id} fits nowhere, and no node says why")
    kinds = {note.kind for note in step.notes}
    only_waits = kinds <= {ResidencyNoteKind.CANT_ACCOMMODATE, ResidencyNoteKind.SCALED}
    if cant and only_waits and isinstance(event, DeployRequested):
        commands = [command for command in step.commands if not isinstance(command, WakeAt)]
        if commands or step.state.nodes != before.nodes:
            yield Violation("T7", "a request of which nothing fits has disturbed somebody")


def _loads_come_last(after: ResidencyState, step: ResidencyStep) -> Iterable[Violation]:
    """T9: what is loaded waits for nobody; every command is the newest about its replica."""
    for command in step.commands:
        if isinstance(command, WakeAt):
            continue
        record = after.replicas[command.replica_id]
        if isinstance(command, LoadToGpu) and record.move == command.move and record.waits_for:
            yield Violation("T9", f"{record.replica_id} is loaded, and waits for {record.waits_for}")
        if record.move < command.move or command.move >= after.moves:
            yield Violation("T9", f"move {command.move} of {record.replica_id} is not in its record")
        if (
            isinstance(command, (OffloadToCpu, UnloadFromGpu))
            and record.move == command.move
            and record.phase is not Phase.LEAVING
        ):
            yield Violation("T9", f"{record.replica_id} is told to leave, and is {record.phase.value}")
        if isinstance(command, UnloadFromGpu) and record.move == command.move and command.keep_copy != _has_copy(record):
            found = "has one" if _has_copy(record) else "has none"
            yield Violation("T9", f"{record.replica_id} {found}, and is told keep_copy={command.keep_copy}")


def _has_copy(record: Resident) -> bool:
    return record.copy_node_id is not None and record.copy_node_id == record.node_id


def _held(record: Resident) -> dict[int, int]:
    return dict(zip(record.gpus, record.gpu_bytes, strict=True))
