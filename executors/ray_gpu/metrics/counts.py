"""Counters in plain numbers: what a request adds to them must cost next to nothing. Replica processes import this.

Each has one writer, the loop that its requests run on. The thread that publishes reads them as they are at some moment.
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

LATENCY_MS = (
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 60000.0,
    120000.0, 300000.0, 600000.0,
)  # fmt: skip
"""Upper bounds of Ray Serve's histograms of latencies."""
LIFETIME_MS = (
    5.0, 20.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 30000.0, 60000.0, 120000.0, 240000.0,
)  # fmt: skip
"""The same of how long replicas and proxies take to begin and to end."""
BATCH_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
PERCENTAGES = (5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 100.0)
"""The same of batches, and of how full they are."""
BOUNDS_S = tuple(bound / 1000.0 for bound in LATENCY_MS)
WINDOW_S, MARK_EVERY_S = 600.0, 10.0
"""Over how long a replica's utilization is found, as in Ray Serve, and how exactly."""
OK = "OK"
"""How a call that raised nothing has ended."""


class Histogram:
    """How many of some values were how great.

    Attributes:
        bounds: Upper ones of its buckets, as they are published.
        counts: How many were within each bound and above the one before, and above all.
        sum: Of all.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    @property
    def published_sum(self) -> float:
        """In the unit of the bounds."""
        return self.sum

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Latency(Histogram):
    """One of times: in seconds here, and published in milliseconds. What runs for each call of a handle writes out what `add`
    does: to call it takes as long again.
    """

    __slots__ = ("_bounds_s",)

    def __init__(self, bounds: tuple[float, ...] = LATENCY_MS) -> None:
        super().__init__(bounds)
        self._bounds_s = BOUNDS_S if bounds is LATENCY_MS else tuple(bound / 1000.0 for bound in bounds)

    @property
    def published_sum(self) -> float:
        """In milliseconds."""
        return self.sum * 1000.0

    def add(self, value: float) -> None:
        """It took so many seconds."""
        self.counts[bisect_left(self._bounds_s, value)] += 1
        self.sum += value


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


class BatchCounts:
    """Of the batches of one function.

    Attributes:
        waits: How long the oldest call of each has waited for it to begin.
        took: How long each has taken.
        sizes: How large each was.
        fills: The same in hundredths of the most that it might have been.
    """

    __slots__ = ("fills", "sizes", "took", "waits")

    def __init__(self) -> None:
        self.waits = Latency()
        self.took = Latency()
        self.sizes = Histogram(BATCH_SIZES)
        self.fills = Histogram(PERCENTAGES)

    def begin(self, size: int, size_max: int, waited_s: float) -> None:
        """One begins."""
        self.waits.add(waited_s)
        self.sizes.add(size)
        self.fills.add(100.0 * size / size_max)


class ModelCounts:
    """Of the models of a replica that serves several.

    Attributes:
        asked: How often one was.
        loads: How many loads have begun.
        loaded: How long those have taken that succeeded.
        unloads: How many models were given up.
        unloaded: How long that has taken.
    """

    __slots__ = ("asked", "loaded", "loads", "unloaded", "unloads")

    def __init__(self) -> None:
        self.asked = self.loads = self.unloads = 0
        self.loaded, self.unloaded = Latency(), Latency()


class Utilization:
    """How much of what a replica can do its calls have used: the time that those took which ended within the last
    `WINDOW_S`, as a share of `max_ongoing_requests` times as long. It is found where it is read, from what calls add anyway.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._marks = deque([(now(), 0.0)])

    def percent(self, used_s: float, max_ongoing_requests: int) -> float:
        """Of a replica whose calls have taken so long by now, all together."""
        at = self._now()
        if at >= self._marks[-1][0] + MARK_EVERY_S:
            self._marks.append((at, used_s))
        while len(self._marks) > 1 and self._marks[1][0] <= at - WINDOW_S:
            self._marks.popleft()
        return min(100.0, 100.0 * (used_s - self._marks[0][1]) / (WINDOW_S * max_ongoing_requests))


class ReplicaCounts:
    """Of the calls that a replica has answered, and what they did there.

    Attributes:
        by_handle: Of those by handles.
        routes: The same by route, which is "" for those by handles.
        batches: By the name of their function.
        models: Of those that its user code loads by their ids.
        utilization: Of the replica.
    """

    def __init__(self) -> None:
        self.by_handle = RouteCounts()
        self.routes: dict[str, RouteCounts] = {"": self.by_handle}
        self.batches: dict[str, BatchCounts] = {}
        self.models = ModelCounts()
        self.utilization = Utilization()

    @property
    def all_latency(self) -> Latency:
        """Of all of them."""
        found = Latency()
        for each in list(self.routes.values()):
            found.counts = [have + more for have, more in zip(found.counts, each.latency.counts, strict=True)]
            found.sum += each.latency.sum
        return found

    def ended(self, route: str, how: str, latency_s: float) -> None:
        """A call has ended so."""
        counts = self.routes.get(route)
        if counts is None:
            counts = self.routes[route] = RouteCounts()
        counts.latency.add(latency_s)
        if how != OK:
            counts.errors[how] = counts.errors.get(how, 0) + 1

    def of_batches(self, function_name: str) -> BatchCounts:
        """Of those of one function."""
        found = self.batches.get(function_name)
        return found if found is not None else self.batches.setdefault(function_name, BatchCounts())


_here = ReplicaCounts()  # of this process: it is one replica's at a time


def count_here(counts: ReplicaCounts) -> None:
    """What user code of this process does belongs to this replica from now on."""
    global _here
    _here = counts


def counts_here() -> ReplicaCounts:
    """Of the replica that this process is; where it is none, nobody publishes them."""
    return _here


class CheckCounts:
    """Of the health checks of one deployment.

    Attributes:
        took: How long those have taken to which there was an answer, or for which there was no more time.
        failures: How many said that the replica is not well.
    """

    def __init__(self) -> None:
        self.took = Latency()
        self.failures = 0

    def add(self, problem: str | None, took_s: float) -> None:
        """One is over."""
        self.took.add(took_s)
        self.failures += problem is not None


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
        found.counts, found.sum = list(self.waits.counts), self.waits.sum
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
