"""A journal that never stops the controller: replicas are worth more than the record of their ranks."""

import logging
import os
from typing import Any, BinaryIO

from executors.journal import Beginning, JournalError, JournalWriter, Resumed, open_alone
from rankcore import DeploymentState, DeploymentStatus, Step
from rankcore.events import Event

LOG = logging.getLogger(__name__)


class LenientJournal(JournalWriter):
    """Ends where it can no longer be written, says so in the log, and lets everything go on.

    What is there can still be replayed: it is whole up to that point. So is each of the two files of a journal that has
    a limit: once one is full it becomes `<path>.1`, in place of an older one, and the next begins with the states of all
    deployments.

    Args:
        bytes_max: When a file is full; None: never.

    Attributes:
        broken: Whether it has ended.
    """

    broken = False

    def __init__(self, file: BinaryIO, *, bytes_max: int | None = None, **options: Any) -> None:
        super().__init__(file, **options)
        self._bytes_max = bytes_max
        self._states: dict[str, DeploymentState] = {}

    @property
    def path(self) -> str:
        """Of the file that is written."""
        return str(self._file.name)

    def begin(self, how: Beginning, first: Step) -> None:
        """Write down how a deployment began, if that is possible."""
        try:
            if not self.broken:
                super().begin(how, first)
                self._written(first)
        except (OSError, JournalError) as error:
            self._give_up(error)

    def append(self, event: Event, result: Step) -> None:
        """Write down an event and its step, if that is possible."""
        try:
            if not self.broken:
                super().append(event, result)
                self._written(result)
        except (OSError, JournalError) as error:
            self._give_up(error)

    def _written(self, step: Step) -> None:
        state = step.state
        self._states[state.spec.name] = state
        if state.status is DeploymentStatus.DELETED:
            del self._states[state.spec.name]
        if self._bytes_max is not None and self._file.tell() > self._bytes_max:
            self._begin_another_file()

    def _begin_another_file(self) -> None:
        path = self.path
        os.replace(path, f"{path}.1")
        self._file.close()
        self._file = open_alone(path, empty=True)
        self._write_header({})
        for state in self._states.values():
            super().begin(Resumed(state=state), Step(state, (), ()))

    def _give_up(self, error: OSError | JournalError) -> None:
        self.broken = True
        why = getattr(error, "strerror", None) or error
        LOG.error("the journal %s ends here, since it cannot be written: %s", self.path, why)
