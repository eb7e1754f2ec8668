"""What the controller decided, as it said it itself, in bounded memory; and what follows from it for the figures."""

import attrs

from executors.simulator.residency.record import DeploymentTally
from rankcore.autoscaling.notes import AutoscalingNote
from rankcore.cluster.notes import ClusterNote, ClusterNoteKind
from rankcore.notes import RankNote
from rankcore.residency import ResidencyNote
from rankcore.residency.notes import ResidencyNoteKind as Kind

EVENTFUL_MAX = 3000
ROUTINE_MAX = 2000
EVENTFUL = frozenset(
    {Kind.DISPLACED, Kind.CANT_ACCOMMODATE, Kind.EVICTED, Kind.IDLE, Kind.LOAD_FAILED, Kind.MEASURED}
    | {Kind.NODE_LOST, Kind.REPLICA_LOST, Kind.SCALED}
    | {
        ClusterNoteKind.TARGET_WRITTEN,
        ClusterNoteKind.WITHDRAWN,
        ClusterNoteKind.CANT_EVER,
        ClusterNoteKind.WORKER_KILLED,
        ClusterNoteKind.FROZEN,
    }
    | {ClusterNoteKind.TRIED_AGAIN}
)
"""Worth a line of its own; the rest follows from such."""
LEFT_OUT = frozenset(
    {ClusterNoteKind.LATE, ClusterNoteKind.RECORD_NUMBERED, ClusterNoteKind.RECORD_REPEATED, ClusterNoteKind.COMMANDS_HELD}
    | {ClusterNoteKind.COMMANDS_RELEASED, ClusterNoteKind.UNCHANGED, ClusterNoteKind.AUTOSCALER}
)
"""Said of each report, or of each save."""


@attrs.frozen
class Noted:
    """A decision of the cluster or of one of its parts, when it was made, and whom it is about."""

    at: float
    deployment: str | None
    note: ClusterNote | ResidencyNote | RankNote | AutoscalingNote

    @property
    def is_eventful(self) -> bool:
        """Whether it is worth a line of its own."""
        return self.note.kind in EVENTFUL

    def __deepcopy__(self, _: object) -> "Noted":
        """Itself: it never changes, so that a fork of a run shares it."""
        return self


class Notebook:
    """Keeps the first notes of each sort.

    Attributes:
        kept: By time.
        left_out: How many there was no room for.
    """

    def __init__(self) -> None:
        self.kept: list[Noted] = []
        self.left_out = 0
        self._room = {True: EVENTFUL_MAX, False: ROUTINE_MAX}

    def write(self, now: float, note: ClusterNote, shown: str | None) -> None:
        """One more; `shown`: what the report calls its deployment."""
        if note.kind in LEFT_OUT:
            return
        noted = Noted(now, shown, note.of if note.of is not None else note)
        if not self._room[noted.is_eventful]:
            self.left_out += 1
            return
        self._room[noted.is_eventful] -= 1
        self.kept.append(noted)

    def count(self, note: ClusterNote, tally: DeploymentTally) -> None:
        """What it means for the figures of its deployment."""
        of = note.of
        if not isinstance(of, ResidencyNote):
            return
        match of.kind:
            case Kind.DISPLACED:
                tally.displaced += 1
            case Kind.EVICTED | Kind.IDLE if of.node_id is not None:  # else it had no place yet
                tally.evicted += 1
            case Kind.CANT_ACCOMMODATE:
                tally.cant_accommodate += 1
            case _:
                pass
