"""A run can be stopped on its way, forked there, and the fork can be given faults that the original never sees."""

import gc
from random import Random
from types import FunctionType, ModuleType

import pytest

from executors.engine.journal import JournalWriter
from executors.engine.replay import replay
from executors.simulator.believers import Believers
from executors.simulator.clock import EventLoop
from executors.simulator.cluster.network import Link
from executors.simulator.cluster.nodes import SimulatedNode
from executors.simulator.fields import FieldProblem
from executors.simulator.load.requests import Server
from executors.simulator.record.happenings import Story
from executors.simulator.record.timeline import Timeline
from executors.simulator.replicas.processes import SimulatedProcess
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.faults import NodeLoss, ReplicaCrash
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.moments import Moment
from executors.simulator.streams import Streams

STORMY = """
seed: 5
duration_s: 400
nodes:
  - {name: n, count: 3, gpus: 4}
network: {latency_s: {exponential: {mean: 0.3}}, loss: 0.2, duplication: 0.2, reorder: 0.2, retry_s: 2, lease_s: 10}
deployments:
  - name: llm
    target_replicas: 6
    start_s: {exponential: {mean: 1}}
    init_s: {exponential: {mean: 5}}
    health_check_timeout_s: 10
    user_config: {a: [1, {b: 2}]}
    requests: {poisson: {rate_per_s: 3, for_s: 300, service_s: {exponential: {mean: 3}}}}
fault_rates:
  - {kind: replica_crash, deployment: llm, mtbf_s: 200}
  - {kind: replica_hang, deployment: llm, mtbf_s: 200, mttr_s: 20}
  - {kind: node_loss, nodes: n, mtbf_s: 200, mttr_s: 30}
  - {kind: node_partition, nodes: n, mtbf_s: 200, mttr_s: 15}
  - {kind: controller_crash, mtbf_s: 150, mttr_s: 10}
faults:
  - {kind: start_failure, at: 50, deployment: llm, count: 3}
  - {kind: slow_start, at: 100, node: n-1, factor: 3, for_s: 50}
changes:
  - {at: 120, deployment: llm, target_replicas: 9}
  - {at: 200, deployment: llm, version: "2"}
  - {at: 250, deployment: llm, target_replicas: 4}
"""


def prepared(text: str = STORMY, journal: JournalWriter | None = None) -> Run:
    scenario = parse_scenario(text, "test")
    return Run(scenario, load_arrivals(scenario, None, scenario.seed), journal)


@pytest.fixture(scope="module")
def uninterrupted():
    return prepared().go()


def test_stopping_a_run_on_its_way_changes_nothing(uninterrupted):
    run = prepared()
    for at in range(0, 500, 7):
        run.until(float(at))
        assert run.now <= at
    assert run.go() == uninterrupted


@pytest.mark.parametrize("at", [0.0, 1.0, 60.0, 125.5, 210.0, 399.0])
def test_a_fork_goes_on_exactly_as_the_original(at, uninterrupted):
    run = prepared()
    run.until(at)
    fork = run.fork()
    forked = fork.go()
    assert run.go() == uninterrupted
    assert forked == uninterrupted


def test_every_point_between_two_happenings_can_be_forked(uninterrupted):
    run = prepared()
    run.until(130.0)
    for _ in range(40):
        run.world.loop.step()
        run = run.fork()
    assert run.go() == uninterrupted


def test_a_fault_that_a_fork_is_given_is_its_own(uninterrupted):
    run = prepared()
    run.until(150.0)
    fork = run.fork()
    fork.inject(NodeLoss(at=Moment(offset_s=160.0), node="n-0", back_after_s=20.0))
    result = fork.go()
    assert (160.0, "n-0") in [(each.at, each.node) for each in result.happenings]
    assert result.failure is None
    assert result.deployments != uninterrupted.deployments
    assert run.go() == uninterrupted


def test_a_fault_whose_time_has_passed_comes_at_once_and_prolongs_the_run():
    run = prepared(STORMY.replace("duration_s: 400", "settle_s: 100"))
    run.until(1e6)
    ended_at = run.now
    run.inject(ReplicaCrash(at=Moment(offset_s=1.0), deployment="llm", rank=0))
    result = run.go()
    assert result.ended_at > ended_at
    assert ended_at in [each.at for each in result.happenings if "(rank 0)" in each.text]
    assert result.deployments[0].status == "HEALTHY"


@pytest.mark.parametrize(
    ("fault", "key"),
    [
        (NodeLoss(at=Moment(), node="x"), "node"),
        (ReplicaCrash(at=Moment(), deployment="x"), "deployment"),
    ],
)
def test_a_fault_of_what_is_not_there_is_refused(fault, key):
    with pytest.raises(FieldProblem, match="expected one of") as caught:
        prepared().inject(fault)
    assert caught.value.keys == (key,)


def test_what_never_changes_is_shared_and_not_copied():
    run = prepared()
    run.until(150.0)
    fork = run.fork()
    original, copy = run.world.deployments["llm"], fork.world.deployments["llm"]
    assert copy is not original
    assert copy.requests.arrivals is original.requests.arrivals
    assert fork.world.scenario is run.world.scenario
    assert fork.controller.drivers["llm"].state is run.controller.drivers["llm"].state
    assert fork.world.story.happenings[0] is run.world.story.happenings[0]
    assert copy.timeline.holds[0] is original.timeline.holds[0]


def test_a_fork_refers_to_nothing_that_changes_in_the_original():
    """Follow every reference of the fork: none leads to a part of the original that can change."""
    run = prepared()
    run.until(150.0)
    fork = run.fork()
    changing = (EventLoop, Story, Streams, Random, SimulatedProcess, Link, Server, Timeline, Believers, SimulatedNode)
    own, theirs = ({id(each): each for each in _reachable(root) if isinstance(each, changing)} for root in (run, fork))
    assert {type(each) for each in own.values()} == set(changing)
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
    with JournalWriter.create(tmp_path / "original.jsonl") as first, JournalWriter.create(tmp_path / "fork.jsonl") as second:
        run = prepared(journal=first)
        run.until(150.0)
        fork = run.fork(second)
        silent = run.fork()
        fork.go()
        silent.go()
        run.go()
    prepared_alone = tmp_path / "alone.jsonl"
    with JournalWriter.create(prepared_alone) as alone:
        prepared(journal=alone).go()
    assert (tmp_path / "original.jsonl").read_bytes() == prepared_alone.read_bytes()
    tail = (tmp_path / "fork.jsonl").read_bytes().splitlines()
    assert b'"Resumed"' in tail[1]
    assert replay(tmp_path / "fork.jsonl").steps > 100
