"""`rankcore status`, `scale`, `restart`, `drain` and the like: one question each to what runs, on Ray or on this machine."""

import json
import re
import time
from datetime import datetime
from functools import partial
from typing import Any

import attrs
import typer

from executors.cli.asked import BAD_INPUT, FAILED, asked, end
from executors.cli.backends import Backend
from executors.cli.ray_view import line, lines_of_node, shown_of, summary, view
from executors.cli.screen import answers
from executors.deployment_ids import meant_by

KEPT = ("WARM", "COLD")
LOOK_EVERY_S = 1.0
_WHERE = {Backend.RAY: "", Backend.LOCAL: " --executor local"}
SECONDS = re.compile(r"[0-9.]+( of [0-9.]+)? s\b")
"""How long something has lasted, which is no news."""


def status(namespace: str | None, as_json: bool, name: str | None = None) -> None:
    """Do what `commands/status.py` says."""
    found = asked(partial(_look, namespace, name))
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        answers().print(view(found))


def watch(namespace: str | None, name: str | None = None, executor: Backend = Backend.RAY) -> None:
    """Do what `commands/status.py` says of `--watch`."""
    shown: dict[str, str] = {}
    while True:
        found = asked(partial(_look, namespace, name, executor))
        lines = {each.name: line(each) for each in found.deployments.values()}
        for deployment in sorted({*lines, *shown}):
            now = lines.get(deployment, f"{deployment}  gone")
            if SECONDS.sub("", now) != SECONDS.sub("", shown.get(deployment, "")):
                typer.echo(f"{datetime.now():%H:%M:%S}  {now}")
        shown = lines
        time.sleep(LOOK_EVERY_S)


def scale(name: str, replicas: int, namespace: str | None, executor: Backend = Backend.RAY) -> None:
    """Do what `commands/scale.py` says."""
    found = asked(partial(_meant, name, namespace, executor))
    asked(lambda: _api(executor).scale(found, replicas, namespace=namespace))
    _tell(found, namespace, executor)


def roll(verb: str, name: str, namespace: str | None, executor: Backend, *arguments: object, **options: object) -> None:
    """Do what `commands/rollouts.py` says: restart, pause, promote, resume, rollback or retry."""
    found = asked(partial(_meant, name, namespace, executor))
    asked(lambda: getattr(_api(executor), verb)(found, *arguments, **options, namespace=namespace))
    _tell(found, namespace, executor)


def evict(name: str, keep: str, namespace: str | None, executor: Backend = Backend.RAY) -> None:
    """Do what `commands/evict.py` says."""
    if keep.upper() not in KEPT:
        end(f"--keep: expected one of {', '.join(KEPT)}, found {keep!r}", BAD_INPUT)
    name, hash_mark, serial = name.partition("#")
    found = asked(partial(_meant, name, namespace, executor))
    asked(lambda: _api(executor).evict(f"{found}{hash_mark}{serial}", keep=keep.upper(), namespace=namespace))
    _tell(found, namespace, executor)


def tell_of_node(verb: str, node: str, namespace: str | None, executor: Backend, **arguments: object) -> None:
    """Do what `commands/nodes.py` says: cordon, uncordon or drain."""
    found = asked(lambda: getattr(_api(executor), verb)(node, namespace=namespace, **arguments))
    typer.echo("\n".join(lines_of_node(found)))
    if found.state != "open":
        ends = f"rankcore uncordon {shown_of(found)}{_WHERE[executor]}"
        typer.echo(f"`rankcore status{_WHERE[executor]}` shows how that comes on, `{ends}` ends it")


def replace(replicas: list[str], deadline_s: float | None, namespace: str | None, executor: Backend) -> None:
    """Do what `commands/nodes.py` says."""
    asked(lambda: _api(executor).replace_replicas(replicas, deadline_s=deadline_s, namespace=namespace))
    for name in sorted({each.partition("#")[0] for each in replicas}):
        _tell(name, namespace, executor)


def delete(name: str, namespace: str | None, timeout_s: float | None, executor: Backend = Backend.RAY) -> None:
    """Do what `commands/delete.py` says."""

    def act() -> None:
        try:
            _api(executor).delete(name, namespace=namespace, timeout_s=timeout_s)
        except TimeoutError as error:
            end(f"{error}; it goes on, see `rankcore status`", FAILED)

    asked(act)
    typer.echo(f"deleted {name}")


def _look(namespace: str | None, name: str | None, executor: Backend = Backend.RAY) -> Any:
    found = _api(executor).status(namespace=namespace)
    return found if name is None else found.only(name)


def _meant(name: str, namespace: str | None, executor: Backend) -> str:
    """The full name of the one deployment that has it."""
    from executors.ray_gpu.errors import UnknownNameError, not_one

    status = _api(executor).status(namespace=namespace)
    there_are = (*status.deployments, *status.left_alone)
    found = meant_by(name, there_are)
    if len(found) != 1:
        raise UnknownNameError(not_one("deployment", name, found, there_are))
    return found[0]


def _tell(name: str, namespace: str | None, executor: Backend) -> None:
    """Say in a line how it stands, and how to see what becomes of it."""
    found = asked(partial(_look, namespace, name, executor))
    for each in found.deployments.values():
        typer.echo(summary(each))
    typer.echo(f"`rankcore status {name}{_WHERE[executor]}` shows how that comes on")


def _api(executor: Backend) -> Any:
    if executor is Backend.LOCAL:
        from executors.local import api as local

        return local
    from executors import ray_gpu

    return ray_gpu
