"""Requests and rates that somebody measured, read from CSV files and JSON lines."""

import math
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs

from executors.simulator.fields import SECONDS_MAX, shown
from executors.simulator.load.arrivals import REQUESTS_MAX, RateWindow
from executors.simulator.load.csvfile import (
    TooManyLinesError,
    TraceError,
    check_lines,
    number_of,
    plain_float,
    read_cells,
    refuse,
)

TOKENS_MAX = 1_000_000_000
DIGITS_MAX = 10
TOO_MANY = "expected at most {} requests, found more; limit: takes the first ones only"
WINDOWS_MAX = 1_000_000
RATE_MAX = 1e6
CV_MAX = 100.0
STAMP_MAX = 1e12
EPOCH = datetime(1970, 1, 1)
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


@attrs.frozen
class TraceRows:
    """The requests of a trace.

    Attributes:
        after_s: Seconds after the first one, ascending.
        tokens: Of each wanted token column, the counts.
    """

    after_s: "array[float]"
    tokens: tuple["array[Any]", ...]


def read_trace(
    path: Path,
    time: str,
    tokens: Sequence[str],
    speedup: float = 1.0,
    limit: int | None = None,
    time_unit: str | None = None,
) -> TraceRows:
    """Read a trace: the column `time` and the columns `tokens`, of the first `limit` requests.

    Times ascend, and are numbers of `time_unit`, or ISO 8601; without a unit they are seconds where they are numbers.
    Nothing behind the last request that is wanted is read.

    Raises:
        TraceError: With the file and the line.
    """
    if limit is None:
        _check_length(path)
    after_s, counts = array("d"), tuple(array("q") for _ in tokens)
    most = REQUESTS_MAX if limit is None else limit
    stamps = _Stamps(path, time, time_unit)
    first: float | Decimal = 0.0
    last: float | Decimal = 0.0
    for line, (time_text, *token_texts) in read_cells(path, (time, *tokens)):
        if len(after_s) >= most:
            if limit is not None:
                break
            refuse(path, line, TOO_MANY.format(most))
        at_s = stamps.seconds(line, time_text)
        if not after_s:
            first = last = at_s
        since_last_s, since_first_s = stamps.between_s(last, at_s), stamps.between_s(first, at_s)
        if since_last_s < 0.0:
            refuse(path, line, f"{time}: expected times that ascend, found one {-since_last_s:g} s back")
        if since_first_s > SECONDS_MAX * speedup:
            refuse(path, line, f"{time}: expected a trace of at most {SECONDS_MAX:g} s, found {shown(time_text)}")
        last = at_s
        after_s.append(since_first_s / speedup)
        for place, text in enumerate(token_texts):
            text = text.strip()
            count = int(text) if text.isdigit() and text.isascii() and len(text) <= DIGITS_MAX else TOKENS_MAX + 1
            if count > TOKENS_MAX:
                allowed = f"an integer from 0 to {TOKENS_MAX}"
                refuse(path, line, f"{tokens[place]}: expected {allowed}, found {shown(text)}")
            counts[place].append(count)
    if not after_s:
        raise TraceError(f"{path}: expected at least one request, found none")
    return TraceRows(after_s, counts)


@attrs.frozen(kw_only=True)
class RateColumns:
    """What the columns of a file of rates are called, and which of its rows count: those with these texts."""

    start: str
    rate: str
    cv: str | None
    where: dict[str, str]


def read_rates(path: Path, columns: RateColumns, window_s: float | None, cv: float) -> list[RateWindow]:
    """Windows of a CSV file, ascending; the first one begins at 0.

    A window lasts `window_s`, or, where that is None, as long as the shortest step from one to the next; where windows
    are missing nothing arrives. `cv` is that of all windows where the file has no column for it.

    Raises:
        TraceError: With the file and the line.
    """
    found = list(_rate_rows(path, columns, cv))
    if not found:
        raise TraceError(f"{path}: expected at least one window{_such(columns.where)}, found none")
    steps = [after[0] - before[0] for before, after in pairwise(found)]
    if window_s is None:
        if not steps:
            raise TraceError(f"{path}: expected two windows or more, or window_s, found one window")
        window_s = min(steps)
    begin = found[0][0]
    ends = [min(start + window_s, start + step) for (start, *_), step in zip(found, [*steps, window_s], strict=True)]
    windows = zip(found, ends, strict=True)
    return [RateWindow(start - begin, end - begin, rate, each_cv) for (start, rate, each_cv), end in windows]


def read_values(path: Path, column: str, scale: float, most: int) -> tuple[float, ...]:
    """The numbers of a column, each times `scale`, for an empirical distribution.

    Raises:
        TraceError: With the file and the line.
    """
    values: list[float] = []
    for line, (text,) in read_cells(path, (column,)):
        if len(values) >= most:
            refuse(path, line, f"expected at most {most} values, found more")
        values.append(number_of(path, line, column, text, 0.0, SECONDS_MAX / scale) * scale)
    if not values:
        raise TraceError(f"{path}: expected at least one value, found none")
    return tuple(values)


def _rate_rows(path: Path, columns: RateColumns, cv: float) -> Iterator[tuple[float, float, float]]:
    wanted = [columns.start, columns.rate, *([columns.cv] if columns.cv is not None else []), *columns.where]
    texts = tuple(columns.where.values())
    count, last = 0, -1.0
    for line, (start_text, rate_text, *more) in read_cells(path, wanted):
        if tuple(more[len(more) - len(texts) :]) != texts:
            continue
        start = number_of(path, line, columns.start, start_text, 0.0, STAMP_MAX)
        if start <= last:
            hint = "" if columns.where else "; where: {column: text} chooses rows"
            refuse(path, line, f"{columns.start}: expected times that ascend, found {start:g} after {last:g}{hint}")
        count, last = count + 1, start
        if count > WINDOWS_MAX:
            refuse(path, line, f"expected at most {WINDOWS_MAX} windows, found more")
        rate = number_of(path, line, columns.rate, rate_text, 0.0, 1e12)
        yield start, rate, number_of(path, line, columns.cv, more[0], 0.01, CV_MAX) if columns.cv is not None else cv


def _such(where: dict[str, str]) -> str:
    return "".join(f" with {column} = {shown(text)}" for column, text in where.items())


def _check_length(path: Path) -> None:
    try:
        check_lines(path, REQUESTS_MAX + 1)
    except TooManyLinesError:
        raise TraceError(f"{path}: {TOO_MANY.format(REQUESTS_MAX)}") from None


class _Stamps:
    """Seconds of the texts of a column.

    With a unit they are exact decimals: of nanoseconds since 1970 a float would lose the last three digits.
    """

    def __init__(self, path: Path, column: str, unit: str | None) -> None:
        self._path = path
        self._column = column
        self._unit_s = UNITS_S.get(unit) if unit is not None else None
        self._numbers = unit is None
        self._zoned: bool | None = None

    def seconds(self, line: int, text: str) -> float | Decimal:
        """Floats of a column without a unit, decimals of one with a unit."""
        number = plain_float(text)
        if self._unit_s is not None:
            allowed = f"a number of time_unit, from 0 to {STAMP_MAX / float(self._unit_s):g}"
            if not 0 <= number * float(self._unit_s) <= STAMP_MAX:
                refuse(self._path, line, f"{self._column}: expected {allowed}, found {shown(text)}")
            return Decimal(text.strip()) * self._unit_s
        seconds = number if self._numbers else math.nan
        if math.isnan(seconds):
            seconds = self._of_date(line, text.strip())
        if not 0 <= seconds <= STAMP_MAX:
            allowed = "seconds, or YYYY-MM-DD hh:mm:ss" if self._numbers else "YYYY-MM-DD hh:mm:ss"
            refuse(self._path, line, f"{self._column}: expected {allowed}, found {shown(text)}")
        return seconds

    @staticmethod
    def between_s(before: float | Decimal, after: float | Decimal) -> float:
        """How long from one stamp to another of the same column."""
        if isinstance(before, Decimal) and isinstance(after, Decimal):
            return float(after - before)
        return float(after) - float(before)

    def _of_date(self, line: int, text: str) -> float:
        try:
            moment = datetime.fromisoformat(text)
            zoned = moment.tzinfo is not None
            moment = moment.astimezone(UTC).replace(tzinfo=None) if zoned else moment
        except (ValueError, OverflowError):
            return -1.0
        if self._zoned is not None and zoned != self._zoned:
            allowed = "times with a zone, or all without (then they are UTC)"
            problem = "one with a zone after one without" if zoned else "one without a zone after one with"
            refuse(self._path, line, f"{self._column}: expected {allowed}, found {problem}")
        self._zoned = zoned
        return (moment - EPOCH).total_seconds()
