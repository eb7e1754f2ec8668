"""When requests arrive and how long each takes to serve: read from a trace with token counts, or drawn."""

import csv
from array import array
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from random import Random

import attrs

from executors.simulator.distributions import Distribution
from executors.simulator.fields import SECONDS_MAX, shown

TOKENS_MAX = 1_000_000_000
REQUESTS_MAX = 20_000_000
MINUTE_S = 60.0
EPOCH = datetime(1970, 1, 1)


class TraceError(ValueError):
    """A trace file is not what it should be; the text names file and line."""


@attrs.frozen
class Arrivals:
    """The requests of one deployment, in the order of their arrival.

    Attributes:
        at_s: Virtual seconds of each arrival, ascending.
        service_s: How long a replica works on each.
    """

    at_s: "array[float]" = attrs.Factory(lambda: array("d"))
    service_s: "array[float]" = attrs.Factory(lambda: array("d"))

    def __len__(self) -> int:
        return len(self.at_s)


@attrs.frozen(kw_only=True)
class TraceColumns:
    """What the columns of a trace are called."""

    time: str
    prompt_tokens: str
    output_tokens: str


@attrs.frozen(kw_only=True)
class TokenTimes:
    """Service time, linear in the tokens: `base_s` + prompt x `prompt_s_per_token` + output x `output_s_per_token`."""

    base_s: float
    prompt_s_per_token: float
    output_s_per_token: float


def read_trace(path: Path, columns: TraceColumns, times: TokenTimes, begin_s: float) -> Arrivals:
    """Read a CSV trace, line by line; its first request arrives at `begin_s`.

    Times are seconds, or `YYYY-MM-DD hh:mm:ss.fff` without a time zone, and ascend.

    Raises:
        TraceError: With the file and, where there is one, the line.
    """
    arrivals = Arrivals()
    first = last = 0.0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            places = _places(path, next(rows, None), columns)
            for row in rows:
                line = rows.line_num
                if not row:
                    continue
                at_s, prompt, output = _cells(path, line, row, places, columns)
                if not arrivals.at_s:
                    first = last = at_s
                if at_s < last:
                    raise TraceError(
                        f"{path}:{line}: {columns.time}: expected times that ascend, found one {last - at_s:g} s back"
                    )
                if at_s - first > SECONDS_MAX or len(arrivals) >= REQUESTS_MAX:
                    raise TraceError(f"{path}:{line}: expected at most {REQUESTS_MAX} requests within {SECONDS_MAX:g} s")
                last = at_s
                arrivals.at_s.append(begin_s + at_s - first)
                arrivals.service_s.append(times.base_s + prompt * times.prompt_s_per_token + output * times.output_s_per_token)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: expected a CSV file in UTF-8, found bytes that are none") from None
    except csv.Error as error:
        raise TraceError(f"{path}: expected a CSV file, but: {error}") from None
    if not arrivals.at_s:
        raise TraceError(f"{path}: expected at least one request, found none")
    return arrivals


def draw_poisson(rate_per_s: float, begin_s: float, for_s: float, service_s: Distribution, stream: Random) -> Arrivals:
    """Requests that arrive independently of each other, `rate_per_s` on average, from `begin_s` on for `for_s`."""
    arrivals = Arrivals()
    at_s = begin_s + stream.expovariate(rate_per_s)
    while at_s < begin_s + for_s:
        arrivals.at_s.append(at_s)
        arrivals.service_s.append(service_s.sample(stream))
        at_s += stream.expovariate(rate_per_s)
    return arrivals


def busiest_minute(all_arrivals: Iterable[Arrivals]) -> float | None:
    """When the minute with most arrivals begins, minutes counted from 0, the first of equals; None: nothing arrives."""
    counts: dict[int, int] = {}
    for arrivals in all_arrivals:
        for at_s in arrivals.at_s:
            minute = int(at_s // MINUTE_S)
            counts[minute] = counts.get(minute, 0) + 1
    if not counts:
        return None
    return MINUTE_S * min(counts, key=lambda minute: (-counts[minute], minute))


def _places(path: Path, header: list[str] | None, columns: TraceColumns) -> tuple[int, int, int]:
    if header is None:
        raise TraceError(f"{path}: expected a CSV file with a header line, found an empty file")
    names = [name.strip() for name in header]
    for column in (columns.time, columns.prompt_tokens, columns.output_tokens):
        if names.count(column) != 1:
            problem = "no such column" if column not in names else "two of them"
            raise TraceError(f"{path}:1: expected a column {shown(column)}, found {problem} in {shown(','.join(names))}")
    return names.index(columns.time), names.index(columns.prompt_tokens), names.index(columns.output_tokens)


def _cells(
    path: Path, line: int, row: list[str], places: tuple[int, int, int], columns: TraceColumns
) -> tuple[float, int, int]:
    if len(row) <= max(places):
        raise TraceError(f"{path}:{line}: expected {max(places) + 1} columns or more, found {len(row)}")
    time_at, prompt_at, output_at = places
    at_s = _time(row[time_at])
    if at_s is None:
        allowed = "seconds, or YYYY-MM-DD hh:mm:ss"
        raise TraceError(f"{path}:{line}: {columns.time}: expected {allowed}, found {shown(row[time_at])}")
    tokens = []
    for place, column in ((prompt_at, columns.prompt_tokens), (output_at, columns.output_tokens)):
        text = row[place].strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= TOKENS_MAX):
            raise TraceError(f"{path}:{line}: {column}: expected an integer from 0 to {TOKENS_MAX}, found {shown(row[place])}")
        tokens.append(int(text))
    return at_s, tokens[0], tokens[1]


def _time(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            return None
        if moment.tzinfo is not None:
            return None
        return (moment - EPOCH).total_seconds()
    return seconds if 0 <= seconds <= 1e12 else None
