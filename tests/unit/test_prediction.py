"""What comes of a live state: a journal goes on in the simulator with calls as they were measured, with a fault and without."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import attrs
import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.engine import journal as journals
from executors.engine.clusters import CLUSTER
from executors.engine.journal import LenientJournal
from executors.simulator import controller
from executors.simulator.from_journal.calls import MeasuredCalls, MeasuredTimes
from executors.simulator.from_journal.prediction import LiveQuestion, predict
from rankcore.cluster.residency import ResidencySpec
from tests.clusters import RecordedCluster, application, entry

BOUNDS_S = (0.05, 0.1, 0.2, 0.5)
RECORDED = """\
name: recorded
seed: 5
nodes: [{name: node, count: 3, gpus: 2}]
deployments:
  - {name: llm, target_replicas: 4, init_s: {uniform: {low: 3, high: 9}}}
  - {name: other, target_replicas: 1}
faults: [{kind: replica_crash, at: 80, deployment: llm, rank: 1}]
"""
TOOK = MeasuredTimes(BOUNDS_S, (0, 0, 900, 100, 0), 150.0)


@pytest.fixture(scope="module")
def journal(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    (folder / "recorded.yaml").write_text(RECORDED)
    given = ("simulate", str(folder / "recorded.yaml"), "--journal", str(folder / "run.jsonl"), "-q")
    done = CliRunner().invoke(app, [*given, "--json", str(folder / "run.json"), "--report", str(folder / "run.html")])
    assert done.exit_code == 0, done.output
    return folder / "run.jsonl"


def question(journal, rate_per_s=20.0, free=1, horizon_s=60.0, **asked):
    calls = MeasuredCalls(rate_per_s=rate_per_s, took=TOOK, waiting=3, in_flight=4, measured_s=60.0)
    return LiveQuestion(
        journal=journal,
        now=None,
        asked={"happens": next(iter(asked)), "deployment": "llm", **asked},
        horizon_s=horizon_s,
        calls={"llm": calls},
        free=None if free is None else {f"node-{number}": {"CPU": 1.0} for number in range(3)},
    )


def lanes(answer, which, name="llm"):
    return answer["lanes"][name][which]


def running_at(lane, after_s):
    return {hold[0]: hold[1] for hold in lane["holds"] if hold[3] == "running" and hold[4] <= after_s <= hold[5]}


def test_a_lost_node_leaves_gaps_where_its_ranks_were_and_nothing_happens_without_it(journal):
    found = predict(question(journal, node="node-0"))
    before = running_at(lanes(found, "without"), 0.01)
    lost = {rank for rank in before if running_at(lanes(found, "then"), 2.0).get(rank) != before[rank]}
    assert lost
    assert {gap[0] for gap in lanes(found, "then")["gaps"]} == lost
    assert lanes(found, "without")["gaps"] == []
    assert sorted(running_at(lanes(found, "then"), 59.0)) == [0, 1, 2, 3]
    assert found["answer"].startswith("If node node-0 is lost now, within 1 min rank")
    assert lanes(found, "then")["calls"]["lost"] > 0 == lanes(found, "without")["calls"]["lost"]


def test_another_target_is_reached_after_as_long_as_starts_took_in_the_journal(journal):
    found = predict(question(journal, target=6))
    first = {rank: min(hold[4] for hold in lanes(found, "then")["holds"] if hold[0] == rank) for rank in (4, 5)}
    assert sorted(running_at(lanes(found, "then"), 59.0)) == [0, 1, 2, 3, 4, 5]
    assert all(since < 1.0 for since in first.values())
    assert "all 6 ranks are served after" in found["answer"]
    assert lanes(found, "then")["sizes"][-1][1] == 6
    assert lanes(found, "without")["sizes"][-1][1] == 4


def test_a_rank_whose_replica_dies_has_another_one_and_others_keep_theirs(journal):
    found = predict(question(journal, rank=2))
    before, after = (running_at(lanes(found, "then"), at) for at in (0.01, 59.0))
    assert {rank for rank in before if before[rank] != after[rank]} == {2}


def test_what_a_node_has_free_says_whether_there_is_room(journal, monkeypatch):
    from executors.simulator.from_journal import prediction

    room = {"node-0": 2, "node-1": 2, "node-2": 1}
    monkeypatch.setattr(prediction, "_room", lambda *_: room)
    found = predict(question(journal, node="node-0"))
    assert "have nobody at the end" in found["answer"] or "has nobody at the end" in found["answer"]


def test_the_measured_rate_and_times_are_what_is_predicted_with(journal):
    points = lanes(predict(question(journal, rank=0, horizon_s=120.0)), "without")["points"]
    later = points[20:]
    assert sum(point["rate"] for point in later) / len(later) == pytest.approx(20.0, rel=0.15)
    assert sum(point["p50"] for point in later) / len(later) == pytest.approx(TOOK.quantile(0.5), rel=0.15)
    assert len(points) == 120


def test_what_waits_now_is_there_at_the_start(journal):
    found = lanes(predict(question(journal, rate_per_s=0.0, rank=0)), "without")
    assert found["calls"]["done"] == 7


def test_the_same_question_has_the_same_answer(journal):
    assert predict(question(journal, node="node-1")) == predict(question(journal, node="node-1"))


def test_every_number_says_where_it_is_from_and_what_was_taken_for_granted_is_said(journal):
    found = predict(question(journal, node="node-0", free=None))
    said = {(each["of"], each["what"]): each["from"] for each in found["rates"]}
    assert said["llm", "calls per second"] == "measured, last 1 min"
    assert said["llm", "user start-up code"].startswith("the journal: ")
    assert "nodes have room for any number of replicas: nobody says what they have free" in found["assumed"]
    assert "other: reconfigure_s is 0.1 s" in found["assumed"]


def test_deployments_that_share_the_node_are_predicted_too(journal):
    found = predict(question(journal, node="node-0"))
    assert set(found["lanes"]) == {"llm", "other"}


def test_weights_that_may_be_cold_are_left_out_and_others_are_predicted(tmp_path):
    cluster = RecordedCluster(tmp_path / "run.jsonl")
    cluster.join(6)
    weights = ResidencySpec(weight_bytes=4, min_hot_s=0.0)
    cluster.apply(application(entry("a/cold", 1, residency=weights)), application(entry("b/x", 2)))
    cluster.wait(20.0)
    asked = {"happens": "target", "target": 3, "deployment": "b/x"}
    here = LiveQuestion(journal=tmp_path / "run.jsonl", now=30.0, asked=asked, horizon_s=60.0, calls={})
    found = predict(here)
    assert set(found["lanes"]) == {"b/x"}
    assert found["at"] == 30.0
    assert any(each.startswith("a/cold is left out: it has weights that may be COLD") for each in found["assumed"])
    assert sorted(running_at(lanes(found, "then", "b/x"), 59.0)) == [0, 1, 2]
    with pytest.raises(ValueError, match="deployment: a/cold has weights that may be COLD"):
        predict(attrs.evolve(here, asked={**asked, "deployment": "a/cold"}))


def test_a_deployment_that_is_not_there_is_named(journal):
    asked = question(journal, rank=0)
    asked.asked["deployment"] = "nobody"
    with pytest.raises(ValueError, match="nobody is not in the journal"):
        predict(asked)


def test_times_that_are_drawn_have_the_measured_mean_whatever_the_buckets():
    took = MeasuredTimes(BOUNDS_S, (10, 20, 50, 20, 0), 100 * 0.17)
    drawn = took.draw(20_000, Random(1))
    assert sum(drawn) / len(drawn) == pytest.approx(0.17, rel=0.02)
    assert took.quantile(0.5) < took.quantile(0.99)
    assert MeasuredTimes(BOUNDS_S, (0, 0, 10, 0, 0), 1.2).quantile(0.5) == pytest.approx(0.12)
    assert MeasuredTimes(BOUNDS_S, (0,) * 5, 0.0).quantile(0.5) is None
    assert list(MeasuredTimes(BOUNDS_S, (0,) * 5, 0.0).draw(2, Random(1))) == [0.0, 0.0]


def started():
    command = [sys.executable, "-m", "executors.simulator.from_journal.prediction"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_the_process_takes_a_question_as_json_and_ends_with_whoever_asked(journal):
    with started() as process:
        process.stdin.write(json.dumps(question(journal, node="node-0").to_plain()).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.read())["answer"] == predict(question(journal, node="node-0"))["answer"]
    with started() as process:
        slow = question(journal, rate_per_s=500.0, horizon_s=3600.0, node="node-0").to_plain()
        process.stdin.write(json.dumps(slow).encode() + b"\n")
        process.stdin.close()
        assert process.wait(60.0) == 1


def test_what_cannot_be_gone_on_with_is_one_line(journal, tmp_path):
    with started() as process:
        nothing = {**question(journal, node="node-0").to_plain(), "journal": str(tmp_path / "nothing")}
        process.stdin.write(json.dumps(nothing).encode() + b"\n")
        process.stdin.flush()
        assert "No such file" in json.loads(process.stdout.read())["error"]


def test_a_big_target_is_predicted_without_checking_the_books_all_along(journal, monkeypatch):
    checks = []
    check = controller.invariants.check
    monkeypatch.setattr(controller.invariants, "check", lambda state: checks.append(len(state.replicas)) or check(state))
    found = predict(question(journal, target=1000))
    assert lanes(found, "then")["sizes"][-1][1] == 1000
    assert len(running_at(lanes(found, "then"), 59.0)) == 1000
    assert checks.count(1000) in range(1, 10), "at each change of a status, and at the end"


def test_a_journal_with_a_gap_is_gone_on_with_explained_and_replayed_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "AGAIN_S", 0.0)
    path = tmp_path / "run.jsonl"
    cluster = RecordedCluster(LenientJournal.create(path, kind=CLUSTER))
    cluster.join(6)
    cluster.apply(application(entry("a/x", 2)))
    cluster.wait(20.0)
    with monkeypatch.context() as full:
        full.setattr(journals, "write_whole_line", no_room)
        cluster.apply(application(entry("a/x", 3)))
        cluster.wait(20.0)
    cluster.apply(application(entry("a/x", 4)))
    cluster.wait(20.0)
    asked = {"happens": "target", "target": 5, "deployment": "a/x"}
    found = predict(LiveQuestion(journal=path, now=None, asked=asked, horizon_s=60.0, calls={}))
    assert sorted(running_at(lanes(found, "without", "a/x"), 59.0)) == [0, 1, 2, 3]
    assert sorted(running_at(lanes(found, "then", "a/x"), 59.0)) == [0, 1, 2, 3, 4]
    for command in (["replay", str(path)], ["explain", str(path), "--rank", "2"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert "steps were not written: No space left on device" in done.stderr


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
