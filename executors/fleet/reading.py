"""Reads a fleet's journal line by line: `executors.fleet.journal` says what stands in it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import attrs

from executors.journal import JournalError
from rankcore.codec import from_plain, read_object
from rankcore.dispatching import FleetImage
from rankcore.dispatching.commands import Command
from rankcore.dispatching.events import Event
from rankcore.dispatching.state import Note
from rankcore.errors import CodecError

FORMAT = 1
"""Version of the layout of lines."""

HEADER_MAX_BYTES = 1 << 20

Cause: TypeAlias = FleetImage | Event


@attrs.frozen
class FleetEntry:
    """One line of a fleet's journal after the first.

    Attributes:
        line: Its number in the file, from 1.
        cause: The state with which what follows begins, or the event that happened.
        commands: What the core answered.
        notes: Why.
    """

    line: int
    cause: Cause
    commands: tuple[Command, ...]
    notes: tuple[Note, ...]

    @property
    def at(self) -> float:
        """When it happened, in seconds on the executor's clock."""
        return self.cause.clock if isinstance(self.cause, FleetImage) else self.cause.at


class FleetJournalReader:
    """Reads a journal of a fleet in constant memory. Iterate it once.

    A last line that was cut off is left out, and `warning` says so afterwards; any other that is broken is an error.

    Attributes:
        about: What the first line said besides; empty until the iteration has begun.
        warning: What was left out; None: nothing, or not there yet.
        position: How many bytes have been read.

    Raises:
        JournalError: While it is iterated: names file, line and what is wrong.
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.about: dict[str, Any] = {}
        self.warning: str | None = None
        self.position = 0
        self._path = Path(path)
        self._line = 0

    @property
    def path(self) -> str:
        """The journal."""
        return str(self._path)

    @property
    def line(self) -> int:
        """The number of the line that was read last."""
        return self._line

    @property
    def place(self) -> str:
        """File and line of what was read last."""
        return f"{self._path}:{self._line}"

    def __iter__(self) -> Iterator[FleetEntry]:
        for line in self.lines():
            commands, notes = (line.get(key, []) for key in ("commands", "notes"))
            if not isinstance(commands, list) or not isinstance(notes, list):
                self.fail("commands and notes must be lists")
            yield FleetEntry(
                line=self._line,
                cause=self.value(line["began"], FleetImage) if "began" in line else self.value(line.get("event"), Event),
                commands=tuple(self.value(each, Command) for each in commands),
                notes=tuple(self.value(each, Note) for each in notes),
            )

    def lines(self) -> Iterator[dict[str, Any]]:
        """The same lines as they stand there, without a look at what they hold."""
        with self._path.open("rb") as file:
            for raw in file:
                self._line += 1
                self.position += len(raw)
                try:
                    line = read_object(raw.decode())
                except (CodecError, UnicodeDecodeError):
                    if raw.endswith(b"\n") or self._line == 1:
                        self.fail("not a line of a journal")
                    self.warning = f"{self.place}: the journal ends in the middle of this line, which was left out"
                    return
                if self._line > 1:
                    yield line
                else:
                    self._read_header(line)

    def value(self, data: Any, kind: Any) -> Any:
        """A value of a line.

        Raises:
            JournalError: It is no such value.
        """
        if not isinstance(data, dict):
            self.fail("neither 'began' nor 'event'")
        try:
            return from_plain(data, kind)
        except CodecError as error:
            self.fail(str(error))

    def fail(self, problem: str) -> NoReturn:
        """The line that was read last cannot be used.

        Raises:
            JournalError: Always.
        """
        raise JournalError(str(self._path), self._line, problem)

    def _read_header(self, line: dict[str, Any]) -> None:
        if line.get("fleet_journal") != FORMAT:
            self.fail(f"fleet_journal must be {FORMAT}, got {line.get('fleet_journal')!r:.80}")
        about = line.get("about")
        self.about = about if isinstance(about, dict) else {}


def is_of_fleet(path: str | os.PathLike[str]) -> bool:
    """Whether a file says of itself that it is a journal of a fleet; another journal, or none, is not.

    Raises:
        OSError: It cannot be read.
    """
    with Path(path).open("rb") as file:
        first = file.readline(HEADER_MAX_BYTES)
    try:
        return "fleet_journal" in read_object(first.decode())
    except (CodecError, UnicodeDecodeError):
        return False
