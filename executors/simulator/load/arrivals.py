"""When requests arrive and how long each takes to serve, and processes that arrivals are drawn from."""

import copy
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import attrs

from executors.simulator.load.users import Users

REQUESTS_MAX = 10_000_000
"""Of one deployment: each takes 16 bytes before the run and 16 more when it is done."""
MINUTE_S = 60.0


class TooManyRequestsError(ValueError):
    """A process drew more than `REQUESTS_MAX`."""

    def __init__(self) -> None:
        super().__init__(f"expected at most {REQUESTS_MAX} requests, drew more")


@attrs.frozen
class Arrivals:
    """The requests of one deployment, in the order of their arrival. Nobody changes them, so copies of a world share them,
    but for the times of those whom users ask.

    Attributes:
        at_s: Virtual seconds of each arrival, ascending.
        service_s: How long a replica works on each; empty where an engine says that.
        prompt, output: Tokens of each, for an engine; else empty.
        cached: Of each prompt, what needs no computing; None: nothing.
        sessions: Which session each is of; None: of none.
        timeouts_s: How long after its arrival each has to be done; None: as long as the deployment says.
        users: Whose answers say when the next ones come; None: it is known. With them `at_s` is empty before a run.
        notes: What a reader of the figures has to know of where they come from.
        unix_s_at_0: What time of day it is at second 0, since 1970; None: nobody says that.
    """

    at_s: "array[float]" = attrs.Factory(lambda: array("d"))
    service_s: "array[float]" = attrs.Factory(lambda: array("d"))
    prompt: "array[int]" = attrs.Factory(lambda: array("q"))
    output: "array[int]" = attrs.Factory(lambda: array("q"))
    cached: "array[int] | None" = None
    sessions: "array[int] | None" = None
    timeouts_s: "array[float] | None" = None
    users: Users | None = None
    notes: tuple[str, ...] = ()
    unix_s_at_0: float | None = None

    def __len__(self) -> int:
        return len(self.at_s)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Arrivals":
        return self if self.users is None else attrs.evolve(self, at_s=copy.deepcopy(self.at_s, memo))

    @property
    def total(self) -> int:
        """How many come in all."""
        return len(self.at_s) if self.users is None else len(self.users.think_s)

    def of_a_run(self) -> "Arrivals":
        """The same for one run, which puts down when those come of which nobody knows it before."""
        return self if self.users is None else attrs.evolve(self, at_s=array("d"))


@attrs.frozen
class RateWindow:
    """How often requests come for a time.

    Attributes:
        begin_s, end_s: From when until when, in seconds.
        rate_per_s: Requests per second, on average.
        cv: Coefficient of variation of the times between them: 1 is Poisson, more is bursty, less is regular.
    """

    begin_s: float
    end_s: float
    rate_per_s: float
    cv: float


def draw_arrivals(windows: Sequence[RateWindow], stream: Random) -> "array[float]":
    """Times between requests are gamma distributed, and Poisson arrivals are those with a `cv` of 1.

    They are drawn as if one request came per second, and time is then stretched to the rate of each window: a rate that
    changes in the middle of a long gap shortens or lengthens the rest of it, and twice the rate is the same requests
    in half the time.

    Raises:
        TooManyRequestsError: There is no end to them.
    """
    found = array("d")
    left = 0.0  # of the gap that is being waited for, in requests
    first = True
    for window in windows:
        if window.rate_per_s <= 0:
            continue
        shape = window.cv**-2
        if first:
            left, first = stream.gammavariate(shape, 1 / shape), False
        now, per_request = window.begin_s, 1 / window.rate_per_s
        while now + left * per_request < window.end_s:
            now += left * per_request
            found.append(now)
            left = stream.gammavariate(shape, 1 / shape)
            if len(found) > REQUESTS_MAX:
                raise TooManyRequestsError
        left -= (window.end_s - now) * window.rate_per_s
        left = max(left, 0.0)
    return found


def busiest_minute(all_arrivals: Iterable[Arrivals], duration_s: float | None = None) -> float | None:
    """When the minute with most arrivals begins, minutes counted from 0, the first of equals; None: nothing arrives.

    Args:
        all_arrivals: Of all deployments, or of all models.
        duration_s: What comes after it counts for nothing, since the run has ended; None: all counts.
    """
    counts: dict[int, int] = {}
    for arrivals in all_arrivals:
        begin = 0
        last = len(arrivals) if duration_s is None else bisect_right(arrivals.at_s, duration_s)
        while begin < last:
            minute = int(arrivals.at_s[begin] // MINUTE_S)
            end = bisect_left(arrivals.at_s, MINUTE_S * (minute + 1), lo=begin, hi=last)
            counts[minute] = counts.get(minute, 0) + end - begin
            begin = end
    if not counts:
        return None
    return MINUTE_S * min(counts, key=lambda minute: (-counts[minute], minute))
