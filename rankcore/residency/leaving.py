"""How a replica leaves the GPUs, and what becomes of it: WARM where CPU memory allows, else COLD (T6, T9)."""

from rankcore.residency.commands import DropFromCpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Level, Phase
from rankcore.residency.state import ResidencyNode, Resident
from rankcore.values import NodeId, ReplicaId


def leave(
    ledger: Ledger,
    record: Resident,
    because: str,
    *,
    keep: Level = Level.WARM,
    returns: bool = False,
    makes_room_for: ReplicaId | None = None,
) -> Resident:
    """A replica that is SERVING or LOADING leaves the GPUs.

    Args:
        ledger: The books.
        record: Who.
        because: Why, in words.
        keep: COLD: no copy of it is to stay.
        returns: It is wanted HOT again, elsewhere or later.
        makes_room_for: Who takes over what it gives up.
    """
    node_id = record.node_id
    assert node_id is not None
    drops: tuple[Resident, ...] | None = None
    spec = ledger.spec_of(record)
    if record.phase is Phase.SERVING and keep is Level.WARM:
        drops = dropped_for(ledger, ledger.nodes[node_id], spec.weight_bytes)
    record = ledger.change(
        record,
        phase=Phase.LEAVING,
        returns=returns,
        forgets=keep is Level.COLD,
        makes_room_for=makes_room_for,
        because=because,
    )
    if drops is None:
        return _unload(ledger, record)
    for other in drops:
        drop(ledger, other, because=f"dropped for {record.replica_id}", makes_room_for=record.replica_id)
    free = ledger.nodes[node_id].cpu_free_bytes
    record = ledger.change(
        record,
        copy_node_id=node_id,
        cpu_bytes=min(free, spec.weight_bytes),
        cpu_need_bytes=spec.weight_bytes,
        waits_for=tuple(sorted(other.replica_id for other in drops)),
    )
    return record if drops else _offload(ledger, record)


def dropped_for(ledger: Ledger, node: ResidencyNode, wanted_bytes: int) -> tuple[Resident, ...] | None:
    """Whose copies are dropped so that another one fits into CPU memory: the smallest first (T6).

    Returns:
        None: not even dropping all of them would suffice.
    """
    missing = wanted_bytes + node.cpu_excess_bytes - node.cpu_free_bytes
    if missing <= 0:
        return ()
    chosen = []
    for copy in _cached(ledger, node.node_id):
        chosen.append(copy)
        missing -= copy.cpu_bytes
        if missing <= 0:
            return tuple(chosen)
    return None


def drop(ledger: Ledger, record: Resident, *, because: str = "", makes_room_for: ReplicaId | None = None) -> Resident:
    """The copy of a replica goes from CPU memory."""
    move = ledger.next_move()
    fields: dict[str, object] = {"dropping": True, "move": move}
    if record.phase is Phase.RESTING:
        fields["phase"] = Phase.DROPPING
        fields["makes_room_for"] = makes_room_for
        fields["because"] = because
    record = ledger.change(record, **fields)
    assert record.copy_node_id is not None
    ledger.commands.append(DropFromCpu(replica_id=record.replica_id, node_id=record.copy_node_id, move=move))
    return record


def take_cpu(ledger: Ledger, record: Resident) -> None:
    """A replica that is LEAVING takes over what copies gave up, and is copied once it has room for all."""
    assert record.node_id is not None
    more = min(record.cpu_need_bytes - record.cpu_bytes, ledger.nodes[record.node_id].cpu_free_bytes)
    if more:
        record = ledger.change(record, cpu_bytes=record.cpu_bytes + more)
    if record.waits_for:
        return
    if record.cpu_bytes == record.cpu_need_bytes:
        _offload(ledger, record)
        return
    # The budget was lowered meanwhile.
    _unload(ledger, ledger.change(record, copy_node_id=None, cpu_bytes=0, cpu_need_bytes=0))


def shed_copies(ledger: Ledger, node_id: NodeId) -> None:
    """The budget is exceeded: the smallest copies are dropped until it will not be."""
    node = ledger.nodes[node_id]
    going = sum([each.cpu_bytes for each in ledger.with_copies(node_id) if each.dropping])
    excess = node.cpu_excess_bytes - going
    for copy in _cached(ledger, node_id):
        if excess <= 0:
            return
        excess -= copy.cpu_bytes
        drop(ledger, copy, because="the budget of CPU memory was lowered")


def _cached(ledger: Ledger, node_id: NodeId) -> list[Resident]:
    copies = [each for each in ledger.with_copies(node_id) if each.phase is Phase.RESTING]
    return sorted(copies, key=lambda each: (each.cpu_bytes, each.replica_id))


def _offload(ledger: Ledger, record: Resident) -> Resident:
    move = ledger.next_move()
    record = ledger.change(record, move=move)
    assert record.node_id is not None
    ledger.commands.append(
        OffloadToCpu(
            replica_id=record.replica_id,
            node_id=record.node_id,
            cpu_bytes=record.cpu_bytes,
            timeout_s=ledger.policy.drain_timeout_s,
            move=move,
        )
    )
    return record


def _unload(ledger: Ledger, record: Resident) -> Resident:
    move = ledger.next_move()
    record = ledger.change(record, move=move)
    assert record.node_id is not None
    ledger.commands.append(
        UnloadFromGpu(
            replica_id=record.replica_id,
            node_id=record.node_id,
            timeout_s=ledger.policy.drain_timeout_s,
            move=move,
            keep_copy=record.copy_node_id == record.node_id,
        )
    )
    return record
