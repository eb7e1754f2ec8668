"""How a replica leaves the GPUs, and what becomes of it: WARM where CPU memory allows, else COLD (T6, T9).

A copy needs room before it can be made. Where the free bytes do not suffice copies at rest are dropped for it, and it waits for
those. They rarely come out even, so three rules keep bytes from lying idle beside a replica that becomes COLD:

- What waits takes from the free bytes only what is not on its way to it: the next one that leaves finds the others free.
- What drops bring beyond the need that they were begun for is room for the next one that leaves, which then waits for all that
  is being dropped. So of two that wait, one waits for all that the other one waits for, or for nothing of it.
- Of those that wait for a copy that is gone, the one that waits for the fewest takes first. By the second rule the bytes that
  come are enough for all that wait for no more than these: each has its need when the last one has come.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from rankcore.frozen import PMap
from rankcore.residency.commands import DropFromCpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.copies import Copy, cheapest_to_drop, saving_of
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.state import Resident
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
        returns: Another one is to be wanted HOT in its place: so `Ledger.departed` says.
        makes_room_for: Who takes over what it gives up.
    """
    node_id = record.node_id
    assert node_id is not None
    room: CpuRoom | None = None
    spec = ledger.spec_of(record)
    keep = keep if spec.keeps_copy else Level.COLD
    if record.phase is Phase.SERVING and keep is Level.WARM:
        room = dropped_for(ledger, record, spec.weight_bytes)
    if record.phase is Phase.LOADING and makes_room_for is not None:
        record = _broken_off(ledger, record, makes_room_for)
    ledger.departed.append((record.replica_id, returns))
    record = ledger.change(
        record,
        phase=Phase.LEAVING,
        forgets=keep is Level.COLD,
        makes_room_for=makes_room_for,
        because=because,
    )
    if room is None:
        return _unload(ledger, record)
    for other in room.drops:
        drop(ledger, other, because=f"dropped for {record.replica_id}", makes_room_for=record.replica_id)
    record = ledger.change(
        record,
        copy_node_id=node_id,
        cpu_bytes=room.own_bytes,
        cpu_need_bytes=spec.weight_bytes,
        waits_for=room.awaited,
    )
    return record if room.awaited else _offload(ledger, record)


def _broken_off(ledger: Ledger, record: Resident, newcomer_id: ReplicaId) -> Resident:
    """A load ends for a newcomer, and so does what was promised. What ended too long ago to count is forgotten (T16)."""
    recent = {each: at for each, at in ledger.broken_off.items() if ledger.clock - at < ledger.policy.reuse_horizon_s}
    ledger.broken_off = PMap(recent | {record.model: ledger.clock})
    if record.due_at is not None:
        ledger.note(ResidencyNoteKind.SLIPPED, "T13", record, f"its load is broken off for {newcomer_id}")
    return ledger.change(record, due_at=None)


class CpuRoom(NamedTuple):
    """Where the bytes for a copy come from.

    Attributes:
        drops: Copies that are dropped for it.
        awaited: All whose bytes it waits for, ids ascending.
        own_bytes: What it takes at once.
    """

    drops: tuple[Resident, ...]
    awaited: tuple[ReplicaId, ...]
    own_bytes: int


def dropped_for(ledger: Ledger, record: Resident, wanted_bytes: int) -> CpuRoom | None:
    """Whose copies are dropped so that that of another replica fits into CPU memory (T6, T17).

    Returns:
        None: not even dropping all of them would suffice, or they save more than it does.
    """
    assert record.node_id is not None
    node = ledger.nodes[record.node_id]
    missing = wanted_bytes + node.cpu_excess_bytes - node.cpu_free_bytes
    if missing <= 0:
        return CpuRoom((), (), wanted_bytes)
    awaited, spare = _on_their_way(ledger, node.node_id)
    missing -= spare
    chosen = _chosen(ledger, record, wanted_bytes, missing) if missing > 0 else ()
    if chosen is None:
        return None
    missing -= sum([copy.cpu_bytes for copy in chosen])
    # What comes beyond the need leaves so much of the free bytes to others.
    own_bytes = max(0, node.cpu_free_bytes + missing)
    ids = {each.replica_id for each in chosen} | (awaited if spare else set())
    return CpuRoom(chosen, tuple(sorted(ids)), own_bytes)


def _chosen(ledger: Ledger, record: Resident, wanted_bytes: int, missing: int) -> tuple[Resident, ...] | None:
    """The copies at rest that give up so many bytes at least; None: they do not, or are not to."""
    assert record.node_id is not None
    copies = _cached(ledger, record.node_id)
    if ledger.policy.warm_eviction == "saving":
        saving = saving_of(ledger.policy, wanted_bytes, ledger.clock - record.last_used)
        found = cheapest_to_drop([_copy(ledger, each) for each in copies], missing, saving)
        return None if found is None else tuple(ledger.replicas[each.replica_id] for each in found)
    if sum([each.cpu_bytes for each in copies]) < missing:
        return None
    before = accumulate([each.cpu_bytes for each in copies], initial=0)
    return tuple(copy for copy, freed in zip(copies, before, strict=False) if freed < missing)


def in_turn(ledger: Ledger, replica_ids: Iterable[ReplicaId]) -> list[ReplicaId]:
    """Of those that leave at once whose copies may not all fit into CPU memory: who comes first."""
    return sorted(replica_ids, key=lambda each: (-_worth(ledger, ledger.replicas[each]), each))


def _worth(ledger: Ledger, record: Resident) -> float:
    size = ledger.spec_of(record).weight_bytes  # of two, the one stays that takes longer to load again
    saves = ledger.policy.warm_eviction == "saving"
    return saving_of(ledger.policy, size, ledger.clock - record.last_used) if saves else size


def _copy(ledger: Ledger, record: Resident) -> Copy:
    return Copy(
        record.replica_id, record.cpu_bytes, saving_of(ledger.policy, record.cpu_bytes, ledger.clock - record.last_used)
    )


def _on_their_way(ledger: Ledger, node_id: NodeId) -> tuple[set[ReplicaId], int]:
    """The copies that replicas on a node wait for, and what these will bring beyond what they lack."""
    leaving = [each for each in ledger.on_gpus(node_id) if each.phase is Phase.LEAVING and each.waits_for]
    awaited = {replica_id for each in leaving for replica_id in each.waits_for}
    coming = sum([ledger.replicas[replica_id].cpu_bytes for replica_id in awaited])
    return awaited, max(0, coming - sum([each.cpu_need_bytes - each.cpu_bytes for each in leaving]))


def hand_over(ledger: Ledger, node_id: NodeId, giver_id: ReplicaId) -> None:
    """A copy is gone from a node: those that wait for it take what they lack, who waits for the fewest first."""
    takers = [each for each in ledger.on_gpus(node_id) if each.phase is Phase.LEAVING and giver_id in each.waits_for]
    for taker in sorted(takers, key=lambda each: (len(each.waits_for), each.replica_id)):
        left = tuple(each for each in taker.waits_for if each != giver_id)
        take_cpu(ledger, ledger.change(taker, waits_for=left))


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
    """The budget is exceeded: copies are dropped until it will not be, the smallest, or those that save least per byte."""
    node = ledger.nodes[node_id]
    going = sum([each.cpu_bytes for each in ledger.with_copies(node_id) if each.dropping])
    excess = node.cpu_excess_bytes - going
    copies = _cached(ledger, node_id)
    if ledger.policy.warm_eviction == "saving":
        copies.sort(key=lambda each: (each.last_used, each.cpu_bytes, each.replica_id))
    for copy in copies:
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
