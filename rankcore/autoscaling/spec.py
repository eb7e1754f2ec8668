"""What a user wants of an autoscaler: `AutoscalingSpec`, with the option names of Ray Serve."""

from typing import Literal, TypeAlias

import attrs

from rankcore import checks
from rankcore.codec_plans import since
from rankcore.errors import InvalidSpecError
from rankcore.spec import DeploymentSpec

Aggregation: TypeAlias = Literal["mean", "max", "min"]

AGGREGATIONS: tuple[Aggregation, ...] = ("mean", "max", "min")
FACTOR_MAX = 1e6
STALE_MIN_S = 10.0
"""As Ray Serve 2.60: a source that pushes more often than this may still be silent for so long."""


@attrs.frozen(kw_only=True)
class AutoscalingSpec:
    """How the target of one deployment follows its load. Names, meanings and defaults are those of Ray Serve 2.60.

    Attributes:
        min_replicas: The target never goes below it (A1); 0 lets the deployment go when nobody asks for it.
        max_replicas: The target never goes above it (A1).
        initial_replicas: The first target; None: `min_replicas`.
        target_ongoing_requests: Requests for each replica, queued or in flight, that the target aims at (A2).
        metrics_interval_s: How often handles and replicas report.
        look_back_period_s: Over how long the load is averaged (A2).
        upscale_delay_s: How long more replicas must have been wanted without a break (A3).
        downscale_delay_s: How long fewer must have been wanted without a break (A3).
        downscale_to_zero_delay_s: The same for the step from 1 to 0; None: `downscale_delay_s`.
        upscaling_factor: Multiplies what an upscale adds (A4).
        downscaling_factor: Multiplies what a downscale takes away (A4).
        aggregation_function: What counts of the load over the look-back: its "mean", or its "max" or "min" at one time (A2).
        max_rank_moves: How many replicas of the deployment may be on the way to another rank at a time, after a downscale (A9);
            None: any number. Ray Serve has no such option.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    __stored__ = True

    min_replicas: int = 1
    max_replicas: int = 1
    initial_replicas: int | None = None
    target_ongoing_requests: float = 2.0
    metrics_interval_s: float = 10.0
    look_back_period_s: float = 30.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    downscale_to_zero_delay_s: float | None = None
    upscaling_factor: float = 1.0
    downscaling_factor: float = 1.0
    max_rank_moves: int | None = None
    aggregation_function: Aggregation = attrs.field(default="mean", metadata=since(5, 4))

    def __attrs_post_init__(self) -> None:
        checks.count(InvalidSpecError, _path("max_replicas"), self.max_replicas, 1)
        checks.count(InvalidSpecError, _path("min_replicas"), self.min_replicas, 0, self.max_replicas)
        if self.initial_replicas is not None:
            path = _path("initial_replicas")
            checks.count(InvalidSpecError, path, self.initial_replicas, self.min_replicas, self.max_replicas)
        if self.aggregation_function not in AGGREGATIONS:
            allowed = "one of " + ", ".join(repr(each) for each in AGGREGATIONS)
            raise InvalidSpecError(_path("aggregation_function"), self.aggregation_function, allowed)
        if self.max_rank_moves is not None:
            checks.count(InvalidSpecError, _path("max_rank_moves"), self.max_rank_moves, 1)
        for field in ("target_ongoing_requests", "upscaling_factor", "downscaling_factor"):
            _check_factor(field, getattr(self, field))
        for field in ("metrics_interval_s", "look_back_period_s"):
            checks.seconds(InvalidSpecError, _path(field), getattr(self, field), above=0.0)
        for field in ("upscale_delay_s", "downscale_delay_s"):
            checks.seconds(InvalidSpecError, _path(field), getattr(self, field))
        if self.downscale_to_zero_delay_s is not None:
            checks.seconds(InvalidSpecError, _path("downscale_to_zero_delay_s"), self.downscale_to_zero_delay_s)

    @property
    def first_target(self) -> int:
        """How many replicas the deployment begins with."""
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas

    @property
    def stale_after_s(self) -> float:
        """A report older than this says nothing any more (A6)."""
        return max(2.0 * self.metrics_interval_s, STALE_MIN_S)

    def within_bounds(self, replicas: int) -> int:
        """The nearest number that is allowed (A1)."""
        return max(self.min_replicas, min(self.max_replicas, replicas))

    def downscale_delay_from(self, target: int) -> float:
        """How long fewer must be wanted before a target shrinks (A3)."""
        if target == 1 and self.downscale_to_zero_delay_s is not None:
            return self.downscale_to_zero_delay_s
        return self.downscale_delay_s


def check_scalable(deployment: DeploymentSpec) -> None:
    """Raise `InvalidSpecError` for a deployment that no autoscaler may have: one with a static placement (section 1.2)."""
    static = deployment.static_placement
    if static is not None:
        allowed = f"None or 'pack_ranks' with autoscaling: the number of replicas is that of the ranks in {static.group_shown}"
        raise InvalidSpecError("DeploymentSpec.placement", static, allowed)


def _check_factor(field: str, value: object) -> None:
    if not checks.is_number(value) or not 0.0 < value <= FACTOR_MAX:  # type: ignore[operator]
        raise InvalidSpecError(_path(field), value, f"a number above 0 to {FACTOR_MAX:g}")


def _path(field: str) -> str:
    return f"AutoscalingSpec.{field}"
