"""Dry runs: what a request would come to, without doing it."""

from msgspec import Struct

from rankcore.residency.commands import Command, DropFromCpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import Event
from rankcore.residency.fit import Place
from rankcore.residency.ledger import Ledger, source_of
from rankcore.residency.levels import Level, Phase
from rankcore.residency.notes import CantAccommodate, ResidencyNote
from rankcore.residency.state import ResidencyState, Resident
from rankcore.residency.step import carried_out
from rankcore.values import NodeId, ReplicaId


class Placement(Struct, frozen=True, kw_only=True, gc=False):
    """A replica that would get a place.

    Attributes:
        source: From where its weights would be loaded.
        displaces: Who would leave for it.
        cost_bytes: What those weigh.
    """

    replica_id: ReplicaId
    model: str
    node_id: NodeId
    gpus: tuple[int, ...]
    gpu_bytes: tuple[int, ...]
    source: Level
    displaces: tuple[ReplicaId, ...] = ()
    cost_bytes: int = 0


class Departure(Struct, frozen=True, kw_only=True, gc=False):
    """A replica that would leave the GPUs.

    Attributes:
        becomes: WARM or COLD.
    """

    replica_id: ReplicaId
    model: str
    node_id: NodeId
    becomes: Level


class ResidencyPlan(Struct, frozen=True, kw_only=True, gc=False):
    """What an event would come to.

    Attributes:
        placed: Who would get a place, in this order.
        leaving: Who would leave the GPUs.
        dropped: Whose copy in CPU memory would be dropped.
        cant: What would fit nowhere, and why.
        commands: What the step would ask for.
        notes: What it would say.
    """

    placed: tuple[Placement, ...] = ()
    leaving: tuple[Departure, ...] = ()
    dropped: tuple[ReplicaId, ...] = ()
    cant: tuple[CantAccommodate, ...] = ()
    commands: tuple[Command, ...] = ()
    notes: tuple[ResidencyNote, ...] = ()


def plan_residency(state: ResidencyState, event: Event) -> ResidencyPlan:
    """What `residency_step` would do; nothing changes.

    Raises:
        InvalidEventError: As `residency_step`.
    """
    ledger = carried_out(state, event)
    leaving, dropped = [], []
    for command in ledger.commands:
        if isinstance(command, DropFromCpu):
            dropped.append(command.replica_id)
    for replica_id in sorted(_who_leaves(state, ledger)):
        record, before = ledger.replicas[replica_id], state.replicas[replica_id]
        assert before.node_id is not None
        becomes = Level.WARM if record.copy_node_id is not None and not record.forgets else Level.COLD
        leaving.append(Departure(replica_id=replica_id, model=record.model, node_id=before.node_id, becomes=becomes))
    return ResidencyPlan(
        placed=tuple(_placement(*each) for each in ledger.places),
        leaving=tuple(leaving),
        dropped=tuple(dropped),
        cant=tuple(note.cant for note in ledger.notes if note.cant is not None),
        commands=tuple(ledger.commands),
        notes=tuple(ledger.notes),
    )


def _who_leaves(state: ResidencyState, ledger: Ledger) -> set[ReplicaId]:
    """Those that this event makes leave; for a plan a look at all records would be too much, so notes and moves tell."""
    told = {note.replica_id for note in ledger.notes if note.replica_id is not None}
    told.update(command.replica_id for command in ledger.commands if isinstance(command, (OffloadToCpu, UnloadFromGpu)))
    return {
        replica_id
        for replica_id in told
        if replica_id in state.replicas
        and replica_id in ledger.replicas
        and state.replicas[replica_id].phase is not Phase.LEAVING
        and ledger.replicas[replica_id].phase is Phase.LEAVING
    }


def _placement(record: Resident, place: Place, displaces: tuple[ReplicaId, ...], cost_bytes: int) -> Placement:
    return Placement(
        replica_id=record.replica_id,
        model=record.model,
        node_id=place.node_id,
        gpus=place.gpus,
        gpu_bytes=record.need_bytes,
        source=source_of(record),
        displaces=displaces,
        cost_bytes=cost_bytes,
    )
