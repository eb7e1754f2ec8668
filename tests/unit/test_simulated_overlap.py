"""V3 in the simulator: prepared replicas take requests, so that an update with a budget of 0 never has fewer than N serve."""

from pathlib import Path

import pytest

from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals

WORLD = """
duration_s: 500
nodes:
  - {{name: n, count: {nodes}, gpus: 2}}
network: {{latency_s: 0.5, lease_s: 15}}
deployments:
  - name: llm
    target_replicas: 4
    max_surge: 1
    max_unavailable: {out}
    hand_over: {hand_over}
    min_ready_s: 5
    start_s: 1
    init_s: 10
    reconfigure_s: 1
    drain_s: 2
    graceful_shutdown_timeout_s: 30
    health_check_period_s: 3
    health_check_timeout_s: 9
    progress_deadline_s: 60
    requests: {{poisson: {{rate_per_s: 4, begin_s: 40, for_s: 400, service_s: {{exponential: {{mean: 2}}}}}}}}
changes:
  - {{at: 100, deployment: llm, version: "2"}}
"""


def run_of(hand_over: str = "overlap", out: int = 0, nodes: int = 3, more: str = "") -> RunResult:
    text = WORLD.format(hand_over=hand_over, out=out, nodes=nodes) + more
    scenario = parse_scenario(text, "test")
    result = Run(scenario, load_arrivals(scenario, Path(), scenario.seed)).go()
    assert result.failure is None
    return result


def test_an_update_has_all_n_serve_all_the_while_and_loses_nothing():
    figures = run_of().deployments[0]
    assert (figures.status, figures.least_running, figures.below_floor_s) == ("HEALTHY", 4, 0.0)
    assert (figures.replica_starts, figures.requests.lost, figures.requests.failed) == (8, 0, 0)


def test_prepared_alone_has_one_fewer():
    figures = run_of("prepared", 1).deployments[0]
    assert (figures.status, figures.least_running) == ("HEALTHY", 3)


def test_without_room_the_update_waits_and_nobody_is_stopped():
    figures = run_of(nodes=2).deployments[0]
    assert (figures.status, figures.least_running, figures.replica_starts, figures.requests.lost) == ("UPDATING", 4, 4, 0)


@pytest.mark.parametrize("at", [104.0, 112.0, 117.0, 120.0, 121.0, 123.0, 130.0, 137.0])
def test_a_controller_that_crashes_in_it_costs_nobody_a_place(at):
    figures = run_of(more=f"faults: [{{kind: controller_crash, at: {at}, restart_after_s: 5}}]\n").deployments[0]
    assert (figures.status, figures.least_running, figures.requests.lost) == ("HEALTHY", 4, 0)


def test_a_drain_has_all_n_serve_all_the_while():
    more = "faults: [{kind: node_drain, at: 60, node: n-0}]\n"
    figures = run_of(nodes=4, more=more).deployments[0]
    assert (figures.status, figures.least_running, figures.requests.lost) == ("HEALTHY", 4, 0)
