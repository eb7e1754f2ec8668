"""What a fleet was told and what came of it: a file for each controller, as `executors.fleet.replay_fleet` runs it again."""

import logging

from executors.fleet import FleetJournal
from rankcore.dispatching import FleetState, FleetStep
from rankcore.dispatching.events import Event

LOG = logging.getLogger(__name__)


class LenientFleetJournal:
    """Ends where it can no longer be written, says so in the log, and lets everything go on.

    Args:
        path: Of the file, to which the controller's epoch is added; None: nothing is written.
        epoch: Of the controller.
    """

    def __init__(self, path: str | None, epoch: int) -> None:
        self._path = None if path is None else f"{path}.{epoch}"
        self._journal: FleetJournal | None = None

    def begin(self, state: FleetState) -> None:
        """Write down the state that everything begins with."""
        if self._path is None:
            return
        try:
            self._journal = FleetJournal.create(self._path)
            self._journal.begin(state)
        except OSError as error:
            self._give_up(error)

    def append(self, event: Event, step: FleetStep) -> None:
        """Write down one step."""
        if self._journal is None:
            return
        try:
            self._journal.append(event, step)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        LOG.error("the journal %s ends here: %s", self._path, error)
        self._journal = None
