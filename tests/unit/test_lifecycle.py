"""Section 2.2: the life cycles are declared once, as tables; the machines and the flat dicts say the same."""

from collections import Counter
from enum import StrEnum

import pytest
from transitions import Machine

from rankcore import DeploymentStatus, ReplicaState, events
from rankcore.lifecycle import (
    DEPLOYMENT_MOVES,
    DEPLOYMENT_ROWS,
    REPLICA_MOVES,
    REPLICA_ROWS,
    Loss,
    Milestone,
    Report,
    trigger_name,
)
from tests.scripted import Deployment


def machine_of(states: type[StrEnum], rows: tuple) -> Machine:
    """A life cycle as `transitions` holds and checks it; it has no model, and moves nothing."""
    transitions = [{"trigger": trigger_name(t), "source": s.value, "dest": d.value} for s, t, d in rows]
    return Machine(model=None, states=[s.value for s in states], initial=None, auto_transitions=False, transitions=transitions)


LIVES = [
    pytest.param(REPLICA_ROWS, REPLICA_MOVES, machine_of(ReplicaState, REPLICA_ROWS), ReplicaState, id="replica"),
    pytest.param(
        DEPLOYMENT_ROWS, DEPLOYMENT_MOVES, machine_of(DeploymentStatus, DEPLOYMENT_ROWS), DeploymentStatus, id="deployment"
    ),
]
BEGINNINGS = {
    ReplicaState: {ReplicaState.REQUESTED, ReplicaState.RECOVERING},
    DeploymentStatus: {DeploymentStatus.UPDATING, DeploymentStatus.RECOVERING},
}
ENDS = {ReplicaState: {ReplicaState.STOPPED}, DeploymentStatus: {DeploymentStatus.DELETED}}


@pytest.mark.parametrize(("rows", "moves", "machine", "states"), LIVES)
def test_no_row_occurs_twice(rows: tuple, moves: dict, machine: Machine, states: type[StrEnum]) -> None:
    """Transitions accepts duplicates, and the first one wins."""
    assert [key for key, count in Counter((source, trigger) for source, trigger, _ in rows).items() if count > 1] == []


@pytest.mark.parametrize(("rows", "moves", "machine", "states"), LIVES)
def test_every_state_in_the_rows_is_one(rows: tuple, moves: dict, machine: Machine, states: type[StrEnum]) -> None:
    """Transitions accepts misspelt states."""
    assert {type(state) for source, _, dest in rows for state in (source, dest)} == {states}
    assert set(machine.states) == {state.value for state in states}


@pytest.mark.parametrize(("rows", "moves", "machine", "states"), LIVES)
def test_the_flat_dict_and_the_machine_say_the_same(rows: tuple, moves: dict, machine: Machine, states: type[StrEnum]) -> None:
    """Section 2.2: a test holds the two equal."""
    drawn = {
        (transition.source, name, transition.dest)
        for name, event in machine.events.items()
        for transitions in event.transitions.values()
        for transition in transitions
    }
    assert drawn == {(source.value, trigger_name(trigger), dest.value) for (source, trigger), dest in moves.items()}
    assert sum(len(each) for event in machine.events.values() for each in event.transitions.values()) == len(rows)


@pytest.mark.parametrize(("rows", "moves", "machine", "states"), LIVES)
def test_every_state_can_be_reached_and_left(rows: tuple, moves: dict, machine: Machine, states: type[StrEnum]) -> None:
    reached = set(BEGINNINGS[states])
    while True:
        found = {dest for (source, _), dest in moves.items() if source in reached} - reached
        if not found:
            break
        reached |= found
    assert reached == set(states)
    assert {source for source, _ in moves} == set(states) - ENDS[states]


@pytest.mark.parametrize(("rows", "moves", "machine", "states"), LIVES)
def test_the_end_can_be_reached_from_everywhere(rows: tuple, moves: dict, machine: Machine, states: type[StrEnum]) -> None:
    arrived = set(ENDS[states])
    while True:
        found = {source for (source, _), dest in moves.items() if dest in arrived} - arrived
        if not found:
            break
        arrived |= found
    assert arrived == set(states)


@pytest.mark.parametrize(("rows", "moves", "machine", "states"), LIVES)
def test_the_machine_is_only_for_reading(rows: tuple, moves: dict, machine: Machine, states: type[StrEnum]) -> None:
    """No model is attached, and nothing jumps from every state to every state."""
    assert machine.models == []
    assert not any(name.startswith("to_") for name in machine.events)


def test_two_triggers_never_share_a_name() -> None:
    """A drawing would merge them."""
    for rows in (REPLICA_ROWS, DEPLOYMENT_ROWS):
        triggers = {trigger for _, trigger, _ in rows}
        assert len({trigger_name(trigger) for trigger in triggers}) == len(triggers)


def test_every_milestone_and_every_kind_of_report_moves_something() -> None:
    assert {trigger for _, trigger, _ in DEPLOYMENT_ROWS} == set(Milestone)
    assert {trigger for _, trigger, _ in REPLICA_ROWS if isinstance(trigger, Report)} == set(Report)
    assert {trigger for _, trigger, _ in REPLICA_ROWS if isinstance(trigger, Loss)} == set(Loss)


def test_final_news_ends_a_replica_in_whatever_state_it_is() -> None:
    """Section 2.4: it is never untrue."""
    for state in set(ReplicaState) - {ReplicaState.STOPPED, ReplicaState.FAILED}:
        for final in events.FINAL:
            assert REPLICA_MOVES[state, final] is ReplicaState.STOPPED


def test_a_life_goes_through_the_states_of_the_table() -> None:
    """Section 2.2: REQUESTED -> PLACED -> STARTING -> RUNNING <-> RECONFIGURING -> DRAINING -> STOPPED."""
    d = Deployment.running(1)
    d.die("llm#1.0")
    seen = [d.state.replicas["llm#1.1"].state]
    d.place("llm#1.1")
    seen.append(d.state.replicas["llm#1.1"].state)
    d.ready("llm#1.1")
    seen.append(d.state.replicas["llm#1.1"].state)
    d.change(user_config={"a": 1})
    seen.append(d.state.replicas["llm#1.1"].state)
    d.acknowledge("llm#1.1")
    seen.append(d.state.replicas["llm#1.1"].state)
    d.resize(0)
    seen.append(d.state.replicas["llm#1.1"].state)
    s = ReplicaState
    assert seen == [s.REQUESTED, s.STARTING, s.RUNNING, s.RECONFIGURING, s.RUNNING, s.DRAINING]
    d.stopped("llm#1.1")
    assert "llm#1.1" not in d.state.replicas


def test_a_placed_replica_whose_rank_is_not_free_stays_placed() -> None:
    """Section 2.2: PLACED is a state of its own."""
    d = Deployment.running(1, max_surge=1)
    d.change(version="2")
    d.place("llm#1.1")
    assert d.state.replicas["llm#1.1"].state is ReplicaState.PLACED
