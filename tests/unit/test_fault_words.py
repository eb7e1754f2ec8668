"""Faults in words."""

import re

import pytest

from executors.cli.commands.simulate import simulate
from executors.simulator.faults.fault_words import FORMS, FaultWordsError, inject, parse_fault
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.faults import (
    ConfigFails,
    ControllerCrash,
    CrashAfterReady,
    NodeCordon,
    NodeDrain,
    NodeLoss,
    NodePartition,
    NodePreemption,
    ReplicaCrash,
    ReplicaHang,
    ReplicaSlow,
    ReplicaUnready,
    SlowStart,
    StartFailure,
)
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.structuring import structure_scenario

AT = Moment(offset_s=100.0)
TEXT = """\
duration_s: 400
nodes: [{name: n, count: 3, gpus: 2}]
deployments: [{name: llm, target_replicas: 4, init_s: 3}]
"""


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("node n-2 lost", NodeLoss(at=AT, node="n-2")),
        ("node n-2 is lost for 1m30s", NodeLoss(at=AT, node="n-2", back_after_s=90.0)),
        ("Node n-2 partitioned for 60", NodePartition(at=AT, node="n-2", for_s=60.0)),
        ("replica llm#1.3 crashes", ReplicaCrash(at=AT, deployment="llm", replica_id="llm#1.3")),
        ("rank 3 of llm  crashes", ReplicaCrash(at=AT, deployment="llm", rank=3)),
        ("a replica of llm crashes", ReplicaCrash(at=AT, deployment="llm")),
        ("rank 3 of llm hangs", ReplicaHang(at=AT, deployment="llm", rank=3)),
        ("replica llm#1.3 hangs for 0:01:00", ReplicaHang(at=AT, deployment="llm", replica_id="llm#1.3", for_s=60.0)),
        ("starts of llm fail for 2m", StartFailure(at=AT, deployment="llm", for_s=120.0)),
        ("rank 2 of llm is unready for 30s", ReplicaUnready(at=AT, deployment="llm", rank=2, for_s=30.0)),
        ("rank 2 of llm is 2.5 times slower for 30s", ReplicaSlow(at=AT, deployment="llm", rank=2, factor=2.5, for_s=30.0)),
        ("replica llm#1.3 unready", ReplicaUnready(at=AT, deployment="llm", replica_id="llm#1.3")),
        ("next start of llm fails", StartFailure(at=AT, deployment="llm", count=1)),
        ("next 2 starts of llm fail", StartFailure(at=AT, deployment="llm", count=2)),
        ("starts of llm 5 times slower", SlowStart(at=AT, deployment="llm", factor=5.0)),
        ("starts on node n-1 2.5 times slower for 1h", SlowStart(at=AT, node="n-1", factor=2.5, for_s=3600.0)),
        ("controller crashes for 5s", ControllerCrash(at=AT, restart_after_s=5.0)),
        ("node n-2 lost at 2d 03:00:00.5", NodeLoss(at=Moment(offset_s=183600.5), node="n-2")),
        ("the controller crashes for 5s at 130s", ControllerCrash(at=Moment(offset_s=130.0), restart_after_s=5.0)),
        ("llm scaled to 4", Change(at=AT, deployment="llm", fields={"target_replicas": 4})),
        ("llm updated to 2.1", Change(at=AT, deployment="llm", fields={"version": "2.1"})),
        ("node n-2 cordoned", NodeCordon(at=AT, node="n-2")),
        ("node n-2 is cordoned for 1m", NodeCordon(at=AT, node="n-2", for_s=60.0)),
        ("node n-2 drained", NodeDrain(at=AT, node="n-2")),
        ("node n-2 drained for 1h", NodeDrain(at=AT, node="n-2", for_s=3600.0)),
        ("node n-2 drained within 2m for 1h", NodeDrain(at=AT, node="n-2", deadline_s=120.0, for_s=3600.0)),
        ("node n-2 preempted in 2m", NodePreemption(at=AT, node="n-2", notice_s=120.0)),
        ("node n-2 preempted in 2m for 60s", NodePreemption(at=AT, node="n-2", notice_s=120.0, back_after_s=60.0)),
        ("replicas of llm die 1s after ready", CrashAfterReady(at=AT, deployment="llm", after_s=1.0)),
        (
            "replicas of llm of version 2 die 1s after ready for 5m at 200",
            CrashAfterReady(at=Moment(offset_s=200.0), deployment="llm", version="2", after_s=1.0, for_s=300.0),
        ),
        ('llm refuses user_config {"k": [1, 2]}', ConfigFails(at=AT, deployment="llm", user_config={"k": [1, 2]})),
        ("llm refuses user_config 7 for 5s", ConfigFails(at=AT, deployment="llm", user_config=7, for_s=5.0)),
        ('llm given user_config {"k": 1}', Change(at=AT, deployment="llm", fields={"user_config": {"k": 1}})),
        ("llm updated to 2 from rank 3 on", Change(at=AT, deployment="llm", fields={"version": "2", "partition": 3})),
        ("llm is restarted", Change(at=AT, deployment="llm", fields={"restart_token": "restarted at 0:01:40"})),
        ("llm deleted", Change(at=AT, deployment="llm", delete=True)),
    ],
)
def test_what_can_be_said(words, fault):
    assert parse_fault(words, 100.0) == fault


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("node n-2 explodes", "expected one of: node N lost [for TIME]; "),
        ("", "expected one of: "),
        ("node n-2 lost for a while", "expected one of: "),
        ("node n-2 lost for 6x", "expected a time such as 120s"),
        ("node n-2 lost at 5s", "expected a time from 0:01:40 on, when the fork begins, found 0:00:05"),
        ("controller crashes for 0s", "expected a number above 0"),
        ("llm given user_config {k: 1}", "expected a user_config in JSON, found {k: 1}"),
        ("node n-2 preempted in 0s", "expected a number above 0"),
        ("replica 4 crashes", "expected a replica id such as llm#1.3, found '4'"),
    ],
)
def test_what_says_nothing_is_told_with_what_can_be_said(words, problem):
    with pytest.raises(FaultWordsError) as caught:
        parse_fault(words, 100.0)
    assert problem in str(caught.value)
    assert repr(words) in str(caught.value)


@pytest.fixture
def run() -> Run:
    started = Run(parse_scenario(TEXT, "test"), {"llm": Arrivals()})
    started.until(100.0)
    return started


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("node n-9 lost", "expected a node: n-0, n-1, n-2, found n-9 (did you mean n-2?)"),
        ("rank 1 of lm crashes", "expected a deployment: llm, found lm (did you mean llm?)"),
        ("rank 7 of llm crashes", "expected a rank that a replica has at 0:01:40, found 7"),
        ("replica llm#1.9 crashes", "expected a live replica: llm#1.0, llm#1.1, llm#1.2, llm#1.3, found llm#1.9"),
        ("lm scaled to 4", "expected a deployment: llm, found lm"),
    ],
)
def test_what_the_world_does_not_have_is_told_with_what_it_has(run, words, problem):
    with pytest.raises(FaultWordsError) as caught:
        inject(run, words, 100.0)
    assert problem in str(caught.value)


@pytest.mark.parametrize("named", ["only", "b/only"])
def test_a_deployments_bare_name_is_enough_where_one_application_has_it(named):
    m, only = ({"name": name, "target_replicas": 1} for name in ("m", "only"))
    applications = [{"name": "a", "deployments": [m]}, {"name": "b", "deployments": [m, only]}]
    started = Run(
        structure_scenario({"nodes": [{"name": "n", "count": 1, "gpus": 4}], "applications": applications}),
        {name: Arrivals() for name in ("a/m", "b/m", "b/only")},
    )
    started.until(100.0)
    with pytest.raises(FaultWordsError, match="expected one of a/m, b/m, found m"):
        inject(started, "m scaled to 2", 100.0)
    with pytest.raises(FaultWordsError, match="expected a deployment: a/m, b/m, b/only, found c"):
        inject(started, "rank 0 of c crashes", 100.0)
    found = story_of(started, f"rank 0 of {named} crashes", f"{named} scaled to 2")
    assert "b/only: target_replicas = 2" in found
    assert any("b/only#1.0" in each for each in found)


def story_of(run: Run, *faults: str) -> list[str]:
    for words in faults:
        inject(run, words, 100.0)
    return [each.text for each in run.go().happenings if each.at >= 100.0]


def test_everything_that_can_be_said_happens(run):
    assert "node n-0 lost, with llm#1.0 (rank 0), llm#1.3 (rank 3)" in story_of(run, "node n-0 lost")


def test_planned_loss_crash_loops_and_refused_configs_happen(run):
    told = story_of(
        run,
        "node n-0 drained within 2m",
        "llm updated to 2 from rank 3 on at 130",
        "replicas of llm of version 2 die 1s after ready",
        "llm restarted at 200",
        "llm refuses user_config {} at 250",
        "llm given user_config {} at 251",
    )
    for said in (
        "replicas of version 2 of llm die 1 s after they are ready",
        "replicas of llm refuse user_config {}",
        "llm: version = 2, partition = 3",
        "llm: restart_token = restarted at 0:03:20",
        "llm: user_config = {}",
    ):
        assert said in told
    assert any(each.startswith("node n-0 is drained") for each in told)


def test_the_help_has_all_that_can_be_said():
    shown = " ".join((simulate.__doc__ or "").split())
    texts = (shown, re.sub(r" \[[^]]*\]", "", shown), shown.replace("[", "").replace("]", ""))
    said = [re.sub(r" \[[^]]*\]", "", form) for form, _, _ in FORMS]
    assert [form for form in said if not any(form in text for text in texts)] == []


def test_a_change_happens_like_a_fault(run):
    assert "llm: target_replicas = 2" in story_of(run, "llm scaled to 2")


def test_a_later_fault_comes_at_its_time(run):
    inject(run, "rank 1 of llm crashes at 150", 100.0)
    happened = [each for each in run.go().happenings if "crashed" in each.text]
    assert [each.at for each in happened] == [150.0]
