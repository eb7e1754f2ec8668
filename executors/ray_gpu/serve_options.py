"""Options of a deployment that Ray Serve calls otherwise, in our words; and its config objects, as dicts of their fields.

`rolling_update_percentage` is a fraction there, rounded down to whole replicas and at least one, as `max_unavailable="n%"` is
here; `max_surge_percent` is rounded up, as `max_surge="n%"` is. So each number of replicas is the same as in Serve.
`graceful_shutdown_wait_loop_s` is how late it may be noticed that a replica has nothing to do any more: one says so itself,
at once, which is within any such bound.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.router_source import RouterSource, is_json
from executors.ray_gpu.routing_defaults import TOO_MANY, UNAVAILABLE

Ours = dict[str, Any]
"""Options by our names."""

ROUTERS = {"PowerOfTwoChoicesRequestRouter": "power_of_two", "ConsistentHashRouter": "affinity"}
"""By the name of Serve's class: our `routing_policy`."""
BACKOFF = ("initial_backoff_s", "backoff_multiplier", "max_backoff_s")
ROUTER_SECONDS = {"request_routing_stats_period_s": "stats_period_s", "request_routing_stats_timeout_s": "stats_timeout_s"}
"""By Serve's name: of `RouterSource`."""
ROUTER_NUMBERS = (*ROUTER_SECONDS, *BACKOFF)
ROUTER_OPTIONS = ("request_router_class", "request_router_kwargs", *ROUTER_NUMBERS)


@attrs.frozen(kw_only=True)
class BackpressureConfig:
    """What a client is told of a request that is refused since too many wait: when to come back."""

    status_code: int = 503
    retry_after_s: float | None = None


@attrs.frozen(kw_only=True)
class RequestRouterConfig:
    """Which replica gets a request.

    Attributes:
        request_router_class: A subclass of `executors.ray_gpu.request_router.RequestRouter`, or "module:Class"; or one
            of `ROUTERS`, by its class or its name; None: as the deployment's `routing_policy` says.
        request_router_kwargs: For its `initialize_state`; plain data.
        request_routing_stats_period_s, request_routing_stats_timeout_s: How often `record_routing_stats` of the replicas is
            asked what routers are to know of them, and how long it may take.
        initial_backoff_s, backoff_multiplier, max_backoff_s: After how long a router is asked again about a request that
            nobody could take: at first, how many times as long each time, and at most.
    """

    request_router_class: Any = None
    request_router_kwargs: dict[str, Any] = attrs.Factory(dict)
    request_routing_stats_period_s: float = 10.0
    request_routing_stats_timeout_s: float = 30.0
    initial_backoff_s: float = 0.025
    backoff_multiplier: float = 2.0
    max_backoff_s: float = 0.5


@attrs.frozen(kw_only=True)
class ControllerOptions:
    """Of the controller, where it is started.

    Attributes:
        runtime_env: Its one key is `env_vars`: variables of its environment, by name.

    Raises:
        InvalidDeploymentError: It is something else.
    """

    runtime_env: Mapping[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        found = {} if self.runtime_env is None else self.runtime_env
        variables = found.get("env_vars", {}) if isinstance(found, Mapping) and found.keys() <= {"env_vars"} else None
        if not isinstance(variables, Mapping) or not all(
            type(each) is str and each for each in (*variables, *(value or "-" for value in variables.values()))
        ):
            raise InvalidDeploymentError(
                f"controller_options['runtime_env'] must be a dict of env_vars, which are strings, got {self.runtime_env!r:.80}"
            )

    @property
    def env_vars(self) -> Mapping[str, str]:
        """The variables."""
        found: Mapping[str, str] = (self.runtime_env or {}).get("env_vars", {})
        return found


def controller_options_of(given: object) -> ControllerOptions:
    """Options as a user gives them: ours, Ray Serve's, a dict, or None.

    Raises:
        InvalidDeploymentError: They are none of these.
    """
    fields = {} if given is None else fields_of(given)
    if not isinstance(fields, Mapping) or not fields.keys() <= {"runtime_env"}:
        raise InvalidDeploymentError(
            f"controller_options must be a ControllerOptions or a dict of runtime_env, got {given!r:.80}"
        )
    return ControllerOptions(**fields)


def fields_of(given: object) -> object:
    """A config object, of Ray Serve or of `executors.ray_gpu.config`, as a dict of what was given; anything else as it is."""
    kind: Any = type(given)
    if attrs.has(kind):
        fields = {field.name: (getattr(given, field.name), field.default) for field in attrs.fields(kind)}
        return {name: value for name, (value, default) in fields.items() if value != default}
    dump = getattr(given, "model_dump", None)
    found = dump(exclude_unset=True) if callable(dump) else given
    return {name: _plain(value) for name, value in found.items()} if isinstance(found, Mapping) else found


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _share_of_fraction(found: object) -> Ours | None:
    if type(found) not in (int, float) or not 0 < found <= 1:  # type: ignore[operator]
        return None
    percent = f"{Decimal(repr(found)) * 100:.20f}".rstrip("0").rstrip(".")
    return {"max_unavailable": f"{percent}%"}


def _share_of_percent(found: object) -> Ours | None:
    return {"max_surge": f"{found}%"} if type(found) is int and 0 <= found <= 100 else None


def _failures(found: object) -> Ours | None:
    return {"max_start_failures": found} if type(found) is int and found > 0 else None


def _noticed_at_once(found: object) -> Ours | None:
    return {} if type(found) in (int, float) and 0 < found < float("inf") else None  # type: ignore[operator]


def _backpressure(found: object) -> Ours | None:
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not found.keys() <= {"status_code", "retry_after_s"}:
        return None
    status, after_s = found.get("status_code", UNAVAILABLE), found.get("retry_after_s")
    if status not in (UNAVAILABLE, TOO_MANY) or not (
        after_s is None or (type(after_s) in (int, float) and 0 <= after_s < float("inf"))
    ):
        return None
    said = {} if status == UNAVAILABLE else {"rejected_with": status}
    return said | ({"retry_after_s": after_s} if after_s else {})


def _router(found: object) -> Ours | None:
    if found is None:
        return {}
    if not isinstance(found, Mapping) or not found.keys() <= set(ROUTER_OPTIONS):
        return None
    kwargs = found.get("request_router_kwargs") or {}
    if not is_json(kwargs) or not all(_is_positive(found[name]) for name in ROUTER_NUMBERS if name in found):
        return None
    kind = found.get("request_router_class")
    if kind is None:
        return {}
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    module, _, last = name.replace(":", ".").rpartition(".")
    policy = ROUTERS.get(last)
    if policy is not None and (not module or module.startswith("ray.") or not isinstance(kind, str)):
        return None if kwargs and policy == "affinity" else {"routing_policy": policy, "request_router": ""}
    times = {ours: float(found[name]) for name, ours in ROUTER_SECONDS.items() if name in found}
    backoff = {name: float(found[name]) for name in BACKOFF if name in found}
    source = RouterSource.of(kind, kwargs=dict(kwargs), backoff=backoff, **times)
    return {"request_router": source.text}


def _is_positive(found: object) -> bool:
    return type(found) in (int, float) and 0 < found < float("inf")  # type: ignore[operator]


SERVE_OPTIONS: dict[str, tuple[tuple[str, ...], Callable[[object], Ours | None], str]] = {
    "rolling_update_percentage": (
        ("max_unavailable",),
        _share_of_fraction,
        "a fraction above 0 and up to 1",
    ),
    "max_surge_percent": (("max_surge",), _share_of_percent, "an integer from 0 to 100"),
    "max_constructor_retry_count": (("max_start_failures",), _failures, "an integer from 1 on"),
    "graceful_shutdown_wait_loop_s": ((), _noticed_at_once, "a number of seconds above 0"),
    "backpressure_config": (
        ("retry_after_s", "rejected_with"),
        _backpressure,
        "a BackpressureConfig, or a dict of status_code, which is 503 or 429, and retry_after_s, a number of seconds from 0 on",
    ),
    "request_router_config": (
        ("routing_policy", "request_router"),
        _router,
        "a RequestRouterConfig, or a dict of its fields: a class of request routers or its name, plain data for it, and "
        "numbers above 0",
    ),
}
"""By Serve's name: what it is here, what a value of Serve's is in our words, and which values there are."""

CONFIGS = ("autoscaling_config", "backpressure_config", "request_router_config", "logging_config")
"""Options that may be config objects."""


def in_our_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    """These options, those of Ray Serve under the names they have here.

    Raises:
        InvalidDeploymentError: A value is none that Serve takes, or the option is given under both names.
    """
    plain = {option: fields_of(value) if option in CONFIGS else value for option, value in settings.items()}
    ours = {option: value for option, value in plain.items() if option not in SERVE_OPTIONS}
    for option, (names, translate, allowed) in SERVE_OPTIONS.items():
        if option not in plain:
            continue
        if both := [name for name in names if name in settings]:
            raise InvalidDeploymentError(
                f"{option} cannot be had with {both[0]}, which it is called here: leave one of them out"
            )
        translated = translate(plain[option])
        if translated is None:
            raise InvalidDeploymentError(f"{option} must be {allowed}, got {settings[option]!r:.80}")
        ours |= translated
    return ours


SMOOTHING = {
    "upscale_smoothing_factor": ("upscaling_factor",),
    "downscale_smoothing_factor": ("downscaling_factor",),
    "smoothing_factor": ("upscaling_factor", "downscaling_factor"),
}
"""By the names that Serve had for them first: what they are called by now, there and here."""


def autoscaling_in_our_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an `autoscaling_config`, as Serve reads those of before: the newer name counts where both are given."""
    ours = {name: value for name, value in fields.items() if name not in SMOOTHING}
    for before, names in SMOOTHING.items():
        for name in names:
            if fields.get(before) is not None and ours.get(name) is None:
                ours[name] = fields[before]
    for name in SMOOTHING["smoothing_factor"]:
        if name in ours and ours[name] is None:  # what Serve says for 1
            del ours[name]
    if isinstance(how := _plain(ours.get("aggregation_function")), str):
        ours["aggregation_function"] = how.lower()
    return ours
