"""Requests and rates that somebody measured, read from CSV files."""

import math
from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime
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


@attrs.frozen
class TraceRows:
    """The requests of a trace.

    Attributes:
        after_s: Seconds after the first one, ascending.
        tokens: Of each wanted token column, the counts.
    """

    after_s: "array[float]"
    tokens: tuple["array[Any]", ...]


def read_trace(path: Path, time: str, tokens: Sequence[str], speedup: float = 1.0, limit: int | None = None) -> TraceRows:
    """Read a CSV trace: the column `time` and the columns `tokens`, of the first `limit` requests.

    Times are seconds, or `YYYY-MM-DD hh:mm:ss.fff` without a time zone, and ascend. Nothing behind the last request
    that is wanted is read.

    Raises:
        TraceError: With the file and the line.
    """
    if limit is None:
        _check_length(path)
    after_s, counts = array("d"), tuple(array("q") for _ in tokens)
    most = REQUESTS_MAX if limit is None else limit
    first = last = 0.0
    for line, (time_text, *token_texts) in read_cells(path, (time, *tokens)):
        if len(after_s) >= most:
            if limit is not None:
                break
            refuse(path, line, TOO_MANY.format(most))
        at_s = _stamp(path, line, time, time_text)
        if not after_s:
            first = last = at_s
        if at_s < last:
            refuse(path, line, f"{time}: expected times that ascend, found one {last - at_s:g} s back")
        if at_s - first > SECONDS_MAX * speedup:
            refuse(path, line, f"{time}: expected a trace of at most {SECONDS_MAX:g} s, found {shown(time_text)}")
        last = at_s
        after_s.append((at_s - first) / speedup)
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


def _stamp(path: Path, line: int, column: str, text: str) -> float:
    seconds = plain_float(text)
    if math.isnan(seconds):
        try:
            moment = datetime.fromisoformat(text.strip())
            seconds = (moment - EPOCH).total_seconds()
        except (ValueError, TypeError):  # no date, or one with a time zone
            seconds = -1.0
    if not 0 <= seconds <= STAMP_MAX:
        refuse(path, line, f"{column}: expected seconds, or YYYY-MM-DD hh:mm:ss, found {shown(text)}")
    return seconds
