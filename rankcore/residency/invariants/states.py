"""Promises about a state: books that balance, records that make sense, and nobody who waits beside room."""

from collections.abc import Iterable

from rankcore.kernel import Violation
from rankcore.residency.fit import degree_on, share, tightest
from rankcore.residency.invariants.indexes import check_indexes
from rankcore.residency.invariants.line import check_line
from rankcore.residency.levels import Level, Phase
from rankcore.residency.state import ResidencyState, Resident
from rankcore.values import NodeId

PLACED = (Phase.RESERVING, Phase.LOADING, Phase.SERVING, Phase.LEAVING)


def check(state: ResidencyState) -> list[Violation]:
    """Check a state against the promises.

    Returns:
        What is broken; empty when all promises hold.
    """
    records = [state.replicas[replica_id] for replica_id in sorted(state.replicas)]
    return [
        *_books_balance(state, records),
        *(found for record in records for found in _record_is_whole(state, record)),
        *(found for record in records for found in _waits_for_somebody(state, record)),
        *_nobody_waits_beside_room(state, records),
        *check_line(state),
        *check_indexes(state),
    ]


def _books_balance(state: ResidencyState, records: Iterable[Resident]) -> Iterable[Violation]:
    """T1: per GPU and per CPU, free and held are the capacity."""
    on_gpus: dict[tuple[str, int], int] = {}
    in_cpu: dict[str, int] = {}
    for record in records:
        for gpu, held in zip(record.gpus, record.gpu_bytes, strict=False):
            key = (str(record.node_id), gpu)
            on_gpus[key] = on_gpus.get(key, 0) + held
        if record.copy_node_id is not None:
            in_cpu[record.copy_node_id] = in_cpu.get(record.copy_node_id, 0) + record.cpu_bytes
    for node_id in sorted(state.nodes):
        node = state.nodes[node_id]
        rows = [
            (
                f"GPU {number} of {node_id}",
                gpu.capacity_bytes,
                gpu.free_bytes,
                gpu.excess_bytes,
                on_gpus.get((node_id, number), 0),
            )
            for number, gpu in enumerate(node.gpus)
        ]
        cpu = (node.cpu_capacity_bytes, node.cpu_free_bytes, node.cpu_excess_bytes)
        for where, capacity, free, excess, held in [*rows, (f"the CPU of {node_id}", *cpu, in_cpu.get(node_id, 0))]:
            if not 0 <= free <= capacity or free + held != capacity:
                yield Violation("T1", f"{where}: {free} free and {held} held of {capacity}")
            if excess < 0 or (excess and free):
                yield Violation("T1", f"{where}: {free} free where {excess} is held in excess")
    for node_id in sorted({key[0] for key in on_gpus} | in_cpu.keys()):
        if node_id not in state.nodes:
            yield Violation("T1", f"bytes are held on {node_id}, which nobody knows")


def _record_is_whole(state: ResidencyState, record: Resident) -> Iterable[Violation]:
    """T2, T8, T10: level, phase, place and copy of a record agree."""
    phase, copied = record.phase, record.copy_node_id is not None
    hot = record.level is Level.HOT
    complaints = {
        "has a place": bool(record.gpus) is not (phase in PLACED),
        "has as many sizes as GPUs": not len(record.gpus) == len(record.gpu_bytes) == len(record.need_bytes),
        "has GPUs in order": list(record.gpus) != sorted(set(record.gpus)),
        "holds what it needs": phase in (Phase.LOADING, Phase.SERVING) and record.gpu_bytes != record.need_bytes,
        "is HOT": (hot and phase not in (Phase.SERVING, Phase.LEAVING)) or (phase is Phase.SERVING and not hot),
        "was made HOT": hot is (record.hot_since is None),
        "has a copy where it is WARM": not hot and copied is not (record.level is Level.WARM),
        "has no copy while it serves": phase is Phase.SERVING and copied,
        "has its copy at its place": copied
        and phase in (Phase.LOADING, Phase.LEAVING)
        and record.copy_node_id != record.node_id,
        "has a node": (record.node_id is None) is (bool(record.gpus) or copied),
        "drops a copy": (phase is Phase.DROPPING or record.dropping) and not (record.dropping and copied),
        "has CPU bytes with its copy": bool(record.cpu_bytes) and not copied,
        "waits for something": phase is Phase.RESERVING and not record.waits_for and not record.dropping,
        "waits for nothing": bool(record.waits_for) and phase not in (Phase.RESERVING, Phase.LEAVING),
        "says why it waits": phase is Phase.WAITING and not record.because,
        "belongs to a model": record.model not in state.models or not record.replica_id.startswith(f"{record.model}#"),
    }
    for complaint, broken in complaints.items():
        if broken:
            yield Violation("T2", f"not true of {record.replica_id}, {record.level} and {phase.value}: it {complaint}")
    if phase is not Phase.LEAVING and any(used > held for used, held in zip(record.used_bytes, record.gpu_bytes, strict=False)):
        yield Violation("T8", f"{record.replica_id} holds {record.gpu_bytes} and uses {record.used_bytes}")


def _waits_for_somebody(state: ResidencyState, record: Resident) -> Iterable[Violation]:
    """T9: who is waited for is on its way out, and knows for whom."""
    for other_id in record.waits_for:
        other = state.replicas.get(other_id)
        if other is None:
            makes_room = False
        elif state.head is not None and state.head.replica_id == record.replica_id:
            makes_room = other.node_id == record.node_id and not set(other.gpus).isdisjoint(record.gpus)
        elif record.phase is Phase.RESERVING:
            makes_room = other.phase is Phase.LEAVING and other.makes_room_for == record.replica_id
        else:
            # What one copy gives up may be enough for several.
            makes_room = other.dropping and other.makes_room_for is not None and other.copy_node_id == record.copy_node_id
        if not makes_room:
            yield Violation("T9", f"{record.replica_id} waits for {other_id}, which does not make room for it")


def _nobody_waits_beside_room(state: ResidencyState, records: Iterable[Resident]) -> Iterable[Violation]:
    """T7: a replica that waits fits into no free room."""
    for record in records:
        if record.phase is not Phase.WAITING:
            continue
        for node_id in sorted(state.nodes):
            if fits_on(state, record, node_id):
                yield Violation("T7", f"{record.replica_id} waits, and fits on {node_id}")


def fits_on(state: ResidencyState, record: Resident, node_id: NodeId) -> bool:
    """Whether a replica that has no place on GPUs would fit into free room of a node."""
    spec, node = state.models[record.model], state.nodes[node_id]
    total_bytes = max(spec.total_bytes, record.size_bytes)
    degree = degree_on(node, spec, total_bytes)
    if degree is None or node_id in spec.avoids or not spec.node_labels.items() <= node.labels.items():
        return False
    if spec.spread and any(
        other.model == record.model and other.gpus and other.node_id == node_id for other in state.replicas.values()
    ):
        return False
    return tightest(node, degree, share(spec, total_bytes, degree)) is not None
