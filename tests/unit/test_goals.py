"""Objectives and aims: how they are written, what they read of a run, and when runs show that one is met."""

import math

import pytest

from executors.simulator.fields import FieldProblem
from executors.simulator.questions.cells import CellOutcome
from executors.simulator.questions.goal_search import GoalVerdict, Observed
from executors.simulator.questions.goals import judge, judge_all, objectives, parse_aim, shown, told
from executors.simulator.questions.statistics import one_sided, share_bounds
from executors.simulator.record.flat_figures import flatten
from executors.simulator.scenario import ScenarioError
from executors.simulator.scenario.objectives import COSTS, ENGINE, FIGURES, FigureKind, check_reading, parse_goal
from tests.report_runs import everything

RUN = {
    "requests.arrived": 1000.0,
    "requests.done": 996.0,
    "requests.lost": 2.0,
    "requests.failed": 1.0,
    "requests.expired": 0.0,
    "requests.unfinished": 1.0,
    "requests.waited_over_1_s": 6.0,
    "requests.latency_s.p99": 3.0,
    "requests.latency_s.p50": None,
    "gpu_hours": 4.0,
}
OTHER = {**RUN, "requests.latency_s.p99": 5.0, "requests.lost": 0.0, "gpu_hours": 8.0}
BOTH = CellOutcome({"llm": RUN, "code": OTHER})


@pytest.mark.parametrize(
    ("text", "value", "margin"),
    [
        ("p99 latency_s < 4", 5.0, -1.0),
        ("p99 latency_s<=4 of llm", 3.0, 1.0),
        ("p99 latency_s > 4 of llm", 3.0, -1.0),
        ("lost >= 1", 0.0, -1.0),
        ("lost < 1e1", 2.0, 8.0),
        ("share lost < 0.5% of llm", 0.002, 0.003),
        ("share not_done < 0.01 of llm", 0.004, 0.006),
        ("waited_over_1_s < 20 of llm", 10.0, 10.0),
        ("gpu_hours < 9", 8.0, 1.0),
    ],
)
def test_an_objective_reads_the_worst_deployment_unless_it_names_one(text, value, margin):
    goal = parse_goal(text)
    assert goal.value(BOTH) == pytest.approx(value)
    assert goal.margin(BOTH) == pytest.approx(margin)
    assert goal.value_of(goal.margin(BOTH)) == pytest.approx(value)


def test_requests_without_an_answer_are_the_slowest():
    goal = parse_goal("p99 latency_s < 4")
    assert goal.margin(CellOutcome({"llm": {**RUN, "requests.done": 989.0}})) == -math.inf
    assert goal.margin(CellOutcome({"llm": {**RUN, "requests.done": 990.0}})) == 1.0
    assert parse_goal("p50 latency_s < 4").margin(CellOutcome({"llm": RUN})) == -math.inf
    nobody = {**RUN, "requests.arrived": 0.0, "requests.done": 0.0, "requests.latency_s.p99": None}
    assert goal.margin(CellOutcome({"llm": nobody})) == 4.0
    assert parse_goal("share lost < 1%").value(CellOutcome({"llm": nobody})) == 0.0


def test_times_of_tokens_are_those_of_deployments_with_an_engine():
    served = {**RUN, "engine.utilisation": 0.5, "engine.ttft_of_all_s.p99": 1.5, "engine.attainment": 0.9}
    mixed = CellOutcome({"llm": served, "code": OTHER})
    assert parse_goal("p99 ttft_s < 2").margin(mixed) == 0.5
    assert parse_goal("p99 ttft_s < 2").margin(CellOutcome({"llm": {**served, "requests.done": 989.0}})) == -math.inf
    assert parse_goal("attainment > 0.8 of llm").margin(mixed) == pytest.approx(0.1)
    nobody = {**served, "requests.arrived": 0.0, "requests.done": 0.0, "engine.attainment": None}
    assert parse_goal("attainment > 0.8").margin(CellOutcome({"llm": nobody})) == pytest.approx(0.2)


def test_times_of_tokens_need_an_engine():
    reading = parse_goal("p99 ttft_s < 2").reading
    with pytest.raises(FieldProblem, match='expected ttft_s for a deployment with an engine, found "p99 ttft_s"'):
        check_reading(reading, ["llm"], {ENGINE: []})
    of_code = parse_goal("p99 ttft_s < 2 of code").reading
    with pytest.raises(FieldProblem, match='expected ttft_s of llm, found "p99 ttft_s of code"'):
        check_reading(of_code, ["llm", "code"], {ENGINE: ["llm"]})
    check_reading(reading, ["llm", "code"], {ENGINE: ["llm"]})


def test_costs_are_those_of_gpus_with_prices():
    priced = {**RUN, "cost.cost_usd": 12.0, "cost.cost_per_mtok_output": 3.0, "cost.cost_per_mtok_good": None}
    both = CellOutcome({"llm": priced, "code": {**priced, "cost.cost_per_mtok_output": 5.0}})
    assert parse_aim(None, None, None, has_prices=True).value(both) == 24.0
    assert parse_aim("cost", None, 2.5, has_prices=True).value(both) == 2.5 * 8
    assert parse_aim("cost_per_mtok_output", None, None).value(both) == 5.0
    assert parse_goal("cost_per_mtok_good < 9").margin(both) == -math.inf
    good = parse_aim("cost_per_mtok_good", None, None)
    assert good.shown(good.value(both)) == "never", "nobody had a token for the money"
    reading = parse_aim("cost", None, None, has_prices=True).reading
    with pytest.raises(FieldProblem, match="expected cost_usd for a deployment with GPUs with prices"):
        check_reading(reading, ["llm"], {COSTS: []})


def test_every_figure_of_the_table_is_one_of_a_run():
    for deployment in everything().deployments:
        found = flatten(deployment)
        for figure in FIGURES.values():
            if figure.needs is not None:
                assert figure.keys[0] not in found
                continue
            before = "p99" if figure.kind is FigureKind.TIMES else ""
            assert figure.of(before, found) >= 0.0, figure.name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p99 ttft < 2", 'expected a figure: latency_s, wait_s, .*, found "ttft"'),
        ("p90 latency_s < 2", 'expected p50 latency_s or p95 latency_s or p99 latency_s, found "p90 latency_s"'),
        ("latency_s < 2", 'expected p50 latency_s or .*, found "latency_s"'),
        ("p99 lost < 2", 'expected lost or share lost, found "p99 lost"'),
        ("p99 latency_s 2", r"expected \[p50\|p95\|p99\|share\] FIGURE < VALUE"),
        ("p99 latency_s < two", r"expected \[p50\|p95\|p99\|share\] FIGURE < VALUE"),
        ("p99 latency_s < 1.2.3", "expected a number as limit"),
        ("p99 latency_s < 1e999", "expected a number as limit"),
        ("p99 latency_s < 2 @ 9.9.9%", "expected a number as limit"),
        ("p99 latency_s < 2 @ 99", r"expected \[p50\|p95\|p99\|share\] FIGURE < VALUE"),
        ("p99 latency_s < 2 @ 101%", "expected a share of the windows above 0% and up to 100%"),
        ("p99 latency_s < 2 @ 0%", "expected a share of the windows above 0% and up to 100%"),
        ("gpu_hours < 2 @ 99%", "expected '@ P% of runs' beside gpu_hours: what windows have is of the requests"),
        ("p99 latency_s < 2 @ 100% of runs", "expected a share above 0% and below 100%"),
        ("p99 latency_s < 2%", "expected % for a share"),
        ("", r"expected \[p50\|p95\|p99\|share\] FIGURE < VALUE"),
        (7, r"expected \[p50\|p95\|p99\|share\] FIGURE < VALUE .* found 7"),
    ],
)
def test_what_is_no_objective_is_told(text, problem):
    with pytest.raises(FieldProblem, match=problem):
        parse_goal(text)


def test_objectives_of_the_command_line_stand_in_for_those_of_the_scenario():
    assert [goal.text for goal in objectives(["lost < 1", "lost < 1"], ["failed < 1"])] == ["lost < 1"]
    assert [goal.text for goal in objectives([], ["failed < 1"])] == ["failed < 1"]
    with pytest.raises(ScenarioError, match=r'--slo: expected a figure: .*, found "ttft"'):
        objectives(["p99 ttft < 2"], [])


def test_an_objective_for_windows_is_one_for_the_share_of_them():
    goal = parse_goal("p99 latency_s < 4 @ 99.9% of llm")
    assert (goal.in_windows, goal.share, goal.reading.deployment) == (True, 0.999, "llm")
    run = CellOutcome({"llm": {**RUN, goal.key: 0.999}, "code": {**OTHER}})
    assert goal.margin(run) == 0.0
    assert goal.is_kept(goal.margin(run)), "so many are enough"
    assert not goal.is_kept(goal.margin(CellOutcome({"llm": {**RUN, goal.key: 0.998}})))
    assert told(goal, 0.998) == "p99 latency_s of llm < 4 s in 99.80 % of the windows"
    assert goal.value_of(goal.margin(CellOutcome({"llm": {**RUN, goal.key: 0.25}}))) == pytest.approx(0.25)
    both = parse_goal("p99 latency_s < 4 @ 90%")
    assert both.value(CellOutcome({"llm": {both.key: 1.0}, "code": {both.key: 0.5}})) == 0.5, "the worst deployment"
    assert shown(both, 0.5) == "50 %"
    assert judge(both, [0.1] * 5, 0.05) is GoalVerdict.MET
    assert judge(both, [-0.1] * 5, 0.05) is GoalVerdict.MISSED
    assert judge(both, [0.1, -0.4, 0.1, 0.1, 0.1], 0.05) is GoalVerdict.OPEN


def test_an_objective_that_has_to_hold_in_a_share_of_runs_is_judged_by_how_many_it_held_in():
    goal = parse_goal("lost < 1 @ 80% of runs of llm")
    assert (goal.share, goal.reading.deployment) == (0.8, "llm")
    assert judge(goal, [1.0] * 13, 0.05) is GoalVerdict.OPEN  # 0.8 ** 13 is above 0.05
    assert judge(goal, [1.0] * 14, 0.05) is GoalVerdict.MET
    assert judge(goal, [1.0] * 4 + [-math.inf] * 6, 0.05) is GoalVerdict.MISSED
    assert judge(goal, [0.0] * 9, 0.05) is GoalVerdict.MISSED  # the limit itself is a miss


def test_a_mean_is_met_when_its_bound_is_and_missed_when_the_other_is():
    goal = parse_goal("p99 latency_s < 4")
    assert judge(goal, [1.0, 1.1, 0.9, 1.0, 1.0], 0.01) is GoalVerdict.MET
    assert judge(goal, [-1.0, -1.1, -0.9, -1.0, -1.0], 0.01) is GoalVerdict.MISSED
    assert judge(goal, [1.0, -1.0, 0.5, 1.5, 0.1], 0.01) is GoalVerdict.OPEN
    assert judge(goal, [1.0], 0.01) is GoalVerdict.OPEN
    assert judge(goal, [-math.inf], 0.01) is GoalVerdict.MISSED
    assert judge(goal, [9.0] * 9 + [-math.inf], 0.01) is GoalVerdict.MISSED
    assert judge(goal, [0.0, 0.0], 0.01) is GoalVerdict.MISSED
    assert judge(parse_goal("p99 latency_s <= 4"), [0.0, 0.0], 0.01) is GoalVerdict.MET


def test_all_objectives_have_to_be_met_and_one_that_is_missed_is_enough():
    goals = (parse_goal("p99 latency_s < 4"), parse_goal("lost < 1"))

    def judged(*margins, runs=5):
        return judge_all(goals, [Observed(margins, 0.0)] * runs, 0.01, 5)

    assert judged(1.0, 1.0) is GoalVerdict.MET
    assert judged(1.0, 1.0, runs=4) is GoalVerdict.OPEN
    assert judged(1.0, -1.0, runs=3) is GoalVerdict.MISSED


def test_bounds_are_those_of_the_textbook():
    values = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]  # Student's; mean 1.58, standard error 0.389, t(9) = 1.833
    assert one_sided(values, 0.05) == (pytest.approx(0.867, abs=1e-3), pytest.approx(2.293, abs=1e-3))
    assert one_sided([2.0, 2.0], 0.05) == (2.0, 2.0)
    assert share_bounds(10, 10, 0.05) == (pytest.approx(0.05**0.1), 1.0)
    assert share_bounds(0, 10, 0.05) == (0.0, pytest.approx(1 - 0.05**0.1))
    assert share_bounds(8, 10, 0.05) == (pytest.approx(0.4931, abs=1e-4), pytest.approx(0.9632, abs=1e-4))


@pytest.mark.parametrize(
    ("minimize", "maximize", "price", "name", "value"),
    [
        (None, None, None, "gpu_hours", 12.0),
        (None, None, 2.5, "cost", 30.0),
        ("cost", None, 2.5, "cost", 30.0),
        ("lost", None, None, "lost", 2.0),
        ("p99 latency_s", None, None, "p99 latency_s", 5.0),
        ("p99 latency_s of llm", None, None, "p99 latency_s of llm", 3.0),
        (None, "gpu_hours of code", None, "gpu_hours of code", 8.0),
    ],
)
def test_an_aim_adds_up_what_deployments_take_and_looks_at_the_slowest(minimize, maximize, price, name, value):
    aim = parse_aim(minimize, maximize, price)
    assert (aim.name, aim.sign) == (name, -1 if maximize else 1)
    assert aim.value(BOTH) == value


@pytest.mark.parametrize(
    ("minimize", "maximize", "told"),
    [
        ("cost", None, "--minimize: expected --gpu-price USD beside cost"),
        ("money", None, "--minimize: expected one of cost, replicas, gpus, node_gpus, latency_s, .*, found .money."),
        ("latency_s", None, "--minimize: expected p50 latency_s or .*"),
        ("gpus", "rate", "--maximize: expected one aim, found 'rate' beside --minimize 'gpus'"),
        (None, "money", "--maximize: expected a figure: .*, found .money."),
        ("", None, "--minimize: expected one of cost, .*, found ''"),
    ],
)
def test_what_is_no_aim_is_told(minimize, maximize, told):
    with pytest.raises(ScenarioError, match=told):
        parse_aim(minimize, maximize, None)
