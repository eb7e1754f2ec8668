"""Files that appear whole or not at all: written beside their place and renamed when they are done."""

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self


class OutputError(Exception):
    """An output cannot be written. The text is one line and names the path."""


class Outputs:
    """All output files of one command.

    Opening one shows at once whether its place can be written to. `keep` makes them all appear; leaving the `with`
    block without it leaves nothing behind.
    """

    def __init__(self) -> None:
        self._pending: dict[Path, Path] = {}

    def open(self, option: str, target: Path, inputs: tuple[Path, ...] = ()) -> Path:
        """Reserve a place, and return the path to write to until `keep`.

        Raises:
            OutputError: The place cannot be written to, is taken by another output, or is an input.
        """
        final = _resolved(option, target)
        if final in self._pending:
            raise OutputError(f"{option}: expected a file of its own, found {target}, which is another output too")
        if any(final == _resolved(option, other) for other in inputs):
            raise OutputError(f"{option}: expected a file to write, found {target}, which is an input")
        try:
            if final.exists() and not stat.S_ISREG(final.stat().st_mode):
                kind = "a directory" if final.is_dir() else "something that is no regular file"
                raise OutputError(f"{option}: expected a file to write, found {target}, which is {kind}")
            pending = final.with_name(f".{final.name[:200]}.{os.getpid()}.part")
            os.close(os.open(pending, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except OSError as error:
            raise OutputError(f"{option}: {target} cannot be written: {error.strerror or error}") from None
        self._pending[final] = pending
        return pending

    def keep(self) -> None:
        """Everything is written: put it into place.

        Raises:
            OutputError: A file could not be put into place.
        """
        for final, pending in tuple(self._pending.items()):
            try:
                pending.replace(final)
            except OSError as error:
                raise OutputError(f"{final} cannot be written: {error.strerror or error}") from None
            del self._pending[final]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pending in self._pending.values():
            pending.unlink(missing_ok=True)
        self._pending.clear()


def _resolved(option: str, path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise OutputError(f"{option}: {str(path)!r} cannot be written: {error}") from None
