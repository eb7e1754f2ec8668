"""The checks of the router find what they are for: violations planted in states and steps that are sound without."""

import pytest
from msgspec.structs import replace

from rankcore.routing import FailureKind, Route, Router, RouterState, RouteStep, RoutingSpec, image_of, open_router, route_step
from rankcore.routing.commands import Complete, Decline, Dispatch, Expire, Fail, FailPart, Reject, Retry
from rankcore.routing.credits import CreditBook, Grant, Holder, RouterJoined, credit_step, open_credits
from rankcore.routing.events import (
    AnswerBegun,
    AvailabilityChanged,
    ReplicaLost,
    RequestArrived,
    RequestDone,
    RequestFailed,
    RouterOpened,
    RoutesChanged,
    RoutingSpecChanged,
)
from rankcore.routing.image import RouterImage
from rankcore.routing.invariants import check, check_credits, check_indexes, check_step
from rankcore.routing.notes import RoutingNote, RoutingNoteKind

SPEC = RoutingSpec(name="llm", max_ongoing_requests=1, max_queued_requests=3, request_timeout_s=50.0)


def state_of(*events, spec: RoutingSpec = SPEC) -> RouterState:
    state = open_router(spec)
    routes = RoutesChanged(added=(Route("a", 0), Route("b", 1)), world_size=2, at=0.0)
    for event in (routes, *events):
        state = route_step(state, event).state
    assert check(state) == []
    return state


def arrived(*numbers: int, **fields) -> list[RequestArrived]:
    return [RequestArrived(request_id=number, at=1.0, **fields) for number in numbers]


def rules(found) -> set[str]:
    assert all(str(each).startswith(each.rule) for each in found)
    return {each.rule for each in found}


def changed(image: RouterImage, index: int, **fields) -> RouterImage:
    requests = list(image.requests)
    requests[index] = replace(requests[index], **fields)
    return replace(image, requests=tuple(requests))


def replica(image: RouterImage, index: int, **fields) -> RouterImage:
    replicas = list(image.replicas)
    replicas[index] = replace(replicas[index], **fields)
    return replace(image, replicas=tuple(replicas))


class Shown(RouterState):
    """A state that shows any image, sound or not."""

    __slots__ = ()

    def __init__(self, image: RouterImage) -> None:
        self._image = image


BROKEN_STATES = {
    "nowhere": ("Q1", lambda image: changed(image, 2, waits=False)),
    "twice": ("Q1", lambda image: changed(image, 0, waits=True)),
    "answered and waiting": ("Q1", lambda image: changed(image, 2, answered=True)),
    "on a stranger": ("Q1", lambda image: changed(image, 0, replica_id="z")),
    "miscounted": ("Q1", lambda image: replica(image, 0, in_flight=3)),
    "a ghost": ("Q1", lambda image: replica(changed(image, 0, replica_id="b"), 0, routed=False, in_flight=0)),
    "idle": ("Q3", lambda image: replica(image, 0, limit=2)),
    "idle for a rank": ("Q3", lambda image: replica(changed(image, 2, rank=1), 1, limit=2)),
    "beyond": ("Q3", lambda image: changed(image, 2, rank=7)),
    "overdue": ("Q7", lambda image: replace(image, clock=60.0)),
    "no wake-up": ("Q7", lambda image: replace(image, wake_at=70.0)),
}


@pytest.mark.parametrize("name", BROKEN_STATES)
def test_a_broken_state_is_found(name: str):
    rule, plant = BROKEN_STATES[name]
    image = state_of(*arrived(1, 2, 3)).image
    assert rule in rules(check(Shown(plant(image))))


def test_a_broadcast_that_is_not_whole_is_found():
    image = state_of(*arrived(1, broadcast=True)).image
    assert rules(check(Shown(changed(image, 2, part=5)))) == {"Q9"}
    both = changed(changed(image, 1, answered=True), 2, answered=True)
    assert "Q9" in rules(check(Shown(both)))


LOST = ReplicaLost(replica_id="a", at=2.0)


def step_of(events, event, spec: RoutingSpec = SPEC) -> tuple[RouterState, object, RouteStep]:
    before = state_of(*events, spec=spec)
    step = route_step(before, event)
    assert check_step(before, event, step) == []
    return before, event, step


def broken(before, event, step, **told) -> set[str]:
    """What is found when a step came to something else: another image, other commands, other notes."""
    state = Shown(told["image"]) if "image" in told else step.state
    return rules(
        check_step(before, event, RouteStep(state, told.get("commands", step.commands), told.get("notes", step.notes)))
    )


def test_an_answer_that_is_missing_or_given_twice_is_found():
    before, event, step = step_of(arrived(1), RequestDone(request_id=1, at=2.0))
    assert "Q1" in broken(before, event, step, commands=())
    assert "Q1" in broken(before, event, step, commands=step.commands * 2)
    assert "Q1" in broken(before, event, step, commands=(*step.commands, Complete(9)))


def test_a_limit_that_is_exceeded_is_found():
    before, event, step = step_of([], arrived(1)[0])
    assert "Q2" in broken(before, event, step, image=replica(step.state.image, 0, in_flight=2))
    assert "Q2" in broken(before, event, step, image=replica(step.state.image, 0, routed=False))
    spec = RoutingSpec(name="llm", by_credits=True)
    before = state_of(spec=spec)
    image = replica(changed(state_of(*arrived(1)).image, 0), 0, credits=0)
    lying = RouteStep(Shown(replace(image, spec=spec)), (Dispatch(1, "a"),), ())
    assert "Q2" in rules(check_step(before, event, lying))


def test_who_overtakes_or_goes_to_another_rank_is_found():
    before, event, step = step_of(arrived(1, 2, 3, 4), RequestDone(request_id=1, at=2.0))
    image = changed(changed(step.state.image, 1, waits=True, replica_id=None), 2, waits=False, replica_id="a", attempt=1)
    assert "Q4" in broken(before, event, step, image=image, commands=(Complete(1), Dispatch(4, "a")))
    assert "Q4" in broken(before, event, step, commands=(*step.commands, Dispatch(77, "a")))
    before, event, step = step_of([], arrived(1, rank=0)[0])
    assert "Q4" in broken(before, event, step, commands=(Dispatch(1, "b"),))


def test_who_is_turned_away_without_need_is_found():
    before, event, step = step_of([], arrived(1)[0])
    assert "Q5" in broken(before, event, step, commands=(Reject(1, 1.0, ""),))
    before, event, step = step_of(arrived(1, 2), arrived(3)[0])
    assert "Q5" in broken(before, event, step, commands=(Reject(3, 1.0, ""),))
    assert "Q5" in broken(before, event, step, commands=(Reject(3, 0.1, ""),))
    before, event, step = step_of(arrived(1, 2, 3), RequestDone(request_id=1, at=2.0))
    assert "Q5" in broken(before, event, step, commands=(Reject(3, 1.0, ""),))


def test_a_router_that_opens_and_turns_the_wrong_ones_away_is_found():
    spec = RoutingSpec(name="llm", max_ongoing_requests=1, max_queued_requests=2, request_timeout_s=50.0)
    before = open_router(spec, opened=False)
    for event in (RoutesChanged(added=(Route("a", 0), Route("b", 1)), world_size=2, at=0.0), *arrived(1, 2, 3, 4, 5)):
        step = route_step(before, event)
        assert check_step(before, event, step) == []
        before = step.state
    assert "Q5" in broken(before, arrived(6)[0], route_step(before, arrived(6)[0]), commands=(Reject(6, 1.0, ""),))
    event = RouterOpened(at=2.0)
    step = route_step(before, event)
    assert check_step(before, event, step) == []
    assert step.commands == (Reject(5, 1.0, "2 requests of deployment 'llm' wait, max_queued_requests is 2"),)
    assert "Q5" in broken(before, event, step, commands=(Reject(1, 1.0, ""),))
    assert "Q5" in broken(before, event, step, commands=(Reject(3, 1.0, ""),))
    assert "Q5" in broken(before, event, step, commands=(*step.commands, Reject(4, 1.0, "")), image=without(step, 4))
    assert "Q5" in broken(before, event, step, commands=(), image=replace(before.image, opened=True))
    assert "Q5" in broken(step.state, event, route_step(step.state, event), commands=(Reject(4, 1.0, ""),))


def test_who_is_declined_while_somebody_serves_or_left_waiting_while_nobody_does_is_found():
    gone = AvailabilityChanged(problem="all have died", retry_after_s=5.0, at=2.0)
    before = route_step(state_of(*arrived(1, 2, 3)), RoutesChanged(complete=True, at=1.5)).state
    step = route_step(before, gone)
    declined = Decline(3, "all have died", 5.0)
    assert step.commands == (declined,)
    assert check_step(before, gone, step) == []
    assert "Q11" in broken(before, gone, step, commands=(Decline(3, "another reason", 5.0),))
    assert "Q11" in broken(before, gone, step, commands=(Decline(3, "all have died", 1.0),))
    assert "Q11" in broken(before, arrived(4)[0], route_step(before, arrived(4)[0]), commands=(Decline(4, "nobody", 5.0),))
    over = AvailabilityChanged(at=3.0)
    assert "Q11" in broken(step.state, over, route_step(step.state, over), image=replace(step.state.image, clock=3.0))
    unsaid = replace(before.image, unavailable=step.state.image.unavailable)
    assert "Q11" in broken(before, arrived(4)[0], route_step(before, arrived(4)[0]), image=unsaid)
    assert {"Q11"} <= rules(check(Shown(unsaid)))
    routed = replace(state_of().image, unavailable=step.state.image.unavailable)
    assert rules(check(Shown(routed))) == {"Q11"}


def without(step, number: int) -> RouterImage:
    image = step.state.image
    return replace(image, requests=tuple(each for each in image.requests if each.request_id != number))


def test_what_is_done_again_without_leave_is_found():
    again = RoutingSpec(name="llm", max_ongoing_requests=1, idempotent=True)
    before, event, step = step_of([*arrived(1), AnswerBegun(request_id=1, at=1.0)], LOST, spec=again)
    image = changed(before.image, 0, replica_id=None, waits=True)
    assert "Q6" in broken(before, event, step, image=image)
    before, event, step = step_of(arrived(1), LOST)
    image = changed(before.image, 0, replica_id="b", attempt=2)
    assert "Q6" in broken(before, event, step, image=image, commands=(Dispatch(1, "b", 2),))
    assert "Q6" in broken(before, event, step, image=image, commands=(Retry(1, "b", 1),))


def test_a_deadline_that_is_missed_or_too_early_is_found():
    before, event, step = step_of([], arrived(1)[0])
    assert "Q7" in broken(before, event, step, commands=(Expire(1, ""),))
    soon = RequestArrived(request_id=1, deadline=40.0, at=1.0)
    before, event, step = step_of([], soon)
    assert "Q7" in broken(before, event, step, image=replace(step.state.image, clock=90.0))
    assert "Q7" in broken(before, event, step, image=replace(step.state.image, clock=-1.0))


def test_a_spec_that_costs_somebody_its_place_is_found():
    spec = RoutingSpec(name="llm", max_ongoing_requests=1, max_queued_requests=0)
    more = RoutingSpec(name="llm", max_ongoing_requests=2)
    assert step_of(arrived(1, 2, 3), RoutingSpecChanged(spec=more, at=2.0))[2].commands
    before, event, step = step_of(arrived(1, 2, 3), RoutingSpecChanged(spec=spec, at=2.0))
    assert "Q8" in broken(before, event, step, commands=(Fail(3, None, ""),))
    assert "Q8" in broken(before, event, step, image=replace(step.state.image, spec=SPEC))


def test_a_broadcast_that_is_complete_too_early_is_found():
    events = [*arrived(1, broadcast=True), RequestDone(request_id=1, part=0, at=1.0)]
    before, event, step = step_of(events, RequestDone(request_id=1, part=1, at=2.0))
    assert "Q9" in broken(before, event, step, commands=(Complete(1),))
    before, event, step = step_of(arrived(1, broadcast=True), RequestDone(request_id=1, part=1, at=2.0))
    assert "Q9" in broken(before, event, step, commands=(Complete(1, 2),))


def test_a_part_that_fails_decides_where_failures_are_not_kept_and_nowhere_else():
    failed = RequestFailed(request_id=1, part=1, kind=FailureKind.RAISED, at=2.0)
    before, event, step = step_of(arrived(1, broadcast=True), failed)
    assert "Q9" in broken(before, event, step, commands=(FailPart(1, FailureKind.RAISED, "", 1),))
    before, event, step = step_of(arrived(1, broadcast=True, keep_failures=True), failed)
    assert step.commands == (FailPart(1, FailureKind.RAISED, "", 1),)
    assert "Q9" in broken(before, event, step, commands=step.commands * 2)
    assert "Q9" in broken(before, event, step, commands=(*step.commands, Fail(1, FailureKind.RAISED, "", 1)))
    assert "Q10" in broken(before, event, step, notes=())


def test_what_has_no_reason_is_found():
    before, event, step = step_of([], arrived(1)[0])
    assert broken(before, event, step, notes=()) == {"Q10"}
    late = (RoutingNote(RoutingNoteKind.LATE, "Q1", 1),)
    assert "Q10" in broken(before, event, step, notes=late)
    failed = RequestFailed(request_id=1, kind=FailureKind.RAISED, at=2.0)
    before, event, step = step_of(arrived(1), failed)
    assert broken(before, event, step, notes=()) == {"Q10"}


def test_an_index_that_disagrees_is_found():
    router = Router(SPEC)
    router.step(RoutesChanged(added=(Route("a", 0),), at=0.0))
    assert check_indexes(router) == []
    router.in_flight = 3
    assert rules(check_indexes(router)) == {"index"}
    assert image_of(router).replicas[0].replica_id == "a"


def test_a_book_that_grants_too_much_is_found():
    book = credit_step(open_credits(2), RouterJoined(router_id="r")).state
    assert check_credits(book) == []
    holder = book.holders["r"]
    planted = {
        "C1": [Holder(0, (Grant(1, 3),), 3), replace(holder, at_work=3)],
        "C2": [Holder(0, (Grant(2, 1), Grant(1, 1)), 1)],
        "C4": [Holder(0, (Grant(0, 1),), 1, lost=True)],
    }
    for rule, holders in planted.items():
        for each in holders:
            assert rule in rules(check_credits(CreditBook(2, book.holders.set("r", each), 1, 1)))
