"""The promises of the autoscaler, A1 to A10, one example or more for each."""

import math

import pytest

from rankcore.autoscaling import (
    AutoscalerState,
    AutoscalingSpec,
    HandleReport,
    Metrics,
    ReplicaReport,
    autoscale,
)
from rankcore.autoscaling.invariants import check
from rankcore.autoscaling.notes import AutoscalingNoteKind as Kind
from rankcore.errors import InvalidEventError, PolicyError
from tests.scaled import Deployment


def spec(**options):
    fields = {"max_replicas": 100, "upscale_delay_s": 0.0, "downscale_delay_s": 0.0}
    return AutoscalingSpec(**{**fields, **options})


def steady(load):
    return lambda _: load


# -- A1: bounds


def test_a_deployment_begins_with_initial_replicas_or_else_with_the_least():
    assert spec(min_replicas=2).first_target == 2
    assert spec(min_replicas=2, initial_replicas=5).first_target == 5


def test_no_load_however_large_goes_above_max_replicas():
    app = Deployment(spec(max_replicas=7), steady(1e6)).run(100.0)
    assert app.target == 7
    assert app.violations == []


def test_no_load_at_all_leaves_min_replicas():
    app = Deployment(spec(min_replicas=3, initial_replicas=9), steady(0.0)).run(100.0)
    assert app.target == 3


def test_changed_bounds_apply_at_once_and_what_was_heard_is_kept():
    app = Deployment(spec(downscale_delay_s=600.0, upscale_delay_s=600.0, initial_replicas=10), steady(20.0)).run(50.0)
    app.state = app.state.with_spec(spec(max_replicas=6, downscale_delay_s=600.0))
    heard = app.state.load
    decision = app.tick()
    assert decision.target == 6
    assert [note.kind for note in decision.notes] == [Kind.BOUNDED]
    assert heard.since == decision.state.load.since == 0.0
    app.state = app.state.with_spec(spec(min_replicas=8))
    assert app.tick().target == 8


# -- A2: the load


def test_queued_and_in_flight_requests_count_alike():
    state = AutoscalerState(spec=spec(metrics_interval_s=1.0, look_back_period_s=5.0))
    for at in (0.0, 1.0):
        reports = [HandleReport("h1", 3, at), HandleReport("h2", 4, at), ReplicaReport("a", 5, at), ReplicaReport("b", 6, at)]
        decision = autoscale(state, Metrics(target_replicas=2, running=["a", "b"], reports=reports), at)
        state = decision.state
    assert decision.target == 9  # 18 requests, 2 for each replica


def test_the_load_is_averaged_over_the_look_back_period():
    """10 s of 0 and 20 s of 30 requests are 20 on average, whatever came before."""
    loads = [1000.0, 0.0, 30.0, 30.0]
    app = Deployment(spec(upscale_delay_s=15.0), lambda at: loads[int(at // 10)], target=11)
    seen = []
    app.policy = lambda view: seen.append(view.ongoing_requests) or view.ongoing_requests / 2
    app.run(40.0 - 0.1)
    app.load = steady(0.0)
    app.tick()
    assert seen[-1] == pytest.approx(20.0)


def test_what_was_heard_of_a_replica_that_is_gone_counts_for_the_time_that_it_ran():
    state = AutoscalerState(spec=spec(metrics_interval_s=10.0, look_back_period_s=20.0))
    views = []

    def policy(view):
        views.append(view.ongoing_requests)
        return view.target_replicas

    for at, running in ((0.0, "ab"), (10.0, "ab"), (20.0, "ab"), (30.0, "a")):
        reports = [ReplicaReport(each, 8, at) for each in running]
        state = autoscale(state, Metrics(target_replicas=2, running=list(running), reports=reports), at, policy).state
    assert views == [16.0, 16.0, 16.0]  # not 8 for having lost what b had reported


# -- A3: delays


def test_an_upscale_waits_for_its_delay_and_begins_anew_when_the_wish_breaks_off():
    loads = {0: 10.0, 10: 10.0, 20: 10.0, 30: 1.0}
    options = spec(upscale_delay_s=30.0, look_back_period_s=5.0, metrics_interval_s=5.0)
    app = Deployment(options, lambda at: loads.get(int(at // 10 * 10), 10.0)).run(74.9)
    assert app.sizes == [1]
    assert "satisfied" in app.kinds()
    app.tick()
    assert app.sizes == [1, 5]


def test_a_downscale_waits_for_its_delay():
    app = Deployment(spec(downscale_delay_s=600.0, initial_replicas=10), steady(4.0)).run(605.0)
    assert app.sizes == [10]
    app.run(610.0)
    assert app.sizes == [10, 2]


def test_the_last_replica_goes_after_its_own_delay_and_never_together_with_others():
    options = spec(min_replicas=0, initial_replicas=10, downscale_delay_s=20.0, downscale_to_zero_delay_s=100.0)
    app = Deployment(options, steady(0.0)).run(500.0)
    assert app.targets == [(0.0, 10), (30.0, 1), (140.0, 0)]  # wanted from 40 s on
    assert app.violations == []


def test_the_last_replica_stays_while_anything_waits_or_is_in_flight_right_now():
    app = Deployment(spec(min_replicas=0, initial_replicas=1), lambda at: 1.0 if at == 10.0 else 0.0)
    app.run(15.0)  # the request has come at the very moment of the decision, too late for any average
    assert app.sizes == [1]
    app.run(200.0)
    assert app.sizes == [1, 0]


def test_without_a_delay_of_its_own_the_step_to_zero_has_that_of_any_downscale():
    app = Deployment(spec(min_replicas=0, initial_replicas=1, downscale_delay_s=20.0), steady(0.0)).run(100.0)
    assert app.targets == [(0.0, 1), (30.0, 0)]


# -- A4: factors


@pytest.mark.parametrize(("factor", "sizes"), [(1.0, [2, 10]), (2.0, [2, 18]), (0.5, [2, 6, 8, 9, 10])])
def test_an_upscale_is_multiplied_by_its_factor(factor, sizes):
    options = spec(upscaling_factor=factor, initial_replicas=2, downscale_delay_s=1e6)
    assert Deployment(options, steady(20.0)).run(200.0).sizes == sizes


@pytest.mark.parametrize(("factor", "sizes"), [(1.0, [10, 2]), (0.5, [10, 6, 4, 3, 2]), (3.0, [10, 2])])
def test_a_downscale_is_multiplied_by_its_factor_and_never_goes_below_the_need(factor, sizes):
    options = spec(downscaling_factor=factor, initial_replicas=10)
    assert Deployment(options, steady(4.0)).run(200.0).sizes == sizes


# -- A5: from zero


def test_a_request_that_waits_starts_the_first_replica_at_once():
    options = spec(min_replicas=0, upscale_delay_s=600.0)
    metrics = Metrics(target_replicas=0, reports=[HandleReport("h", 40, 3.0)])
    decision = autoscale(AutoscalerState(spec=options), metrics, 3.0)
    assert decision.target == 1
    assert [(note.kind, note.rule) for note in decision.notes] == [(Kind.FROM_ZERO, "A5")]


def test_the_first_step_from_zero_is_as_large_as_the_factor_says():
    metrics = Metrics(target_replicas=0, reports=[HandleReport("h", 40, 3.0)])
    assert autoscale(AutoscalerState(spec=spec(min_replicas=0, upscaling_factor=2.5)), metrics, 3.0).target == 3


def test_nothing_changes_while_the_first_replica_starts_however_much_waits():
    app = Deployment(spec(min_replicas=0), steady(100.0), lag_s=60.0).run(55.0)
    assert app.sizes == [0, 1]
    app.run(200.0)
    assert app.sizes == [0, 1, 50]


def test_nobody_asks_and_nothing_starts():
    assert Deployment(spec(min_replicas=0), steady(0.0)).run(1000.0).sizes == [0]


def test_from_zero_to_many_and_back():
    app = Deployment(spec(min_replicas=0), lambda at: 20.0 if at < 100 else 0.0, lag_s=5.0).run(400.0)
    assert app.sizes[:3] == [0, 1, 10]
    assert app.sizes[-1] == 0
    assert app.sizes[3:] == sorted(app.sizes[3:], reverse=True)
    assert app.violations == []


# -- A6: stale news


def two(at, *reports, target=4):
    return Metrics(target_replicas=target, running=["a", "b"], reports=reports)


def test_reports_that_nobody_renews_count_for_nothing_after_twice_their_interval():
    app = Deployment(spec(initial_replicas=4), steady(8.0)).run(40.0)
    later = autoscale(app.state, two(70.0), 70.0)
    assert later.target is None
    assert [note.kind for note in later.notes] == [Kind.NO_REPORTS]


def test_who_is_heard_again_after_a_silence_is_listened_to_first():
    app = Deployment(spec(initial_replicas=2), steady(4.0)).run(40.0)
    state = autoscale(app.state, two(100.0, target=2), 100.0).state
    again = autoscale(state, two(110.0, ReplicaReport("a", 90, 110.0), target=2), 110.0)
    assert [note.kind for note in again.notes] == [Kind.LISTENING]
    assert again.target is None


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (ReplicaReport("a", 8, 40.0), "late or repeated"),
        (ReplicaReport("a", 1e6, 39.0), "late or repeated"),
        (ReplicaReport("b", 1e6, 5.0), "too old"),
        (HandleReport("h2", 1e6, 5.0), "too old"),
        (ReplicaReport("gone", 1e6, 41.0), "of a replica that takes no requests"),
    ],
)
def test_late_old_and_foreign_reports_change_nothing_and_leave_a_note(report, reason):
    state = AutoscalerState(spec=spec())
    for at in (20.0, 30.0, 40.0):
        state = autoscale(state, two(at, ReplicaReport("a", 8, at), HandleReport("h", 0, at)), at).state
    without = autoscale(state, two(41.0), 41.0)
    decision = autoscale(state, two(41.0, report), 41.0)
    assert decision.state == without.state
    assert decision.target == without.target
    assert reason in decision.notes[0].because


def test_of_two_reports_of_one_moment_the_larger_counts_whichever_comes_first():
    state = AutoscalerState(spec=spec(min_replicas=0))
    small, large = HandleReport("h", 0, 5.0), HandleReport("h", 3, 5.0)
    one_way = autoscale(state, Metrics(target_replicas=0, reports=[small, large]), 5.0)
    other_way = autoscale(state, Metrics(target_replicas=0, reports=[large, small]), 5.0)
    assert one_way.target == other_way.target == 1
    assert one_way.state == other_way.state
    again = autoscale(one_way.state, Metrics(target_replicas=1, reports=[large]), 5.0)
    assert again.state.load == one_way.state.load


def test_a_replica_that_is_silent_is_not_taken_for_an_idle_one():
    """A reports nothing to do; b, which has all the work, is cut off: nobody is stopped before b is heard or gone."""
    state = AutoscalerState(spec=spec())
    for at in (0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0):
        reports = [ReplicaReport("a", 0, at), *([ReplicaReport("b", 8, at)] if at < 20.0 else [])]
        decision = autoscale(state, two(at, *reports), at)
        state = decision.state
        assert decision.target is None
    assert state.wish.blocked is Kind.UNKNOWN_LOAD
    gone = autoscale(state, Metrics(target_replicas=4, running=["a"], reports=[ReplicaReport("a", 0, 80.0)]), 80.0)
    assert gone.target == 1


def test_who_has_all_the_news_late_has_it_all_the_same():
    app = Deployment(spec(), steady(8.0))
    app.run(10.0)
    assert app.target == 4
    # a clock that goes back counts as one that stands
    assert autoscale(app.state, two(0.0), 0.0).state.at == app.state.at


# -- A7: no oscillation


def test_an_amplified_upscale_overshoots_once_and_is_not_repeated():
    """Load and options of ray-project/ray#63279: about 50 requests, 0.1 for each replica, ten times what is missing."""
    options = AutoscalingSpec(
        min_replicas=50,
        max_replicas=2000,
        target_ongoing_requests=0.1,
        upscaling_factor=10.0,
        upscale_delay_s=5.0,
        downscale_delay_s=30.0,
    )
    app = Deployment(options, lambda at: 50.0 + 2.5 * math.sin(at) + math.cos(at / 7.0)).run(1200.0)
    settled = [target for since, target in app.targets if since > 600.0]
    assert len(app.sizes) < 15
    assert len(settled) <= 2
    assert app.violations == []


def test_a_downscale_that_was_taken_back_is_not_tried_again_while_the_load_stays_near():
    loads = [20.0, 18.0]
    options = spec(downscale_delay_s=50.0, look_back_period_s=10.0)
    app = Deployment(options, lambda at: loads[int(at // 100) % 2]).run(2000.0)
    assert app.sizes == [1, 10, 9, 10]
    assert "held" in app.kinds()


def test_an_upscale_is_not_amplified_where_the_load_has_been_before():
    loads = [20.0, 18.0, 20.0]
    options = spec(upscaling_factor=4.0, downscale_delay_s=50.0, look_back_period_s=10.0)
    app = Deployment(options, lambda at: loads[min(2, int(at // 100))]).run(400.0)
    assert app.sizes == [1, 37, 10, 9, 10]  # not 13 in the end


def test_a_load_that_falls_clearly_is_followed_although_a_downscale_was_taken_back():
    loads = [20.0, 18.0, 20.0, 10.0, 10.0, 20.0]
    options = spec(downscale_delay_s=50.0, look_back_period_s=10.0)
    app = Deployment(options, lambda at: loads[min(5, int(at // 100))]).run(700.0)
    assert app.sizes == [1, 10, 9, 10, 5, 10]


def test_a_load_that_fades_slowly_is_followed_to_the_end_although_a_downscale_was_taken_back():
    loads = [20.0, 18.0, 20.0, *(20.0 - step for step in range(21))]
    options = spec(min_replicas=0, downscale_delay_s=50.0, look_back_period_s=10.0)
    app = Deployment(options, lambda at: loads[min(len(loads) - 1, int(at // 100))]).run(3000.0)
    assert app.sizes[:4] == [0, 1, 10, 9]
    assert app.sizes[-1] == 0
    assert app.violations == []


def test_a_load_that_hovers_between_one_replica_and_two_keeps_two():
    options = spec(downscale_delay_s=20.0, look_back_period_s=10.0)
    app = Deployment(options, lambda at: 2.0 + 0.2 * (int(at // 50) % 2)).run(3000.0)
    assert app.sizes == [1, 2, 1, 2]


# -- A8: policies


def test_a_policy_is_a_plain_function_and_may_remember():
    def at_most_one_more(view):
        calls = (view.memory or 0) + 1
        return min(view.ongoing_requests, view.target_replicas + 1), calls

    app = Deployment(spec(), steady(4.0), policy=at_most_one_more).run(100.0)
    assert app.sizes == [1, 2, 3, 4]
    assert app.state.memory == 10


def test_a_policy_sees_what_waits_and_what_is_worked_on():
    seen = []
    app = Deployment(spec(initial_replicas=2), steady(5.0), policy=lambda view: seen.append(view) or 2).run(10.0)
    (view,) = seen
    assert (view.at, view.running_replicas, view.target_replicas) == (10.0, 2, 2)
    assert (view.queued_now, view.in_flight_now, view.queued_requests, view.ongoing_requests) == (0.0, 5.0, 0.0, 5.0)
    assert app.sizes == [2]


@pytest.mark.parametrize("answer", [-1, float("nan"), "3", None, True, (1, 2, 3)])
def test_a_policy_that_returns_no_number_of_replicas_is_named_and_the_state_is_as_it_was(answer):
    app = Deployment(spec(), steady(5.0)).run(5.0)

    def broken(_):
        return answer

    with pytest.raises(PolicyError, match="the autoscaling policy broken must return a number of replicas"):
        autoscale(app.state, Metrics(target_replicas=1, running=["app#1.0"]), 10.0, broken)


def test_a_policy_that_raises_is_named_with_its_reason():
    def broken(view):
        raise ZeroDivisionError(view.at)

    app = Deployment(spec(), steady(5.0), policy=broken)
    app.tick()
    with pytest.raises(PolicyError, match=r"broken raised ZeroDivisionError: 10\.0"):
        app.tick()


def test_a_policy_remembers_only_what_a_journal_can_hold():
    app = Deployment(spec(), steady(5.0), policy=lambda _: (1, {1, 2}))
    app.tick()
    with pytest.raises(PolicyError, match="can remember only JSON-like data"):
        app.tick()


# -- A9: the cap on rank moves


def capped(target, moves, **options):
    """Ten replicas with nothing to do, at the moment when a downscale is due."""
    state = AutoscalerState(spec=spec(**{"max_rank_moves": 3, **options}))
    running = [f"r{index}" for index in range(10)]
    for at in (0.0, 10.0):
        reports = [ReplicaReport(each, 0, at) for each in running]
        metrics = Metrics(target_replicas=target, running=running, reports=reports, rank_moves=moves)
        decision = autoscale(state, metrics, at)
        state = decision.state
    return decision


def test_a_downscale_stops_no_more_replicas_than_ranks_may_move():
    assert capped(10, 0).target == 7
    assert capped(10, 2).target == 9


def test_while_ranks_move_as_many_as_may_a_downscale_waits():
    decision = capped(10, 3)
    assert decision.target is None
    assert [note.kind for note in decision.notes] == [Kind.CAPPED]
    again = autoscale(decision.state, Metrics(target_replicas=10, running=["r0"], rank_moves=3), 11.0)
    assert again.notes == ()  # told once


def test_what_the_cap_kept_back_follows_without_waiting_once_more():
    first = capped(10, 0, downscale_delay_s=10.0)
    assert first.target is None
    running = [f"r{index}" for index in range(10)]
    state, target, sizes = first.state, 10, []
    for at in (20.0, 21.0, 22.0, 23.0):
        reports = [ReplicaReport(each, 0, at) for each in running[:target]]
        decision = autoscale(state, Metrics(target_replicas=target, running=running[:target], reports=reports), at)
        state, target = decision.state, decision.target or target
        sizes.append(target)
    assert sizes == [7, 4, 1, 1]


def test_who_stops_the_highest_ranks_first_moves_none_and_needs_no_cap():
    state = AutoscalerState(spec=spec(max_rank_moves=1))
    for at in (0.0, 10.0):
        reports = [ReplicaReport("a", 0, at)]
        metrics = Metrics(target_replicas=10, running=["a"], reports=reports, stops_move_ranks=False)
        decision = autoscale(state, metrics, at)
        state = decision.state
    assert decision.target == 1


def test_a_lowered_maximum_is_reached_in_steps_as_well():
    state = AutoscalerState(spec=spec(max_replicas=5, max_rank_moves=3))
    assert autoscale(state, Metrics(target_replicas=10), 0.0).target == 7
    assert autoscale(state, Metrics(target_replicas=10, rank_moves=3), 0.0).notes[0].kind is Kind.CAPPED


# -- A10: listening, memory, notes


def test_a_controller_that_came_back_listens_until_everybody_could_report():
    state = AutoscalerState(spec=spec())
    first = autoscale(state, two(100.0, ReplicaReport("a", 0, 100.0), target=2), 100.0)
    assert (first.target, [note.kind for note in first.notes]) == (None, [Kind.LISTENING])
    second = autoscale(first.state, two(105.0, ReplicaReport("b", 8, 105.0), target=2), 105.0)
    assert second.target is None
    third = autoscale(second.state, two(110.0, target=2), 110.0)
    assert third.target == 4


def test_what_is_wanted_is_kept_with_another_delay_and_given_up_with_another_scale():
    app = Deployment(spec(downscale_delay_s=600.0, initial_replicas=10), steady(4.0)).run(100.0)
    assert app.state.with_spec(spec(downscale_delay_s=50.0)).wish == app.state.wish
    assert app.state.with_spec(spec(target_ongoing_requests=1.0)).wish is None
    app.state = app.state.with_spec(spec(downscale_delay_s=50.0))
    app.tick()
    assert app.target == 2


def test_each_decision_says_what_was_seen_and_why():
    app = Deployment(spec(upscale_delay_s=20.0), steady(9.0)).run(30.0)
    told = [(at, str(note.kind), note.rule, note.target, note.wanted) for at, note in app.notes]
    assert told == [
        (0.0, "listening", "A10", 1, None),
        (10.0, "upscale wanted", "A3", 1, 5),
        (30.0, "upscaled", "A3", 1, 5),
    ]
    assert app.notes[-1][1].because == (
        "9 ongoing requests on average over 20 s, with 0 queued and 9 in flight now, call for 5 replicas"
    )
    assert app.notes[1][1].because == "9 ongoing requests now, 0 of them queued, call for 5 replicas; followed after 20 s"


def test_a_mean_over_the_look_back_is_not_set_beside_what_is_so_now_as_if_it_were_a_part_of_it():
    app = Deployment(spec(upscale_delay_s=40.0, max_replicas=100), lambda at: 96.0 if at >= 40.0 else 0.0).run(60.0)
    texts = [note.because for _, note in app.notes if "on average" in note.because]
    seen = "32 ongoing requests on average over 30 s, with 0 queued and 96 in flight now"
    assert texts == [f"{seen}, call for 16 replicas; followed after 40 s"]


def test_the_same_call_gives_the_same_answer():
    app = Deployment(spec(), steady(9.0)).run(30.0)
    metrics = two(40.0, ReplicaReport("b", 3, 39.0), ReplicaReport("a", 2, 40.0), HandleReport("h", 1, 40.0))
    assert autoscale(app.state, metrics, 40.0) == autoscale(app.state, metrics, 40.0)
    assert check(app.state) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Metrics(target_replicas=-1), "Metrics.target_replicas must be an integer from 0"),
        (lambda: Metrics(target_replicas=1, rank_moves=-1), "Metrics.rank_moves"),
        (lambda: Metrics(target_replicas=1, stops_move_ranks=1), "Metrics.stops_move_ranks"),
        (lambda: Metrics(target_replicas=1, running=[""]), "Metrics.running"),
        (lambda: Metrics(target_replicas=1, reports=["x"]), "Metrics.reports must be HandleReport or ReplicaReport"),
        (lambda: Metrics(target_replicas=1, reports=[HandleReport("h", -1, 0.0)]), "HandleReport.queued"),
        (lambda: Metrics(target_replicas=1, reports=[ReplicaReport("r", True, 0.0)]), "ReplicaReport.in_flight"),
        (lambda: Metrics(target_replicas=1, reports=[ReplicaReport("r", 1, math.inf)]), "ReplicaReport.at"),
        (lambda: Metrics(target_replicas=1, reports=[ReplicaReport(7, 1, 1.0)]), "ReplicaReport.replica_id"),
        (lambda: autoscale(None, Metrics(target_replicas=1), 0.0), "autoscale.state must be an AutoscalerState"),
        (lambda: autoscale(AutoscalerState(spec=spec()), None, 0.0), "autoscale.metrics must be a Metrics"),
        (lambda: autoscale(AutoscalerState(spec=spec()), Metrics(target_replicas=1), -1.0), "autoscale.at"),
    ],
)
def test_a_malformed_argument_is_named(make, message):
    with pytest.raises(InvalidEventError, match=message):
        make()
