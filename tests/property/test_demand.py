"""Q13: what waits is reported at once and seldom, empty lines only when they stay empty, and what is heard adds up."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankcore.routing.demand import (
    AGAIN_S,
    COUNTS_S,
    KEPT_S,
    REPORT_EVERY_S,
    ZERO_FOR_S,
    DemandReport,
    Demands,
    Reporting,
    WaitingSample,
    again,
    demand_for,
    hear,
    look,
)

pytestmark = pytest.mark.traced

changes = st.lists(
    st.tuples(st.integers(1, 160), st.sampled_from(("chat", "code")), st.integers(0, 3)),
    max_size=40,
)
"""After so many 64ths of a second, so many wait for one of two deployments."""


def played(steps, until_s=30.0):
    """Every look of a process that looks when something changes and when it was told to: (at, what waits, report)."""
    looks, reporting, waiting, now, due_at = [], Reporting(), {}, 0.0, float("inf")
    moments = []
    for wait, deployment, count in steps:
        now += wait / 64
        moments.append((now, deployment, count))
    end = now + until_s
    at = 0.0
    while True:
        at = min(due_at, moments[0][0] if moments else end, end)
        while moments and moments[0][0] <= at:
            _, deployment, count = moments.pop(0)
            waiting = {**waiting, deployment: count}
        before = reporting
        reporting, report, due_at = look(reporting, waiting, at)
        assert due_at > at, "the next look is later"
        looks.append((at, dict(waiting), before, report))
        if at >= end:
            return looks


@given(changes)
@settings(max_examples=200, deadline=None)
def test_reports_are_at_least_half_a_second_apart_and_the_first_that_waits_is_reported_at_once(steps):
    sent_at = -float("inf")
    for at, waiting, before, report in played(steps):
        new = [each for each, count in waiting.items() if count and not before.reported.get(each)]
        if report is not None:
            assert at >= sent_at + REPORT_EVERY_S
            sent_at = at
        elif new:
            assert at < sent_at + REPORT_EVERY_S, "nothing else delays it"


@given(changes)
@settings(max_examples=200, deadline=None)
def test_zero_is_reported_only_after_a_tenth_of_a_second_of_it(steps):
    empty_since = {"chat": 0.0, "code": 0.0}
    for at, waiting, _, report in played(steps):
        for each in empty_since:
            if waiting.get(each):
                empty_since[each] = None
            elif empty_since[each] is None:
                empty_since[each] = at
        for each, count in report.waiting.items() if report is not None else ():
            if not count:
                assert empty_since[each] is not None
                assert at >= empty_since[each] + ZERO_FOR_S


@given(changes)
@settings(max_examples=200, deadline=None)
def test_who_hears_them_knows_what_waits_within_a_second_and_goes_on_knowing(steps):
    demands, steady_since, before = Demands(), 0.0, {}
    for at, waiting, _, report in played(steps):
        if waiting != before:
            before, steady_since = waiting, at
        if report is not None:
            demands = hear(demands, "proxy", 1, report, at)
        if at >= steady_since + REPORT_EVERY_S + ZERO_FOR_S + REPORT_EVERY_S:
            for each in ("chat", "code"):
                assert demand_for(demands, each, at) == waiting.get(each, 0)


def test_a_line_that_runs_empty_a_hundred_times_a_second_is_two_reports_a_second_and_demand_all_the_time():
    reporting, demands, reports = Reporting(), Demands(), 0
    for turn in range(1000):
        at = turn / 100
        reporting, report, _ = look(reporting, {"chat": turn % 2 ^ 1}, at)
        if report is not None:
            reports += 1
            demands = hear(demands, "proxy", 1, report, at)
        assert demand_for(demands, "chat", at) == 1
    assert reports <= 2 * 10 + 1


@given(st.permutations(range(1, 7)), st.lists(st.integers(1, 7), max_size=6))
def test_of_a_reporter_the_newest_counts_whatever_arrives_last(order, again):
    def report(seq):
        return DemandReport(seq, {"chat": seq if seq < 6 else 0})

    demands = Demands()
    for seq in (*order, *(each for each in again if each < 7)):
        demands = hear(demands, "proxy", 1, report(seq), 1.0)
    assert demand_for(demands, "chat", 1.0) == 0, "the sixth has said that nothing waits"


def test_who_has_begun_again_speaks_for_itself_alone():
    demands = hear(Demands(), "proxy", 1, DemandReport(9, {"chat": 3, "code": 2}), 1.0)
    demands = hear(demands, "proxy", 2, DemandReport(1, {"chat": 1}), 2.0)
    assert (demand_for(demands, "chat", 2.0), demand_for(demands, "code", 2.0)) == (1, 0)
    assert hear(demands, "proxy", 1, DemandReport(10, {"code": 2}), 3.0) is demands, "the old one is late"


def test_what_several_say_adds_up_and_counts_for_a_while():
    demands = hear(Demands(), "one", 1, DemandReport(1, {"chat": 1}), 0.0)
    demands = hear(demands, "two", 1, DemandReport(1, {"chat": 2}), 5.0)
    assert [demand_for(demands, "chat", at) for at in (5.0, COUNTS_S, 5.0 + COUNTS_S)] == [3, 2, 0]
    late = hear(demands, "two", 1, DemandReport(1, {"chat": 2}), 5.0 + COUNTS_S)
    assert late is demands, "an old report brings nothing back"
    later = hear(demands, "three", 1, DemandReport(1, {}), 6.0 + KEPT_S)
    assert sorted(later.reporters) == ["three"]


def test_what_goes_on_waiting_is_reported_again_before_it_is_forgotten():
    reporting, report, due_at = look(Reporting(), {"chat": 1}, 0.0)
    assert (report, due_at) == (DemandReport(1, {"chat": 1}), AGAIN_S)
    assert 2 * AGAIN_S < COUNTS_S
    assert look(reporting, {"chat": 1}, AGAIN_S)[1] == DemandReport(2, {"chat": 1})


def test_that_nothing_waits_any_more_where_nothing_waited_changes_no_demand():
    heard = hear(Demands(), "proxy", 1, DemandReport(1, {"chat": 0, "code": 2}), 0.0)
    assert (demand_for(heard, "chat", 0.0), demand_for(heard, "code", 0.0)) == (0, 2)
    assert set(heard.reporters["proxy"].waiting) == {"code"}


def test_to_a_controller_that_has_begun_again_what_waits_is_said_at_once():
    reporting, _, _ = look(Reporting(), {"chat": 1, "code": 2}, 0.0)
    assert look(reporting, {"chat": 1, "code": 2}, 0.1)[1] is None
    after, report, _ = look(again(reporting), {"chat": 1, "code": 2}, 0.1)
    assert report == DemandReport(2, {"chat": 1, "code": 2}), "and no number is used twice"
    assert look(again(Reporting()), {}, 0.1)[1] is None, "there is nothing to be said"
    assert look(after, {"chat": 1, "code": 2}, 0.2)[1] is None


sampled = st.lists(st.tuples(st.integers(1, 160), st.integers(0, 3), st.booleans()), max_size=40)
"""After so many 64ths of a second, so many wait for a deployment that an autoscaler looks after; whether it has a replica."""


@given(sampled, st.sampled_from((0.1, 1.0, 10.0)))
@settings(max_examples=200, deadline=None)
def test_an_autoscaler_hears_of_every_moment_that_it_asks_for_and_never_what_was_not_so(steps, every_s):
    """Whatever replicas come and go, a number that is told was true then, but for lines that have just run empty."""
    reporting, reports, at, due_at, count, routed, emptied_at = Reporting(), [], 0.0, 0.0, 0, True, 0.0
    for wait, next_count, has_replica in [*steps, (1, 0, True), (6400, 0, True)]:
        until = at + wait / 64
        while due_at < until:
            assert due_at >= at, "no look is in the past"
            at = due_at
            waiting = {} if routed else {"chat": count}
            reporting, report, due_at = look(reporting, waiting, at, {"chat": WaitingSample(count, every_s)})
            if report is not None:
                reports.append((at, report.waiting["chat"]))
                assert report.waiting["chat"] == count or at < emptied_at + ZERO_FOR_S
        emptied_at = until if has_replica or not next_count else emptied_at
        at = due_at = until
        count, routed = next_count, has_replica
    moments = [moment for moment, _ in reports]
    gaps = [later - before for before, later in pairwise(moments)]
    assert all(REPORT_EVERY_S - 1e-9 <= gap <= max(every_s, REPORT_EVERY_S) + 1e-9 for gap in gaps)
    assert reports[-1][1] == 0
