"""Autoscaled deployments in simulated worlds with faults: every promise holds after every decision, and nobody is forgotten.

Limits are generous: what is looked for is a broken promise, not a slow world.
"""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario.structuring import structure_scenario

DURATION_S = 2000.0
times = st.integers(0, 400)
faults = st.one_of(
    st.builds(lambda at: {"kind": "controller_crash", "at": at, "restart_after_s": 20}, times),
    st.builds(lambda at, n: {"kind": "node_loss", "at": at, "node": f"n-{n}", "back_after_s": 60}, times, st.integers(0, 2)),
    st.builds(lambda at, n: {"kind": "node_partition", "at": at, "node": f"n-{n}", "for_s": 90}, times, st.integers(0, 2)),
    st.builds(lambda at: {"kind": "replica_crash", "at": at, "deployment": "app", "rank": 0}, times),
    st.builds(lambda at: {"kind": "replica_hang", "at": at, "deployment": "app", "rank": 0, "for_s": 20}, times),
)


@st.composite
def scenarios(draw):
    least = draw(st.integers(0, 2))
    autoscaling = {
        "min_replicas": least,
        "max_replicas": draw(st.integers(max(1, least), 9)),
        "target_ongoing_requests": draw(st.sampled_from([0.5, 1, 3])),
        "metrics_interval_s": draw(st.sampled_from([2, 10])),
        "look_back_period_s": draw(st.sampled_from([5, 30])),
        "upscale_delay_s": draw(st.sampled_from([0, 5, 20])),
        "downscale_delay_s": draw(st.sampled_from([0, 10, 60])),
        "upscaling_factor": draw(st.sampled_from([0.5, 1, 4])),
        "downscaling_factor": draw(st.sampled_from([0.5, 1, 2])),
        "max_rank_moves": draw(st.none() | st.integers(1, 3)),
    }
    deployment = {
        "name": "app",
        "compaction": draw(st.sampled_from(["when_healthy", "immediate"])),
        "victims": draw(st.sampled_from(["any", "highest_rank", "newest"])),
        "max_ongoing_requests": 3,
        "init_s": {"uniform": {"low": 1, "high": 15}},
        "autoscaling": autoscaling,
    }
    return structure_scenario(
        {
            "seed": draw(st.integers(0, 99)),
            "duration_s": DURATION_S,
            "network": {"latency_s": {"exponential": {"mean": 0.02}}, "lease_s": 30},
            "nodes": [{"name": "n", "count": 3, "gpus": 4}],
            "deployments": [deployment],
            "faults": draw(st.lists(faults, max_size=4)),
        }
    )


@settings(max_examples=40)
@given(scenarios(), st.lists(st.tuples(times, st.integers(1, 40), st.sampled_from([0.2, 1.0, 4.0])), max_size=8))
def test_bursts_faults_and_scaling_break_no_promise_and_leave_no_request_behind(scenario, bursts):
    requests = sorted((at + 0.01 * index, service_s) for at, count, service_s in bursts for index in range(count))
    at_s, service_s = array("d", (at for at, _ in requests)), array("d", (each for _, each in requests))
    result = Run(scenario, {"app": Arrivals(at_s, service_s)}).go()
    assert result.failure is None
    (figures,) = result.deployments
    spec = scenario.deployments[0].autoscaling
    assert all(spec.within_bounds(size) == size for _, size in result.world_sizes["app"])
    assert figures.status == "HEALTHY"
    assert figures.requests.unfinished == figures.requests.failed == 0
    assert figures.world_size == spec.min_replicas  # nobody has asked for anything for a long time
