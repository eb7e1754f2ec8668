"""How far a law is tried: `make test` takes a part, `make night`, the mutants and runs that name a profile take the whole."""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
WHOLE = PROFILE != "ci"


def examples(whole: int) -> int:
    """So many examples of hypothesis, or half of them."""
    return whole if WHOLE else whole // 2


def at_most(states: int) -> tuple[str, ...]:
    """Options of `rankcore check` that end each system after so many states, or none."""
    return () if WHOLE else ("--states", str(states))
