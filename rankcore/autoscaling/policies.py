"""How many replicas a load calls for: plain functions (A8), and Ray Serve's default as one of them."""

from collections.abc import Callable
from typing import TypeAlias

import attrs

from rankcore.autoscaling.spec import AutoscalingSpec
from rankcore.frozen import FrozenJson


@attrs.frozen(kw_only=True)
class View:
    """What a policy may look at.

    Attributes:
        at: The time of the decision, in seconds.
        target_replicas: The target in force.
        running_replicas: How many take requests.
        ongoing_requests: Queued and in flight, over the look-back period: the mean, or what `aggregation_function` says.
        queued_requests: The queued ones alone, likewise.
        queued_now: What waits according to the newest reports.
        in_flight_now: What replicas work on according to the newest reports.
        memory: What the policy returned at the last decision; None at first.
    """

    at: float
    spec: AutoscalingSpec
    target_replicas: int
    running_replicas: int
    ongoing_requests: float
    queued_requests: float
    queued_now: float
    in_flight_now: float
    memory: FrozenJson = None


Policy: TypeAlias = Callable[[View], float | tuple[float, FrozenJson]]
"""Returns how many replicas there should be, a finite number >= 0 that is rounded up, and perhaps what it wants to remember.

Bounds, delays, factors and the cap on rank moves come after it; it is not asked while no replica runs, nor without reports.
"""


def ongoing_requests(view: View) -> float:
    """As many replicas as have `target_ongoing_requests` each: Ray Serve's default (A2)."""
    return view.ongoing_requests / view.spec.target_ongoing_requests
