"""What a user calls to deploy applications, to have a plan of that, to wait for them, and to delete them; `changing` has what
changes a deployment that runs.

A deployment is called `application/deployment`; its bare name will do where no other application has a deployment of that name.
"""

import logging
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from executors.deployment_ids import DEFAULT_APPLICATION, DEFAULT_PREFIX, deployment_id, problem_of, split
from executors.ray_gpu import connection
from executors.ray_gpu.applications import packages_in
from executors.ray_gpu.connection import ask, ask_at_length
from executors.ray_gpu.declaration import Application
from executors.ray_gpu.errors import (
    DeploymentFailedError,
    InvalidDeploymentError,
    NoAnswerError,
    NotRunningError,
    UnknownNameError,
    VersionMismatchError,
    not_one,
)
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions, checked_prefix
from executors.ray_gpu.instance import (
    JOURNAL_IN_LOGS,
    check_http_can_be_served,
    end_local_tests,
    say_where_journal_is,
    serve_outside,
    wanted_outside,
    wants_proxies,
    warn_of_open_doors,
)
from executors.ray_gpu.logs.config import LoggingConfig, as_plain, logging_config_of
from executors.ray_gpu.messages import across_releases
from executors.ray_gpu.overview import DeploymentInfo
from executors.ray_gpu.packing import Origin, Package, wanted_of
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.requests.handle import DeploymentHandle
from executors.ray_gpu.serve_options import ControllerOptions, controller_options_of
from executors.ray_gpu.traces import TracingConfig
from executors.revisions import revision_of
from rankcore import DeploymentStatus
from rankcore.cluster import ClusterPlan, PlannedChange, plan_cluster, recover_cluster

LOG = logging.getLogger(__name__)

across_releases(PlannedChange)  # the core knows of no pickles, and a controller may be of an older release

SAY_AFTER_S = 10.0
"""Whoever waits for a deployment to be healthy is told after this long why it is not yet."""

ANSWER_S = 5.0
"""How much longer than a wait its answer may take, before the controller is taken for one that does not answer."""

DELETING_LOOK_S = 0.05
"""So often it is looked whether a deletion has begun."""


def run(
    target: Application,
    *,
    name: str = DEFAULT_APPLICATION,
    blocking: bool = False,
    wait: bool = True,
    timeout_s: float | None = None,
    replace: bool = False,
    route_prefix: str | None = DEFAULT_PREFIX,
    external_scaler_enabled: bool = False,
    controller_options: ControllerOptions | Mapping[str, Any] | None = None,
    namespace: str | None = None,
    journal: str | None = JOURNAL_IN_LOGS,
    logging_config: LoggingConfig | Mapping[str, Any] | None = None,
    _local_testing_mode: bool = False,
) -> DeploymentHandle:
    """Deploy an application and wait until it is healthy. What runs already is changed to what is wanted now.

    As in Ray Serve, an application replaces the one that has its name: deployments of that one which this one does not have
    are deleted. Give each application a name where several are to run; what others have deployed is never touched. Where an
    application has several deployments of one name, the second one is called `name_1`, and so on.

    Args:
        target: What `bind` returned.
        name: Of the application.
        blocking: Stay here, until Ctrl-C; the deployments go on.
        wait: Return only when all its deployments are healthy.
        timeout_s: How long to wait; None: for as long as they are being started.
        replace: Whether a deployment may replace one of another class that has its name, in the same application.
        route_prefix: The path under which HTTP reaches the application, which no other one may have; proxies are started
            where there are none yet. None: no HTTP.
        external_scaler_enabled: No deployment of it may scale itself then: `scale` is called from outside, as it may be of any
            other without `autoscaling_config` too.
        controller_options, namespace, journal: As for `start`.
        logging_config: How the replicas of the application log, those of deployments that have one of their own excepted.
        _local_testing_mode: Run it in this process, on threads, without Ray: for tests. One replica each, and no HTTP.

    Returns:
        The handle of the application's last deployment, the one that `target` names.

    Raises:
        NoAnswerError: The controller hangs, or is away for too long.
        InvalidDeploymentError: An option, class or argument is not what it may be. Nothing was deployed.
        NameInUseError: A deployment's name belongs to another class, or the route prefix to another application. Likewise.
        DeploymentFailedError: A deployment did not come up; the text has the traceback.
        TimeoutError: It was not healthy in time. It goes on starting.
    """
    if not isinstance(target, Application):
        raise InvalidDeploymentError(f"run() takes what bind() returns, got {target!r:.80}: write run(Model.bind())")
    if _local_testing_mode:
        from executors.ray_gpu.local_testing import run_here

        return run_here(target, name)
    (handle,) = run_many(
        [
            RunTarget(
                target,
                name,
                route_prefix,
                external_scaler_enabled=external_scaler_enabled,
                logging_config=logging_config,
            )
        ],
        blocking=blocking,
        wait=wait,
        timeout_s=timeout_s,
        replace=replace,
        controller_options=controller_options,
        namespace=namespace,
        journal=journal,
    )
    return handle


@attrs.frozen
class RunTarget:
    """One of the applications that `run_many` deploys.

    Attributes:
        target: What `bind` returned.
        name, route_prefix, external_scaler_enabled, logging_config: As for `run`.
        origin: Where a file of applications would find it, for `config_in_force`; None: nobody says.
    """

    target: Application
    name: str = DEFAULT_APPLICATION
    route_prefix: str | None = DEFAULT_PREFIX
    external_scaler_enabled: bool = False
    logging_config: LoggingConfig | Mapping[str, Any] | None = None
    origin: Origin | None = None


def run_many(
    targets: Iterable[RunTarget],
    *,
    blocking: bool = False,
    wait_for_ingress_deployment_creation: bool = True,
    wait_for_applications_running: bool = True,
    wait: bool = True,
    timeout_s: float | None = None,
    replace: bool = False,
    prune: bool = False,
    controller_options: ControllerOptions | Mapping[str, Any] | None = None,
    namespace: str | None = None,
    journal: str | None = JOURNAL_IN_LOGS,
) -> list[DeploymentHandle]:
    """Deploy several applications as one request: all of them, or none. The same again changes nothing.

    Args:
        targets: Each with a name of its own.
        blocking: Stay here, until Ctrl-C; the deployments go on.
        wait_for_ingress_deployment_creation: What is asked for is stored when this returns, whatever is said here.
        wait_for_applications_running: Ray Serve's name for `wait`.
        prune: Whether all other applications are deleted.
        wait, timeout_s, replace, controller_options, namespace, journal: As for `run`.

    Returns:
        The handle that `run` would return, of each.

    Raises:
        RayExecutorError, TimeoutError: As `run`.
    """
    targets, options = list(targets), controller_options_of(controller_options)
    _check_names([each.name for each in targets])
    wants_proxies(_prefix_of(each) for each in targets)
    connection.connect(start=True)
    namespace = namespace or connection.default_namespace()
    built = [packages_of(each, namespace) for each in targets]
    packages = tuple(package for own, _ in built for package in own)
    wait = wait and wait_for_applications_running
    deploy_packages(
        packages,
        wait=wait,
        timeout_s=timeout_s,
        replace=replace,
        prune=prune,
        controller_options=options,
        namespace=namespace,
        journal=journal,
    )
    if blocking:
        _stay()
    return [handle for _, handle in built]


def packages_of(target: RunTarget, namespace: str) -> tuple[tuple[Package, ...], DeploymentHandle]:
    """What is sent of an application, and the handle of its last deployment.

    Raises:
        InvalidDeploymentError: A name, an option, a class or an argument is not what it may be.
    """
    packages, handles = packages_in(target.target, target.name, _prefix_of(target), namespace, target.logging_config)
    packages[-1] = attrs.evolve(packages[-1], origin=target.origin)
    if target.external_scaler_enabled and (own := [each for each in packages if each.autoscaling is not None]):
        raise InvalidDeploymentError(
            f"external_scaler_enabled cannot be had with autoscaling_config, which {own[0].spec.name} has"
        )
    return tuple(packages), handles[id(target.target)]


def deploy_packages(
    packages: tuple[Package, ...],
    *,
    wait: bool,
    timeout_s: float | None = None,
    replace: bool = False,
    prune: bool = False,
    http_options: Mapping[str, Any] | HttpOptions | None = None,
    grpc_options: Mapping[str, Any] | GrpcOptions | None = None,
    logging_config: Mapping[str, Any] | LoggingConfig | None = None,
    tracing_config: TracingConfig | None = None,
    controller_options: ControllerOptions | None = None,
    namespace: str,
    journal: str | None = JOURNAL_IN_LOGS,
    expected: str | None = None,
) -> str | None:
    """Deploy what was packed, as `run_many`. The process is connected.

    Args:
        http_options, grpc_options, logging_config: Of proxies; None: as they are.
        tracing_config: Of what is started from now on; None: as it is.
        controller_options: Of the controller, if it is started by this.
        expected: The revision that is to be in force until then (`Status.revision`); None: any may be.

    Returns:
        The revision that this has brought; None: the controller did not say.

    Raises:
        ConflictError: Another writer came first. Nothing was deployed.
        RayExecutorError, TimeoutError: As `run`.
    """
    _check_names([each.code.app_name for each in packages if each.is_ingress])
    logs = as_plain(logging_config_of(logging_config))
    has_options = http_options is not None or grpc_options is not None
    if has_options:
        check_http_can_be_served()
    serves_http = has_options or wants_proxies((each.route_prefix for each in packages), warns=True)
    env_vars = controller_options.env_vars if controller_options is not None else None
    controller = connection.start_controller(namespace, journal, env_vars)
    say_where_journal_is(controller, journal)
    before: ProxyOptions | None = ask(controller, "proxy_options") if has_options or logs is not None else None
    outside = None  # made before anything is asked for: what is wrong with it is refused with all the rest
    if has_options or (logs is not None and (serves_http or before is not None)):
        outside = wanted_outside(before, http_options, grpc_options, logs)
        warn_of_open_doors(
            outside.http if http_options is not None else None, outside.grpc if grpc_options is not None else None
        )
    if tracing_config is not None:
        ask(controller, "use_tracing", attrs.asdict(tracing_config))
    brought: str | None = None  # where the controller is of an older release too
    if expected is not None:
        brought = ask_at_length(controller, "apply", packages, replace, prune, expected)
    elif prune or len({each.code.app_name for each in packages}) != 1:
        brought = ask_at_length(controller, "apply", packages, replace, prune)
    else:
        ask_at_length(controller, "deploy", packages, replace)  # a controller of an older release has this too
    if outside is not None:
        serve_outside(controller, outside, replace=True)
        brought = ask(controller, "revision") if brought is not None else None
    elif serves_http:
        serve_outside(controller, ProxyOptions(), replace=False)
    if wait:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for package in packages:
            _wait_healthy(controller, package.spec.name, package.spec.version, deadline)
        _say_what_is_ready(controller, packages)
    return brought


def plan_packages(
    packages: tuple[Package, ...],
    *,
    replace: bool,
    prune: bool,
    namespace: str,
    http_options: Mapping[str, Any] | HttpOptions | None = None,
    grpc_options: Mapping[str, Any] | GrpcOptions | None = None,
) -> tuple[ClusterPlan, str | None]:
    """What `deploy_packages` would bring, and the revision for which that holds. The process is connected.

    Returns:
        None as the revision: the controller that runs is of before there were any.

    Raises:
        RayExecutorError: As `run_many`.
    """
    _check_names([each.code.app_name for each in packages if each.is_ingress])
    try:
        controller = connection.find_controller(namespace)
    except (VersionMismatchError, NoAnswerError):
        raise
    except NotRunningError:  # nothing is deployed yet
        wanted_outside(None, http_options, grpc_options, None)
        nothing = recover_cluster((), (), at=0.0, epoch=1).state
        return plan_cluster(nothing, wanted_of(packages, prune, 0.0)), revision_of(nothing)
    revision = ask(controller, "revision") if hasattr(controller, "revision") else None  # read first: what follows is as new
    wanted_outside(ask(controller, "proxy_options"), http_options, grpc_options, None)
    found: ClusterPlan = ask(controller, "plan", packages, replace, prune)
    return found, revision


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidDeploymentError(f"applications must have names of their own, got {name!r} {names.count(name)} times")


def delete(name: str, *, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """Delete an application with all its deployments, or one deployment, and wait until all replicas are gone; calls under way
    may finish first.

    Args:
        name: Of the application, as in Ray Serve; where none is called so, of the deployment. One that
            `run(..., _local_testing_mode=True)` runs in this process comes first, where no namespace is given.

    Raises:
        UnknownNameError: There is neither, or there are several deployments of that name.
    """
    if namespace is None and end_local_tests(name):
        return
    controller = connection.running(namespace)
    ask_at_length(controller, "delete", ask(controller, "find_all", name), timeout_s=timeout_s)


def begin_deletion(application: str, deployment: str | None, *, namespace: str, timeout_s: float = connection.ANSWER_S) -> None:
    """Delete an application, or one of its deployments, and return once the controller has taken that on. Repeatable.

    Raises:
        UnknownNameError: There is none; says which there are.
        NoAnswerError: It has not been taken on in time.
    """
    controller = connection.running(namespace)
    there: dict[str, bool] = ask(controller, "deployments")
    wanted = application if deployment is None else deployment_id(application, deployment)
    meant = tuple(each for each in there if split(each)[0] == application and deployment in (None, split(each)[1]))
    if not meant:
        kind, known = ("application", {split(each)[0] for each in there}) if deployment is None else ("deployment", set(there))
        raise UnknownNameError(not_one(kind, wanted, (), known))
    controller.delete.remote(meant)  # which answers once all are gone
    deadline = time.monotonic() + timeout_s
    while not all(ask(controller, "deployments").get(each, True) for each in meant):
        if time.monotonic() > deadline:
            raise NoAnswerError(f"the controller has not begun to delete {wanted} within {timeout_s:g} s: ask again")
        time.sleep(DELETING_LOOK_S)


def delete_all(names: Iterable[str], *, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """Delete several deployments at once, by their full names, and wait until all are gone; who does not exist is left out."""
    ask_at_length(connection.running(namespace), "delete", tuple(names), timeout_s=timeout_s)


def wait_until_healthy(name: str, *, namespace: str | None = None, timeout_s: float | None = None) -> DeploymentInfo:
    """Wait until a deployment has settled, and say how it is.

    Raises:
        DeploymentFailedError: It failed; the text has the traceback.
        TimeoutError: It has not settled in time.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return _wait_healthy(connection.running(namespace), name, None, deadline)


def _prefix_of(target: RunTarget) -> str | None:
    """Its name is looked at too."""
    if (problem := problem_of(target.name)) is not None:
        raise InvalidDeploymentError(f"the application's name must be {problem}, got {target.name!r:.80}")
    return None if target.route_prefix is None else checked_prefix(target.route_prefix)


def _say_what_is_ready(controller: Any, packages: Iterable[Package]) -> None:
    for package in packages:
        if package.is_ingress:
            options = ask(controller, "proxy_options") if package.route_prefix is not None else None
            where = f" at {options.http.shown_url}{package.route_prefix}" if options is not None else ""
            LOG.info("application %r is ready%s", package.code.app_name, where)


def _wait_healthy(controller: Any, name: str, version: str | None, deadline: float | None) -> DeploymentInfo:
    said = ""
    while True:
        left_s = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
        patience_s = min(left_s + ANSWER_S, SAY_AFTER_S + connection.ANSWER_S)
        info: DeploymentInfo = ask(controller, "wait_settled", name, min(left_s, SAY_AFTER_S), timeout_s=patience_s)
        if info.is_settled:
            break
        if left_s <= SAY_AFTER_S:
            raise TimeoutError(f"{name} is {info.status}, not HEALTHY, after the time-out. {info.message}")
        if info.message not in ("", said):
            said = info.message
            LOG.warning("%s is %s: %s", name, info.status, said)
    if info.status is not DeploymentStatus.HEALTHY:
        raise DeploymentFailedError(f"{name} is {info.status}: {info.message}")
    if version is not None and info.version != version:
        why = info.message or said or "`rankcore explain` says why"  # what is HEALTHY again has nothing to say
        raise DeploymentFailedError(f"{name} was rolled back to version {info.version}: {why}")
    return info


def _stay() -> None:
    try:
        while True:
            time.sleep(3600.0)
    except KeyboardInterrupt:
        return
