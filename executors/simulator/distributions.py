"""How long things take: distributions to draw seconds from, all of them non-negative and finite."""

import math
from random import Random
from statistics import NormalDist
from typing import Any, TypeAlias

import attrs

from executors.simulator.fields import SECONDS_MAX, FieldProblem, is_number, number

P99 = NormalDist().inv_cdf(0.99)
SAMPLES_MAX = 100_000


@attrs.frozen(kw_only=True)
class Constant:
    """Always the same."""

    value: float = attrs.field(validator=number(least=0.0))

    @property
    def mean(self) -> float:
        """The value."""
        return self.value

    def sample(self, _: Random) -> float:
        """The value; nothing is drawn."""
        return self.value


@attrs.frozen(kw_only=True)
class Uniform:
    """Anything from `low` to `high`, equally likely."""

    low: float = attrs.field(validator=number(least=0.0))
    high: float = attrs.field(validator=number(least=0.0))

    def __attrs_post_init__(self) -> None:
        if self.high < self.low:
            raise FieldProblem(("high",), self.high, f"a number from low, which is {self.low:g}")

    @property
    def mean(self) -> float:
        """The middle."""
        return (self.low + self.high) / 2

    def sample(self, stream: Random) -> float:
        """One draw."""
        return stream.uniform(self.low, self.high)


@attrs.frozen(kw_only=True)
class Exponential:
    """Memoryless, by its mean."""

    mean: float = attrs.field(validator=number(above=0.0))

    def sample(self, stream: Random) -> float:
        """One draw."""
        return stream.expovariate(1.0 / self.mean)


@attrs.frozen(kw_only=True)
class Lognormal:
    """Skewed to long values, by the two numbers that measurements are published with."""

    median: float = attrs.field(validator=number(above=0.0))
    p99: float = attrs.field(validator=number(above=0.0))

    def __attrs_post_init__(self) -> None:
        if self.p99 < self.median:
            raise FieldProblem(("p99",), self.p99, f"a number from the median, which is {self.median:g}")

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.log(self.p99 / self.median) / P99

    @property
    def mean(self) -> float:
        """The mean, which lies above the median."""
        return self.median * math.exp(self.sigma**2 / 2)

    def sample(self, stream: Random) -> float:
        """One draw."""
        return min(stream.lognormvariate(math.log(self.median), self.sigma), SECONDS_MAX)


@attrs.frozen(kw_only=True)
class Gamma:
    """By its mean and shape: shape 1 is exponential, a large shape is nearly constant."""

    mean: float = attrs.field(validator=number(above=0.0))
    shape: float = attrs.field(validator=number(above=0.0, most=1e6))

    def sample(self, stream: Random) -> float:
        """One draw."""
        return min(stream.gammavariate(self.shape, self.mean / self.shape), SECONDS_MAX)


def _samples(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, tuple) or not 0 < len(value) <= SAMPLES_MAX:
        raise FieldProblem((attribute.name,), value, f"a list of 1 to {SAMPLES_MAX} numbers")
    for index, item in enumerate(value):
        if not is_number(item) or not 0 <= item <= SECONDS_MAX:
            raise FieldProblem((attribute.name, index), item, f"a number from 0 to {SECONDS_MAX:g}")


@attrs.frozen(kw_only=True)
class Empirical:
    """One of the measured values, equally likely, with nothing in between."""

    values: tuple[float, ...] = attrs.field(validator=_samples)

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return math.fsum(self.values) / len(self.values)

    def sample(self, stream: Random) -> float:
        """One draw."""
        return self.values[int(stream.random() * len(self.values))]


Distribution: TypeAlias = Constant | Uniform | Exponential | Lognormal | Gamma | Empirical

BY_NAME: dict[str, type[Uniform] | type[Exponential] | type[Lognormal] | type[Gamma]] = {
    "uniform": Uniform,
    "exponential": Exponential,
    "lognormal": Lognormal,
    "gamma": Gamma,
}
"""Distributions with named parameters; a plain number is a `Constant`, `empirical` takes a list."""
