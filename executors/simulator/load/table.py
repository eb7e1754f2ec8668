"""The one reader of rows that have a time: requests, rates of requests, faults of nodes.

From the text of a file to columns of numbers in the order of time, in memory that is bounded by what is kept. A row goes
through these in turn: `limit`, `where`, `begin` and `end`, its cells (of which `skip_bad` may be wrong), `thin`; then all that
are left are sorted, shifted to `origin` and jittered. What `where` and `skip_bad` leave out is counted, and told.
"""

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from executors.simulator.fields import SECONDS_MAX, shown
from executors.simulator.load.arrivals import REQUESTS_MAX
from executors.simulator.load.csvfile import (
    BadRows,
    TooManyLinesError,
    TraceError,
    check_lines,
    plain_float,
    read_cells,
    read_names,
    refuse,
)
from executors.simulator.load.stamps import Stamp, Stamps, between_s
from executors.simulator.load.where import such, tests_of
from executors.simulator.streams import Streams

TOKENS_MAX = 1_000_000_000
DIGITS_MAX = 10
NAMES_MAX = 1_000_000
REFUSE = "refuse"
FIRST, ZERO = "first", "zero"
MASK = (1 << 64) - 1


class BadCell(ValueError):
    """A cell holds something else than its column may have; the text says what."""


@attrs.frozen
class Counts:
    """Cells that are whole numbers, such as tokens."""

    CODE = "q"

    def parse(self, text: str) -> int:
        """Of a cell."""
        if not text.isdigit():
            text = text.strip()
        count = int(text) if text.isdigit() and text.isascii() and len(text) <= DIGITS_MAX else TOKENS_MAX + 1
        if count > TOKENS_MAX:
            raise BadCell(f"an integer from 0 to {TOKENS_MAX}")
        return count


@attrs.frozen
class Numbers:
    """Cells that are numbers of a range, each multiplied with `scale`."""

    CODE = "d"
    least: float
    most: float
    scale: float = 1.0

    def parse(self, text: str) -> float:
        """Of a cell."""
        number = plain_float(text)
        if not self.least <= number <= self.most:
            raise BadCell(f"a number from {self.least:g} to {self.most:g}")
        return number * self.scale


@attrs.frozen
class Words:
    """Cells that are texts: each gets the number of its text, counted as they first appear.

    Attributes:
        what: What it is the name of.
        numbers: Of each text, its number so far.
        fixed: Whether there are no other texts than these.
    """

    CODE = "q"
    what: str
    numbers: dict[str, int] = attrs.Factory(dict)
    fixed: bool = False

    def parse(self, text: str) -> int:
        """Of a cell."""
        text = text.strip()
        number = self.numbers.get(text)
        if number is not None:
            return number
        if self.fixed:
            raise BadCell(" or ".join(shown(each) for each in self.numbers))
        if not text:
            raise BadCell(f"the name of a {self.what}")
        if len(self.numbers) >= NAMES_MAX:
            raise BadCell(f"at most {NAMES_MAX} names")
        return self.numbers.setdefault(text, len(self.numbers))


@attrs.frozen(kw_only=True)
class Reading:
    """How rows are read, whatever they are of.

    Attributes:
        time: The column that has the time.
        time_unit: Of that column; None: seconds where it has numbers, or else ISO 8601.
        sort: True: rows may come in any order; "refuse": only in that of time.
        where: Which rows count.
        skip_bad: How many rows with something wrong are left out, before one is refused.
        begin, end: Only rows from and before these times of the file.
        origin: What becomes 0: the first row, time 0 of the file, or a time of it.
        limit: Only so many rows, the first of the file.
        thin: Which share of the rows is kept, drawn by seed and line.
        jitter_s: Up to so much is added to each time, drawn.
        seed: Of `thin`; `jitter` is the stream of the other.
        of: What a row is, in a word.
        rows_max: More are refused.
        hint: What to do then, in words.
        ahead: Whether rows before the origin are kept, with negative times; else they are refused.
    """

    time: str
    time_unit: str | None = None
    sort: bool | str = True
    where: Mapping[str, Any] = attrs.Factory(dict)
    skip_bad: int = 0
    begin: float | str | None = None
    end: float | str | None = None
    origin: float | str = FIRST
    limit: int | None = None
    thin: float = 1.0
    jitter_s: float = 0.0
    speedup: float = 1.0
    seed: int = 0
    jitter: tuple[str, ...] = ("jitter",)
    of: str = "request"
    rows_max: int = REQUESTS_MAX
    hint: str = ""
    ahead: bool = False


@attrs.frozen
class Table:
    """What was kept of a file, in the order of time.

    Attributes:
        after_s: Seconds after the origin, ascending.
        lines: Where each row stands in the file.
        cells: Of each wanted column of the file, by the name under which it was wanted.
        notes: What a reader of the figures has to know: what was sorted and what left out.
        origin_unix_s: When the origin was, since 1970; None: the file has times of its own, or they are not kept as they are.
    """

    after_s: "array[float]"
    lines: "array[int]"
    cells: dict[str, "array[Any]"]
    notes: tuple[str, ...] = ()
    origin_unix_s: float | None = None

    def __len__(self) -> int:
        return len(self.after_s)

    def only(self, key: str, value: int) -> "Table":
        """The rows that have this in a column, at the times that they have among all."""
        places = [place for place, each in enumerate(self.cells[key]) if each == value]
        cells = {name: _taken(each, places) for name, each in self.cells.items()}
        return attrs.evolve(self, after_s=_taken(self.after_s, places), lines=_taken(self.lines, places), cells=cells)


Kind = Counts | Numbers | Words


def read_table(path: Path, reading: Reading, columns: Mapping[str, tuple[str, Kind]], optional: Collection[str] = ()) -> Table:
    """Read a file.

    Args:
        columns: Under each name the column of the file, and what its cells are.
        optional: Names of those that a file may lack.

    Raises:
        TraceError: One line with the file and, where there is one, the line, the column and the text.
        FieldProblem: `begin`, `end` or `origin` is no time of such a file.
    """
    if optional:
        there = read_names(path)
        columns = {name: each for name, each in columns.items() if name not in optional or each[0] in there}
    return _Reader(path, reading, columns).read()


class _Reader:
    def __init__(self, path: Path, reading: Reading, columns: Mapping[str, tuple[str, Kind]]) -> None:
        self._path = path
        self._reading = reading
        self._tests = tests_of(reading.where)
        self._wanted = [(column, kind.parse) for column, kind in columns.values()]
        self._arrays: list[array[Any]] = [array(kind.CODE) for _, kind in columns.values()]
        self._columns = columns
        self._stamps = Stamps(path, reading.time, reading.time_unit)
        self._bad = BadRows(reading.skip_bad)
        self._after_s, self._lines = array("d"), array("q")
        self._late, self._most_late_s = 0, 0.0
        self._seen = self._elsewhere = 0
        self._origin_unix_s: float | None = None

    def read(self) -> Table:
        reading, path = self._reading, self._path
        if not (reading.where or reading.limit is not None or reading.thin < 1.0 or self._has_window):
            self._check_length()
        self._take_rows()
        if not self._after_s:
            raise TraceError(f"{path}: expected at least one {reading.of}{such(reading.where)}, found none")
        if self._late:
            self._sort()
        if reading.origin == FIRST and self._after_s[0] != 0.0:
            first_s = self._after_s[0]
            if self._origin_unix_s is not None:
                self._origin_unix_s += first_s
            self._after_s = array("d", (each - first_s for each in self._after_s))
        elif not reading.ahead and self._after_s[0] < 0.0:
            problem = "expected times from origin on, found an earlier one; begin: leaves such rows out"
            refuse(path, self._lines[0], f"{reading.time}: {problem}")
        notes = self._notes()
        if reading.jitter_s:
            stream = Streams(reading.seed).once(*reading.jitter)
            self._after_s = array("d", (each + stream.random() * reading.jitter_s for each in self._after_s))
            self._sort()
        if reading.speedup != 1.0:
            self._after_s = array("d", (each / reading.speedup for each in self._after_s))
        origin_unix_s = self._origin_unix_s if reading.speedup == 1.0 else None
        return Table(self._after_s, self._lines, dict(zip(self._columns, self._arrays, strict=True)), notes, origin_unix_s)

    @property
    def _has_window(self) -> bool:
        return self._reading.begin is not None or self._reading.end is not None

    def _check_length(self) -> None:
        try:
            check_lines(self._path, self._reading.rows_max + 1)
        except TooManyLinesError:
            raise TraceError(f"{self._path}: {self._too_many}") from None

    @property
    def _too_many(self) -> str:
        reading = self._reading
        return f"expected at most {reading.rows_max} {reading.of}s, found more{reading.hint}"

    def _take_rows(self) -> None:
        reading, wanted, tests = self._reading, self._wanted, list(self._tests.values())
        names = [reading.time, *(column for column, _ in wanted), *self._tests]
        width, given = len(wanted) + 1, self._stamps.given
        begin = None if reading.begin is None else given("begin", reading.begin)
        end = None if reading.end is None else given("end", reading.end)
        origin: Stamp | None = None
        if reading.origin != FIRST:
            origin = given("origin", 0 if reading.origin == ZERO and reading.time_unit != "iso" else _time_of(reading.origin))
        kept_below = reading.thin * (MASK + 1)
        rows_max = reading.rows_max if reading.limit is None else min(reading.limit, reading.rows_max)
        seconds, parsers, most_s = self._stamps.seconds, [parse for _, parse in wanted], SECONDS_MAX * reading.speedup
        after, pushes = self._after_s, [self._lines.append, *(each.append for each in self._arrays)]
        latest_s, seen, thin, windowed = -math.inf, 0, reading.thin < 1.0, self._has_window
        for line, texts in read_cells(self._path, names, self._bad):
            if len(after) >= rows_max:
                if reading.limit is not None:
                    break
                refuse(self._path, line, self._too_many)
            seen += 1
            if tests and not all(test(text) for test, text in zip(tests, texts[width:], strict=True)):
                self._elsewhere += 1
                continue
            try:
                at = seconds(line, texts[0])
                if windowed:
                    if end is not None and at >= end and reading.sort is not True:
                        break
                    if (begin is not None and at < begin) or (end is not None and at >= end):
                        continue
                values: list[float] = [line]
                for parse, text in zip(parsers, texts[1:width], strict=True):
                    values.append(parse(text))
            except BadCell:
                self._bad.take(self._bad_cell(line, texts))
                continue
            except TraceError as error:
                self._bad.take(error)
                continue
            if thin and _draw(reading.seed, line) >= kept_below:
                continue
            if origin is None:
                origin = at
            after_s = between_s(origin, at)
            if not -most_s <= after_s <= most_s:
                problem = f"expected a trace of at most {SECONDS_MAX:g} s, found {shown(texts[0])}"
                refuse(self._path, line, f"{reading.time}: {problem}")
            if after_s >= latest_s:
                latest_s = after_s
            else:
                self._take_late(line, latest_s - after_s)
            after.append(after_s)
            for push, value in zip(pushes, values, strict=True):
                push(value)
        self._seen = seen
        if origin is not None:
            self._origin_unix_s = self._stamps.unix_s(origin)

    def _bad_cell(self, line: int, texts: Sequence[str]) -> TraceError:
        """What is wrong with the first cell that is: looked for again, since nearly all rows are right."""
        for (column, parse), text in zip(self._wanted, texts[1:], strict=False):
            try:
                parse(text)
            except BadCell as error:
                return TraceError(f"{self._path}:{line}: {column}: expected {error}, found {shown(text)}")
        raise AssertionError("a row was refused, and none of its cells")

    def _take_late(self, line: int, back_s: float) -> None:
        reading = self._reading
        if reading.sort is not True:
            refuse(self._path, line, f"{reading.time}: expected times that ascend, found one {back_s:g} s back")
        self._late += 1
        self._most_late_s = max(self._most_late_s, back_s)

    def _sort(self) -> None:
        order = sorted(range(len(self._after_s)), key=self._after_s.__getitem__)
        self._after_s, self._lines = _taken(self._after_s, order), _taken(self._lines, order)
        self._arrays = [_taken(each, order) for each in self._arrays]

    def _notes(self) -> tuple[str, ...]:
        kept, found = len(self._after_s), []
        if self._late:
            found.append(f"{self._late:,} of {kept:,} rows out of order (most {self._most_late_s:.3g} s): sorted")
        for count, why in (
            (self._elsewhere, f"where leaves out {self._elsewhere:,} of {self._seen:,} rows"),
            (self._bad.found, f"skip_bad leaves out {self._bad.found:,} bad rows, the first: {self._bad.first}"),
        ):
            if count:
                found.append(why)
        return tuple(f"{self._path}: {each}" for each in found)


def _taken(values: "array[Any]", places: Sequence[int]) -> "array[Any]":
    """What stands at these places."""
    return array(values.typecode, map(values.__getitem__, places))


def _time_of(origin: float | str) -> float | str:
    return "1970-01-01" if origin == ZERO else origin


def _draw(seed: int, row: int) -> int:
    """64 bits of a row, the same in every process: a round of SplitMix64 for each of both numbers."""
    found = 0
    for part in (seed, row):
        found = (found ^ part) + 0x9E3779B97F4A7C15 & MASK
        found = (found ^ found >> 30) * 0xBF58476D1CE4E5B9 & MASK
        found = (found ^ found >> 27) * 0x94D049BB133111EB & MASK
        found ^= found >> 31
    return found
