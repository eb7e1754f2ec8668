"""`rankcore shutdown`: everything of a namespace is ended."""

import json
import os
import sys
from functools import partial
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, FAILED, asked, end, status_of
from executors.cli.backends import RAY, REST_ADDRESS, api_of, by_rest, default_namespace

ANSWER_S = 60.0
LOOK_S = 2.0
"""Where nobody is to be asked, what there is is looked for no longer than this, or than the end may take."""


def shutdown(yes: bool, namespace: str | None, timeout_s: float | None, executor: str = RAY, as_json: bool = False) -> None:
    """Do what `commands/shutdown.py` says."""
    api = asked(partial(api_of, executor))
    is_rest = executor == RAY and by_rest() is not None  # a server has one namespace, whatever it is called
    namespace = namespace if is_rest else namespace or default_namespace()
    patience_s = min(ANSWER_S, max(LOOK_S, timeout_s)) if yes and timeout_s is not None else ANSWER_S
    there_are = asked(partial(_deployments, api, namespace, patience_s))
    has = "what it has: it does not answer" if there_are is None else f"{len(there_are)} deployments"
    controllers = "the controller" if executor == RAY else "the commands"
    whose = repr(namespace) if namespace is not None else os.environ[REST_ADDRESS]
    what = f"{controllers} of {whose}, {'its proxies, ' if executor == RAY else ''}and {has}"
    if not yes:
        if not is_terminal():
            end(f"--yes is missing: it would end {what}", BAD_INPUT)
        for name in there_are or ():
            typer.echo(f"  {name}")
        if not typer.confirm(f"End {what}?"):
            raise typer.Exit(FAILED)
    asked(partial(api.shutdown, namespace=namespace, timeout_s=timeout_s))
    typer.echo(json.dumps({"ended": there_are or []}) if as_json else f"ended {what}")


def _deployments(api: Any, namespace: str | None, patience_s: float) -> list[str] | None:
    """What there is; None: a controller that does not answer has it, and is ended all the same."""
    from executors.ray_gpu.errors import NoAnswerError

    try:
        return sorted(status_of(api, namespace, timeout_s=patience_s).deployments)
    except NoAnswerError:
        return None


def is_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty()
