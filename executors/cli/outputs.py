"""Files that appear whole or not at all: written beside their place and renamed when they are done."""

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from executors.planted import unplanted, unplanted_path
from executors.private_folder import PlaceError


class OutputError(Exception):
    """An output cannot be written. The text is one line and names the path."""


class Outputs:
    """All output files of one command.

    Opening one shows at once whether its place can be written to. `keep` makes them all appear; leaving the `with`
    block without it leaves nothing behind, whether an error, a full disk or a signal ended it.
    """

    def __init__(self) -> None:
        self._pending: dict[Path, Path] = {}
        self._named: dict[Path, str] = {}
        self._kept: list[str] = []

    def interrupted(self) -> str:
        """What to say when the command is interrupted now."""
        return "interrupted, " + (f"written before: {', '.join(self._kept)}" if self._kept else "nothing was written")

    def open(self, option: str, target: Path, inputs: tuple[Path, ...] = ()) -> Path:
        """Reserve a place, and return the path to `write` to until `keep`.

        Raises:
            OutputError: The place cannot be written to, is taken by another output or by another user, or is an input.
        """
        _refuse_kind(option, target)
        final = _place(option, target)
        if final in self._pending:
            raise OutputError(f"{option}: expected a file of its own, found {target}, which is another output too")
        if any(final == _resolved(option, other) for other in inputs):
            raise OutputError(f"{option}: expected a file to write, found {target}, which is an input")
        try:
            pending = final.with_name(f".{_short(final.name)}.{os.getpid()}.part")
            with _signals_held():
                os.close(os.open(pending, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                self._pending[final] = pending
                self._named[final] = f"{option}: {target}"
        except OSError as error:
            raise OutputError(f"{option}: {target} cannot be written: {error.strerror or error}") from None
        return pending

    def write(self, pending: Path, text: str) -> None:
        """Write all of an output to the path that `open` has returned.

        Raises:
            OSError: It cannot be written; a PlaceError where another user has put something in its place.
        """
        with open(pending, "w", encoding="utf-8", opener=unplanted) as file:
            file.write(text)

    def keep(self, besides: Path | None = None) -> None:
        """Everything is written: put it into place; `besides` is what `open` returned for one that is not written yet.

        Raises:
            OutputError: A file could not be put into place.
        """
        with _signals_held():
            for final, pending in tuple(self._pending.items()):
                if pending == besides:
                    continue
                try:
                    pending.replace(final)
                except OSError as error:
                    raise OutputError(f"{self._named[final]} cannot be written: {error.strerror or error}") from None
                del self._pending[final]
                self._kept.append(self._named[final].partition(": ")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        unfinished = dict(self._pending)
        with _signals_held():
            for pending in self._pending.values():
                with suppress(OSError):
                    pending.unlink(missing_ok=True)
            self._pending.clear()
        if isinstance(error, OSError) and unfinished and not isinstance(error, BrokenPipeError):
            # Writing to an open file fails without its name: say which outputs there were.
            named = [self._named[final] for final, part in unfinished.items() if str(part) == str(error.filename)]
            if named or error.filename is None:
                names = ", ".join(named or [self._named[final] for final in unfinished])
                raise OutputError(f"{names} cannot be written: {error.strerror or error}") from None


def _refuse_kind(option: str, target: Path) -> None:
    """Refuse what is there and no regular file; looked at before links are followed, which a pipe's name has too."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return  # not there yet
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise OutputError(f"{option}: {target} cannot be written: {problem}") from None
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "something that is no regular file"
        raise OutputError(f"{option}: expected a file to write, found {target}, which is {kind}")


def _place(option: str, path: Path) -> Path:
    """Where an output is to be; a link is followed if no other user may have put it there."""
    try:
        return Path(unplanted_path(path))
    except PlaceError as error:
        raise OutputError(f"{option}: {error}") from None


def _resolved(option: str, path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise OutputError(f"{option}: {path} cannot be written: {error}") from None


def _short(name: str) -> str:
    """So much of a name that something can be added to it: file systems count bytes."""
    return os.fsencode(name)[:200].decode(errors="ignore")


@contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and its like wait until this is done, so that no file is left that nobody knows of."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
