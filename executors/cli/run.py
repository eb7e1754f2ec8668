"""`rankcore run`: deploy an application on Ray, show how it is, and stop it cleanly on Ctrl-C."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import typer
from rich.console import Console
from rich.live import Live

from executors.cli.asked import BAD_INPUT, FAILED, end
from executors.cli.ray_view import summary, view, without_times
from executors.deployment_ids import as_application, deployment_id

if TYPE_CHECKING:
    from executors.ray_gpu.declaration import Application
    from executors.ray_gpu.overview import Status

INTERRUPTED = 130
LOOK_EVERY_S = 0.25
LEAVING = ("DRAINING", "FAILED")
"""While a version has failed, whoever is in another state runs what was healthy last, or comes up with it."""
STOP_TIMEOUT_S = 60.0


@attrs.frozen(kw_only=True)
class RunAsked:
    """What `rankcore run` was asked for.

    Attributes:
        args: For a function that returns the application.
        runtime_env: Of the job, and so of all that is deployed; None: none.
        reload_of: A folder: what changes there is deployed anew; None: nothing is looked at.
    """

    target: str
    args: Mapping[str, Any] = attrs.Factory(dict)
    namespace: str | None = None
    journal: Path | None = None
    detach: bool = False
    replace: bool = False
    route_prefix: str | None = None
    http_port: int | None = None
    name: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    reload_of: Path | None = None


def run(wanted: RunAsked) -> None:
    """Do what `commands/run.py` says."""
    application = load(wanted.target, wanted.args)
    from executors.ray_gpu import api, connection
    from executors.ray_gpu.applications import in_order
    from executors.ray_gpu.errors import DeploymentFailedError, RayExecutorError
    from executors.ray_gpu.packing import Origin

    namespace = wanted.namespace
    try:
        typer.echo("connecting to Ray; where none runs, one is started on this machine ...", err=True)
        connection.connect(start=not wanted.detach, runtime_env=wanted.runtime_env)
        app_name = wanted.name or as_application(wanted.target)
        options: dict[str, Any] = {"namespace": namespace}
        if wanted.journal is not None:
            options["journal"] = str(wanted.journal.resolve())
        if wanted.http_port is not None:
            api.start(**options, http_options={"port": wanted.http_port})
        origin = Origin(wanted.target, wanted.args, wanted.runtime_env or {})

        def deploy(found: "Application", wait: bool, replace: bool) -> None:
            target = api.RunTarget(found, app_name, wanted.route_prefix, origin=origin)
            api.run_many([target], wait=wait, replace=replace, **options)

        names = [deployment_id(app_name, each) for each in in_order(application)]
        deploy(application, wanted.detach, wanted.replace)
        if wanted.detach:
            _say(lambda: api.status(namespace=namespace))
            return
        go_on: Callable[[float], None] = time.sleep
        if wanted.reload_of is not None:
            from executors.cli.reloading import Reloading

            again = partial(load_again, wanted.target, wanted.args)
            go_on = Reloading(wanted.reload_of, lambda changed: deploy(again(changed), wait=False, replace=True)).go_on
        failure = watch(lambda: api.status(namespace=namespace), names, go_on)
        stop(lambda: api.delete_all(_names_of(api, app_name, namespace, names), namespace=namespace, timeout_s=STOP_TIMEOUT_S))
    except DeploymentFailedError as error:
        end(str(error), FAILED)
    except TimeoutError as error:
        end(f"{error}; it goes on, see `rankcore status`", FAILED)
    except RayExecutorError as error:
        end(str(error), BAD_INPUT)
    if failure is not None:
        end(failure, FAILED)


def _names_of(api: Any, app_name: str, namespace: str | None, names: list[str]) -> list[str]:
    """The deployments of an application: those of the code that was run first, and those that came by a reload."""
    there = api.status(namespace=namespace).deployments
    return sorted({*names, *(each for each, info in there.items() if info.app_name == app_name)})


def watch(look: Callable[[], "Status"], names: list[str], go_on: Callable[[float], None] = time.sleep) -> str | None:
    """Show how it is until Ctrl-C, or until a deployment has not come up; returns why it has not.

    Args:
        look: How is it?
        names: Of the deployments that are to come up. One that has once been healthy is only shown, here or before: if it
            fails, by a change that does not work, what was healthy last serves, and another change mends it.
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
                        if all(each.state in LEAVING for each in info.replicas):
                            return f"{name} did not come up: {info.message}"
                        starting.remove(name)
                go_on(LOOK_EVERY_S)
    except KeyboardInterrupt:
        return None


def _say(look: Callable[[], "Status"]) -> None:
    Console(highlight=False).print(view(look()))


def _say_changes(status: "Status", said: dict[str, str]) -> None:
    for name, info in status.deployments.items():
        line = summary(info)
        if said.get(name) != (news := without_times(line)):
            said[name] = news
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


def load(target: str, args: Mapping[str, Any]) -> "Application":
    """The application that MODULE:APP names."""
    from executors.loading import LoadError, load_application
    from executors.shadowing import hidden, warning_of

    try:
        application = load_application(target, args)
    except LoadError as error:
        end(str(error), BAD_INPUT)
    if (other := hidden()) is not None:
        typer.echo(f"rankcore: warning: {warning_of(other)}", err=True)
    return application


def load_again(target: str, args: Mapping[str, Any], folder: Path) -> "Application":
    """The same, of modules of a folder as they are now.

    Raises:
        LoadError: It cannot be had any more.
    """
    from executors.loading import forget_modules_of, load_application

    forget_modules_of(folder)
    return load_application(target, args)
