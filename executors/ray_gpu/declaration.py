"""What a user deploys: `@deployment`, `.options(...)`, `.bind(...)`. Nothing is checked against the core before `run`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import attrs

from executors.deployment_ids import deployment_id, problem_of
from executors.ray_gpu.deployment_actor_config import actors_of
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.logs.config import as_plain, logging_config_of
from executors.ray_gpu.routing_defaults import ROUTING_DEFAULTS, TOO_MANY, UNAVAILABLE
from executors.ray_gpu.serve_options import SERVE_OPTIONS, BackpressureConfig, fields_of, in_our_words
from rankcore.checks import DEPLOYMENT_LENGTH_MAX

if TYPE_CHECKING:
    from rankcore.errors import InvalidSpecError

SPEC_OPTIONS = {
    "num_replicas": "target_replicas",
    "user_config": "user_config",
    "version": "version",
    "compaction": "compaction",
    "victims": "victims",
    "placement": "placement",
    "graceful_shutdown_timeout_s": "graceful_shutdown_timeout_s",
    "health_check_period_s": "health_check_period_s",
    "health_check_timeout_s": "health_check_timeout_s",
    "start_timeout_s": "start_timeout_s",
    "repeat_period_s": "repeat_period_s",
    "max_start_failures": "max_start_failures",
    "start_backoff_s": "start_backoff_s",
    "start_backoff_max_s": "start_backoff_max_s",
    "max_unavailable": "max_unavailable",
    "max_surge": "max_surge",
    "surge_patience_s": "surge_patience_s",
    "scarcity_after_s": "scarcity_after_s",
    "rollback": "rollback",
    "stable_after_s": "stable_after_s",
    "min_ready_s": "min_ready_s",
    "config_rollout": "config_rollout",
    "restart_token": "restart_token",
    "update_order": "update_order",
    "partition": "partition",
    "progress_deadline_s": "progress_deadline_s",
    "hand_over": "hand_over",
}
"""Options that become fields of `rankcore.DeploymentSpec`, and which."""

TAKEN_BACK = ("target_replicas", "placement")
"""Fields of these that are left out where None is given: they depend on other options."""

ROUTING_OPTIONS = {
    "max_ongoing_requests": "max_ongoing_requests",
    "max_queued_requests": "max_queued_requests",
    "routing_policy": "policy",
    "idempotent": "idempotent",
    "max_retries": "max_retries",
    "request_timeout_s": "request_timeout_s",
    "retry_after_s": "retry_after_s",
    "load_factor": "load_factor",
    "request_router": "router",
}
"""Options that become fields of `rankcore.routing.RoutingSpec`, and which."""

STATIC_PLACEMENT = "static_placement"
"""What a file calls `_placement_info`, with the name of the placement group in place of the group."""

OWN_OPTIONS = (
    "name",
    "ray_actor_options",
    "spares",
    "sync_threads",
    "autoscaling_config",
    "_placement_info",
    "residency",
    "logging_config",
    "deployment_actors",
    "rejected_with",
    "max_replicas_per_node",
    "placement_group_bundles",
    "placement_group_strategy",
    "placement_group_bundle_label_selector",
)

ANY_NUMBER = -1
"""As `max_queued_requests`, as in Ray Serve."""

ACTOR_OPTIONS = ("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env", "label_selector")
"""What `ray_actor_options` may hold; names, restarts and life time of the actors are ours."""


@attrs.frozen(kw_only=True)
class Deployment:
    """A class or function, and how many replicas of it should run how. Made by `@deployment`.

    Attributes:
        target: The user's class or function.
        settings: The options that were given; see `SPEC_OPTIONS` and `OWN_OPTIONS`.
        init_args, init_kwargs: What `bind` was given for it; in an application.
    """

    target: Callable[..., Any]
    settings: Mapping[str, Any] = attrs.field(factory=dict, converter=dict)
    init_args: tuple[Any, ...] = ()
    init_kwargs: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def func_or_class(self) -> Callable[..., Any]:
        """The user's class or function, under the name that it has in Ray Serve; so are those that follow."""
        return self.target

    @property
    def version(self) -> str | None:
        """The option; None: it is worked out from what is deployed."""
        return self.settings.get("version")

    @property
    def num_replicas(self) -> Any:
        """The option, else what it is where nothing is said."""
        return self._setting("num_replicas", 0 if self.settings.get("residency") is not None else 1)

    @property
    def user_config(self) -> Any:
        """The option."""
        return self.settings.get("user_config")

    @property
    def max_ongoing_requests(self) -> Any:
        """Calls that a replica takes at once."""
        return self._setting("max_ongoing_requests", ROUTING_DEFAULTS["max_ongoing_requests"])

    @property
    def max_queued_requests(self) -> Any:
        """Calls that may wait in one caller's process; -1: any number."""
        return self._setting("max_queued_requests", ANY_NUMBER)

    @property
    def ray_actor_options(self) -> dict[str, Any]:
        """What replicas ask of Ray."""
        return {"num_cpus": 1, **(self.settings.get("ray_actor_options") or {})}

    @property
    def backpressure_config(self) -> BackpressureConfig:
        """What a client is told of a request that is refused since too many wait."""
        return BackpressureConfig(
            status_code=self._setting("rejected_with", UNAVAILABLE), retry_after_s=self.settings.get("retry_after_s")
        )

    @property
    def logging_config(self) -> dict[str, Any] | None:
        """The option, with all its fields; None: replicas log as the application says."""
        found = as_plain(logging_config_of(self.settings.get("logging_config")))
        return None if found is None else {name: list(each) if type(each) is tuple else each for name, each in found.items()}

    def set_logging_config(self, logging_config: Mapping[str, Any] | None) -> None:
        """Change the option of this very deployment, as in Ray Serve; `options` makes another one.

        Raises:
            InvalidDeploymentError: It is not what it may be; nothing has changed.
        """
        given = fields_of(logging_config)
        logging_config_of(given)
        object.__setattr__(self, "settings", {**self.settings, "logging_config": given})

    def _setting(self, option: str, default: Any) -> Any:
        found = self.settings.get(option)
        return default if found is None else found

    @property
    def name(self) -> str:
        """Of the deployment: the option, else the name of the class or function."""
        return str(self.settings.get("name") or self.target.__name__)

    def id_in(self, app_name: str, name: str | None = None) -> str:
        """What the core calls it in an application.

        Args:
            name: In that application; None: its own.

        Raises:
            InvalidDeploymentError: A name is not what it may be.
        """
        name = self.name if name is None else name
        for what, part in (("the application's name", app_name), ("name", name)):
            if (allowed := problem_of(part)) is not None:
                raise InvalidDeploymentError(f"{what} must be {allowed}, got {part!r:.80}")
        found = deployment_id(app_name, name)
        if len(found) > DEPLOYMENT_LENGTH_MAX:
            raise InvalidDeploymentError(
                f"{found[:40]}... has {len(found)} characters: the names of application and deployment, with the / "
                f"between them, may have {DEPLOYMENT_LENGTH_MAX}"
            )
        return found

    @property
    def spec_fields(self) -> dict[str, Any]:
        """The options that are fields of `rankcore.DeploymentSpec`."""
        given = {SPEC_OPTIONS[option]: value for option, value in self.settings.items() if option in SPEC_OPTIONS}
        return {field: value for field, value in given.items() if value is not None or field not in TAKEN_BACK}

    def options(self, func_or_class: Callable[..., Any] | None = None, **settings: Any) -> "Deployment":
        """A copy with other options. None takes an option back, where options exclude each other.

        Args:
            func_or_class: Another class or function in the place of this one; None: the same.
            settings: As of `@deployment`.

        Raises:
            InvalidDeploymentError: There is no such option, or it cannot be had with another one, wherever that was given.
        """
        together = {**self.settings, **in_our_words(settings)}
        _check(together)
        return attrs.evolve(self, settings=together, target=self.target if func_or_class is None else func_or_class)

    def bind(self, *args: Any, **kwargs: Any) -> "Application":
        """What `run` takes: the deployment and the arguments of its `__init__`. An `Application` among them is deployed
        too, and its handle passed in its place.
        """
        return Application(deployment=attrs.evolve(self, init_args=args, init_kwargs=kwargs))

    def __call__(self, *_: Any, **__: Any) -> None:
        """Deployments are not called here; their replicas are.

        Raises:
            InvalidDeploymentError: Always; says what to do.
        """
        raise InvalidDeploymentError(f"{self.name} is a deployment: run({self.name}.bind()) starts it and returns a handle")


@attrs.frozen(kw_only=True)
class Application:
    """A deployment with the arguments of its `__init__`."""

    deployment: Deployment

    @property
    def args(self) -> tuple[Any, ...]:
        """Of its `__init__`, by position."""
        return self.deployment.init_args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Likewise by name."""
        return self.deployment.init_kwargs

    def options(self, **settings: Any) -> "Application":
        """The same, with other options of its deployment."""
        return attrs.evolve(self, deployment=self.deployment.options(**settings))


@overload
def deployment(target: Callable[..., Any], /) -> Deployment: ...


@overload
def deployment(**settings: Any) -> Callable[[Callable[..., Any]], Deployment]: ...


def deployment(target: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Turn a class or function into a deployment.

    Args:
        target: The class or function, when there are no options.
        settings: `num_replicas`, `user_config`, `ray_actor_options` (`num_cpus`, 1 if it is left out, `num_gpus`,
            `resources`, ...), `name`, `version`, `spares` (started processes without a rank that stand by),
            `sync_threads` (how many synchronous calls run at once in a replica, 1 if it is left out),
            `autoscaling_config` (a dict of the fields of `rankcore.autoscaling.AutoscalingSpec`, with the names of Ray
            Serve, and `policy`: a function of a `rankcore.autoscaling.View`, or its import path; in place of
            `num_replicas`, which may be "auto"), `_placement_info` (a `StaticPlacementConfig`: the
            bundles that each replica stands on), `residency` (a `Residency`: weights that are on GPUs only while a replica is
            wanted; `num_replicas` is 0 then if it is left out, and the first call asks for one), `logging_config` (a
            `LoggingConfig` or a dict of its fields: how its replicas log), the fields of `rankcore.DeploymentSpec`, and
            those of `rankcore.routing.RoutingSpec`: `max_ongoing_requests` (calls that a replica takes at once, 5 if it is
            left out), `max_queued_requests` (calls that may wait in one caller's process, -1: any number), `routing_policy`,
            `idempotent`, `max_retries`, `request_timeout_s`, ...

    Raises:
        InvalidDeploymentError: There is no such option, or the target is neither class nor function.

    Example:
        @deployment(num_replicas=2, user_config={"model": "a"})
        class Model: ...
    """
    settings = in_our_words(settings)
    _check(settings)

    def wrap(target: Callable[..., Any]) -> Deployment:
        if not callable(target) or not hasattr(target, "__name__"):
            raise InvalidDeploymentError(f"@deployment takes a class or a function, got {target!r:.80}")
        return Deployment(target=target, settings=settings)

    return wrap if target is None else wrap(target)


def _check(settings: Mapping[str, Any]) -> None:
    allowed = (*SPEC_OPTIONS, *ROUTING_OPTIONS, *OWN_OPTIONS)
    _check_together(settings)
    logging_config_of(settings.get("logging_config"))
    actors_of(settings.get("deployment_actors"))
    for option in settings:
        if option not in allowed:
            there_are = ", ".join(sorted((*allowed, *SERVE_OPTIONS)))
            raise InvalidDeploymentError(f"deployment option {option!r} is unknown; there are: {there_are}")
    actor_options = settings.get("ray_actor_options") or {}
    if not isinstance(actor_options, Mapping):
        raise InvalidDeploymentError(f"ray_actor_options must be a dict, got {actor_options!r:.80}")
    for option in actor_options:
        if option not in ACTOR_OPTIONS:
            allowed_text = ", ".join(sorted(ACTOR_OPTIONS))
            raise InvalidDeploymentError(f"ray_actor_options[{option!r}] is unknown; there are: {allowed_text}")
    if settings.get("rejected_with") not in (None, UNAVAILABLE, TOO_MANY):
        raise InvalidDeploymentError(
            f"rejected_with must be {UNAVAILABLE} or {TOO_MANY}, got {settings['rejected_with']!r:.80}"
        )
    for option, least, most in (("spares", 0, 1000), ("sync_threads", 1, 1000), ("max_replicas_per_node", 1, 100)):
        number = settings.get(option)
        number = least if number is None else number
        if type(number) is not int or not least <= number <= most:
            raise InvalidDeploymentError(f"{option} must be an integer from {least} to {most}, got {number!r:.80}")


def _check_together(settings: Mapping[str, Any]) -> None:
    """Options that leave no room for each other: of all that were given, whether to `@deployment` or to `options`."""
    if settings.get("max_replicas_per_node") is not None:
        for option in ("_placement_info", "residency"):
            if settings.get(option) is not None:
                raise InvalidDeploymentError(
                    f"max_replicas_per_node cannot be had with {option}, which says where replicas are"
                )
    scales = settings.get("autoscaling_config") is not None
    number = settings.get("num_replicas")
    if settings.get("_placement_info") is not None and (scales or number == "auto"):
        raise InvalidDeploymentError(
            "autoscaling cannot be had with _placement_info: there are as many replicas as ranks in replica_bundle_mapping"
        )
    if scales and number not in (None, "auto"):
        raise InvalidDeploymentError(
            f"num_replicas={number!r:.80} cannot be had with autoscaling_config, which has initial_replicas: "
            "num_replicas=None takes it back, and autoscaling_config=None the other one"
        )


def option_of(error: "InvalidSpecError") -> InvalidDeploymentError:
    """The same mistake in the words of `@deployment`."""
    names = {field: option for option, field in (*SPEC_OPTIONS.items(), *ROUTING_OPTIONS.items())}
    field = error.field.removeprefix("DeploymentSpec.").removeprefix("RoutingSpec.")
    found = repr(error.found)
    shown = found if len(found) <= 80 else found[:77] + "..."
    option = names.get(field, field)
    return InvalidDeploymentError(f"{option} must be {error.allowed}, got {shown}", field=option)
