"""Windows of a run: the figures of the requests that came within each stretch of time of one width.

What: `FeltRequests` has, of each request of a deployment, when it came and what became of it, in the columns that the run has
filled anyway. `Windows` cuts time into [0, w), [w, 2w), ... and gives for each the same keys that the figures of the whole run
have, so that an objective reads a window as it reads a run (`scenario/objectives.py`). Those without requests are left out.

A window is a range of request numbers, since requests are numbered in the order in which they come: which window one is in is
found by bisection, and no request is in two of them or in none, whatever the rounding of its time.

What it costs: the run keeps 4 bytes more of each request. One pass over the requests for each column that is asked for, and a
sort of each window.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

import attrs

from executors.simulator.load.engine_queue import EngineQueue
from executors.simulator.load.requests import GIVEN_UP, RequestQueue
from executors.simulator.record.figures import LONG_WAIT_S
from executors.simulator.record.percentiles import SHARES, percentiles_of_all
from executors.simulator.scenario.engines import RequestSlo
from executors.simulator.scenario.objectives import ATTAINMENT, Goal, Numbers

COLUMNS = {
    "requests.wait_s": "wait_s",
    "requests.latency_s": "latency_s",
    "engine.ttft_of_all_s": "ttft_s",
    "engine.tpot_of_all_s": "tpot_s",
}
"""Columns of `FeltRequests`, by the keys that figures have for their percentiles."""


@attrs.frozen(kw_only=True, eq=False)
class FeltRequests:
    """What the requests of a deployment felt, each of them.

    Attributes:
        at_s: When each came that has come.
        which: Those that are done, in the order in which they ended.
        times: Seconds of each of these: `wait_s`, `latency_s`, and with an engine `ttft_s`.
        tpot_s: Of each of these that has more tokens than one; empty without an engine.
        given_up: Those that have failed, were lost or have expired, under these words.
        output: Tokens of each; empty without an engine.
        slo: What a good one meets; None: there is no engine.
    """

    at_s: Sequence[float]
    which: Sequence[int]
    times: Mapping[str, Sequence[float]]
    tpot_s: Sequence[float]
    given_up: Mapping[str, Sequence[int]]
    output: Sequence[int]
    slo: RequestSlo | None

    def column(self, name: str) -> Iterator[tuple[int, float]]:
        """Of each request that is done: its number, and its seconds."""
        if name != "tpot_s":
            return zip(self.which, self.times[name], strict=True)
        return zip((each for each in self.which if self.output[each] > 1), self.tpot_s, strict=True)

    def good(self) -> Iterator[int]:
        """Those that met what a request is to meet."""
        assert self.slo is not None, "only engines have good requests"
        further = iter(self.tpot_s)
        for each, ttft_s, latency_s in zip(self.which, self.times["ttft_s"], self.times["latency_s"], strict=True):
            if self.slo.is_met(ttft_s, next(further) if self.output[each] > 1 else None, latency_s):
                yield each


def felt_of(queue: RequestQueue) -> FeltRequests:
    """Of a run that is over; nothing is copied but the times of arrival."""
    counts, engine = queue.counts, queue if isinstance(queue, EngineQueue) else None
    times = {"wait_s": counts.waits_s, "latency_s": counts.latencies_s}
    return FeltRequests(
        at_s=queue.arrivals.at_s[: counts.arrived],
        which=counts.which,
        times=times if engine is None else {**times, "ttft_s": engine.told.ttft_s},
        tpot_s=() if engine is None else engine.told.tpot_s,
        given_up=counts.given_up,
        output=() if engine is None else queue.arrivals.output,
        slo=None if engine is None else engine.slo,
    )


@attrs.frozen
class WindowMissed:
    """A window in which an objective did not hold.

    Attributes:
        since, until: Virtual seconds; the run may end before `until`.
        value: Of its figure; None: never.
    """

    since: float
    until: float
    value: float | None


@attrs.frozen(kw_only=True)
class WindowsHeld:
    """In how many windows an objective held.

    Attributes:
        width_s: Of each.
        count: How many had requests.
        held: In how many of these it held.
        without_requests: How many had none: they count as nothing.
        missed: Those in which it did not hold.
    """

    width_s: float
    count: int
    held: int
    without_requests: int
    missed: tuple[WindowMissed, ...]

    @property
    def share(self) -> float:
        """Of the windows that had requests; 1 where none had: nobody was disappointed."""
        return self.held / self.count if self.count else 1.0


class Windows:
    """The windows of one deployment's run that had requests.

    Attributes:
        width_s: Of each.
        numbers: Their places in time, from 0 on.
        ended_at: When the run ended.
    """

    def __init__(self, felt: FeltRequests, width_s: float, ended_at: float) -> None:
        self.width_s = width_s
        self.ended_at = ended_at
        self.numbers: list[int] = []
        self._felt = felt
        self._firsts: list[int] = []
        self._arrived: list[int] = []
        place, at_s = 0, felt.at_s
        while place < len(at_s):
            number = int(at_s[place] // width_s)
            after = max(place + 1, bisect_left(at_s, (number + 1) * width_s, place))
            self.numbers.append(number)
            self._firsts.append(place)
            self._arrived.append(after - place)
            place = after
        self._times: dict[str, list[array[float]]] = {}

    @property
    def without_requests(self) -> int:
        """How many windows of the run had no request."""
        last = self.numbers[-1] + 1 if self.numbers else 0
        return max(last, math.ceil(self.ended_at / self.width_s)) - len(self.numbers)

    def times(self, name: str) -> "list[array[float]]":
        """Seconds of the requests of each window that are done, in any order."""
        if name not in self._times:
            found = [array("d") for _ in self.numbers]
            firsts = self._firsts
            for index, value in self._felt.column(name):
                found[bisect_right(firsts, index) - 1].append(value)
            self._times[name] = found
        return self._times[name]

    def figures(self, keys: Sequence[str]) -> list[Numbers]:
        """What `keys` and counts come to in each window, as the figures of a run have them."""
        done, waits = [len(each) for each in self.times("latency_s")], self.times("wait_s")
        given_up = {kind: self._counted(self._felt.given_up[kind]) for kind in GIVEN_UP}
        found: list[dict[str, float | None]] = []
        for place, arrived in enumerate(self._arrived):
            lost = {f"requests.{kind}": float(counts[place]) for kind, counts in given_up.items()}
            found.append(
                {
                    "requests.arrived": float(arrived),
                    "requests.done": float(done[place]),
                    **lost,
                    "requests.unfinished": arrived - done[place] - sum(lost.values()),
                    "requests.waited_over_1_s": float(sum(wait_s > LONG_WAIT_S for wait_s in waits[place])),
                }
            )
        for key in keys:
            if key in COLUMNS:
                self._add_percentiles(key, found)
            elif key in ATTAINMENT:
                good = self._counted(self._felt.good())
                for place, arrived in enumerate(self._arrived):
                    found[place][key] = good[place] / arrived
        return [*found]

    def held(self, goal: Goal) -> WindowsHeld:
        """In how many of them an objective held."""
        missed = []
        for number, figures in zip(self.numbers, self.figures(goal.reading.figure.keys), strict=True):
            value = goal.reading.of(figures)
            if not goal.holds_at(value):
                since = number * self.width_s
                missed.append(WindowMissed(since, since + self.width_s, value if math.isfinite(value) else None))
        return WindowsHeld(
            width_s=self.width_s,
            count=len(self.numbers),
            held=len(self.numbers) - len(missed),
            without_requests=self.without_requests,
            missed=tuple(missed),
        )

    def _add_percentiles(self, key: str, found: "list[dict[str, float | None]]") -> None:
        for figures, times in zip(found, self.times(COLUMNS[key]), strict=True):
            not_done = int((figures["requests.arrived"] or 0.0) - (figures["requests.done"] or 0.0))
            values = percentiles_of_all(times, failed=not_done)
            figures.update({f"{key}.{name}": getattr(values, name) for name in SHARES})

    def _counted(self, which: "Iterator[int] | Sequence[int]") -> list[int]:
        counts = [0] * len(self.numbers)
        for index in which:
            counts[bisect_right(self._firsts, index) - 1] += 1
        return counts


def shares_of_windows(
    goals: Sequence[Goal], name: str, felt: FeltRequests, width_s: float, ended_at: float
) -> dict[str, float]:
    """Of each objective for windows that a deployment has to meet: in what share of them it held, by the objective's key."""
    asked = [goal for goal in goals if goal.in_windows and goal.reading.deployment in (None, name)]
    if not asked:
        return {}
    windows = Windows(felt, width_s, ended_at)
    can = [goal for goal in asked if goal.reading.figure.needs is None or felt.slo is not None]
    return {goal.key: windows.held(goal).share for goal in can}
