"""The journal of a fleet, by the names that it has had: `JournalWriter` and `replay` for its machine."""

import os
from collections.abc import Callable
from typing import TypeAlias

from executors.engine.fleets import FLEET
from executors.engine.journal import JournalWriter
from executors.engine.reading import machine_in
from executors.engine.replay import ReplayResult, replay
from rankcore.dispatching import FleetState, FleetStep, image_of

FleetReplay: TypeAlias = ReplayResult


class FleetJournal(JournalWriter):
    """Writes the journal of a fleet, which begins with a state."""

    KIND = FLEET

    def begin(self, how: FleetState, first: FleetStep | None = None) -> None:
        """Write down the state that what follows begins with."""
        super().begin(image_of(how), FleetStep(how, (), ()))


def replay_fleet(path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> ReplayResult:
    """Run a journal of a fleet again; raises as `replay` does."""
    return replay(path, FLEET, progress=progress)


def is_of_fleet(path: str | os.PathLike[str]) -> bool:
    """Whether a file says of itself that it is a journal of a fleet; another journal, or none, is not.

    Raises:
        OSError: It cannot be read.
    """
    return machine_in(path) == FLEET.name
