"""`RoutingSpec.router`: a user's code says who may have a request (docs/routing.md), one example for each rule."""

import pickle

import pytest

from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.routing import FailureKind, Route, Router, RouterState, RoutingSpec, image_of, route_step
from rankcore.routing.commands import AskCredits, Complete, Decline, Dispatch, Fail, Propose, Reject, Retry
from rankcore.routing.events import (
    AvailabilityChanged,
    CreditsGranted,
    ReplicasProposed,
    RequestArrived,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    RouterClosed,
    RouterOpened,
    RoutesChanged,
    RoutingSpecChanged,
)
from rankcore.routing.image import router_of
from rankcore.routing.invariants import check, check_indexes, check_step
from rankcore.routing.notes import RoutingNoteKind

A, B, C = "llm#1.0", "llm#1.1", "llm#1.2"


def spec(**fields) -> RoutingSpec:
    return RoutingSpec(**{"name": "llm", "max_ongoing_requests": 1, "router": "code", **fields})


def router(replicas: int = 3, opened: bool = True, **fields) -> Router:
    made = Router(spec(**fields), opened=opened)
    made.step(RoutesChanged(added=tuple(Route(f"llm#1.{rank}", rank) for rank in range(replicas)), world_size=3, at=0.0))
    return made


def arrive(made: Router, request_id: int, **fields):
    return made.step(RequestArrived(request_id=request_id, at=0.0, **fields)).commands


def propose(made: Router, request_id: int, *ranked: tuple[str, ...]):
    return made.step(ReplicasProposed(request_id=request_id, ranked=ranked, at=0.0)).commands


def done(made: Router, request_id: int, attempt: int = 1):
    return made.step(RequestDone(request_id=request_id, attempt=attempt, at=0.0)).commands


def test_a_request_is_asked_about_and_goes_to_who_was_proposed():
    made = router()
    assert arrive(made, 1) == (Propose(1),)
    assert propose(made, 1, (B,)) == (Dispatch(1, B),)
    assert done(made, 1) == (Complete(1),)


def test_the_first_group_in_which_anybody_has_room_gets_it_and_of_it_the_least_loaded():
    made = router(max_ongoing_requests=2)
    for number, group in enumerate([(A,), (A,), (B,)]):
        arrive(made, number)
        propose(made, number, group)
    arrive(made, 7)
    assert propose(made, 7, (A,), (B, C), (C,)) == (Dispatch(7, C),)
    arrive(made, 8)
    assert propose(made, 8, ("nobody",), (), (C, B)) == (Dispatch(8, C),), "of equals the one that is named first"


def test_what_nobody_could_take_goes_to_the_first_of_the_proposed_that_has_room_and_to_nobody_else():
    made = router()
    for number, replica in enumerate((A, B)):
        arrive(made, number)
        propose(made, number, (replica,))
    arrive(made, 5)
    arrive(made, 6)
    assert propose(made, 6, (A,)) == ()
    assert propose(made, 5, (B,), (A,)) == ()
    assert made.waiting == 2, "C has room, and is proposed for neither"
    assert done(made, 0) == (Complete(0), Dispatch(5, A)), "the older one first"
    assert done(made, 1) == (Complete(1),), "nobody waits for B"
    assert done(made, 5) == (Complete(5), Dispatch(6, A))
    assert check_indexes(made) == []


def test_a_later_proposal_takes_the_place_of_the_one_before():
    made = router()
    arrive(made, 1)
    propose(made, 1, (A,))
    arrive(made, 2)
    assert propose(made, 2, (A,)) == ()
    assert propose(made, 2) == ()
    assert done(made, 1) == (Complete(1),)
    assert propose(made, 2, (A,)) == (Dispatch(2, A),)


def test_a_proposal_for_what_does_not_wait_changes_nothing():
    made = router()
    for number, fields in ((1, {}), (2, {"rank": 0}), (3, {"rank": 0})):
        arrive(made, number, **fields)
    propose(made, 1, (B,))
    for number in (1, 2, 3, 9):
        outcome = made.step(ReplicasProposed(request_id=number, ranked=((C,),), at=0.0))
        assert outcome.commands == ()
        assert [note.kind for note in outcome.notes] == [RoutingNoteKind.LATE]
    other = router(router="", max_queued_requests=9)
    for number in range(4):
        arrive(other, number)
    assert propose(other, 3, (A,)) == ()


def test_a_rank_is_found_whatever_is_proposed_and_takes_its_turn():
    made = router(2)
    assert arrive(made, 1, rank=0) == (Dispatch(1, A),)
    arrive(made, 2)
    propose(made, 2, (A,))
    assert arrive(made, 3, rank=0) == ()
    assert done(made, 1) == (Complete(1), Dispatch(2, A))
    assert done(made, 2) == (Complete(2), Dispatch(3, A))


def test_a_newcomer_is_turned_away_only_when_nobody_who_was_proposed_has_room():
    made = router(max_queued_requests=1)
    for number in range(4):
        assert arrive(made, number) == (Propose(number),), "somebody has room"
    assert propose(made, 0, (A,)) == (Dispatch(0, A),)
    assert propose(made, 1, (A,)) == ()
    (rejected,) = propose(made, 2, (A,))
    assert isinstance(rejected, Reject)
    assert propose(made, 3, (B,)) == (Dispatch(3, B),)
    assert propose(made, 1, (A,)) == (), "what was accepted stays, whatever is proposed next"
    arrive(made, 4)
    propose(made, 4, (C,))
    (at_once,) = arrive(made, 5)
    assert isinstance(at_once, Reject), "nobody at all has room"


def test_what_is_refused_keeps_its_place_and_is_asked_about_anew():
    made = router(idempotent=True)
    arrive(made, 1)
    propose(made, 1, (A,))
    again = made.step(RequestFailed(request_id=1, kind=FailureKind.REFUSED, at=0.0)).commands
    assert again[0] == Propose(1)
    assert propose(made, 1, (A,)) == (), "it is left alone for a while"
    assert propose(made, 1, (A,), (B,)) == (Retry(1, B, 2, None, "refused"),)
    made.step(RequestArrived(request_id=2, at=0.0))
    made.step(RouterClosed(at=0.0))
    (failed,) = made.step(RequestFailed(request_id=1, attempt=2, kind=FailureKind.REFUSED, at=0.0)).commands[:1]
    assert isinstance(failed, Fail)
    (late,) = arrive(made, 3)
    assert isinstance(late, Fail)


def test_who_is_gone_is_not_proposed_any_more():
    made = router()
    made.step(RoutesChanged(removed=(A,), at=0.0))
    arrive(made, 1)
    assert propose(made, 1, (A,)) == ()
    assert made.step(RoutesChanged(added=(Route(A, 0),), at=0.0)).commands == (), "it may be another by now"


def test_what_waits_when_the_policy_comes_is_asked_about_and_when_it_goes_is_served():
    made = router(1, router="", max_queued_requests=1)
    arrive(made, 1)
    arrive(made, 2)
    changed = RoutingSpecChanged(spec=spec(max_queued_requests=0), at=0.0)
    assert made.step(changed).commands == (Propose(2),)
    assert propose(made, 2, (B,)) == (), "it was accepted"
    assert done(made, 1) == (Complete(1),), "A was not proposed for it"
    assert made.step(RoutingSpecChanged(spec=spec(router=""), at=0.0)).commands == (Dispatch(2, A),)


def test_another_code_is_asked_about_what_waits():
    made = router()
    arrive(made, 1)
    propose(made, 1)
    assert made.step(RoutingSpecChanged(spec=spec(router="other"), at=0.0)).commands == (Propose(1),)
    assert propose(made, 1, (A,)) == (Dispatch(1, A),)
    older = spec().__getstate__()
    del older["router"]
    read = RoutingSpec.__new__(RoutingSpec)
    read.__setstate__(older)
    assert read == spec(router="")
    assert pickle.loads(pickle.dumps(spec())) == spec()


def test_the_first_requests_of_a_process_are_accepted_by_their_proposals():
    made = Router(RoutingSpec(name="llm"), opened=False)
    for number in range(4):
        assert arrive(made, number) == ()
    assert made.step(RoutingSpecChanged(spec=spec(max_queued_requests=1), at=0.0)).commands == tuple(map(Propose, range(4)))
    made.step(RoutesChanged(added=(Route(A, 0),), world_size=1, at=0.0))
    assert propose(made, 0, (A,)) == (Dispatch(0, A),)
    assert made.step(RouterOpened(at=0.0)).commands == (), "it may be that all of them are given away"
    assert propose(made, 1, (A,)) == ()
    assert isinstance(propose(made, 2, (A,))[0], Reject)
    assert done(made, 0) == (Complete(0), Dispatch(1, A))


def test_credits_are_asked_for_where_they_were_proposed_for_and_of_anybody_where_nobody_was():
    made = router(by_credits=True, max_ongoing_requests=5)
    arrive(made, 1)
    assert propose(made, 1, (B,), (C,)) == (AskCredits(B, 1, 0),)
    arrive(made, 2)
    assert propose(made, 2, (B,)) == (), "it knows already"
    granted = made.step(CreditsGranted(replica_id=B, credits=1, version=1, at=0.0)).commands
    assert granted == (Dispatch(1, B), AskCredits(B, 2, 1))
    arrive(made, 3)
    assert propose(made, 3) == (AskCredits(A, 1, 0),)
    assert made.step(CreditsGranted(replica_id=A, credits=1, version=1, at=0.0)).commands == (), "nobody is to go there yet"
    assert propose(made, 3, (A,)) == (Dispatch(3, A),)
    arrive(made, 4, rank=0)
    assert made.waiting == 2
    nobody = Router(spec(by_credits=True, max_ongoing_requests=5))
    nobody.step(RoutesChanged(added=(Route(A),), world_size=3, at=0.0))
    arrive(nobody, 1)
    assert propose(nobody, 1, (A,)) == (AskCredits(A, 1, 0),)


def test_while_nobody_serves_what_is_asked_about_is_declined_too():
    made = Router(spec())
    arrive(made, 1)
    (declined,) = made.step(AvailabilityChanged(problem="it fails to start", at=0.0)).commands
    assert isinstance(declined, Decline)
    assert isinstance(arrive(made, 2)[0], Decline)


def test_a_state_goes_on_from_its_image():
    made = router()
    for number in range(3):
        arrive(made, number)
    propose(made, 0, (A,))
    propose(made, 1, (A,), (A, B))
    propose(made, 1, (A,))
    again = router_of(image_of(made))
    assert image_of(again) == image_of(made)
    assert check_indexes(again) == []
    assert check(RouterState.of(image_of(made))) == []
    again.step(RequestCancelled(request_id=1, at=0.0))
    assert check_indexes(again) == []


def test_the_invariants_see_what_was_turned_away_too_early():
    made = router(max_queued_requests=0)
    arrive(made, 1)
    before = RouterState.of(image_of(made))
    step = route_step(before, ReplicasProposed(request_id=1, ranked=((A,),), at=0.0))
    assert check_step(before, ReplicasProposed(request_id=1, ranked=((A,),), at=0.0), step) == []
    wrong = step._replace(commands=(Reject(1, 1.0, "no"),))
    found = [each.detail for each in check_step(before, ReplicasProposed(request_id=1, ranked=((A,),), at=0.0), wrong)]
    assert any("while a replica that was proposed has room" in each for each in found)
    late = made.step(ReplicasProposed(request_id=1, ranked=(("nobody",),), at=0.0))
    assert isinstance(late.commands[0], Reject)
    made = router(max_queued_requests=1)
    arrive(made, 1)
    before = RouterState.of(image_of(made))
    news = ReplicasProposed(request_id=1, at=0.0)
    step = route_step(before, news)
    wrong = step._replace(commands=(Reject(1, 1.0, "no"),))
    assert any("while 0 of 1 wait" in each.detail for each in check_step(before, news, wrong))
    again = route_step(step.state, news)._replace(commands=(Reject(1, 1.0, "no"),))
    assert any("what had been accepted" in each.detail for each in check_step(step.state, news, again))


def test_the_invariants_know_that_who_is_not_proposed_overtakes_nobody():
    state = RouterState.of(image_of(router()))
    for number, group in ((1, (A,)), (2, (A,)), (3, (A, B))):
        for event in (RequestArrived(request_id=number, at=0.0), ReplicasProposed(request_id=number, ranked=(group,), at=0.0)):
            step = route_step(state, event)
            assert check_step(state, event, step) == []
            state = step.state
    assert step.commands == (Dispatch(3, B),), "the second waits for A"


@pytest.mark.parametrize(("ranked", "field"), [([], "ranked"), (([],), "ranked[0]"), ((("",),), "ranked[0][0]")])
def test_what_is_no_proposal_is_refused(ranked, field):
    with pytest.raises(InvalidEventError, match=rf"ReplicasProposed\.{field}".replace("[", r"\[").replace("]", r"\]")):
        ReplicasProposed(request_id=1, ranked=ranked, at=0.0)
    with pytest.raises(InvalidSpecError, match="router"):
        spec(router=1)
