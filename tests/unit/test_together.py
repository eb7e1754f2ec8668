"""A page of several runs says of each what a page of its own would, once where they agree, within the same bounds."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from executors.simulator.questions.comparison import DeploymentComparison, FigureComparison
from executors.simulator.questions.held import held_objectives
from executors.simulator.questions.statistics import estimate
from executors.simulator.record.happenings import Happening
from executors.simulator.record.timeline import Hold, Phase
from executors.simulator.report import data as report_data
from executors.simulator.report.comparison import equal_in_words, interval, is_equal, verdict
from executors.simulator.report.data import page_data, row_cells
from executors.simulator.report.happened import rows_of
from executors.simulator.report.together import LETTERS, NamedRun, Telling, render_together
from executors.simulator.report.windows import windows_data
from executors.simulator.scenario.objectives import parse_goal
from tests.report_runs import HOSTILE, everything, hostile, run_of, without_the_node_loss

ROOT = Path(__file__).parents[2]
TELLING = Telling(
    title="a title", facts=[("seed", "3")], figures="", about="about", rerun="rankcore compare", command="compare"
)


@pytest.fixture(scope="module")
def lost():
    return everything()


@pytest.fixture(scope="module")
def kept():
    return without_the_node_loss()


def page_of(*results) -> str:
    return render_together([NamedRun(f"run {place}", result) for place, result in enumerate(results)], TELLING)


def data_in(page: str):
    return json.loads(re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page, re.DOTALL)[1])


def canvases(page: str) -> list[tuple[str, ...]]:
    found = re.findall(r'<canvas data-panel="([^"]*)"(?: data-deployment="(\d+)")?(?: data-run="(\d+)")?', page)
    return [tuple(part for part in each if part) for each in found]


def test_the_same_runs_give_the_same_page_whatever_the_hash_seed():
    program = "import hashlib; from tests.unit.test_together import *\n"
    program += "print(hashlib.sha256(page_of(everything(), without_the_node_loss()).encode()).hexdigest())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pages = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "77")
    }
    assert len(pages) == 1


def test_hostile_names_end_no_element(lost, kept):
    names = [NamedRun(HOSTILE, each) for each in (hostile(), without_the_node_loss(HOSTILE.replace("<", "&lt;")))]
    page, plain = render_together(names, attrs.evolve(TELLING, title=HOSTILE, rerun=HOSTILE)), page_of(lost, kept)
    for markup in ("<script", "</script", "<img", "<h1", "</h1"):
        assert page.count(markup) == plain.count(markup)


def test_the_lines_of_each_run_are_those_of_its_own_page_and_what_all_have_stands_there_once(lost, kept):
    data = data_in(page_of(lost, kept))
    for letter, result in zip(LETTERS, (lost, kept), strict=False):
        own = [row_cells(row, data["deployments"]) for row in rows_of(result)[0]]
        shown = [row for letters, *row in data["rows"] if letter in letters]
        assert sorted(map(str, shown)) == sorted(map(str, own))
    assert [row[1] for row in data["rows"]] == sorted(row[1] for row in data["rows"])
    common = [row for row in data["rows"] if row[0] == "AB"]
    assert common
    assert all(row[0] == "AB" for row in data["rows"] if row[1] < 200_000)  # up to the loss both are the same
    assert {row[0] for row in data["rows"]} == {"A", "B", "AB"}


def test_charts_are_common_and_lanes_are_drawn_for_each_run_that_differs(lost, kept):
    charts = [
        (name, "0")
        for chart in ("running", "waiting", "latency", "wait", "window-latency_s")
        for name in (chart, f"{chart}-difference")
    ]
    lanes = [("ranks", "0", "0"), ("ranks", "0", "1")]
    few = [("running", "1"), ("running-difference", "1")]  # nobody asks the second deployment
    second = canvases(page_of(lost, kept))[len(charts) + len(lanes) + len(few) + 2 :]
    assert canvases(page_of(lost, kept))[2 : -len(second)] == [*charts, *lanes, *few]
    assert second[-2:] == [("nodes", "0"), ("nodes", "1")]


def test_lanes_that_are_the_same_are_drawn_once_and_say_so(lost):
    page = page_of(lost, everything(), everything())
    assert [each for each in canvases(page) if each[0] in ("ranks", "nodes")] == [
        ("ranks", "0", "0"),
        ("ranks", "1", "0"),
        ("nodes", "0"),
    ]
    assert page.count("the same in A, B, C") == 3
    assert 'id="eventful"> only lanes that differ' in page  # of none: all are shown
    assert 'id="eventful" checked> only lanes that differ' in page_of(lost, without_the_node_loss())


def test_a_deployment_of_one_run_is_shown_and_compared_with_nothing(lost):
    alone = run_of("nodes: [{name: n, gpus: 4}]\ndeployments: [{name: other, target_replicas: 2}]\n")
    page = page_of(lost, alone)
    assert data_in(page)["deployments"] == ["llm", "embed", "other"]
    assert not any(name.endswith("-difference") for name, *_ in canvases(page))
    assert "only in B" in page


def test_runs_share_the_room_of_a_page(lost, kept, monkeypatch):
    monkeypatch.setattr(report_data, "HOLDS_MAX", 40)
    data = data_in(page_of(lost, kept))
    for run in data["runs"]:
        for deployment in run["deployments"]:
            assert sum(len(lane) // 4 for lane in deployment["holds"]) <= 10  # two runs of two deployments
    assert data["runs"][0]["deployments"] == page_data(lost, 2)["deployments"]
    assert "Not in the picture" in page_of(lost, kept)


def test_four_huge_runs_stay_a_page_of_at_most_6_mb(lost):
    def huge(shift: float):
        holds = tuple(
            Hold(index % 1000, f"llm#1.{index}", f"gpu-node-{index % 4}", Phase.RUNNING, since, since + index % 29 + shift)
            for index in range(100_000)
            for since in (index // 1000 * 60.0,)
        )
        told = tuple(
            Happening(float(index), "fault", None, f"node gpu-node-1 lost {shift}" + "x" * 60) for index in range(50_000)
        )
        return attrs.evolve(
            lost,
            holds={**lost.holds, "llm": holds},
            happenings=told,
            world_sizes={**lost.world_sizes, "llm": ((0.0, 1000),)},
        )

    page = page_of(*(huge(float(shift)) for shift in range(4)))
    assert len(page) < 6_000_000
    assert data_in(page)["left_out"]["rows"] >= 4 * 47_000


def test_times_of_day_are_offered_where_they_are_those_of_all_runs(lost, kept):
    began = [attrs.evolve(each, unix_s_at_0=1_700_000_000.5) for each in (lost, kept)]
    assert data_in(page_of(*began))["began"] == 1_700_000_000_500
    assert data_in(page_of(began[0], kept))["began"] is None
    assert data_in(page_of(began[0], attrs.evolve(kept, unix_s_at_0=0.0)))["began"] is None
    assert data_in(page_of(lost, kept))["began"] is None


# -- windows and objectives


def test_windows_are_as_wide_in_all_runs_and_say_of_each_whether_an_objective_held(lost, kept):
    goals = (parse_goal("p99 latency_s < 3"), parse_goal("p99 latency_s < 3 @ 50%"))
    runs = [NamedRun("a", lost, held_objectives(goals, 60.0, lost)), NamedRun("b", kept, held_objectives(goals, 60.0, kept))]
    data = data_in(render_together(runs, TELLING))
    assert [each["windows"][0]["width"] for each in data["runs"]] == [60_000, 60_000]
    for run, each in zip(runs, data["runs"], strict=True):
        assert each["windows"][0] == windows_data(run.result, run.held, max(lost.ended_at, kept.ended_at))[0]
        held = [found.held for found in run.held if found.deployment == "llm"]
        assert [limit["held"] for panel in each["windows"][0]["panels"] for limit in panel["limits"]] == held


def test_a_short_run_has_windows_as_wide_as_the_longest_one(lost):
    requests = "{poisson: {rate_per_s: 1, for_s: 20, service_s: 1}}"
    short = run_of(f"nodes: [{{name: n, gpus: 4}}]\ndeployments: [{{name: llm, target_replicas: 1, requests: {requests}}}]\n")
    data = data_in(page_of(lost, short))
    assert len({each["windows"][0]["width"] for each in data["runs"]}) == 1
    assert windows_data(short, ())[0]["width"] < data["runs"][1]["windows"][0]["width"]


# -- the words of a comparison


def figure(first, second, key="gpu_hours"):
    pairs = [b - a for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    return FigureComparison(key, tuple(first), tuple(second), None, None, estimate(pairs))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (figure([1.0, 1.0], [2.0, 2.0]), "B higher"),
        (figure([2.0, 2.0], [1.0, 1.0]), "B lower"),
        (figure([1.0, 2.0], [2.0, 1.0]), "no"),
        (figure([1.0], [2.0]), "one pair"),
        (figure([1.0, None, 1.0], [2.0, 2.0, 2.0]), "B higher (2 of 3 pairs)"),
        (figure([None], [2.0]), "no pair has both"),
        (figure([None, 1.0], [2.0, 2.0], "requests.wait_s.p95"), "not in every run"),
    ],
)
def test_what_an_interval_says(found, said):
    assert verdict(found) == said
    assert not is_equal(found)


def test_figures_without_a_value_are_not_said_to_be_equal():
    """Nobody came in one, and nobody had an answer in the other: both have no percentile."""
    same, none = figure([1.0], [1.0]), figure([None], [None], "requests.wait_s.p95")
    words = equal_in_words(DeploymentComparison("d", (attrs.evolve(same, first_mean=1.0, second_mean=1.0), none)))
    assert words == "Equal in every pair: GPU-hours (1 h). Not compared, as runs of both have no value: wait p95 of all"
    assert equal_in_words(DeploymentComparison("d", ())) == ""


def test_an_interval_in_words():
    assert interval(estimate([1.0])) == "-"
    assert interval(estimate([1.0, 1.0])) == "+1 to +1"
