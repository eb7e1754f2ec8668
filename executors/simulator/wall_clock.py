"""Times of day of a run: where a trace has absolute times, each second of the run is one of theirs.

A trace has them if its times are dates, or seconds since 1970 and not since its own beginning. One that is sped up has none: a
minute of the run is not one of the trace. Where traces of a run disagree it has none either.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from executors.simulator.load.arrivals import Arrivals

SAME_S = 1e-3


def unix_s_at_0(arrivals: Mapping[str, Arrivals]) -> float | None:
    """When a run begins, in seconds since 1970; None: it has no times of day."""
    return _common(each.unix_s_at_0 for each in arrivals.values() if len(each))


def _common(found: Iterable[float | None]) -> float | None:
    known = [each for each in found if each is not None]
    return known[0] if known and max(known) - min(known) <= SAME_S else None


def utc(unix_s: float) -> str:
    """`2023-11-16T18:40:00Z`, with fractions of a second where there are some."""
    text = datetime.fromtimestamp(round(unix_s, 6), UTC).isoformat()
    return text.removesuffix("+00:00") + "Z"


def unix_s_of(text: str) -> float | None:
    """Read a time of day: ISO 8601 with a date and a time; without a zone it is UTC; None: it is none."""
    words = text.strip()
    if "-" not in words or ":" not in words:
        return None
    try:
        found = datetime.fromisoformat(words)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
