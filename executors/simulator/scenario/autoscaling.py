"""`autoscaling:` of a deployment in a scenario file: what each option of `AutoscalingSpec` takes."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.simulator.fields import PERIOD_MIN_S, Check, FieldProblem, choice, integer, number, optional
from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec, check_scalable
from rankcore.autoscaling.spec import AGGREGATIONS, FACTOR_MAX
from rankcore.checks import COUNT_MAX
from rankcore.errors import InvalidSpecError

_FACTOR = number(above=0.0, most=FACTOR_MAX)
_DELAY = number(least=0.0)

AUTOSCALING_CHECKS: dict[str, Check] = {
    "min_replicas": integer(0, COUNT_MAX),
    "max_replicas": integer(1, COUNT_MAX),
    "initial_replicas": optional(integer(0, COUNT_MAX)),
    "target_ongoing_requests": _FACTOR,
    "metrics_interval_s": number(least=PERIOD_MIN_S),
    "look_back_period_s": number(above=0.0),
    "upscale_delay_s": _DELAY,
    "downscale_delay_s": _DELAY,
    "downscale_to_zero_delay_s": optional(_DELAY),
    "upscaling_factor": _FACTOR,
    "downscaling_factor": _FACTOR,
    "aggregation_function": choice(*AGGREGATIONS),
    "max_rank_moves": optional(integer(1, COUNT_MAX)),
}
"""What each option takes, by its name."""

AUTOSCALING_ATTRIBUTES = {field.name: field for field in attrs.fields(AutoscalingSpec)}


def autoscaling_of(values: Mapping[str, Any]) -> AutoscalingSpec:
    """The options that a mapping names, the others as they are by default.

    Raises:
        FieldProblem: One of them cannot be had, or not beside the others.
    """
    for key, value in values.items():
        AUTOSCALING_CHECKS[key](None, AUTOSCALING_ATTRIBUTES[key], value)
    try:
        return AutoscalingSpec(**values)
    except InvalidSpecError as error:
        raise FieldProblem((error.field.rpartition(".")[2],), error.found, error.allowed) from None


def target_of(values: Mapping[str, Any], autoscaling: AutoscalingSpec) -> int:
    """How many replicas an autoscaled deployment begins with, which nobody else may say.

    Raises:
        FieldProblem: Somebody does.
    """
    if "target_replicas" in values:
        allowed = "nothing, as autoscaling says how many: initial_replicas, or min_replicas, to begin with"
        raise FieldProblem(("target_replicas",), values["target_replicas"], allowed)
    return autoscaling.first_target


def check_not_static(spec: DeploymentSpec) -> None:
    """Raise `FieldProblem` for an autoscaled deployment with a static placement."""
    try:
        check_scalable(spec)
    except InvalidSpecError as error:
        raise FieldProblem(("placement",), "a mapping to bundles", error.allowed) from None
