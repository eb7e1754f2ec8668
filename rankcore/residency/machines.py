"""What news of nodes comes to: they join, change, are lost, and turn out to hold less than they said."""

from collections.abc import Sequence

from msgspec.structs import replace

from rankcore.residency.cover import Cover, Victim, cheapest_cover
from rankcore.residency.displacement import cost_of
from rankcore.residency.events import MemoryMeasured, NodeJoined, NodeLost
from rankcore.residency.leaving import hand_over, leave, shed_copies
from rankcore.residency.ledger import Ledger
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import ResidencyNoteKind
from rankcore.residency.placing import give_up_place, go_on, off_gpus, place
from rankcore.residency.state import Gpu, ResidencyNode, Resident
from rankcore.values import NodeId, ReplicaId


def on_node_joined(ledger: Ledger, event: NodeJoined) -> None:
    """A node is there, or is told again with other capacities or labels."""
    node = ledger.nodes.get(event.node_id)
    if node is not None and len(node.gpus) == len(event.gpu_bytes):
        _change(ledger, node, event)
    else:
        because = "its node came back with other GPUs"
        displaced = _empty(ledger, node.node_id, because) if node is not None else ()
        gpus = tuple(Gpu(size, size) for size in event.gpu_bytes)
        ledger.set_node(
            ResidencyNode(
                node_id=event.node_id,
                gpus=gpus,
                cpu_capacity_bytes=event.cpu_bytes,
                cpu_free_bytes=event.cpu_bytes,
                labels=event.labels,
                joined_at=event.at,
            )
        )
        size = sum(event.gpu_bytes)
        ledger.note(ResidencyNoteKind.NODE_JOINED, "T7", None, f"{len(gpus)} GPUs", node_id=event.node_id, size=size)
        _plan_again(ledger, displaced)
    ledger.roomier[event.node_id] = None


def on_node_lost(ledger: Ledger, event: NodeLost) -> None:
    """What was there is gone; who had only a place there is planned anew. Of a node that is back: what it had before."""
    node = ledger.nodes.get(event.node_id)
    if node is None:
        ledger.note(ResidencyNoteKind.LATE, "T2", None, "nobody knows this node", node_id=event.node_id)
        return
    ledger.note(ResidencyNoteKind.NODE_LOST, "T2", None, "with all that was there", node_id=event.node_id)
    if event.at < node.joined_at:
        displaced = _empty(ledger, event.node_id, "its node was lost", until=event.at)
    else:
        displaced = _empty(ledger, event.node_id, "its node was lost")
        ledger.delete_node(event.node_id)
    _plan_again(ledger, displaced)


def on_memory_measured(ledger: Ledger, event: MemoryMeasured) -> None:
    """The GPUs of a node hold more or less than it said. What no longer fits leaves."""
    node = ledger.nodes.get(event.node_id)
    if node is None or len(node.gpus) != len(event.gpu_bytes):
        found = "nobody knows this node" if node is None else f"it has {len(node.gpus)} GPUs"
        ledger.note(ResidencyNoteKind.LATE, "T1", None, found, node_id=event.node_id)
        return
    changed = replace(node, gpus=_resized(node, event.gpu_bytes))
    if changed == node:
        return
    size = sum(event.gpu_bytes)
    ledger.note(ResidencyNoteKind.MEASURED, "T1", None, "its GPUs hold so much in all", node_id=event.node_id, size=size)
    ledger.set_node(changed)
    ledger.roomier[event.node_id] = None
    shed(ledger, event.node_id)


def shed(ledger: Ledger, node_id: NodeId) -> None:
    """More is held on GPUs than they can hold: reservations end, and the cheapest replicas leave until the rest fits."""
    node = ledger.nodes[node_id]
    if not any(gpu.excess_bytes for gpu in node.gpus):
        return
    here = ledger.on_gpus(node_id)
    homeless = [
        give_up_place(ledger, record, "its node holds less than it said")
        for record in here
        if record.phase is Phase.RESERVING and any(node.gpus[gpu].excess_bytes for gpu in record.gpus)
    ]
    lacks = {number: gpu.excess_bytes for number, gpu in enumerate(ledger.nodes[node_id].gpus) if gpu.excess_bytes}
    for record in here:
        if record.phase is Phase.LEAVING:
            for gpu, held in zip(record.gpus, record.gpu_bytes, strict=True):
                if gpu in lacks:
                    lacks[gpu] -= held
    for replica_id in _who_must_go(ledger, here, {gpu: lack for gpu, lack in lacks.items() if lack > 0}):
        leave(ledger, ledger.replicas[replica_id], "its node holds less than it said", returns=True)
    for record in homeless:
        place(ledger, record)


def _who_must_go(ledger: Ledger, here: Sequence[Resident], lacks: dict[int, int]) -> Sequence[str]:
    if not lacks:
        return ()
    running = [record for record in here if record.phase in (Phase.SERVING, Phase.LOADING)]
    others = [record for record in running if not ledger.spec_of(record).dedicated]
    cover = _cheapest(ledger, others, lacks) or _cheapest(ledger, running, lacks)
    assert cover is not None, "more is held than there is, and nobody holds it"
    return cover.victims


def _cheapest(ledger: Ledger, records: Sequence[Resident], lacks: dict[int, int]) -> Cover | None:
    victims = [
        Victim(
            record.replica_id,
            cost_of(record, ledger.spec_of(record), ledger.policy, ledger.clock),
            dict(zip(record.gpus, record.gpu_bytes, strict=True)),
        )
        for record in records
    ]
    return cheapest_cover(victims, lacks, len(lacks))


def _change(ledger: Ledger, node: ResidencyNode, event: NodeJoined) -> None:
    held = node.cpu_capacity_bytes - node.cpu_free_bytes
    changed = replace(
        node,
        gpus=_resized(node, event.gpu_bytes),
        cpu_capacity_bytes=max(event.cpu_bytes, held),
        cpu_free_bytes=max(0, event.cpu_bytes - held),
        cpu_excess_bytes=max(0, held - event.cpu_bytes),
        labels=event.labels,
        joined_at=max(node.joined_at, event.at),
    )
    because = "as before" if changed == replace(node, joined_at=changed.joined_at) else "with other capacities or labels"
    ledger.note(ResidencyNoteKind.NODE_JOINED, "T1", None, because, node_id=node.node_id, size=sum(event.gpu_bytes))
    ledger.set_node(changed)
    shed(ledger, node.node_id)
    shed_copies(ledger, node.node_id)


def _resized(node: ResidencyNode, sizes: Sequence[int]) -> tuple[Gpu, ...]:
    gpus = []
    for gpu, size in zip(node.gpus, sizes, strict=True):
        held = gpu.capacity_bytes - gpu.free_bytes
        gpus.append(Gpu(max(size, held), max(0, size - held), max(0, held - size)))
    return tuple(gpus)


def _empty(ledger: Ledger, node_id: NodeId, because: str, until: float | None = None) -> list[ReplicaId]:
    """All that is on a node is gone, or all that was there unchanged since `until`; returns whom that concerns."""
    there = [*ledger.on_gpus(node_id), *ledger.with_copies(node_id)]
    found = {record.replica_id: record for record in there if until is None or record.since <= until}
    for record in found.values():
        ledger.note(ResidencyNoteKind.BECAME_COLD, "T2", record, because, node_id=node_id)
        if record.gpus and record.node_id == node_id:
            if _has_process(record, node_id):
                off_gpus(ledger, record, Phase.RESTING, because)
            else:
                give_up_place(ledger, record, because)
        else:
            lose_copy(ledger, record)
            hand_over(ledger, node_id, record.replica_id)
    return sorted(found, key=lambda each: (-ledger.spec_of(found[each]).priority, each))


def _has_process(record: Resident, node_id: NodeId) -> bool:
    """Whether anything of it runs on the node, and is no more than a place yet."""
    return record.phase is not Phase.RESERVING or record.copy_node_id == node_id


def _plan_again(ledger: Ledger, replica_ids: Sequence[ReplicaId]) -> None:
    for replica_id in replica_ids:
        record = ledger.replicas[replica_id]
        if record.phase is Phase.RESERVING:
            go_on(ledger, record)
        elif record.phase is Phase.WAITING:
            place(ledger, record)


def lose_copy(ledger: Ledger, record: Resident) -> Resident:
    """A record without its copy in CPU memory."""
    return ledger.change(
        record,
        phase=Phase.RESTING if record.phase is Phase.DROPPING else record.phase,
        level=Level.COLD,
        node_id=record.node_id if record.gpus else None,
        copy_node_id=None,
        cpu_bytes=0,
        dropping=False,
        makes_room_for=None,
    )
