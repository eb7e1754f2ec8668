"""Times as files have them: numbers of a unit, or ISO 8601 with a zone or without."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

from executors.simulator.fields import FieldProblem, shown
from executors.simulator.load.csvfile import plain_float, refuse

Stamp: TypeAlias = float | Decimal
"""Seconds: floats of a column without a unit, exact decimals of one with a unit."""

STAMP_MAX = 1e12
EPOCH = datetime(1970, 1, 1)
EPOCH_LEAST_S = 1_000_000_000
"""Numbers from here on are seconds since 1970: a trace with times of its own would be of 31 years."""
UNITS_S = {
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
    "min": Decimal(60),
    "h": Decimal(3_600),
    "days": Decimal(86_400),
}
ISO = "iso"
TIME_UNITS = (*UNITS_S, ISO)
LONG_UNITS = {"seconds": "s", "milliseconds": "ms", "minutes": "min", "hours": "h"}
"""Words that fault traces had for units before all traces had the same."""


class Stamps:
    """Seconds of the texts of a column.

    With a unit they are exact decimals: of nanoseconds since 1970 a float would lose the last three digits.
    """

    def __init__(self, path: Path, column: str, unit: str | None) -> None:
        self._path = path
        self._column = column
        self._unit_s = UNITS_S.get(unit) if unit is not None else None
        self._numbers = unit is None
        self._zoned: bool | None = None

    def seconds(self, line: int, text: str) -> Stamp:
        """Of a cell."""
        number = plain_float(text)
        if self._unit_s is not None:
            if not 0 <= number * float(self._unit_s) <= STAMP_MAX:
                refuse(self._path, line, f"{self._column}: expected {self._allowed}, found {shown(text)}")
            return Decimal(text.strip()) * self._unit_s
        seconds = number if self._numbers else math.nan
        if math.isnan(seconds):
            seconds = self._of_date(line, text.strip())
        if not 0 <= seconds <= STAMP_MAX:
            refuse(self._path, line, f"{self._column}: expected {self._allowed}, found {shown(text)}")
        return seconds

    def given(self, key: str, value: float | str) -> Stamp:
        """Of what a scenario says of this file's time, such as where to begin.

        Raises:
            FieldProblem: It is no time of such a column.
        """
        if isinstance(value, str) and self._unit_s is None:
            moment = _moment(value)
            if moment is not None:
                return _since_1970(moment)
        elif not isinstance(value, str) and (self._unit_s is not None or self._numbers):
            return float(value) if self._unit_s is None else Decimal(str(value)) * self._unit_s
        raise FieldProblem((key,), value, f"a time of the file: {self._allowed}")

    def unix_s(self, stamp: Stamp) -> float | None:
        """Since 1970; None: the column has times of its own."""
        return float(stamp) if self._zoned is not None or stamp >= EPOCH_LEAST_S else None

    @property
    def _allowed(self) -> str:
        if self._unit_s is not None:
            return f"a number of time_unit, from 0 to {STAMP_MAX / float(self._unit_s):g}"
        return "seconds, or YYYY-MM-DD hh:mm:ss" if self._numbers else "YYYY-MM-DD hh:mm:ss"

    def _of_date(self, line: int, text: str) -> float:
        moment = _moment(text)
        if moment is None:
            return -1.0
        zoned = moment.tzinfo is not None
        if self._zoned is not None and zoned != self._zoned:
            allowed = "times with a zone, or all without (then they are UTC)"
            problem = "one with a zone after one without" if zoned else "one without a zone after one with"
            refuse(self._path, line, f"{self._column}: expected {allowed}, found {problem}")
        self._zoned = zoned
        return _since_1970(moment)


def between_s(before: Stamp, after: Stamp) -> float:
    """How long from one stamp to another of the same column, both of which are floats, or both decimals."""
    return float(after - before)  # type: ignore[operator]


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        _since_1970(moment)
    except (ValueError, OverflowError):
        return None
    return moment


def _since_1970(moment: datetime) -> float:
    return ((moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment) - EPOCH).total_seconds()
