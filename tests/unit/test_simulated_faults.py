"""Every kind of fault in a world whose times are constant, so that what happens when can be worked out by hand.

Unless a test says otherwise: a message takes 0.5 s, a process comes up 1 s after it has room, start-up code takes 2 s.

    0.0  three replicas are started: ranks 0 and 2 on n-0, rank 1 on n-1 (the node with most free GPUs, the first of equals)
    1.0  they are up   1.5  their controller knows   2.0  they are told their ranks   4.0  they serve   4.5  it knows

Where there is room, a replacement serves 4 s after its controller hears that it is needed: 1 s until it is up, 0.5 s until that
is known, 0.5 s until it is told its rank, 2 s of start-up code.
"""

from array import array
from pathlib import Path

import pytest

from executors.simulator.load.arrivals import Arrivals
from executors.simulator.record.timeline import Gap
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario import load_scenario, parse_scenario
from rankcore import NoteKind
from rankcore.values import ReplicaRank

WORLD = """
duration_s: 200
nodes:
  - {name: n, count: 2, gpus: 2}
network: {latency_s: 0.5, lease_s: 15}
deployments:
  - {name: llm, target_replicas: 3, start_s: 1, init_s: 2}
"""


def run_of(text: str, arrivals: Arrivals | None = None, world: str = WORLD) -> Run:
    return Run(parse_scenario(world + text, "test"), {"llm": arrivals or Arrivals()})


def result_of(text: str, arrivals: Arrivals | None = None, world: str = WORLD) -> RunResult:
    result = run_of(text, arrivals, world).go()
    assert result.failure is None
    assert result.deployments[0].status == "HEALTHY"
    return result


def gaps(result: RunResult) -> list[tuple[int, float, float]]:
    return [(gap.rank, gap.since, gap.until) for gap in result.gaps["llm"]]


def faults(result: RunResult) -> list[tuple[float, str]]:
    return [(each.at, each.text) for each in result.happenings if each.kind == "fault"]


def one_fault(kind: str, at: float, **fields: object) -> str:
    return f"faults: [{{kind: {kind}, at: {at}{''.join(f', {key}: {value}' for key, value in fields.items())}}}]\n"


def test_without_faults_nothing_is_missing():
    result = result_of("")
    assert gaps(result) == []
    assert sorted((hold.since, hold.rank, hold.node_id) for hold in result.holds["llm"] if hold.running) == [
        (4.0, 0, "n-0"),
        (4.0, 1, "n-1"),
        (4.0, 2, "n-0"),
    ]


# -- replicas


def test_a_crashed_replica_is_replaced_with_its_rank():
    result = result_of(one_fault("replica_crash", 20, deployment="llm", rank=1))
    # 20.5 the controller knows
    assert gaps(result) == [(1, 20.0, 24.5)]
    figures = result.deployments[0]
    assert (figures.replica_starts, figures.replica_crashes, figures.ranks_moved) == (4, 1, 0)


def test_a_replica_that_hangs_is_found_out_by_the_health_check_killed_and_replaced_with_its_rank():
    result = result_of(one_fault("replica_hang", 20, deployment="llm", rank=1))
    # Asked every 10 s from 4.0 on when it became ready: 14.0 is answered, 24.0 is not, and 30 s later it is unhealthy.
    # 54.0 unhealthy, killed   54.5 gone   55.0 the controller knows   59.0 its replacement serves
    assert gaps(result) == [(1, 20.0, 59.0)]
    figures = result.deployments[0]
    assert (figures.replica_starts, figures.replica_crashes, figures.ranks_moved) == (4, 0, 0)


def test_the_health_check_keeps_the_period_and_time_out_of_the_spec():
    world = WORLD.replace("start_s: 1", "start_s: 1, health_check_period_s: 4, health_check_timeout_s: 5")
    result = result_of(one_fault("replica_hang", 21, deployment="llm", rank=1), world=world)
    # Asked at 4, 8, ..., 20 and, in vain, 24.   29.0 unhealthy   29.5 gone   30.0 known   34.0 replaced
    assert gaps(result) == [(1, 21.0, 34.0)]


def test_a_replica_that_is_itself_again_in_time_is_left_alone():
    result = result_of(one_fault("replica_hang", 20, deployment="llm", rank=1, for_s=30))
    assert gaps(result) == [(1, 20.0, 50.0)]
    assert result.deployments[0].replica_starts == 3


def test_a_replica_that_hangs_for_longer_than_the_health_check_waits_is_replaced_although_it_would_come_back():
    result = result_of(one_fault("replica_hang", 20, deployment="llm", rank=1, for_s=34.25))
    # Unhealthy at 54.0; itself again at 54.25, for a quarter of a second, until the kill reaches it.
    assert gaps(result) == [(1, 20.0, 54.25), (1, 54.5, 59.0)]


def test_a_suspicion_that_nobody_hears_is_told_again():
    text = (
        "faults:\n  - {kind: replica_hang, at: 20, deployment: llm, rank: 1}\n"
        "  - {kind: controller_crash, at: 40, restart_after_s: 20}\n"
    )
    result = result_of(text)
    # The controller that comes back at 60 asks at once, gets no answer to its query either, and gives up after 30 s, as
    # does its health check: 90.0 killed   90.5 gone   91.0 known   95.0 replaced
    assert gaps(result) == [(1, 20.0, 95.0)]


def test_requests_of_a_replica_that_hangs_stand_still_and_then_go_on():
    one = WORLD.replace("target_replicas: 3", "target_replicas: 1")
    arrivals = Arrivals(array("d", [10.0, 25.0, 40.0]), array("d", [15.0, 1.0, 2.0]))
    result = result_of(one_fault("replica_hang", 20, deployment="llm", for_s=10), arrivals, world=one)
    # The first has worked for 10 of its 15 s at 20, and goes on from 30 to 35. The second is handed over at 25 and begins
    # at 30. The third finds all as it should be.
    queue = result.deployments[0].requests
    assert (queue.done, queue.lost) == (3, 0)
    assert queue.latency_s.p50 == 6.0  # of 2, 6 and 25
    assert queue.latency_s.p99 == pytest.approx(25.0, rel=0.02)


def test_requests_of_a_replica_that_is_killed_while_it_hangs_are_lost():
    one = WORLD.replace("target_replicas: 3", "target_replicas: 1")
    arrivals = Arrivals(array("d", [10.0, 25.0, 60.0]), array("d", [15.0, 1.0, 2.0]))
    queue = result_of(one_fault("replica_hang", 20, deployment="llm"), arrivals, world=one).deployments[0].requests
    assert (queue.done, queue.lost, queue.unfinished) == (1, 2, 0)


def test_a_replica_that_is_told_to_stop_while_it_hangs_is_ended_after_its_time_out():
    text = one_fault("replica_hang", 50, deployment="llm", rank=2)
    text += "changes: [{at: 55, deployment: llm, target_replicas: 2, graceful_shutdown_timeout_s: 7}]\n"
    run = run_of(text, world=WORLD.replace("target_replicas: 3", "target_replicas: 3, victims: highest_rank"))
    run.until(55.0 + 7.0 - 0.5)
    assert len(run.world.deployments["llm"].processes) == 3
    run.until(55.0 + 7.0 + 0.5)
    assert len(run.world.deployments["llm"].processes) == 2


def test_user_code_that_runs_when_a_replica_hangs_takes_that_much_longer():
    result = result_of(one_fault("replica_hang", 3, deployment="llm", rank=1, for_s=7))
    # It began at 2.0 and has run for 1 of 2 s at 3.0; it goes on at 10.0.
    assert sorted(hold.since for hold in result.holds["llm"] if hold.running) == [4.0, 4.0, 11.0]


# -- who takes no requests for a while


def test_one_that_takes_no_requests_for_a_while_is_off_the_routes_and_neither_killed_nor_moved():
    """V16. The health check finds it out, and that it is over."""
    result = result_of(one_fault("replica_unready", 40, deployment="llm", rank=1, for_s=30))
    assert gaps(result) == [(1, 40.0, 70.0)]
    # It was ready at 4.0, and is asked every 10 s: at 44.0 and at 74.0; its answer takes 0.5 s.
    noted = [(each.at, each.note.kind) for each in result.decisions.kept if each.note.rule == "V16"]
    assert noted == [(44.5, NoteKind.REPLICA_UNREADY), (74.5, NoteKind.REPLICA_READY_AGAIN)]
    figures = result.deployments[0]
    assert (figures.replica_starts, figures.replica_crashes, figures.ranks_moved, figures.replicas_unready) == (3, 0, 0, 1)
    assert faults(result) == [(40.0, "replica llm#1.1 takes no requests (rank 1)")]


def test_its_requests_go_to_the_others_and_those_that_it_has_are_done():
    arrivals = Arrivals(array("d", [43.0, *(50.0 + each / 10.0 for each in range(100))]), array("d", [20.0] + [0.1] * 100))
    result = result_of("", arrivals, WORLD.replace("target_replicas: 3", "target_replicas: 1"))
    assert result.deployments[0].requests.done == 101
    unready = one_fault("replica_unready", 42, deployment="llm", rank=0, for_s=30)
    result = result_of(unready, arrivals, WORLD.replace("target_replicas: 3", "target_replicas: 1"))
    requests = result.deployments[0].requests
    assert (requests.done, requests.lost, requests.failed) == (101, 0, 0)
    assert requests.waited_over_1_s == 100, "nobody else is there: they wait until it is ready again"


def test_one_that_is_unready_when_the_controller_comes_back_is_not_routed():
    text = "faults:\n  - {kind: replica_unready, at: 40, deployment: llm, rank: 1, for_s: 60}\n"
    result = result_of(text + "  - {kind: controller_crash, at: 60, restart_after_s: 5}\n")
    assert gaps(result) == [(1, 40.0, 100.0)]
    assert (result.deployments[0].replica_starts, result.deployments[0].ranks_moved) == (3, 0)


def test_one_that_is_unready_and_hangs_is_found_out_and_killed_as_any():
    text = "faults:\n  - {kind: replica_unready, at: 40, deployment: llm, rank: 1}\n"
    result = result_of(text + "  - {kind: replica_hang, at: 60, deployment: llm, rank: 1}\n")
    assert result.deployments[0].replica_starts == 4


def test_one_that_comes_up_and_takes_no_requests_is_never_routed_before_it_does():
    result = result_of(one_fault("replica_unready", 3, deployment="llm", rank=1, for_s=30))
    # Its start-up ends at 4.0 and with a first look; from then on it is asked every 10 s, and 33.0 is over by 34.0.
    noted = [(each.at, each.note.kind) for each in result.decisions.kept if each.note.rule == "V16"]
    assert noted == [(34.5, NoteKind.REPLICA_READY_AGAIN)]
    assert result.deployments[0].replica_starts == 3


# -- starts


def test_a_start_that_fails_is_tried_again_after_a_growing_time_and_keeps_its_rank():
    result = result_of(
        "faults:\n  - {kind: start_failure, at: 10, deployment: llm, count: 2}\n"
        "  - {kind: replica_crash, at: 20, deployment: llm, rank: 1}\n",
        world=WORLD.replace("start_s: 1", "start_s: 1, repeat_period_s: 30"),
    )
    # Back-off counts from the failure, not from when the controller hears of it 0.5 s later.
    # 20.5 started, 24.5 the start-up code fails, the second failure after the crash: back-off 2 s
    # 26.5 started, 30.5 it fails, back-off 4 s
    # 34.5 started, 38.5 serves
    assert gaps(result) == [(1, 20.0, 38.5)]
    figures = result.deployments[0]
    assert (figures.replica_starts, figures.replica_crashes, figures.start_failures) == (6, 1, 2)


def test_starts_fail_while_the_window_is_open():
    result = result_of(
        "faults:\n  - {kind: start_failure, at: 10, deployment: llm, for_s: 16}\n"
        "  - {kind: replica_crash, at: 20, deployment: llm, rank: 1}\n"
    )
    # Code that begins at 22.5 fails at 24.5; the next begins at 29.0, after 26, and succeeds at 31.0.
    assert gaps(result) == [(1, 20.0, 31.0)]
    assert result.deployments[0].start_failures == 1


def test_starts_on_another_node_do_not_fail():
    result = result_of(
        "faults:\n  - {kind: start_failure, at: 10, deployment: llm, node: n-0, for_s: 90}\n"
        "  - {kind: replica_crash, at: 20, deployment: llm, rank: 1}\n"
    )
    assert gaps(result) == [(1, 20.0, 24.5)]  # on n-1, which has room


def test_who_becomes_ready_while_a_crash_loop_lasts_dies_so_long_after_that():
    result = result_of(
        "faults:\n  - {kind: crash_after_ready, at: 10, deployment: llm, after_s: 1.5, for_s: 22}\n"
        "  - {kind: replica_crash, at: 20, deployment: llm, rank: 1}\n"
    )
    first, second, third = gaps(result)
    assert first == (1, 20.0, 24.5)
    assert (second[1] - first[2], third[1] - second[2]) == (1.5, 1.5)
    assert (second[2] - second[1], third[2] - third[1]) == (5.5, 6.0), "1 s of back-off, then 2 s, and 4 s of starting"
    assert third[2] > 10.0 + 22.0, "who becomes ready later lives"
    figures = result.deployments[0]
    assert (figures.replica_crashes, figures.start_failures) == (3, 0)
    assert faults(result)[0] == (10.0, "replicas of llm die 1.5 s after they are ready")


def test_only_the_version_that_is_named_crashes_and_never_replaces_more_than_the_budget():
    run = run_of(
        "changes: [{at: 50, deployment: llm, version: '2'}]\n"
        + one_fault("crash_after_ready", 0, deployment="llm", version="'2'", after_s=1),
        world=WORLD.replace("start_s: 1", "start_s: 1, min_ready_s: 5, max_unavailable: 1"),
    )
    result = run.go()
    assert result.failure is None
    figures = result.deployments[0]
    assert (figures.status, figures.replica_crashes, figures.least_running, figures.below_floor_s) == (
        "DEPLOY_FAILED",
        3,
        2,
        0.0,
    )


def test_a_config_that_is_refused_takes_one_replica_out_and_never_reaches_the_others():
    run = run_of(
        "changes: [{at: 50, deployment: llm, user_config: {a: 2}}]\n"
        + one_fault("config_fails", 0, deployment="llm", user_config="{a: 2}"),
        world=WORLD.replace("start_s: 1", "start_s: 1, max_unavailable: 1, user_config: {a: 1}, reconfigure_s: 1"),
    )
    result = run.go()
    assert result.failure is None
    figures = result.deployments[0]
    assert (figures.status, figures.reconfigures, figures.start_failures, figures.least_running) == ("DEPLOY_FAILED", 1, 2, 2)
    assert {gap.rank for gap in result.gaps["llm"]} == {0}
    assert faults(result) == [(0.0, "replicas of llm refuse user_config {'a': 2}")]


def test_a_config_that_is_refused_for_a_time_is_taken_afterwards():
    result = result_of(
        "changes: [{at: 50, deployment: llm, user_config: {a: 2}}]\n"
        + one_fault("config_fails", 0, deployment="llm", user_config="{a: 2}", for_s=52),
        world=WORLD.replace("start_s: 1", "start_s: 1, max_unavailable: 1, user_config: {a: 1}, reconfigure_s: 1"),
    )
    figures = result.deployments[0]
    assert (figures.replica_starts, figures.start_failures, len(gaps(result))) == (4, 0, 1)


def test_a_config_that_is_refused_as_a_prepared_replica_gets_its_rank_ends_it():
    """It adopts rank 0, which runs its user code with the user_config; both are over before the next one has the rank."""
    result = result_of(
        "changes: [{at: 50, deployment: llm, version: '2'}]\n"
        + one_fault("config_fails", 55.5, deployment="llm", user_config="{a: 1}", for_s=3),
        world=WORLD.replace(
            "start_s: 1",
            "start_s: 1, drain_s: 1, max_unavailable: 1, max_surge: 1, hand_over: prepared, user_config: {a: 1}",
        ),
    )
    figures = result.deployments[0]
    assert (figures.start_failures, figures.replica_starts) == (1, 7)


def test_a_first_version_that_never_starts_is_given_up():
    run = run_of(one_fault("start_failure", 0, deployment="llm", for_s=150))
    result = run.go()
    assert result.failure is None
    assert result.deployments[0].status == "DEPLOY_FAILED"


def test_a_version_that_was_given_up_is_not_tried_again_after_a_crash_of_the_controller():
    faults = "faults:\n  - {kind: start_failure, at: 0, deployment: llm, for_s: 60}\n"
    crash = "  - {kind: controller_crash, at: 80, restart_after_s: 5}\n"
    alone, crashed = run_of(faults), run_of(faults + crash)
    assert alone.go().deployments[0].status == "DEPLOY_FAILED"
    figures = crashed.go().deployments[0]
    assert figures.status == "DEPLOY_FAILED"
    assert figures.replica_starts == alone.go().deployments[0].replica_starts


@pytest.mark.parametrize("whom", ["deployment: llm", "node: n-1", "deployment: llm, node: n-1"])
def test_a_slow_start_takes_that_many_times_as_long(whom):
    result = result_of(
        f"faults:\n  - {{kind: slow_start, at: 10, {whom}, factor: 3}}\n"
        "  - {kind: replica_crash, at: 20, deployment: llm, rank: 1}\n"
    )
    # 20.5 known   23.5 up, after 3 s   24.5 told its rank   30.5 serves, after 6 s
    assert gaps(result) == [(1, 20.0, 30.5)]


def test_what_begins_after_a_slow_time_is_as_fast_as_ever():
    result = result_of(
        "faults:\n  - {kind: slow_start, at: 10, deployment: llm, factor: 3, for_s: 14}\n"
        "  - {kind: replica_crash, at: 20, deployment: llm, rank: 1}\n"
    )
    # 20.5 known   23.5 up, after 3 s   24.0 the slow time ends   24.5 told its rank   26.5 serves
    assert gaps(result) == [(1, 20.0, 26.5)]


# -- nodes


def test_the_replicas_of_a_lost_node_are_replaced_where_there_is_room_or_when_there_is():
    result = result_of(one_fault("node_loss", 30, node="n-1", back_after_s=20))
    # 30.5 known; n-0 is full   50.0 n-1 is back, and rank 1 goes there   54.0 serves
    assert gaps(result) == [(1, 30.0, 54.0)]
    (lost, back) = (each for each in result.happenings if each.kind == "fault")
    assert (lost.node, lost.at, lost.until, back.at) == ("n-1", 30.0, 50.0, 50.0)


def test_a_node_with_two_faults_is_back_when_both_are_over():
    text = (
        "faults:\n  - {kind: node_loss, at: 30, node: n-1, back_after_s: 20}\n"
        "  - {kind: node_loss, at: 40, node: n-1, back_after_s: 20}\n"
    )
    assert gaps(result_of(text)) == [(1, 30.0, 64.0)]


def test_a_node_that_is_cut_off_serves_until_its_lease_lapses_and_only_then_counts_as_lost():
    run = run_of(one_fault("node_partition", 20, node="n-1", for_s=100))
    run.until(35.25)
    book = run.controller.drivers["llm"].state
    assert book.holder_of(1) in book.replicas  # its replica has stopped itself, but nobody knows yet
    assert book.holder_of(1) not in run.world.deployments["llm"].processes
    result = run.go()
    # 35.0 the lease lapses   35.5 known   40.5 n-0 is full, it is said   100.5 rank 2 moves there (V18)   120.0 n-1 is reached
    assert gaps(result) == [(1, 35.0, 100.5), (2, 100.5, 124.0)]
    assert [at for at, _ in faults(result)] == [20.0, 35.0, 120.0]
    assert result.deployments[0].status == "HEALTHY"


def test_a_node_that_is_reached_again_before_its_lease_lapses_has_lost_nothing():
    result = result_of(one_fault("node_partition", 20, node="n-1", for_s=14.75))
    assert gaps(result) == []
    assert result.deployments[0].replica_starts == 3


def test_the_world_size_reaches_a_node_that_was_cut_off_with_the_next_repetition():
    text = (
        one_fault("node_partition", 20, node="n-1", for_s=10) + "changes: [{at: 22.25, deployment: llm, target_replicas: 2}]\n"
    )
    run = run_of(text)
    run.until(22.75)
    processes = run.world.deployments["llm"].processes
    known = {each.node.node_id: each.replica.world_size for each in processes.values()}
    assert known == {"n-0": 2, "n-1": 3}
    # Sent at 22.25 and every second after that: at 30.25 it gets through, and takes 0.5 s.
    run.until(30.5)
    assert [each.replica.world_size for each in processes.values() if each.node.node_id == "n-1"] == [3]
    run.until(30.75)
    assert [each.replica.world_size for each in processes.values() if each.node.node_id == "n-1"] == [2]


def test_a_death_on_a_node_that_is_cut_off_is_known_when_it_is_reached_again():
    text = (
        "faults:\n  - {kind: node_partition, at: 20, node: n-1, for_s: 10}\n"
        "  - {kind: replica_crash, at: 25.25, deployment: llm, rank: 1}\n"
    )
    # Told at 25.25 and every second after that: at 30.25 it gets through.   30.75 known   34.75 serves
    assert gaps(result_of(text)) == [(1, 25.25, 34.75)]


def test_a_death_on_a_node_that_is_never_reached_again_is_known_when_its_lease_lapses():
    text = (
        "faults:\n"
        "  - {kind: node_partition, at: 20, node: n-0}\n"
        "  - {kind: replica_crash, at: 25.25, deployment: llm, rank: 0}\n"
    )
    result = run_of(text).go()
    # 35.0 lapsed   35.5 known: one fits on n-1, and gets the lower of the ranks that are missing
    assert gaps(result) == [(0, 25.25, 39.5), (2, 35.0, 200.0)]


def test_the_loss_of_a_node_that_is_cut_off_is_known_when_its_lease_lapses():
    text = (
        "faults:\n  - {kind: node_partition, at: 20, node: n-1, for_s: 60}\n"
        "  - {kind: node_loss, at: 25, node: n-1, back_after_s: 5}\n"
    )
    # 25.0 dead   30.0 up again, empty and out of reach   35.5 its lease is known to have lapsed   80.0 it can be used
    assert gaps(result_of(text)) == [(1, 25.0, 84.0)]


def test_the_loss_of_a_node_that_is_cut_off_is_known_when_it_is_reached_again():
    text = (
        "faults:\n  - {kind: node_partition, at: 20, node: n-1, for_s: 12}\n"
        "  - {kind: node_loss, at: 25, node: n-1, back_after_s: 5}\n"
    )
    # 32.0 reached again   32.5 its loss is known   36.5 serves
    assert gaps(result_of(text)) == [(1, 25.0, 36.5)]


def test_a_node_that_is_cut_off_twice_is_reached_again_when_both_are_over():
    text = (
        "faults:\n  - {kind: node_partition, at: 20, node: n-1, for_s: 10}\n"
        "  - {kind: node_partition, at: 25, node: n-1, for_s: 60}\n"
    )
    assert gaps(result_of(text)) == [(1, 35.0, 89.0)]  # the lease counts from 20


def test_replicas_behind_a_partition_that_outlasts_the_health_check_but_not_the_lease_are_replaced_when_reached():
    world = WORLD.replace("lease_s: 15", "lease_s: 90")
    result = result_of(one_fault("node_partition", 20, node="n-1", for_s=40), world=world)
    # Asked in vain at 24.0: 54.0 unhealthy, and killed in vain. The kill is repeated every 5 s: 64.0 it gets through.
    # 64.5 gone   65.0 known   69.0 serves
    assert gaps(result) == [(1, 64.5, 69.0)]


def test_memory_is_taken_and_given_back_like_gpus():
    world = WORLD.replace("gpus: 2}", "gpus: 2, memory_gb: 1.1}").replace(
        "start_s: 1", "start_s: 1, memory_gb_per_replica: 0.6"
    )
    run = run_of(one_fault("replica_crash", 20, deployment="llm", rank=1), world=world)
    result = run.go()
    # One fits on each node, whatever GPUs are free. The third waits, and is first in the line when rank 1 dies at 20.
    # It is told its rank, 1, at 22.0 and serves at 24.0; rank 1's replacement waits for ever, for rank 2 (V18).
    assert result.failure is None
    assert gaps(result) == [(1, 20.0, 24.0)]
    assert max((hold.since, hold.rank) for hold in result.holds["llm"] if hold.running) == (24.0, 1)
    nodes = run.world.cluster.nodes.values()
    assert [(node.free_gpus, node.free_memory_mb) for node in nodes] == [(1, 500), (1, 500)]


# -- the controller


def test_a_controller_that_comes_back_asks_before_it_acts():
    text = (
        "faults:\n  - {kind: controller_crash, at: 30, restart_after_s: 10}\n"
        "  - {kind: replica_crash, at: 35, deployment: llm, rank: 0}\n"
    )
    result = result_of(text)
    # 40.0 it finds two and asks   40.5 they hear it   41.0 it knows   45.0 the third serves
    assert gaps(result) == [(0, 35.0, 45.0)]


# -- rates


def constant(seconds: float) -> str:
    return f"{{uniform: {{low: {seconds}, high: {seconds}}}}}"


def test_a_rate_breaks_and_repairs_in_turn():
    world = WORLD.replace("count: 2, gpus: 2", "count: 1, gpus: 3")
    text = f"fault_rates: [{{kind: node_loss, nodes: n, mtbf_s: {constant(50)}, mttr_s: {constant(10)}}}]\n"
    result = result_of(text, world=world)
    # Works 50 s, is broken 10 s: lost at 50, 110 and 170; replacements serve 4 s after its return.
    assert [at for at, text in faults(result) if "lost" in text] == [50.0, 110.0, 170.0]
    assert gaps(result)[:3] == [(0, 50.0, 64.0), (0, 110.0, 124.0), (0, 170.0, 184.0)]


def test_a_rate_of_replica_crashes_is_one_of_each_rank():
    text = f"fault_rates: [{{kind: replica_crash, deployment: llm, mtbf_s: {constant(80)}, begin_s: 10, end_s: 100}}]\n"
    assert gaps(result_of(text)) == [(0, 90.0, 94.5), (1, 90.0, 94.5), (2, 90.0, 94.5)]


def test_a_rate_of_hangs_partitions_and_controller_crashes():
    text = (
        "fault_rates:\n"
        f"  - {{kind: replica_hang, deployment: llm, mtbf_s: {constant(20)}, mttr_s: {constant(5)}, end_s: 21}}\n"
        f"  - {{kind: node_partition, nodes: n, mtbf_s: {constant(40)}, mttr_s: {constant(5)}, end_s: 41}}\n"
        f"  - {{kind: controller_crash, mtbf_s: {constant(60)}, mttr_s: {constant(5)}, end_s: 61}}\n"
    )
    result = result_of(text)
    assert gaps(result) == [(0, 20.0, 25.0), (1, 20.0, 25.0), (2, 20.0, 25.0)]
    assert [at for at, text in faults(result) if "cut off" in text] == [40.0, 40.0]
    assert [each.at for each in result.happenings if each.kind == "controller"] == [60.0, 65.0]


def test_without_a_duration_rates_end_with_the_last_request():
    world = WORLD.replace("duration_s: 200", "settle_s: 50")
    world += "    requests: {poisson: {rate_per_s: 1, for_s: 95, service_s: 1}}\n"
    world = world.replace("{name: llm, target_replicas: 3, start_s: 1, init_s: 2}", "name: llm\n    target_replicas: 3")
    arrivals = Arrivals(array("d", [10.0, 95.0]), array("d", [1.0, 1.0]))
    text = f"fault_rates: [{{kind: node_loss, nodes: n, mtbf_s: {constant(40)}, mttr_s: {constant(15)}}}]\n"
    # Lost at 40 and, after 15 s of repair and 40 s of work, at 95, when the last request comes: that is no longer before it.
    assert {at for at, text in faults(result_of(text, arrivals, world=world)) if "lost" in text} == {40.0}


# -- the trace


def traced(folder: Path, rows: str, options: str = "", world: str = WORLD) -> RunResult:
    options = options if "map:" in options else f"{options}, cluster_size: 9, map: first"
    (folder / "trace.csv").write_text("time,event,node\n" + rows)
    (folder / "s.yaml").write_text(world + f"fault_trace: {{file: trace.csv{options}}}\n")
    result = Run(load_scenario(folder / "s.yaml"), {"llm": Arrivals()}).go()
    assert result.failure is None
    return result


def test_a_trace_takes_nodes_down_and_brings_them_back(tmp_path):
    rows = "10,down,a\n12,down,a\n15,up,a\n20,up,a\n30,down,b\n30,up,b\n"
    result = traced(tmp_path, rows)
    # a is n-0, with ranks 0 and 2. 10.5 known: rank 0 goes to n-1, which has room for one.   14.5 serves
    # Two faults of n-0 overlap: it is back at 20.0, and rank 2 goes there.   24.0 serves
    # b is n-1, with ranks 0 and 1, back at the instant at which it is lost. 30.5 known   34.5 both serve
    assert gaps(result) == [(0, 10.0, 14.5), (0, 30.0, 34.5), (1, 30.0, 34.5), (2, 10.0, 24.0)]
    assert result.deployments[0].status == "HEALTHY"


@pytest.mark.parametrize("rows", ["1,down,a\n50,up,a\n", "20,down,a\n50,up,a\n", "5,down,a\n10,down,a\n30,up,a\n50,up,a\n"])
def test_who_is_down_when_the_window_begins_never_was_a_place_for_a_replica(tmp_path, rows):
    result = traced(tmp_path, rows, ", begin: 20")
    # n-1 has room for two; n-0 is back at 50 - 20 = 30, and rank 2 goes there.   34.0 it serves
    (figures,) = result.deployments
    assert (figures.replica_crashes, figures.replica_starts, gaps(result)) == (0, 3, [])
    running = sorted((hold.since, hold.rank, hold.node_id) for hold in result.holds["llm"] if hold.running)
    assert running == [(4, 0, "n-1"), (4, 1, "n-1"), (34, 2, "n-0")]
    told = [(happening.at, happening.text) for happening in result.happenings if happening.kind == "fault"]
    assert told == [(0.0, "node n-0 is down as the run begins"), (30.0, "node n-0 is back, empty")]
    assert [(outage.subject, outage.since, outage.until) for outage in result.outages] == [("n-0", 0.0, 30.0)]


def test_spot_nodes_come_and_go(tmp_path):
    rows = "10,add,x\n20,add,y\n40,remove,x\n50,add,z\n"
    options = ", map: slots, up: add, down: remove"
    result = traced(tmp_path, rows, options)
    # 10.0 x comes as n-0, and ranks 0 and 1 go there   14.0 they serve
    # 20.0 y comes as n-1, with rank 2                  24.0 it serves
    # 40.0 x goes   40.5 known: rank 0 goes to n-1      44.5 it serves
    # 50.0 z comes as n-0, with rank 1                  54.0 it serves
    assert gaps(result) == [(0, 40.0, 44.5), (1, 40.0, 54.0)]
    running = sorted((hold.since, hold.rank, hold.node_id) for hold in result.holds["llm"] if hold.running)
    assert running == [(14, 0, "n-0"), (14, 1, "n-0"), (24, 2, "n-1"), (44.5, 0, "n-1"), (54, 1, "n-0")]


def test_without_a_duration_a_run_goes_on_to_the_end_of_its_trace(tmp_path):
    result = traced(tmp_path, "10,down,a\n100,up,a\n", world=WORLD.replace("duration_s: 200\n", ""))
    # 104.0 the third serves   104.5 its controller knows   105.0 so do the routers, and nothing is left to happen
    assert result.ended_at == 105.0
    assert result.gaps["llm"][-1] == Gap(2, 10.0, 104.0)


def test_ranks_of_nodes_are_given_again():
    run = run_of(one_fault("node_loss", 30, node="n-1", back_after_s=20))
    run.go()
    ranks = sorted(run.controller.drivers["llm"].state.ranks.values(), key=lambda rank: rank.rank)
    assert ranks == [ReplicaRank(0, 0, 0), ReplicaRank(1, 1, 0), ReplicaRank(2, 0, 1)]


ROOMY = WORLD.replace("count: 2", "count: 3").replace(
    "init_s: 2", "init_s: 2, graceful_shutdown_timeout_s: 5, max_unavailable: 1"
)


def on_nodes(result: RunResult, at: float) -> dict[int, str]:
    """Where each rank runs at some time."""
    holds = [
        hold for hold in result.holds["llm"] if hold.running and hold.since <= at and (hold.until is None or at < hold.until)
    ]
    return {hold.rank: hold.node_id for hold in holds}


def test_on_a_cordoned_node_what_is_there_stays_and_nothing_new_comes():
    happens = """
faults:
  - {kind: node_cordon, at: 50, node: n-1, for_s: 100}
  - {kind: replica_crash, at: 60, deployment: llm, rank: 1}
  - {kind: replica_crash, at: 160, deployment: llm, rank: 0}
"""
    result = result_of(happens, world=ROOMY)
    assert faults(result)[0] == (50.0, "node n-1 is cordoned")
    assert on_nodes(result, 55.0)[1] == "n-1"
    assert "n-1" not in on_nodes(result, 100.0).values()
    assert (150.0, "node n-1 is uncordoned") in faults(result)


def test_a_drained_node_is_left_one_by_one_after_the_next_has_a_place():
    result = result_of(one_fault("node_drain", 50, node="n-0"), world=ROOMY)
    assert "n-0" not in on_nodes(result, 150.0).values()
    assert sorted(on_nodes(result, 150.0)) == [0, 1, 2]
    assert faults(result) == [(50.0, "node n-0 is drained")]
    assert all(until - since < 5.0 for _, since, until in gaps(result)), "its successor was up before it went"


@pytest.mark.parametrize("meanwhile", ["", "  - {kind: node_cordon, at: 50.05, node: n-0}"], ids=["", "cordoned-too"])
def test_a_preempted_node_is_empty_when_it_goes_and_the_controller_is_told_again_after_a_crash(meanwhile):
    happens = f"""
faults:
  - {{kind: node_preemption, at: 50, node: n-0, notice_s: 60, back_after_s: 10}}
{meanwhile}
  - {{kind: controller_crash, at: 50.1, restart_after_s: 5}}
"""
    result = result_of(happens, world=ROOMY)
    told = faults(result)
    assert (50.0, "node n-0 is drained: it is to be empty in 60 s (preemption)") in told
    assert (110.0, "node n-0 lost, with no replica") in told
    assert sorted(on_nodes(result, 150.0)) == [0, 1, 2]


@pytest.mark.parametrize("crash", ["", "  - {kind: controller_crash, at: 56, restart_after_s: 1}"], ids=["", "told-again"])
def test_nobody_puts_off_a_preemption_nor_takes_it_back(crash):
    happens = f"""
faults:
  - {{kind: node_preemption, at: 50, node: n-0, notice_s: 60}}
  - {{kind: node_drain, at: 55, node: n-0, deadline_s: 300, for_s: 20}}
{crash}
"""
    run = run_of(happens, world=ROOMY.replace("count: 3", "count: 2").replace("target_replicas: 3", "target_replicas: 4"))
    run.until(100.0)
    drain = run.controller.drivers["llm"].state.nodes["n-0"].drain
    assert drain is not None
    assert (drain.deadline_at, drain.final) == (110.0, True)
    result = run.go()
    assert (75.0, "node n-0 is uncordoned") not in faults(result)
    assert sorted(on_nodes(result, 104.0).values()) == ["n-0", "n-0", "n-1", "n-1"]
    assert set(on_nodes(result, 108.0).values()) == {"n-1"}, "the rest was stopped at 110 - 5 s"


def test_a_node_that_is_down_is_not_cordoned():
    happens = """
faults:
  - {kind: node_loss, at: 50, node: n-0, back_after_s: 50}
  - {kind: node_cordon, at: 60, node: n-0, for_s: 10}
"""
    assert (60.0, "node n-0 was to be cordoned, but is down") in faults(result_of(happens, world=ROOMY))
