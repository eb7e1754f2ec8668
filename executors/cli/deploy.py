"""`rankcore deploy`: applications of a module or of a file are brought to what is wanted, as one request."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from executors.cli.apps_file import FILES, AppsFile, read_apps
from executors.cli.asked import BAD_INPUT, FAILED, asked, end
from executors.cli.backends import default_namespace
from executors.cli.plan_words import weights_lines
from executors.cli.ray_view import summary

if TYPE_CHECKING:
    from executors.ray_gpu.http.options import HttpOptions
    from executors.ray_gpu.packing import Package
    from rankcore.cluster import ClusterPlan, PlannedChange

T = TypeVar("T")


def deploy(
    target: str,
    *,
    name: str | None,
    replicas: int | None,
    replace: bool,
    prune: bool,
    dry_run: bool,
    wait: bool,
    namespace: str | None,
) -> None:
    """Do what `commands/deploy.py` says."""
    http, file, namespace = None, None, namespace or default_namespace()
    if Path(target).suffix in FILES:
        if name is not None or replicas is not None:
            end("--name and --replicas are for MODULE:NAME; a file says both itself", BAD_INPUT)
        file = asked(partial(_read, target))
        http = asked(partial(_http_of_file, file))
        asked(_be_connected)
        packages = asked(partial(_of_file, file, namespace))
    else:
        applications = asked(partial(_imported, target))
        asked(_be_connected)
        packages = asked(partial(_of_module, applications, name, replicas, namespace))
    if dry_run:
        planned = partial(_api().plan_packages, packages, replace=replace, prune=prune, namespace=namespace)
        for line in _told(asked(partial(_placed, file, packages, planned))):
            typer.echo(line)
        return
    how = {"replace": replace, "prune": prune, "http_options": http, "wait": wait, "namespace": namespace}
    done = partial(_api().deploy_packages, packages, **how)
    asked(partial(_placed, file, packages, done), {_error("DeploymentFailedError"): FAILED, TimeoutError: FAILED})
    status = asked(partial(_api().status, namespace=namespace))
    wanted = [package.spec.name for package in packages]
    going = [name for name, info in status.deployments.items() if info.status == "DELETING" and name not in wanted]
    for name in (*wanted, *(going if prune else ())):
        typer.echo(summary(status.deployments[name]))
    if not wait:
        typer.echo("`rankcore status` shows how that comes on")


def _read(target: str) -> AppsFile:
    from executors.ray_gpu.building import OPTIONS
    from executors.ray_gpu.environment import known_fields

    return read_apps(Path(target), OPTIONS, known_fields())


def _http_of_file(file: AppsFile) -> "HttpOptions | None":
    from executors.ray_gpu.errors import InvalidDeploymentError
    from executors.ray_gpu.http.options import HttpOptions
    from executors.ray_gpu.proxies.options import chosen

    try:
        return chosen(HttpOptions, file.config.http)
    except InvalidDeploymentError as error:
        place = ("proxy_location",) if "option location" in str(error) else ("http_options",)
        raise file.problem(place, str(error)) from None


def _imported(target: str) -> list[Any]:
    """The applications that MODULE:NAME names: one, a function that returns one, or a list of some."""
    from executors.loading import LoadError, load_application, load_object
    from executors.ray_gpu.declaration import Application

    found = load_object(target, "MODULE:NAME, such as package.module:models or path/file.py:models, or a file apps.yaml")
    if not isinstance(found, (list, tuple)):
        return [load_application(target)]
    if not found or not all(isinstance(each, Application) for each in found):
        raise LoadError(f"{target} must be what bind() returned, or a list of some; found {found!r:.80}")
    return list(found)


def _of_file(file: AppsFile, namespace: str) -> "tuple[Package, ...]":
    from executors.ray_gpu.building import BuildError, WantedApplication, built

    packages: list[Package] = []
    taken: dict[str, str] = {}
    for index, each in enumerate(file.config.applications):
        positions = {deployment["name"]: position for position, deployment in enumerate(each.deployments)}
        options = [{key: value for key, value in deployment.items() if key != "name"} for deployment in each.deployments]
        wanted = WantedApplication(
            name=each.name,
            import_path=each.import_path,
            route_prefix=each.route_prefix,
            args=each.args,
            runtime_env=each.runtime_env,
            deployments=dict(zip(positions, options, strict=True)),
        )
        try:
            of_this = built(wanted, namespace)
        except BuildError as error:
            keys = ("applications", index, *(positions.get(str(key), key) for key in error.keys))
            raise file.problem(keys, str(error).partition("\n")[0]) from None
        for prefix in [package.route_prefix for package in of_this if package.route_prefix is not None]:
            if prefix in taken:
                allowed = f"expected one that application {taken[prefix]!r} does not have"
                raise file.problem(("applications", index, "route_prefix"), f"{allowed}, found {prefix!r}")
            taken[prefix] = each.name
        packages += of_this
    return tuple(packages)


def _placed(file: AppsFile | None, packages: "tuple[Package, ...]", act: Callable[[], T]) -> T:
    """What it returns; what the cluster refuses of a file is said with the place in it that the error speaks of."""
    try:
        return act()
    except _error("InvalidDeploymentError") as error:
        if file is None:
            raise
        names = [each.name for each in file.config.applications]
        for package in packages:
            place = "applications", names.index(package.code.app_name)
            if package.route_prefix is not None and str(error).startswith(f"route_prefix {package.route_prefix!r} "):
                raise file.problem((*place, "route_prefix"), str(error)) from None
            if str(error).startswith(f"{package.spec.name} "):
                raise file.problem((*place, "name"), str(error)) from None
        raise


def _of_module(applications: list[Any], name: str | None, replicas: int | None, namespace: str) -> "tuple[Package, ...]":
    from executors.ray_gpu.errors import InvalidDeploymentError

    if name is not None and len(applications) > 1:
        raise InvalidDeploymentError(f"--name is for one application, and there are {len(applications)}: each has its own")
    packages: list[Package] = []
    for each in applications:
        wanted = each if replicas is None else each.options(num_replicas=replicas)
        packages += _api().packages_of(_api().RunTarget(wanted, name or each.deployment.name), namespace)[0]
    return tuple(packages)


def _told(plan: "ClusterPlan") -> Iterator[str]:
    """A dry run, for people."""
    if not plan.changes:
        yield "nothing would change"
    for change in plan.changes:
        yield f"{change.what:9} {change.deployment}: {', '.join(_effects(change)) or 'no replica would change'}"
    yield from weights_lines(plan.weights)


def _effects(change: "PlannedChange") -> Iterator[str]:
    plan = change.plan
    if plan is None:
        return
    if plan.world_size_before != plan.world_size_after and change.what == "changed":
        yield f"world size {plan.world_size_before} -> {plan.world_size_after}"
    for what, found in (("start", plan.starts), ("stop", plan.stops), ("get another rank", plan.moves)):
        if found:
            yield f"{len(found)} would {what}"
    if plan.reconfigured:
        yield f"{len(plan.reconfigured)} would get the new user_config in place"


def _api() -> Any:
    from executors.ray_gpu import api

    return api


def _error(name: str) -> Any:
    from executors.ray_gpu import errors

    return getattr(errors, name)


def _be_connected() -> None:
    """A cluster that this process started would end with it."""
    from executors.ray_gpu.connection import connect

    connect(start=False)
