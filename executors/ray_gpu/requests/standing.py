"""How a deployment stands for the calls of a router: what is wrong with its routes, whether nobody serves it, and what is shown
to calls that wait.

All of it runs on the routers' thread.
"""

import math
from collections.abc import Iterable

from executors.ray_gpu.messages import UNAVAILABLE, CallStatus, Version
from executors.ray_gpu.requests.call import Call
from rankcore.routing.events import AvailabilityChanged

NOBODY_REFUSES = ("", -math.inf)


class CallStanding:
    """What the controller has said of it.

    Attributes:
        status: For those who want to know; None: nothing is known, or nobody serves it.
    """

    def __init__(self) -> None:
        self.status: tuple[Version, CallStatus] | None = None
        self._problem: tuple[str, float | None] = ("", None)  # of the routes
        self._refusal = NOBODY_REFUSES  # why nobody serves it, and until when

    def routes_have(self, problem: str, retry_after_s: float | None) -> None:
        """What is wrong with the routes; "": nothing."""
        self._problem = problem, retry_after_s

    def lift(self) -> None:
        """Somebody serves it again."""
        self._refusal = NOBODY_REFUSES

    def learn(self, version: Version, status: CallStatus, now: float) -> bool:
        """It stands so; whether nobody serves it, nor is about to."""
        refuses = status.state == UNAVAILABLE
        self.status = None if refuses else (version, status)
        left_s = math.inf if status.retry_after_s is None else status.retry_after_s
        self._refusal = (status.because, now + left_s) if refuses else NOBODY_REFUSES
        return refuses

    def availability(self, deployment: str, now: float) -> AvailabilityChanged:
        """What is wrong with the routes, or else with how it stands; lifted where nothing is."""
        (problem, retry_after_s), (because, until) = self._problem, self._refusal
        lasts_s = None
        if not problem and until > now:
            problem, lasts_s = f"{deployment} is {UNAVAILABLE}: {because}", until - now if until < math.inf else None
        return AvailabilityChanged(problem=problem, retry_after_s=retry_after_s, lasts_s=lasts_s, at=now)

    def show(self, calls: Iterable[Call]) -> None:
        """Say it to those of the calls that want to know."""
        if self.status is not None:
            for call in calls:
                if call.statuses is not None:
                    call.statuses.put(*self.status)
