"""V14 and V15 as `rankcore.invariants` checks them: a sound state or step passes, and one planted violation is reported."""

from typing import Any

import attrs
from msgspec.structs import replace

from rankcore import DeploymentState, Step
from rankcore.commands import StartReplica, StopReplica
from rankcore.events import ClockAdvanced, NodeChanged, ReplicaPlaced
from rankcore.evictions import Eviction
from rankcore.invariants import check, check_step
from rankcore.rankset import RankSet
from rankcore.values import Leaving
from tests.scripted import Deployment

A, B = "llm#1.0", "llm#1.1"


def forged(state: DeploymentState, **changes: Any) -> DeploymentState:
    return attrs.evolve(state, tables=replace(state.tables, **changes))


def asked(state: DeploymentState, **changes: Any) -> DeploymentState:
    return forged(state, evictions=replace(state.tables.evictions, **changes))


def at(state: DeploymentState, clock: float) -> DeploymentState:
    return attrs.evolve(state, clock=clock)


def found(violations: list[Any], rule: str) -> list[str]:
    return [str(each) for each in violations if each.rule == rule]


def drained(deadline_at: float | None = None) -> DeploymentState:
    d = Deployment.running(2, graceful_shutdown_timeout_s=10.0)
    d.drain("n0", deadline_at)
    assert check(d.state) == []
    return d.state


def test_who_outlives_a_deadline_is_reported() -> None:
    state = drained(100.0)
    assert found(check(at(state, 90.0)), "V15")[0] == f"V15: {A} is RUNNING, and its deadline is 100 s"
    assert found(check(at(state, 100.0)), "V15")[0] == f"V15: {A} is RUNNING, and its deadline was 100 s"


def test_who_is_on_a_drained_node_and_not_asked_to_go_is_reported() -> None:
    state = drained()
    left = asked(state, asked=state.tables.evictions.asked.delete(B), ranks=RankSet.of([0]))
    assert found(check(left), "V14") == [f"V14: {B} is on n0, which is drained, and is not asked to go"]


def test_a_successor_of_one_that_is_to_stay_is_reported() -> None:
    d = Deployment.running(2)
    d.replace(A)
    state = asked(d.state, asked=d.state.tables.evictions.asked.delete(A), ranks=RankSet())
    assert found(check(state), "V14") == [f"V14: llm#1.2 is to succeed {A}, which is to stay"]


def test_an_index_that_is_wrong_is_reported() -> None:
    state = drained()
    assert found(check(asked(state, ranks=RankSet.of([0]))), "index") == ["index: evictions.ranks is {0}, expected {0, 1}"]
    gone = asked(state, asked=state.tables.evictions.asked.set("llm#1.9", Eviction(1.0)))
    assert found(check(gone), "index") == ["index: evictions.asked has {'llm#1.9'}, who are gone"]


def test_a_stop_without_a_successor_that_has_a_place_is_reported() -> None:
    d = Deployment.running(2)
    d.replace(A)
    before = d.state
    d.place("llm#1.2", "n1")
    event = d.last
    assert [each.replica_id for each in event.commands if isinstance(each, StopReplica)] == [A]
    rollout = d.state.tables.rollout
    state = forged(d.state, rollout=replace(rollout, arrived=RankSet()))
    step = Step(state, event.commands, event.notes)
    told = next(iter(check_step(before, _placed(), step)))
    assert str(told) == f"V14: {A} is stopped, and nobody has a place to succeed it"
    kept = forged(state, replicas=state.tables.replicas.set(A, replace(state.replicas[A], leaving=Leaving.RELEASE)))
    assert found(check_step(before, _placed(), Step(kept, event.commands, event.notes)), "V14") == []


def test_a_stop_for_an_update_that_finds_no_room_is_reported_where_that_may_still_come_or_would_be_lost() -> None:
    d = Deployment.running(2, surge_patience_s=30.0)
    d.replace(A)
    d.change(version="2")
    d.stopped("llm#1.2")
    d.settle(except_for=["llm#1.4"])
    before, event = d.state, ClockAdvanced(at=30.0)
    d.send(event)
    assert A in [each.replica_id for each in d.last.commands if isinstance(each, StopReplica)]
    state, told = d.state, [f"V14: {A} is stopped, and nobody has a place to succeed it"]
    comes = forged(state, rollout=replace(state.tables.rollout, stoppable=RankSet()))
    lost = forged(state, nodes=state.tables.nodes.set("n0", replace(state.tables.nodes["n0"], cordoned=True)))
    for planted, expected in ((state, []), (comes, told), (lost, told)):
        assert found(check_step(before, event, Step(planted, d.last.commands, d.last.notes)), "V14") == expected


def _placed() -> Any:
    return ReplicaPlaced(replica_id="llm#1.2", node_id="n1", at=0.0)


def test_a_start_on_a_cordoned_node_is_reported() -> None:
    d = Deployment(1, placement="pack_ranks")
    before = d.state
    d.node("a", 2)
    (start,) = [each for each in d.last.commands if isinstance(each, StartReplica)]
    node = replace(d.state.tables.nodes["a"], cordoned=True)
    state = forged(d.state, nodes=d.state.tables.nodes.set("a", node))
    step = Step(state, d.last.commands, d.last.notes)
    told = found(check_step(before, NodeChanged(node_id="a", capacity=2, at=0.0), step), "V14")
    assert told == [f"V14: {start.replica_id} is to be started on a, which is cordoned"]
