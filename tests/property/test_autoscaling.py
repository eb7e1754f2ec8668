"""Laws of the autoscaler: bounds, stale news, no oscillation on a steady load, whatever the options."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from rankcore.autoscaling import AutoscalerState, AutoscalingSpec, HandleReport, Metrics, ReplicaReport, autoscale
from rankcore.autoscaling.invariants import check_decision
from rankcore.autoscaling.state import is_near
from tests.scaled import Deployment

factors = st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.3, 2.0, 10.0])
delays = st.sampled_from([0.0, 1.0, 5.0, 30.0, 60.0])


@st.composite
def specs(draw):
    most = draw(st.integers(1, 12))
    least = draw(st.integers(0, min(most, 5)))
    return AutoscalingSpec(
        min_replicas=least,
        max_replicas=most,
        initial_replicas=draw(st.none() | st.integers(least, most)),
        target_ongoing_requests=draw(st.sampled_from([0.1, 0.7, 1.0, 2.0, 5.0])),
        metrics_interval_s=draw(st.sampled_from([6.0, 10.0])),
        look_back_period_s=draw(st.sampled_from([0.5, 5.0, 30.0])),
        upscale_delay_s=draw(delays),
        downscale_delay_s=draw(delays),
        downscale_to_zero_delay_s=draw(st.none() | delays),
        upscaling_factor=draw(factors),
        downscaling_factor=draw(factors),
        max_rank_moves=draw(st.none() | st.integers(1, 5)),
        aggregation_function=draw(st.sampled_from(["mean", "mean", "max", "min"])),
    )


ids = st.sampled_from(["a", "b", "c"])
times = st.integers(0, 80).map(lambda halves: halves / 2)
counts = st.integers(0, 50)
reports = st.lists(st.builds(HandleReport, ids, counts, times) | st.builds(ReplicaReport, ids, counts, times), max_size=6)
calls = st.lists(st.tuples(times, st.integers(0, 70), st.sets(ids), reports, st.integers(0, 4), st.booleans()), max_size=12)


def metrics_of(target, running, reported, moves, moving):
    return Metrics(target_replicas=target, running=running, reports=reported, rank_moves=moves, stops_move_ranks=moving)


@given(specs(), calls)
def test_whatever_is_reported_when_every_decision_keeps_the_promises(spec, called):
    """Times go back and forth, targets are changed by others, replicas come and go, reports are late, early or repeated."""
    state = AutoscalerState(spec=spec)
    for at, *rest in called:
        metrics = metrics_of(*rest)
        decision = autoscale(state, metrics, at)
        assert check_decision(state, metrics, decision) == []
        state = decision.state


@given(specs(), calls, st.randoms(use_true_random=False))
def test_the_order_in_which_different_sources_are_heard_does_not_matter(spec, called, random):
    state = AutoscalerState(spec=spec)
    for at, target, running, reported, moves, moving in called:
        newest = {(type(each), each[0]): each for each in sorted(reported, key=lambda each: each.at)}
        shuffled = list(newest.values())
        random.shuffle(shuffled)
        decision = autoscale(state, metrics_of(target, running, newest.values(), moves, moving), at)
        assert decision == autoscale(state, metrics_of(target, running, shuffled, moves, moving), at)
        state = decision.state


@given(specs(), calls)
def test_stale_reports_and_those_of_strangers_change_no_decision(spec, called):
    """The same calls with and without reports that are too old, or of replicas that take no requests."""
    state = AutoscalerState(spec=spec)
    for at, target, running, reported, moves, moving in called:
        stale_at = max(at, state.at) - spec.stale_after_s
        good = [
            each for each in reported if each.at >= stale_at and (isinstance(each, HandleReport) or each.replica_id in running)
        ]
        with_all = autoscale(state, metrics_of(target, running, reported, moves, moving), at)
        without = autoscale(state, metrics_of(target, running, good, moves, moving), at)
        assert (with_all.target, with_all.state) == (without.target, without.state)
        state = with_all.state


@settings(max_examples=40)
@given(specs(), st.integers(0, 120), st.sampled_from([0.0, 2.0, 15.0, 90.0]))
def test_a_steady_load_is_overshot_once_at_most_and_then_met_for_good(spec, load, lag_s):
    app = Deployment(spec, lambda _: load, lag_s=lag_s).run(1200.0)
    need = spec.within_bounds(math.ceil(round(load / spec.target_ongoing_requests, 6)))
    assert app.violations == []
    assert app.reversals <= 1
    assert app.target == need


@settings(max_examples=40)
@given(specs(), st.integers(1, 14), st.data())
def test_a_load_that_stays_near_turns_the_target_round_a_bounded_number_of_times(spec, high, data):
    """Each need is near the highest of them, in an order that nobody can foresee.

    Once a downscale was taken back, only a need that was never there before moves the target, and it can be shed again.
    """
    low = next(need for need in range(1, high + 1) if is_near(need, high))
    needs = data.draw(st.lists(st.integers(low, high), min_size=3, max_size=12))
    app = Deployment(spec, lambda at: needs[int(at / 40.0) % len(needs)] * spec.target_ongoing_requests)
    app.run(1600.0)
    assert app.violations == []
    assert app.reversals <= 3 + 2 * (high - low)


@settings(max_examples=40)
@given(specs(), st.integers(1, 60))
def test_nobody_reacts_to_what_was_reported_before_a_silence(spec, load):
    app = Deployment(spec, lambda _: load).run(200.0)
    target = app.target
    app.now += spec.stale_after_s + 0.1
    for _ in range(50):
        assert app.tick(reports=[]).target is None
    assert app.target == target
