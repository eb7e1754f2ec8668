"""Progress bars: on standard error, where there is a terminal, and gone when they are done. Stdout is for the answer alone."""

from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


class Bar:
    """A bar for one piece of work, of which so much is done; `show` moves it."""

    def __init__(self, what: str, counted: ProgressColumn, total: float | None, quiet: bool = False) -> None:
        console = Console(stderr=True)
        columns = (TextColumn(what, markup=False), BarColumn(), counted, TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._progress.add_task(what, total=total)

    def show(self, done: float, total: float | None = None) -> None:
        """So much is done, of so much."""
        self._progress.update(self._task, completed=done, total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def runs_bar(what: str, quiet: bool = False) -> Bar:
    """A bar that counts runs."""
    return Bar(what, MofNCompleteColumn(), None, quiet)


def bytes_bar(what: str, size: int, quiet: bool = False) -> Bar:
    """A bar that counts the bytes of a file."""
    return Bar(what, DownloadColumn(), size, quiet)
