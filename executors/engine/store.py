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
from executors.whole_files import write_whole
from rankcore.cluster.records import Record
from rankcore.codec import to_json

Upheld = Callable[[], AbstractContextManager[None]]
"""Raises a `RankcoreError` where this process may not act any more."""


class FileStore:
    """The store of one deployment: a file that is replaced whole and forced to the disk. It answers at once.

    Behind the fence no record is late: one of a controller that was replaced is not written.

    Args:
        path: Of the file.
        upheld: Of the fence.
    """

    def __init__(self, path: Path, upheld: Upheld) -> None:
        self._path, self._upheld = path, upheld

    def save(self, record: Record, answer: Callable[[str], None]) -> None:
        """Store a record.

        Raises:
            RankcoreError: This process may not act any more. The file is as it was.
        """
        try:
            write_whole(self._path, to_json(record), self._upheld())
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
