"""`rankcore shutdown`: everything of a namespace is ended."""

import json
import sys
from functools import partial
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, FAILED, asked, end, status_of
from executors.cli.backends import Backend, default_namespace

ANSWER_S = 60.0
LOOK_S = 2.0
"""Where nobody is to be asked, what there is is looked for no longer than this, or than the end may take."""


def shutdown(
    yes: bool, namespace: str | None, timeout_s: float | None, executor: Backend = Backend.RAY, as_json: bool = False
) -> None:
    """Do what `commands/shutdown.py` says."""
    namespace = namespace or default_namespace()
    api = asked(partial(_api, executor))
    patience_s = min(ANSWER_S, max(LOOK_S, timeout_s)) if yes and timeout_s is not None else ANSWER_S
    there_are = asked(partial(_deployments, api, namespace, patience_s))
    has = "what it has: it does not answer" if there_are is None else f"{len(there_are)} deployments"
    controllers = "the controller" if executor is Backend.RAY else "the commands"
    what = f"{controllers} of {namespace!r}, {'its proxies, ' if executor is Backend.RAY else ''}and {has}"
    if not yes:
        if not is_terminal():
            end(f"--yes is missing: it would end {what}", BAD_INPUT)
        for name in there_are or ():
            typer.echo(f"  {name}")
        if not typer.confirm(f"End {what}?"):
            raise typer.Exit(FAILED)
    asked(partial(api.shutdown, namespace=namespace, timeout_s=timeout_s))
    typer.echo(json.dumps({"ended": there_are or []}) if as_json else f"ended {what}")


def _deployments(api: Any, namespace: str, patience_s: float) -> list[str] | None:
    """What there is; None: a controller that does not answer has it, and is ended all the same."""
    from executors.ray_gpu.errors import NoAnswerError

    try:
        return sorted(status_of(api, namespace, timeout_s=patience_s).deployments)
    except NoAnswerError:
        return None


def is_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty()


def _api(executor: Backend) -> Any:
    if executor is Backend.LOCAL:
        from executors.local import api as local

        return local
    from executors.ray_gpu import api

    return api
