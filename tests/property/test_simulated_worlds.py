"""Whole runs with everything going wrong: no promise breaks, on the book or in what replicas believe, and all heals after."""

from typing import Any

import attrs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from executors.simulator.questions.healed import unhealed
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import Scenario
from executors.simulator.scenario.hardware import NetworkModel
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.scenario.structuring import structure_scenario
from tests.extent import examples

CALM_FROM = 400.0
"""No fault begins later; no repair takes longer than `REPAIR_S`, no lease, health check or back-off longer than a minute."""
REPAIR_S = 60.0
ENDS_AT = 1_200.0
SLOTS_MAX = 12

shares = st.sampled_from((0.0, 0.05, 0.3))
seconds = st.sampled_from((0.001, 0.4, 2.5))
times = st.floats(0.0, CALM_FROM, allow_nan=False)


def exponential(mean: float) -> dict[str, Any]:
    return {"exponential": {"mean": mean}}


networks = st.fixed_dictionaries(
    {
        "latency_s": seconds.map(exponential),
        "loss": shares,
        "duplication": shares,
        "reorder": shares,
        "reorder_s": seconds.map(lambda each: exponential(each * 10)),
        "retry_s": st.sampled_from((0.5, 5.0)),
        "lease_s": st.sampled_from((3.0, 15.0, 60.0)),
    }
)
deployments = st.fixed_dictionaries(
    {
        "name": st.just("llm"),
        "target_replicas": st.integers(1, 6),
        "compaction": st.sampled_from(("when_healthy", "immediate")),
        "victims": st.sampled_from(("any", "highest_rank", "newest")),
        "placement": st.sampled_from((None, "pack_ranks")),
        "max_surge": st.integers(0, 2),
        "max_unavailable": st.sampled_from((None, 1, 3)),
        "rollback": st.booleans(),
        "user_config": st.sampled_from((None, {"a": 1})),
        "start_s": seconds.map(exponential),
        "init_s": seconds.map(exponential),
        "reconfigure_s": seconds.map(exponential),
        "drain_s": seconds.map(exponential),
        "graceful_shutdown_timeout_s": st.sampled_from((0.0, 10.0)),
        "health_check_period_s": st.sampled_from((3.0, 10.0)),
        "health_check_timeout_s": st.sampled_from((5.0, 30.0)),
        "start_timeout_s": st.just(60.0),
        "repeat_period_s": st.sampled_from((1.0, 5.0)),
        "gpus_per_replica": st.integers(1, 2),
        "requests": st.just(
            {"poisson": {"rate_per_s": 0.5, "for_s": CALM_FROM, "service_s": {"exponential": {"mean": 2.0}}}},
        ),
    }
)
replicas = st.fixed_dictionaries({"at": times, "deployment": st.just("llm")}, optional={"rank": st.integers(0, 6)})
repairs = st.sampled_from((0.25, 8.0, REPAIR_S))
nodes = st.sampled_from(("n-0", "n-1", "n-2", "n-3"))
single_faults = st.one_of(
    replicas.map(lambda fault: {"kind": "replica_crash", **fault}),
    st.tuples(replicas, repairs).map(lambda pair: {"kind": "replica_hang", **pair[0], "for_s": pair[1]}),
    replicas.map(lambda fault: {"kind": "replica_hang", **fault}),
    st.tuples(replicas, repairs).map(lambda pair: {"kind": "replica_unready", **pair[0], "for_s": pair[1]}),
    st.tuples(times, st.integers(1, 4)).map(
        lambda pair: {"kind": "start_failure", "at": pair[0], "deployment": "llm", "count": pair[1], "for_s": REPAIR_S}
    ),
    st.tuples(times, repairs).map(
        lambda pair: {"kind": "crash_after_ready", "at": pair[0], "deployment": "llm", "after_s": 1.0, "for_s": pair[1]}
    ),
    st.tuples(times, st.sampled_from((None, {"a": 1})), repairs).map(
        lambda each: {"kind": "config_fails", "at": each[0], "deployment": "llm", "user_config": each[1], "for_s": each[2]}
    ),
    st.tuples(times, nodes, repairs).map(
        lambda each: {"kind": "slow_start", "at": each[0], "node": each[1], "factor": 20, "for_s": each[2]}
    ),
    st.tuples(times, nodes, repairs).map(
        lambda each: {"kind": "node_loss", "at": each[0], "node": each[1], "back_after_s": each[2]}
    ),
    st.tuples(times, nodes, repairs).map(
        lambda each: {"kind": "node_partition", "at": each[0], "node": each[1], "for_s": each[2]}
    ),
    st.tuples(times, repairs).map(lambda each: {"kind": "controller_crash", "at": each[0], "restart_after_s": each[1]}),
)


def rate(kind: str, target: dict[str, str], repaired: bool) -> st.SearchStrategy[dict[str, Any]]:
    fixed = {"kind": st.just(kind), "mtbf_s": st.sampled_from((60.0, 300.0)), "end_s": st.just(CALM_FROM)}
    # A repair from a uniform distribution, so that none outlasts the time to heal.
    repair = {"mttr_s": st.sampled_from((1.0, REPAIR_S)).map(lambda most: {"uniform": {"low": 0.0, "high": most}})}
    return st.fixed_dictionaries(
        {**fixed, **{key: st.just(value) for key, value in target.items()}, **(repair if repaired else {})}
    )


rates = st.one_of(
    rate("replica_crash", {"deployment": "llm"}, False),
    rate("replica_hang", {"deployment": "llm"}, True),
    rate("node_loss", {"nodes": "n"}, True),
    rate("node_partition", {"nodes": "n"}, True),
    rate("controller_crash", {}, True),
)
changes = st.fixed_dictionaries({"at": times, "deployment": st.just("llm")}).flatmap(
    lambda base: st.sampled_from(
        (
            *({"target_replicas": target} for target in (1, 3, 6)),
            {"version": "2"},
            {"version": "3"},
            {"user_config": {"a": 2}},
            {"compaction": "immediate"},
        )
    ).map(lambda change: {**base, **change})
)
scenarios = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "duration_s": st.just(ENDS_AT),
        # All fit, whatever their size: what waits for room would be no fault of the core's.
        "nodes": st.just([{"name": "n", "count": 4, "gpus": 6}]),
        "network": networks,
        "deployments": deployments.map(lambda each: [each]),
        "faults": st.lists(single_faults, max_size=8),
        "fault_rates": st.lists(rates, max_size=3),
        "changes": st.lists(changes, max_size=4),
    }
).map(structure_scenario)


mappings = st.tuples(st.permutations(range(8)), st.integers(1, 4), st.integers(1, 2)).map(
    lambda each: {
        "group": "pg",
        "bundles": [each[0][rank * each[2] : (rank + 1) * each[2]] for rank in range(each[1])],
    }
)
bundle_losses = st.tuples(times, st.lists(st.integers(0, 7), max_size=3), repairs).map(
    lambda each: {"kind": "bundle_loss", "at": each[0], "group": "pg", "bundles": each[1], "back_after_s": each[2]}
)
static_changes = st.fixed_dictionaries({"at": times, "deployment": st.just("llm")}).flatmap(
    lambda base: st.one_of(
        mappings.map(lambda mapping: {**base, "placement": mapping}),
        st.sampled_from(({"version": "2"}, {"user_config": {"a": 2}}, {"placement": None})).map(
            lambda change: {**base, **change}
        ),
    )
)


def on_bundles(deployment: dict[str, Any], mapping: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in deployment.items() if key != "target_replicas"}
    return {**kept, "placement": mapping, "max_surge": 0, "compaction": "when_healthy", "gpus_per_replica": 1}


static_scenarios = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "duration_s": st.just(ENDS_AT),
        "nodes": st.just([{"name": "n", "count": 4, "gpus": 6}]),
        "placement_groups": st.just([{"name": "pg", "bundles": [{"nodes": "n", "count": 2}]}]),
        "network": networks,
        "deployments": st.builds(lambda deployment, mapping: [on_bundles(deployment, mapping)], deployments, mappings),
        "faults": st.lists(single_faults | bundle_losses, max_size=8),
        "fault_rates": st.lists(rates, max_size=3),
        "changes": st.lists(static_changes, max_size=4),
    }
).map(structure_scenario)


def run_of(scenario: Scenario) -> tuple[Run, RunResult]:
    run = Run(scenario, load_arrivals(scenario, None, scenario.seed))
    return run, run.go()


@settings(max_examples=examples(150))
@given(scenario=scenarios)
def test_no_promise_breaks_and_all_heals_whatever_goes_wrong(scenario: Scenario) -> None:
    run, result = run_of(scenario)
    assert result.failure is None
    (figures,) = result.deployments
    # A build that failed too often before it was ever ready is given up, which is what the core promises.
    assert figures.status in ("HEALTHY", "DEPLOY_FAILED")
    assert unhealed(run, result) is None
    requests = figures.requests
    assert requests.arrived == requests.done + requests.lost + requests.failed + requests.unfinished


@settings(max_examples=examples(150))
@given(scenario=static_scenarios)
def test_no_promise_of_a_static_placement_breaks_and_all_heals_whatever_goes_wrong(scenario: Scenario) -> None:
    """Bundles, nodes and groups are lost and return, and ranks are mapped to other bundles, or to none."""
    run, result = run_of(scenario)
    assert result.failure is None
    (figures,) = result.deployments
    assert figures.status in ("HEALTHY", "DEPLOY_FAILED")
    assert unhealed(run, result) is None
    if figures.status == "HEALTHY":
        spec = run.controller.drivers["llm"].state.spec
        for process in run.world.deployments["llm"].processes.values():
            assert process.replica is not None
            assert process.replica.rank is not None
            assert (process.start.group_id, process.start.bundles) == spec.place_of(process.replica.rank.rank)
            if process.start.bundles:
                assert process.node is run.world.groups.of("pg")[process.start.bundles[0]].node


@settings(max_examples=25)
@given(scenario=scenarios | static_scenarios)
def test_the_same_scenario_runs_the_same_way_twice(scenario: Scenario) -> None:
    assert run_of(scenario)[1] == run_of(scenario)[1]


@settings(max_examples=25)
@given(scenario=scenarios | static_scenarios, at=st.floats(0.0, ENDS_AT, allow_nan=False))
def test_a_fork_from_anywhere_goes_on_as_the_original(scenario: Scenario, at: float) -> None:
    run = Run(scenario, load_arrivals(scenario, None, scenario.seed))
    run.until(at)
    fork = run.fork()
    assert fork.go() == run.go()


@settings(max_examples=examples(150))
@given(scenario=scenarios, at=st.floats(0.0, CALM_FROM, allow_nan=False))
def test_a_world_made_of_what_a_controller_knows_goes_on_and_heals(scenario: Scenario, at: float) -> None:
    run = Run(scenario, load_arrivals(scenario, None, scenario.seed))
    run.until(at)
    states = [driver.state for driver in run.controller.drivers.values()]
    assume(states and not any(state.unreported for state in states))
    calm = attrs.evolve(scenario, network=NetworkModel(), faults=(), fault_rates=(), changes=(), duration_s=None)
    resumed = Run.resumed(calm, states, at)
    result = resumed.go()
    assert result.failure is None
    (figures,) = result.deployments
    assert figures.status in ("HEALTHY", "DEPLOY_FAILED")
    assert unhealed(resumed, result) is None
