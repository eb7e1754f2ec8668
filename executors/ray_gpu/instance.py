"""The control plane on a Ray cluster, as a whole: started, what it serves outside (HTTP, gRPC), and shut down."""

import asyncio
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import ray

from executors.deployment_ids import DEFAULT_PREFIX
from executors.ray_gpu import connection, names
from executors.ray_gpu.connection import ask, ask_at_length
from executors.ray_gpu.discovery import forget_all
from executors.ray_gpu.environment import of_job
from executors.ray_gpu.errors import (
    InvalidDeploymentError,
    NotRunningError,
)
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.logs.config import LoggingConfig, as_plain, logging_config_of
from executors.ray_gpu.proxies.options import ProxyOptions, chosen
from executors.ray_gpu.rest.starting import end_rest
from executors.ray_gpu.serve_options import ControllerOptions, controller_options_of
from executors.ray_gpu.traces import TracingConfig, tracing_config_of
from executors.ray_gpu.worker.options import MemoryOptions

LOG = logging.getLogger(__name__)

START_PROXIES_S = 60.0
"""How long the first proxies may take to come up before it is said that they have not."""

JOURNAL_IN_LOGS = ""
"""Where the journal goes by default: in this user's private folder on the controller's node."""


def start(
    *,
    proxy_location: str | None = None,
    namespace: str | None = None,
    journal: str | None = JOURNAL_IN_LOGS,
    http_options: HttpOptions | Mapping[str, Any] | None = None,
    grpc_options: GrpcOptions | Mapping[str, Any] | None = None,
    memory: MemoryOptions | Mapping[str, Any] | None = None,
    controller_options: ControllerOptions | Mapping[str, Any] | None = None,
    logging_config: LoggingConfig | Mapping[str, Any] | None = None,
    tracing_config: TracingConfig | Mapping[str, Any] | None = None,
) -> None:
    """Start the controller and its proxies, where they do not run yet. `run` starts the controller too.

    Args:
        proxy_location: `location` of the `http_options`: "HeadOnly", "EveryNode" or "Disabled". None: what these say; where
            they say nothing, where proxies are already, else on every node.
        http_options: How to serve HTTP, as `HttpOptions` or a dict of its fields; what was served otherwise ends. None: as
            it is, and as `HttpOptions()` has it where nobody has said so.
        grpc_options: How to serve gRPC, likewise: by the same proxies.
        memory: Which memory of nodes weights that may be COLD use (`Residency`), as `MemoryOptions` or a dict of its fields;
            None: as it is, which is as `MemoryOptions()` has it until somebody says otherwise.
        logging_config: How proxies log, as `LoggingConfig` or a dict of its fields; others take the place of those that log
            otherwise, and are started where there are none. None: as it is. How replicas log, `run` and `@deployment` say.
        tracing_config: Which spans replicas and proxies leave that begin from now on, as `TracingConfig` or a dict of its
            fields. None: as it is, which is as their environment says until somebody says otherwise.
        namespace: Where it and its replicas live; by default $RANKCORE_NAMESPACE, or "rankcore".
        journal: File for everything that happens, on the controller's node; None: no journal.
        controller_options: Of the controller, where it is started by this: the variables of its environment.

    Raises:
        NotRunningError: Ray cannot be reached.
        InvalidDeploymentError: An option is not what it may be.
    """
    http, grpc = chosen(HttpOptions, http_options), chosen(GrpcOptions, grpc_options)
    if proxy_location is not None:
        location: Any = getattr(proxy_location, "value", proxy_location)  # Serve's is an enum
        http = attrs.evolve(http or HttpOptions(), location=location)
    is_located = proxy_location is not None or _says_location(http_options)
    places, env_vars = chosen(MemoryOptions, memory), controller_options_of(controller_options).env_vars
    logs, spans = as_plain(logging_config_of(logging_config)), tracing_config_of(tracing_config)
    if grpc is not None:
        _importable(grpc)
    if http is not None or grpc is not None or logs is not None:
        check_http_can_be_served()
    warn_of_open_doors(http, grpc)
    connection.connect(start=True)
    controller = connection.start_controller(namespace or connection.default_namespace(), journal, env_vars)
    say_where_journal_is(controller, journal)
    if places is not None:
        ask(controller, "use_memory", places)
    if spans is not None:  # before there are proxies, which read it
        ask(controller, "use_tracing", attrs.asdict(spans))
    before: ProxyOptions | None = ask(controller, "proxy_options")
    http = _on_every_node(http, before) if not is_located else http
    if http is not None or grpc is not None or logs is not None:
        serve_outside(controller, wanted_outside(before, http, grpc, logs), replace=True)


def _says_location(http_options: HttpOptions | Mapping[str, Any] | None) -> bool:
    """Whether they say where proxies are to be; Ray Serve's own may have None there."""
    said = http_options.get("location") if isinstance(http_options, Mapping) else getattr(http_options, "location", None)
    return said is not None


def _on_every_node(http: HttpOptions | None, before: ProxyOptions | None) -> HttpOptions | None:
    """How `start` serves HTTP where nobody says on which nodes: where proxies are already, else on every node."""
    if before is not None:
        return None if http is None else attrs.evolve(http, location=before.http.location)
    if http is None:
        try:
            check_http_can_be_served()
        except InvalidDeploymentError as error:  # nobody has asked for it
            LOG.warning("there are no proxies: %s", error)
            return None
    return attrs.evolve(http or HttpOptions(), location="EveryNode")


def shutdown(*, namespace: str | None = None, timeout_s: float | None = None, keep_rest: bool = False) -> None:
    """Delete all deployments and end the controller and the REST server, and what `run(..., _local_testing_mode=True)` runs in
    this process. Where nothing runs, nothing happens.

    Args:
        timeout_s: How long calls under way may take; then, and when the controller does not answer, replicas are ended
            without further ado. None: as long as the deployments allow.
        keep_rest: Whether the REST server stays, for what is deployed next.
    """
    if namespace is None:
        end_local_tests(None)
    namespace = namespace or connection.default_namespace()
    try:
        connection.connect(start=False)
        if not keep_rest:
            end_rest(namespace)
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


def end_local_tests(name: str | None) -> bool:
    """Of a name; None: all. They are of this process, and where none has been run, their module is not loaded either."""
    module = sys.modules.get("executors.ray_gpu.local_testing")
    return module is not None and bool(module.end_here(name))


async def shutdown_async(*, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """As `shutdown`, for asynchronous code: its event loop goes on meanwhile."""
    await asyncio.to_thread(shutdown, namespace=namespace, timeout_s=timeout_s)


def wanted_outside(before: ProxyOptions | None, http: object, grpc: object, logs: dict[str, Any] | None) -> ProxyOptions:
    """What proxies are to serve; with what this process knows of gRPC's services, where they are said.

    Raises:
        InvalidDeploymentError: As `ProxyOptions.asked`; or a service cannot be imported.
    """
    wanted = (before or ProxyOptions()).asked(http, grpc, logs)
    if grpc is None or wanted.grpc is None:
        return wanted
    return attrs.evolve(wanted, grpc=attrs.evolve(_importable(wanted.grpc), runtime_env=of_job()))


def warn_of_open_doors(http: HttpOptions | None, grpc: GrpcOptions | None) -> None:
    """Log which of them other machines could reach."""
    for protocol, options in (("HTTP", http), ("gRPC", grpc)):
        if options is not None and (open_door := options.open_door(protocol, options.host, options.port)):
            LOG.warning("%s", open_door)


def _importable(options: GrpcOptions) -> GrpcOptions:
    try:
        from executors.ray_gpu.grpc_proxy.capture import methods_of
        from executors.ray_gpu.grpc_proxy.server import GrpcServer  # noqa: F401
    except ImportError as error:
        raise InvalidDeploymentError(f"gRPC needs more packages: pip install 'rankcore[grpc]' ({error})") from None
    methods_of(options)
    return attrs.evolve(options, sys_path=tuple(os.path.abspath(path) for path in sys.path))


def check_http_can_be_served() -> None:
    """Raises InvalidDeploymentError where its packages are not installed."""
    try:
        from executors.ray_gpu.http import proxy_app, replica_side  # noqa: F401
    except ImportError as error:
        raise InvalidDeploymentError(f"HTTP needs more packages: pip install 'rankcore[http]' ({error})") from None


def wants_proxies(prefixes: Iterable[str | None], *, warns: bool = False) -> bool:
    """Whether proxies are to be there for these. Where packages are missing the default prefix is no error: nobody has asked.

    Raises:
        InvalidDeploymentError: There is another prefix, and packages are missing.
    """
    there = {each for each in prefixes if each is not None}
    try:
        if there:
            check_http_can_be_served()
    except InvalidDeploymentError as error:
        if there != {DEFAULT_PREFIX}:
            raise
        if warns:
            LOG.warning("there is no HTTP: %s", error)
        return False
    return bool(there)


def serve_outside(controller: Any, options: ProxyOptions, *, replace: bool) -> None:
    """Have proxies serve so, and log which of them are not up in time.

    Args:
        replace: Whether proxies that serve otherwise are replaced.
    """
    for proxy in ask_at_length(controller, "serve_outside", options, replace, START_PROXIES_S):
        if proxy.pid is None:
            problem = proxy.problem or f"it is not up after {START_PROXIES_S:g} s"
            LOG.warning("no HTTP on node %s at %s:%d yet: %s", proxy.node_id[:8], proxy.host, proxy.port, problem)


def say_where_journal_is(controller: Any, wanted: str | None) -> None:
    """Log it where that is another file than was wanted."""
    if wanted:
        found = ask(controller, "status").journal
        if found is None:
            LOG.warning("nothing is written to %s: the controller has no journal, perhaps since it cannot open it", wanted)
        elif found != wanted:
            LOG.warning("nothing is written to %s: the controller that runs writes %s; shutdown() ends it", wanted, found)
