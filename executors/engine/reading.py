"""Reads a journal line by line: `executors.engine.journal` says what stands in it."""

import fcntl
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn, cast

import rankcore
from executors.engine import chain
from executors.engine.chain import Chain, ChainError
from executors.engine.kinds import KINDS, JournalLine, MachineKind, kind_named
from rankcore.codec import from_plain, read_object
from rankcore.errors import CodecError, RankcoreError, shown

LAYOUT = 3
"""Version of the layout of lines. In layout 1 the first line named neither machine nor release; in layout 2 was no chain."""

PACKED = ".gz"
HEADER_MAX_BYTES = 1 << 20
HEADER_KEYS = {
    1: frozenset({"journal", "about"}),
    2: frozenset({"journal", "machine", "release", "about"}),
    3: frozenset({"journal", "machine", "release", "about"}) | chain.KEYS,
}
ENDS = ("closed", "crashed", "continued")
NO_END = "there is no end marker: whoever wrote this was killed, or lines are missing at the end"

BEGINNING_BYTES = 60
"""So much is shown of a line that is none of a journal."""


class JournalError(RankcoreError):
    """A file is not a journal, or not one that this version can read. The text begins with file and line number."""

    def __init__(self, source: str, line: int, problem: str) -> None:
        super().__init__(f"{source}:{line}: {problem}")
        self.source = source
        self.line = line
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.source, self.line, self.problem)


class OtherReleaseError(JournalError):
    """A journal was begun by another release, whose lines would not replay together with ours."""


@contextmanager
def located(source: str, line: int) -> Iterator[None]:
    """Whatever a line of a journal leads to inside names file and line.

    A journal says what a core did once. One that was damaged since may say what no core ever did, such as the end of a replica
    that holds another one's rank, and every part that works with such a line may fail in its own way.

    Raises:
        JournalError: Something else than that, or an error of the system, was raised; it is the cause.
    """
    try:
        yield
    except (JournalError, OSError):
        raise
    except Exception as error:
        raise JournalError(source, line, f"this line makes no sense here ({type(error).__name__}: {error!s:.200})") from error


class JournalReader:
    """Reads a journal line by line, in constant memory. Iterate it once.

    A last line that was cut off is left out, and `warning` says so afterwards, and where steps were not written, as on a full
    disk; any other line that is broken is an error, and so is one that is missing, repeated, moved or changed. A journal that
    has no end marker, and that nobody writes any more, has a warning too.

    Args:
        path: The journal.
        kind: The machine that it has to be of; None: whichever it says.

    Attributes:
        kind: The machine that it is of, once the iteration has begun.
        about: What the first line said besides; empty until the iteration has begun.
        origin: "; and with which release to try again" where another one wrote it; "" where this one did.
        layout: Of its lines.
        is_complete: Whether its end is there, once the iteration is over.
        warning: What was left out; None: nothing, or not there yet.
        position: How many bytes have been read, for a progress bar.

    Raises:
        JournalError: While it is iterated: names file, line and what is wrong.
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], kind: MachineKind | None = None) -> None:
        self.path = str(path)
        self.about: dict[str, Any] = {}
        self.origin = ""
        self.layout = LAYOUT
        self.is_complete = False
        self.warning: str | None = None
        self.position = 0
        self._wanted = kind
        self._line = 0
        self._chain = Chain()

    def __iter__(self) -> Iterator[JournalLine[Any, Any, Any]]:
        with open_packed(self.path) as file:
            for raw in file:
                self._line += 1
                self.position += len(raw)
                data = self._parse(raw)
                if data is None:
                    return
                if self._line == 1:
                    self._read_header(data)
                self._follow(raw, data)
                if self._line > 1 and not self._is_mark(data):
                    yield self._read_line(data)
            if self._line == 0:
                self._line = 1
                self._fail("the file is empty: a journal begins with a line about itself")
            self._judge_end(file)

    def read_header(self) -> None:
        """Read the first line only."""
        for _ in self:
            break

    def _follow(self, raw: bytes, data: dict[str, Any]) -> None:
        """Check that a line follows from those before it."""
        if self.layout < LAYOUT:
            return
        try:
            self._chain = self._chain.follow(raw, data.get("n"))
        except ChainError as error:
            self._fail(str(error))
        for key in chain.KEYS:
            del data[key]

    def _is_mark(self, data: dict[str, Any]) -> bool:
        """Whether a line says that the journal ends here, or goes on."""
        goes_on = "resumed" in data
        if self.is_complete and not goes_on:
            self._fail("this line stands behind the end of the journal")
        self.is_complete = "end" in data
        if self.is_complete and (len(data) > 1 or data["end"] not in ENDS):
            self._fail(f"end must be one of {', '.join(ENDS)}, and stand alone, got {shown(data)}")
        if goes_on and type(data.get("torn_bytes")) is not int:
            self._fail(f"torn_bytes must be an integer, got {shown(data.get('torn_bytes'))}")
        return self.is_complete or goes_on

    def _judge_end(self, file: IO[bytes]) -> None:
        """Say what cannot be known of the end."""
        if self.layout < LAYOUT:
            self._warn(f"layout {self.layout} has no integrity information: lines that are missing may go unseen")
        elif not self.is_complete and not _is_written(file):
            self._warn(NO_END)

    def _parse(self, raw: bytes) -> dict[str, Any] | None:
        """The line's object; None when the line was cut off, which only the last one can be."""
        try:
            return read_object(raw.decode())
        except (CodecError, UnicodeDecodeError) as error:
            if raw.endswith(b"\n") or self._line == 1:
                problem = "not UTF-8" if isinstance(error, ValueError) else str(error)
                begins = raw.rstrip(b"\n")[:BEGINNING_BYTES].decode(errors="backslashreplace")
                self._fail(f"not a line of a journal: {problem}; the line begins with {begins!r}")
        self._warn("the journal ends in the middle of this line, which was left out")
        return None

    def _read_header(self, data: dict[str, Any]) -> None:
        name = data.get("machine", "deployments")
        if "fleet_journal" in data or name == "fleet":
            problem = "this is a journal of a fleet, there are none any more (a model is a deployment with residency)"
            reads = f"the build that wrote it reads it, {_writer(data.get('release'))}"
            raise OtherReleaseError(self.path, self._line, f"{problem}: {reads}")
        if "journal" not in data:
            self._fail("this is not a journal: its first line has no key 'journal'")
        layout, release = data["journal"], data.get("release")
        if type(layout) is not int or layout not in HEADER_KEYS:
            there_are = f"{', '.join(map(str, range(1, LAYOUT)))} or {LAYOUT}"
            self._fail(f"journal must be {there_are}, got {shown(layout)}: {_writer(release)} wrote this")
        self.layout = layout
        if data.keys() != HEADER_KEYS[layout] or not isinstance(data["about"], dict):
            named = HEADER_KEYS[layout] - {"about", *chain.KEYS}
            keys = ", ".join(map(repr, sorted(named, key=lambda key: (key != "journal", key))))
            self._fail(f"the first line must be an object with {keys} and 'about', which is an object too")
        if layout == 1:
            self.origin = "; an older rankcore, which named no release, wrote this journal: replay it with that one"
        elif release != rankcore.__version__:
            self.origin = f"; {_writer(release)} wrote this journal: replay it with that one (this is {rankcore.__version__})"
        if not isinstance(name, str) or name not in KINDS:
            self._fail(f"machine must be {' or '.join(KINDS)}, got {shown(name)}{self._hint()}")
        if self._wanted is not None and name != self._wanted.name:
            found = kind_named(name).describe
            self._fail(f"this is a journal of {found}, where one of {self._wanted.describe} is needed")
        self.kind = self._wanted if self._wanted is not None else kind_named(name)
        self.about = data["about"]

    def _read_line(self, data: dict[str, Any]) -> JournalLine[Any, Any, Any]:
        kind = self.kind
        cause = "began" if "began" in data else "event"
        # The beginning of a machine of which there is one leaves them out where there are none.
        answer = ("commands", "notes") if cause == "event" or kind.whose is not None else ()
        whose = ("deployment",) if kind.whose is not None else ()
        missing = [key for key in (*whose, cause, *answer) if key not in data]
        allowed = {*whose, cause, "commands", "notes", "fingerprint", *(("gap",) if cause == "began" else ())}
        unknown = sorted(data.keys() - allowed)
        if missing or unknown:
            self._fail(f"{missing[0]} is missing" if missing else f"{unknown[0]!r:.80} is unknown")
        for key, cls in (
            ("deployment", str),
            (cause, dict),
            ("commands", list),
            ("notes", list),
            ("fingerprint", str),
            ("gap", dict),
        ):
            if key in data and not isinstance(data[key], cls):
                self._fail(f"{key} must be {_JSON_TYPES[cls]}, got {data[key]!r:.80}")
        if "gap" in data:
            steps, why = data["gap"].get("steps"), data["gap"].get("why")
            if type(steps) is not int or not isinstance(why, str):
                self._fail(f"gap must have steps, an integer, and why, a string, got {shown(data['gap'])}")
            self._warn(f"before this line {steps} steps were not written: {why}")
        return JournalLine(
            line=self._line,
            deployment=data.get("deployment", ""),
            cause=self._value(cause, data[cause], kind.beginning if cause == "began" else kind.event),
            commands=tuple(self._value("commands", item, kind.command) for item in data.get("commands", ())),
            notes=tuple(self._value("notes", item, kind.note) for item in data.get("notes", ())),
            fingerprint=data.get("fingerprint"),
        )

    def _value(self, key: str, data: Any, kind: Any) -> Any:
        try:
            return from_plain(data, kind)
        except CodecError as error:
            self._fail(f"{key}: {error}{self.origin}")

    def _warn(self, problem: str) -> None:
        found = f"{self.path}:{self._line}: {problem}"
        self.warning = found if self.warning is None else f"{self.warning}; {found}"

    def _hint(self) -> str:
        return self.origin or "; the first line was damaged"

    def _fail(self, problem: str) -> NoReturn:
        raise JournalError(self.path, self._line, problem)


def machine_in(path: str | os.PathLike[str]) -> str | None:
    """The machine that a file says it is a journal of; None: it is none, or of a machine that this version does not know.

    Raises:
        OSError: It cannot be read.
    """
    with open_packed(path) as file:
        first = file.readline(HEADER_MAX_BYTES)
    try:
        data = read_object(first.decode())
    except (CodecError, UnicodeDecodeError):
        return None
    name = data.get("machine", "deployments") if "journal" in data else None
    return name if name in KINDS else None


def open_packed(path: str | os.PathLike[str]) -> IO[bytes]:
    """A file's lines, also where it is packed (`.gz`).

    Raises:
        OSError: It cannot be read.
        JournalError: While lines are read: what is packed was cut off or damaged, or is not packed at all.
    """
    return cast(IO[bytes], _Packed(path, "rb")) if os.fspath(path).endswith(PACKED) else open(path, "rb")


class _Packed(gzip.GzipFile):
    """One that says which file, and behind which line, does not unpack."""

    _lines = 0

    def readline(self, size: int | None = -1) -> bytes:
        try:
            line = super().readline(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            problem = f"what follows does not unpack ({error!s:.80}): the file was cut off or damaged, or is not packed"
            raise JournalError(str(self.name), self._lines + 1, problem) from error
        self._lines += 1
        return line


def _is_written(file: IO[bytes]) -> bool:
    """Whether somebody writes a journal now: who does has a lock on it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _writer(release: object) -> str:
    return f"rankcore {release:.40}" if isinstance(release, str) else "another version of rankcore"


_JSON_TYPES = {str: "a string", dict: "an object", list: "a list"}
