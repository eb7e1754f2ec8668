"""What commands are told of an application's arguments, route and environment, checked before anything is asked for."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from executors.cli.asked import BAD_INPUT, end
from executors.deployment_ids import DEFAULT_PREFIX

NO_PREFIX = "none"
"""What `--route-prefix` says where an application is to have no HTTP."""


def args_of(words: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE, as in Ray Serve: the values are text, which a pydantic model makes of it what it is to be."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected KEY=VALUE, found {word[:40]!r}")
        if key in found:
            raise typer.BadParameter(f"expected each key once, found {key!r} again")
        found[key] = value
    return found


def prefix_of(said: str | None) -> str | None:
    """An application's route, by what `--route-prefix` says; None: nothing."""
    return DEFAULT_PREFIX if said is None else None if said == NO_PREFIX else said


def app_dir_first(folder: Path | None) -> None:
    """Modules are looked for in this folder first, here and in local replicas."""
    if folder is None:
        return
    if not folder.is_dir():
        raise typer.BadParameter(f"--app-dir: expected a folder, found {str(folder)!r}")
    path = str(folder.resolve())
    sys.path.insert(0, path)
    os.environ["PYTHONPATH"] = os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])])


def environment_of(file: Path | None, text: str | None, working_dir: str | None) -> dict[str, Any] | None:
    """Ray's environment for the job; None: none is asked for. `working_dir` goes before that of the environment."""
    if file is not None and text is not None:
        raise typer.BadParameter("expected --runtime-env or --runtime-env-json, found both")
    found: Any = {}
    if file is not None or text is not None:
        found = _read(file, text)
    if working_dir is not None:
        found = {**found, "working_dir": working_dir}
    return found or None


def _read(file: Path | None, text: str | None) -> dict[str, Any]:
    from executors.simulator.scenario.errors import ScenarioError
    from executors.simulator.scenario.textfile import read_text
    from executors.simulator.scenario.yamlfile import parse

    source = "--runtime-env-json" if file is None else str(file)
    try:
        found, _ = parse(read_text(file, "runtime environment") if file is not None else str(text), source)
    except ScenarioError as error:
        end(str(error), BAD_INPUT)
    if not isinstance(found, dict):
        end(f"{source}: expected a mapping of names to values, found {found!r:.80}", BAD_INPUT)
    return found
