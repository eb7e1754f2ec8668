"""What a replica's news comes to: loads and moves that end, use, losses."""

from rankcore.residency import estimates
from rankcore.residency.events import (
    LoadFailed,
    LoadFinished,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ReplicaUsed,
    UsageReported,
)
from rankcore.residency.fit import Place
from rankcore.residency.leaving import drop, hand_over, leave
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Level, Phase
from rankcore.residency.machines import lose_copy, shed
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.placing import give_up_place, go_on, off_gpus, place, settle
from rankcore.residency.roster import Group
from rankcore.residency.spec import ModelSpec
from rankcore.residency.state import Resident, replica_id_of
from rankcore.residency.turns import has_begun
from rankcore.values import ReplicaId

NOTHING_RUNS = (Phase.RESTING, Phase.WAITING, Phase.RESERVING)


def on_load_finished(ledger: Ledger, event: LoadFinished) -> None:
    """HOT: from now on it serves, and may be displaced."""
    record = _at(ledger, event.replica_id, event.move, Phase.LOADING)
    if record is None:
        return
    assert record.node_id is not None
    took_s = ledger.clock - record.since
    load_s = min(took_s, record.load_s)  # not what it has waited for others on the same disk
    ledger.learn(
        estimates.after_load(ledger.nodes[record.node_id], ledger.spec_of(record), record.level, record.since, ledger.clock)
    )
    if record.due_at is not None and ledger.clock > record.due_at:
        ledger.note(
            ResidencyNoteKind.SLIPPED,
            "T13",
            record,
            f"it is HOT {ledger.clock - record.due_at:g} s late: its load took {took_s:g} s",
        )
    ledger.change(
        record,
        phase=Phase.SERVING,
        level=Level.HOT,
        load_s=load_s,
        turn_s=ledger.policy.turn_factor * load_s,
        due_at=None,
        hot_by=0.0,
        copy_node_id=None,
        cpu_bytes=0,
        hot_since=ledger.clock,
        last_used=ledger.clock,
        in_flight=0,
    )
    if record.model in ledger.broken_off:
        ledger.broken_off = ledger.broken_off.delete(record.model)
    ledger.roomier[record.node_id] = None
    shed(ledger, record.node_id)


def on_load_failed(ledger: Ledger, event: LoadFailed) -> None:
    """Its place is free again; a copy that it came from is still there."""
    record = _at(ledger, event.replica_id, event.move, Phase.LOADING)
    if record is not None:
        _load_failed(ledger, record, event.reason)


def on_offload_finished(ledger: Ledger, event: OffloadFinished) -> None:
    """It has left the GPUs, or its copy is gone."""
    _moved(ledger, event, "")


def on_offload_failed(ledger: Ledger, event: OffloadFailed) -> None:
    """Likewise, and nothing is left of it but its file."""
    _moved(ledger, event, event.reason or "its offload failed")


def on_replica_lost(ledger: Ledger, event: ReplicaLost) -> None:
    """Its process has ended, and with it what it held anywhere. The heir of who was HOT gets its place, if it fits there."""
    record = _known(ledger, event.replica_id)
    if record is None:
        return
    if record.phase in NOTHING_RUNS and record.copy_node_id is None:
        ledger.note(ResidencyNoteKind.LATE, "T2", record, "it is COLD: there is nothing to be lost")
        return
    because = event.reason or "its process ended"
    ledger.note(ResidencyNoteKind.REPLICA_LOST, "T10", record, because)
    if record.phase is Phase.SERVING:
        was = _place_of(record)
        off_gpus(ledger, record, Phase.RESTING, because)
        if event.heir is not None:
            _inherit(ledger, event.heir, record.replica_id, was)
    elif record.phase is Phase.LEAVING:
        _has_left(ledger, record, because, event.heir)
    elif record.phase is Phase.LOADING:
        _load_failed(ledger, lose_copy(ledger, record), because)
    elif record.dropping:
        _copy_is_gone(ledger, record)
    else:
        lose_copy(ledger, record)


def on_replica_used(ledger: Ledger, event: ReplicaUsed) -> None:
    """What it has in flight, and that it was used, is part of what it weighs."""
    record = _known(ledger, event.replica_id)
    if record is None:
        return
    if record.phase not in (Phase.SERVING, Phase.LEAVING):
        ledger.note(ResidencyNoteKind.LATE, "T5", record, f"it is {record.phase.value}, and has nothing in flight")
        return
    ledger.change(record, in_flight=event.in_flight, last_used=max(record.last_used, event.at))


def on_usage_reported(ledger: Ledger, event: UsageReported) -> None:
    """It takes more than was reserved: the reservation grows, or it leaves (T8)."""
    record = _known(ledger, event.replica_id)
    if record is None:
        return
    if record.phase not in (Phase.LOADING, Phase.SERVING) or len(event.gpu_bytes) != len(record.gpus):
        ledger.note(ResidencyNoteKind.LATE, "T8", record, f"it is {record.phase.value} on {len(record.gpus)} GPUs")
        return
    used = tuple(map(max, event.gpu_bytes, record.used_bytes or event.gpu_bytes))
    if all(size <= held for size, held in zip(used, record.gpu_bytes, strict=True)):
        ledger.change(record, used_bytes=used)
        return
    assert record.node_id is not None
    held = tuple(map(max, used, record.gpu_bytes))
    size_bytes = max(held) * len(held)
    gpus = ledger.nodes[record.node_id].gpus
    ledger.note(ResidencyNoteKind.MEASURED, "T8", record, "it takes more than was reserved", size=sum(used))
    fits = all(want - own <= gpus[gpu].free_bytes for gpu, own, want in zip(record.gpus, record.gpu_bytes, held, strict=True))
    record = ledger.change(record, used_bytes=used, size_bytes=max(record.size_bytes, size_bytes))
    if fits:
        ledger.change(record, gpu_bytes=held, need_bytes=held)
    else:
        leave(ledger, record, "it takes more than there is room for", returns=True)


def _known(ledger: Ledger, replica_id: ReplicaId) -> Resident | None:
    record = ledger.replicas.get(replica_id)
    if record is None:
        ledger.note(ResidencyNoteKind.LATE, "T2", because=f"nobody knows {replica_id}")
    return record


def _at(ledger: Ledger, replica_id: ReplicaId, move: int, phase: Phase) -> Resident | None:
    """The record that an answer is about, if it answers the newest command."""
    record = _known(ledger, replica_id)
    if record is not None and (record.phase is not phase or record.move != move):
        ledger.note(ResidencyNoteKind.LATE, "T2", record, f"it is {record.phase.value}, and its newest move is {record.move}")
        return None
    return record


def _place_of(record: Resident) -> Place:
    assert record.node_id is not None
    return Place(record.node_id, record.gpus, record.need_bytes[0])


def _inherit(ledger: Ledger, spec: ModelSpec, leaver_id: ReplicaId, was: Place) -> None:
    """One more of a model is wanted, at a place that has become free if it fits: beside a copy there, or from disk.

    Ahead of who is first in line, unless that is of the same model, or the leaver has gone ahead of it itself (T12).
    """
    head = ledger.head
    if head is not None and (leaver_id in head.heirs or ledger.replicas[head.replica_id].model == spec.model):
        settle(ledger)
    ledger.set_spec(spec)
    ledger.ask(spec.model, ledger.requests)
    ledger.requests += 1
    warm = [each for each in ledger.records(spec.model, Group.WARM) if each.copy_node_id == was.node_id]
    place(ledger, warm[0] if warm else ledger.new_record(spec.model), first=was)


def _load_failed(ledger: Ledger, record: Resident, reason: str) -> None:
    ledger.note(ResidencyNoteKind.LOAD_FAILED, "T10", record, reason or "no reason was given")
    give_up_place(ledger, record, f"its load failed: {reason}" if reason else "its load failed", Phase.RESTING)


def _moved(ledger: Ledger, event: OffloadFinished | OffloadFailed, failure: str) -> None:
    record, move = _known(ledger, event.replica_id), event.move
    if record is None:
        return
    if record.move == move and record.phase is Phase.LEAVING and not record.waits_for:
        _has_left(ledger, record, failure, event.heir)
    elif record.move == move and record.dropping:
        _copy_is_gone(ledger, record)
    else:
        found = f"it is {record.phase.value}, and its newest move is {record.move}"
        ledger.note(ResidencyNoteKind.LATE, "T2", record, found)


def _has_left(ledger: Ledger, record: Resident, failure: str, heir: ModelSpec | None = None) -> None:
    """Off the GPUs: whoever displaced it takes over, else the heir."""
    was = _place_of(record)
    has_copy = not failure and record.copy_node_id is not None
    kind = ResidencyNoteKind.BECAME_WARM if has_copy else ResidencyNoteKind.BECAME_COLD
    ledger.note(kind, "T6", record, failure or record.because, size=record.cpu_bytes if has_copy else 0)
    newcomer_id, forgets = record.makes_room_for, record.forgets
    record = off_gpus(ledger, record, Phase.RESTING, failure or record.because, has_copy=has_copy)
    if has_copy and forgets:
        record = drop(ledger, record, because="no copy of it is to stay")
    smaller = has_copy and not forgets and _wait_instead(ledger, record)
    if newcomer_id is not None:
        one_less(ledger, newcomer_id, record.replica_id)
    if heir is not None:
        _inherit(ledger, heir, record.replica_id, was)
    if smaller:
        place(ledger, ledger.replicas[record.replica_id])


def _wait_instead(ledger: Ledger, record: Resident) -> bool:
    """A replica has become WARM: where one of its model waits that would come from disk, this one waits instead (T3).

    Returns:
        Whether it takes less than that one was measured to, so that it may fit where that one did not (T7).
    """
    other = _who_waits(ledger, record.model)
    if other is None or other.copy_node_id is not None:
        return False
    if other.phase is Phase.RESERVING:
        other = give_up_place(ledger, ledger.change(other, due_at=None), other.because)
    ledger.note(ResidencyNoteKind.SCALED, "T3", record, f"it is wanted instead of {other.replica_id}, which has no copy")
    ledger.change(other, phase=Phase.RESTING, because=f"{record.replica_id} has a copy, and is wanted instead")
    record = ledger.change(record, phase=Phase.WAITING, because=other.because)
    # Its model does not lose its turn.
    ledger.change(record, since=other.since)
    return record.size_bytes < other.size_bytes


def _who_waits(ledger: Ledger, model: str) -> Resident | None:
    """The first of a model in line, whether it has a reservation or not; None: nobody waits, or for those alone who leave."""
    head = ledger.replicas[ledger.head.replica_id] if ledger.head is not None else None
    if head is not None and head.model == model and not has_begun(ledger, head):
        return head
    waiting = ledger.roster.members(model, Group.WAITING)
    return ledger.replicas[replica_id_of(model, waiting.first())] if waiting else None


def _copy_is_gone(ledger: Ledger, record: Resident) -> None:
    """Out of CPU memory: those that wait for the bytes take over."""
    node_id = record.copy_node_id
    assert node_id is not None
    ledger.note(ResidencyNoteKind.BECAME_COLD, "T6", record, record.because, node_id=node_id)
    record = lose_copy(ledger, record)
    hand_over(ledger, node_id, record.replica_id)
    if record.phase is Phase.RESERVING:
        go_on(ledger, record)


def one_less(ledger: Ledger, newcomer_id: ReplicaId, victim_id: ReplicaId) -> None:
    """A victim has given up what a newcomer waits for."""
    newcomer = ledger.replicas.get(newcomer_id)
    if newcomer is not None and victim_id in newcomer.waits_for:
        left = tuple(each for each in newcomer.waits_for if each != victim_id)
        go_on(ledger, ledger.change(newcomer, waits_for=left))
