"""Times in options."""

from collections.abc import Callable
from pathlib import Path

from executors.cli.problems import Refusal
from executors.simulator.times import parse_seconds
from executors.simulator.wall_clock import unix_s_at_0, unix_s_of, utc


def _unknown() -> float | None:
    """Nobody says what time of day it is."""
    return None


def seconds_of(option: str, text: str, began: Callable[[], float | None] = _unknown) -> float:
    """Read a time that was given with an option: since the run began, or a time of day.

    Args:
        began: When that was, since 1970; only asked for a time of day.

    Raises:
        Refusal: It is none; or a time of day, and the run has none, or began later.
    """
    unix_s = unix_s_of(text)
    if unix_s is not None:
        began_s = began()
        if began_s is None:
            problem = "expected a time since the run began, such as 120s: no trace of it has times of day"
            raise Refusal(f"{option}: {problem}, found {text!r}")
        if unix_s < began_s:
            raise Refusal(f"{option}: expected a time from {utc(began_s)} on, when the run began, found {text!r}")
        return unix_s - began_s
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise Refusal(f"{option}: {error}") from None


def began_of(journal: Path, traces: Path | None = None) -> Callable[[], float | None]:
    """When a recorded run began, as far as the traces of the simulator say it, which are read for that."""

    def began() -> float | None:
        from executors.simulator.record.recording import is_own, read_recording

        if not is_own(journal):
            return None
        recording = read_recording(journal, traces)
        return unix_s_at_0(recording.source.arrivals(recording.source.scenario(recording.seed)))

    return began
