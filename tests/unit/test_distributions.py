"""Durations: what each distribution promises of its draws, and where their randomness comes from."""

import random
import statistics

import pytest

from executors.simulator.fields import FieldProblem
from executors.simulator.load.distributions import (
    BY_NAME,
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gamma,
    Lognormal,
    Uniform,
)
from executors.simulator.streams import Streams

ALL: list[Distribution] = [
    Constant(value=3.0),
    Uniform(low=1.0, high=5.0),
    Exponential(mean=3.0),
    Lognormal(median=22.7, p99=51.9),
    Gamma(mean=3.0, shape=2.0),
    Empirical(values=(1.0, 2.0, 6.0)),
]


def draws(distribution: Distribution, count: int = 20_000) -> list[float]:
    stream = random.Random("draws")
    return [distribution.sample(stream) for _ in range(count)]


@pytest.mark.parametrize("distribution", ALL, ids=lambda each: type(each).__name__)
def test_draws_are_finite_and_never_negative(distribution):
    assert all(0.0 <= value < float("inf") for value in draws(distribution))


@pytest.mark.parametrize("distribution", ALL, ids=lambda each: type(each).__name__)
def test_the_mean_is_the_mean_of_the_draws(distribution):
    assert statistics.fmean(draws(distribution)) == pytest.approx(distribution.mean, rel=0.03)


def test_a_constant_draws_nothing_from_its_stream():
    stream = random.Random(1)
    before = stream.getstate()
    assert Constant(value=2.5).sample(stream) == 2.5
    assert stream.getstate() == before


def test_a_uniform_stays_between_its_bounds():
    values = draws(Uniform(low=1.0, high=5.0))
    assert 1.0 <= min(values) < 1.01
    assert 4.99 < max(values) <= 5.0


def test_a_lognormal_has_the_median_and_the_percentile_it_was_given():
    values = sorted(draws(Lognormal(median=22.7, p99=51.9), 50_000))
    assert values[25_000] == pytest.approx(22.7, rel=0.02)
    assert values[49_500] == pytest.approx(51.9, rel=0.03)


def test_a_lognormal_whose_percentile_is_its_median_is_constant():
    assert draws(Lognormal(median=4.0, p99=4.0), 10) == pytest.approx([4.0] * 10)


def test_an_empirical_distribution_draws_its_values_and_nothing_between():
    values = draws(Empirical(values=(1.0, 2.0, 6.0)))
    assert set(values) == {1.0, 2.0, 6.0}
    assert values.count(6.0) / len(values) == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize(
    ("build", "keys"),
    [
        (lambda: Constant(value=-1.0), ("value",)),
        (lambda: Constant(value=float("nan")), ("value",)),
        (lambda: Constant(value=float("inf")), ("value",)),
        (lambda: Constant(value=10**400), ("value",)),
        (lambda: Constant(value=True), ("value",)),
        (lambda: Uniform(low=2.0, high=1.0), ("high",)),
        (lambda: Exponential(mean=0.0), ("mean",)),
        (lambda: Lognormal(median=5.0, p99=4.0), ("p99",)),
        (lambda: Gamma(mean=1.0, shape=0.0), ("shape",)),
        (lambda: Empirical(values=()), ("values",)),
        (lambda: Empirical(values=(1.0, -2.0)), ("values", 1)),
        (lambda: Empirical(values=(1.0, "2")), ("values", 1)),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(build, keys):
    with pytest.raises(FieldProblem) as caught:
        build()
    assert caught.value.keys == keys
    assert str(caught.value).startswith("expected a")


def test_every_named_distribution_can_be_written_in_a_scenario():
    assert set(BY_NAME.values()) | {Constant, Empirical} == {type(each) for each in ALL}


def test_the_same_seed_and_purpose_give_the_same_stream():
    assert Streams(7).of("a", "b").random() == Streams(7).once("a", "b").random()


def test_another_draw_for_one_purpose_shifts_no_other():
    quiet, busy = Streams(7), Streams(7)
    busy.of("faults").random()
    assert quiet.of("arrivals").random() == busy.of("arrivals").random()


@pytest.mark.parametrize("other", [Streams(8).of("a"), Streams(7).of("b"), Streams(7).of("a", "a")])
def test_another_seed_or_purpose_gives_another_stream(other):
    assert Streams(7).of("a").random() != other.random()
