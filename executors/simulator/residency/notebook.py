"""What the planner decided, as it said it itself, in bounded memory; and what follows from it for the figures."""

import attrs

from executors.simulator.residency.record import ModelTally
from rankcore.dispatching import FleetNote, FleetNoteKind
from rankcore.dispatching.state import Note
from rankcore.residency import ResidencyNote
from rankcore.residency.notes import ResidencyNoteKind as Kind

EVENTFUL_MAX = 3000
ROUTINE_MAX = 2000
_PLANNED = frozenset(
    {Kind.DISPLACED, Kind.CANT_ACCOMMODATE, Kind.EVICTED, Kind.IDLE, Kind.LOAD_FAILED, Kind.GAVE_UP, Kind.MEASURED}
    | {Kind.NODE_LOST, Kind.REPLICA_LOST, Kind.SCALED}
)
_OF_FLEET = frozenset({FleetNoteKind.ASKED_FOR, FleetNoteKind.WITHDRAWN, FleetNoteKind.CUT_LOOSE})
PER_REQUEST = frozenset({FleetNoteKind.FAILED, FleetNoteKind.LATE})
"""What the counts of requests say already."""


def is_eventful(note: ResidencyNote | FleetNote) -> bool:
    """Whether it is worth a line of its own; the rest follows from such, or from a request."""
    return note.kind in (_PLANNED if isinstance(note, ResidencyNote) else _OF_FLEET)


@attrs.frozen
class Noted:
    """A note, and when it was made."""

    at: float
    note: ResidencyNote | FleetNote

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

    def write(self, now: float, note: Note) -> None:
        """One more; what routers and autoscalers say of single requests and reports is left out."""
        if not isinstance(note, ResidencyNote | FleetNote) or note.kind in PER_REQUEST:
            return
        eventful = is_eventful(note)
        if not self._room[eventful]:
            self.left_out += 1
            return
        self._room[eventful] -= 1
        self.kept.append(Noted(now, note))

    def count(self, note: ResidencyNote, tally: ModelTally) -> None:
        """What it means for the figures of its model."""
        match note.kind:
            case Kind.DISPLACED:
                tally.displaced += 1
            case Kind.EVICTED | Kind.IDLE:
                tally.evicted += 1
            case Kind.CANT_ACCOMMODATE:
                tally.cant_accommodate += 1
            case _:
                pass
