"""The autoscaler beside the default policy of Ray Serve: equal where the promises agree, both shown where they do not."""

import math
import random
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankcore.autoscaling import AutoscalerState, AutoscalingSpec, Metrics, ReplicaReport, autoscale
from rankcore.autoscaling.load import Load, Sample, Series
from rankcore.frozen import EMPTY
from tests.scaled import Deployment

try:
    from ray.serve import autoscaling_policy as serve
    from ray.serve._private.common import TimeStampedValue
    from ray.serve._private.metrics_utils import aggregate_timeseries, merge_instantaneous_total, time_weighted_average
    from ray.serve.config import AggregationFunction, AutoscalingConfig, AutoscalingContext
except ImportError as error:
    pytest.skip(f"Ray Serve cannot be imported ({error}): pip install 'ray[serve]'", allow_module_level=True)

POLICY = serve._apply_autoscaling_config(serve.replica_queue_length_autoscaling_policy)
SHARED = (
    "min_replicas",
    "max_replicas",
    "initial_replicas",
    "target_ongoing_requests",
    "upscale_delay_s",
    "downscale_delay_s",
    "downscale_to_zero_delay_s",
    "upscaling_factor",
    "downscaling_factor",
    "look_back_period_s",
)
"""Options with the same name; `metrics_interval_s` is one as well, but Serve warns of it."""


def serve_target(config, state, target, running, load, now):
    """One decision of Serve's, and its state."""
    context = AutoscalingContext(
        deployment_id=None,
        deployment_name="app",
        app_name="app",
        current_num_replicas=running,
        target_num_replicas=target,
        running_replicas=[],
        total_num_requests=load,
        total_queued_requests=None,
        aggregated_metrics=None,
        raw_metrics=None,
        capacity_adjusted_min_replicas=config.min_replicas,
        capacity_adjusted_max_replicas=config.max_replicas,
        policy_state=state,
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=now,
        config=config,
    )
    wanted, state = POLICY(context)
    return max(config.min_replicas, min(config.max_replicas, math.ceil(wanted))), state


def serve_sizes(spec, loads, monkeypatch):
    """The targets of Serve, one decision for each load, with replicas that are there at once."""
    config = AutoscalingConfig(**{name: getattr(spec, name) for name in SHARED})
    now = [0.0]
    monkeypatch.setattr(serve, "time", SimpleNamespace(time=lambda: now[0]))
    target, state, sizes = spec.first_target, {}, []
    for now[0], load in loads:
        target, state = serve_target(config, state, target, target, load, now[0])
        sizes.append(target)
    return sizes


def our_sizes(spec, loads):
    """The same of ours: the look-back period is so short that a decision sees the load as it is."""
    table = dict(loads)
    app = Deployment(spec, lambda at: table.get(at, loads[0][1]), now=loads[0][0] - 10.0, report_age_s=1.0)
    app.tick()  # listens
    sizes = []
    for _ in loads:
        app.tick()
        sizes.append(app.target)
    assert app.violations == []
    return sizes


@st.composite
def specs(draw):
    least, most = draw(st.integers(0, 3)), draw(st.integers(3, 30))
    return AutoscalingSpec(
        min_replicas=least,
        max_replicas=most,
        initial_replicas=draw(st.integers(max(1, least), most)),  # from zero ours starts before it has listened
        target_ongoing_requests=draw(st.sampled_from([0.5, 1.0, 2.0, 8.0])),
        metrics_interval_s=10.0,
        look_back_period_s=0.5,
        upscale_delay_s=draw(st.sampled_from([0.0, 5.0, 20.0, 30.0])),
        downscale_delay_s=draw(st.sampled_from([0.0, 5.0, 20.0, 60.0])),
        downscale_to_zero_delay_s=draw(st.none() | st.sampled_from([0.0, 30.0, 90.0])),
        upscaling_factor=draw(st.sampled_from([0.5, 1.0, 1.5, 3.0])),
        downscaling_factor=draw(st.sampled_from([0.25, 0.5, 1.0])),
    )


@given(specs(), st.lists(st.integers(0, 100), min_size=1, max_size=25), st.sampled_from(["up", "down"]))
def test_a_load_that_only_grows_or_only_shrinks_has_the_targets_of_ray_serve(spec, loads, way):
    """All options but a downscaling_factor above 1, where Serve goes below what the load calls for and has to come back."""
    ordered = sorted(loads, reverse=way == "down")
    timed = [(10.0 * (index + 2), load) for index, load in enumerate(ordered)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = serve_sizes(spec, timed, monkeypatch)
    assert our_sizes(spec, timed) == expected


@given(specs(), st.lists(st.integers(0, 100), min_size=1, max_size=25))
def test_any_load_has_the_targets_of_ray_serve_up_to_the_first_upscale_after_a_downscale(spec, loads):
    timed = [(10.0 * (index + 2), load) for index, load in enumerate(loads)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = serve_sizes(spec, timed, monkeypatch)
    changes = [(index, later - earlier) for index, (earlier, later) in enumerate(pairwise([spec.first_target, *expected]))]
    fell = next((index for index, change in changes if change < 0), len(loads))
    rose = next((index for index, change in changes if change > 0 and index > fell), len(loads))
    assert our_sizes(spec, timed)[:rose] == expected[:rose]


values = st.lists(st.tuples(st.integers(1, 99), st.integers(1, 20)), min_size=1, max_size=8, unique_by=lambda each: each[0])


@given(st.lists(values, min_size=1, max_size=4))
def test_sources_are_averaged_as_ray_serve_does_once_each_of_them_was_heard(sources):
    """Serve: sums step by step, and averages from the moment at which the last source was first heard.

    Not with zeros at the beginning: Serve leaves these out, and averages what follows over less time than it took.
    """
    sources = [sorted(each) for each in sources]
    begin, end = float(max(each[0][0] for each in sources)), 100.0
    theirs = merge_instantaneous_total([[TimeStampedValue(float(at), float(value)) for at, value in each] for each in sources])
    last = theirs[-1].timestamp
    expected = time_weighted_average(theirs, window_start=max(begin, theirs[0].timestamp), last_window_s=end - last)
    ours = [Series(tuple(Sample(float(at), float(value)) for at, value in each), float(each[-1][0])) for each in sources]
    assert math.fsum(each.mean(begin, end) for each in ours) == pytest.approx(expected)


@given(st.lists(values, min_size=1, max_size=4), st.sampled_from(["max", "min"]))
def test_the_most_and_the_least_are_those_of_ray_serve_once_each_source_was_heard(sources, how):
    """Serve: of the points at which the sum changes, from the moment at which the last source was first heard."""
    sources = [sorted(each) for each in sources]
    begin = float(max(each[0][0] for each in sources))
    theirs = merge_instantaneous_total([[TimeStampedValue(float(at), float(value)) for at, value in each] for each in sources])
    expected = aggregate_timeseries(theirs, AggregationFunction(how), window_start=max(begin, theirs[0].timestamp))
    series = EMPTY.mutate()
    for index, each in enumerate(sources):
        kind = "queued" if index % 2 else "in_flight"
        series[kind, str(index)] = Series(tuple(Sample(float(at), float(value)) for at, value in each), float(each[-1][0]))
    assert Load(series.finish()).over(("queued", "in_flight"), how, begin, 100.0) == expected


def test_what_holds_as_the_look_back_begins_counts_here_and_there_what_was_reported_in_it():
    samples = [(0.0, 9.0), (20.0, 2.0), (25.0, 4.0)]
    theirs = [TimeStampedValue(at, value) for at, value in samples]
    series = EMPTY.mutate()
    series["queued", "a"] = Series(tuple(Sample(*each) for each in samples), 25.0)
    load = Load(series.finish())
    for how, ours, there in (("max", 9.0, 4.0), ("min", 2.0, 2.0)):
        assert load.over(("queued",), how, 10.0, 40.0) == ours
        assert aggregate_timeseries(theirs, AggregationFunction(how), window_start=10.0) == there


def test_on_the_steady_load_of_ray_63279_serve_goes_up_and_down_for_ever_and_ours_comes_to_rest(monkeypatch, capsys):
    """app_6 of its release tests: 50 requests, give or take two, for which 500 replicas are right.

    https://github.com/ray-project/ray/issues/63279
    """
    spec = AutoscalingSpec(
        min_replicas=50,
        max_replicas=2000,
        target_ongoing_requests=0.1,
        upscaling_factor=10.0,
        upscale_delay_s=5.0,
        downscale_delay_s=30.0,
        look_back_period_s=0.5,
    )
    draw = random.Random(63279)
    loads = [(10.0 * (index + 2), draw.gauss(50.0, 1.0)) for index in range(180)]
    theirs, ours = serve_sizes(spec, loads, monkeypatch), our_sizes(spec, loads)
    changes = {
        name: [later - earlier for earlier, later in pairwise(sizes[60:]) if later != earlier]
        for name, sizes in (("Ray Serve", theirs), ("ours", ours))
    }
    with capsys.disabled():
        for name, found in changes.items():
            largest = max(map(abs, found), default=0)
            print(f"\n{name}: {len(found)} changes in 20 minutes of a steady load, the largest of {largest}")
    assert len(changes["Ray Serve"]) >= 10
    assert len(changes["ours"]) <= 2
    assert max(ours[60:]) - min(ours[60:]) <= 50


def test_a_downscaling_factor_above_1_takes_serve_below_what_the_load_calls_for_and_ours_ends_there(monkeypatch):
    spec = AutoscalingSpec(
        min_replicas=1,
        max_replicas=20,
        initial_replicas=10,
        target_ongoing_requests=1.0,
        downscaling_factor=2.0,
        downscale_delay_s=0.0,
        look_back_period_s=0.5,
    )
    loads = [(20.0, 6), (30.0, 6)]
    assert min(serve_sizes(spec, loads, monkeypatch)) == 2
    assert our_sizes(spec, loads) == [6, 6]


def test_serve_multiplies_what_is_missing_to_the_running_replicas_and_ours_what_is_missing_to_the_target():
    """Two of ten have crashed, and the load calls for ten, with twice of what is missing."""
    spec = AutoscalingSpec(
        min_replicas=1,
        max_replicas=20,
        initial_replicas=10,
        target_ongoing_requests=1.0,
        upscaling_factor=2.0,
        upscale_delay_s=0.0,
    )
    config = AutoscalingConfig(**{name: getattr(spec, name) for name in SHARED})
    assert serve_target(config, {}, target=10, running=8, load=10, now=100.0)[0] == 12
    names = [f"app#1.{serial}" for serial in range(8)]
    state = AutoscalerState(spec=spec)
    for at in (100.0, 110.0, 120.0):
        reports = [ReplicaReport(name, 10 / 8, at) for name in names]
        decision = autoscale(state, Metrics(target_replicas=10, running=names, reports=reports), at)
        state = decision.state
        assert decision.target in (None, 10)
