"""Executors say that a replica waits for room, to whatever spec is in force, and seldom to a cluster that is full for long."""

from pathlib import Path

from executors.simulator.deployment import DeploymentWorld
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from executors.simulator.scenario.loading import load_arrivals
from executors.waiting_for_room import NewsOfRoom
from rankcore.events import Event, ReplicaPending

FULL = """
nodes: [{name: node, count: 4, gpus: 1}]
deployments: [{name: llm, target_replicas: %d, max_unavailable: 1, start_s: 5, init_s: 10}]
changes: [{at: 60, deployment: llm, version: "2", max_surge: 1}]
duration_s: 4000
"""


def said(monkeypatch, target: int) -> list[ReplicaPending]:
    found: list[ReplicaPending] = []
    arrive = DeploymentWorld._arrive

    def heard(world: DeploymentWorld, event: Event) -> None:
        if isinstance(event, ReplicaPending):
            found.append(event)
        arrive(world, event)

    monkeypatch.setattr(DeploymentWorld, "_arrive", heard)
    scenario = parse_scenario(FULL % target, "full")
    Run(scenario, load_arrivals(scenario, Path(), scenario.seed)).go()
    return found


def test_it_is_said_the_first_time_and_ever_more_rarely() -> None:
    news = NewsOfRoom()
    assert [number for number in range(1, 70) if news.is_to_be_said(True)] == [1, 2, 4, 8, 16, 32, 64]


def test_that_there_is_room_is_said_where_something_else_was_said_before() -> None:
    news = NewsOfRoom()
    assert not any(news.is_to_be_said(False) for _ in range(5)), "the place is coming"
    assert news.is_to_be_said(True)
    assert [number for number in range(1, 9) if news.is_to_be_said(False)] == [1, 2, 4, 8], "it may be lost"
    assert news.is_to_be_said(True)


def test_an_update_that_brings_surge_hears_that_there_is_no_room(monkeypatch) -> None:
    assert len({each.replica_id for each in said(monkeypatch, 4)}) >= 1


def test_a_cluster_that_is_full_for_an_hour_says_so_a_dozen_times_a_replica(monkeypatch) -> None:
    found = said(monkeypatch, 6)
    waiting = {each.replica_id for each in found}
    assert 2 <= len(found) <= 12 * len(waiting)


SLOW = """
nodes: [{name: node, count: 3, gpus: 1}]
deployments: [{name: llm, target_replicas: 3, start_s: 180, init_s: 1}]
faults: [{kind: replica_crash, at: 300, deployment: llm, rank: 0}]
duration_s: 1000
"""


def test_a_process_that_takes_three_minutes_to_start_on_room_that_there_is_moves_nobody() -> None:
    scenario = parse_scenario(SLOW, "slow")
    result = Run(scenario, load_arrivals(scenario, Path(), scenario.seed)).go()
    (llm,) = result.deployments
    assert (llm.ranks_moved, llm.reconfigures) == (0, 0)
    ((rank, away_s),) = [(gap.rank, gap.until - gap.since) for gap in result.gaps["llm"]]
    assert (rank, 181.0 <= away_s < 183.0) == (0, True), "as long as the start takes, and no longer"
