"""A run of models can be stopped on its way, forked there, and the fork can be given faults that the original never sees."""

import gc
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType

import pytest

from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.loop import Loop
from executors.engine.replay import replay
from executors.simulator.clock import EventLoop
from executors.simulator.faults.residency_words import inject_with_residency, parse_residency_fault
from executors.simulator.faults.words import FaultWordsError
from executors.simulator.fields import FieldProblem
from executors.simulator.load.requests import RequestQueue
from executors.simulator.record.happenings import Story
from executors.simulator.residency.callers import Callers, Calls
from executors.simulator.residency.control import Control
from executors.simulator.residency.links import Links, Transfer
from executors.simulator.residency.memory import NodeMemory
from executors.simulator.residency.nodes import GpuNode, WorkerProcess
from executors.simulator.residency.record import PartGauge, SpanBook
from executors.simulator.residency.run import ResidencyRun
from executors.simulator.residency.workers import Workers
from executors.simulator.scenario.faults import ControllerCrash, NodeLoss, ReplicaCrash
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.models import upgraded
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.structuring import structure_scenario
from executors.simulator.streams import Streams
from tests.model_runs import EVERYTHING


def prepared(journal: JournalWriter | None = None, **keys) -> ResidencyRun:
    scenario = structure_scenario(upgraded({**EVERYTHING, **keys}))
    return ResidencyRun(scenario, load_arrivals(scenario, Path(), scenario.seed), journal)


@pytest.fixture(scope="module")
def uninterrupted():
    return prepared().go()


def test_stopping_a_run_on_its_way_changes_nothing(uninterrupted):
    run = prepared()
    for at in range(0, 1300, 13):
        run.until(float(at))
        assert run.now <= at
    assert run.is_over
    assert run.go() == uninterrupted


def test_stopping_a_run_without_an_end_of_its_own_changes_nothing():
    run, alone = (prepared(duration_s=None, settle_s=300) for _ in range(2))
    for at in range(0, 1500, 11):
        run.until(float(at))
    assert run.go() == alone.go()


@pytest.mark.parametrize("at", [0.0, 207.3, 401.0, 1199.0])
def test_a_fork_goes_on_exactly_as_the_original(at, uninterrupted):
    run = prepared()
    run.until(at)
    fork = run.fork()
    forked = fork.go()
    assert run.go() == uninterrupted
    assert forked == uninterrupted


def test_every_point_between_two_happenings_can_be_forked(uninterrupted):
    run = prepared()
    run.until(395.0)
    for _ in range(30):
        run.world.loop.step()
        run = run.fork()
    assert run.go() == uninterrupted


def test_a_fault_that_a_fork_is_given_is_its_own(uninterrupted):
    run = prepared()
    run.until(150.0)
    fork = run.fork()
    fork.inject(NodeLoss(at=Moment(offset_s=160.0), node="gpu-node-0", back_after_s=20.0))
    result = fork.go()
    assert (160.0, "gpu-node-0") in [(each.at, each.node) for each in result.happenings]
    assert result.failure is None
    assert result.deployments != uninterrupted.deployments
    assert run.go() == uninterrupted


def test_a_fault_whose_time_has_passed_comes_at_once_and_prolongs_the_run():
    run = prepared(duration_s=None, settle_s=300)
    run.until(1e6)
    assert run.is_over
    ended_at = run.now
    run.inject(ReplicaCrash(at=Moment(offset_s=1.0), deployment="house"))
    assert not run.is_over
    result = run.go()
    assert ended_at in [each.at for each in result.happenings if "house@1#" in each.text]
    assert result.ended_at >= ended_at
    assert result.failure is None


@pytest.mark.parametrize(
    ("happens", "key"),
    [
        (NodeLoss(at=Moment(), node="x"), "node"),
        (ReplicaCrash(at=Moment(), deployment="x"), "deployment"),
        (Change(at=Moment(), deployment="x", fields={"target_replicas": 1}), "deployment"),
    ],
)
def test_a_fault_of_what_is_not_there_is_refused(happens, key):
    with pytest.raises(FieldProblem, match="expected one of") as caught:
        prepared().inject(happens)
    assert caught.value.keys == (key,)


def test_what_never_changes_is_shared_and_not_copied():
    run = prepared()
    run.until(450.0)
    fork = run.fork()
    assert fork.world.scenario is run.world.scenario
    assert fork.world.control.state is run.world.control.state
    assert fork.world.queues["default/chat"].arrivals is run.world.queues["default/chat"].arrivals
    assert fork.world.story.happenings[0] is run.world.story.happenings[0]
    assert fork.world.notebook.kept[0] is run.world.notebook.kept[0]


def test_a_fork_refers_to_nothing_that_changes_in_the_original():
    """Follow every reference of the fork: none leads to a part of the original that can change."""
    run = prepared()
    run.until(420.0)
    fork = run.fork()
    changing = (EventLoop, Story, Streams, Random, WorkerProcess, Links, Transfer, NodeMemory, GpuNode, RequestQueue, PartGauge)
    changing = (*changing, SpanBook, Callers, Calls, Control, Loop, Workers)
    own, theirs = ({id(each): each for each in _reachable(root) if isinstance(each, changing)} for root in (run, fork))
    assert {type(each) for each in own.values()} >= {
        EventLoop,
        WorkerProcess,
        Links,
        NodeMemory,
        RequestQueue,
        Callers,
        Control,
        Loop,
    }
    assert sorted(type(each).__name__ for each in own.values()) == sorted(type(each).__name__ for each in theirs.values())
    assert not own.keys() & theirs.keys()


def _reachable(root: object) -> list[object]:
    found: dict[int, object] = {}
    todo = [root]
    while todo:
        value = todo.pop()
        if id(value) not in found and not isinstance(value, (type, ModuleType, FunctionType)):
            found[id(value)] = value
            todo.extend(gc.get_referents(value))
    return list(found.values())


def test_a_fork_can_write_a_journal_of_its_own_that_can_be_replayed(tmp_path):
    first, second = tmp_path / "original.jsonl", tmp_path / "fork.jsonl"
    with JournalWriter.create(first, kind=CLUSTER) as of_run, JournalWriter.create(second, kind=CLUSTER) as of_fork:
        run = prepared(of_run)
        run.until(450.0)
        fork = run.fork(of_fork)
        silent = run.fork()
        fork.go()
        silent.go()
        run.go()
    alone = tmp_path / "alone.jsonl"
    with JournalWriter.create(alone, kind=CLUSTER) as journal:
        prepared(journal).go()
    assert first.read_bytes() == alone.read_bytes()
    result = replay(second)
    assert result.difference is None
    assert result.steps > 100
    whole = replay(first)
    assert whole.difference is None
    assert whole.state == result.state


def test_a_fork_of_a_run_that_has_not_begun_begins_its_journal_itself(tmp_path):
    path = tmp_path / "fork.jsonl"
    with JournalWriter.create(path, kind=CLUSTER) as journal:
        prepared().fork(journal).go()
    assert path.read_text().count('"began"') == 1
    assert replay(path).difference is None


@pytest.mark.parametrize("name", ["chat", "default/chat"])
def test_faults_in_words_name_a_deployment_with_its_application_or_without(name):
    run = prepared()
    run.until(100.0)
    inject_with_residency(run, f"{name} scaled to 1", 100.0)
    with pytest.raises(FaultWordsError, match="expected a deployment"):
        inject_with_residency(run, "default/nobody scaled to 1", 100.0)


@pytest.mark.parametrize(
    ("words", "happens"),
    [
        ("controller crashes for 5s", ControllerCrash(at=Moment(offset_s=100.0), restart_after_s=5.0)),
        ("chat updated to 2", Change(at=Moment(offset_s=100.0), deployment="chat", fields={"version": "2"})),
        ("chat is deleted", Change(at=Moment(offset_s=100.0), deployment="chat", delete=True)),
    ],
)
def test_what_a_scenario_may_say_can_be_said_in_words_too(words, happens):
    assert parse_residency_fault(words, 100.0) == happens
    said, structured = (prepared() for _ in range(2))
    for run in (said, structured):
        run.until(100.0)
    inject_with_residency(said, words, 100.0)
    structured.inject(happens)
    result = said.go()
    assert result == structured.go()
    assert result != prepared().go()
    assert result.failure is None


def test_models_beside_deployments_are_refused_and_not_left_out():
    both = upgraded({**EVERYTHING, "deployments": [{"name": "draw", "residency": {"weight_gb": 7}}]})
    with pytest.raises(FieldProblem, match='found "models"'):
        structure_scenario(both)
