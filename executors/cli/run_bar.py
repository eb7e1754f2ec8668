"""How far a run is, on stderr."""

from typing import Self

from executors.simulator.times import moment


class RunBar:
    """A progress bar on stderr, where there is a terminal; stdout is for the answer alone."""

    def __init__(self, what: str, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (
            TextColumn(what + " {task.fields[now]}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._progress.add_task("simulate", total=None, now="")

    def show(self, now: float, end: float) -> None:
        """The run is this far."""
        self._progress.update(self._task, completed=min(now, end), total=max(end, 1e-9), now=moment(now))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
