"""What can go wrong in a command, each in one line on standard error and with the exit status that stands for it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

DIFFERS = PROMISE_BROKEN = 1
BAD_INPUT = 2
INTERRUPTED = 130


class Refusal(Exception):
    """What was asked for cannot be done: one line that says what was found and what is allowed."""


@contextmanager
def told_in_one_line(when_interrupted: str | Callable[[], str]) -> Iterator[None]:
    """Everything that bad input, a full disk or Ctrl-C may raise inside ends the command, with one line and no traceback."""
    try:
        yield
    except typer.Exit:
        raise
    except BrokenPipeError:
        raise  # nobody reads on: `executors.cli.ending` ends quietly
    except OSError as error:
        refuse(f"{error.filename or 'an output'} cannot be used: {error.strerror or error}")
    except KeyboardInterrupt:
        _end(when_interrupted if isinstance(when_interrupted, str) else when_interrupted(), INTERRUPTED)
    except Exception as error:
        status = _status_of(error)
        if status is None:
            raise  # a bug of ours
        _end(f"error: {error}", status)


def _status_of(error: Exception) -> int | None:
    # Imported only now, and the light ones first: who has nothing to tell should not wait for what could go wrong.
    from executors.cli.outputs import OutputError
    from executors.cli.run_files import PageError
    from executors.engine.reading import JournalError
    from executors.simulator.scenario import ScenarioError

    if isinstance(error, (ScenarioError, OutputError, JournalError, Refusal)):
        return BAD_INPUT
    from executors.simulator.clock import StuckError
    from executors.simulator.questions.comparison import NothingInCommon, PromiseBroken
    from executors.workers import WorkersLost

    if isinstance(error, (NothingInCommon, StuckError)):
        return BAD_INPUT
    return PROMISE_BROKEN if isinstance(error, (PromiseBroken, WorkersLost, PageError)) else None


def refuse(problem: str) -> NoReturn:
    """End the command because of bad input."""
    _end(f"error: {problem}", BAD_INPUT)


def warn(text: str) -> None:
    """Say something that does not end the command."""
    typer.echo(f"rankcore: warning: {_one_line(text)}", err=True)


def tell(notes: Iterable[str]) -> None:
    """Say what has to be known of an answer, a line each."""
    for note in notes:
        typer.echo(f"rankcore: note: {_one_line(note)}", err=True)


def _end(text: str, status: int) -> NoReturn:
    typer.echo(f"rankcore: {_one_line(text)}", err=True)
    raise typer.Exit(status) from None


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")  # a path may have line breaks
