"""What the planner decided, as it said it itself, in bounded memory; and what follows from it for the figures."""

import attrs

from executors.simulator.residency.record import ModelTally
from rankcore.residency import ResidencyNote
from rankcore.residency.notes import ResidencyNoteKind as Kind

EVENTFUL_MAX = 3000
ROUTINE_MAX = 2000
EVENTFUL = frozenset(
    {Kind.DISPLACED, Kind.CANT_ACCOMMODATE, Kind.EVICTED, Kind.IDLE, Kind.LOAD_FAILED, Kind.GAVE_UP, Kind.MEASURED}
    | {Kind.NODE_LOST, Kind.REPLICA_LOST, Kind.SCALED}
)
"""What is worth a line of its own; the rest follows from it, or from a request."""


@attrs.frozen
class Noted:
    """A note, and when it was made."""

    at: float
    note: ResidencyNote


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

    def write(self, now: float, note: ResidencyNote) -> None:
        """One more."""
        eventful = note.kind in EVENTFUL
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
