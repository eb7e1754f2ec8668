"""Calls as they were measured, and calls like them: times out of a histogram whose sum is known.

Within a bucket every time is taken to be as likely. Buckets are wide, so all of it is then stretched until the mean is the one
that was measured, which the sum says exactly: what replicas have to do is right, and quantiles are about right.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from random import Random

import attrs

from executors.simulator.load.arrivals import Arrivals, RateWindow, draw_arrivals

STRETCH_MIN, STRETCH_MAX = 0.2, 2.0


@attrs.frozen
class MeasuredTimes:
    """A histogram.

    Attributes:
        bounds_s: Upper bounds of its buckets, ascending; what is above all of them counts in one more.
        counts: How many were within each and above the one before.
        sum_s: Of all.
    """

    bounds_s: Sequence[float]
    counts: Sequence[int]
    sum_s: float

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.counts)

    def quantile(self, q: float) -> float | None:
        """So many of 1 took no longer; None: there was none."""
        if not self.count:
            return None
        ahead, wanted = 0, q * self.count
        for index, count in enumerate(self.counts):
            if count and ahead + count >= wanted:
                low, high = self._bucket(index)
                return (low + (high - low) * (wanted - ahead) / count) * self._stretch
            ahead += count
        return self.bounds_s[-1]

    def draw(self, number: int, stream: Random) -> "array[float]":
        """Times like those; 0 where there was none."""
        if not self.count:
            return array("d", [0.0]) * number
        upto, stretch = list(accumulate(self.counts)), self._stretch
        found = array("d")
        for _ in range(number):
            low, high = self._bucket(bisect_left(upto, stream.uniform(0.0, upto[-1])))
            found.append(stream.uniform(low, high) * stretch)
        return found

    def _bucket(self, index: int) -> tuple[float, float]:
        low = self.bounds_s[index - 1] if index else 0.0
        return low, self.bounds_s[index] if index < len(self.bounds_s) else low

    @property
    def _stretch(self) -> float:
        middles = sum(count * sum(self._bucket(index)) / 2 for index, count in enumerate(self.counts))
        return min(STRETCH_MAX, max(STRETCH_MIN, self.sum_s / middles)) if middles else 1.0


@attrs.frozen(kw_only=True)
class MeasuredCalls:
    """What a deployment was asked in the last minutes, and what is left to do of it.

    Attributes:
        rate_per_s: How many calls came.
        took: How long replicas worked on each.
        waiting, in_flight: How many wait now, and how many replicas work on.
        measured_s: For how long that was measured.
    """

    rate_per_s: float
    took: MeasuredTimes
    waiting: int
    in_flight: int
    measured_s: float

    def arrivals(self, at: float, for_s: float, stream: Random) -> Arrivals:
        """Calls from a moment on: what is under way or waits comes at once, the rest as often as before, at random.

        Raises:
            TooManyRequestsError: There is no end to them.
        """
        found = array("d", [at]) * (self.waiting + self.in_flight)
        found.extend(draw_arrivals([RateWindow(at, at + for_s, self.rate_per_s, 1.0)], stream))
        return Arrivals(found, self.took.draw(len(found), stream))
