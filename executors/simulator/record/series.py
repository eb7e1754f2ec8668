"""What was measured along a run, in bounded memory: minimum, mean and maximum of each stretch of time, all of them exact.

A series has at most 1,024 buckets of equal width. When a run outgrows them, each two neighbours become one: what a bucket
says never gets less true, only coarser, and after any length of run at least half of the buckets are in use.
"""

import math
from collections.abc import Sequence

import attrs

BUCKETS = 1024
FIRST_WIDTH_S = 0.125
"""A power of two, as all later widths then are: the time of a moment divided by it is exact."""


@attrs.frozen
class Bucket:
    """What was measured between two moments.

    Attributes:
        until: Its end; the run may end before it.
        count: How many values; of a gauge, which always has one, 1.
    """

    since: float
    until: float
    low: float
    mean: float
    high: float
    count: int = 1


class Marks:
    """How many values of a growing list belong to the time before each bucket.

    Values that come in the order of time, such as how long a request that ended then had waited, need no more than this
    to be summed up by stretches of time at the end; a value costs one comparison with `next_at` while the run goes on.

    Attributes:
        width_s: Of each bucket.
        next_at: Call `passed` with the first value at or after it, before the value is added.
    """

    def __init__(self) -> None:
        self.width_s = FIRST_WIDTH_S
        self.next_at = FIRST_WIDTH_S
        self._before = [0]

    def passed(self, now: float, count: int) -> None:
        """Time has come to `now`, and there were so many values before."""
        while now >= self.width_s * BUCKETS:
            self._before = self._before[::2]
            self.width_s *= 2
        index = int(now / self.width_s)
        self._before += [count] * (index + 1 - len(self._before))
        self.next_at = (index + 1) * self.width_s

    def buckets(self, values: Sequence[float]) -> tuple[Bucket, ...]:
        """What the values come to; buckets without any are left out."""
        width_s, found = self.width_s, []
        ends = [*self._before[1:], len(values)]
        for index, (first, end) in enumerate(zip(self._before, ends, strict=True)):
            part = values[first:end]
            if part:
                mean = math.fsum(part) / len(part)
                found.append(Bucket(index * width_s, (index + 1) * width_s, min(part), mean, max(part), len(part)))
        return tuple(found)


class Gauge:
    """A value that holds until the next one, such as the length of a queue; its mean is over time.

    Attributes:
        width_s: Of each bucket.
        value: Now.
    """

    def __init__(self, value: float = 0.0) -> None:
        self.width_s = FIRST_WIDTH_S
        self.value = value
        self._since = 0.0
        self._over: list[tuple[float, float, float]] = []  # area, low and high of each bucket before the present one
        self._until = FIRST_WIDTH_S  # of the present one
        self._area = 0.0
        self._low = self._high = value

    def set(self, now: float, value: float) -> None:
        """It is this from now on; `now` never goes back."""
        if now >= self._until:
            self._move_to(now)
            if now == self._since:
                self._low = self._high = value  # the value before held up to this bucket, and not in it
        self._area += self.value * (now - self._since)
        self._since = now
        self.value = value
        if value > self._high:
            self._high = value
        elif value < self._low:
            self._low = value

    def buckets(self, end: float) -> tuple[Bucket, ...]:
        """All up to the end of the run, by time."""
        self.set(end, self.value)
        width_s, found = self.width_s, []
        for index, (area, low, high) in enumerate([*self._over, (self._area, self._low, self._high)]):
            since, until = index * width_s, (index + 1) * width_s
            lasted = min(until, end) - since
            if lasted > 0:
                found.append(Bucket(since, until, low, area / lasted, high))
        return tuple(found)

    def _move_to(self, now: float) -> None:
        """The present bucket, and perhaps some after it, are over."""
        while now >= self.width_s * BUCKETS:
            self._widen()
        index = int(now / self.width_s)
        while len(self._over) < index:
            until = (len(self._over) + 1) * self.width_s
            self._over.append((self._area + self.value * (until - self._since), self._low, self._high))
            self._since, self._area = until, 0.0
            self._low = self._high = self.value
        self._until = (index + 1) * self.width_s

    def _widen(self) -> None:
        """Each two neighbours become one, the present bucket with the one before it where it is the second of two."""
        over = self._over
        pairs = [_joined(over[index], over[index + 1]) for index in range(0, len(over) - 1, 2)]
        if len(over) % 2:
            self._area, self._low, self._high = _joined(over[-1], (self._area, self._low, self._high))
        self._over = pairs
        self.width_s *= 2
        self._until = (len(pairs) + 1) * self.width_s


def _joined(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    return first[0] + second[0], min(first[1], second[1]), max(first[2], second[2])
