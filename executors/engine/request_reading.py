"""Reads a request file line by line: `executors.engine.request_file` says what stands in it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from executors.engine import chain
from executors.engine.chain import Chain, ChainError
from executors.engine.reading import ENDS, NO_END, PACKED, JournalError, open_packed
from executors.engine.request_file import COLUMNS, OUTCOMES, REQUEST_LAYOUT, CallTokens, ClockReading, RecordedRequest
from rankcore.codec import read_object
from rankcore.errors import CodecError, shown

NS = 1e9


def beside(journal: Path) -> list[Path]:
    """The request files of a journal: `run.jsonl` has `run.requests.jsonl`, and one more for each further caller."""
    name = journal.name.removesuffix(PACKED)
    stem = name.removesuffix(".jsonl")
    return sorted(journal.parent.glob(f"{_literal(stem)}.requests*.jsonl")) or sorted(
        journal.parent.glob(f"{_literal(stem)}.requests*.jsonl{PACKED}")
    )


def request_file_of(journal: Path) -> Path:
    """Where the first calling process of a journal writes its calls."""
    return journal.with_name(f"{journal.name.removesuffix('.jsonl')}.requests.jsonl")


class RequestFileReader:
    """Reads the calls of one process. Iterate it once.

    Attributes:
        about: What the first line says besides.
        clocks: What its clock showed when.
        tokens: Of calls whose answers said them, by their ids.
        dropped: How many calls are not in it.
        warning: What cannot be known of it; None: nothing.

    Raises:
        JournalError: While it is iterated: names file, line and what is wrong.
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self.about: dict[str, Any] = {}
        self.clocks: list[ClockReading] = []
        self.tokens: dict[int, CallTokens] = {}
        self.dropped = 0
        self.warning: str | None = None
        self._line = 0
        self._chain = Chain()
        self._whom: list[tuple[str, str, int | None]] = []
        self._has_ended = False

    def __iter__(self) -> Iterator[RecordedRequest]:
        with open_packed(self.path) as file:
            for raw in file:
                self._line += 1
                data = self._parse(raw)
                if data is None:
                    return
                self._follow(raw, data)
                if self._line == 1:
                    self._read_header(data)
                elif self._has_ended:
                    self._fail("this line stands behind the end of the file")
                elif (call := self._read(data)) is not None:
                    yield call
        if self._line == 0:
            self._line = 1
            self._fail("the file is empty: a request file begins with a line about itself")
        if not self._has_ended:
            self.warning = f"{self.path}:{self._line}: {NO_END}"

    @property
    def clock(self) -> ClockReading:
        """The best reading of its clock.

        Raises:
            JournalError: It has none.
        """
        if not self.clocks:
            self._fail("no line says how its clock stands to the journal's: it cannot be laid beside it")
        return min(self.clocks, key=lambda each: each.error_s)

    def _parse(self, raw: bytes) -> dict[str, Any] | None:
        try:
            return read_object(raw.decode())
        except (CodecError, UnicodeDecodeError):
            if raw.endswith(b"\n") or self._line == 1:
                self._fail("not a line of a request file")
        self.warning = f"{self.path}:{self._line}: the file ends in the middle of this line, which was left out"
        return None

    def _follow(self, raw: bytes, data: dict[str, Any]) -> None:
        try:
            self._chain = self._chain.follow(raw, data.get("n"))
        except ChainError as error:
            self._fail(str(error))
        for key in chain.KEYS:
            del data[key]

    def _read_header(self, data: dict[str, Any]) -> None:
        if data.get("requests") != REQUEST_LAYOUT or data.get("columns") != list(COLUMNS):
            self._fail(f"this is no request file of layout {REQUEST_LAYOUT}")
        self.about = data.get("about", {})

    def _read(self, data: dict[str, Any]) -> RecordedRequest | None:
        """A line behind the first; None: it is of no call."""
        try:
            if "r" in data:
                return self._call(*data["r"])
            if "to" in data:
                self._whom.append((data["deployment"], data["replica_id"], data["rank"]))
            elif "clock" in data:
                self.clocks.append(ClockReading(**data["clock"]))
            elif "t" in data:
                tokens = CallTokens(*data["t"])
                self.tokens[tokens.id] = tokens
            elif "dropped" in data:
                self.dropped += data["dropped"]
            elif data.get("end") in ENDS:
                self._has_ended = True
            else:
                self._fail(f"expected r, to, clock, t, dropped or end, got {shown(data)}")
        except (TypeError, KeyError, IndexError, ValueError) as error:
            self._fail(f"this line makes no sense here ({type(error).__name__}: {error!s:.80})")
        return None

    def _call(
        self, number: int, to: int, arrived: int, dispatched: int | None, first: int | None, ended: int, outcome: str
    ) -> RecordedRequest:
        if outcome not in OUTCOMES:
            self._fail(f"outcome must be one of {', '.join(OUTCOMES)}, got {shown(outcome)}")
        sent, begun = (None if each is None else arrived + each for each in (dispatched, first))
        return RecordedRequest(number, *self._whom[to], arrived, sent, begun, arrived + ended, outcome)

    def _fail(self, problem: str) -> NoReturn:
        raise JournalError(self.path, self._line, problem)


def _literal(stem: str) -> str:
    """For a pattern: what stands for itself."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in stem)
