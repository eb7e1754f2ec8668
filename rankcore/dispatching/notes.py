"""Why: one short record per decision that a fleet itself makes; its routers and its planner leave theirs beside it."""

from enum import StrEnum

from rankcore import kernel
from rankcore.routing import RequestId
from rankcore.values import ReplicaId


class FleetNoteKind(StrEnum):
    """What a note is about."""

    ASKED_FOR = "asked for"
    """A replica of a model was asked for, since requests wait for it."""
    WITHDRAWN = "withdrawn"
    """It is not asked for any more: nobody waits for it, and it had no place yet."""
    FAILED = "failed"
    """A request cannot be served: its model is unknown, has no room, or cannot be loaded."""
    CUT_LOOSE = "cut loose"
    """A replica is gone while it had requests in flight: they are lost."""
    MEASURED = "measured"
    """How fast a load was."""
    LATE = "late"
    """News that changes nothing."""


class FleetNote(kernel.Note, frozen=True, gc=False):
    """One decision.

    Attributes:
        kind: What was decided.
        rule: The promise (D1..D10) that it follows.
        model: Which model it concerns; None: none in particular.
        request_id: Which request; None: none in particular.
        replica_id: Which replica; None: none in particular.
    """

    kind: FleetNoteKind
    rule: str
    model: str | None = None
    request_id: RequestId | None = None
    replica_id: ReplicaId | None = None
