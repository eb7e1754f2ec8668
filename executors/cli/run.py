"""`rankcore run`: deploy an application on Ray, show how it is, and stop it cleanly on Ctrl-C."""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import typer
from rich.console import Console
from rich.live import Live

from executors.apps.file import FILES
from executors.cli.asked import BAD_INPUT, FAILED, asked, end
from executors.cli.ray_view import summary, view, without_times
from executors.cli.run_options import prefix_of
from executors.deployment_ids import as_application, deployment_id
from executors.loading import forget_modules_of

if TYPE_CHECKING:
    from executors.apps.file import AppsFile
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
        route_prefix: As the option says it; None: it does not.
        runtime_env: Of the job, and so of all that is deployed; None: none.
        reload_of: A folder: what changes there is deployed anew; None: nothing is looked at.
        import_timeout_s: So long each import of code may take; None: as long as it takes.
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
    import_timeout_s: float | None = None


@attrs.frozen
class RunnableTarget:
    """What is run: an application of a module, or those of a file.

    Attributes:
        app_names: Of the applications.
        names: Of their deployments, as they were deployed first.
        deploy: Deploy it; `wait`: until it is healthy, `replace`: also in the place of other classes.
        again: Read it anew, of which modules of a folder have changed, and deploy it.
    """

    app_names: tuple[str, ...]
    names: tuple[str, ...]
    deploy: Callable[[bool, bool], object]
    again: Callable[[Path], object]


def run(wanted: RunAsked) -> None:
    """Do what `commands/run.py` says."""
    is_file = Path(wanted.target).suffix in FILES
    prepare: Callable[[], RunnableTarget]
    if is_file:
        prepare = partial(_file, wanted, asked(partial(_read, wanted)))
    else:
        prepare = partial(_application, wanted, load(wanted.target, wanted.args, wanted.import_timeout_s))
    from executors.ray_gpu import connection, deploying, inspecting
    from executors.ray_gpu.errors import DeploymentFailedError, RayExecutorError
    from executors.simulator.scenario.errors import ScenarioError

    namespace = wanted.namespace
    try:
        typer.echo("connecting to Ray; where none runs, one is started on this machine ...", err=True)
        connection.connect(start=not wanted.detach, runtime_env=wanted.runtime_env)
        running = prepare()
        running.deploy(wanted.detach, wanted.replace)
        if wanted.detach:
            _say(lambda: inspecting.status(namespace=namespace))
            return
        go_on: Callable[[float], None] = time.sleep
        if wanted.reload_of is not None:
            from executors.cli.reloading import Reloading

            go_on = Reloading(wanted.reload_of, partial(_deploy_again, wanted, running)).go_on
        failure = watch(lambda: inspecting.status(namespace=namespace), running.names, go_on)
        stop(lambda: deploying.delete_all(_names_of(running, namespace), namespace=namespace, timeout_s=STOP_TIMEOUT_S))
    except DeploymentFailedError as error:
        end(str(error), FAILED)
    except TimeoutError as error:
        end(f"{error}; it goes on, see `rankcore status`", FAILED)
    except (RayExecutorError, ScenarioError) as error:
        end(str(error), BAD_INPUT)
    if failure is not None:
        end(failure, FAILED)


def _options(wanted: RunAsked) -> dict[str, Any]:
    journal = {} if wanted.journal is None else {"journal": str(wanted.journal.resolve())}
    return {"namespace": wanted.namespace, **journal}


def _application(wanted: RunAsked, application: "Application") -> RunnableTarget:
    """That of MODULE:APP. The process is connected."""
    from executors.ray_gpu import deploying, instance
    from executors.ray_gpu.applications import in_order
    from executors.ray_gpu.packing import Origin

    prefix = prefix_of(wanted.route_prefix)
    app_name, options = wanted.name or as_application(wanted.target), _options(wanted)
    if wanted.http_port is not None:
        instance.start(**options, http_options={"port": wanted.http_port})
    origin = Origin(wanted.target, wanted.args, wanted.runtime_env or {})

    def deploy(found: "Application", wait: bool, replace: bool) -> None:
        target = deploying.RunTarget(found, app_name, prefix, origin=origin)
        deploying.run_many([target], wait=wait, replace=replace, **options)

    return RunnableTarget(
        app_names=(app_name,),
        names=tuple(deployment_id(app_name, each) for each in in_order(application)),
        deploy=partial(deploy, application),
        again=lambda changed: deploy(load_again(wanted, changed), False, True),
    )


def _read(wanted: RunAsked) -> "AppsFile":
    """A file of applications.

    Raises:
        ScenarioError: It is not what it may be.
    """
    from executors.apps import packing

    if wanted.args or wanted.name is not None or wanted.route_prefix is not None or wanted.http_port is not None:
        end("KEY=VALUE, --name, --route-prefix and --http-port are for MODULE:APP; a file says them itself", BAD_INPUT)
    return packing.read(Path(wanted.target))


def _file(wanted: RunAsked, file: "AppsFile") -> RunnableTarget:
    """Those of a file. The process is connected."""
    from executors.apps import packing
    from executors.ray_gpu import deploying
    from executors.ray_gpu.connection import default_namespace

    options = {**_options(wanted), "namespace": wanted.namespace or default_namespace()}

    def deploy(found: "AppsFile", packages: tuple[Any, ...], wait: bool, replace: bool) -> object:
        how = {**options, **packing.of_proxies(found), "wait": wait, "replace": replace}
        return packing.placed(found, packages, lambda: deploying.deploy_packages(packages, **how))

    def packages_of(found: "AppsFile") -> tuple[Any, ...]:
        return packing.packages_of(found, options["namespace"], import_timeout_s=wanted.import_timeout_s)

    def again(changed: Path) -> object:
        forget_modules_of(changed)
        found = packing.read(Path(wanted.target))
        return deploy(found, packages_of(found), False, True)

    packages = packages_of(file)
    return RunnableTarget(
        app_names=tuple(each.name for each in file.config.applications),
        names=tuple(each.spec.name for each in packages),
        deploy=partial(deploy, file, packages),
        again=again,
    )


def _deploy_again(wanted: RunAsked, running: RunnableTarget, changed: Path) -> None:
    if wanted.runtime_env is not None and "working_dir" in wanted.runtime_env:
        from executors.ray_gpu.environment import upload_anew

        upload_anew(wanted.runtime_env)
    running.again(changed)


def _names_of(running: RunnableTarget, namespace: str | None) -> list[str]:
    """The deployments of what runs: those of the code that was run first, and those that came by a reload."""
    from executors.ray_gpu import inspecting

    there = inspecting.status(namespace=namespace).deployments
    return sorted({*running.names, *(each for each, info in there.items() if info.app_name in running.app_names)})


def watch(look: Callable[[], "Status"], names: Iterable[str], go_on: Callable[[float], None] = time.sleep) -> str | None:
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


def load(target: str, args: Mapping[str, Any], import_timeout_s: float | None) -> "Application":
    """The application that MODULE:APP names."""
    from executors.import_time import within
    from executors.loading import LoadError, load_application
    from executors.shadowing import hidden, warning_of

    try:
        with within(import_timeout_s, target):
            application = load_application(target, args)
    except LoadError as error:
        end(str(error), BAD_INPUT)
    if (other := hidden()) is not None:
        typer.echo(f"rankcore: warning: {warning_of(other)}", err=True)
    return application


def load_again(wanted: RunAsked, folder: Path) -> "Application":
    """The same, of modules of a folder as they are now.

    Raises:
        LoadError: It cannot be had any more.
    """
    from executors.import_time import within
    from executors.loading import load_application

    forget_modules_of(folder)
    with within(wanted.import_timeout_s, wanted.target):
        return load_application(wanted.target, wanted.args)
