"""Where a replica becomes HOT: at its old place, beside its WARM copy, where it fits best, or after displacement (T3, T7)."""

from collections.abc import Iterable

import msgspec

from rankcore.residency import estimates
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.displacement import Displacement, Need, cheapest_displacement
from rankcore.residency.ever import in_words
from rankcore.residency.fit import Place, degree_on, share, tightest
from rankcore.residency.leaving import drop, in_turn, leave
from rankcore.residency.ledger import Ledger, has_copy, source_of
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import CantAccommodate, ResidencyNote, ResidencyNoteKind
from rankcore.residency.reasons import reasons_of
from rankcore.residency.room import degrees_of, labels_of
from rankcore.residency.roster import Group
from rankcore.residency.state import Resident
from rankcore.values import NodeId, ReplicaId


def need_of(ledger: Ledger, model: str, size_bytes: int = 0) -> Need:
    """What a replica of a model needs, and where it may be.

    Args:
        ledger: The books.
        model: Which.
        size_bytes: What this replica turned out to take, if that is more than the spec says.
    """
    spec = ledger.models[model]
    labels = spec.node_labels.items()
    shapes = tuple(shape for shape in ledger.shapes() if labels <= dict(labels_of(shape)).items())
    taken = ledger.records(model, Group.PLACED) if spec.spread else ()
    excluded = {other.node_id for other in taken if other.node_id is not None}
    excluded.update(each for each in spec.avoids if each in ledger.nodes)
    return Need(spec, max(spec.total_bytes, size_bytes), ledger.asked[model], shapes, frozenset(excluded))


def place(ledger: Ledger, record: Resident, *, first: Place | None = None, among: Iterable[NodeId] | None = None) -> bool:
    """Give a replica that is wanted HOT a place, or leave it WAITING.

    Args:
        ledger: The books.
        record: RESTING, WAITING or DROPPING.
        first: The place that who it succeeds has just left: it goes there if it fits, ahead of who is first in line.
        among: Only these nodes; None: all. Where it does not fit on these, nothing is said.
    """
    need = need_of(ledger, record.model, record.size_bytes)
    back = _back(ledger, need, first)
    if back is not None:
        _reserve(ledger, record, back, None)
        _let_pass(ledger, record.replica_id)
        return True
    settle(ledger)
    nodes = None if among is None else _suitable(ledger, need, among)
    found = _beside_its_copy(ledger, need, record, nodes) or best_fit(ledger, need, nodes)
    if found is not None:
        _reserve(ledger, record, found, None)
        return True
    displacement = cheapest_displacement(ledger, need, nodes)
    if displacement is not None:
        _reserve(ledger, record, displacement.place, displacement)
        return True
    if among is None:
        _wait(ledger, record, need.total_bytes, reasons_of(ledger, need, record.replica_id))
    return False


def best_fit(ledger: Ledger, need: Need, among: Iterable[NodeId] | None = None) -> Place | None:
    """The free room that leaves the least free beside the replica; of equals the fewest GPUs, then by node id."""
    if among is not None:
        candidates = []
        for node_id in among:
            place = _fit_on(ledger, need, node_id)
            if place is not None and node_id not in need.excluded:
                candidates.append((place[0], len(place[1].gpus), node_id, place[1]))
        return min(candidates)[3] if candidates else None
    best: tuple[int, int, NodeId] | None = None
    for shape in need.shapes:
        for degree in degrees_of(shape, need.spec, need.total_bytes):
            each_bytes = share(need.spec, need.total_bytes, degree)
            for least, total, node_id in ledger.shelf(shape, degree).fits.since((each_bytes,)):
                key = (total - degree * each_bytes, degree, node_id)
                if (best is None or key < best) and _will_do(ledger, need, node_id, degree):
                    best = key
                if best is not None and degree * (least - each_bytes) >= best[0] and best <= key:
                    break
    if best is None:
        return None
    found = _fit_on(ledger, need, best[2])
    assert found is not None
    return found[1]


def fits_beside_its_copy(ledger: Ledger, need: Need, record: Resident) -> bool:
    """Whether a WARM replica can become HOT on its node without displacing anybody.

    Args:
        ledger: The books.
        need: Of its model and its size.
        record: The replica.
    """
    return _beside_its_copy(ledger, need, record, None) is not None


def start_loading(ledger: Ledger, record: Resident) -> None:
    """All that it needs is its own: the weights can come."""
    move = ledger.next_move()
    source = source_of(record)
    node_id = record.node_id
    assert node_id is not None
    due_at, node, spec = record.due_at, ledger.nodes[node_id], ledger.spec_of(record)
    beside = [ledger.spec_of(each).weight_bytes for each in ledger.on_gpus(node_id) if each.phase is Phase.LOADING]
    hot_by = ledger.clock + estimates.load_s(ledger.policy, node, spec.weight_bytes + sum(beside), source)
    if beside:
        ledger.learn(estimates.after_start(node, ledger.clock))
    elif due_at is not None:
        due_at = min(due_at, hot_by)
    load_s = estimates.load_s(ledger.policy, node, spec.weight_bytes, source)
    record = ledger.change(record, phase=Phase.LOADING, level=source, move=move, due_at=due_at, hot_by=hot_by, load_s=load_s)
    ledger.commands.append(
        LoadToGpu(
            replica_id=record.replica_id,
            model=record.model,
            node_id=node_id,
            gpus=record.gpus,
            gpu_bytes=record.gpu_bytes,
            source=source,
            move=move,
        )
    )


def go_on(ledger: Ledger, record: Resident) -> None:
    """A replica that is RESERVING takes over what has become free at its place, and is loaded once it has all it needs."""
    record = take_over(ledger, record)
    if record.waits_for or record.dropping:
        return
    # A node that turns out to hold less ends the reservations there, so what was promised has come.
    assert record.gpu_bytes == record.need_bytes, f"{record.replica_id} holds {record.gpu_bytes} of {record.need_bytes}"
    start_loading(ledger, record)


def take_over(ledger: Ledger, record: Resident) -> Resident:
    """What is free at the place of a replica that is RESERVING is its own, as far as it needs it."""
    assert record.node_id is not None
    node = ledger.nodes[record.node_id]
    held = tuple(
        own + min(need - own, node.gpus[gpu].free_bytes)
        for gpu, own, need in zip(record.gpus, record.gpu_bytes, record.need_bytes, strict=True)
    )
    return ledger.change(record, gpu_bytes=held) if held != record.gpu_bytes else record


def settle(ledger: Ledger) -> None:
    """Who is first in line takes over what has become free at its place, before anybody else can."""
    if ledger.head is None or not ledger.relieved:
        return
    ledger.relieved = False
    record = ledger.replicas[ledger.head.replica_id]
    record = take_over(ledger, record)
    still = tuple(each for each in record.waits_for if _is_in_its_way(ledger.replicas[each], record))
    if record.gpu_bytes == record.need_bytes:
        still = tuple(each for each in still if ledger.replicas[each].makes_room_for == record.replica_id)
    if still != record.waits_for:
        record = ledger.change(record, waits_for=still)
    if not still:
        say_where(ledger, record, (), True)
        set_out(ledger, record, ())


def _let_pass(ledger: Ledger, heir_id: ReplicaId) -> None:
    """Who is first in line waits for a successor at its place, too; that one has no successor ahead of it (T12)."""
    if ledger.head is None:
        return
    heir, record = ledger.replicas[heir_id], take_over(ledger, ledger.replicas[ledger.head.replica_id])
    short = [gpu for gpu, own, need in zip(record.gpus, record.gpu_bytes, record.need_bytes, strict=True) if own < need]
    if heir.node_id == record.node_id and not set(heir.gpus).isdisjoint(short):
        ledger.heirs.append(heir_id)
        ledger.head = msgspec.structs.replace(ledger.head, heirs=(*ledger.head.heirs, heir_id))
        ledger.change(record, waits_for=tuple(sorted({*record.waits_for, heir_id})))


def set_out(ledger: Ledger, record: Resident, victims: tuple[ReplicaId, ...]) -> None:
    """Its victims leave, a copy elsewhere is dropped; who waits for nothing is loaded."""
    if record.copy_node_id is not None and record.copy_node_id != record.node_id and not record.dropping:
        record = drop(ledger, record)
    for victim_id in in_turn(ledger, victims):
        leave(ledger, ledger.replicas[victim_id], f"displaced by {record.replica_id}", makes_room_for=record.replica_id)
    if not record.waits_for and not record.dropping:
        go_on(ledger, record)


def _is_in_its_way(other: Resident, record: Resident) -> bool:
    """Whether it holds anything at a place that another one waits for."""
    return other.node_id == record.node_id and not set(other.gpus).isdisjoint(record.gpus)


def give_up_place(ledger: Ledger, record: Resident, because: str, phase: Phase = Phase.WAITING) -> Resident:
    """A replica that is RESERVING or LOADING has no place any more; who was first in line waits for as long as before."""
    head, promised = ledger.head, record.due_at is not None
    record = _without_place(ledger, record, because, phase)
    if promised and phase is Phase.WAITING:
        ledger.note(ResidencyNoteKind.SLIPPED, "T13", record, f"it has no place any more: {because}")
    if head is not None and head.replica_id == record.replica_id and phase is Phase.WAITING:
        record = ledger.change(record, since=head.since)
    return record


def _without_place(ledger: Ledger, record: Resident, because: str, phase: Phase) -> Resident:
    return ledger.change(
        record,
        phase=phase,
        level=Level.WARM if record.copy_node_id is not None else Level.COLD,
        node_id=record.copy_node_id,
        gpus=(),
        gpu_bytes=(),
        need_bytes=(),
        used_bytes=(),
        waits_for=(),
        due_at=None,
        load_s=0.0,
        hot_by=0.0,
        because=because,
    )


def off_gpus(ledger: Ledger, record: Resident, phase: Phase, because: str, *, has_copy: bool = False) -> Resident:
    """A record without a place; its bytes on GPUs are free, and those in CPU memory unless it has a copy there."""
    kept = record.copy_node_id if has_copy else None
    return ledger.change(
        record,
        phase=phase,
        level=Level.WARM if has_copy else Level.COLD,
        node_id=kept,
        gpus=(),
        gpu_bytes=(),
        need_bytes=(),
        used_bytes=(),
        copy_node_id=kept,
        cpu_bytes=record.cpu_bytes if has_copy else 0,
        cpu_need_bytes=0,
        hot_since=None,
        turn_s=0.0,
        load_s=0.0,
        hot_by=0.0,
        in_flight=0,
        waits_for=(),
        makes_room_for=None,
        dropping=False,
        forgets=False,
        because=because,
    )


def _suitable(ledger: Ledger, need: Need, among: Iterable[NodeId]) -> list[NodeId]:
    labels = need.spec.node_labels.items()
    return [each for each in among if each not in need.excluded and labels <= ledger.nodes[each].labels.items()]


def _back(ledger: Ledger, need: Need, first: Place | None) -> Place | None:
    if first is None:
        return None
    node = ledger.nodes[first.node_id]
    degree = len(first.gpus)
    each_bytes = share(need.spec, need.total_bytes, degree)
    if degree_on(node, need.spec, need.total_bytes) != degree or first.node_id in need.excluded:
        return None
    if all(node.gpus[gpu].free_bytes >= each_bytes for gpu in first.gpus):
        return Place(first.node_id, first.gpus, each_bytes)
    return None


def _beside_its_copy(ledger: Ledger, need: Need, record: Resident, nodes: list[NodeId] | None) -> Place | None:
    node_id = record.copy_node_id
    if node_id is None or not has_copy(record) or (nodes is not None and node_id not in nodes):
        return None
    found = _fit_on(ledger, need, node_id)
    return found[1] if found is not None and _suitable(ledger, need, (node_id,)) else None


def _fit_on(ledger: Ledger, need: Need, node_id: NodeId) -> tuple[int, Place] | None:
    node = ledger.nodes[node_id]
    # A number that is given needs no look at capacities: who has so much free can hold it.
    degree = need.spec.gpus or degree_on(node, need.spec, need.total_bytes)
    if degree is None:
        return None
    each_bytes = share(need.spec, need.total_bytes, degree)
    found = tightest(node, degree, each_bytes)
    return (found[0], Place(node_id, found[1], each_bytes)) if found is not None else None


def _will_do(ledger: Ledger, need: Need, node_id: NodeId, degree: int) -> bool:
    if node_id in need.excluded:
        return False
    return degree_on(ledger.nodes[node_id], need.spec, need.total_bytes) == degree


def _reserve(ledger: Ledger, record: Resident, found: Place, displacement: Displacement | None) -> None:
    """Take what is free of its place at once, and make the rest free."""
    victims: tuple[ReplicaId, ...] = displacement.victims if displacement is not None else ()
    node = ledger.nodes[found.node_id]
    was_waiting = record.phase is Phase.WAITING
    because = _how(record, found, displacement)
    record = ledger.change(
        record,
        phase=Phase.RESERVING,
        node_id=found.node_id,
        gpus=found.gpus,
        gpu_bytes=tuple([min(found.each_bytes, node.gpus[gpu].free_bytes) for gpu in found.gpus]),
        need_bytes=(found.each_bytes,) * len(found.gpus),
        waits_for=victims,
        used_bytes=(),
        because=because,
    )
    cost_bytes = displacement.cost_bytes if displacement is not None else 0
    ledger.places.append((record, found, victims, cost_bytes))
    say_where(ledger, record, victims, was_waiting)
    set_out(ledger, record, victims)


def _how(record: Resident, found: Place, displacement: Displacement | None) -> str:
    """Why it is there, in words: the record says so for as long as it stays."""
    source = "from its copy there" if _is_beside_its_copy(record, found.node_id) else "from disk"
    gpus = f"GPU {found.gpus[0]}" if len(found.gpus) == 1 else "GPUs " + ", ".join(str(gpu) for gpu in found.gpus)
    if displacement is None:
        return f"it fits on {gpus}, {source}"
    why = f"it goes to {gpus}, {source}, once {', '.join(displacement.victims)} left: cost {in_words(displacement.cost_bytes)}"
    return why if displacement.exact else why + "; the search was cut short, so there may be a cheaper set"


def _is_beside_its_copy(record: Resident, node_id: NodeId | None) -> bool:
    return record.copy_node_id == node_id and has_copy(record)


def say_where(ledger: Ledger, record: Resident, victims: tuple[ReplicaId, ...], was_waiting: bool) -> None:
    """Say where a replica goes, and for whom others leave."""
    size = sum(record.need_bytes)
    if was_waiting:
        ledger.note(ResidencyNoteKind.RETRIED, "T7", record, "there is room now")
    kind = ResidencyNoteKind.PROMOTED if _is_beside_its_copy(record, record.node_id) else ResidencyNoteKind.PLACED
    ledger.note(kind, "T5" if victims else "T3", record, record.because, size=size)
    for victim_id in victims:
        victim = ledger.replicas[victim_id]
        loads = victim.phase is Phase.LOADING
        because = f"by {record.replica_id}" + (": less than half of it was loaded" if loads else "")
        ledger.note(ResidencyNoteKind.DISPLACED, "T16" if loads else "T5", victim, because, size=victim.held_bytes)


def wait_too(ledger: Ledger, record: Resident, cant: CantAccommodate) -> None:
    """One more of a model of which a replica has just been found to fit nowhere."""
    _wait(ledger, record, ledger.models[record.model].total_bytes, msgspec.structs.replace(cant, replica_id=record.replica_id))


def _wait(ledger: Ledger, record: Resident, total_bytes: int, cant: CantAccommodate) -> None:
    """It fits nowhere: nothing is disturbed, and everybody is told why."""
    because = cant.reasons[0].because if cant.reasons else "there is no node"
    record = ledger.change(record, phase=Phase.WAITING, because=because)
    ledger.notes.append(
        ResidencyNote(
            ResidencyNoteKind.CANT_ACCOMMODATE,
            "T7",
            model=record.model,
            replica_id=record.replica_id,
            because=because,
            bytes=total_bytes,
            cant=cant,
        )
    )
