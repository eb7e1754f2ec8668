"""Times in options."""

from executors.cli.problems import Refusal
from executors.simulator.times import parse_seconds


def seconds_of(option: str, text: str) -> float:
    """Read a time that was given with an option.

    Raises:
        Refusal: It is none.
    """
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise Refusal(f"{option}: {error}") from None
