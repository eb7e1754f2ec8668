"""Series keep exact minima, means and maxima of each stretch of time, in a bounded number of buckets."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.record.series import BUCKETS, Gauge, Marks

moments = st.floats(0.0, 1e5, allow_nan=False).map(lambda at: round(at, 3))


def marked(seen):
    marks, values = Marks(), []
    for at, value in seen:
        if at >= marks.next_at:
            marks.passed(at, len(values))
        values.append(value)
    return marks.buckets(values)


values = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(st.tuples(moments, values), min_size=1, max_size=60))
def test_marks_say_of_each_bucket_what_was_in_it(seen):
    seen.sort(key=lambda pair: pair[0])
    buckets = marked(seen)
    for bucket in buckets:
        inside = [value for at, value in seen if bucket.since <= at < bucket.until]
        assert (bucket.low, bucket.high, bucket.count) == (min(inside), max(inside), len(inside))
        assert bucket.mean == pytest.approx(math.fsum(inside) / len(inside), abs=1e-6)
    assert sum(bucket.count for bucket in buckets) == len(seen)


@given(st.lists(st.tuples(st.floats(0.001, 500.0), st.integers(0, 50)), min_size=1, max_size=60), st.floats(0.001, 500.0))
def test_a_gauge_says_of_each_bucket_its_mean_over_time_and_its_bounds(steps, rest):
    gauge, now, spans, previous = Gauge(), 0.0, [], 0
    for wait, value in steps:
        spans.append((now, now + wait, previous))
        now += wait
        gauge.set(now, value)
        previous = value
    spans.append((now, now + rest, previous))
    end = now + rest
    buckets = gauge.buckets(end)
    for bucket in buckets:
        until = min(bucket.until, end)
        parts = [(min(b, until) - max(a, bucket.since), value) for a, b, value in spans if b > bucket.since and a < until]
        assert bucket.mean == pytest.approx(math.fsum(long * value for long, value in parts) / (until - bucket.since), abs=1e-6)
        assert bucket.low == min(value for _, value in parts)
        assert bucket.high == max(value for _, value in parts)
    assert [bucket.since for bucket in buckets] == [index * gauge.width_s for index in range(len(buckets))]
    assert buckets[-1].until >= end


@pytest.mark.parametrize("end", [1.0, 128.0, 3600.0, 60 * 86_400.0])
def test_however_long_the_run_there_are_neither_more_buckets_nor_much_fewer(end):
    gauge, seen = Gauge(), [(end * index / 3_000, index % 7) for index in range(3_000)]
    for at, value in seen:
        gauge.set(at, value)
    for found in (gauge.buckets(end), marked(seen)):
        assert len(found) <= BUCKETS
        assert len(found) >= min(BUCKETS // 2 - 1, end / 0.125)


def test_a_value_that_held_for_no_time_is_in_the_bounds_and_not_in_the_mean():
    gauge = Gauge()
    gauge.set(0.01, 5)
    gauge.set(0.01, 0)
    (bucket,) = gauge.buckets(0.1)
    assert (bucket.low, bucket.mean, bucket.high) == (0, 0.0, 5)


def test_asking_for_the_buckets_twice_gives_the_same():
    gauge = Gauge()
    gauge.set(3.0, 2)
    assert gauge.buckets(9.0) == gauge.buckets(9.0)
