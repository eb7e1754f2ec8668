"""Autoscaling in the simulated world: the core decides, from what router and replicas report, and the ranks follow."""

from array import array

import pytest

from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scaling import reports_of
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.structuring import structure_scenario
from rankcore.autoscaling import rank_moves


def run_of(arrivals, options, *, duration_s=None, faults=(), **fields):
    """A deployment whose requests come at these times and take a second each."""
    deployment = {
        "name": "app",
        "max_ongoing_requests": 4,
        "start_s": 1.0,
        "init_s": 5.0,
        "autoscaling": {"max_replicas": 8, "metrics_interval_s": 2, "look_back_period_s": 6, **options},
        **fields,
    }
    data = {"nodes": [{"name": "n", "count": 3, "gpus": 4}], "deployments": [deployment], "faults": list(faults)}
    data["network"] = {"lease_s": 1000.0}
    data |= {} if duration_s is None else {"duration_s": duration_s}
    at_s = array("d", sorted(arrivals))
    return Run(structure_scenario(data), {"app": Arrivals(at_s, array("d", [1.0] * len(at_s)))})


def steady(per_s, begin, end):
    return [begin + index / per_s for index in range(int((end - begin) * per_s))]


def sizes(result):
    return [size for _, size in result.world_sizes["app"]]


QUICK = {"min_replicas": 0, "upscale_delay_s": 4, "downscale_delay_s": 20, "target_ongoing_requests": 2}


def test_from_zero_to_many_and_back_every_request_is_answered():
    result = run_of(steady(10.0, 60.0, 180.0), QUICK, duration_s=400.0).go()
    (figures,) = result.deployments
    assert result.failure is None
    assert figures.requests.done == figures.requests.arrived == 1200
    assert sizes(result)[:2] == [0, 1]
    assert max(sizes(result)) >= 5
    assert sizes(result)[-1] == 0
    assert figures.scaling.scale_events == len(sizes(result)) - 1


def test_the_first_request_starts_a_replica_at_the_moment_when_it_comes():
    result = run_of([61.3], QUICK, duration_s=100.0).go()
    assert result.world_sizes["app"][1] == (61.3, 1)
    assert result.deployments[0].requests.wait_s.p50 == pytest.approx(6.0, abs=0.1)  # start and init


def test_a_steady_load_keeps_its_replicas():
    result = run_of(steady(10.0, 0.0, 900.0), QUICK | {"min_replicas": 1, "upscaling_factor": 4.0}).go()
    late = [size for since, size in result.world_sizes["app"] if since > 300.0]
    assert result.failure is None
    assert late == []
    assert result.deployments[0].world_size == 5  # 10 requests in flight, 2 for each


def test_while_the_controller_is_down_nothing_is_scaled_and_requests_go_on():
    crash = {"kind": "controller_crash", "at": 100, "restart_after_s": 60}
    loads = steady(2.0, 0.0, 95.0) + steady(12.0, 95.0, 300.0)
    run = run_of(loads, QUICK | {"min_replicas": 1}, faults=[crash])
    run.until(159.9)
    done = run.world.deployments["app"].requests.counts.done
    assert [since for since, _ in run.world.deployments["app"].timeline.world_sizes if since > 100.0] == []
    assert done > 300
    result = run.go()
    assert result.failure is None
    after = [since for since, _ in result.world_sizes["app"] if since > 100.0]
    assert min(after) >= 162.0  # it listens for an interval first
    assert result.deployments[0].requests.lost == 0


def test_no_more_ranks_move_at_a_time_than_allowed():
    loads = [0.01 * index for index in range(2400)]
    run = run_of(loads, QUICK | {"max_replicas": 12, "max_rank_moves": 1, "target_ongoing_requests": 1}, duration_s=300.0)
    most, at = 0, 0.0
    while not run.is_over:
        at += 0.25
        run.until(at)
        most = max(most, rank_moves(run.controller.drivers["app"].state))
    assert most == 1
    assert sizes(run.go())[-1] == 0


def test_replicas_that_cannot_report_stop_nobody():
    """A node is cut off with its replicas, and what they do is not known: nothing shrinks before they are heard, or lost."""
    cut = {"kind": "node_partition", "at": 60, "node": "n-0", "for_s": 100}
    run = run_of(steady(10.0, 0.0, 60.0), QUICK | {"min_replicas": 1}, faults=[cut], duration_s=150.0)
    result = run.go()
    assert result.failure is None
    assert {"unknown load"} & {str(note.kind) for _, note in result.scaling_notes["app"]}


def test_a_replica_that_hangs_says_nothing():
    hang = {"kind": "replica_hang", "at": 60, "deployment": "app", "rank": 0, "for_s": 20}
    run = run_of(steady(2.0, 0.0, 100.0), {"min_replicas": 2}, faults=[hang], duration_s=100.0)
    run.until(61.0)
    assert [report[0] for report in reports_of(run.world.deployments["app"], 61.0)] == ["router", "app#1.1"]
    run.until(81.0)
    assert len(reports_of(run.world.deployments["app"], 81.0)) == 3


def test_every_change_of_the_target_is_told_with_its_reason():
    result = run_of(steady(10.0, 60.0, 120.0), QUICK, duration_s=300.0).go()
    told = [happening.text for happening in result.happenings if happening.kind == "change"]
    assert told[0] == "app is scaled from 0 to 1: 1 requests wait and there is no replica"
    assert len(told) == len(sizes(result)) - 1
    changes = [note for _, note in result.scaling_notes["app"] if str(note.kind) in ("upscaled", "downscaled", "from zero")]
    assert [note.wanted for note in changes] == sizes(result)[1:]


def test_a_fork_scales_as_the_run_that_it_left():
    run = run_of(steady(10.0, 60.0, 180.0), QUICK, duration_s=300.0)
    run.until(100.0)
    fork = run.fork()
    assert run.go().world_sizes == fork.go().world_sizes


def test_a_deleted_deployment_is_not_scaled_any_more():
    run = run_of(steady(10.0, 0.0, 60.0), QUICK, duration_s=120.0)
    run.until(30.0)
    run.inject(Change(at=Moment(offset_s=30.5), deployment="app", delete=True))
    result = run.go()
    assert result.failure is None
    assert result.deployments[0].status == "DELETED"


def test_a_deployment_without_autoscaling_has_no_such_figures():
    result = run_of([1.0], {}, autoscaling=None, target_replicas=1).go()
    assert result.deployments[0].scaling is None
    assert result.scaling_notes == {}
