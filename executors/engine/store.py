"""Records and journals, behind a fence: nothing is written once another process has taken this one's place.

A fence (`executors.run.fence` is one, and says why) gives a context: what is done inside is done before any successor
begins, or not at all.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from executors.engine.journal import Journal
from executors.engine.kinds import AnyStep
from rankcore.cluster.records import Record
from rankcore.codec import to_json

Upheld = Callable[[], AbstractContextManager[None]]
"""Raises a `RankcoreError` where this process may not act any more."""


class TextStore:
    """The store of one deployment: a text that is replaced whole. It answers at once.

    Behind the fence no record is late: one of a controller that was replaced is not written.

    Args:
        write: Replaces it, behind the fence.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def save(self, record: Record, answer: Callable[[str], None]) -> None:
        """Store a record.

        Raises:
            RankcoreError: This process may not act any more. The file is as it was.
        """
        try:
            self._write(to_json(record))
        except OSError as error:
            answer(str(error))
        else:
            answer("")


class FencedJournal:
    """The journal of a process that may be replaced: no step is taken once it has been.

    Args:
        journal: What steps are written to; None: nothing.
        upheld: Of the fence.
    """

    def __init__(self, journal: Journal | None, upheld: Upheld) -> None:
        self._journal, self._upheld = journal, upheld

    def begin(self, how: Any, first: AnyStep) -> None:
        """A machine begins.

        Raises:
            RankcoreError: This process may not act any more.
        """
        with self._upheld():
            if self._journal is not None:
                self._journal.begin(how, first)

    def append(self, event: Any, result: AnyStep) -> None:
        """A step is about to be taken.

        Raises:
            RankcoreError: This process may not act any more.
        """
        with self._upheld():
            if self._journal is not None:
                self._journal.append(event, result)
