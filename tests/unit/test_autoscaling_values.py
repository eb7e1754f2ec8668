"""What an autoscaler is given: its options, and what a deployment's state says; and that broken promises are seen."""

import pickle

import attrs
import pytest

from rankcore import DeploymentSpec, StaticPlacement, deploy, step
from rankcore.autoscaling import AutoscalerState, AutoscalingSpec, Decision, HandleReport, Metrics, autoscale, check_scalable
from rankcore.autoscaling.invariants import check, check_decision
from rankcore.autoscaling.load import Load, Sample, Series
from rankcore.autoscaling.notes import AutoscalingNote, AutoscalingNoteKind
from rankcore.autoscaling.state import Direction, Experience, Wish
from rankcore.errors import InvalidSpecError, PolicyError
from rankcore.events import ReplicaPlaced, ReplicaReady, ReplicaReconfigured, ReplicaStopped, SpecChanged
from rankcore.frozen import EMPTY


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("min_replicas", -1, "an integer from 0 to 5"),
        ("min_replicas", 6, "an integer from 0 to 5"),
        ("max_replicas", 0, "an integer from 1"),
        ("max_replicas", 2.0, "an integer from 1"),
        ("initial_replicas", 1, "an integer from 2 to 5"),
        ("initial_replicas", 6, "an integer from 2 to 5"),
        ("target_ongoing_requests", 0, "a number above 0"),
        ("target_ongoing_requests", "2", "a number above 0"),
        ("upscaling_factor", True, "a number above 0"),
        ("downscaling_factor", -1.0, "a number above 0"),
        ("metrics_interval_s", 0, "a finite number of seconds, above 0"),
        ("look_back_period_s", float("nan"), "a finite number of seconds, above 0"),
        ("upscale_delay_s", -1, "a finite number of seconds, at least 0"),
        ("downscale_delay_s", None, "a finite number of seconds, at least 0"),
        ("downscale_to_zero_delay_s", -1, "a finite number of seconds, at least 0"),
        ("max_rank_moves", 0, "an integer from 1"),
        ("aggregation_function", "sum", "one of 'mean', 'max', 'min'"),
        ("aggregation_function", ["mean"], "one of 'mean', 'max', 'min'"),
    ],
)
def test_an_option_that_cannot_be_is_named_with_what_may_be(field, value, allowed):
    fields = {"max_replicas": 5, "min_replicas": 2 if field == "initial_replicas" else 0, field: value}
    with pytest.raises(InvalidSpecError, match=f"AutoscalingSpec.{field} must be {allowed}"):
        AutoscalingSpec(**fields)


TWO = {
    ("queued", "a"): Series((Sample(0.0, 4.0), Sample(10.0, 9.0), Sample(20.0, 1.0)), 20.0),
    ("in_flight", "b"): Series((Sample(5.0, 3.0), Sample(10.0, 1.0), Sample(40.0, 2.0)), 40.0),
}


@pytest.mark.parametrize(
    ("kinds", "how", "begin", "end", "counts"),
    [
        (("queued", "in_flight"), "max", 6.0, 30.0, 10.0),  # at 10 s both change: 9 + 1, and never 9 + 3
        (("queued", "in_flight"), "min", 6.0, 30.0, 2.0),
        (("queued", "in_flight"), "max", 0.0, 9.0, 7.0),
        (("queued", "in_flight"), "min", 0.0, 9.0, 4.0),
        (("queued", "in_flight"), "max", 25.0, 25.0, 2.0),  # a moment: what was in force then
        (("queued", "in_flight"), "mean", 20.0, 30.0, 2.0),
        (("queued",), "max", 15.0, 30.0, 9.0),
        (("in_flight",), "min", 0.0, 30.0, 0.0),  # before its first sample there was nothing
        (("in_flight",), "min", 5.0, 30.0, 1.0),
        (("in_flight",), "max", 10.0, 40.0, 2.0),  # the end belongs to it
    ],
)
def test_the_most_and_the_least_of_a_time_are_of_all_sources_at_once(kinds, how, begin, end, counts):
    series = EMPTY.mutate()
    for source, each in TWO.items():
        series[source] = each
    assert Load(series.finish()).over(kinds, how, begin, end) == counts


def test_a_static_placement_cannot_be_scaled():
    check_scalable(DeploymentSpec(name="app", target_replicas=2, placement="pack_ranks"))
    static = DeploymentSpec(name="app", placement=StaticPlacement(bundles={0: [0], 1: [1]}, bundle_count=2))
    with pytest.raises(InvalidSpecError, match=r"DeploymentSpec\.placement must be None or 'pack_ranks' with autoscaling"):
        check_scalable(static)


def test_a_policy_error_survives_being_sent_elsewhere():
    error = PolicyError("mine", "raised " + "x" * 500)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert len(str(error)) < 250


def running(count, **fields):
    """A deployment that has come up on one node."""
    state = deploy(DeploymentSpec(name="app", target_replicas=count, **fields)).state
    for replica_id in sorted(state.replicas):
        state = step(state, ReplicaPlaced(replica_id=replica_id, node_id="n", at=0.0)).state
        state = step(state, ReplicaReady(replica_id=replica_id, at=0.0)).state
    return state


def test_a_state_says_who_runs_and_how_many_are_wanted():
    fresh = deploy(DeploymentSpec(name="app", target_replicas=2)).state
    assert Metrics.of(fresh) == Metrics(target_replicas=2)
    state = running(2, victims="highest_rank")
    reports = [HandleReport("h", 1, 0.0)]
    expected = Metrics(target_replicas=2, running=state.replicas, reports=reports, stops_move_ranks=False)
    assert Metrics.of(state, reports) == expected


def test_ranks_that_have_to_move_count_until_the_move_is_acknowledged():
    state = running(4)
    victims = tuple(each for each, rank in state.ranks.items() if rank.rank in (0, 1))
    spec = attrs.evolve(state.spec, target_replicas=2)
    state = step(state, SpecChanged(spec=spec, stop_first=victims, at=1.0)).state
    assert Metrics.of(state).rank_moves == 2  # nobody was told yet: the victims have to end first
    for replica_id in victims:
        state = step(state, ReplicaStopped(replica_id=replica_id, at=2.0)).state
    movers = [replica for replica in state.replicas.values() if replica.pending is not None]
    assert Metrics.of(state).rank_moves == len(movers) == 2
    for left, replica in enumerate(movers, start=1):
        event = ReplicaReconfigured(replica_id=replica.replica_id, revision=replica.revision, at=3.0)
        state = step(state, event).state
        assert Metrics.of(state).rank_moves == 2 - left


# -- broken promises are seen


SPEC = AutoscalingSpec(min_replicas=0, max_replicas=10, upscale_delay_s=0.0, downscale_delay_s=0.0, max_rank_moves=2)


def series(*samples, reported_at=50.0, ended=False):
    return Series(tuple(Sample(*each) for each in samples), reported_at, ended)


def state_of(sources, since=0.0, **fields):
    return AutoscalerState(spec=SPEC, at=50.0, load=Load(EMPTY.update(sources), since), **fields)


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (state_of({("queued", "h"): series((9.0, 1.0), (3.0, 1.0))}), "A2"),
        (state_of({("queued", "h"): series((90.0, 1.0))}), "A2"),
        (state_of({("queued", "h"): series((9.0, 1.0), ended=True)}, since=None), "A6"),
        (state_of({("queued", "h"): series((9.0, 1.0), reported_at=9.0)}), "A6"),
        (state_of({}, since=3.0), "A10"),
        (state_of({("queued", "h"): series((9.0, 1.0))}, since=None), "A10"),
        (state_of({}, since=None, wish=Wish(Direction.UP, 51.0)), "A3"),
    ],
)
def test_a_state_that_cannot_be_is_told_by_the_rule_it_breaks(state, rule):
    assert [violation.rule for violation in check(state)] == [rule]


QUEUED = {("queued", "h"): series((40.0, 5.0))}
IDLE = {("in_flight", "r"): series((40.0, 0.0))}
HEARD = {("in_flight", "r"): series((40.0, 5.0))}


def judged(sources, old, new, *, before=None, moves=0, runs=("r",), note=True, spec=SPEC, since=0.0):
    """The rules that a made-up decision breaks."""
    load = Load(EMPTY.update(sources), since if sources else None)
    before = before or AutoscalerState(spec=spec, at=40.0)
    after = attrs.evolve(before, at=50.0, load=load, wish=None)
    notes = (AutoscalingNote(AutoscalingNoteKind.UPSCALED, "A3", old, new),) if note else ()
    metrics = Metrics(target_replicas=old, running=runs, rank_moves=moves)
    return [violation.rule for violation in check_decision(before, metrics, Decision(new, after, notes))]


def test_each_wrong_decision_is_told_by_the_rule_it_breaks():
    slow = attrs.evolve(SPEC, upscale_delay_s=30.0)
    waits = attrs.evolve(SPEC, downscale_delay_s=20.0)
    near, far = Wish(Direction.DOWN, 10.0), Wish(Direction.DOWN, 10.0, far_since=30.0)
    taken_back = AutoscalerState(spec=waits, at=40.0, experience=Experience(6, taken_back=True))
    assert judged(HEARD, 3, 5) == []
    assert judged(HEARD, 3, 3, note=False) == ["A1", "A10"]
    assert judged(HEARD, 3, 5, note=False) == ["A10"]
    assert judged(HEARD, 6, 3) == ["A9"]
    assert judged(HEARD, 6, 5, moves=2) == ["A9"]
    assert judged(HEARD, 12, 9) == ["A1", "A9"] or judged(HEARD, 12, 9) == ["A9", "A1"]
    assert judged(HEARD, 12, 11) == []
    assert judged(HEARD, 3, 11) == ["A1"]
    assert judged(HEARD, 0, 1) == ["A5"]
    assert judged(QUEUED, 0, 1) == []
    assert judged(HEARD, 3, 5, runs=()) == ["A5"]
    assert judged({}, 3, 5) == ["A6"]
    assert judged(HEARD, 3, 5, since=45.0) == ["A10"]
    assert judged(HEARD, 3, 5, before=AutoscalerState(spec=slow, at=40.0)) == ["A3"]
    assert judged(HEARD, 3, 5, before=AutoscalerState(spec=slow, at=40.0, wish=Wish(Direction.UP, 20.0))) == []
    assert judged(IDLE, 2, 0) == ["A3"]
    assert judged(IDLE, 1, 0) == []
    assert judged(HEARD, 1, 0) == ["A5"]
    assert judged(HEARD, 3, 2, runs=("r", "silent")) == ["A6"]
    assert judged(HEARD, 6, 5, before=attrs.evolve(taken_back, wish=near)) == ["A7"]
    assert judged(HEARD, 6, 5, before=attrs.evolve(taken_back, wish=far)) == []


def test_a_deployment_that_is_left_without_what_it_needs_is_seen():
    assert judged({}, 0, None, spec=attrs.evolve(SPEC, min_replicas=2)) == ["A1"]
    assert judged(QUEUED, 0, None) == ["A5"]
    assert judged(HEARD, 3, None) == []


def test_no_decision_of_the_autoscaler_breaks_any():
    metrics = Metrics(target_replicas=0, reports=[HandleReport("h", 3, 1.0)])
    before = AutoscalerState(spec=SPEC)
    assert check_decision(before, metrics, autoscale(before, metrics, 1.0)) == []
