"""Records and journals in files, behind a fence: nothing is written once another process has taken this one's place.

A fence (`executors.local.fence` is one, and says why) gives a context: what is done inside is done before any successor
begins, or not at all.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from executors.engine.journal import Journal
from executors.engine.kinds import AnyStep
from executors.engine.loop import SaveBarrier
from executors.whole_files import write_whole
from rankcore.codec import to_json

Upheld = Callable[[], AbstractContextManager[None]]
"""Raises a `RankcoreError` where this process may not act any more."""


class FileStore:
    """Stores a record in a file, which is replaced whole and forced to the disk. It answers at once.

    Args:
        path: Of the file.
        upheld: Of the fence.
    """

    def __init__(self, path: Path, upheld: Upheld) -> None:
        self._path, self._upheld = path, upheld

    def save(self, barrier: SaveBarrier[Any]) -> None:
        """Store what was decided last.

        Raises:
            RankcoreError: This process may not act any more. The file is as it was.
        """
        number, record = barrier.newest
        try:
            write_whole(self._path, to_json(record), self._upheld())
        except OSError as error:
            barrier.answer(number, str(error))
        else:
            barrier.answer(number)


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
