"""`rankcore deploy`: applications of a module or of a file are brought to what is wanted, as one request."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs
import typer

from executors.apps.file import FILES
from executors.cli.asked import BAD_INPUT, FAILED, asked, end
from executors.cli.backends import by_rest, default_namespace
from executors.cli.plan_words import weights_lines
from executors.cli.ray_view import summary
from executors.cli.run_options import NO_PREFIX, prefix_of

if TYPE_CHECKING:
    from executors.ray_gpu.overview import Status
    from executors.ray_gpu.packing import Package
    from rankcore.cluster import ClusterPlan, PlannedChange

SHOWN_MAX = 8
"""Of ranks and replicas of one deployment, in a plan."""


@attrs.frozen
class DeployAsked:
    """What `rankcore deploy` was asked for.

    Attributes:
        prune: Whether applications that are not named are deleted; None: where a file was named.
        args: For a function that returns the application.
        runtime_env: Of what is deployed; None: none.
        route_prefix: As the option says it; None: it does not.
        expect: The revision that is to be in force until then; "": that of the plan which is printed.
        import_timeout_s: So long each import of code may take; None: as long as it takes.
    """

    target: str
    name: str | None = None
    replicas: int | None = None
    replace: bool = False
    prune: bool | None = None
    dry_run: bool = False
    wait: bool = False
    expect: str = ""
    as_json: bool = False
    namespace: str | None = None
    args: Mapping[str, Any] = attrs.Factory(dict)
    runtime_env: Mapping[str, Any] | None = None
    route_prefix: str | None = None
    import_timeout_s: float | None = None


@attrs.frozen
class Wanted:
    """What is to be deployed, by whatever way.

    Attributes:
        plan: What that would change, and the revision for which it holds.
        take: Have it done, if that revision is in force still; None: whatever is.
        names: Which deployments that are there it is about.
        status: How all of it stands.
    """

    plan: "Callable[[], tuple[ClusterPlan, str | None]]"
    take: Callable[[str | None], object]
    names: "Callable[[Status], list[str]]"
    status: "Callable[[], Status]"


def deploy(wanted: DeployAsked) -> None:
    """Do what `commands/deploy.py` says."""
    is_file = Path(wanted.target).suffix in FILES
    if is_file and any(each is not None for each in (wanted.name, wanted.replicas, wanted.route_prefix)):
        end("--name, --replicas and --route-prefix are for MODULE:NAME; a file says them itself", BAD_INPUT)
    if is_file and (wanted.args or wanted.runtime_env is not None):
        end("KEY=VALUE and --runtime-env are for MODULE:NAME; a file has args and runtime_env of applications", BAD_INPUT)
    prune = is_file if wanted.prune is None else wanted.prune
    rest = asked(by_rest)
    if rest is not None:
        from executors.cli.deploy_by_rest import wanted_by_rest

        _deploy(wanted_by_rest(rest, wanted, prune), wanted, prune)
    else:
        _deploy(_wanted_on_ray(wanted, is_file, prune), wanted, prune)


def _wanted_on_ray(wanted: DeployAsked, is_file: bool, prune: bool) -> Wanted:
    namespace = wanted.namespace or default_namespace()
    options: dict[str, Any] = {}
    act: Callable[[Callable[[], Any]], Any] = _just
    if is_file:
        packing = asked(_packing)
        file = asked(lambda: packing.read(Path(wanted.target)))
        options = asked(lambda: packing.of_proxies(file))
        asked(_be_connected)
        packages = asked(lambda: packing.packages_of(file, namespace, import_timeout_s=wanted.import_timeout_s))
        act = partial(packing.placed, file, packages)
    else:
        applications = asked(lambda: _imported(wanted.target, wanted.args, wanted.import_timeout_s))
        asked(lambda: _be_connected(wanted.runtime_env))
        packages = asked(lambda: _of_module(applications, wanted, namespace))
    how = {"replace": wanted.replace, "prune": prune, "namespace": namespace}
    outside = {key: options[key] for key in ("http_options", "grpc_options") if key in options}

    def take(expected: str | None) -> object:
        return act(lambda: _deploying().deploy_packages(packages, **how, **options, wait=wanted.wait, expected=expected))

    return Wanted(
        plan=lambda: act(lambda: _deploying().plan_packages(packages, **how, **outside)),
        take=take,
        names=lambda _: [package.spec.name for package in packages],
        status=lambda: _status(namespace),
    )


def _deploy(way: Wanted, wanted: DeployAsked, prune: bool) -> None:
    plan, revision = asked(way.plan)
    if not wanted.as_json:
        typer.echo("\n".join(_told(plan)))
    if not wanted.dry_run:
        failures = {_error("DeploymentFailedError"): FAILED, _error("ConflictError"): FAILED, TimeoutError: FAILED}
        asked(lambda: way.take(wanted.expect or revision), failures)
    if wanted.as_json:
        after = revision if wanted.dry_run else asked(way.status).revision
        typer.echo(json.dumps({"plan": attrs.asdict(plan), "revision_before": revision, "revision": after}, indent=2))
    elif not wanted.dry_run:
        _tell(way, prune, wanted.wait)


def _just(act: Callable[[], Any]) -> Any:
    return act()


def _tell(way: Wanted, prune: bool, has_waited: bool) -> None:
    status = asked(way.status)
    wanted = way.names(status)
    going = [name for name, info in status.deployments.items() if info.status == "DELETING" and name not in wanted]
    for name in (*wanted, *(going if prune else ())):
        info = status.deployments.get(name)
        typer.echo(f"{name}  gone" if info is None else summary(info))  # another writer may have deleted it meanwhile
    if not has_waited:
        typer.echo("`rankcore status` shows how that comes on")


def _packing() -> ModuleType:
    from executors.apps import packing

    return packing


def _imported(target: str, args: Mapping[str, Any] | None = None, timeout_s: float | None = None) -> list[Any]:
    """The applications that MODULE:NAME names: one, a function that returns one, or a list of some."""
    from executors.import_time import within
    from executors.loading import LoadError, load_application, load_object
    from executors.ray_gpu.declaration import Application

    with within(timeout_s, target):
        found = load_object(target, "MODULE:NAME, such as package.module:models or path/file.py:models, or a file apps.yaml")
        if not isinstance(found, (list, tuple)):
            return [load_application(target, args)]
    if args:
        raise LoadError(f"{target} takes no arguments: it is no function that returns an application")
    if not found or not all(isinstance(each, Application) for each in found):
        raise LoadError(f"{target} must be what bind() returned, or a list of some; found {found!r:.80}")
    return list(found)


def _of_module(applications: list[Any], wanted: DeployAsked, namespace: str) -> "tuple[Package, ...]":
    from executors.ray_gpu.errors import InvalidDeploymentError
    from executors.ray_gpu.packing import Origin

    if len(applications) > 1 and (wanted.name is not None or wanted.route_prefix is not None):
        option = "--name" if wanted.name is not None else "--route-prefix"
        raise InvalidDeploymentError(f"{option} is for one application, and there are {len(applications)}: each has its own")
    # A file names one application by each path.
    origin = Origin(wanted.target, wanted.args, wanted.runtime_env or {}) if len(applications) == 1 else None
    packages: list[Package] = []
    for each in applications:
        application = each if wanted.replicas is None else each.options(num_replicas=wanted.replicas)
        prefix = prefix_of(wanted.route_prefix) if len(applications) == 1 else f"/{each.deployment.name}"
        target = _deploying().RunTarget(application, wanted.name or each.deployment.name, prefix, origin=origin)
        packages += _deploying().packages_of(target, namespace)[0]
    return tuple(packages)


def _told(plan: "ClusterPlan") -> Iterator[str]:
    """What would change, for people."""
    if not plan.changes:
        yield "nothing would change"
    for change in plan.changes:
        effects = list(_effects(change)) or ["no replica would change"]
        if change.routes is not None:
            effects.append("route {} -> {}".format(*(each or NO_PREFIX for each in change.routes)))
        yield f"{change.what:9} {change.deployment}: {', '.join(effects)}"
    yield from weights_lines(plan.weights)


def _effects(change: "PlannedChange") -> Iterator[str]:
    plan = change.plan
    if plan is None:
        return
    if plan.world_size_before != plan.world_size_after and change.what == "changed":
        yield f"world size {plan.world_size_before} -> {plan.world_size_after}"
    if plan.starts:
        yield f"{len(plan.starts)} would start ({_few([f'rank {each.rank}' for each in plan.starts])})"
    if plan.stops:
        yield f"{len(plan.stops)} would stop ({_few([each.replica_id for each in plan.stops])})"
    if plan.moves:
        moves = [f"{each.replica_id}: {each.before} -> {each.after}" for each in plan.moves]
        yield f"{len(plan.moves)} would get another rank ({_few(moves)})"
    if plan.reconfigured:
        yield f"{len(plan.reconfigured)} would get the new user_config in place"


def _few(items: list[str]) -> str:
    return ", ".join(items[:SHOWN_MAX]) + (f", and {len(items) - SHOWN_MAX} more" if len(items) > SHOWN_MAX else "")


def _deploying() -> Any:
    from executors.ray_gpu import deploying

    return deploying


def _status(namespace: str | None) -> Any:
    from executors.ray_gpu import inspecting

    return inspecting.status(namespace=namespace)


def _error(name: str) -> Any:
    from executors.ray_gpu import errors

    return getattr(errors, name)


def _be_connected(runtime_env: Mapping[str, Any] | None = None) -> None:
    """A cluster that this process started would end with it."""
    from executors.ray_gpu.connection import connect

    connect(start=False, runtime_env=runtime_env, shows_logs=False)  # standard output is for plan and status
