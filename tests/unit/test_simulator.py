"""The executor's half of section 2.4 as the simulator keeps it, and that a broken promise ends a run."""

import copy
from array import array

import attrs
import pytest

from executors.simulator.believers import Believers
from executors.simulator.clock import EventLoop
from executors.simulator.cluster.nodes import SimulatedNode
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestQueue
from executors.simulator.record.percentiles import percentiles_of_finished
from executors.simulator.record.timeline import Gap, Phase, Timeline, gaps
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from executors.simulator.world import SimulatedWorld
from rankcore import invariants
from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import (
    ClockAdvanced,
    NodeChanged,
    NodeLost,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReported,
    ReplicaStopped,
)
from rankcore.routing import RoutingSpec
from rankcore.values import ReplicaRank

WORLD = """
nodes:
  - {name: n, count: 2, gpus: 2}
network: {latency_s: 0.5}
deployments:
  - name: llm
    target_replicas: 3
    start_s: 1
    init_s: 2
    drain_s: 0
"""


def new_world(text: str = WORLD) -> tuple[SimulatedWorld, DeploymentWorld]:
    world = SimulatedWorld(parse_scenario(text, "test"), {"llm": Arrivals()})
    return world, world.deployments["llm"]


def start(serial: int = 0, node_id: str | None = None, epoch: int = 1) -> StartReplica:
    return StartReplica(f"llm#1.{serial}", serial, "1", node_id, (), epoch)


def told(port: DeploymentWorld) -> list[object]:
    """Everything that is ever told from now on."""
    found = []
    while (event := port.poll()) is not None:
        found.append(event)
    return found


def run_of(text: str, **options) -> RunResult:
    return prepared(text, **options).go()


def prepared(text: str, seed: int | None = None) -> Run:
    scenario = parse_scenario(text, "test")
    if seed is not None:
        scenario = attrs.evolve(scenario, seed=seed)
    return Run(scenario, load_arrivals(scenario, None, scenario.seed))


# -- commands and their answers


def test_a_started_replica_is_placed_after_its_start_time_and_the_latency():
    _, port = new_world()
    port.execute(start(0))
    assert told(port) == [ReplicaPlaced(replica_id="llm#1.0", node_id="n-0", at=1.0)]


def test_polling_moves_the_clock_to_the_event():
    world, port = new_world()
    port.execute(start(0))
    port.poll()
    assert world.loop.now == 1.5


def test_replicas_spread_over_the_nodes_with_most_free_gpus():
    _, port = new_world()
    for serial in range(4):
        port.execute(start(serial))
    assert [event.node_id for event in told(port)] == ["n-0", "n-1", "n-0", "n-1"]


def test_a_start_for_a_named_node_happens_there_and_waits_while_it_is_full():
    _, port = new_world()
    for serial in range(3):
        port.execute(start(serial, node_id="n-1"))
    assert [(event.replica_id, event.node_id) for event in told(port)] == [("llm#1.0", "n-1"), ("llm#1.1", "n-1")]
    port.execute(KillReplica("llm#1.0", 1))
    stopped, placed = told(port)
    assert isinstance(stopped, ReplicaStopped)
    assert (placed.replica_id, placed.node_id) == ("llm#1.2", "n-1")


def test_replicas_without_room_wait_and_are_served_in_order():
    _, port = new_world()
    for serial in range(6):
        port.execute(start(serial))
    assert len(told(port)) == 4
    port.execute(KillReplica("llm#1.3", 1))
    port.execute(KillReplica("llm#1.0", 1))
    placed = [event.replica_id for event in told(port) if isinstance(event, ReplicaPlaced)]
    assert placed == ["llm#1.4", "llm#1.5"]


def test_a_repeated_start_makes_no_second_process_and_is_answered_again():
    _, port = new_world()
    port.execute(start(0))
    port.execute(start(0))
    assert len(told(port)) == 1
    port.execute(start(0))
    assert [type(event) for event in told(port)] == [ReplicaPlaced]
    assert port.tally.replica_starts == 1


def test_a_repeated_start_of_something_that_has_ended_is_answered_with_its_end():
    _, port = new_world()
    port.execute(start(0))
    port.execute(KillReplica("llm#1.0", 1))
    told(port)
    port.execute(start(0))
    assert [type(event) for event in told(port)] == [ReplicaStopped]


@pytest.mark.parametrize("command", [StopReplica("llm#9.9", 5.0, 1), KillReplica("llm#9.9", 1)])
def test_a_stop_or_kill_of_something_unknown_is_answered_with_stopped(command):
    _, port = new_world()
    port.execute(command)
    assert told(port) == [ReplicaStopped(replica_id="llm#9.9", at=0.0)]


def test_a_query_of_something_unknown_is_answered_with_missing():
    _, port = new_world()
    port.execute(QueryReplica("llm#9.9", 1))
    assert told(port) == [ReplicaMissing(replica_id="llm#9.9", at=0.0)]


def test_a_query_that_finds_its_replica_gone_is_answered_with_missing():
    _, port = new_world()
    port.execute(start(0))
    told(port)
    port.execute(KillReplica("llm#1.0", 1))
    port.execute(QueryReplica("llm#1.0", 1))
    assert [type(event) for event in told(port)] == [ReplicaStopped, ReplicaMissing]


def test_a_query_of_a_replica_that_is_being_created_is_answered_once_it_is_up():
    _, port = new_world()
    port.execute(start(0))
    port.execute(QueryReplica("llm#1.0", 1))
    assert [type(event) for event in told(port)] == [ReplicaPlaced, ReplicaReported]


@pytest.mark.parametrize("command", [StopReplica("llm#1.0", 5.0, 1), KillReplica("llm#1.0", 1)])
def test_a_stop_or_kill_reaches_a_replica_that_is_being_created(command):
    _, port = new_world()
    port.execute(start(0))
    port.execute(command)
    assert [type(event) for event in told(port)] == [ReplicaStopped]


def test_a_stop_of_a_replica_that_waits_for_room_takes_it_out_of_the_line():
    _, port = new_world()
    for serial in range(5):
        port.execute(start(serial))
    port.execute(StopReplica("llm#1.4", 5.0, 1))
    events = told(port)
    assert ReplicaStopped(replica_id="llm#1.4", at=0.0) in events
    assert len([event for event in events if isinstance(event, ReplicaPlaced)]) == 4


# -- epochs


def test_a_start_of_an_older_epoch_is_refused():
    _, port = new_world()
    port.raise_fence(2)
    port.execute(start(0, epoch=1))
    assert told(port) == []
    assert port.tally.refused == 1
    assert port.discover() == ()


def test_a_command_of_a_newer_epoch_raises_the_fence():
    _, port = new_world()
    port.execute(WakeAt(5.0, 3))
    port.execute(start(0, epoch=2))
    assert port.discover() == ()


def test_starts_that_wait_for_room_do_not_outlive_their_controller():
    _, port = new_world()
    for serial in range(6):
        port.execute(start(serial))
    port.raise_fence(2)
    assert port.discover() == tuple(f"llm#1.{serial}" for serial in range(4))


def test_a_wake_up_is_kept_and_the_newest_replaces_the_earlier():
    _, port = new_world()
    port.execute(WakeAt(5.0, 1))
    port.execute(WakeAt(3.0, 1))
    assert [type(event) for event in told(port)] == [ClockAdvanced]


def test_a_wake_up_of_a_replaced_controller_is_dropped():
    _, port = new_world()
    port.execute(WakeAt(5.0, 1))
    port.raise_fence(2)
    assert told(port) == []


# -- the world size


def test_the_newest_world_size_reaches_those_that_are_there_and_those_that_come_later():
    _, port = new_world()
    port.execute(start(0))
    told(port)
    port.execute(AnnounceWorldSize(7, 20, 1))
    port.execute(AnnounceWorldSize(5, 10, 1))  # overtaken
    port.execute(start(1))
    told(port)
    assert [process.replica.world_size for process in port.processes.values()] == [7, 7]


# -- nodes


def test_a_lost_node_ends_its_replicas_and_is_told_once_for_all_that_were_known_there():
    world, port = new_world()
    port.execute(start(0, node_id="n-0"))
    port.execute(start(1, node_id="n-0"))
    told(port)
    world.lose_node("n-0")
    assert told(port) == [NodeLost(node_id="n-0", at=1.5)]
    assert port.discover() == ()


def test_the_end_of_a_replica_that_the_controller_never_heard_of_is_told_by_itself():
    world, port = new_world()
    port.execute(start(0, node_id="n-0"))
    world.lose_node("n-0")
    kinds = [(type(event), getattr(event, "replica_id", None)) for event in told(port)]
    assert kinds == [(NodeLost, None), (ReplicaDied, "llm#1.0")]


def test_nothing_starts_on_a_lost_node_until_it_is_back():
    world, port = new_world()
    world.lose_node("n-0")
    port.execute(start(0, node_id="n-0"))
    assert [type(event) for event in told(port)] == [NodeLost]
    world.bring_node_back("n-0")
    assert [type(event) for event in told(port)] == [NodeChanged, ReplicaPlaced]


def test_a_node_s_return_never_overtakes_its_loss():
    world, port = new_world(WORLD.replace("0.5", "{exponential: {mean: 5}}"))
    for _ in range(50):
        world.lose_node("n-0")
        world.bring_node_back("n-0")
    assert [type(event) for event in told(port)] == [NodeLost, NodeChanged] * 50


def test_a_node_tells_how_many_replicas_of_each_deployment_it_holds():
    world, port = new_world(WORLD.replace("gpus: 2}", "gpus: 7}").replace("start_s", "gpus_per_replica: 2\n    start_s"))
    world.tell_capacities()
    assert [(event.node_id, event.capacity) for event in told(port)] == [("n-0", 3), ("n-1", 3)]


SHARED = WORLD.replace("gpus: 2}", "gpus: 4}") + "  - {name: other, target_replicas: 1, gpus_per_replica: 2}\n"


def test_what_one_deployment_takes_of_a_node_is_missing_to_the_others():
    world = SimulatedWorld(parse_scenario(SHARED, "test"), {"llm": Arrivals(), "other": Arrivals()})
    llm, other = world.deployments.values()
    world.tell_capacities()
    told(llm), told(other)
    other.execute(StartReplica("other#1.0", 0, "1", "n-0", (), 1))
    assert [(event.node_id, event.capacity) for event in told(llm)] == [("n-0", 2)]
    assert [type(event) for event in told(other)] == [ReplicaPlaced]  # its own capacity is what it was
    other.execute(KillReplica("other#1.0", 1))
    assert [(event.node_id, event.capacity) for event in told(llm)] == [("n-0", 4)]


# -- draining


SERVING = WORLD + "    requests: {poisson: {rate_per_s: 2, begin_s: 10, for_s: 100, service_s: 3}}\n"


def test_requests_of_a_downscaled_replica_are_finished_and_none_is_lost():
    result = run_of(SERVING + "changes: [{at: 50, deployment: llm, target_replicas: 1}]\n")
    requests = result.deployments[0].requests
    assert requests.arrived == requests.done > 150
    assert requests.lost == requests.failed == requests.unfinished == 0


def test_requests_that_outlast_the_graceful_time_are_lost():
    text = SERVING.replace("drain_s: 0", "graceful_shutdown_timeout_s: 1")
    result = run_of(text + "changes: [{at: 50, deployment: llm, target_replicas: 1}]\n")
    requests = result.deployments[0].requests
    assert requests.lost > 0
    assert requests.arrived == requests.done + requests.lost


def test_a_full_queue_turns_requests_away():
    text = SERVING.replace("drain_s: 0", "max_ongoing_requests: 1\n    max_queued_requests: 5")
    requests = run_of(text).deployments[0].requests
    assert requests.failed > 0
    assert requests.arrived == requests.done + requests.failed
    assert (requests.wait_s.p99, requests.wait_s.p99_at_least) == (None, "never")
    assert requests.wait_s.finished.p99 > 1.0


def test_a_replica_never_works_on_more_than_it_may():
    run = prepared(SERVING.replace("drain_s: 0", "max_ongoing_requests: 2"))
    queue = run.world.deployments["llm"].requests
    end, in_flight = queue._end, []

    def watch(work):
        in_flight.append(queue.in_flight_of(work[0].replica_id))
        end(work)

    queue._when_done = watch
    run.go()
    assert max(in_flight) == 2


def test_the_end_of_an_expired_request_makes_room_for_the_next():
    loop = EventLoop()
    spec = RoutingSpec(name="llm", max_ongoing_requests=1, request_timeout_s=3.0)
    queue = RequestQueue(loop, Arrivals(array("d", [0.0, 4.0]), array("d", [5.0, 1.0])), spec)
    queue.accept("llm#1.0")
    queue.publish(PublishRoutes(added=("llm#1.0",), removed=(), revision=1, epoch=1))
    while loop.step():
        pass
    assert (queue.counts.expired, queue.counts.done, queue.in_flight_of("llm#1.0"), loop.now) == (1, 1, 0, 7.0)
    assert list(queue.counts.latencies_s) == [2.0]


def test_streams_of_requests_mix_by_time_and_then_by_the_order_in_which_they_came():
    loop, seen = EventLoop(), []
    loop.follow(array("d", [1.0, 2.0, 5.0]), lambda index: seen.append(("a", loop.now, index)))
    loop.step()
    loop.follow(array("d", [1.5, 2.0]), lambda index: seen.append(("b", loop.now, index)))
    loop.follow(array("d"), seen.append)
    while loop.step():
        pass
    assert seen == [("a", 1.0, 0), ("b", 1.5, 0), ("a", 2.0, 1), ("b", 2.0, 1), ("a", 5.0, 2)]
    assert (loop.done, loop.next_at) == (5, None)


# -- whole runs


def test_a_crashed_replica_is_replaced_with_its_rank_and_nobody_else_moves():
    result = run_of(WORLD + "duration_s: 60\nfaults: [{kind: replica_crash, at: 20, deployment: llm, rank: 1}]\n")
    figures = result.deployments[0]
    assert result.failure is None
    assert figures.status == "HEALTHY"
    assert (figures.replica_starts, figures.replica_crashes, figures.ranks_moved) == (4, 1, 0)
    assert figures.longest_gap is not None
    assert (figures.longest_gap.rank, figures.longest_gap.since) == (1, 20.0)
    # told 0.5, start 1.0, placed 0.5, initialise 0.5, user code 2.0
    assert figures.longest_gap.length_s == pytest.approx(4.5)
    assert figures.rank_gap_s == pytest.approx(4.5)
    assert figures.incomplete_s == pytest.approx(4.0 + 4.5)  # and the first start, of which the controller need not be told


def test_gpu_hours_count_from_placement_to_the_end():
    figures = run_of(WORLD + "duration_s: 3600\n").deployments[0]
    assert figures.gpu_hours == pytest.approx(3.0)


def test_a_controller_that_comes_back_finds_its_replicas_and_keeps_their_ranks():
    text = WORLD + "duration_s: 120\nfaults: [{kind: controller_crash, at: 30, restart_after_s: 10}]\n"
    run = prepared(text)
    result = run.go()
    figures = result.deployments[0]
    assert result.failure is None
    assert run.controller.epoch == 2
    assert (figures.status, figures.replica_starts, figures.ranks_moved) == ("HEALTHY", 3, 0)
    assert figures.longest_gap is None


def test_a_replica_that_dies_while_no_controller_is_up_is_replaced_when_one_is():
    text = WORLD + (
        "duration_s: 120\nfaults:\n"
        "  - {kind: controller_crash, at: 30, restart_after_s: 10}\n"
        "  - {kind: replica_crash, at: 35, deployment: llm, rank: 0}\n"
    )
    result = run_of(text)
    figures = result.deployments[0]
    assert result.failure is None
    assert (figures.status, figures.replica_starts) == ("HEALTHY", 4)
    assert figures.longest_gap is not None
    assert (figures.longest_gap.rank, figures.longest_gap.since) == (0, 35.0)


def test_a_change_that_comes_while_no_controller_is_up_is_made_when_one_is():
    text = WORLD + (
        "duration_s: 120\nfaults: [{kind: controller_crash, at: 30, restart_after_s: 10}]\n"
        "changes: [{at: 35, deployment: llm, target_replicas: 1}]\n"
    )
    figures = run_of(text).deployments[0]
    assert (figures.status, figures.world_size) == ("HEALTHY", 1)


def test_a_deleted_deployment_ends_and_is_not_recovered():
    text = WORLD + (
        "duration_s: 120\nfaults: [{kind: controller_crash, at: 60, restart_after_s: 10}]\n"
        "changes: [{at: 30, deployment: llm, delete: true}]\n"
    )
    run = prepared(text)
    result = run.go()
    assert result.failure is None
    assert result.deployments[0].status == "DELETED"
    assert run.world.deployments["llm"].discover() == ()


def test_without_a_duration_a_run_ends_when_everything_is_done():
    result = run_of(SERVING)
    assert result.deployments[0].requests.unfinished == 0
    assert 100 < result.ended_at < 130


def test_a_fault_that_finds_nothing_to_break_is_told():
    result = run_of(WORLD + "duration_s: 30\nfaults: [{kind: replica_crash, at: 20, deployment: llm, rank: 7}]\n")
    assert "rank 7 was to crash, but there is none" in [happening.text for happening in result.happenings]


FAULTS = """
faults:
  - {kind: node_loss, at: 30, node: n-1, back_after_s: 20}
  - {kind: replica_crash, at: 70, deployment: llm}
  - {kind: controller_crash, at: 71, restart_after_s: 3}
changes:
  - {at: 90, deployment: llm, target_replicas: 2}
  - {at: 92, deployment: llm, target_replicas: 4}
  - {at: 95, deployment: llm, version: "2"}
"""
UNSTEADY = SERVING.replace("latency_s: 0.5", "latency_s: {exponential: {mean: 0.3}}")


@pytest.mark.parametrize("seed", range(20))
def test_every_promise_holds_and_all_heals_under_faults(seed):
    result = run_of(UNSTEADY + FAULTS, seed=seed)
    assert result.failure is None
    assert result.deployments[0].status == "HEALTHY"
    requests = result.deployments[0].requests
    assert requests.arrived == requests.done + requests.lost


def test_a_fault_does_not_change_which_requests_arrive():
    quiet = prepared(UNSTEADY)
    busy = prepared(UNSTEADY + FAULTS)
    arrivals = [run.world.deployments["llm"].requests.arrivals for run in (quiet, busy)]
    assert arrivals[0] == arrivals[1]


def test_a_run_can_be_forked_by_copying_it():
    run = prepared(UNSTEADY + FAULTS)
    run.controller.start()
    while run.world.loop.now < 60:
        run.world.loop.step()
    fork = copy.deepcopy(run)
    ends = []
    for each in (run, fork):
        while each.world.loop.now < 120 and each.world.loop.step():
            pass
        port = each.world.deployments["llm"]
        ends.append((each.world.loop.now, each.controller.drivers["llm"].state, list(port.processes), port.tally))
    assert ends[0] == ends[1]


def test_packed_deployments_that_share_nodes_get_out_of_each_other_s_way():
    text = SHARED.replace("start_s: 1", "start_s: 1\n    placement: pack_ranks")
    text += "changes: [{at: 30, deployment: other, target_replicas: 2}, {at: 60, deployment: llm, target_replicas: 4}]\n"
    assert [figures.status for figures in run_of(text).deployments] == ["HEALTHY", "HEALTHY"]


def test_a_book_too_large_to_be_checked_at_every_event_is_checked_at_the_end(monkeypatch):
    monkeypatch.setattr("executors.simulator.controller.UNCHECKED_LINES", 0)
    checks = []
    monkeypatch.setattr(invariants, "check", lambda state: checks.append(state) or [])
    run = prepared(WORLD + "duration_s: 30\n")
    run.go()
    assert [state.status for state in checks] == ["UPDATING", "HEALTHY", "HEALTHY"]
    assert checks[-1] is run.controller.drivers["llm"].state


def test_what_the_checks_of_the_book_cost_does_not_grow_with_nodes_that_nobody_uses(monkeypatch):
    checks = []
    monkeypatch.setattr(invariants, "check", lambda state: checks.append(state) or [])
    crowd = "nodes:\n  - {name: idle, count: 1000, gpus: 1}"
    run = prepared(WORLD.replace("nodes:", crowd) + "duration_s: 30\n")
    run.go()
    events = run.world.loop.done
    assert events > 1000  # each node is told of
    assert len(checks) < events / 10


# -- planted violations


def test_two_replicas_that_believe_one_rank_are_seen_and_end_the_run():
    run = prepared(WORLD)
    port = run.world.deployments["llm"]
    execute = port.execute

    def plant(command):
        if isinstance(command, InitializeReplica) and command.rank.rank == 1:
            command = attrs.evolve(command, rank=attrs.evolve(command.rank, rank=0))
        execute(command)

    port.execute = plant
    result = run.go()
    assert result.failure is not None
    assert result.failure.rule == "R3"
    assert result.failure.event.startswith("InitializeReplica reached llm#")
    assert "all believe rank 0" in result.failure.text
    assert result.ended_at == result.failure.at


def test_a_state_that_breaks_an_invariant_ends_the_run(monkeypatch):
    def broken(state):
        return [invariants.Violation("R1", "planted")] if state.status == "HEALTHY" else []

    monkeypatch.setattr(invariants, "check", broken)
    failure = run_of(WORLD).failure
    assert failure is not None
    assert (failure.rule, failure.text, failure.deployment) == ("R1", "planted", "llm")
    assert failure.event.startswith("ReplicaReady llm#")


def test_beliefs_of_one_local_rank_on_one_node_are_a_violation_and_on_two_nodes_are_none():
    beliefs = Believers()
    assert beliefs.changed("a", "n0", ReplicaRank(0, 0, 0)) == []
    assert beliefs.changed("b", "n1", ReplicaRank(1, 1, 0)) == []
    (violation,) = beliefs.changed("c", "n1", ReplicaRank(2, 1, 0))
    assert violation.rule == "R3"
    assert violation.detail == "replicas b, c all believe local rank 0 on node n1"


def test_two_nodes_that_believe_one_node_rank_are_a_violation_and_two_of_one_node_are_none():
    beliefs = Believers()
    assert beliefs.changed("a", "n0", ReplicaRank(0, 0, 0)) == []
    assert beliefs.changed("b", "n0", ReplicaRank(1, 1, 1)) == []  # a change is under way on n0
    (violation,) = beliefs.changed("c", "n1", ReplicaRank(2, 0, 0))
    assert violation.detail == "nodes n0, n1 all have replicas that believe node rank 0"


def test_a_belief_ends_with_its_replica():
    beliefs = Believers()
    beliefs.changed("a", "n0", ReplicaRank(0, 0, 0))
    beliefs.ended("a")
    assert beliefs.changed("b", "n1", ReplicaRank(0, 0, 0)) == []
    assert beliefs.believer_of(0) == "b"


def test_a_duplicate_found_at_recovery_is_tolerated_among_those_who_share_it_only():
    beliefs = Believers()
    beliefs.changed("a", "n0", ReplicaRank(0, 0, 0))
    beliefs.changed("b", "n1", ReplicaRank(0, 1, 0))
    beliefs.tolerate_present_duplicates()
    assert beliefs.changed("b", "n1", ReplicaRank(0, 1, 0)) == []
    third = beliefs.changed("c", "n2", ReplicaRank(0, 2, 0))
    assert [violation.rule for violation in third] == ["R3"]


def test_a_tolerated_duplicate_is_a_violation_again_once_it_was_resolved():
    beliefs = Believers()
    beliefs.changed("a", "n0", ReplicaRank(0, 0, 0))
    beliefs.changed("b", "n1", ReplicaRank(0, 1, 0))
    beliefs.tolerate_present_duplicates()
    assert beliefs.changed("b", "n1", ReplicaRank(1, 1, 0)) == []
    assert len(beliefs.changed("b", "n1", ReplicaRank(0, 1, 0))) == 1


# -- the clock and the figures


def test_actions_run_in_the_order_of_time_and_then_of_scheduling():
    loop, seen = EventLoop(), []
    for at, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (-5.0, "now")):
        loop.at(at, seen.append, name)
    while loop.step():
        pass
    assert seen == ["now", "a", "b", "c"]
    assert loop.now == 2.0


def test_a_gap_is_a_time_without_a_running_holder_while_the_rank_is_wanted():
    timeline = Timeline()
    timeline.resize(0.0, 2)
    timeline.hold(1.0, "a", "n", 0, Phase.RUNNING)
    timeline.hold(1.0, "b", "n", 1, Phase.RUNNING)
    timeline.release(3.0, "b")
    timeline.resize(5.0, 1)  # rank 1 is not wanted from 5 to 8
    timeline.resize(8.0, 2)
    timeline.hold(9.0, "c", "n", 1, Phase.STARTING)
    timeline.hold(10.0, "c", "n", 1, Phase.RUNNING)
    timeline.finish(20.0)
    assert gaps(timeline, 20.0) == [Gap(1, 3.0, 5.0), Gap(1, 8.0, 10.0)]
    assert timeline.incomplete.total_s == 1.0 + 4.0
    assert timeline.rank_gap.total_s == 0.0, "rank 0 runs alone"


def test_ranks_have_a_gap_while_one_below_another_that_runs_does_not():
    timeline = Timeline()
    timeline.resize(0.0, 5)
    timeline.hold(1.0, "a", "n", 2, Phase.RUNNING)
    timeline.hold(2.0, "b", "n", 1, Phase.RUNNING)
    timeline.hold(4.0, "c", "n", 0, Phase.RUNNING)
    timeline.release(7.0, "b")
    timeline.release(9.5, "a")
    timeline.finish(20.0)
    assert timeline.rank_gap.total_s == 3.0 + 2.5
    assert timeline.incomplete.total_s == 20.0, "there were never five"


def test_a_rank_beyond_the_world_size_is_no_gap_and_one_too_many():
    timeline = Timeline()
    timeline.resize(0.0, 2)
    timeline.hold(0.0, "a", "n", 0, Phase.RUNNING)
    timeline.hold(0.0, "b", "n", 1, Phase.RUNNING)
    timeline.resize(4.0, 1)
    timeline.release(6.5, "b")
    timeline.finish(10.0)
    assert (timeline.rank_gap.total_s, timeline.incomplete.total_s) == (0.0, 2.5)


def test_percentiles_are_interpolated_and_none_of_nothing():
    found, nothing = percentiles_of_finished([4.0, 1.0, 2.0, 3.0, 0.0]), percentiles_of_finished([])
    assert (found.of, found.p50, found.p95, found.p99) == ("finished", 2.0, pytest.approx(3.8), pytest.approx(3.96))
    assert (nothing.n, nothing.p50, nothing.p95, nothing.p99) == (0, None, None, None)


def test_a_node_has_all_its_gpus_at_first():
    assert SimulatedNode("n", 8).free_gpus == 8


def test_a_replica_becomes_ready_after_its_user_code_has_run():
    _, port = new_world()
    port.execute(start(0))
    port.execute(InitializeReplica("llm#1.0", ReplicaRank(0, 0, 0), 1, None, "c", 5, 1))
    assert told(port)[-1] == ReplicaReady(replica_id="llm#1.0", at=3.0)


def test_reconfigures_that_were_sent_are_counted_beside_those_that_were_carried_out():
    """Every replica gets another user_config; on a network that loses nothing each is told once."""
    text = WORLD + "    user_config: {a: 1}\nchanges: [{at: 60, deployment: llm, user_config: {a: 2}}]\n"
    (calm,) = run_of(text).deployments
    assert (calm.reconfigures, calm.reconfigures_sent) == (3, 3)
    (lossy,) = run_of(text.replace("latency_s: 0.5", "latency_s: 0.5, loss: 0.6"), seed=3).deployments
    assert lossy.reconfigures == 3
    assert lossy.reconfigures_sent > 3


def test_a_run_does_not_end_before_the_ranks_that_a_downscale_moves_have_moved():
    """The deployment is healthy as soon as its victims are gone; the move of rank 2 to 0 takes half a second more each way."""
    text = WORLD + "changes: [{at: 60, deployment: llm, target_replicas: 2, stop_first: [llm#1.0]}]\n"
    run = prepared(text)
    (figures,) = run.go().deployments
    assert (figures.ranks_moved, figures.reconfigures) == (1, 1)
    assert invariants.check(run.controller.drivers["llm"].state) == []
    assert sorted(replica.rank.rank for replica in run.controller.drivers["llm"].state.replicas.values()) == [0, 1]
