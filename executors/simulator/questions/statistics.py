"""Means of few runs, and how sure they are: Student's t, two-sided, 95 %; and one-sided, as sure as is asked."""

import math
from collections.abc import Sequence

import attrs

CONFIDENCE = 0.95


@attrs.frozen
class Estimate:
    """A mean of independent values, and the interval that holds the true one in 95 % of such experiments.

    Attributes:
        count: How many values; 0: there were none, and the mean is None.
        low, high: The interval; None with fewer than two values. As wide as 0 where all values are equal.
    """

    count: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool | None:
        """Whether 0 lies outside of the interval; None: there is no interval."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 0.0 <= self.high


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of values, and its interval."""
    count = len(values)
    if not count:
        return Estimate(0, None, None, None)
    if all(value == values[0] for value in values):
        low = high = values[0] if count > 1 else None
        return Estimate(count, values[0], low, high)
    mean = math.fsum(values) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half_width = _student_t(count - 1, 0.5 + CONFIDENCE / 2) * deviation / math.sqrt(count)
    return Estimate(count, mean, mean - half_width, mean + half_width)


def one_sided(values: Sequence[float], error: float) -> tuple[float, float]:
    """Bounds of the true mean of two or more values; both are the mean where all values are equal.

    The true mean is below the first in no more than a share `error` of such experiments, and above the second in no more.
    """
    count = len(values)
    if all(value == values[0] for value in values):
        return values[0], values[0]
    mean = math.fsum(values) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half_width = _student_t(count - 1, 1 - error) * deviation / math.sqrt(count)
    return mean - half_width, mean + half_width


def share_bounds(kept: int, count: int, error: float) -> tuple[float, float]:
    """The same of the share of runs in which something holds, of `count` of which it held in `kept` (Clopper and Pearson)."""
    from scipy.special import betaincinv

    low = float(betaincinv(kept, count - kept + 1, error)) if kept else 0.0
    high = float(betaincinv(kept + 1, count - kept, 1 - error)) if kept < count else 1.0
    return low, high


def _student_t(degrees: int, share: float) -> float:
    from scipy.special import stdtrit  # a fifth of a second: only who asks for an interval waits for it

    return float(stdtrit(degrees, share))
