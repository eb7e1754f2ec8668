"""Times as people write them: `90`, `90s`, `1m30s`, `2h`, `0:01:30`."""

import re

from executors.simulator.fields import SECONDS_MAX

_CLOCK = re.compile(r"([0-9]+):([0-5]?[0-9]):([0-5]?[0-9](?:\.[0-9]*)?)")
_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNITS = re.compile(rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?", re.IGNORECASE)
_SECONDS_IN = (86400.0, 3600.0, 60.0, 1.0)


def parse_seconds(text: str) -> float:
    """Read a time, or a length of time.

    Raises:
        ValueError: It is none; says what was expected and found.
    """
    words = text.strip().replace(" ", "")
    clock, units = _CLOCK.fullmatch(words), _UNITS.fullmatch(words)
    if clock is not None:
        hours, minutes, seconds = clock.groups()
        found = int(hours) * 3600.0 + int(minutes) * 60.0 + float(seconds)
    elif words and units is not None:
        found = sum(float(part) * size for part, size in zip(units.groups(), _SECONDS_IN, strict=True) if part)
    else:
        raise ValueError(f"expected a time such as 120s, 2m, 1h30m, 0:02:00 or 120, found {text!r}")
    if found > SECONDS_MAX:
        raise ValueError(f"expected a time of at most {SECONDS_MAX:g} s, found {text!r}")
    return found
