"""`rankcore run`: deploy an application on Ray, show how it is, and stop it cleanly on Ctrl-C."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live

from executors.cli.asked import BAD_INPUT, FAILED, end
from executors.cli.ray_view import summary, view
from executors.deployment_ids import as_application, deployment_id

if TYPE_CHECKING:
    from executors.ray_gpu.declaration import Application
    from executors.ray_gpu.overview import Status

INTERRUPTED = 130
LOOK_EVERY_S = 0.25
STOP_TIMEOUT_S = 60.0


def run(
    target: str,
    namespace: str | None,
    journal: Path | None,
    detach: bool,
    replace: bool,
    route_prefix: str | None = None,
    http_port: int | None = None,
    name: str | None = None,
) -> None:
    """Do what `commands/run.py` says."""
    application = load(target)
    from executors.ray_gpu import api, connection
    from executors.ray_gpu.applications import in_order
    from executors.ray_gpu.errors import DeploymentFailedError, RayExecutorError

    try:
        typer.echo("connecting to Ray; where none runs, one is started on this machine ...", err=True)
        connection.connect(start=not detach)
        app_name = name or as_application(target)
        options: dict[str, Any] = {"name": app_name, "namespace": namespace, "replace": replace}
        if journal is not None:
            options["journal"] = str(journal.resolve())
        if http_port is not None:
            api.start(
                **{key: options[key] for key in ("namespace", "journal") if key in options}, http_options={"port": http_port}
            )
        options["route_prefix"] = route_prefix
        names = [deployment_id(app_name, each) for each in in_order(application)]
        if detach:
            api.run(application, **options)
            _say(lambda: api.status(namespace=namespace))
            return
        api.run(application, wait=False, **options)
        failure = watch(lambda: api.status(namespace=namespace), names)
        stop(lambda: api.delete_all(names, namespace=namespace, timeout_s=STOP_TIMEOUT_S))
    except DeploymentFailedError as error:
        end(str(error), FAILED)
    except TimeoutError as error:
        end(f"{error}; it goes on, see `rankcore status`", FAILED)
    except RayExecutorError as error:
        end(str(error), BAD_INPUT)
    if failure is not None:
        end(failure, FAILED)


def watch(look: Callable[[], "Status"], names: list[str], go_on: Callable[[float], None] = time.sleep) -> str | None:
    """Show how it is until Ctrl-C, or until a deployment has not come up; returns why it has not.

    Args:
        look: How is it?
        names: Of the deployments that are to come up. One that has once been healthy here is only shown: if it fails later, by
            a change that does not work, what was healthy last serves, and another change mends it.
        go_on: Lets that many seconds pass.
    """
    console = Console(highlight=False)
    said: dict[str, str] = {}
    starting = set(names)
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                status = look()
                if console.is_terminal:
                    live.update(view(status), refresh=True)
                else:
                    _say_changes(status, said)
                for name in sorted(starting):
                    info = status.deployments.get(name)
                    if info is not None and info.status == "HEALTHY":
                        starting.remove(name)
                    elif info is not None and info.status == "DEPLOY_FAILED":
                        return f"{name} did not come up: {info.message}"
                go_on(LOOK_EVERY_S)
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


def stop(delete: Callable[[], None]) -> None:
    """Stop it, for all that Ctrl-C says in the meantime."""
    typer.echo("stopping: calls under way may finish; Ctrl-C again to leave at once", err=True)
    try:
        delete()
    except KeyboardInterrupt:
        typer.echo("rankcore: interrupted while stopping", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo("stopped", err=True)


def load(target: str) -> "Application":
    """The application that MODULE:APP names."""
    from executors.loading import LoadError, load_application
    from executors.shadowing import hidden, warning_of

    try:
        application = load_application(target)
    except LoadError as error:
        end(str(error), BAD_INPUT)
    if (other := hidden()) is not None:
        typer.echo(f"rankcore: warning: {warning_of(other)}", err=True)
    return application
