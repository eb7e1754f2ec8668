"""A journal that never stops the controller: replicas are worth more than the record of their ranks."""

import logging

from executors.journal import Beginning, JournalWriter
from rankcore import Step
from rankcore.events import Event

LOG = logging.getLogger(__name__)


class LenientJournal(JournalWriter):
    """Ends where it can no longer be written, says so in the log, and lets everything go on.

    What is there can still be replayed: it is whole up to that point.
    """

    broken = False

    def begin(self, how: Beginning, first: Step) -> None:
        """Write down how a deployment began, if that is possible."""
        try:
            if not self.broken:
                super().begin(how, first)
        except OSError as error:
            self._give_up(error)

    def append(self, event: Event, result: Step) -> None:
        """Write down an event and its step, if that is possible."""
        try:
            if not self.broken:
                super().append(event, result)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.broken = True
        LOG.error("the journal ends here, since it cannot be written: %s", error)
