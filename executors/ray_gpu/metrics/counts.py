"""Counters in plain numbers: what a request adds to them must cost next to nothing. Replica processes import this.

Each has one writer, the loop that its requests run on. The thread that publishes reads them as they are at some moment.
"""

from bisect import bisect_left

LATENCY_MS = (
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 60000.0,
    120000.0, 300000.0, 600000.0,
)  # fmt: skip
"""Upper bounds of Ray Serve's histograms of latencies."""
BOUNDS_S = tuple(bound / 1000.0 for bound in LATENCY_MS)
OK = "OK"
"""How a call that raised nothing has ended."""


class Latency:
    """A histogram of times. What runs for each call of a handle writes out what `add` does: to call it takes as long again.

    Attributes:
        counts: How many were within each bound and above the one before, and above all.
        sum_s: Of all.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


class RouteCounts:
    """Of the calls of one route at a replica.

    Attributes:
        errors: How many raised, by the name of what they did.
        latency: Of all.
    """

    __slots__ = ("errors", "latency")

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.latency = Latency()


class ReplicaCounts:
    """Of the calls that a replica has answered.

    Attributes:
        by_handle: Of those by handles.
        routes: The same by route, which is "" for those by handles.
    """

    def __init__(self) -> None:
        self.by_handle = RouteCounts()
        self.routes: dict[str, RouteCounts] = {"": self.by_handle}

    @property
    def all_latency(self) -> Latency:
        """Of all of them."""
        found = Latency()
        for each in list(self.routes.values()):
            found.counts = [have + more for have, more in zip(found.counts, each.latency.counts, strict=True)]
            found.sum_s += each.latency.sum_s
        return found

    def ended(self, route: str, how: str, latency_s: float) -> None:
        """A call has ended so."""
        counts = self.routes.get(route)
        if counts is None:
            counts = self.routes[route] = RouteCounts()
        counts.latency.add(latency_s)
        if how != OK:
            counts.errors[how] = counts.errors.get(how, 0) + 1


class RouterCounts:
    """Of the calls that a router was given.

    Attributes:
        at_once: How many were sent to a replica as they came.
        waits: How long each of the others has waited for one.
        refused: How many were, by why: "overloaded", "unavailable", "deadline", "lost".
        retried: How many attempts were not the first.
    """

    def __init__(self) -> None:
        self.at_once = 0
        self.waits = Latency()
        self.refused: dict[str, int] = {}
        self.retried = 0

    @property
    def all_waits(self) -> Latency:
        """How long all of them have waited."""
        found = Latency()
        found.counts, found.sum_s = list(self.waits.counts), self.waits.sum_s
        found.counts[0] += self.at_once
        return found

    def refuse(self, why: str) -> None:
        """A call was refused."""
        self.refused[why] = self.refused.get(why, 0) + 1


class AnswerCounts:
    """Of the answers of a proxy with one status to one method under one route."""

    __slots__ = ("count", "latency")

    def __init__(self) -> None:
        self.count = 0
        self.latency = Latency()


class ProxyCounts:
    """Of the requests that a proxy has answered, by one protocol.

    Attributes:
        ongoing: How many it answers now.
        answers: By route, deployment, method and status; route and deployment are "" where there is no application.
    """

    def __init__(self) -> None:
        self.ongoing = 0
        self.answers: dict[tuple[str, str, str, str], AnswerCounts] = {}

    def answered(self, route: str, deployment: str, method: str, status: str, latency_s: float) -> None:
        """A request was answered."""
        key = route, deployment, method, status
        counts = self.answers.get(key)
        if counts is None:
            counts = self.answers[key] = AnswerCounts()
        counts.count += 1
        counts.latency.add(latency_s)
