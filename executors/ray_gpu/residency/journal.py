"""What a fleet was told, a line an event: enough to do the same again, since the machine is pure."""

import logging
from typing import BinaryIO

from rankcore.codec import to_json
from rankcore.dispatching.events import Event

LOG = logging.getLogger(__name__)


class EventJournal:
    """Appends to a file; ends where it can no longer be written, says so in the log, and lets everything go on.

    Args:
        path: Of the file; None: nothing is written.
    """

    def __init__(self, path: str | None) -> None:
        self._file: BinaryIO | None = None
        if path is not None:
            try:
                self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (for as long as the process lives)
            except OSError as error:
                LOG.error("the journal %s cannot be written: %s", path, error)

    def append(self, event: Event) -> None:
        """Write one event."""
        if self._file is None:
            return
        try:
            self._file.write(f"{to_json(event)}\n".encode())
        except OSError as error:
            LOG.error("the journal ends here: %s", error)
            self._file = None
