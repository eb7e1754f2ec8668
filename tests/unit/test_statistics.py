"""Means of few runs and their intervals, against what tables and scipy have."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from executors.simulator.questions.statistics import estimate

VALUES = st.lists(st.floats(-1e6, 1e6).map(lambda value: round(value, 6)), min_size=2, max_size=40)


def test_the_interval_of_a_textbook_sample():
    # Student's 1908 sleep data, paired differences: mean 1.58, standard error 0.389, t(9) = 2.262.
    found = estimate([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert found.mean == pytest.approx(1.58)
    assert (found.low, found.high) == (pytest.approx(0.700, abs=1e-3), pytest.approx(2.460, abs=1e-3))
    assert found.excludes_zero is True


@given(VALUES)
def test_the_interval_is_that_of_scipy(values):
    found = estimate(values)
    if len(set(values)) == 1:
        assert found.low == found.high == found.mean == values[0]
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=math.fsum(values) / len(values), scale=stats.sem(values))
    assert found.low == pytest.approx(low, rel=1e-6, abs=1e-6)
    assert found.high == pytest.approx(high, rel=1e-6, abs=1e-6)


def test_one_value_has_a_mean_and_no_interval():
    found = estimate([3.0])
    assert (found.count, found.mean, found.low, found.high, found.excludes_zero) == (1, 3.0, None, None, None)


def test_no_value_has_nothing():
    assert estimate([]).mean is None


@pytest.mark.parametrize(("value", "excludes"), [(0.0, False), (2.0, True)])
def test_equal_values_have_an_interval_without_width(value, excludes):
    found = estimate([value] * 5)
    assert (found.low, found.high, found.excludes_zero) == (value, value, excludes)
