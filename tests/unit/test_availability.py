"""Q11: while nobody serves, nor is about to, all that waits fails in that step, and newcomers with it; never beside a route."""

import pytest

from rankcore.errors import InvalidEventError
from rankcore.events import ClockAdvanced
from rankcore.routing import FailureKind, Route, Router, RoutingSpec
from rankcore.routing.commands import FINAL, Complete, Decline, Dispatch, Expire, Fail, StopAttempt
from rankcore.routing.events import (
    AvailabilityChanged,
    RequestArrived,
    RequestDone,
    RequestFailed,
    RouterClosed,
    RoutesChanged,
)
from rankcore.routing.notes import RoutingNoteKind


def router(*names: str, **fields) -> Router:
    made = Router(RoutingSpec(**{"name": "llm", "max_ongoing_requests": 1, **fields}))
    if names:
        made.step(RoutesChanged(added=tuple(Route(name, rank) for rank, name in enumerate(names)), world_size=2, at=0.0))
    return made


def arrive(made: Router, *request_ids: object, at: float = 0.0, **fields):
    return [command for each in request_ids for command in made.step(RequestArrived(request_id=each, at=at, **fields)).commands]


def finals(commands) -> list[tuple[type, object]]:
    return [(type(each), each.request_id) for each in commands if isinstance(each, FINAL)]


GONE = AvailabilityChanged(problem="llm is DEPLOY_FAILED", at=1.0)


def test_all_that_waits_fails_in_that_step_the_oldest_first_with_the_reason():
    made = router(max_queued_requests=9)
    arrive(made, "any")
    arrive(made, "ranked", rank=1)
    arrive(made, "all", broadcast=True)
    outcome = made.step(AvailabilityChanged(problem="it fails to start", retry_after_s=10.0, at=1.0))
    assert outcome.commands == tuple(Decline(each, "it fails to start", 10.0) for each in ("any", "ranked", "all"))
    assert [note.rule for note in outcome.notes] == ["Q11"] * 4
    assert made.waiting == 0


def test_newcomers_fail_until_it_is_lifted():
    made = router()
    made.step(GONE)
    assert arrive(made, 1, at=1000.0) == [Decline(1, GONE.problem)]
    lifted = made.step(AvailabilityChanged(at=1001.0))
    assert [note.kind for note in lifted.notes] == [RoutingNoteKind.AVAILABLE]
    assert arrive(made, 2, at=1001.0) == []
    assert made.step(AvailabilityChanged(at=1002.0)).notes == (), "nothing is to be lifted"
    assert made.waiting == 1


def test_newcomers_fail_until_its_time_has_passed_and_are_told_what_is_left_of_it():
    made = router()
    made.step(AvailabilityChanged(problem="no room", lasts_s=30.0, retry_after_s=7.0, at=1.0))
    assert arrive(made, 1, at=11.0) == [Decline(1, "no room", 20.0)]
    assert arrive(made, 2, at=31.0) == [], "it waits, which is the demand that may bring a replica"


def test_what_lasts_for_no_time_declines_nobody():
    made = router()
    arrive(made, 1)
    assert made.step(AvailabilityChanged(problem="no room", lasts_s=0.0, at=1.0)).commands == ()


def test_a_route_lifts_it_and_beside_a_route_it_is_late():
    made = router()
    made.step(GONE)
    made.step(RoutesChanged(added=(Route("a", 0),), at=2.0))
    assert arrive(made, 1, 2, at=2.0) == [Dispatch(1, "a")]
    late = made.step(AvailabilityChanged(problem="llm is DEPLOY_FAILED", at=3.0))
    assert (late.commands, [note.kind for note in late.notes]) == ((), [RoutingNoteKind.LATE])
    assert finals(made.step(RequestDone(request_id=1, at=4.0)).commands) == [(Complete, 1)]


def test_what_is_in_flight_goes_on_and_what_comes_back_from_there_is_declined():
    made = router("a", "b", idempotent=True)
    arrive(made, 1, 2)
    made.step(RoutesChanged(complete=True, at=0.5))
    assert made.step(GONE).commands == ()
    assert finals(made.step(RequestDone(request_id=1, at=2.0)).commands) == [(Complete, 1)]
    lost = RequestFailed(request_id=2, kind=FailureKind.LOST, at=3.0)
    assert made.step(lost).commands == (Decline(2, GONE.problem),)
    assert not made.requests


def test_a_broadcast_of_which_parts_wait_fails_as_a_whole():
    made = router("a", "b")
    arrive(made, "busy", rank=1)
    arrive(made, "all", broadcast=True)
    made.step(RoutesChanged(complete=True, at=0.5))
    assert made.step(GONE).commands == (Decline("all", GONE.problem), StopAttempt("all", "a", 1, 0))


def test_a_deadline_that_has_passed_by_then_is_told_first():
    made = router(request_timeout_s=1.0)
    arrive(made, 1)
    arrive(made, 2, at=0.5)
    assert finals(made.step(GONE).commands) == [(Expire, 1), (Decline, 2)]
    assert made.step(ClockAdvanced(at=9.0)).commands == ()


def test_a_closed_router_says_that_it_is_closed():
    made = router()
    made.step(GONE)
    made.step(RouterClosed(at=2.0))
    assert finals(arrive(made, 1, at=3.0)) == [(Fail, 1)]


@pytest.mark.parametrize(("field", "value"), [("problem", 3), ("retry_after_s", -1.0), ("lasts_s", "long"), ("at", None)])
def test_what_is_no_such_news_is_refused_by_name(field, value):
    with pytest.raises(InvalidEventError, match=rf"AvailabilityChanged\.{field}"):
        AvailabilityChanged(**{"at": 1.0, field: value})
