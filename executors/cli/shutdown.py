"""`rankcore shutdown`: everything of a namespace is ended."""

import sys
from functools import partial
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, FAILED, asked, end
from executors.cli.backends import default_namespace


def shutdown(yes: bool, namespace: str | None, timeout_s: float | None) -> None:
    """Do what `commands/shutdown.py` says."""
    namespace = namespace or default_namespace()
    there_are = asked(partial(_deployments, namespace))
    has = "what it has: it does not answer" if there_are is None else f"{len(there_are)} deployments"
    what = f"the controller of {namespace!r}, its proxies, and {has}"
    if not yes:
        if not is_terminal():
            end(f"--yes is missing: it would end {what}", BAD_INPUT)
        for name in there_are or ():
            typer.echo(f"  {name}")
        if not typer.confirm(f"End {what}?"):
            raise typer.Exit(FAILED)
    asked(partial(_api().shutdown, namespace=namespace, timeout_s=timeout_s))
    typer.echo(f"ended {what}")


def _deployments(namespace: str) -> list[str] | None:
    """What there is; None: a controller that does not answer has it, and is ended all the same."""
    from executors.ray_gpu.errors import NoAnswerError

    try:
        return sorted(_api().status(namespace=namespace).deployments)
    except NoAnswerError:
        return None


def is_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty()


def _api() -> Any:
    from executors.ray_gpu import api

    return api
