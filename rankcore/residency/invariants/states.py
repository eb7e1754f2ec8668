"""Promises about a state."""

from rankcore.invariants.violation import Violation
from rankcore.residency.state import ResidencyState


def check(state: ResidencyState) -> list[Violation]:
    """Check a state against the promises.

    Returns:
        What is broken; empty when all promises hold.
    """
    raise NotImplementedError
