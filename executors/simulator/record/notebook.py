"""What the core decided along a run, as much of it as a page can show: a journal in small."""

from collections import deque

import attrs

from executors.engine.deployments import Beginning
from executors.engine.journal import Journal
from executors.simulator.clock import EventLoop
from rankcore import Step
from rankcore.events import Event
from rankcore.notes import Note, NoteKind

EVENTFUL_MAX = 2000
ROUTINE_MAX = 600
"""So many decisions are kept, the first half and the last half; the journal has them all."""

EVENTFUL = frozenset(
    {
        NoteKind.SPEC_APPLIED,
        NoteKind.WORLD_SIZE_CHANGED,
        NoteKind.STATUS_CHANGED,
        NoteKind.DEPLOY_FAILED,
        NoteKind.ROLLED_BACK,
        NoteKind.RECOVERY_STARTED,
        NoteKind.RECOVERY_COMPLETE,
        NoteKind.RANK_KEPT,
        NoteKind.RANK_MOVED,
        NoteKind.SLOT_CHANGED,
        NoteKind.SLOT_GIVEN_UP,
        NoteKind.WAITING,
        NoteKind.REPLICA_LOST,
        NoteKind.STOP_CHOSEN,
        NoteKind.KILL_CHOSEN,
        NoteKind.START_FAILED,
        NoteKind.BACKED_OFF,
        NoteKind.DUPLICATE_FOUND,
        NoteKind.NODE_LOST,
        NoteKind.BUNDLE_LOST,
        NoteKind.BUNDLE_RESTORED,
        NoteKind.REPLICA_FAILED,
        NoteKind.REPLICA_UNREADY,
        NoteKind.REPLICA_READY_AGAIN,
        NoteKind.FAILURE_OVER,
        NoteKind.STALE_EPOCH,
    }
)
"""What a person who asks why will look for."""

ROUTINE = frozenset(
    {
        NoteKind.RANK_CHOSEN,
        NoteKind.RANK_GIVEN,
        NoteKind.RANK_INHERITED,
        NoteKind.RANK_RELEASED,
        NoteKind.MOVE_ACKNOWLEDGED,
        NoteKind.REPLICA_RUNNING,
        NoteKind.REPORT_ADOPTED,
    }
)
"""What follows from it. The rest (repeats, late news, room on nodes) is in the journal only."""


@attrs.frozen
class Decision:
    """A note of the core, and when it was made.

    Attributes:
        at: Virtual seconds.
    """

    at: float
    deployment: str
    note: Note

    def __deepcopy__(self, _: object) -> "Decision":
        """Itself: it never changes, so that a fork of a run shares it."""
        return self


@attrs.frozen
class Decisions:
    """What a notebook holds at the end, by time, and how many it left out."""

    kept: tuple[Decision, ...]
    left_out: int


class _Ends:
    """The first and the last of many."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self._half = most // 2
        self._first: list[tuple[int, Decision]] = []
        self._last: deque[tuple[int, Decision]] = deque(maxlen=most - self._half)

    def add(self, number: int, decision: Decision) -> None:
        self.count += 1
        if len(self._first) < self._half:
            self._first.append((number, decision))
        else:
            self._last.append((number, decision))

    @property
    def kept(self) -> list[tuple[int, Decision]]:
        return [*self._first, *self._last]


class Notebook:
    """Keeps a bounded choice of the notes, in the journal's own words, and hands everything on to the journal.

    Attributes:
        journal: May be exchanged between two steps; None: there is none.
    """

    def __init__(self, loop: EventLoop, journal: Journal | None = None) -> None:
        self._loop = loop
        self.journal = journal
        self._number = 0
        self._eventful = _Ends(EVENTFUL_MAX)
        self._routine = _Ends(ROUTINE_MAX)

    def begin(self, how: Beginning, first: Step) -> None:
        """A deployment began."""
        if self.journal is not None:
            self.journal.begin(how, first)
        self._keep(first)

    def append(self, event: Event, result: Step) -> None:
        """Something happened; the journal first, so that what it refuses is not kept."""
        if self.journal is not None:
            self.journal.append(event, result)
        if result.notes:
            self._keep(result)

    @property
    def decisions(self) -> Decisions:
        """So far."""
        kept = sorted(self._eventful.kept + self._routine.kept, key=lambda numbered: numbered[0])
        total = self._eventful.count + self._routine.count
        return Decisions(tuple(decision for _, decision in kept), total - len(kept))

    def _keep(self, result: Step) -> None:
        for note in result.notes:
            kind = note.kind
            ends = self._eventful if kind in EVENTFUL else self._routine if kind in ROUTINE else None
            if ends is not None:
                self._number += 1
                ends.add(self._number, Decision(self._loop.now, result.state.spec.name, note))
