"""From what a user deploys to what the controller takes: the user's code, pickled, and a checked spec."""

import copyreg
import hashlib
import io
import json
import marshal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

import attrs
import ray
from ray import cloudpickle

from executors.ray_gpu import environment
from executors.ray_gpu.declaration import ANY_NUMBER, ROUTING_OPTIONS, Application, Deployment, option_of
from executors.ray_gpu.deployment_actor_config import actors_of, said
from executors.ray_gpu.deployment_actors import packed
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.extras import RayExtras
from executors.ray_gpu.logs.config import UNASKED, as_plain, logging_config_of
from executors.ray_gpu.messages import across_releases
from executors.ray_gpu.own_groups import group_wanted
from executors.ray_gpu.process import CAPTURE_CHILD_TASKS
from executors.ray_gpu.replica import Replica
from executors.ray_gpu.requests.multiplexing import is_multiplexed
from executors.ray_gpu.room import OWN_GROUP, demands, one_of_each_node
from executors.ray_gpu.routing_defaults import ROUTING_DEFAULTS, UNAVAILABLE
from executors.ray_gpu.scaling_policy import PolicySource
from executors.ray_gpu.serve_options import autoscaling_in_our_words
from executors.ray_gpu.static_placement import StaticPlacementConfig
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.worker.declaration import residency_of
from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.events import ApplyRequested
from rankcore.cluster.residency import ResidencySpec
from rankcore.cluster.spec import ApplicationSpec, EntrySpec
from rankcore.errors import InvalidSpecError
from rankcore.frozen import freeze_json
from rankcore.routing import RoutingSpec

AUTO = {"min_replicas": 1, "max_replicas": 100}
"""What `num_replicas="auto"` stands for, as in Ray Serve."""
POLICY = "policy"
"""In an `autoscaling_config`: a function, or where it is imported from."""

NOT_WITH_BUNDLES = {
    "placement": "_placement_info says where every replica is",
    "spares": "a replacement has to wait for its predecessor's bundles",
}
"""Options that a static placement leaves no room for."""


@attrs.frozen
class Origin:
    """Where an application's code is, as a file says it, and who scales it."""

    import_path: str
    args: Mapping[str, Any] = attrs.Factory(dict)
    runtime_env: Mapping[str, Any] = attrs.Factory(dict)
    external_scaler_enabled: bool = False

    def said(self) -> dict[str, Any]:
        """As JSON-like data, without what is empty."""
        others: dict[str, Any] = {"args": dict(self.args), "runtime_env": dict(self.runtime_env)}
        others["external_scaler_enabled"] = self.external_scaler_enabled
        return {"import_path": self.import_path, **{key: each for key, each in others.items() if each}}


across_releases(ResidencySpec)  # the core knows of no pickles, and who deploys may be of an older release


@across_releases
@attrs.frozen
class Package:
    """What the controller's `deploy` takes. `origin`, `capacity` and `rejected_with`: as in `RayExtras`."""

    code: Code
    spec: DeploymentSpec
    spares: int
    routing: RoutingSpec
    route_prefix: str | None = None
    is_ingress: bool = False
    autoscaling: AutoscalingSpec | None = None
    scaling_policy: PolicySource | None = None
    residency: ResidencySpec | None = None
    origin: Origin | None = None
    rejected_with: int = UNAVAILABLE
    capacity: Mapping[str, Any] | None = None

    def on_ray(self, id_on_ray: str | None) -> "Package":
        """The same for a deployment that is called otherwise on Ray; None: by its id."""
        return attrs.evolve(self, code=attrs.evolve(self.code, deployment=id_on_ray)) if id_on_ray is not None else self

    @property
    def entry_spec(self) -> EntrySpec:
        """What the machine is to have of it."""
        older = self.code.deployment != self.spec.name
        extras = RayExtras(
            class_name=self.code.class_name,
            spares=self.spares,
            policy=self.scaling_policy,
            id_on_ray=self.code.deployment if older else None,
            origin=freeze_json(self.origin.said()) if self.origin is not None else None,
            capacity=freeze_json(self.capacity),
            rejected_with=self.rejected_with,
        )
        return EntrySpec(
            ranks=self.spec,
            autoscaling=self.autoscaling,
            policy=self.scaling_policy.name if self.scaling_policy is not None else None,
            routing=self.routing,
            demand=demands(self.code.actor_options),
            extras=extras.to_extras(),
            residency=self.residency,
        )


def pack(
    application: Application,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    app_name: str,
    name: str | None = None,
    *,
    route_prefix: str | None = None,
    is_ingress: bool = False,
    logging: object = None,
) -> Package:
    """Pickle the code, name its version, and check the options.

    Args:
        name: Of the deployment in its application; None: its own.
        logging: How replicas log, where the deployment has no `logging_config` of its own.

    Raises:
        InvalidDeploymentError: Says which option or object, and what it may be.
    """
    deployment = application.deployment
    name = deployment.id_in(app_name, name)
    actor_options = _actor_options(deployment, name)
    routing = routing_of(deployment, name)
    residency = residency_of(deployment.settings, deployment.name)
    weights = residency.measured() if residency is not None else None
    blob = _pickle(deployment, args, dict(kwargs))
    own_logging = deployment.settings.get("logging_config")
    asked_logging = logging_config_of(logging if own_logging is None else own_logging)
    logs = as_plain(asked_logging if asked_logging != UNASKED else None)  # one version, whether said or not
    actors = actors_of(deployment.settings.get("deployment_actors"))
    shared = packed(actors)
    version = said_version = deployment.settings.get("version")
    if version is None:
        declared = weights.declared.encode() if weights is not None else b""
        declared += repr(sorted(logs.items())).encode() if logs is not None else b""
        declared += shared
        version = version_of(blob + source_of(deployment.target) + declared, actor_options)
    before, behind = environment.module_path()
    code = Code(
        deployment=name,
        version=str(version),
        class_name=f"{deployment.target.__module__}.{deployment.target.__qualname__}",
        app_name=app_name,
        blob=blob,
        sys_path=before,
        actor_options=actor_options,
        max_ongoing_requests=routing.max_ongoing_requests,
        sync_threads=deployment.settings.get("sync_threads") or 1,
        sys_path_behind=behind,
        weights=weights.spec.weights if weights is not None else "",
        weights_contents=weights.contents if weights is not None else None,
        logging=logs,
        actors=shared,
        actor_names=tuple(each.name for each in actors),
        actors_said=said(actors) if actors else None,
        version_said=said_version is not None,
        runtime_env_said=dict((deployment.settings.get("ray_actor_options") or {}).get("runtime_env") or {}) or None,
    )
    autoscaling = autoscaling_of(deployment)
    return Package(
        code,
        _spec(deployment, name, str(version), autoscaling, is_cold=weights is not None),
        deployment.settings.get("spares") or 0,
        routing,
        route_prefix,
        is_ingress,
        autoscaling,
        scaling_policy_of(deployment),
        weights.spec if weights is not None else None,
        rejected_with=deployment.settings.get("rejected_with") or UNAVAILABLE,
    )


def wanted_of(packages: Iterable[Package], prune: bool, at: float) -> ApplyRequested:
    """What the machine is asked for, for what was packed."""
    return ApplyRequested(applications=applications_of(packages), prune=prune, at=at)


def applications_of(packages: Iterable[Package]) -> tuple[ApplicationSpec, ...]:
    """What the machine is asked for, for what was packed."""
    by_name: dict[str, list[Package]] = {}
    for package in packages:
        by_name.setdefault(package.code.app_name, []).append(package)
    found = []
    for name, own in by_name.items():
        ingress = next((package for package in own if package.is_ingress or package.route_prefix is not None), None)
        found.append(
            ApplicationSpec(
                name=name,
                deployments=tuple(package.entry_spec for package in own),
                ingress=ingress.spec.name if ingress is not None else None,
                route_prefix=ingress.route_prefix if ingress is not None else None,
            )
        )
    return tuple(found)


def autoscaling_of(deployment: Deployment) -> AutoscalingSpec | None:
    """How the target follows the load; None: it does not.

    Raises:
        InvalidDeploymentError: An option of it is unknown, or not what it may be.
    """
    config = deployment.settings.get("autoscaling_config")
    if config is None and deployment.settings.get("num_replicas") != "auto":
        return None
    fields = AUTO if config is None else config
    if not isinstance(fields, Mapping):
        raise InvalidDeploymentError(f"autoscaling_config must be a dict or an AutoscalingConfig, got {config!r:.80}")
    fields = autoscaling_in_our_words(fields)
    allowed = [field.name for field in attrs.fields(AutoscalingSpec)]
    for option in fields:
        if option not in (*allowed, POLICY):
            there_is = ", ".join((*allowed, POLICY))
            raise InvalidDeploymentError(f"autoscaling_config[{option!r}] is unknown; there are: {there_is}")
    try:
        said: dict[str, Any] = {option: value for option, value in fields.items() if option != POLICY}
        return AutoscalingSpec(**said)
    except InvalidSpecError as error:
        name = error.field.removeprefix("AutoscalingSpec.")
        raise InvalidDeploymentError(f"autoscaling_config[{name!r}] must be {error.allowed}, got {error.found!r:.80}") from None


def scaling_policy_of(deployment: Deployment) -> PolicySource | None:
    """What of the user's decides how many replicas a load calls for; None: the usual policy does.

    Raises:
        InvalidDeploymentError: It is no policy.
    """
    config = deployment.settings.get("autoscaling_config")
    given = config.get(POLICY) if isinstance(config, Mapping) else None
    return PolicySource.of(given) if given is not None else None


def without_any_number(fields: dict[str, Any]) -> dict[str, Any]:
    """Ray Serve's "any number of calls may wait" in the core's words."""
    if fields.get("max_queued_requests") != ANY_NUMBER:
        return fields
    return {**fields, "max_queued_requests": attrs.fields_dict(RoutingSpec)["max_queued_requests"].default}


def routing_of(deployment: Deployment, name: str) -> RoutingSpec:
    """How calls are routed, by the options of a deployment; to where a model is, unless it says otherwise.

    Raises:
        InvalidDeploymentError: An option is not what it may be.
    """
    fields = {ROUTING_OPTIONS[option]: value for option, value in deployment.settings.items() if option in ROUTING_OPTIONS}
    fields = without_any_number(fields)
    defaults = {**ROUTING_DEFAULTS, **({"policy": "affinity"} if is_multiplexed(deployment.target) else {})}
    try:
        return RoutingSpec(**{**defaults, **fields, "name": name})
    except InvalidSpecError as error:
        raise option_of(error) from None


def _spec(
    deployment: Deployment, name: str, version: str, autoscaling: AutoscalingSpec | None, *, is_cold: bool = False
) -> DeploymentSpec:
    config = placement_of(deployment)
    defaults = {"target_replicas": 0 if is_cold else 1} if config is None else {"placement": config.placement}
    fields = deployment.spec_fields
    if autoscaling is not None:
        fields = {**fields, "target_replicas": autoscaling.first_target}
    try:
        return DeploymentSpec(**{**defaults, **fields, "name": name, "version": version})
    except InvalidSpecError as error:
        raise option_of(error) from None


def placement_of(deployment: Deployment) -> StaticPlacementConfig | None:
    """Its static placement, checked against its other options; None: it has none.

    Raises:
        InvalidDeploymentError: An option cannot be had together with it, and why; or a bundle is too small.
    """
    settings = deployment.settings
    config = settings.get("_placement_info")
    if config is None:
        return None
    if not isinstance(config, StaticPlacementConfig):
        raise InvalidDeploymentError(f"_placement_info must be a StaticPlacementConfig, got {config!r:.80}")
    group = config.placement.group_shown
    for option, why in NOT_WITH_BUNDLES.items():
        if settings.get(option):
            raise InvalidDeploymentError(f"{option} of {deployment.name} cannot be had with bundles of {group}: {why}")
    config.check_room(demands(settings.get("ray_actor_options") or {}))
    return config


def _actor_options(deployment: Deployment, name: str) -> dict[str, Any]:
    options = dict(deployment.settings.get("ray_actor_options") or {})
    if (at_most := deployment.settings.get("max_replicas_per_node")) is not None:
        options["resources"] = {**(options.get("resources") or {}), one_of_each_node(name): 1.0 / at_most}
    if deployment.settings.get("residency") is not None:
        options = {"num_cpus": 0, **options}
    config = placement_of(deployment)
    if config is not None:
        options[CAPTURE_CHILD_TASKS] = config.capture_child_tasks
    actor_class: Any = ray.remote(Replica)
    try:
        actor_class.options(**options)
    except (ValueError, TypeError) as error:
        raise InvalidDeploymentError(f"ray_actor_options of {deployment.name}: {error}") from None
    if (group := group_wanted(deployment.settings, options)) is not None:
        options[OWN_GROUP] = group
    runtime_env = environment.merged(environment.of_job(), options.get("runtime_env"))
    return {**options, "runtime_env": runtime_env} if runtime_env else options


def let_applications_be_pickled() -> None:
    """An application of `__main__` is pickled by value. Starlette's state asks itself for itself when it is read again, and
    newer FastAPI keeps a lock beside each included router.
    """
    starlette = sys.modules.get("starlette.datastructures")
    if starlette is not None:
        copyreg.pickle(starlette.State, lambda state: (starlette.State, (state._state,)))
    included = getattr(sys.modules.get("fastapi.routing"), "_IncludedRouter", None)
    if included is not None:
        copyreg.pickle(included, lambda route: (included, (route.original_router, route.include_context)))


def _pickle(deployment: Deployment, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    let_applications_be_pickled()
    for what, value in (
        (f"{deployment.name} ({deployment.target.__module__}.{deployment.target.__qualname__})", deployment.target),
        *((f"argument {index} of {deployment.name}.bind", value) for index, value in enumerate(args)),
        *((f"argument {key!r} of {deployment.name}.bind", value) for key, value in sorted(kwargs.items())),
    ):
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise InvalidDeploymentError(
                f"{what} cannot be pickled, which it must be to reach the replicas: {error}; "
                "create what cannot be pickled in __init__"
            ) from error
    written = io.BytesIO()
    _ContentPickler(written).dump((deployment.target, args, kwargs))
    return written.getvalue()


class _ContentPickler(cloudpickle.Pickler):  # type: ignore[misc]  # Ray's is untyped
    """Pickles equal code equally, in each process: a version is made of it.

    A pickle says which strings of two functions are one object: others where Python has compiled the code than where it has
    read it from `__pycache__`. And it has a set of constants in the order of this process.
    """

    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, CodeType):
            with suppress(ValueError):  # a constant that no source has, which somebody has put there
                return marshal.loads, (marshal.dumps(found, 2),)  # 2 is the last version that refers to no object twice
        return super().reducer_override(found)


def source_of(target: Any) -> bytes:
    """The file that a class or function of a module is defined in: its pickle has the name alone, and new code has that too."""
    path = getattr(sys.modules.get(target.__module__), "__file__", None)
    try:
        return Path(path).read_bytes() if path is not None and target.__module__ != "__main__" else b""
    except OSError:
        return b""


def version_of(code: bytes, actor_options: dict[str, Any]) -> str:
    """Another class, other arguments, resources or environment make another version; another process makes none."""
    for tracked in tuple(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.values()):
        code = code.replace(tracked.encode(), b"")  # what cloudpickle calls a class of __main__ in this process
    options = json.dumps(actor_options, sort_keys=True, default=repr).encode()
    return hashlib.sha256(code + b"\0" + options).hexdigest()[:12]
