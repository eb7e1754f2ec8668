"""Why: one short record per decision of a router (Q10)."""

from enum import StrEnum

from rankcore import kernel
from rankcore.routing.events import RequestId
from rankcore.values import ReplicaId


class RoutingNoteKind(StrEnum):
    """What a note is about."""

    # requests
    CHOSEN = "chosen"
    QUEUED = "queued"
    ASKED = "asked"
    QUEUED_AGAIN = "queued again"
    ANSWERED = "answered"
    REJECTED = "rejected"
    DECLINED = "declined"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    # replicas
    ROUTED = "routed"
    UNROUTED = "unrouted"
    REPLICA_LOST = "replica lost"
    PUT_ASIDE = "put aside"
    KEYS_HELD = "keys held"
    CREDITS_CHANGED = "credits changed"
    # the router
    SPEC_APPLIED = "spec applied"
    OPENED = "opened"
    UNAVAILABLE = "unavailable"
    AVAILABLE = "available"
    CLOSED = "closed"
    # news that changes nothing
    LATE = "late"


class RoutingNote(kernel.Note, frozen=True, gc=False):
    """One decision.

    Attributes:
        kind: What was decided.
        rule: The promise (Q1..Q11, C1..C4) that it follows.
        request_id: Which request it concerns; None: none in particular.
        replica_id: Which replica; None: none in particular.
    """

    kind: RoutingNoteKind
    rule: str
    request_id: RequestId | None = None
    replica_id: ReplicaId | None = None
