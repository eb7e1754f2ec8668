"""Applications as a file says them: their code is imported, the file's options take the place of the code's, all is packed.

Where an application has a `runtime_env` a task on the cluster does it, in that environment; else this process does.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError, RuntimeEnvSetupError

from executors.deployment_ids import DEFAULT_PREFIX
from executors.import_time import told, within
from executors.loading import LoadError, arguments_for, in_users_code, load_object, name_of
from executors.ray_gpu.applications import in_order
from executors.ray_gpu.capacity import Capacity
from executors.ray_gpu.declaration import (
    OWN_OPTIONS,
    ROUTING_OPTIONS,
    SPEC_OPTIONS,
    STATIC_PLACEMENT,
    Application,
    Deployment,
)
from executors.ray_gpu.deploying import RunTarget, packages_of
from executors.ray_gpu.errors import InvalidDeploymentError, RayExecutorError, not_one
from executors.ray_gpu.packing import Origin, Package
from executors.ray_gpu.serve_options import SERVE_OPTIONS
from executors.ray_gpu.static_placement import StaticPlacementConfig
from executors.ray_gpu.worker.declaration import Residency
from rankcore.errors import RankcoreError

NOT_IN_FILES = {"name", "_placement_info"}
OPTIONS = tuple(sorted({*SPEC_OPTIONS, *ROUTING_OPTIONS, *OWN_OPTIONS, *SERVE_OPTIONS, STATIC_PLACEMENT} - NOT_IN_FILES))
"""What a file may say of a deployment."""
OF_APPLICATION = (
    ("route_prefix ", ("route_prefix",)),
    ("the application's name ", ("name",)),
    ("external_scaler_enabled ", ("external_scaler_enabled",)),
    *((words, ("logging_config",)) for words in ("LoggingConfig.", "logging_config ")),
)
"""What errors of an application itself begin with, and its keys."""
OWNERS = {
    STATIC_PLACEMENT: STATIC_PLACEMENT,
    "Residency": "residency",
    "LoggingConfig": "logging_config",
    "DeploymentActorConfig": "deployment_actors",
}
"""Options that are mappings, by what errors of them begin with."""
RESIDENCY_OPTIONS = tuple(field.name for field in attrs.fields(Residency))


class BuildError(RayExecutorError):
    """An application cannot be built.

    Attributes:
        keys: Where in what the file says of the application.
        text: What is wrong there.
    """

    def __init__(self, keys: tuple[str | int, ...], text: str) -> None:
        super().__init__(keys, text)
        self.keys = keys
        self.text = text

    def __str__(self) -> str:
        return self.text


@attrs.frozen(kw_only=True)
class WantedApplication:
    """One application of a file.

    Attributes:
        import_path: `module:name` of what `bind` returned, or of a function that returns it and takes `args`.
        deployments: Options by the name of the deployment, of those that have some here.
        logging_config: Of those deployments that have none of their own.
        external_scaler_enabled: As of `run`.
        capacity: The share of replicas; None: all.
    """

    name: str
    import_path: str
    route_prefix: str | None = DEFAULT_PREFIX
    args: Mapping[str, Any] = attrs.Factory(dict)
    runtime_env: Mapping[str, Any] = attrs.Factory(dict)
    deployments: Mapping[str, Mapping[str, Any]] = attrs.Factory(dict)
    logging_config: Mapping[str, Any] | None = None
    external_scaler_enabled: bool = False
    capacity: Capacity | None = None


def built(
    wanted: WantedApplication,
    namespace: str,
    *,
    in_task: bool = False,
    timeout_s: float | None = None,
    import_timeout_s: float | None = None,
) -> tuple[Package, ...]:
    """What is sent of an application. The process is connected.

    Args:
        in_task: Whether a task does it also where the application has no `runtime_env`.
        timeout_s: So long a task may take; None: as long as it takes.
        import_timeout_s: So long the import may take, in a task too, once that has its environment; None: as long as it takes.

    Raises:
        BuildError: Says what of it cannot be had.
        TimeoutError: The task has taken longer, and is ended.
    """
    if not wanted.runtime_env and not in_task:
        return _build(wanted, namespace, import_timeout_s)
    environment = {"runtime_env": dict(wanted.runtime_env)} if wanted.runtime_env else {}
    try:
        task = ray.remote(_build).options(num_cpus=0, max_retries=0, **environment)
        building = task.remote(wanted, namespace, import_timeout_s)
        with told(wanted.import_path):
            found: tuple[Package, ...] = ray.get(building, timeout=timeout_s)
    except GetTimeoutError:
        ray.cancel(building, force=True)
        text = f"import_path: {wanted.import_path} of application {wanted.name!r} is not imported within {timeout_s:g} s"
        raise TimeoutError(text) from None
    except RayTaskError as error:
        if isinstance(error.cause, BuildError):
            raise error.cause from None
        raise BuildError(("import_path",), f"{wanted.import_path} cannot be built: {error.cause or error}") from error
    except (RuntimeEnvSetupError, ValueError, TypeError) as error:  # the environment cannot be made, or is none
        raise BuildError(("runtime_env",), " ".join(str(error).split())) from None
    except RayError as error:
        raise BuildError(("import_path",), f"{wanted.import_path}: {' '.join(str(error).split())}") from None
    return found


def _build(wanted: WantedApplication, namespace: str, import_timeout_s: float | None) -> tuple[Package, ...]:
    application = _imported(wanted, import_timeout_s)
    named = in_order(application)
    for name in wanted.deployments:
        if name not in named:
            raise BuildError(("deployments", name, "name"), not_one("deployment", name, (), named))
    changed = {id(each): _with_options(each.deployment, name, wanted) for name, each in named.items()}
    origin = Origin(wanted.import_path, wanted.args, wanted.runtime_env, wanted.external_scaler_enabled)
    whole = _with_deployments(application, changed, {})
    target = RunTarget(
        whole,
        wanted.name,
        wanted.route_prefix,
        external_scaler_enabled=wanted.external_scaler_enabled,
        logging_config=wanted.logging_config,
        origin=origin,
    )
    try:
        packages = packages_of(target, namespace)[0]
        return packages if wanted.capacity is None else tuple(wanted.capacity.of_package(each) for each in packages)
    except RankcoreError as error:
        raise _placed(error, wanted.deployments) from error


def _imported(wanted: WantedApplication, timeout_s: float | None) -> Application:
    try:
        with within(timeout_s, wanted.import_path):
            found = _found(wanted)
    except LoadError as error:
        raise BuildError(("import_path",), str(error)) from None
    if isinstance(found, Deployment):
        raise BuildError(("import_path",), f"{wanted.import_path} is a deployment: name what its bind() returns")
    if not isinstance(found, Application):
        raise BuildError(
            ("import_path",), f"{wanted.import_path} must be what bind() returns, or return that; found {found!r:.80}"
        )
    return found


def _found(wanted: WantedApplication) -> Any:
    found = load_object(_with_colon(wanted.import_path), "module:name, such as my_package.models:app")
    if not isinstance(found, (Application, Deployment)) and callable(found):
        return _called(found, wanted.args)
    if wanted.args:
        raise BuildError(("args",), f"{wanted.import_path} takes none: it is no function that returns an application")
    return found


def _with_colon(import_path: str) -> str:
    """Ray Serve takes `module.name` too."""
    module, dot, name = import_path.rpartition(".")
    return f"{module}:{name}" if dot and ":" not in import_path else import_path


def _called(builder: Any, args: Mapping[str, Any]) -> Any:
    try:
        return in_users_code(lambda: builder(*arguments_for(builder, args)))
    except LoadError as error:
        raise BuildError(("args",), str(error)) from error
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        text = f"{name_of(builder)} raised {type(error).__name__}: {' '.join(str(error).split())}"
        raise BuildError(("args", *_arguments_in(error)), text) from error


def _arguments_in(error: BaseException) -> tuple[str | int, ...]:
    """Where in the arguments a pydantic model has found the first thing that is wrong; nowhere, where that is another error."""
    told = getattr(error, "errors", None)
    try:
        return tuple(each for each in told()[0]["loc"] if isinstance(each, str | int)) if callable(told) else ()
    except (TypeError, LookupError, AttributeError):
        return ()


def _with_options(deployment: Deployment, name: str, wanted: WantedApplication) -> Deployment:
    options = wanted.deployments.get(name, {})
    given = dict(options)
    try:
        if given.get("residency") is not None:
            given["residency"] = residency_of(given["residency"])
        if (on_bundles := given.pop(STATIC_PLACEMENT, None)) is not None:
            given["_placement_info"] = static_placement_of(on_bundles)
        return deployment.options(**given)
    except RankcoreError as error:
        raise _placed(error, {name: options}) from error


def residency_of(given: Mapping[str, Any]) -> Residency:
    """The option as a file says it."""
    for key in given:
        if key not in RESIDENCY_OPTIONS:
            raise InvalidDeploymentError(f"residency has no {key!r}; there are: {', '.join(RESIDENCY_OPTIONS)}")
    if "weights" not in given:
        raise InvalidDeploymentError("residency must have weights: the path of a file or folder")
    return Residency(**given)


def static_placement_of(given: Mapping[str, Any]) -> StaticPlacementConfig:
    """The option as a file says it.

    Raises:
        InvalidDeploymentError: Names the key, what was found and what is allowed.
    """
    known = ("placement_group", "replica_bundle_mapping", "capture_child_tasks")
    for key in given:
        if key not in known:
            raise InvalidDeploymentError(f"{STATIC_PLACEMENT} has no {key!r}; there are: {', '.join(known)}")
    name, mapping = given.get("placement_group"), given.get("replica_bundle_mapping")
    if not isinstance(name, str) or not name:
        raise InvalidDeploymentError(
            f"{STATIC_PLACEMENT}.placement_group must be the name of a placement group, got {name!r:.80}"
        )
    if not isinstance(mapping, Mapping):
        raise InvalidDeploymentError(
            f"{STATIC_PLACEMENT}.replica_bundle_mapping must be a mapping of ranks to indices of bundles, got {mapping!r:.80}"
        )
    try:
        group = ray.util.get_placement_group(name)
    except ValueError:
        raise InvalidDeploymentError(f"{STATIC_PLACEMENT}.placement_group: there is no placement group {name!r}") from None
    by_rank = {int(rank) if str(rank).isdecimal() else rank: bundles for rank, bundles in mapping.items()}
    try:
        return StaticPlacementConfig(group, by_rank, given.get("capture_child_tasks", True))
    except InvalidDeploymentError as error:
        raise InvalidDeploymentError(f"{STATIC_PLACEMENT}: {error}") from None


def _with_deployments(value: Any, changed: Mapping[int, Deployment], made: dict[int, Application]) -> Any:
    """An application with other deployments in it; what is bound in two places stays one."""
    if isinstance(value, Application):
        if id(value) not in made:
            made[id(value)] = Application(
                deployment=attrs.evolve(
                    changed.get(id(value), value.deployment),
                    init_args=tuple(_with_deployments(each, changed, made) for each in value.args),
                    init_kwargs={key: _with_deployments(each, changed, made) for key, each in value.kwargs.items()},
                )
            )
        return made[id(value)]
    if type(value) in (list, tuple):
        return type(value)(_with_deployments(each, changed, made) for each in value)
    if type(value) is dict:
        return {key: _with_deployments(each, changed, made) for key, each in value.items()}
    return value


def _placed(error: RankcoreError, deployments: Mapping[str, Mapping[str, Any]]) -> BuildError:
    """The error with the key of the file that its text begins with, where one does."""
    if isinstance(error, BuildError):
        return error
    for name, options in deployments.items():
        for key in _keys_of(str(error)):
            if key in options:
                return BuildError(("deployments", name, key), str(error))
    return BuildError(next((keys for words, keys in OF_APPLICATION if str(error).startswith(words)), ()), str(error))


def _keys_of(text: str) -> Iterable[str]:
    first = text.partition(" ")[0].partition("[")[0].rstrip(":")
    if (owner := first.partition(".")[0]) in OWNERS:
        yield OWNERS[owner]
    else:
        yield first.rpartition(".")[2]
