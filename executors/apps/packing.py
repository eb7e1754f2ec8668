"""From a file of applications that was read to what the controller takes; what is wrong is said with its place in the file."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from executors.apps.file import GRPC_SERVICES, AppsFile, checked
from executors.ray_gpu.building import OPTIONS, BuildError, WantedApplication, built
from executors.ray_gpu.capacity import Capacity, grows
from executors.ray_gpu.environment import known_fields
from executors.ray_gpu.errors import InvalidDeploymentError, NotRunningError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.access import KEPT, SECRETS
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.inspecting import share_in_force
from executors.ray_gpu.logs.config import logging_config_of
from executors.ray_gpu.packing import Package
from executors.ray_gpu.proxies.options import SERVES_NAMES, chosen
from executors.ray_gpu.serve_options import controller_options_of
from executors.ray_gpu.traces import tracing_config_of

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
LOGGING = "logging_config"
TRACING = "tracing_config"
CONTROLLER = "controller_options"
_OPTION = re.compile(
    r"(?:http |gRPC |)options? (\w+)|\w+: no option '(\w+)'|\w+: no '(\w+)' given"
    r"|(?:Logging|Tracing)Config\.(\w+)|(?:logging|tracing)_config has no '(\w+)'"
)
"""How errors name an option of proxies."""


def read(path: "Path") -> AppsFile:
    """A file, read and checked.

    Raises:
        ScenarioError: Names file, line and key, what was found and what is allowed.
    """
    return checked(AppsFile.read(path), OPTIONS, known_fields())


def of_data(data: object, source: str) -> AppsFile:
    """The same of data that was parsed already; `source` is where it is from.

    Raises:
        ScenarioError: Names the key, what was found and what is allowed.
    """
    return checked(AppsFile(data, source), OPTIONS, known_fields())


def of_proxies(file: AppsFile) -> dict[str, Any]:
    """What `deploy_packages` takes of what the file says of proxies, as it says it: what is in force is added there.

    Raises:
        ScenarioError: As `read`.
    """
    http, grpc = file.config.http, file.config.grpc
    _checked(file, HttpOptions, http, "http_options")
    # Also where no service is named, so that these options have no effect.
    _checked(file, GrpcOptions, grpc or _with_a_service(file.config.grpc_options), "grpc_options")
    try:
        logging = logging_config_of(file.config.logging_config)
    except InvalidDeploymentError as error:
        raise file.problem(_place_of(file, LOGGING, str(error)), str(error)) from None
    try:
        tracing = tracing_config_of(file.config.tracing_config)
    except InvalidDeploymentError as error:
        raise file.problem(_place_of(file, TRACING, str(error)), str(error)) from None
    try:
        options = controller_options_of(file.config.controller_options)
    except InvalidDeploymentError as error:
        raise file.problem((CONTROLLER,), str(error)) from None
    found = {"http_options": http, "grpc_options": grpc, LOGGING: logging, TRACING: tracing}
    return {**found, **({CONTROLLER: options} if file.config.controller_options is not None else {})}


def of_plan(file: AppsFile) -> dict[str, Any]:
    """What `plan_packages` takes of it: how things are logged and traced, or the controller is started, changes no replica.

    Raises:
        ScenarioError: As `read`.
    """
    return {key: value for key, value in of_proxies(file).items() if key not in (LOGGING, TRACING, CONTROLLER)}


def _with_a_service(said: dict[str, Any] | None) -> dict[str, Any] | None:
    if not said:
        return None
    return {**{key: value for key, value in said.items() if key not in GRPC_SERVICES}, GRPC_SERVICES[1]: ["a.b"]}


def _checked(file: AppsFile, kind: type[HttpOptions] | type[GrpcOptions], said: dict[str, Any] | None, block: str) -> None:
    secrets_apart = said and {key: value for key, value in said.items() if key not in SECRETS or value != KEPT}
    try:
        chosen(kind, secrets_apart)  # type: ignore[type-var]
    except InvalidDeploymentError as error:
        raise file.problem(_place_of(file, block, str(error)), str(error)) from None


def _place_of(file: AppsFile, block: str, problem: str) -> tuple[str, ...]:
    """The option that an error speaks of, where the block has it; else the block."""
    if "option location" in problem:
        return ("proxy_location",) if file.config.proxy_location is not None else (block, "location")
    said: dict[str, Any] = getattr(file.config, block) or {}
    found = _OPTION.match(problem)
    name = next((each for each in (found.groups() if found is not None else ()) if each is not None), "")
    serves = [serves for serves, ours in SERVES_NAMES.get(GrpcOptions, {}).items() if ours == name]
    return (block, *[each for each in (name, *serves) if each in said][:1])


def packages_of(
    file: AppsFile,
    namespace: str,
    *,
    in_task: bool = False,
    timeout_s: float | None = None,
    import_timeout_s: float | None = None,
) -> tuple[Package, ...]:
    """What is sent of its applications. The process is connected.

    Args:
        in_task: Whether users' code is imported in tasks on the cluster, and never here; else where an application has a
            `runtime_env` alone.
        timeout_s: So long each application may take where a task does it; None: as long as it takes.
        import_timeout_s: So long each import may take, wherever it is, once there is an environment; None: as long as it takes.

    Raises:
        ScenarioError: As `read`.
        TimeoutError: It takes longer; the task is ended.
    """
    packages: list[Package] = []
    capacity = _capacity_of(file, namespace)
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
            logging_config=file.config.logging_config if each.logging_config is None else each.logging_config,
            deployments=dict(zip(positions, options, strict=True)),
            external_scaler_enabled=each.external_scaler_enabled,
            capacity=capacity,
        )
        try:
            of_this = built(wanted, namespace, in_task=in_task, timeout_s=timeout_s, import_timeout_s=import_timeout_s)
        except BuildError as error:
            keys = error.keys
            if keys[:1] == ("deployments",):
                keys = ("deployments", *(positions[str(name)] for name in keys[1:2]), *keys[2:])
            text = str(error).partition("\n")[0]
            raise file.problem(file.within(("applications", index, *keys), text), text) from None
        for prefix in [package.route_prefix for package in of_this if package.route_prefix is not None]:
            if prefix in taken:
                allowed = f"expected one that application {taken[prefix]!r} does not have"
                raise file.problem(("applications", index, "route_prefix"), f"{allowed}, found {prefix!r}")
            taken[prefix] = each.name
        packages += of_this
    return tuple(packages)


def _capacity_of(file: AppsFile, namespace: str) -> Capacity | None:
    """The share of replicas that the file asks for; whether that is more than before is asked for."""
    wanted = file.config.target_capacity
    if wanted is None:
        return None
    try:
        before = share_in_force(namespace)
    except NotRunningError:
        before = None
    return Capacity(wanted, grows(wanted, (each.name for each in file.config.applications), before))


def placed(file: AppsFile, packages: tuple[Package, ...], act: Callable[[], T]) -> T:
    """What it returns; what the cluster refuses of a file is said with the place in it that the error speaks of."""
    try:
        return act()
    except InvalidDeploymentError as error:
        if "cannot share port" in str(error):
            block = "grpc_options" if file.config.grpc is not None else "http_options"
            raise file.problem(
                (block, *(("port",) if "port" in (getattr(file.config, block) or {}) else ())), str(error)
            ) from None
        if str(error).startswith("gRPC servicer function"):
            keys = [each for each in GRPC_SERVICES if each in (file.config.grpc_options or {})]
            raise file.problem(("grpc_options", *keys), str(error)) from None
        names = [each.name for each in file.config.applications]
        for package in packages:
            place = "applications", names.index(package.code.app_name)
            if package.route_prefix is not None and str(error).startswith(f"route_prefix {package.route_prefix!r} "):
                raise file.problem((*place, "route_prefix"), str(error)) from None
            if str(error).startswith(f"{package.spec.name} "):
                raise file.problem((*place, "name"), str(error)) from None
        raise
