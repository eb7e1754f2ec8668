"""Between the controller, its nodes and who calls all takes its time: nothing is there at once, and every promise holds."""

import pytest

from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.engine.replay import replay
from executors.simulator.fields import FieldProblem
from executors.simulator.residency.run import ResidencyResult
from tests.model_runs import EVERYTHING, result_of, run_of, scenario_of

CODE = {"models": [{"name": "code", "weight_gb": 60}]}
SLOW = {"latency_s": {"exponential": {"mean": 0.5}}, "loss": 0.2, "retry_s": 1}
TRAFFIC = {"chat": [5.0, 100.0, 398.0, 399.5, 650.0], "code": [50.0, 300.0], "large": [100.0, 420.0], "vision": [150.0]}
FAULTS = [
    {"kind": "replica_crash", "at": 200, "model": "chat"},
    {"kind": "load_failure", "at": 250, "model": "large", "count": 2},
    {"kind": "node_loss", "at": 400, "node": "gpu-node-1", "back_after_s": 0.1},
    {"kind": "memory_shrinks", "at": 800, "node": "gpu-node-0", "gpu_gb": 60},
]


def stormy(network: object, journal: JournalWriter | None = None, **keys) -> ResidencyResult:
    rest = {key: value for key, value in EVERYTHING.items() if key not in ("traffic", "faults")}
    return run_of(TRAFFIC, journal=journal, **{**rest, "faults": FAULTS, "network": network, **keys}).go()


def test_a_load_and_an_answer_each_take_the_way_there_and_back():
    # 60 GB from disk take 5 + 30 s; what waits, the load, its end, the rank, that it is ready, and the routes a second each.
    at_once, late = (result_of({"code": [100.0]}, **CODE, **network) for network in ({}, {"network": {"latency_s": 1}}))
    assert at_once.deployments[0].misses.first_answer_s.p50 == pytest.approx(36.0)
    assert late.deployments[0].misses.first_answer_s.p50 == pytest.approx(42.0)
    assert late.deployments[0].requests.done == 1


def test_a_network_that_takes_no_time_changes_no_answer():
    without, with_one = (result_of({"code": [100.0, 101.0]}, **CODE, **keys) for keys in ({}, {"network": {"latency_s": 0}}))
    assert with_one.deployments == without.deployments


@pytest.mark.parametrize("network", [{"latency_s": 0.05}, SLOW, {"latency_s": {"lognormal": {"median": 3, "p99": 40}}}])
def test_every_promise_holds_whatever_is_under_way(network):
    result = stormy(network)
    assert result.failure is None
    requests = result.all_deployments.requests
    assert requests.done > 0
    assert requests.arrived == sum(map(len, TRAFFIC.values()))


def test_a_command_for_a_life_of_a_node_that_is_over_is_not_carried_out():
    """The node is gone and back, empty, before the command gets there: both arrive, and all is planned anew."""
    faults = [{"kind": "node_loss", "at": 11.5, "node": "n", "back_after_s": 0.1}]
    changes = [{"at": 10, "model": "code", "replicas": 1}]
    run = run_of(network={"latency_s": 2}, faults=faults, changes=changes, **CODE)
    run.until(12.5)
    assert run.world.nodes["n"].memory.on_gpu == ()  # the command of 10 s arrived at 12 s, in the next life
    result = run.go()
    assert result.failure is None
    assert result.deployments[0].moves.loads_from_disk == 1
    assert result.deployments[0].hot_s > 0


def test_a_request_on_its_way_to_a_replica_that_dies_is_done_again():
    models = [{"name": "code", "weight_gb": 60, "replicas": 1}]
    faults = [{"kind": "replica_crash", "at": 101, "model": "code"}]
    result = result_of({"code": [100.0]}, models=models, faults=faults, network={"latency_s": 2})
    assert result.deployments[0].requests.done == 1
    assert result.deployments[0].requests.retried == 1
    assert result.deployments[0].requests.lost == 0


def test_news_that_is_measured_late_does_not_make_a_node_a_liar():
    nodes = [{"name": "n", "gpus": 1, "gpu_gb": 80, "really_gpu_gb": 70, "cpu_cache_gb": 200}]
    models = [{"name": "code", "weight_gb": 75, "replicas": 1}, {"name": "chat", "weight_gb": 20, "really_working_gb": 30}]
    result = run_of({"chat": [150.0]}, nodes=nodes, models=models, network=SLOW).go()
    assert result.failure is None
    assert result.deployments[1].requests.done == 1


def test_a_fork_takes_what_is_under_way_with_it(tmp_path):
    path = tmp_path / "run.jsonl"
    keys = {key: value for key, value in EVERYTHING.items() if key not in ("traffic", "faults")}
    with JournalWriter.create(path, kind=CLUSTER) as journal:
        run = run_of(TRAFFIC, journal=journal, **keys, faults=FAULTS, network=SLOW)
        for at in (100.2, 400.05, 660.0):
            run.until(at)
            fork = run.fork()
        forked, whole = fork.go(), run.go()
    assert forked == whole == stormy(SLOW)
    assert replay(path).difference is None


@pytest.mark.parametrize("network", [{"latency_s": -1}, {"loss": 1}, {"retry_s": 0}, {"lateness_s": 1}])
def test_a_network_that_cannot_be_is_refused(network):
    with pytest.raises(FieldProblem):
        scenario_of(**CODE, network=network)
