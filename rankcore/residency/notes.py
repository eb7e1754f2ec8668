"""Why: one short record per decision of a planner of residency."""

from enum import StrEnum

from msgspec import Struct

from rankcore import kernel
from rankcore.values import NodeId, ReplicaId


class ResidencyNoteKind(StrEnum):
    """What a note is about."""

    # replicas
    PLACED = "placed"
    PROMOTED = "promoted"
    DISPLACED = "displaced"
    BECAME_WARM = "became warm"
    BECAME_COLD = "became cold"
    CANT_ACCOMMODATE = "can't accommodate"
    RETRIED = "retried"
    SCALED = "scaled"
    EVICTED = "evicted"
    RESERVED = "reserved"
    SLIPPED = "slipped"
    LOAD_FAILED = "load failed"
    REPLICA_LOST = "replica lost"
    IDLE = "idle"
    # nodes
    NODE_JOINED = "node joined"
    NODE_LOST = "node lost"
    MEASURED = "measured"
    # news that changes nothing
    LATE = "late"


class NodeReason(Struct, frozen=True, gc=False):
    """Why a replica does not fit on one node."""

    node_id: NodeId
    because: str


class ReasonCount(Struct, frozen=True, gc=False):
    """Why it does not fit on so many further nodes."""

    because: str
    nodes: int


class CantAccommodate(Struct, frozen=True, gc=False):
    """Why a replica fits nowhere (T7).

    Attributes:
        reasons: Of the nodes that come closest, 20 at most.
        others: The other nodes, counted by reason.
    """

    model: str
    replica_id: ReplicaId
    reasons: tuple[NodeReason, ...] = ()
    others: tuple[ReasonCount, ...] = ()


class ResidencyNote(kernel.Note, frozen=True, gc=False):
    """One decision.

    Attributes:
        kind: What was decided.
        rule: The promise (T1..T13) that it follows.
        model: Which model it concerns; None: none in particular.
        replica_id: Which replica; None: none in particular.
        node_id: Which node; None: none in particular.
        bytes: How many bytes it is about: what was placed, or the cost of what was displaced.
        cant: With CANT_ACCOMMODATE: the reasons, node by node.
    """

    kind: ResidencyNoteKind
    rule: str
    model: str | None = None
    replica_id: ReplicaId | None = None
    node_id: NodeId | None = None
    bytes: int = 0
    cant: CantAccommodate | None = None
