"""The journal: what happened to a machine, and what it made of it, as JSON lines that can be run again.

    {"journal":3,"machine":"deployments","release":"0.1.0","about":{}}          what this file is, and who wrote it, once;
                                                           `about` may have the id of the run (`executors.engine.run_id`)
    {"deployment":"llm","began":{"type":"Deployed",...},"commands":[...],"notes":[...],"fingerprint":"9f..."}
    {"deployment":"llm","event":{"type":"ReplicaPlaced",...},"commands":[...],"notes":[...]}
    {"end":"closed"}                                       all that was to be written is; "crashed": an error ended the writer;
                                                           "continued": the next file goes on
    {"resumed":true,"torn_bytes":12}                       and goes on later, without a last line that was cut off in its middle

A deployment begins with one of `Deployed`, `Recovered` (a restart of its controller, which begins it again) and `Resumed`; a
fingerprint of its state stands on that line and on every so-manyth line after it. Where a machine has one state only, its lines
name no deployment. Where steps could not be written, as on a full disk, whoever was there begins anew with `Resumed` once they
can be, and `"gap":{"steps":7,"why":"..."}` stands on that line: each side of it replays. Every line ends with a number and a
hash by which one that is missing, moved or changed is found (`executors.engine.chain`). Nothing else in lines after the first
depends on when, where, how fast or by which release they were written.
"""

import errno
import fcntl
import logging
import math
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from io import FileIO
from typing import Any, BinaryIO, Protocol, Self, cast

import rankcore
from executors.engine.chain import Chain, ChainError, last_link
from executors.engine.deployments import DEPLOYMENTS
from executors.engine.kinds import AnyStep, MachineKind
from executors.engine.reading import LAYOUT, JournalError, JournalReader, OtherReleaseError
from executors.planted import unplanted
from rankcore.codec import fingerprint, to_plain

LOG = logging.getLogger(__name__)

AGAIN_S = 10.0
"""A journal that cannot be written is tried again so often, when something happens."""
LOCK_TRIES, LOCK_AGAIN_S = 5, 0.01
ROOM_BYTES = 64 * 1024
"""With less on the disk it is not."""


class Journal(Protocol):
    """What a loop writes to; `JournalWriter` is one."""

    def begin(self, how: Any, first: AnyStep) -> None:
        """A machine began, with its first step."""

    def append(self, event: Any, result: AnyStep) -> None:
        """Something happened, and this came of it."""


class JournalWriter:
    """Writes a journal, each line whole and at once, so that a crash of this process cuts no line but perhaps the last.

    Lines are handed to the operating system and not forced to the disk: a power failure may cost the newest ones.

    Args:
        file: Unbuffered, opened for writing and empty, or at the end of a journal where `after` is given.
        kind: The machine that it is of; None: that of this class.
        about: What else to say in the first line; JSON-like, such as a seed.
        fingerprint_every: Steps of one deployment from one fingerprint to the next; each costs O(N). None: as many as
            keep that cost small.
        after: How far the file goes already; None: it is empty.
    """

    KIND = DEPLOYMENTS

    def __init__(
        self,
        file: BinaryIO,
        *,
        kind: MachineKind | None = None,
        about: Mapping[str, Any] | None = None,
        fingerprint_every: int | None = None,
        after: Chain | None = None,
    ) -> None:
        if isinstance(file, (str, os.PathLike)):
            raise TypeError(
                f"file must be open for writing, as JournalWriter.create(path) or .resume(path) opens it, got {file!r}"
            )
        if fingerprint_every is not None and fingerprint_every < 1:
            raise ValueError(f"fingerprint_every must be at least 1, got {fingerprint_every}")
        self._file = file
        self._kind = kind if kind is not None else self.KIND
        self._fingerprint_every = fingerprint_every
        self._steps: dict[str, int] = {}  # of each deployment, since its last fingerprint
        self._chain = after or Chain()
        self._has_ended = False
        self._about = dict(about or {})
        if after is None:
            self._write_header()

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
            JournalError: The file holds something else, or what another release began, or another process writes it. It is
                left alone.
            PlaceError: Another user may have put it there. It is left alone.
        """
        file = open_alone(path)
        try:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                return cls(file, **options)
            reader = JournalReader(path, None)
            reader.read_header()
            end = _end_of_whole_lines(file)
            if end and (reader.origin or reader.layout != LAYOUT):
                by = reader.origin or f"; an older build wrote it, in layout {reader.layout}"
                problem = f"each journal is gone on with by the release that began it{by}, or give another file"
                raise OtherReleaseError(str(path), 1, problem)
            JournalReader(path, options.get("kind", cls.KIND)).read_header()
            after = _chain_up_to(file, end, str(path)) if end else None
            file.truncate(end)
            file.seek(end)
            journal = cls(file, after=after, **{**options, "about": reader.about if end else options.get("about")})
            if after is not None:
                journal._resumed(size - end)
            return journal
        except BaseException:
            file.close()
            raise

    def begin(self, how: Any, first: AnyStep) -> None:
        """Write down how a machine began, and its first step."""
        self._begin(how, first, {})

    def _begin(self, how: Any, first: AnyStep, besides: Mapping[str, Any]) -> None:
        state = first.state
        self._steps[self._kind.key_of(state)] = 0
        answer = _answer(first) if first.commands or first.notes or self._kind.whose is not None else {}
        line = {**self._whose(state), "began": to_plain(how), **answer}
        self._write({**line, **besides, "fingerprint": fingerprint(self._kind.image(state))})

    def append(self, event: Any, result: AnyStep) -> None:
        """Write down an event and the step that it caused.

        Raises:
            OSError: It could not be written whole, and nothing of it is left in the file.
        """
        state = result.state
        key = self._kind.key_of(state)
        if key not in self._steps:
            raise ValueError(f"deployment {key!r} has not begun in this journal: call begin() first")
        steps = self._steps[key] + 1
        due = self._fingerprint_every or self._kind.fingerprint_every(state)
        line = {**self._whose(state), "event": to_plain(event), **_answer(result)}
        if steps >= due:
            line["fingerprint"] = fingerprint(self._kind.image(state))
            steps = 0
        self._write(line)
        self._steps[key] = steps

    def end(self, how: str = "closed") -> None:
        """Say that this is all. What is written nevertheless goes on behind a line that says so."""
        if not self._has_ended and not self._file.closed:
            self._write({"end": how})
            self._has_ended = True

    def close(self, how: str = "closed") -> None:
        """End the journal and close the file. Closing twice is fine."""
        try:
            self.end(how)
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        self.close("closed" if raised is None else "crashed")

    def _resumed(self, torn_bytes: int) -> None:
        self._has_ended = False
        self._write({"resumed": True, "torn_bytes": torn_bytes})

    def _write_header(self) -> None:
        what = {"journal": LAYOUT, "machine": self._kind.name, "release": rankcore.__version__}
        self._write({**what, "about": self._about})

    def _whose(self, state: Any) -> dict[str, Any]:
        return {"deployment": self._kind.whose(state)} if self._kind.whose is not None else {}

    def _write(self, line: dict[str, Any]) -> None:
        if self._has_ended:
            self._resumed(0)
        text, chain = self._chain.seal(line)
        write_whole_line(self._file, text)
        self._chain = chain


def write_whole_line(file: BinaryIO, text: bytes) -> None:
    """Write one line whole, or nothing.

    Raises:
        OSError: It could not be written whole, and nothing of it is left in the file, which `filename` names.
    """
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
        _lock(file)
    except BlockingIOError:
        file.close()
        raise JournalError(str(path), 1, "another process writes this journal: give each run a file of its own") from None
    except OSError:
        pass  # a file system without locks
    if empty and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.truncate(0)
    return cast(BinaryIO, file)


def _lock(file: FileIO) -> None:
    """Keep all other writers out. A reader at the end looks for this lock by one of its own, for microseconds.

    Raises:
        BlockingIOError: Another process writes it.
    """
    for left in reversed(range(LOCK_TRIES)):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left == 0:
                raise
            time.sleep(LOCK_AGAIN_S)


def _answer(result: AnyStep) -> dict[str, Any]:
    return {
        "commands": [to_plain(command) for command in result.commands],
        "notes": [to_plain(note) for note in result.notes],
    }


def _chain_up_to(file: BinaryIO, end: int, path: str) -> Chain:
    """The chain up to where the last whole line ends; that line alone is read."""
    begin = _end_of_whole_lines(file, end - 1)
    file.seek(begin)
    try:
        return last_link(file.read(end - begin))
    except ChainError as error:
        raise JournalError(path, 1, f"the last line was damaged: {error}") from None


def _end_of_whole_lines(file: BinaryIO, end: int | None = None) -> int:
    """Where the last line that ends in a newline ends; reads from the back, and only as far as it must.

    Args:
        end: Up to where is looked; None: to the end of the file.
    """
    end = file.seek(0, os.SEEK_END) if end is None else end
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


class LenientJournal(JournalWriter):
    """Where it cannot be written it says so in the log, lets everything go on, and is taken up again once it can be.

    What is there can be replayed: it is whole up to that point, and from where it was taken up, where all that is there begins
    anew and the line says how many steps are missing. So is each of the two files of a journal that has
    a limit: once one is full it becomes `<path>.1`, in place of an older one, and the next begins with the states of all
    deployments. One that another release began is put aside in the same way: each replays with its own.

    Args:
        bytes_max: When a file is full; None: never.
        waits: Whether a new one may begin later, where it cannot be written now; else that is raised.

    Attributes:
        broken: Whether steps are not written now.
        problem: Why, in a line; None: they are.
    """

    broken = False
    problem: str | None = None

    def __init__(self, file: BinaryIO, *, bytes_max: int | None = None, waits: bool = False, **options: Any) -> None:
        self._bytes_max = bytes_max
        self._states: dict[str, Any] = {}
        self._missed = 0  # steps, since the last one that was written
        self._why = ""
        self._again_at = 0.0
        try:
            super().__init__(file, **options)
        except OSError as error:
            if not waits:
                raise
            self._give_up(error)

    @classmethod
    def resume(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """As `JournalWriter.resume`, also where another release began the journal."""
        try:
            return super().resume(path, **options)
        except OtherReleaseError as error:
            LOG.warning("%s; it is put aside", error)
            os.replace(path, f"{os.fspath(path)}.1")
            return super().resume(path, **options)

    @property
    def path(self) -> str:
        """Of the file that is written."""
        return str(self._file.name)

    def begin(self, how: Any, first: AnyStep) -> None:
        """Write down how a deployment began, if that is possible."""
        self._keep(first, partial(super().begin, how, first))

    def append(self, event: Any, result: AnyStep) -> None:
        """Write down an event and its step, if that is possible."""
        self._keep(result, partial(super().append, event, result))

    def end(self, how: str = "closed") -> None:
        """As `JournalWriter.end`, if that is possible."""
        try:
            if not self.broken:
                super().end(how)
        except OSError as error:
            self._give_up(error)

    def _keep(self, step: AnyStep, write: Callable[[], None]) -> None:
        key = self._kind.key_of(step.state)
        self._states[key] = step.state
        if self._kind.is_over(step.state):
            del self._states[key]
        self._missed += 1
        try:
            if self.broken:
                if time.monotonic() >= self._again_at:
                    self._take_up_again()
                return
            write()
            self._missed = 0
            if self._bytes_max is not None and self._file.tell() > self._bytes_max:
                self._begin_another_file()
        except (OSError, JournalError) as error:
            self._give_up(error)

    def _begin_another_file(self) -> None:
        path = self.path
        self.end("continued")
        os.replace(path, f"{path}.1")
        self._file.close()
        self._file = open_alone(path, empty=True)
        self._begin_file()
        self._begin_all({})

    def _begin_file(self) -> None:
        self._chain, self._has_ended = Chain(), False
        self._write_header()

    def _begin_all(self, besides: Mapping[str, Any]) -> None:
        for state in self._states.values():
            how = self._kind.resume(state)
            self._begin(how, self._kind.begin(how), besides)

    def _take_up_again(self) -> None:
        """Go on behind the last whole line; where that fails too, what is there of it is a part of the gap."""
        if not self._file.closed and not _is_at(self._file, self.path):
            self._file.close()  # somebody has removed it to make room, which there is none while it is open
        found = os.statvfs(os.path.dirname(os.path.abspath(self.path)))
        if found.f_bavail * found.f_frsize < ROOM_BYTES:  # a big state takes long to be written in vain
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        if self._file.closed:  # another one is to be begun
            self._file = open_alone(self.path)
            if self._file.seek(0, os.SEEK_END) > 0:
                raise JournalError(self.path, 1, "another process has written it meanwhile")
        end = _end_of_whole_lines(self._file)
        self._file.seek(end)
        self._file.truncate()
        if end == 0:
            self._begin_file()
        else:
            self._chain = _chain_up_to(self._file, end, self.path)
            self._file.seek(end)
        self._begin_all({"gap": {"steps": self._missed, "why": self._why}})
        LOG.warning("the journal %s is written again: %d steps are missing", self.path, self._missed)
        self.broken, self.problem, self._missed = False, None, 0

    def _give_up(self, error: OSError | JournalError) -> None:
        is_final = isinstance(error, JournalError)
        self._again_at = math.inf if is_final else time.monotonic() + AGAIN_S
        why = getattr(error, "strerror", None) or str(error)
        then = "" if is_final else "; it is taken up again once it can be"
        self.problem = f"{self.path} cannot be written: {why}{then}"
        if not self.broken or is_final:
            self._why = why
            LOG.error("the journal %s ends here, since it cannot be written: %s%s", self.path, why, then)
        self.broken = True


def _is_at(file: BinaryIO, path: str) -> bool:
    """Whether an open file is what is found there."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def lenient_journal(path: str | os.PathLike[str], **options: Any) -> LenientJournal | None:
    """Go on with a journal; None: that is not possible, which the log says."""
    try:
        return LenientJournal.resume(path, waits=True, **options)
    except (OSError, JournalError) as error:
        LOG.error("there is no journal: %s", error)
        return None
