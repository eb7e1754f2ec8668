"""How long things take: distributions to draw seconds from, all of them non-negative and finite."""

import math
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Any, TypeAlias

import attrs

from executors.simulator.fields import SECONDS_MAX, FieldProblem, is_number, name, number
from executors.simulator.load.traces import read_values

P99 = NormalDist().inv_cdf(0.99)
SAMPLES_MAX = 100_000
MEDIAN_MIN = 1e-9
SHAPE_MIN = 1e-4
"""Parameters much smaller than anybody measures, beyond which floats overflow and draws are no numbers any more."""


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
    """Anything from `low` to `high`, equally likely.

    Attributes:
        low: The least.
        high: The most.
    """

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
    """Memoryless, by its mean.

    Attributes:
        mean: The mean, which is the standard deviation too.
    """

    mean: float = attrs.field(validator=number(above=0.0))

    def sample(self, stream: Random) -> float:
        """One draw."""
        return stream.expovariate(1.0 / self.mean)


@attrs.frozen(kw_only=True)
class Lognormal:
    """Skewed to long values, by the two numbers that measurements are published with.

    Attributes:
        median: Half of all values are below it.
        p99: 99 of 100 values are below it.
    """

    median: float = attrs.field(validator=number(least=MEDIAN_MIN))
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
    """By its mean and shape.

    Attributes:
        mean: The mean.
        shape: 1 is exponential, much more is nearly constant, less has many short values and few very long ones.
    """

    mean: float = attrs.field(validator=number(above=0.0))
    shape: float = attrs.field(validator=number(least=SHAPE_MIN, most=1e6))

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


@attrs.frozen(kw_only=True)
class ColumnOfFile:
    """The values of an `Empirical`, measured and kept in a CSV file.

    Attributes:
        file: Relative to the scenario file.
        column: What it is called in the header.
        scale: What each value is multiplied with, such as 0.001 where the file has milliseconds.
    """

    file: str = attrs.field(validator=name)
    column: str = attrs.field(validator=name)
    scale: float = attrs.field(default=1.0, validator=number(above=0.0))

    def read(self, folder: Path) -> Empirical:
        """The distribution.

        Raises:
            TraceError: The file cannot be used; names it and the line.
        """
        return Empirical(values=read_values(folder / self.file, self.column, self.scale, SAMPLES_MAX))


Distribution: TypeAlias = Constant | Uniform | Exponential | Lognormal | Gamma | Empirical

BY_NAME: dict[str, type[Uniform] | type[Exponential] | type[Lognormal] | type[Gamma]] = {
    "uniform": Uniform,
    "exponential": Exponential,
    "lognormal": Lognormal,
    "gamma": Gamma,
}
"""Distributions with named parameters; a plain number is a `Constant`, `empirical` takes a list, or a `ColumnOfFile`."""
