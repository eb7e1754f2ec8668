"""Promises about one step."""

from rankcore.invariants.violation import Violation
from rankcore.residency.events import Event
from rankcore.residency.state import ResidencyState
from rankcore.residency.step import ResidencyStep


def check_step(before: ResidencyState, event: Event, step: ResidencyStep) -> list[Violation]:
    """Check what a step did against the promises.

    Returns:
        What is broken; empty when all promises hold.
    """
    raise NotImplementedError
