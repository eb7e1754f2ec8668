"""The journal: what happened to some deployments, and what the core made of it, as JSON lines that can be run again.

    {"journal":1,"about":{}}                                                    what this file is, once
    {"deployment":"llm","began":{"type":"Deployed",...},"commands":[...],"notes":[...],"fingerprint":"9f..."}
    {"deployment":"llm","event":{"type":"ReplicaPlaced",...},"commands":[...],"notes":[...]}

A deployment begins with one of `Deployed`, `Recovered` (a restart of its controller, which begins it again) and
`Resumed`; a fingerprint of its state stands on that line and on every so-manyth line after it. Nothing in a journal
depends on when, where or how fast it was written.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from typing import Any, BinaryIO, NoReturn, Protocol, Self, TypeAlias, cast

import attrs

import rankcore
from executors.planted import unplanted
from rankcore import DeploymentSpec, DeploymentState, Step
from rankcore.codec import fingerprint, from_plain, read_object, to_plain, write_object
from rankcore.commands import Command
from rankcore.errors import CodecError, RankcoreError
from rankcore.events import Event
from rankcore.notes import Note
from rankcore.values import ReplicaId

FORMAT = 1
"""Version of the layout of lines; the values in them carry no version of their own."""

FINGERPRINT_EVERY_MIN = 100
STEPS_PER_REPLICA = 10
"""A fingerprint costs some 50 us a replica: spread over this many steps of each, it costs a step 5 us, at any size."""


class JournalError(RankcoreError):
    """A file is not a journal, or not one that this version can read. The text begins with file and line number."""

    def __init__(self, source: str, line: int, problem: str) -> None:
        super().__init__(f"{source}:{line}: {problem}")
        self.source = source
        self.line = line
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.source, self.line, self.problem)


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


@attrs.frozen(kw_only=True)
class Deployed:
    """A deployment began new: the arguments of `rankcore.deploy`."""

    spec: DeploymentSpec
    at: float = 0.0
    epoch: int = 1

    def step(self) -> Step:
        """What the core makes of it."""
        return rankcore.deploy(self.spec, at=self.at, epoch=self.epoch)


@attrs.frozen(kw_only=True)
class Recovered:
    """A controller came back: the arguments of `rankcore.recover`. Local controllers store it as their checkpoint."""

    __stored__ = True

    spec: DeploymentSpec
    replica_ids: tuple[ReplicaId, ...]
    at: float
    epoch: int
    previous: DeploymentSpec | None = None
    deleting: bool = False
    failed: bool = False

    def step(self) -> Step:
        """What the core makes of it."""
        return rankcore.recover(
            self.spec,
            self.replica_ids,
            at=self.at,
            epoch=self.epoch,
            previous=self.previous,
            deleting=self.deleting,
            failed=self.failed,
        )


@attrs.frozen(kw_only=True)
class Resumed:
    """A run goes on from a state that existed before: a fork, or a snapshot. No command is given again."""

    state: DeploymentState

    def step(self) -> Step:
        """The state, and nothing to do."""
        return Step(self.state, (), ())


Beginning: TypeAlias = Deployed | Recovered | Resumed


class Journal(Protocol):
    """What a driver writes to; `JournalWriter` is one."""

    def begin(self, how: Beginning, first: Step) -> None:
        """A deployment began, with its first step."""

    def append(self, event: Event, result: Step) -> None:
        """Something happened, and this came of it."""


@attrs.frozen(kw_only=True)
class Entry:
    """One line of a journal after the first.

    Attributes:
        line: Its number in the file, from 1.
        deployment: Whom it is about.
        cause: How the deployment began, or the event that happened.
        commands: What the core answered.
        notes: Why.
        fingerprint: Of the state after it; None: this line has none.
    """

    line: int
    deployment: str
    cause: Beginning | Event
    commands: tuple[Command, ...]
    notes: tuple[Note, ...]
    fingerprint: str | None

    @property
    def at(self) -> float:
        """When it happened, in seconds on the executor's clock; news may be of an earlier time than the line before."""
        return self.cause.state.clock if isinstance(self.cause, Resumed) else self.cause.at


class JournalWriter:
    """Writes a journal, each line whole and at once, so that a crash of this process cuts no line but perhaps the last.

    Lines are handed to the operating system and not forced to the disk: a power failure may cost the newest ones.

    Args:
        file: Unbuffered, opened for writing and empty, or at the end of a journal when `continues` is true.
        about: What else to say in the first line; JSON-like, such as a seed.
        fingerprint_every: Steps of one deployment from one fingerprint to the next; each costs O(N). None: as many as
            keep that cost small, 1,000 or more.
        continues: Whether the file has its first line already.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        about: Mapping[str, Any] | None = None,
        fingerprint_every: int | None = None,
        continues: bool = False,
    ) -> None:
        if fingerprint_every is not None and fingerprint_every < 1:
            raise ValueError(f"fingerprint_every must be at least 1, got {fingerprint_every}")
        self._file = file
        self._fingerprint_every = fingerprint_every
        self._steps: dict[str, int] = {}  # of each deployment, since its last fingerprint
        if not continues:
            self._write_header(about or {})

    @classmethod
    def create(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Start a journal in a new file, or in place of an old one.

        Raises:
            JournalError: Another process writes it. It is left alone.
            PlaceError: Another user may have put it there. It is left alone.
        """
        return cls(open_alone(path, empty=True), **options)

    @classmethod
    def resume(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Go on with a journal that a crashed controller left behind, or start one where there is none.

        A last line that was cut off is removed: the step that it was about has had no effect on the world.

        Raises:
            JournalError: The file holds something else, or another process writes it. It is left alone.
            PlaceError: Another user may have put it there. It is left alone.
        """
        file = open_alone(path)
        try:
            if file.seek(0, os.SEEK_END) > 0:
                for _ in JournalReader(path):
                    break
                file.truncate(_end_of_whole_lines(file))
            return cls(file, continues=file.seek(0, os.SEEK_END) > 0, **options)
        except BaseException:
            file.close()
            raise

    def begin(self, how: Beginning, first: Step) -> None:
        """Write down how a deployment began, and its first step."""
        name = first.state.spec.name
        self._steps[name] = 0
        self._write(
            {
                "deployment": name,
                "began": to_plain(how),
                **_answer(first),
                "fingerprint": fingerprint(first.state),
            }
        )

    def append(self, event: Event, result: Step) -> None:
        """Write down an event and the step that it caused.

        Raises:
            OSError: It could not be written whole, and nothing of it is left in the file.
        """
        name = result.state.spec.name
        if name not in self._steps:
            raise ValueError(f"deployment {name!r} has not begun in this journal: call begin() first")
        steps = self._steps[name] + 1
        due = self._fingerprint_every or max(FINGERPRINT_EVERY_MIN, STEPS_PER_REPLICA * len(result.state.replicas))
        line = {"deployment": name, "event": to_plain(event), **_answer(result)}
        if steps >= due:
            line["fingerprint"] = fingerprint(result.state)
            steps = 0
        self._write(line)
        self._steps[name] = steps

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_header(self, about: Mapping[str, Any]) -> None:
        self._write({"journal": FORMAT, "about": dict(about)})

    def _write(self, line: dict[str, Any]) -> None:
        write_line(self._file, line)


def write_line(file: BinaryIO, line: dict[str, Any]) -> None:
    """Write one line whole, or nothing.

    Raises:
        OSError: It could not be written whole, and nothing of it is left in the file, which `filename` names.
    """
    text = (write_object(line) + "\n").encode()
    start = file.tell()
    try:
        if file.write(text) != len(text):
            found = f"{os.strerror(errno.ENOSPC)}: the disk took only a part of a journal line of {len(text)} bytes"
            raise OSError(errno.ENOSPC, found)
    except OSError as error:
        with suppress(OSError):  # of a device, which keeps nothing
            file.seek(start)
            file.truncate()
        raise OSError(error.errno, error.strerror, str(getattr(file, "name", "a journal"))) from error


def open_alone(path: str | os.PathLike[str], *, empty: bool = False) -> BinaryIO:
    """Open a journal for writing, unless another process writes it: two would each write over the lines of the other.

    Args:
        path: Of the file, which is made where there is none. Its lock ends with this process, however that ends.
        empty: Whether what is in it goes. It stays where the journal is refused.

    Raises:
        JournalError: Another process writes it, or it is a pipe or a terminal. It is left alone.
        PlaceError: Another user may have put it there. It is left alone.
    """
    file = FileIO(unplanted(os.fspath(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC), "r+")
    file.name = os.fspath(path)
    if not file.seekable():
        file.close()
        raise JournalError(str(path), 1, "a journal is a regular file, and this is a pipe or a terminal")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise JournalError(str(path), 1, "another process writes this journal: give each run a file of its own") from None
    except OSError:
        pass  # a file system without locks
    if empty and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.truncate(0)
    return cast(BinaryIO, file)


def _answer(result: Step) -> dict[str, Any]:
    return {
        "commands": [to_plain(command) for command in result.commands],
        "notes": [to_plain(note) for note in result.notes],
    }


def _end_of_whole_lines(file: BinaryIO) -> int:
    """Where the last line that ends in a newline ends; reads from the back, and only as far as it must."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


class JournalReader:
    """Reads a journal line by line, in constant memory. Iterate it once.

    A last line that was cut off is left out, and `warning` says so afterwards; any other line that is broken is an
    error.

    Attributes:
        about: What the first line said besides; empty until the iteration has begun.
        warning: What was left out; None: nothing, or not there yet.
        position: How many bytes have been read, for a progress bar.

    Raises:
        JournalError: While it is iterated: names file, line and what is wrong.
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self.about: dict[str, Any] = {}
        self.warning: str | None = None
        self.position = 0
        self._line = 0

    def __iter__(self) -> Iterator[Entry]:
        with open(self.path, "rb") as file:
            for raw in file:
                self._line += 1
                self.position += len(raw)
                data = self._parse(raw)
                if data is None:
                    return
                if self._line == 1:
                    self._read_header(data)
                else:
                    yield self._read_entry(data)
        if self._line == 0:
            self._line = 1
            self._fail("the file is empty: a journal begins with a line about itself")

    def _parse(self, raw: bytes) -> dict[str, Any] | None:
        """The line's object; None when the line was cut off, which only the last one can be."""
        try:
            return read_object(raw.decode())
        except (CodecError, UnicodeDecodeError) as error:
            if raw.endswith(b"\n") or self._line == 1:
                self._fail("not a line of a journal: " + ("not UTF-8" if isinstance(error, ValueError) else str(error)))
        self.warning = f"{self.path}:{self._line}: the journal ends in the middle of this line, which was left out"
        return None

    def _read_header(self, data: dict[str, Any]) -> None:
        if "fleet_journal" in data:
            self._fail("this is a journal of a fleet, which has models, where one with deployments is needed")
        if "journal" not in data:
            self._fail("this is not a journal: its first line has no key 'journal'")
        if type(data["journal"]) is not int or data["journal"] != FORMAT:
            self._fail(f"journal must be {FORMAT}, got {data['journal']!r:.80}: another version of rankcore wrote this")
        if data.keys() != {"journal", "about"} or not isinstance(data["about"], dict):
            self._fail("the first line must be an object with 'journal' and 'about', which is an object too")
        self.about = data["about"]

    def _read_entry(self, data: dict[str, Any]) -> Entry:
        cause = "began" if "began" in data else "event"
        missing = [key for key in ("deployment", cause, "commands", "notes") if key not in data]
        unknown = sorted(data.keys() - {"deployment", cause, "commands", "notes", "fingerprint"})
        if missing or unknown:
            self._fail(f"{missing[0]} is missing" if missing else f"{unknown[0]!r:.80} is unknown")
        for key, cls in (("deployment", str), (cause, dict), ("commands", list), ("notes", list), ("fingerprint", str)):
            if key in data and not isinstance(data[key], cls):
                self._fail(f"{key} must be {_KINDS[cls]}, got {data[key]!r:.80}")
        return Entry(
            line=self._line,
            deployment=data["deployment"],
            cause=self._value(cause, data[cause], Beginning if cause == "began" else Event),
            commands=tuple(self._value("commands", item, Command) for item in data["commands"]),
            notes=tuple(self._value("notes", item, Note) for item in data["notes"]),
            fingerprint=data.get("fingerprint"),
        )

    def _value(self, key: str, data: Any, kind: Any) -> Any:
        try:
            return from_plain(data, kind)
        except CodecError as error:
            self._fail(f"{key}: {error}")

    def _fail(self, problem: str) -> NoReturn:
        raise JournalError(self.path, self._line, problem)


_KINDS = {str: "a string", dict: "an object", list: "a list"}
