"""CSV and JSON-lines files of any size, packed by gzip or not, read a line at a time, in memory that does not grow with them.

The name's end says which: `.jsonl` has an object in each line, anything else is CSV; `.gz` after it is packed; `.parquet` is
handed on.
"""

import csv
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

import attrs

from executors.simulator.fields import shown
from executors.simulator.regularfile import open_regular

LINE_MAX_BYTES = 100_000
BLOCK_BYTES = 1 << 20
UNPACKED_MAX_BYTES = 16_000_000_000
PACKED = ".gz"
PARQUET = ".parquet"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TraceError(ValueError):
    """A CSV file is not what it should be: one line that names the file and, where there is one, the line."""


class TooManyLinesError(TraceError):
    """It is longer than anything that would be kept of it."""


@attrs.define
class BadRows:
    """How many rows may have something wrong in them and are left out, before one is refused.

    Attributes:
        most: How many.
        found: How many there were so far.
        first: What is wrong with the first.
    """

    most: int = 0
    found: int = 0
    first: str = ""

    def take(self, error: TraceError) -> None:
        """Count one.

        Raises:
            TraceError: The same, as there are too many.
        """
        if self.found >= self.most:
            raise error
        self.found += 1
        self.first = self.first or str(error)


def read_names(path: Path) -> list[str]:
    """What the columns of a file are called: its header, or the keys of its first object.

    Raises:
        TraceError: The file cannot be read, or is no such file.
    """
    kind = _kind(path)
    if kind == PARQUET:
        found: list[str] = _parquet().names_of(path)
        return found
    try:
        with _opened(path) as file:
            if kind == ".jsonl":
                lines = enumerate(_lines(path, file, BadRows()), 1)
                first = next(((number, line) for number, line in lines if line.strip()), None)
                return [] if first is None else list(_object(path, *first))
            return [name.strip() for name in _header(path, next(csv.reader(_lines(path, file, BadRows()), strict=True), None))]
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    except csv.Error as error:
        refuse(path, 1, f"expected a CSV file, but {error}")


def read_cells(path: Path, columns: Sequence[str], bad: BadRows | None = None) -> Iterator[tuple[int, Sequence[str]]]:
    """The cells of the wanted columns, in the order in which they are wanted, of each row, with its line number.

    The file is UTF-8, as CSV with a header; columns that nobody wants may hold anything, empty lines are skipped.

    Args:
        bad: Takes rows that are none; None: the first one is refused.

    Raises:
        TraceError: The file cannot be read, lacks a column or is no such file.
    """
    reader = None
    kind = _kind(path)
    bad = BadRows() if bad is None else bad
    if kind == PARQUET:
        yield from _parquet().cells(path, columns, bad)
        return
    try:
        with _opened(path) as file:
            if kind == ".jsonl":
                yield from _objects(path, file, columns, bad)
                return
            reader = csv.reader(_lines(path, file, bad), strict=True)
            places = _places(path, next(reader, None), columns)
            # An itemgetter of one item would give the item itself.
            wanted: Callable[[list[str]], Sequence[str]]
            wanted = itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))
            needed = max(places) + 1
            for row in reader:
                if len(row) >= needed:
                    yield reader.line_num, wanted(row)
                elif row:
                    problem = f"expected {needed} columns or more, found {len(row)}"
                    bad.take(TraceError(f"{path}:{reader.line_num}: {problem}"))
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    except csv.Error as error:
        line = reader.line_num if reader is not None else 1
        refuse(path, line, f"expected a CSV file, but {error}")


def check_lines(path: Path, most: int) -> None:
    """Refuse a file of too many lines before anything is made of the first one: they are counted at the speed of the disk.

    A line that is too long ends the count: whoever reads the file comes to it, and refuses it.

    Raises:
        TooManyLinesError: It has more than `most`.
    """
    lines = 0
    if _kind(path) == PARQUET:
        _parquet().check_rows(path, most)
        return
    try:
        with _opened(path) as file:
            while block := file.read(BLOCK_BYTES):
                found = block.count(b"\n")
                if not found and len(block) > LINE_MAX_BYTES:
                    return
                lines += found
                if lines > most:
                    raise TooManyLinesError(f"{path}: expected at most {most} lines, found more")
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None


def refuse(path: Path, line: int, problem: str) -> NoReturn:
    """What is wrong with a line of a file."""
    raise TraceError(f"{path}:{line}: {problem}")


def plain_float(text: str) -> float:
    """A number as other programs write it, where Python also takes `1_000` and digits of any alphabet; NaN if it is none."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def number_of(path: Path, line: int, column: str, text: str, least: float, most: float) -> float:
    """A cell as a finite number in a range."""
    value = plain_float(text)
    if not least <= value <= most:
        refuse(path, line, f"{column}: expected a number from {least:g} to {most:g}, found {shown(text)}")
    return value


def _kind(path: Path) -> str:
    """The end of the name, without that of the packing."""
    name = path.with_suffix("") if path.suffix == PACKED else path
    if name.suffix == PARQUET and name is not path:
        raise TraceError(f"{path}: expected .csv or .jsonl, or one of these and .gz, or .parquet, which is packed inside")
    return name.suffix


def _parquet() -> Any:
    """Who reads Parquet, which is built on this module."""
    from executors.simulator.load import parquet

    return parquet


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with open_regular(path) as file:  # unpacking it does not close it
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.suffix == PACKED else file


def _unreadable(path: Path, error: Exception) -> TraceError:
    problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return TraceError(f"{path}: cannot be read: {problem}")


def _objects(path: Path, file: BinaryIO, columns: Sequence[str], bad: BadRows) -> Iterator[tuple[int, list[str]]]:
    """The same cells of JSON lines; numbers stay the texts that they are, so that none is rounded."""
    for number, line in enumerate(_lines(path, file, bad), 1):
        if not line.strip():
            continue
        try:
            row = _object(path, number, line)
            for column in columns:
                if not isinstance(row.get(column), str):
                    problem = "no such key" if column not in row else "neither"
                    refuse(path, number, f"{column}: expected a number or a text, found {problem}")
        except TraceError as error:
            bad.take(error)
        else:
            yield number, [cast(str, row[column]) for column in columns]


def _object(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        row = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
        refuse(path, number, f"expected an object of JSON, but {problem}")
    if not isinstance(row, dict):
        refuse(path, number, "expected an object of JSON, found another value")
    return row


def _lines(path: Path, file: BinaryIO, bad: BadRows) -> Iterator[str]:
    """The file's lines as text. Read as bytes, so that what is wrong in one is told with its number; it is then empty."""
    number = 0
    unpacked, packed = 0, path.suffix == PACKED
    while raw := file.readline(LINE_MAX_BYTES + 1):
        number += 1
        if packed:
            unpacked += len(raw)
            if unpacked > UNPACKED_MAX_BYTES:
                refuse(path, number, f"expected at most {UNPACKED_MAX_BYTES:,} bytes unpacked, found more")
        if number == 1:
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        if len(raw) > LINE_MAX_BYTES:
            refuse(path, number, f"expected lines of at most {LINE_MAX_BYTES} bytes, found a longer one")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            found = f"0x{raw[error.start]:02x} as byte {error.start + 1} of the line"
            bad.take(TraceError(f"{path}:{number}: expected a CSV file in UTF-8, found {found}"))
            text = "\n"
        if "\0" in text:
            bad.take(TraceError(f"{path}:{number}: expected a CSV file, found a NUL byte"))
            text = "\n"
        yield text


def _places(path: Path, header: list[str] | None, columns: Sequence[str]) -> list[int]:
    names = [name.strip() for name in _header(path, header)]
    for column in columns:
        if names.count(column) != 1:
            problem = "no such column" if column not in names else "two of them"
            refuse(path, 1, f"expected a column {shown(column)}, found {problem} in {shown(','.join(names))}")
    return [names.index(column) for column in columns]


def _header(path: Path, header: list[str] | None) -> list[str]:
    if header is None:
        raise TraceError(f"{path}: expected a CSV file with a header line, found an empty file")
    return header
