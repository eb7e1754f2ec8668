"""Dry runs: what a request would come to, without doing it."""

from msgspec import Struct

from rankcore.residency.commands import Command
from rankcore.residency.events import Event
from rankcore.residency.levels import Level
from rankcore.residency.notes import CantAccommodate, ResidencyNote
from rankcore.residency.state import ResidencyState
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
    raise NotImplementedError
