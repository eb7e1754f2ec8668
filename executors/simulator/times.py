"""Times as people write them: `90`, `90s`, `1m30s`, `2h`, `0:01:30`, `2d 03:00:00`; and moments, as they are shown."""

import re

from executors.simulator.fields import SECONDS_MAX

DAY_S = 86400
TENTHS = 1
"""Digits of a moment where what lies within one second is told apart."""

MICROSECONDS = 6
"""Digits that float seconds keep, as long as a scenario may be."""

_HOURS = r"(?:([0-9]+)d(?=(?:[01]?[0-9]|2[0-3]):))?([0-9]+)"
_CLOCK = re.compile(rf"{_HOURS}:([0-5]?[0-9]):([0-5]?[0-9](?:\.[0-9]*)?)", re.IGNORECASE)
_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNITS = re.compile(rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?", re.IGNORECASE)
_SECONDS_IN = (float(DAY_S), 3600.0, 60.0, 1.0)


def parse_seconds(text: str) -> float:
    """Read a time, or a length of time.

    Raises:
        ValueError: It is none; says what was expected and found.
    """
    words = text.strip().replace(" ", "")
    clock, units = _CLOCK.fullmatch(words), _UNITS.fullmatch(words)
    if clock is not None:
        parts = clock.groups()
    elif words and units is not None:
        parts = units.groups()
    else:
        raise ValueError(f"expected a time such as 120s, 2m, 1h30m, 0:02:00 or 120, found {text!r}")
    found = sum(float(part) * size for part, size in zip(parts, _SECONDS_IN, strict=True) if part)
    if found > SECONDS_MAX:
        raise ValueError(f"expected a time of at most {SECONDS_MAX:g} s, found {text!r}")
    return found


def moment(seconds: float, digits: int | None = 0) -> str:
    """Write a moment of a run or journal, to be read with `parse_seconds`: `h:mm:ss`, or `2d hh:mm:ss` from two days on.

    Args:
        seconds: Since the run or the clock of the journal began.
        digits: Of the seconds, behind the point; None: as many as there are, to the microsecond.
    """
    if digits is None:
        text = moment(seconds, MICROSECONDS)
        return text.rstrip("0").removesuffix(".")
    scale: int = 10**digits
    whole, fraction = divmod(int(seconds * scale + 0.5), scale)
    clock = f"{whole // 60 % 60:02d}:{whole % 60:02d}" + (f".{fraction:0{digits}d}" if digits else "")
    if whole < 2 * DAY_S:
        return f"{whole // 3600}:{clock}"
    return f"{whole // DAY_S}d {whole % DAY_S // 3600:02d}:{clock}"
