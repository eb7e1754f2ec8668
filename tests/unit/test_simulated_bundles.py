"""Placement groups in the simulator, with constant times, so that what happens when can be worked out by hand.

A message takes 0.5 s, a process comes up 1 s after it may begin, start-up code takes 2 s: a replacement serves 4 s after its
controller hears that it is needed. Bundles 0 and 1 are on n-0, 2 and 3 on n-1, 4 and 5 on n-2.
"""

import pytest

from executors.simulator.faults.fault_words import FaultWordsError, inject, parse_fault
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import ScenarioError, parse_scenario
from executors.simulator.scenario.faults import BundleLoss
from executors.simulator.scenario.moments import Moment
from executors.simulator.standings import Standings
from rankcore import DeploymentSpec, ReplicaRank, ReplicaState, StaticPlacement

WORLD = """
duration_s: 200
nodes:
  - {name: n, count: 3, gpus: 4}
placement_groups:
  - {name: pg-llm, bundles: [{nodes: n, count: 2, gpus: 1}]}
network: {latency_s: 0.5, lease_s: 15}
deployments:
  - name: llm
    placement: {group: pg-llm, bundles: {0: [0, 1], 1: [2, 3], 2: [4, 5]}}
    start_s: 1
    init_s: 2
"""


def run_of(text: str = "", world: str = WORLD) -> Run:
    scenario = parse_scenario(world + text, "test")
    return Run(scenario, {each.spec.name: Arrivals() for each in scenario.deployments})


def result_of(text: str = "", world: str = WORLD, status: str = "HEALTHY") -> RunResult:
    result = run_of(text, world).go()
    assert result.failure is None
    assert result.deployments[0].status == status
    return result


def gaps(result: RunResult) -> list[tuple[int, float, float]]:
    return [(gap.rank, gap.since, gap.until) for gap in result.gaps["llm"]]


def served_on(result: RunResult) -> list[tuple[int, str | None]]:
    return sorted((hold.rank, hold.node_id) for hold in result.holds["llm"] if hold.running and hold.until == result.ended_at)


def told(result: RunResult, kind: str) -> list[tuple[float, str]]:
    return [(each.at, each.text) for each in result.happenings if each.kind == kind]


def test_each_rank_is_served_on_the_node_of_its_first_bundle():
    assert served_on(result_of()) == [(0, "n-0"), (1, "n-1"), (2, "n-2")]
    elsewhere = WORLD.replace("{0: [0, 1], 1: [2, 3], 2: [4, 5]}", "[[5, 0], [4, 1]]")
    assert served_on(result_of(world=elsewhere)) == [(0, "n-2"), (1, "n-2")]


def test_nobody_else_gets_what_is_reserved():
    other = "  - {name: other, target_replicas: 9, init_s: 2}\n"
    run = run_of(world=WORLD + other)
    run.until(20.0)
    assert [node.free_gpus for node in run.world.cluster.nodes.values()] == [0, 0, 0]
    assert sum(process.node is not None for process in run.world.deployments["other"].processes.values()) == 6


def test_a_replica_takes_the_gpus_of_all_of_its_bundles():
    result = result_of("", WORLD.replace("duration_s: 200", "duration_s: 36"))
    assert result.deployments[0].gpu_hours == pytest.approx(3 * 2 * 36 / 3600)


def test_a_lost_node_leaves_its_rank_empty_until_it_is_back_however_much_room_there_is():
    result = result_of("faults: [{kind: node_loss, at: 20, node: n-1, back_after_s: 100}]")
    # 120.0 the bundles are back   120.5 the controller knows   124.5 its replacement serves
    assert gaps(result) == [(1, 20.0, 124.5)]
    assert told(result, "status")[-2:] == [
        (20.5, "llm is UNHEALTHY: placement group 'pg-llm': rank 1 needs bundle 2, lost: node n-1 was lost"),
        (125.0, "llm is HEALTHY"),
    ]


def test_a_node_that_never_comes_back_leaves_its_rank_empty_for_good():
    result = result_of("faults: [{kind: node_loss, at: 20, node: n-1}]", status="UNHEALTHY")
    assert gaps(result) == [(1, 20.0, 200.0)]
    assert served_on(result) == [(0, "n-0"), (2, "n-2")]


def test_a_replica_dies_with_its_first_bundle():
    result = result_of("faults: [{kind: bundle_loss, at: 20, group: pg-llm, bundles: [2], back_after_s: 50}]")
    assert gaps(result) == [(1, 20.0, 74.5)]
    assert told(result, "fault") == [
        (20.0, "bundle 2 of placement group pg-llm lost, with llm#1.1 (rank 1)"),
        (70.0, "bundle 2 of placement group pg-llm is back, empty"),
    ]
    assert result.deployments[0].replica_crashes == 1


def test_a_replica_that_loses_another_bundle_is_killed_by_its_controller():
    result = result_of("faults: [{kind: bundle_loss, at: 20, group: pg-llm, bundles: [3], back_after_s: 50}]")
    # 20.5 the controller knows   21.0 killed
    assert gaps(result) == [(1, 21.0, 74.5)]
    assert result.deployments[0].replica_crashes == 0


def test_a_group_that_is_removed_takes_everybody_and_the_status_says_so():
    result = result_of("faults: [{kind: bundle_loss, at: 20, group: pg-llm}]", status="UNHEALTHY")
    assert [gap[:2] for gap in gaps(result)] == [(0, 20.0), (1, 20.0), (2, 20.0)]
    assert told(result, "fault") == [
        (20.0, "placement group pg-llm removed, with llm#1.0 (rank 0), llm#1.1 (rank 1), llm#1.2 (rank 2)")
    ]
    (_, said) = told(result, "status")[-1]
    assert "rank 0 needs bundles 0, 1, lost: the placement group was removed" in said


def test_a_bundle_that_is_lost_twice_is_back_when_both_are_over():
    text = (
        "faults:\n  - {kind: bundle_loss, at: 20, group: pg-llm, bundles: [2], back_after_s: 50}\n"
        "  - {kind: node_loss, at: 30, node: n-1, back_after_s: 100}\n"
    )
    assert gaps(result_of(text)) == [(1, 20.0, 134.5)]
    within = text.replace("at: 30, node: n-1, back_after_s: 100", "at: 30, node: n-1, back_after_s: 5")
    assert gaps(result_of(within)) == [(1, 20.0, 74.5)]


def test_a_node_whose_lease_lapses_has_lost_its_bundles():
    result = result_of("faults: [{kind: node_partition, at: 20, node: n-1, for_s: 50}]")
    # 35.0 the lease has lapsed   70.0 reached again, empty   74.5 served again
    assert gaps(result) == [(1, 35.0, 74.5)]


def test_a_node_that_is_reached_in_time_has_lost_nothing():
    assert gaps(result_of("faults: [{kind: node_partition, at: 20, node: n-1, for_s: 10}]")) == []


def test_a_controller_that_comes_back_is_told_what_is_lost():
    text = (
        "faults:\n  - {kind: node_loss, at: 20, node: n-1, back_after_s: 100}\n"
        "  - {kind: controller_crash, at: 40, restart_after_s: 10}\n"
    )
    run = run_of(text)
    run.until(60.0)
    state = run.controller.drivers["llm"].state
    assert state.failed_ranks == (1,)
    assert state.message == "placement group 'pg-llm': rank 1 needs bundles 2, 3, lost: it was lost before"
    assert gaps(run.go()) == [(1, 20.0, 124.5)]


def test_news_of_a_return_that_nobody_hears_is_not_needed():
    text = (
        "faults:\n  - {kind: node_loss, at: 20, node: n-1, back_after_s: 30}\n"
        "  - {kind: controller_crash, at: 40, restart_after_s: 20}\n"
    )
    # 60.0 the controller is back, asks 2 replicas   61.0 both have answered   65.0 the third serves: 1 + 0.5 + 0.5 + 2 s later
    assert gaps(result_of(text)) == [(1, 20.0, 65.0)]


def test_another_mapping_moves_who_has_to_move():
    change = "changes: [{at: 20, deployment: llm, placement: {group: pg-llm, bundles: [[0, 1], [4, 5], [2, 3]]}}]"
    result = result_of(change)
    assert served_on(result) == [(0, "n-0"), (1, "n-2"), (2, "n-1")]
    assert [rank for rank, _, _ in gaps(result)] == [1, 2]


def test_another_group_takes_everybody_and_tells_what_is_lost_there():
    groups = "  - {name: pg-llm, bundles: [{nodes: n, count: 2, gpus: 1}]}\n"
    world = WORLD.replace(groups, groups + "  - {name: spare, bundles: [{nodes: n, gpus: 2}]}\n")
    text = (
        "faults:\n  - {kind: bundle_loss, at: 10, group: spare, bundles: [2], back_after_s: 90}\n"
        "  - {kind: bundle_loss, at: 20, group: pg-llm}\n"
        "changes: [{at: 30, deployment: llm, placement: {group: spare, bundles: [[0], [1], [2]]}}]\n"
    )
    result = result_of(text, world)
    # 30.0 asked for: ranks 0 and 1 serve 3.5 s + 0.5 s later; bundle 2 is back at 100.0
    assert gaps(result) == [(0, 20.0, 34.0), (1, 20.0, 34.0), (2, 20.0, 104.5)]


def test_a_static_placement_can_be_given_up():
    result = result_of("changes: [{at: 20, deployment: llm, placement: null, target_replicas: 4}]")
    assert len(served_on(result)) == 4
    assert result.deployments[0].status == "HEALTHY"


def test_a_change_that_cannot_be_had_when_its_time_comes_is_told_and_changes_nothing():
    text = "changes:\n  - {at: 40, deployment: llm, placement: null}\n  - {at: 20, deployment: llm, target_replicas: 2}\n"
    result = result_of(text)
    assert told(result, "change")[0] == (
        20.0,
        "llm was to be changed, but DeploymentSpec.target_replicas must be 3, the number of ranks that have bundles in "
        "placement group 'pg-llm', or left out, got 2",
    )
    assert result.deployments[0].world_size == 3


def test_a_run_may_be_forked_while_a_replica_has_failed():
    run = run_of("faults: [{kind: node_loss, at: 20, node: n-1, back_after_s: 100}]")
    run.until(60.0)
    states = [replica.state for replica in run.controller.drivers["llm"].state.replicas.values()]
    assert states.count(ReplicaState.FAILED) == 1
    fork = run.fork()
    inject(fork, "bundles 0, 4 of pg-llm lost for 10s", 60.0)
    assert gaps(run.go()) == [(1, 20.0, 124.5)]
    assert gaps(fork.go()) == [(0, 60.0, 74.5), (1, 20.0, 124.5), (2, 60.0, 74.5)]


# ---------------------------------------------------------------------------------------------------------------------
# what replicas stand on is looked at, and not what the book says


def test_two_replicas_on_one_bundle_are_noticed():
    standings = Standings()
    assert standings.began("llm#1.0", "pg", (0, 1)) == []
    assert standings.began("llm#1.1", "other", (0, 1)) == []
    (found,) = standings.began("llm#1.2", "pg", (1, 2))
    assert str(found) == "S4: replicas llm#1.0 and llm#1.2 are both on bundle 1 of pg"
    standings.ended("llm#1.0")
    standings.ended("llm#1.2")
    assert standings.began("llm#1.3", "pg", (0, 1, 2)) == []


def test_a_replica_where_its_rank_does_not_belong_is_noticed():
    standings, rank = Standings(), ReplicaRank(1, 0, 0)
    spec = DeploymentSpec(name="llm", placement=StaticPlacement({0: [0], 1: [1]}, 2, group="pg"))
    standings.began("llm#1.0", "pg", (1,))
    assert standings.check(spec, {"llm#1.0": rank}) == []
    (found,) = standings.check(spec, {"llm#1.0": ReplicaRank(0, 0, 0)})
    assert str(found).startswith("S2: HEALTHY, and llm#1.0 believes rank 0 and is on ('pg', (1,)), where ('pg', (0,))")
    (found,) = standings.check(spec, {"llm#1.9": rank})
    assert found.rule == "S2"


def test_a_run_in_which_a_replica_is_put_elsewhere_ends_with_the_promise_that_broke():
    run = run_of()
    groups = run.world.groups
    groups._groups["pg-llm"] = groups.of("pg-llm")
    port = run.world.deployments["llm"]
    port.standings.began("llm#0.9", "pg-llm", (2,))  # somebody whom nobody has started
    result = run.go()
    assert result.failure is not None
    assert (result.failure.rule, result.failure.event) == ("S4", "the start of llm#1.1")


# ---------------------------------------------------------------------------------------------------------------------
# what a scenario says of groups


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "2: [4, 5]}",
            "2: [4, 6]}",
            "deployments[0].placement.bundles.2: bundle 6 of rank 2 is outside placement group 'pg-llm', which has bundles "
            "0..5 (test:10)",
        ),
        (
            "{0: [0, 1], 1: [2, 3], 2: [4, 5]}",
            "[[0, 1], [1]]",
            "deployments[0].placement.bundles[1]: bundle 1 of rank 1 is rank 0's already on placement group 'pg-llm'",
        ),
        (
            "group: pg-llm, b",
            "group: pg, b",
            'deployments[0].placement.group: expected one of the placement groups (pg-llm), found "pg"',
        ),
        ("group: pg-llm, b", "b", "deployments[0].placement: expected a mapping with group, such as {group: NAME, bundles:"),
        ("group: pg-llm, b", "groups: pg-llm, b", "deployments[0].placement.groups: expected one of the keys group, bundles"),
        (
            "start_s: 1",
            "target_replicas: 4",
            "deployments[0].target_replicas: expected 3, the number of ranks that have bundles in",
        ),
        (
            "start_s: 1",
            "max_surge: 1",
            "deployments[0].max_surge: expected 0 with a static placement: a replacement has to wait",
        ),
        (
            "start_s: 1",
            "gpus_per_replica: 3",
            "deployments[0].gpus_per_replica: expected at most 2, the GPUs of the bundles of rank 0",
        ),
        (
            "start_s: 1",
            "memory_gb_per_replica: 1",
            "deployments[0].memory_gb_per_replica: expected at most 0, the memory of the bundles of rank 0",
        ),
        (
            "nodes: n, count: 2",
            "nodes: m, count: 2",
            'placement_groups[0].bundles[0].nodes: expected one of the groups of nodes n, found "m"',
        ),
        (
            "nodes: n, count: 2",
            "node: n-7",
            'placement_groups[0].bundles[0].node: expected one of the nodes n-0, n-1, n-2, found "n-7"',
        ),
        ("nodes: n, count: 2", "count: 2", "placement_groups[0].bundles[0].node: expected either a node, or nodes"),
        ("nodes: n, count: 2", "nodes: n, node: n-1", "placement_groups[0].bundles[0].node: expected either a node, or nodes"),
        (
            "count: 2, gpus: 1",
            "count: 5",
            "placement_groups[0].bundles[0].gpus: expected bundles for which node n-0 has room: 4 GPUs",
        ),
        (
            "count: 2, gpus: 1",
            "count: 90000",
            "placement_groups[0].bundles[0].count: expected at most 100000 bundles in all groups",
        ),
        ("[{nodes: n, count: 2, gpus: 1}]", "[]", "placement_groups[0].bundles: expected at least one bundle"),
        (
            "network:",
            "  - {name: pg-llm, bundles: [{node: n-0}]}\nnetwork:",
            "placement_groups[1].name: expected a name that no other",
        ),
        (
            "gpus: 4}",
            "gpus: 4, memory_gb: 10}",
            "placement_groups[0].bundles[0].memory_gb: expected bundles for which node n-0 has room: 10 GB in all",
        ),
    ],
)
def test_what_is_wrong_with_a_group_is_told_in_one_line(old, new, problem):
    text = WORLD.replace("gpus: 1}", "gpus: 1, memory_gb: 6}") if "memory_gb: 10" in new else WORLD
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text.replace(old, new), "test")
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "faults: [{kind: bundle_loss, at: 1, group: pg}]",
            'faults[0].group: expected one of the placement groups pg-llm, found "pg"',
        ),
        (
            "faults: [{kind: bundle_loss, at: 1, group: pg-llm, bundles: [1, 6]}]",
            "faults[0].bundles[1]: expected a bundle of placement group 'pg-llm', which has bundles 0..5, found 6",
        ),
        (
            "faults: [{kind: bundle_loss, at: 1, group: pg-llm, bundles: [-1]}]",
            "faults[0].bundles[0]: expected an integer >= 0",
        ),
        (
            "changes: [{at: 1, deployment: llm, target_replicas: 2}]",
            "changes[0].target_replicas: expected 3, the number of ranks",
        ),
        (
            "changes: [{at: 1, deployment: llm, placement: {group: pg-llm, bundles: [[0, 9]]}}]",
            "changes[0].placement.bundles[0]: bundle 9 of rank 0 is outside placement group 'pg-llm', which has bundles 0..5",
        ),
    ],
)
def test_what_is_wrong_with_faults_and_changes_is_told_in_one_line(text, problem):
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(WORLD + text, "test")
    assert str(caught.value).startswith(problem)


def test_a_change_to_bundles_that_are_too_small_is_refused():
    world = WORLD.replace("start_s: 1", "gpus_per_replica: 2")
    with pytest.raises(ScenarioError, match=r"changes\[0\]\.placement\.gpus_per_replica: expected at most 1"):
        parse_scenario(world + "changes: [{at: 1, deployment: llm, placement: {group: pg-llm, bundles: [[0]]}}]", "test")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("bundle 3 of pg-llm lost", {"bundles": (3,)}),
        ("bundles 0, 3 of pg-llm are lost for 1m", {"bundles": (0, 3), "back_after_s": 60.0}),
        ("placement group pg-llm removed", {}),
    ],
)
def test_losses_of_bundles_in_words(words, fault):
    assert parse_fault(words, 5.0) == BundleLoss(at=Moment(offset_s=5.0), group="pg-llm", **fault)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("bundle 3 of pg-lm lost", "expected a placement group: pg-llm, found pg-lm (did you mean pg-llm?)"),
        ("bundle 6 of pg-llm lost", "expected a bundle of placement group 'pg-llm', which has bundles 0..5, found 6"),
    ],
)
def test_words_of_bundles_that_are_not_there_are_refused(words, problem):
    run = run_of()
    run.until(5.0)
    with pytest.raises(FaultWordsError) as caught:
        inject(run, words, 5.0)
    assert str(caught.value) == f"{words!r}: {problem}"
