"""`rankcore replay`: run a journal again and fail at the first line that differs."""

from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from executors.engine.kinds import AnyStep, JournalLine
from executors.engine.reading import JournalError
from executors.engine.replay import FINGERPRINT, Difference, ReplayResult, replay

DIFFERS = 1
BAD_INPUT = 2


def run(journal: Path, complete: bool) -> None:
    """What `rankcore replay` does, errors and exit status included.

    Args:
        complete: Whether what is missing of the journal is an error.
    """
    try:
        result = _with_progress(journal)
    except JournalError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{journal}: {error.strerror or error}")
    if result.warning is not None and complete and result.difference is None:
        _refuse(result.warning)
    if result.warning is not None:
        typer.echo(f"rankcore: warning: {result.warning}", err=True)
    if result.difference is not None:
        typer.echo(f"{result.difference}{_agrees_but_for_states(journal, result.difference)}", err=True)
        raise typer.Exit(DIFFERS)
    typer.echo(f"{journal}: {result.steps:,} steps of {_whose(result)} agree, with {result.fingerprints:,} fingerprint(s)")


def _agrees_but_for_states(journal: Path, difference: Difference) -> str:
    """What there is to say of a journal in which only the texts of states differ; "": more does."""
    noted = []

    def look(entry: JournalLine[Any, Any, Any], _before: object, step: AnyStep) -> None:
        noted.append(entry.notes == step.notes)

    if difference.what != FINGERPRINT:
        return ""
    result = replay(journal, None, look=look, exact=False)
    if result.difference is not None or not all(noted):
        return ""
    return f"; commands and notes agree in all {result.steps:,} steps: most likely the states of its build had other fields"


def _whose(result: ReplayResult) -> str:
    if result.kind.whose is None:
        return f"a {result.kind.name} with {result.kind.extent(result.state) if result.states else 'nothing'}"
    return f"{len(result.states)} deployment(s) ({', '.join(sorted(result.states))})"


def _with_progress(journal: Path) -> ReplayResult:
    # On stderr, where there is a terminal, and gone when it is done: stdout is for the answer alone.
    console = Console(stderr=True)
    columns = (TextColumn("replay"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("replay", total=journal.stat().st_size)
        return replay(journal, None, progress=lambda position: bar.update(task, completed=position))


def _refuse(problem: str) -> NoReturn:
    typer.echo(f"rankcore: error: {problem}", err=True)
    raise typer.Exit(BAD_INPUT)
