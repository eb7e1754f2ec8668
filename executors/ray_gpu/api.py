"""What a user calls: run, status, scale, restart, promote, evict, cordon, drain, update, delete, shutdown, what gets handles.

A deployment is called `application/deployment`; its bare name will do where no other application has a deployment of that name.
"""

import itertools
import logging
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs
import ray

from executors import wishes
from executors.deployment_ids import DEFAULT_APPLICATION, deployment_id, problem_of
from executors.ray_gpu import connection, names
from executors.ray_gpu.connection import ask, ask_at_length
from executors.ray_gpu.context import get_replica_context
from executors.ray_gpu.declaration import Application, option_of
from executors.ray_gpu.discovery import forget_all
from executors.ray_gpu.environment import of_job
from executors.ray_gpu.errors import (
    DeploymentFailedError,
    InvalidCallError,
    InvalidDeploymentError,
    NotInReplicaError,
    NotRunningError,
    VersionMismatchError,
)
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.ingress import APP
from executors.ray_gpu.http.options import HttpOptions, checked_prefix
from executors.ray_gpu.overview import CordonedNode, DeploymentInfo, Status
from executors.ray_gpu.packing import Package, pack, wanted_of, without_any_number
from executors.ray_gpu.proxies.options import ProxyOptions, chosen
from executors.ray_gpu.requests.handle import DeploymentHandle
from executors.ray_gpu.worker.options import MemoryOptions
from rankcore import DeploymentStatus
from rankcore.cluster import ClusterPlan, plan_cluster, recover_cluster
from rankcore.errors import InvalidSpecError
from rankcore.values import ReplicaId

LOG = logging.getLogger(__name__)

SAY_AFTER_S = 10.0
"""Whoever waits for a deployment to be healthy is told after this long why it is not yet."""
ANSWER_S = 5.0
"""How much longer than a wait its answer may take, before the controller is taken for one that does not answer."""

START_PROXIES_S = 60.0
"""How long the first proxies may take to come up before it is said that they have not."""

JOURNAL_IN_LOGS = ""
"""Where the journal goes by default: in this user's private folder on the controller's node."""


def start(
    *,
    namespace: str | None = None,
    journal: str | None = JOURNAL_IN_LOGS,
    http_options: HttpOptions | Mapping[str, Any] | None = None,
    grpc_options: GrpcOptions | Mapping[str, Any] | None = None,
    memory: MemoryOptions | Mapping[str, Any] | None = None,
) -> None:
    """Start the controller, where it does not run yet. `run` does it too.

    Args:
        http_options: How to serve HTTP, as `HttpOptions` or a dict of its fields; what was served otherwise ends. None: as
            it is, which is not at all until an application has a `route_prefix`.
        grpc_options: How to serve gRPC, likewise: by the same proxies.
        memory: Which memory of nodes weights that may be COLD use (`Residency`), as `MemoryOptions` or a dict of its fields;
            None: as it is, which is as `MemoryOptions()` has it until somebody says otherwise.
        namespace: Where it and its replicas live; by default $RANKCORE_NAMESPACE, or "rankcore".
        journal: File for everything that happens, on the controller's node; None: no journal.

    Raises:
        NotRunningError: Ray cannot be reached.
        InvalidDeploymentError: An option is not what it may be.
    """
    http, grpc = chosen(HttpOptions, http_options), chosen(GrpcOptions, grpc_options)
    places = chosen(MemoryOptions, memory)
    if grpc is not None:
        grpc = _importable(grpc)
    if http is not None or grpc is not None:
        _check_http_can_be_served()
    for protocol, options in (("HTTP", http), ("gRPC", grpc)):
        if options is not None and (open_door := options.open_door(protocol, options.host, options.port)):
            LOG.warning("%s", open_door)
    connection.connect(start=True)
    grpc = _in_this_jobs_environment(grpc)
    controller = connection.start_controller(namespace or connection.default_namespace(), journal)
    _say_where_journal_is(controller, journal)
    if places is not None:
        ask(controller, "use_memory", places)
    if http is not None or grpc is not None:
        before = ask(controller, "proxy_options") or ProxyOptions()
        _serve_outside(controller, ProxyOptions(http=http or before.http, grpc=grpc or before.grpc), replace=True)


def run(
    target: Application,
    *,
    name: str = DEFAULT_APPLICATION,
    blocking: bool = False,
    wait: bool = True,
    timeout_s: float | None = None,
    replace: bool = False,
    route_prefix: str | None = None,
    namespace: str | None = None,
    journal: str | None = JOURNAL_IN_LOGS,
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
        route_prefix: The path under which HTTP reaches the application, such as "/"; proxies are started where there are
            none yet. None: "/" for a class with `@ingress`, no HTTP for any other.
        namespace, journal: As for `start`.

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
    (handle,) = run_many(
        [RunTarget(target, name, route_prefix)],
        wait=wait,
        timeout_s=timeout_s,
        replace=replace,
        namespace=namespace,
        journal=journal,
    )
    if blocking:
        _stay()
    return handle


@attrs.frozen
class RunTarget:
    """One of the applications that `run_many` deploys.

    Attributes:
        target: What `bind` returned.
        name, route_prefix: As for `run`.
    """

    target: Application
    name: str = DEFAULT_APPLICATION
    route_prefix: str | None = None


def run_many(
    targets: Iterable[RunTarget],
    *,
    wait: bool = True,
    timeout_s: float | None = None,
    replace: bool = False,
    prune: bool = False,
    namespace: str | None = None,
    journal: str | None = JOURNAL_IN_LOGS,
) -> list[DeploymentHandle]:
    """Deploy several applications as one request: all of them, or none. The same again changes nothing.

    Args:
        targets: Each with a name of its own.
        prune: Whether all other applications are deleted.
        wait, timeout_s, replace, namespace, journal: As for `run`.

    Returns:
        The handle that `run` would return, of each.

    Raises:
        RayExecutorError, TimeoutError: As `run`.
    """
    targets = list(targets)
    _check_names([each.name for each in targets])
    if any(_prefix_of(each) is not None for each in targets):
        _check_http_can_be_served()
    connection.connect(start=True)
    namespace = namespace or connection.default_namespace()
    built = [packages_of(each, namespace) for each in targets]
    packages = tuple(package for own, _ in built for package in own)
    deploy_packages(
        packages, wait=wait, timeout_s=timeout_s, replace=replace, prune=prune, namespace=namespace, journal=journal
    )
    return [handle for _, handle in built]


def packages_of(target: RunTarget, namespace: str) -> tuple[tuple[Package, ...], DeploymentHandle]:
    """What is sent of an application, and the handle of its last deployment.

    Raises:
        InvalidDeploymentError: A name, an option, a class or an argument is not what it may be.
    """
    packages, handles = _packages(target.target, target.name, _prefix_of(target), namespace)
    return tuple(packages), handles[id(target.target)]


def deploy_packages(
    packages: tuple[Package, ...],
    *,
    wait: bool,
    timeout_s: float | None = None,
    replace: bool = False,
    prune: bool = False,
    http_options: Mapping[str, Any] | HttpOptions | None = None,
    namespace: str,
    journal: str | None = JOURNAL_IN_LOGS,
) -> None:
    """Deploy what was packed, as `run_many`. The process is connected."""
    _check_names([each.code.app_name for each in packages if each.is_ingress])
    http = chosen(HttpOptions, http_options)
    serves_http = http is not None or any(each.route_prefix is not None for each in packages)
    if serves_http:
        _check_http_can_be_served()
    controller = connection.start_controller(namespace, journal)
    _say_where_journal_is(controller, journal)
    if prune or len({each.code.app_name for each in packages}) != 1:
        ask_at_length(controller, "apply", packages, replace, prune)
    else:
        ask_at_length(controller, "deploy", packages, replace)  # a controller of an older release has this too
    if http is not None:
        before = ask(controller, "proxy_options") or ProxyOptions()
        _serve_outside(controller, attrs.evolve(before, http=http), replace=True)
    elif serves_http:
        _serve_outside(controller, ProxyOptions(), replace=False)
    if wait:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for package in packages:
            _wait_healthy(controller, package.spec.name, package.spec.version, deadline)


def plan_packages(packages: tuple[Package, ...], *, replace: bool, prune: bool, namespace: str) -> ClusterPlan:
    """What `deploy_packages` would bring. The process is connected.

    Raises:
        RayExecutorError: As `run_many`.
    """
    _check_names([each.code.app_name for each in packages if each.is_ingress])
    try:
        controller = connection.find_controller(namespace)
    except VersionMismatchError:
        raise
    except NotRunningError:  # nothing is deployed yet
        return plan_cluster(recover_cluster((), (), at=0.0, epoch=1).state, wanted_of(packages, prune, 0.0))
    found: ClusterPlan = ask(controller, "plan", packages, replace, prune)
    return found


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidDeploymentError(f"applications must have names of their own, got {name!r} {names.count(name)} times")


def _packages(
    target: Application, app_name: str, prefix: str | None, namespace: str
) -> tuple[list[Package], dict[int, DeploymentHandle]]:
    """What is sent of an application: its deployments, those first that others are given handles of; and these."""
    named = in_order(target)
    handles = {id(each): DeploymentHandle(deployment_id(app_name, name), namespace=namespace) for name, each in named.items()}
    packages = [
        pack(
            each,
            tuple(_with_handles(value, handles) for value in each.args),
            {key: _with_handles(value, handles) for key, value in each.kwargs.items()},
            app_name,
            name,
            route_prefix=prefix if each is target else None,
            is_ingress=each is target,
        )
        for name, each in named.items()
    ]
    return packages, handles


def status(*, namespace: str | None = None) -> Status:
    """What runs, and how it is.

    Raises:
        NotRunningError: Neither Ray nor a controller runs.
        NoAnswerError: The controller has not answered for a minute, nor has another taken its place.
    """
    status: Status = ask(_controller(namespace), "status")
    return status


def scale(name: str, num_replicas: int, *, stop_first: Iterable[ReplicaId] = (), namespace: str | None = None) -> None:
    """Want another number of replicas. Returns when that is checkpointed and announced, not when it is reached.

    Args:
        name: Of the deployment, `application/deployment` or bare.
        num_replicas: The new world size.
        stop_first: Replicas that a downscale should stop before any other.
    """
    _change(name, {"target_replicas": num_replicas}, tuple(stop_first), namespace)


def restart(name: str, *, token: str | None = None, namespace: str | None = None) -> None:
    """Replace every replica of a deployment once, a few at a time, by one of the same version: no outage (V10).

    As an update does: within `max_unavailable` and `max_surge`, each with its rank. Returns when that is stored.

    Args:
        name: Of the deployment, `application/deployment` or bare.
        token: Another `restart_token` than the present one, with which nothing happens; None: the time.

    Raises:
        InvalidDeploymentError: It has `residency`: evict it.
    """
    _change(name, wishes.restarted(token), (), namespace)


def pause(name: str, *, namespace: str | None = None) -> None:
    """Let an update reach no further rank: `partition` is above every rank (V13). What starts already goes on.

    Crashes are repaired and newcomers come, each with what was healthy last. Another `run` says anew how far it reaches.
    """
    _change(name, wishes.paused(), (), namespace)


def promote(name: str, replicas: int | str = "100%", *, namespace: str | None = None) -> None:
    """Let an update reach so many replicas in all, those with the highest ranks: a number, or a share such as "25%".

    Raises:
        InvalidCallError: It is neither.
    """
    reach = wishes.checked_reach(replicas)
    wanted = status(namespace=namespace).deployments
    target = wanted[name].world_size if name in wanted else 0  # who has no such name is told so by `_change`
    _change(name, wishes.promoted(reach, target), (), namespace)


def resume(name: str, *, namespace: str | None = None) -> None:
    """Let an update that was paused, or held back by a partition, reach all ranks."""
    _change(name, wishes.resumed(), (), namespace)


def rollback(name: str, *, namespace: str | None = None) -> None:
    """Go back to what was healthy last: its code, its `user_config`, in all ranks. Returns when that is stored.

    Other options stay as they are. An update that has become healthy is what was healthy last: deploy the older code then.

    Raises:
        InvalidDeploymentError: It was never healthy, or with nothing else than what is wanted now.
    """
    ask(_controller(namespace), "rollback", name)


def retry(name: str, *, ranks: Iterable[int] = (), namespace: str | None = None) -> None:
    """Try again now what failed: ends the back-off, and rolls out again what was given up (V19). Returns when that is stored.

    Args:
        name: Of the deployment, `application/deployment` or bare.
        ranks: Whose back-off ends; none: of all.

    Raises:
        InvalidCallError: `ranks` is not what it may be.
        InvalidDeploymentError: Nothing waits for a back-off, and it was not given up.
    """
    named = wishes.checked_ranks(ranks)
    ask(_controller(namespace), "retry", name, named)


def evict(name: str, *, keep: Literal["WARM", "COLD"] = "WARM", namespace: str | None = None) -> None:
    """Take weights that may be COLD off the GPUs, once the calls that are under way there are finished. Does not wait for that.

    The number of replicas that are wanted falls with it; a call that waits asks for one again.

    Args:
        name: Of a deployment with `residency`, or of one of its replicas.
        keep: "WARM": a copy stays in the node's memory if there is room; "COLD": none does.

    Raises:
        UnknownNameError: There is no such deployment or replica, or there are several of that name.
        InvalidDeploymentError: It has no `residency`.
    """
    if keep not in ("WARM", "COLD"):
        raise InvalidCallError(f"keep must be 'WARM' or 'COLD', got {keep!r:.80}")
    ask(_controller(namespace), "evict", name, str(keep))


def update(name: str, *, namespace: str | None = None, **options: Any) -> None:
    """Change options of a deployment in place: `user_config`, `num_replicas`, time-outs, `max_ongoing_requests`, ...

    Raises:
        InvalidDeploymentError: There is no such option, or it needs other code: that takes a new `run`.
    """
    from executors.ray_gpu.declaration import ROUTING_OPTIONS, SPEC_OPTIONS
    from executors.ray_gpu.serve_options import in_our_words

    options = in_our_words(options)
    changeable = {option: field for option, field in (*SPEC_OPTIONS.items(), *ROUTING_OPTIONS.items()) if option != "version"}
    for option in options:
        if option not in changeable:
            there_is = ", ".join(sorted(changeable))
            raise InvalidDeploymentError(f"update cannot change {option!r}: run() deploys new code; it can change: {there_is}")
    fields = {changeable[option]: value for option, value in options.items() if option in SPEC_OPTIONS}
    routing = {changeable[option]: value for option, value in options.items() if option in ROUTING_OPTIONS}
    _change(name, fields, (), namespace, without_any_number(routing))


def stop_replicas(replica_ids: Iterable[ReplicaId], *, namespace: str | None = None) -> None:
    """Stop these replicas; each is replaced, and its replacement has its rank.

    Raises:
        UnknownNameError: One of them does not exist, or several have that name. None is stopped.
    """
    named = wishes.checked_ids("stop_replicas", replica_ids)
    ask(_controller(namespace), "stop_replicas", named)


def replace_replicas(
    replica_ids: Iterable[ReplicaId], *, deadline_s: float | None = None, namespace: str | None = None
) -> None:
    """Replace these replicas within the budget, each by a successor with its rank that has a place before it goes (V14).

    Args:
        deadline_s: After so many seconds none of them is there any more, whether its successor is or not (V15); None: there is
            time.

    Raises:
        UnknownNameError: One of them does not exist, or several have that name. None is replaced.
        InvalidDeploymentError: The weights of one of them may be COLD: evict it.
    """
    named, for_s = wishes.checked_ids("replace_replicas", replica_ids), wishes.checked_deadline(deadline_s)
    ask(_controller(namespace), "replace_replicas", named, for_s)


def cordon(node: str, *, namespace: str | None = None) -> CordonedNode:
    """Let nothing new come to a node, of whichever deployment; nobody there is touched (V14). It outlives the controller.

    Args:
        node: Its id, the beginning of its id, or its address.

    Returns:
        How it stands with the node, and what becomes of each replica there.

    Raises:
        UnknownNameError: No node that is alive is called so, or several are; says which there are.
    """
    found: CordonedNode = ask(_controller(namespace), "cordon", node)
    return found


def uncordon(node: str, *, namespace: str | None = None) -> CordonedNode:
    """Cordon and drain of a node are over; who was told to stop by then still stops. As `cordon`.

    Raises:
        InvalidCallError: Ray itself drains the node, which has no way back.
    """
    found: CordonedNode = ask(_controller(namespace), "uncordon", node)
    return found


def drain(node: str, *, deadline_s: float | None = None, reason: str = "drain", namespace: str | None = None) -> CordonedNode:
    """Have all replicas leave a node, each once its successor has a place elsewhere, within `max_unavailable` (V14).

    Where Ray itself drains a node (`ray drain-node`, a preemption notice, its autoscaler), that is done unasked.

    Args:
        deadline_s: After so many seconds nobody is there any more, whether there is room elsewhere or not; they are stopped
            `graceful_shutdown_timeout_s` before (V15). None: there is time.
        reason: Shown while it lasts.
    """
    for_s, why = wishes.checked_deadline(deadline_s), wishes.checked_reason(reason)
    found: CordonedNode = ask(_controller(namespace), "drain", node, for_s, why)
    return found


def delete(name: str, *, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """Delete an application with all its deployments, or one deployment, and wait until all replicas are gone; calls under way
    may finish first.

    Args:
        name: Of the application, as in Ray Serve; where none is called so, of the deployment.

    Raises:
        UnknownNameError: There is neither, or there are several deployments of that name.
    """
    controller = _controller(namespace)
    ask_at_length(controller, "delete", ask(controller, "find_all", name), timeout_s=timeout_s)


def delete_all(names: Iterable[str], *, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """Delete several deployments at once, by their full names, and wait until all are gone; who does not exist is left out."""
    ask_at_length(_controller(namespace), "delete", tuple(names), timeout_s=timeout_s)


def get_app_handle(name: str, *, namespace: str | None = None) -> DeploymentHandle:
    """The handle that `run` returned for an application; works in drivers and in replicas.

    Raises:
        UnknownNameError: There is no such application.
    """
    found = ask(_controller(namespace), "ingress_of", name)
    return DeploymentHandle(found, namespace=namespace or connection.default_namespace())


def get_deployment_handle(
    deployment_name: str, app_name: str | None = None, *, namespace: str | None = None
) -> DeploymentHandle:
    """A handle to call a deployment with; works in drivers and in replicas.

    Args:
        app_name: Of its application. None: the one that this replica is of, where it has such a deployment, else any.

    Raises:
        UnknownNameError: There is no such deployment, or several applications have one.
    """
    asked = deployment_name if app_name is None else deployment_id(app_name, deployment_name)
    found = ask(_controller(namespace), "require", asked, _own_application() if app_name is None else None)
    return DeploymentHandle(found, namespace=namespace or connection.default_namespace())


def _own_application() -> str | None:
    try:
        return get_replica_context().app_name
    except NotInReplicaError:
        return None


def wait_until_healthy(name: str, *, namespace: str | None = None, timeout_s: float | None = None) -> DeploymentInfo:
    """Wait until a deployment has settled, and say how it is.

    Raises:
        DeploymentFailedError: It failed; the text has the traceback.
        TimeoutError: It has not settled in time.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return _wait_healthy(_controller(namespace), name, None, deadline)


def shutdown(*, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """Delete all deployments and end the controller. Where nothing runs, nothing happens.

    Args:
        timeout_s: How long calls under way may take; then, and when the controller does not answer, replicas are ended
            without further ado. None: as long as the deployments allow.
    """
    namespace = namespace or connection.default_namespace()
    try:
        connection.connect(start=False)
        controller = ray.get_actor(names.CONTROLLER, namespace=namespace)
    except (NotRunningError, ValueError):
        return
    try:
        ask_at_length(controller, "end_proxies", timeout_s=timeout_s)
        there_are = tuple(ask_at_length(controller, "deployments", timeout_s=timeout_s))
        ask_at_length(controller, "delete", there_are, timeout_s=timeout_s)
        ask_at_length(controller, "end_workers", timeout_s=timeout_s)
    except (TimeoutError, NotRunningError) as error:
        LOG.warning("%s: what is left is ended now", error)
    finally:
        ray.kill(controller)
        forget_all(namespace)


def _prefix_of(target: RunTarget) -> str | None:
    """Its name is looked at too."""
    if (problem := problem_of(target.name)) is not None:
        raise InvalidDeploymentError(f"the application's name must be {problem}, got {target.name!r:.80}")
    if target.route_prefix is None:
        return "/" if hasattr(target.target.deployment.target, APP) else None
    return checked_prefix(target.route_prefix)


def _importable(options: GrpcOptions) -> GrpcOptions:
    try:
        from executors.ray_gpu.grpc_proxy.capture import methods_of
        from executors.ray_gpu.grpc_proxy.server import GrpcServer  # noqa: F401
    except ImportError as error:
        raise InvalidDeploymentError(f"gRPC needs more packages: pip install 'rankcore[grpc]' ({error})") from None
    methods_of(options)
    return attrs.evolve(options, sys_path=tuple(os.path.abspath(path) for path in sys.path))


def _in_this_jobs_environment(options: GrpcOptions | None) -> GrpcOptions | None:
    return attrs.evolve(options, runtime_env=of_job()) if options is not None else None


def _check_http_can_be_served() -> None:
    try:
        from executors.ray_gpu.http import proxy_app, replica_side  # noqa: F401
    except ImportError as error:
        raise InvalidDeploymentError(f"HTTP needs more packages: pip install 'rankcore[http]' ({error})") from None


def _serve_outside(controller: Any, options: ProxyOptions, *, replace: bool) -> None:
    for proxy in ask_at_length(controller, "serve_outside", options, replace, START_PROXIES_S):
        if proxy.pid is None:
            problem = proxy.problem or f"it is not up after {START_PROXIES_S:g} s"
            LOG.warning("no HTTP on node %s at %s:%d yet: %s", proxy.node_id[:8], proxy.host, proxy.port, problem)


def _say_where_journal_is(controller: Any, wanted: str | None) -> None:
    if wanted:
        found = ask(controller, "status").journal
        if found is None:
            LOG.warning("nothing is written to %s: the controller has no journal, perhaps since it cannot open it", wanted)
        elif found != wanted:
            LOG.warning("nothing is written to %s: the controller that runs writes %s; shutdown() ends it", wanted, found)


def _controller(namespace: str | None) -> Any:
    connection.connect(start=False)
    return connection.find_controller(namespace or connection.default_namespace())


def _change(
    name: str,
    fields: dict[str, Any],
    stop_first: tuple[ReplicaId, ...],
    namespace: str | None,
    routing: dict[str, Any] | None = None,
) -> None:
    try:
        ask(_controller(namespace), "change", name, fields, stop_first, routing)
    except InvalidSpecError as error:
        raise option_of(error) from None


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
        raise DeploymentFailedError(f"{name} was rolled back to version {info.version}: {info.message}")
    return info


def in_order(target: Application) -> dict[str, Application]:
    """An application's deployments by their names in it, those first whose handles others need.

    The first of several that have one name keeps it, as in Ray Serve; the others get a number.
    """
    found: dict[int, Application] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Application):
            if id(value) in found:
                return
            for each in (*value.args, *value.kwargs.values()):
                visit(each)
            found[id(value)] = value
        elif isinstance(value, (list, tuple)):
            for each in value:
                visit(each)
        elif isinstance(value, dict):
            for each in value.values():
                visit(each)

    visit(target)
    named: dict[str, Application] = {}
    for application in found.values():
        name = application.deployment.name
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        named[name if name not in named else next(each for each in numbered if each not in named)] = application
    return named


def _with_handles(value: Any, handles: dict[int, DeploymentHandle]) -> Any:
    if isinstance(value, Application):
        return handles[id(value)]
    if type(value) in (list, tuple):
        return type(value)(_with_handles(each, handles) for each in value)
    if type(value) is dict:
        return {key: _with_handles(each, handles) for key, each in value.items()}
    return value


def _stay() -> None:
    try:
        while True:
            time.sleep(3600.0)
    except KeyboardInterrupt:
        return
