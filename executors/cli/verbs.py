"""`rankcore status`, `scale`, `evict` and `delete`: one question each to what runs on Ray, whatever its weights are."""

import json
import re
import time
from datetime import datetime
from functools import partial
from typing import Any

import attrs
import typer

from executors.cli.asked import BAD_INPUT, FAILED, asked, end
from executors.cli.ray_view import NODE_ID_SHOWN, line, lines_of_node, summary, view
from executors.cli.screen import answers
from executors.deployment_ids import meant_by

KEPT = ("WARM", "COLD")
LOOK_EVERY_S = 1.0
SECONDS = re.compile(r"[0-9.]+( of [0-9.]+)? s\b")
"""How long something has lasted, which is no news."""


def status(namespace: str | None, as_json: bool, name: str | None = None) -> None:
    """Do what `commands/status.py` says."""
    found = asked(partial(_look, namespace, name))
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        answers().print(view(found))


def watch(namespace: str | None, name: str | None = None) -> None:
    """Do what `commands/status.py` says of `--watch`."""
    shown: dict[str, str] = {}
    while True:
        found = asked(partial(_look, namespace, name))
        lines = {each.name: line(each) for each in found.deployments.values()}
        for deployment in sorted({*lines, *shown}):
            now = lines.get(deployment, f"{deployment}  gone")
            if SECONDS.sub("", now) != SECONDS.sub("", shown.get(deployment, "")):
                typer.echo(f"{datetime.now():%H:%M:%S}  {now}")
        shown = lines
        time.sleep(LOOK_EVERY_S)


def scale(name: str, replicas: int, namespace: str | None) -> None:
    """Do what `commands/scale.py` says."""
    found = asked(partial(_meant, name, namespace))
    asked(lambda: _api().scale(found, replicas, namespace=namespace))
    _tell(found, namespace)


def roll(verb: str, name: str, namespace: str | None, *arguments: object, **options: object) -> None:
    """Do what `commands/rollouts.py` says: restart, pause, promote, resume, rollback or retry."""
    found = asked(partial(_meant, name, namespace))
    asked(lambda: getattr(_api(), verb)(found, *arguments, **options, namespace=namespace))
    _tell(found, namespace)


def evict(name: str, keep: str, namespace: str | None) -> None:
    """Do what `commands/evict.py` says."""
    if keep.upper() not in KEPT:
        end(f"--keep: expected one of {', '.join(KEPT)}, found {keep!r}", BAD_INPUT)
    name, hash_mark, serial = name.partition("#")
    found = asked(partial(_meant, name, namespace))
    asked(lambda: _api().evict(f"{found}{hash_mark}{serial}", keep=keep.upper(), namespace=namespace))
    _tell(found, namespace)


def tell_of_node(verb: str, node: str, namespace: str | None, **arguments: object) -> None:
    """Do what `commands/nodes.py` says: cordon, uncordon or drain."""
    found = asked(lambda: getattr(_api(), verb)(node, namespace=namespace, **arguments))
    typer.echo("\n".join(lines_of_node(found)))
    if found.state != "open":
        typer.echo(f"`rankcore status` shows how that comes on, `rankcore uncordon {found.node_id[:NODE_ID_SHOWN]}` ends it")


def replace(replicas: list[str], deadline_s: float | None, namespace: str | None) -> None:
    """Do what `commands/nodes.py` says."""
    asked(lambda: _api().replace_replicas(replicas, deadline_s=deadline_s, namespace=namespace))
    for name in sorted({each.partition("#")[0] for each in replicas}):
        _tell(name, namespace)


def delete(name: str, namespace: str | None, timeout_s: float | None) -> None:
    """Do what `commands/delete.py` says."""

    def act() -> None:
        try:
            _api().delete(name, namespace=namespace, timeout_s=timeout_s)
        except TimeoutError as error:
            end(f"{error}; it goes on, see `rankcore status`", FAILED)

    asked(act)
    typer.echo(f"deleted {name}")


def _look(namespace: str | None, name: str | None) -> Any:
    found = _api().status(namespace=namespace)
    return found if name is None else found.only(name)


def _meant(name: str, namespace: str | None) -> str:
    """The full name of the one deployment that has it."""
    from executors.ray_gpu.errors import UnknownNameError, not_one

    status = _api().status(namespace=namespace)
    there_are = (*status.deployments, *status.left_alone)
    found = meant_by(name, there_are)
    if len(found) != 1:
        raise UnknownNameError(not_one("deployment", name, found, there_are))
    return found[0]


def _tell(name: str, namespace: str | None) -> None:
    """Say in a line how it stands, and how to see what becomes of it."""
    found = asked(partial(_look, namespace, name))
    for each in found.deployments.values():
        typer.echo(summary(each))
    typer.echo(f"`rankcore status {name}` shows how that comes on")


def _api() -> Any:
    from executors.ray_gpu import api

    return api
