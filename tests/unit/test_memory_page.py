"""The page of a run of models, without a browser: bounded, the same each time, and nothing of it from outside."""

import json
import re

import pytest

from executors.simulator.record.happenings import Failure
from executors.simulator.report.memory import data as memory_page_data
from executors.simulator.report.memory.data import colours_of, memory_data, rows_of_memory
from executors.simulator.report.memory.page import render_memory_page
from executors.simulator.report.memory.verdict import verdict_of_residency
from executors.simulator.report.memory.words import deployment_columns, deployment_row, gigabytes, groups, rows
from executors.simulator.residency.record import CPU
from executors.simulator.scenario.models import upgraded
from tests.model_runs import EVERYTHING, everything, run_through
from tests.report_runs import HOSTILE

RERUN = "rankcore simulate models.yaml --seed 4"


@pytest.fixture(scope="module")
def result():
    return everything()


def data_in(page: str):
    return json.loads(re.search(r'<script type="application/json" id="run-data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page_names_seed_command_every_figure_and_every_model(result):
    page = render_memory_page(result, RERUN)
    assert RERUN in page
    for label, _ in rows(result):
        assert label.strip() in page.replace("&#x27;", "'")
    for figures in result.deployments:
        assert f'<th scope="row">{figures.name}</th>' in page


def test_the_data_are_those_of_the_run(result):
    data = data_in(render_memory_page(result, RERUN))
    assert [model["name"] for model in data["deployments"]] == [figures.name for figures in result.deployments]
    assert [node[0] for node in data["nodes"]] == [shape.node_id for shape in result.nodes]
    drawn = sum(len(lane) // 5 for node in data["spans"] for lane in node)
    assert drawn == len(result.spans)
    first = result.spans[0]
    node = [shape.node_id for shape in result.nodes].index(first.node_id)
    since, length, replica, megabytes, phase = data["spans"][node][first.gpu if first.gpu != CPU else -1][:5]
    assert (since, since + length) == (round(first.since * 1000), round(first.until * 1000))
    model = data["deployments"][data["replicas"][replica][1]]["name"]
    assert model + data["replicas"][replica][0] == first.worker_id
    assert (megabytes, data["phases"][phase]) == (first.size_bytes // 10**6, first.phase)
    assert list(data["series"]) == ["used", "fragmented", "cached", "waiting", "first_answer"]


def test_what_happened_stands_in_the_list_with_its_reason(result):
    found, left_out = rows_of_memory(result)
    assert left_out == 0
    assert [row.at for row in found] == sorted(row.at for row in found)
    texts = [f"{row.what}: {row.whom}: {row.text}" for row in found]
    for words in (
        "node gpu-node-1 lost, with",
        "displaced: ",
        "can't ever: never: no node could ever hold it",
        "target written: large: 0 -> 1 by demand",
        "load failed: large@1#",
    ):
        assert any(words in text for text in texts), words
    assert {"fault", "change", "decision", "routine"} == {row.group for row in found}


def test_a_time_without_a_controller_is_on_no_node():
    faults = [
        {"kind": "controller_crash", "at": 100, "restart_after_s": 20},
        {"kind": "node_loss", "at": 400, "node": "gpu-node-1", "back_after_s": 200},
    ]
    data = data_in(render_memory_page(everything(faults=faults), RERUN))
    assert data["outages"] == [[-1, 100_000, 120_000], [1, 400_000, 600_000]]


def test_a_page_stays_small_however_much_was_moved(result, monkeypatch):
    monkeypatch.setattr(memory_page_data, "SPANS_MAX", 10)
    data = memory_data(result)
    kept = [lane[i + 1] for node in data["spans"] for lane in node for i in range(0, len(lane), 5)]
    assert len(kept) == 10
    assert data["left_out"]["spans"] == len(result.spans) - 10
    assert min(kept) >= sorted(round((span.until - span.since) * 1000) for span in result.spans)[-10] - 1
    assert "Not in the picture" in render_memory_page(result, RERUN)


def test_models_that_share_gpus_for_long_have_other_colours(result):
    colours = colours_of(result)
    assert set(colours) == {figures.name for figures in result.deployments}
    assert set(colours.values()) <= set(range(6))
    assert len({colours[name] for name in ("chat", "code", "vision", "house")}) > 2


def test_hostile_names_end_no_element(result):
    application, _, rest = HOSTILE.replace("#", "").partition("/")
    nodes = [{**EVERYTHING["nodes"][0], "name": HOSTILE}]
    whole = upgraded({**EVERYTHING, "name": HOSTILE, "nodes": nodes, "faults": [], "changes": []})
    named = [{**each, "name": f"{rest.replace('/', '')}{index}"} for index, each in enumerate(whole.pop("deployments"))]
    hostile = run_through({**whole, "applications": [{"name": application, "deployments": named}]})
    page, plain = render_memory_page(hostile, f"rankcore simulate '{HOSTILE}'"), render_memory_page(result, RERUN)
    for markup in ("<script", "</script", "<img", "<h1", "</h1", "<table", "<canvas"):
        assert page.count(markup) == plain.count(markup)
    assert data_in(page)["deployments"][0]["name"] == f"{application}/{named[0]['name']}"


def test_the_sentence_at_the_top_is_the_worst_that_happened(result):
    verdict = verdict_of_residency(result)
    assert verdict.grade == "hurt"
    assert "never was never HOT" in verdict.text
    assert "times a request found its deployment not HOT, and the first answer came after" in verdict.text


def test_a_run_in_which_all_went_well_says_so():
    zipf = {"rate_per_s": 0.1, "begin_s": 300, "for_s": 100, "service_s": 1}
    models = [{"name": "chat", "weight_gb": 10, "replicas": 1}]
    calm = everything(models=models, traffic={"zipf": zipf}, faults=[], changes=[])
    verdict = verdict_of_residency(calm)
    assert verdict.grade == "good"
    assert verdict.text.endswith("requests were answered by deployments that were HOT already.")


def test_a_broken_promise_is_told_first(result):
    import attrs

    broken = attrs.evolve(result, failure=Failure(1.5, "the cluster", "MoveFinished", "T8", "too much is held"))
    verdict = verdict_of_residency(broken)
    assert verdict.grade == "broken"
    assert "promise T8 broken at 0:00:01.5 in the cluster, after MoveFinished: too much is held" in verdict.text


def test_figures_in_words(result):
    assert [title for title, _ in groups(result)] == ["Memory", "Requests", "Moves"]
    for figures in result.deployments:
        assert len(deployment_row(figures, result.ended_at)) == len(deployment_columns())
    assert [gigabytes(size) for size in (0.5, 42.4, 1234)] == ["0.50 GB", "42 GB", "1.2 TB"]
