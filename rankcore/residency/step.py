"""The machine: what becomes of a planner of residency when something has happened."""

from typing import NamedTuple

from rankcore.residency.commands import Command
from rankcore.residency.events import Event
from rankcore.residency.notes import ResidencyNote
from rankcore.residency.state import ResidencyState


class ResidencyStep(NamedTuple):
    """What one step came to.

    Attributes:
        state: After the step.
        commands: What should happen, in this order.
        notes: Why, one for each decision.
    """

    state: ResidencyState
    commands: tuple[Command, ...]
    notes: tuple[ResidencyNote, ...]


def residency_step(state: ResidencyState, event: Event) -> ResidencyStep:
    """The machine: what becomes of a planner of residency when something has happened.

    Raises:
        InvalidEventError: The event is none of a planner, or speaks of a model that was never deployed. `state` is as it was.
    """
    raise NotImplementedError
