"""The checks of a fleet find what they are for: violations planted in states and steps that are sound without."""

import attrs
import pytest
from msgspec.structs import replace as changed

from rankcore.dispatching import (
    FleetNote,
    FleetNoteKind,
    FleetState,
    FleetStep,
    ModelRequested,
    OpenRequest,
    Status,
    StatusKind,
    TellCaller,
    fleet_step,
)
from rankcore.dispatching.alarms import AlarmKind
from rankcore.dispatching.invariants import check, check_step
from rankcore.frozen import PMap
from rankcore.residency import Phase
from rankcore.residency.events import EvictRequested, LoadFinished
from rankcore.routing.commands import Complete, Dispatch
from rankcore.routing.events import RequestDone
from tests.fleets import Fleet


def loading() -> FleetState:
    """Two requests wait for a model that is being loaded, a third for one that has no room."""
    f = Fleet(a=50, b=500)
    f.request(1, "a")
    f.request(2, "a")
    f.request(3, "b")
    return f.state


def serving() -> FleetState:
    """One request is in flight, and another one waits for room."""
    f = Fleet(a=50)
    f.serve("a", max_ongoing_requests=1)
    f.request(1, "a")
    f.load("a")
    f.request(2, "a")
    return f.state


def leaving() -> FleetState:
    """The replica of a request in flight was evicted."""
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    f.tell(EvictRequested(model="a", at=0.0))
    return f.state


def rules(found) -> set[str]:
    return {each.rule for each in found}


def served(state: FleetState, **changes) -> FleetState:
    return attrs.evolve(state, models=state.models.set("a", attrs.evolve(state.models["a"], **changes)))


def request(state: FleetState, request_id: int, **changes) -> FleetState:
    entered = attrs.evolve(state.requests[request_id], **changes)
    return attrs.evolve(state, requests=state.requests.set(request_id, entered))


def resident(state: FleetState, **changes) -> FleetState:
    [(replica_id, record)] = [each for each in state.residency.replicas.items() if each[0].startswith("a#")]
    replicas = state.residency.replicas.set(replica_id, changed(record, **changes))
    planner = attrs.evolve(state.residency, replicas=replicas)
    object.__setattr__(planner, "index", state.residency.index)
    return attrs.evolve(state, residency=planner)


QUEUED = Status(StatusKind.QUEUED, "a")
BROKEN = {
    "a request that is nowhere": (
        "D1",
        loading,
        lambda s: attrs.evolve(s, requests=s.requests.set(9, OpenRequest("a", 9))),
    ),
    "a request that nobody knows of": ("D1", loading, lambda s: attrs.evolve(s, requests=s.requests.delete(1))),
    "an answer that is not entered": ("D1", loading, lambda s: request(s, 1, answered=True)),
    "a line that nobody stands in": ("D1", loading, lambda s: served(s, waiting=PMap())),
    "a stranger in line": ("D3", loading, lambda s: served(s, waiting=s.models["a"].waiting.set(77, 88))),
    "who waits and is not told": ("D5", loading, lambda s: request(s, 1, revision=0)),
    "who was told what was never said": ("D5", loading, lambda s: request(s, 1, revision=99)),
    "two with one revision": ("D5", loading, lambda s: request(s, 1, revision=s.requests[2].revision)),
    "a replica that is not routed": ("D6", serving, lambda s: served(s, routed=())),
    "work for one that is gone": ("D6", serving, lambda s: resident(s, phase=Phase.RESTING)),
    "work that the planner does not know of": ("D8", serving, lambda s: resident(s, in_flight=7)),
    "one that is seen off for ever": ("D6", loading, lambda s: served(s, draining=("a#0",))),
    "one that leaves unseen": ("D6", leaving, lambda s: served(s, draining=())),
    "a wrong status": ("D3", loading, lambda s: served(s, status=QUEUED)),
    "no status": ("D3", serving, lambda s: served(s, status=None)),
    "a status for nobody": ("D3", leaving, lambda s: served(s, status=QUEUED)),
    "nothing asked for": ("D4", loading, lambda s: attrs.evolve(s, residency=Fleet(a=50, b=500).state.residency)),
    "no alarm": ("D7", loading, lambda s: attrs.evolve(s, alarms=s.alarms.set(AlarmKind.ROOM, "b", None))),
    "an alarm that rings": ("D7", loading, lambda s: attrs.evolve(s, alarms=s.alarms.set(AlarmKind.ROOM, "b", 0.0))),
    "two asked for": ("D2", serving, lambda s: served(s, demanded=True)),
    "no clock": ("D10", loading, lambda s: attrs.evolve(s, wake_at=None)),
    "a late clock": ("D10", loading, lambda s: attrs.evolve(s, wake_at=1e6)),
    "a move that nobody waits for": ("D10", serving, lambda s: attrs.evolve(s, moves=loading().moves)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_state_is_found(name: str):
    rule, make, plant = BROKEN[name]
    state = make()
    assert check(state) == []
    assert rule in rules(check(plant(state)))


def step_of(state: FleetState, event) -> tuple[FleetState, object, FleetStep]:
    step = fleet_step(state, event)
    assert check_step(state, event, step) == []
    return state, event, step


def broken(before: FleetState, event, step: FleetStep, **told) -> set[str]:
    """What is found when a step came to something else: other commands, other notes, another state."""
    return rules(check_step(before, event, step._replace(**told)))


def test_an_answer_that_is_missing_given_twice_or_again_is_found():
    before, event, step = step_of(serving(), RequestDone(request_id=1, at=1.0))
    assert "D1" in broken(before, event, step, commands=())
    assert "D1" in broken(before, event, step, commands=(*step.commands, Complete(1)))
    assert "D1" in broken(before, event, step, commands=(*step.commands, Complete(9)))
    assert "D1" in broken(before, event, step, state=loading())


def test_what_is_told_too_late_or_twice_is_found():
    before, event, step = step_of(serving(), RequestDone(request_id=1, at=1.0))
    newest = step.state.revision
    old = TellCaller(2, before.requests[2].revision, QUEUED)
    assert "D5" in broken(before, event, step, commands=(*step.commands, old))
    again = TellCaller(2, newest + 1, before.models["a"].status)
    assert "D5" in broken(before, event, step, commands=(*step.commands, again))
    over = TellCaller(1, newest + 1, QUEUED)
    assert "D5" in broken(before, event, step, commands=(*step.commands, over))
    ready = Status(StatusKind.READY, "a")
    assert "D5" in broken(before, event, step, commands=(*step.commands, TellCaller(2, newest + 1, ready)))
    assert "D5" in broken(before, event, step, commands=(*step.commands, TellCaller(7, newest + 1, ready)))


def test_what_is_sent_to_one_that_does_not_serve_is_found():
    before, event, step = step_of(loading(), ModelRequested(request_id=4, model="a", at=1.0))
    [replica_id] = [each for each in before.residency.replicas if each.startswith("a#")]
    assert "D6" in broken(before, event, step, commands=(*step.commands, Dispatch(4, replica_id)))
    assert "D6" in broken(before, event, step, commands=(*step.commands, Dispatch(4, "z#1")))
    before, event, step = step_of(serving(), EvictRequested(model="a", at=1.0))
    assert "D6" in broken(before, event, step, commands=(*step.commands, Dispatch(2, replica_id, 1)))


def test_what_is_asked_for_twice_is_found():
    f = Fleet(a=50)
    before, event, step = step_of(f.state, ModelRequested(request_id=4, model="a", at=1.0))
    twice = (*step.notes, FleetNote(FleetNoteKind.ASKED_FOR, "D2", "a"))
    assert "D2" in broken(before, event, step, notes=twice)


def test_a_whole_run_is_sound():
    state = loading()
    [under_way] = state.moves.values()
    move = under_way.command
    step_of(state, LoadFinished(replica_id=move.replica_id, move=move.move, at=1.0))
