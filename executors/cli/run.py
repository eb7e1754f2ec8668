"""`rankcore run`: deploy an application on Ray, show how it is, and stop it cleanly on Ctrl-C."""

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.live import Live

from executors.cli.ray_view import summary, view

if TYPE_CHECKING:
    from executors.ray_gpu.overview import Status

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
LOOK_EVERY_S = 0.25
STOP_TIMEOUT_S = 60.0


def run(target: str, namespace: str | None, journal: Path | None, detach: bool, replace: bool) -> None:
    """Do what `commands/run.py` says."""
    application = _load(target)
    from executors.ray_gpu import api, connection
    from executors.ray_gpu.errors import DeploymentFailedError, RayExecutorError

    try:
        typer.echo("connecting to Ray; where none runs, one is started on this machine ...", err=True)
        connection.connect(start=not detach)
        options: dict[str, Any] = {"name": target, "namespace": namespace, "replace": replace}
        if journal is not None:
            options["journal"] = str(journal.resolve())
        names = [each.deployment.name for each in api.in_order(application)]
        if detach:
            api.run(application, **options)
            _say(lambda: api.status(namespace=namespace))
            return
        api.run(application, wait=False, **options)
        failure = _watch(lambda: api.status(namespace=namespace), names)
        _stop(lambda: api.delete_all(names, namespace=namespace, timeout_s=STOP_TIMEOUT_S))
    except DeploymentFailedError as error:
        _end(str(error), FAILED)
    except TimeoutError as error:
        _end(f"{error}; it goes on, see `rankcore status`", FAILED)
    except RayExecutorError as error:
        _end(str(error), BAD_INPUT)
    if failure is not None:
        _end(failure, FAILED)


def _watch(look: Callable[[], "Status"], names: list[str]) -> str | None:
    """Show how it is until Ctrl-C, or until a deployment has failed; returns why it has."""
    console = Console(highlight=False)
    said: dict[str, str] = {}
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                status = look()
                if console.is_terminal:
                    live.update(view(status), refresh=True)
                else:
                    _say_changes(status, said)
                for name in names:
                    info = status.deployments.get(name)
                    if info is not None and info.status == "DEPLOY_FAILED":
                        return f"{name} did not come up: {info.message}"
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        return None


def _say(look: Callable[[], "Status"]) -> None:
    Console(highlight=False).print(view(look()))


def _say_changes(status: "Status", said: dict[str, str]) -> None:
    for name, info in status.deployments.items():
        line = summary(info)
        if said.get(name) != line:
            said[name] = line
            typer.echo(line)


def _stop(delete: Callable[[], None]) -> None:
    typer.echo("stopping: calls under way may finish; Ctrl-C again to leave at once", err=True)
    try:
        delete()
    except KeyboardInterrupt:
        typer.echo("rankcore: interrupted while stopping", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo("stopped", err=True)


def _load(target: str) -> Any:
    """The application that MODULE:APP names."""
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name.isidentifier():
        _end(f"expected MODULE:APP, such as examples/sharded_embedding.py:app, found {target!r}", BAD_INPUT)
    sys.path.insert(0, str(Path.cwd()))
    module = _import(place)
    found = getattr(module, name, None)
    if found is None:
        public = [each for each in dir(module) if not each.startswith("_")]
        _end(f"{place} has no {name!r}; it has: {', '.join(public)}", BAD_INPUT)
    from executors.ray_gpu.declaration import Application, Deployment

    if isinstance(found, Deployment):
        _end(f"{target} is a deployment, not an application: write `app = {name}.bind()`", BAD_INPUT)
    if not isinstance(found, Application) and callable(found):
        found = _guarded(place, found)
    if not isinstance(found, Application):
        _end(f"{target} must be what bind() returned, or a function that returns it; found {found!r:.80}", BAD_INPUT)
    return found


def _import(place: str) -> Any:
    if not place.endswith(".py"):
        return _guarded(place, lambda: importlib.import_module(place))
    path = Path(place)
    if not path.is_file():
        _end(f"{place}: there is no such file", BAD_INPUT)
    # Replicas import the module by its name, so that its folder has to be where modules are looked for.
    sys.path.insert(0, str(path.resolve().parent))
    return _guarded(place, lambda: importlib.import_module(path.stem))


def _guarded(place: str, act: Callable[[], Any]) -> Any:
    try:
        return act()
    except ModuleNotFoundError as error:
        if error.name == place:
            _end(f"there is no module {place!r} here or among the installed ones", BAD_INPUT)
        if (error.name or "").partition(".")[0] in ("ray", "torch"):
            raise
        _end(f"{place} cannot be imported: {error}", BAD_INPUT)
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame is not None else place
        _end(f"{where}: {type(error).__name__}: {error}", BAD_INPUT)


def _end(problem: str, status: int) -> NoReturn:
    typer.echo(f"rankcore: error: {problem}", err=True)
    raise typer.Exit(status)
