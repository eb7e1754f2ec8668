"""`rankcore status`, `scale`, `restart`, `drain` and the like: one question each to what runs, on Ray or on this machine."""

import json
import time
from datetime import datetime
from functools import partial
from typing import Any

import attrs
import msgspec
import typer
from rich.console import Console

from executors.cli.asked import BAD_INPUT, FAILED, asked, end, status_of
from executors.cli.backends import RAY, api_of
from executors.cli.ray_view import NODE_ID_SHOWN, line, lines_of_node, shown_of, size, summary, view, without_times
from executors.cli.screen import answers
from executors.deployment_ids import meant_by

KEPT = ("WARM", "COLD")
LOOK_EVERY_S = 1.0
GONE = (
    "its controller is gone, and this is how it was: the same `rankcore run` takes the replicas over; "
    "they end by themselves after 10 minutes"
)
SILENT = "this is how it was when its command wrote that down last: "


def status(namespace: str | None, as_json: bool, name: str | None = None) -> None:
    """Do what `commands/status.py` says."""
    found = asked(partial(_look, namespace, name))
    if as_json:
        typer.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        answers().print(view(found))


def status_here(namespace: str, as_json: bool, name: str | None = None) -> None:
    """Do the same by what the controllers of this machine say, and how it was with those that are gone."""
    from executors.private_folder import PlaceError
    from executors.ray_gpu.errors import UnknownNameError, not_one
    from executors.run.api import last_statuses
    from executors.run.files import DamagedFileError

    try:
        found = last_statuses(namespace)
    except PlaceError as error:
        end(str(error), BAD_INPUT)
    if not found:
        end(f"nothing runs on this machine in namespace {namespace!r}: see `rankcore run --help`", BAD_INPUT)
    damaged, shown = False, 0
    for status, speaker, why in found:
        if isinstance(status, DamagedFileError):
            typer.echo(f"rankcore: error: {status}", err=True)
            damaged = True
            continue
        if name is not None:
            try:
                status = status.only(name)
            except UnknownNameError:
                continue
        shown += 1
        if as_json:
            typer.echo(msgspec.json.encode(status).decode())
        else:
            Console(highlight=False).print(view(status))
        if speaker != "answers":
            typer.echo(GONE if speaker == "is gone" else f"{SILENT}{why}", err=as_json)
    if damaged:
        raise typer.Exit(BAD_INPUT)
    if not shown:
        there_are = [each for status, *_ in found if not isinstance(status, DamagedFileError) for each in status.deployments]
        end(not_one("application or deployment", str(name), (), there_are), BAD_INPUT)


def watch(namespace: str | None, name: str | None = None, executor: str = RAY, as_json: bool = False) -> None:
    """Do what `commands/status.py` says of `--watch`."""
    shown: dict[str, str] = {}
    while True:
        found = asked(partial(_look, namespace, name, executor))
        lines = {each.name: line(each) for each in found.deployments.values()}
        for deployment in sorted({*lines, *shown}):
            now = lines.get(deployment, f"{deployment}  gone")
            if without_times(now) != without_times(shown.get(deployment, "")):
                info = found.deployments.get(deployment)
                gone = {"name": deployment, "status": "GONE"}
                as_text = json.dumps(gone if info is None else attrs.asdict(info)) if as_json else ""
                typer.echo(as_text or f"{datetime.now():%H:%M:%S}  {now}")
        shown = lines
        time.sleep(LOOK_EVERY_S)


@attrs.frozen
class Said:
    """To whom a verb is said, and how its answer is printed."""

    namespace: str | None
    executor: str = RAY
    as_json: bool = False

    @property
    def where(self) -> str:
        """What a command that is proposed is to say of it."""
        return "" if self.executor == RAY else f" --executor {self.executor}"

    @property
    def api(self) -> Any:
        """The functions of who is asked."""
        return asked(partial(api_of, self.executor))


def scale(said: Said, name: str, number: int, stop_first: tuple[str, ...]) -> None:
    """Do what `commands/scale.py` says."""
    first = asked(partial(_replicas_meant, name, stop_first, said)) if stop_first else ()
    of_deployment(said, "scale", name, number, **({"stop_first": first} if first else {}))


def of_deployment(said: Said, verb: str, name: str, /, *arguments: object, **options: object) -> None:
    """Ask for something of one deployment: scale, update, restart, pause, promote, resume, rollback or retry."""
    found = asked(partial(_meant, name, said))
    asked(lambda: getattr(said.api, verb)(found, *arguments, **options, namespace=said.namespace))
    _tell((found,), said)


def evict(said: Said, name: str, keep: str) -> None:
    """Do what `commands/evict.py` says."""
    if keep.upper() not in KEPT:
        end(f"--keep: expected one of {', '.join(KEPT)}, found {keep!r}", BAD_INPUT)
    name, hash_mark, serial = name.partition("#")
    found = asked(partial(_meant, name, said))
    asked(lambda: said.api.evict(f"{found}{hash_mark}{serial}", keep=keep.upper(), namespace=said.namespace))
    _tell((found,), said)


def of_node(said: Said, verb: str, node: str, **arguments: object) -> None:
    """Do what `commands/nodes.py` says: cordon, uncordon or drain."""
    found = asked(lambda: getattr(said.api, verb)(node, namespace=said.namespace, **arguments))
    if said.as_json:
        return print_json(attrs.asdict(found))
    typer.echo("\n".join(lines_of_node(found)))
    if found.state != "open":
        ends = f"rankcore uncordon {shown_of(found)}{said.where}"
        typer.echo(f"`rankcore status{said.where}` shows how that comes on, `{ends}` ends it")


def of_replicas(said: Said, verb: str, replicas: list[str], **options: object) -> None:
    """Do what `commands/nodes.py` says: replace or stop."""
    asked(lambda: getattr(said.api, verb)(replicas, **options, namespace=said.namespace))
    _tell(tuple(sorted({each.partition("#")[0] for each in replicas})), said)


def delete(said: Said, name: str, timeout_s: float | None) -> None:
    """Do what `commands/delete.py` says."""

    def act() -> None:
        try:
            said.api.delete(name, namespace=said.namespace, timeout_s=timeout_s)
        except TimeoutError as error:
            end(f"{error}; it goes on, see `rankcore status`", FAILED)

    asked(act)
    if said.as_json:
        return print_json({"deleted": name})
    typer.echo(f"deleted {name}")


def propose_defragmentation(said: Said, name: str | None) -> None:
    """Do what `commands/defragment.py` says."""
    found = asked(lambda: said.api.propose_defragmentation(name, namespace=said.namespace))
    if said.as_json:
        return print_json(msgspec.to_builtins(found))
    if not found.moves:
        typer.echo(f"{found.model}: {found.because}" if found.model is not None else found.because)
        return
    where, what = _place(found.node_id, found.gpus), f"{len(found.moves)} moves of {size(found.bytes_moved)}"
    typer.echo(f"{found.model} would fit on {where} after {what}:")
    for each in found.moves:
        places = f"{_place(each.from_node, each.from_gpus)} -> {_place(each.to_node, each.to_gpus)}"
        typer.echo(f"  {each.replica_id}: {places}, {size(each.bytes_moved)}")


def print_json(found: object) -> None:
    """For programs."""
    typer.echo(json.dumps(found, indent=2))


def _place(node_id: str, gpus: tuple[int, ...]) -> str:
    return f"{node_id[:NODE_ID_SHOWN]}, GPU {', '.join(map(str, gpus))}"


def _look(namespace: str | None, name: str | None, executor: str = RAY) -> Any:
    found = status_of(api_of(executor), namespace)
    return found if name is None else found.only(name)


def _meant(name: str, said: Said) -> str:
    """The full name of the one deployment that has it."""
    from executors.ray_gpu.errors import UnknownNameError, not_one

    status = status_of(said.api, said.namespace)
    there_are = (*status.deployments, *status.left_alone)
    found = meant_by(name, there_are)
    if len(found) != 1:
        raise UnknownNameError(not_one("deployment", name, found, there_are))
    return found[0]


def _replicas_meant(name: str, replicas: tuple[str, ...], said: Said) -> tuple[str, ...]:
    """The ids of replicas of one deployment: one that it does not have would stop another in its place."""
    from executors.operations import replicas_meant

    deployment = _meant(name, said)
    info = status_of(said.api, said.namespace).deployments.get(deployment)
    known = [] if info is None else [each.replica_id for each in info.replicas]
    return replicas_meant(replicas, {each: each for each in known}, f"{deployment} has no replica")


def _tell(names: tuple[str, ...], said: Said) -> None:
    """Say of each in a line how it stands, and how to see what becomes of it."""
    found = [asked(partial(_look, said.namespace, name, said.executor)) for name in names]
    infos = {name: info for each in found for name, info in each.deployments.items()}
    if said.as_json:
        return print_json({"deployments": {name: attrs.asdict(info) for name, info in infos.items()}})
    for info in infos.values():
        typer.echo(summary(info))
    for name in names:
        typer.echo(f"`rankcore status {name}{said.where}` shows how that comes on")
