"""Whatever models, nodes, faults and traffic there are: no GPU is ever over its capacity, and all sums agree."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executors.simulator.residency.record import CPU
from executors.simulator.residency.run import ResidencyResult, ResidencyRun
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.models import upgraded
from executors.simulator.scenario.structuring import structure_scenario

GB = 10**9
END_S = 400
NAMES = ("a", "b", "c")
MOMENTS = st.integers(0, END_S)

groups = st.builds(
    lambda count, gpus, gpu_gb, cache, lies: {
        "name": "n",
        "count": count,
        "gpus": gpus,
        "gpu_gb": gpu_gb,
        "cpu_cache_gb": cache,
        "really_gpu_gb": gpu_gb - lies,
    },
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([24, 80]),
    st.sampled_from([0, 30, 200]),
    st.sampled_from([0, 0, 0, 9]),
)
models = st.builds(
    lambda **keys: keys,
    weight_gb=st.sampled_from([3, 20, 45, 100, 700]),
    working_gb=st.sampled_from([0, 5]),
    really_working_gb=st.sampled_from([None, None, 15]),
    min_hot_s=st.sampled_from([0, 60]),
    priority=st.sampled_from([0, 0, 5]),
    dedicated=st.sampled_from([False, False, False, True]),
    replicas=st.integers(0, 3),
    spread=st.booleans(),
    request_timeout_s=st.sampled_from([None, 50]),
)
crashes = st.builds(
    lambda at, s: {"kind": "controller_crash", "at": at, "restart_after_s": s}, MOMENTS, st.sampled_from([0.2, 8, 60])
)
faults = st.one_of(
    st.builds(
        lambda at, node, back: {"kind": "node_loss", "at": at, "node": node, "back_after_s": back},
        MOMENTS,
        st.just("n-0"),
        st.integers(1, 90),
    ),
    st.builds(lambda at, model: {"kind": "replica_crash", "at": at, "model": model}, MOMENTS, st.sampled_from(NAMES)),
    st.builds(
        lambda at, model, count: {"kind": "load_failure", "at": at, "model": model, "count": count},
        MOMENTS,
        st.sampled_from(NAMES),
        st.integers(1, 4),
    ),
    st.builds(lambda at, gb: {"kind": "memory_shrinks", "at": at, "node": "n-0", "gpu_gb": gb}, MOMENTS, st.integers(1, 24)),
    crashes,
)
changes = st.one_of(
    st.builds(
        lambda at, model, count: {"at": at, "model": model, "replicas": count},
        MOMENTS,
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    st.builds(
        lambda at, model, keep: {"at": at, "model": model, "evict": keep},
        MOMENTS,
        st.sampled_from(NAMES),
        st.sampled_from(["WARM", "COLD"]),
    ),
    st.builds(
        lambda at, name, wish: {"at": at, "deployment": name, **wish},
        MOMENTS,
        st.sampled_from(NAMES),
        st.sampled_from([{"version": "2"}, {"version": "3"}, {"user_config": {"a": 1}}, {"delete": True}]),
    ),
)

NETWORKS = (
    {"latency_s": 0.2},
    {"latency_s": {"exponential": {"mean": 1}}, "loss": 0.2, "retry_s": 2},
    {"latency_s": {"lognormal": {"median": 3, "p99": 40}}},
)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Plain data of a scenario: a few models on a few GPUs, with too little room."""
    network = draw(st.sampled_from([None, None, *NETWORKS]))
    return ({} if network is None else {"network": network}) | {
        "seed": draw(st.integers(0, 2**32)),
        "duration_s": END_S,
        "nodes": [draw(groups)],
        "models": [{"name": name, **draw(models)} for name in NAMES],
        "traffic": {"zipf": {"rate_per_s": draw(st.sampled_from([0.02, 0.2])), "cv": 2, "for_s": END_S, "service_s": 5}},
        "loading": {"failure": draw(st.sampled_from([0, 0, 0.3])), "cold_start_s": {"uniform": {"low": 1, "high": 9}}},
        "policy": {"idle_to_warm_s": draw(st.sampled_from([None, 40])), "idle_to_cold_s": draw(st.sampled_from([None, 90]))},
        "faults": draw(st.lists(faults, max_size=3)),
        "changes": draw(st.lists(changes, max_size=3)),
    }


def run_of(data: dict[str, Any]) -> ResidencyResult:
    scenario = structure_scenario(upgraded(data))
    return ResidencyRun(scenario, load_arrivals(scenario, Path(), scenario.seed)).go()


@settings(max_examples=40)
@given(scenarios())
def test_every_promise_holds_and_all_sums_agree(data):
    result = run_of(data)
    assert result.failure is None, result.failure
    levels_last_as_long_as_the_run(result)
    requests_add_up(result)
    bytes_add_up(result)
    memory_is_never_over_its_capacity(result)


@settings(max_examples=20)
@given(scenarios(), st.lists(crashes, min_size=1, max_size=3))
def test_no_command_of_a_dead_controller_changes_what_the_next_one_has_learnt(data, crashed):
    result = run_of({**data, "network": NETWORKS[-1], "faults": [*data["faults"], *crashed]})
    assert result.failure is None, result.failure


@settings(max_examples=20)
@given(scenarios())
def test_each_request_is_answered_or_told_that_it_is_not_whatever_goes_wrong(data):
    models = [{**model, "request_timeout_s": 50} for model in data["models"]]
    result = run_of({**data, "models": models, "duration_s": END_S + 200})
    assert result.failure is None, result.failure
    assert result.all_deployments.requests.unfinished == 0


def levels_last_as_long_as_the_run(result: ResidencyResult) -> None:
    for model in result.deployments:
        assert model.hot_s + model.warm_s + model.cold_s == pytest.approx(result.ended_at)
        assert min(model.hot_s, model.warm_s, model.cold_s) >= 0


def requests_add_up(result: ResidencyResult) -> None:
    for each in (*result.deployments, result.all_deployments):
        requests = each.requests
        ended = requests.done + requests.failed + requests.lost + requests.expired
        assert requests.arrived == ended + requests.unfinished
        assert requests.unfinished >= 0
        assert each.misses.answered <= each.misses.count
    assert result.all_deployments.requests.arrived == sum(model.requests.arrived for model in result.deployments)


def bytes_add_up(result: ResidencyResult) -> None:
    total = result.all_deployments.moves
    for field in ("from_disk_gb", "from_cpu_gb", "to_cpu_gb", "moved_gb", "loads_from_disk", "displaced"):
        assert getattr(total, field) == pytest.approx(sum(getattr(model.moves, field) for model in result.deployments))
    for model in result.deployments:
        moves = model.moves
        assert moves.from_disk_gb <= moves.loads_from_disk * model.weight_gb * (1 + 1e-9)
        assert moves.from_cpu_gb <= moves.loads_from_cpu * model.weight_gb * (1 + 1e-9)
        assert moves.moved_gb == pytest.approx(moves.from_disk_gb + moves.from_cpu_gb + moves.to_cpu_gb)


def memory_is_never_over_its_capacity(result: ResidencyResult) -> None:
    """Of each GPU as it is, and of each cache, at each moment at which somebody comes to hold something."""
    shapes = {shape.node_id: shape for shape in result.nodes}
    for span in result.spans:
        shape = shapes[span.node_id]
        beside = [
            each.size_bytes
            for each in result.spans
            if (each.node_id, each.gpu) == (span.node_id, span.gpu) and each.since <= span.since < each.until
        ]
        assert sum(beside) <= (shape.cpu_bytes if span.gpu == CPU else shape.really_gpu_bytes[span.gpu])
        assert span.until > span.since


@settings(max_examples=8)
@given(scenarios())
def test_a_run_depends_on_its_scenario_and_seed_alone(data):
    assert run_of(data) == run_of(data)
