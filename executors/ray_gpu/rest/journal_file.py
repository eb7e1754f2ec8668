"""Reads on in the controller's journal, whose file is on this node, while the controller writes it, and asks nobody for it.

A place is the number of a file and how many bytes of it were read, `<number>-<bytes>`. A journal of limited size is two files
(`executors.engine.journal`): one that is full becomes `<path>.1` and keeps its number, so that a reader goes on there and then
in the next. A place that is in neither of them any more is `LostPlaceError`.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

import attrs

READ_BYTES = 1 << 20
_PLACE = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,18})")


class LostPlaceError(LookupError):
    """What came next is not there any more, or never was."""


@attrs.frozen
class JournalPlace:
    """Up to where a journal was read."""

    file: int
    offset: int

    def __str__(self) -> str:
        return f"{self.file:x}-{self.offset}"

    @classmethod
    def of(cls, text: str) -> "JournalPlace":
        """What `str` made of it.

        Raises:
            ValueError: It is none.
        """
        said = _PLACE.fullmatch(text)
        if said is None:
            raise ValueError(f"expected a place that this server gave, found {text!r:.80}")
        return cls(int(said[1], 16), int(said[2]))


def files_of(path: str) -> Iterator[tuple[str, int, int]]:
    """Path, number and size of the files of a journal, the older one first."""
    for each in (f"{path}.1", path):
        with suppress(FileNotFoundError):
            found = os.stat(each)
            yield each, found.st_ino, found.st_size


def beginning(path: str) -> JournalPlace | None:
    """Of the newest file; None: there is none."""
    return next((JournalPlace(number, 0) for each, number, _ in files_of(path) if each == path), None)


def end(path: str) -> JournalPlace | None:
    """Behind all whole lines; None: there is nothing."""
    return next((JournalPlace(number, _whole(path, size)) for each, number, size in files_of(path) if each == path), None)


def _whole(path: str, size: int) -> int:
    """Up to where a file has whole lines."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        while size > 0:
            begin = max(0, size - READ_BYTES)
            file.seek(begin)
            found = file.read(size - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            size = begin
    return 0


def lines_after(path: str, place: JournalPlace, limit: int) -> tuple[list[tuple[bytes, JournalPlace]], JournalPlace]:
    """Whole lines from a place on, each with the place behind it, and where to go on; headers are left out.

    Raises:
        LostPlaceError: The place is in neither file, or in the middle of a line.
        OSError: They cannot be read.
    """
    numbers = {number: each for each, number, _ in files_of(path)}
    if place.file not in numbers:
        raise LostPlaceError(f"the journal has no {place} any more: its older files are gone")
    found: list[tuple[bytes, JournalPlace]] = []
    with open(numbers[place.file], "rb") as file:
        if os.fstat(file.fileno()).st_ino != place.file:  # it was renamed between
            return [], place
        if os.fstat(file.fileno()).st_size < place.offset:
            raise LostPlaceError(f"the journal has no {place}: it was begun anew")
        file.seek(max(0, place.offset - 1))
        if place.offset and file.read(1) != b"\n":
            raise LostPlaceError(
                f"the journal has no {place}: it is in the middle of a line, and no place that this server gave"
            )
        offset, raw = place.offset, file.read(READ_BYTES)
        if raw and b"\n" not in raw:
            raw += file.readline()
    for line in raw.splitlines(keepends=True):
        if not line.endswith(b"\n") or len(found) == limit:
            break
        offset += len(line)
        if offset != len(line):  # the first one says what the file is
            found.append((line.rstrip(b"\n"), JournalPlace(place.file, offset)))
    here = JournalPlace(place.file, offset)
    is_older = numbers[place.file] != path and not found and offset >= os.stat(numbers[place.file]).st_size
    newest = beginning(path)
    return found, newest if is_older and newest is not None and newest.file != place.file else here
