"""The newest notes, for who wants to see decisions as they are taken: kept beside the journal, or in place of one.

A note has a number, which counts from the beginning of a controller's epoch. Who follows says the number of the last one
that it has seen, and gets what came since; what is forgotten by then is counted.
"""

from collections import deque
from typing import Any

import attrs

from executors.engine.journal import Journal
from executors.engine.kinds import AnyStep
from rankcore.codec import to_plain
from rankcore.kernel import Note

BOOKKEEPING = ("record numbered", "record repeated", "commands held", "commands released", "repeated", "unchanged")
"""What nobody decides upon, and people are not shown."""
KEPT = 5_000
AT_ONCE = 1_000
"""So many are given in one answer."""


@attrs.frozen
class _Kept:
    at: float
    cause: str
    note: Note


class RecentNotes:
    """A journal that keeps the newest notes, and passes everything on to another.

    Args:
        journal: What steps are written to; None: nothing.
        kept: So many notes are kept.
    """

    def __init__(self, journal: Journal | None, kept: int = KEPT) -> None:
        self._journal = journal
        self._kept: deque[_Kept] = deque(maxlen=kept)
        self._count = 0

    def begin(self, how: Any, first: AnyStep) -> None:
        """A machine begins."""
        if self._journal is not None:
            self._journal.begin(how, first)
        self._keep(how, first)

    def append(self, event: Any, result: AnyStep) -> None:
        """A step is taken."""
        if self._journal is not None:
            self._journal.append(event, result)
        self._keep(event, result)

    def _keep(self, cause: Any, step: AnyStep) -> None:
        if step.notes:
            self._count += len(step.notes)
            self._kept.extend(_Kept(cause.at, type(cause).__name__, each) for each in step.notes)

    def after(self, number: int) -> "Notes":
        """Those that came after the one of this number, the oldest first; 0: all that are kept."""
        forgotten = self._count - len(self._kept)
        begin = min(max(number, forgotten), self._count)
        found = [self._kept[index] for index in range(begin - forgotten, min(begin - forgotten + AT_ONCE, len(self._kept)))]
        plain = tuple({"at": each.at, "cause": each.cause, **to_plain(each.note)} for each in found)
        return Notes(last=begin + len(found), missed=max(0, forgotten - number), notes=plain)


@attrs.frozen
class Notes:
    """Some notes.

    Attributes:
        last: The number of the last of them.
        missed: How many that were asked for are forgotten.
        notes: As JSON-like data, with the time and the name of what they were decided upon.
        epoch: Of the controller.
        now: On the clock of those times.
    """

    last: int
    missed: int
    notes: tuple[dict[str, Any], ...]
    epoch: int = 0
    now: float = 0.0
