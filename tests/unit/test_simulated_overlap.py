"""V3 in the simulator: prepared replicas take requests, so that an update with a budget of 0 never has fewer than N serve."""

from pathlib import Path

import pytest

from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from rankcore import NoteKind

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


@pytest.mark.parametrize(("hand_over", "out"), [("overlap", 0), ("prepared", 1)])
def test_a_successor_that_takes_no_requests_is_found_out_once_it_has_its_rank_and_the_update_waits_for_it(hand_over, out):
    """V16, of one that had no rank when it began: nobody is asked before it has one."""
    more = "faults: [{kind: replica_unready, at: 113, deployment: llm, replica_id: llm#1.4, for_s: 60}]\n"
    result = run_of(hand_over, out, more=more)
    assert "replica llm#1.4 takes no requests" in [each.text for each in result.happenings if each.kind == "fault"]
    ((again, note),) = [(each.at, each.note) for each in result.decisions.kept if each.note.rule == "V16"]
    assert (note.kind, note.replica_id, 173.0 < again < 180.0) == (NoteKind.REPLICA_READY_AGAIN, "llm#1.4", True)
    stopped = [each.at for each in result.decisions.kept if each.note.kind is NoteKind.STOP_CHOSEN]
    assert not [at for at in stopped if 117.0 < at < again], "it is not available: nobody else is stopped"
    figures = result.deployments[0]
    assert (figures.status, figures.replica_starts, figures.requests.lost) == ("HEALTHY", 8, 0)
    assert (figures.replicas_unready, figures.least_running) == (1, 3)
