"""What the router promises, one example each; tests/property/test_router.py has the laws."""

import copy

import pytest

from rankcore.errors import InvalidEventError, InvalidSpecError, UnknownDeploymentError
from rankcore.events import ClockAdvanced
from rankcore.routing import FailureKind, Route, Router, RouterState, RoutingSpec, image_of, open_router, route_step, router_of
from rankcore.routing.commands import (
    AskCredits,
    Command,
    Complete,
    Dispatch,
    Expire,
    Fail,
    FailPart,
    Forget,
    Reject,
    Retry,
    ReturnCredits,
    StopAttempt,
    WakeAt,
)
from rankcore.routing.events import (
    AnswerBegun,
    CreditsGranted,
    KeysHeld,
    ReplicaLost,
    RequestArrived,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    RouterClosed,
    RouterOpened,
    RoutesChanged,
    RoutingSpecChanged,
)
from rankcore.routing.invariants import check_indexes
from rankcore.routing.policies.power_of_two import mixed
from rankcore.routing.records import Line, Request


def router(replicas: int = 2, explains: bool = True, **fields) -> Router:
    made = Router(RoutingSpec(**{"name": "llm", "max_ongoing_requests": 1, **fields}), explains=explains)
    routes = tuple(Route(f"llm#1.{rank}", rank) for rank in range(replicas))
    made.step(RoutesChanged(added=routes, world_size=replicas or None, at=0.0))
    return made


def arrive(made: Router, *request_ids: object, at: float = 0.0, **fields):
    return [command for each in request_ids for command in made.step(RequestArrived(request_id=each, at=at, **fields)).commands]


def sent_to(commands) -> list[str]:
    return [command.replica_id for command in commands if isinstance(command, (Dispatch, Retry))]


# -- who gets it


def test_whoever_is_idle_for_longest_takes_the_next_of_a_shared_queue():
    made = router(3, policy="shared_queue")
    assert sent_to(arrive(made, 1, 2, 3)) == ["llm#1.0", "llm#1.1", "llm#1.2"]
    for request_id in (2, 1):
        made.step(RequestDone(request_id=request_id, at=1.0))
    assert sent_to(arrive(made, 4, 5)) == ["llm#1.1", "llm#1.0"]


def test_round_robin_gives_each_its_turn_however_loaded_it_is():
    made = router(3, policy="round_robin", max_ongoing_requests=9)
    assert sent_to(arrive(made, *range(6))) == [f"llm#1.{number % 3}" for number in range(6)]
    made.step(RequestDone(request_id=5, at=1.0))
    assert sent_to(arrive(made, 7)) == ["llm#1.0"]


def test_round_robin_drops_what_is_out_of_date():
    made = router(2, policy="round_robin", max_ongoing_requests=1)
    arrive(made, "first")
    for number in range(300):
        made.step(RoutesChanged(removed=("llm#1.1",), at=0.0))
        made.step(RoutesChanged(added=(Route("llm#1.1", 1),), at=0.0))
        arrive(made, number)
        made.step(RequestDone(request_id=number, at=0.0))
    assert len(made.choice._heap) < 100
    assert check_indexes(made) == []


def test_of_equals_whoever_is_so_for_longest_takes_the_next():
    made = router(3, max_ongoing_requests=3)
    assert sent_to(arrive(made, *range(6))) == ["llm#1.0", "llm#1.1", "llm#1.2"] * 2
    for request_id in (2, 0):
        made.step(RequestDone(request_id=request_id, at=1.0))
    assert sent_to(arrive(made, 6, 7, 8)) == ["llm#1.2", "llm#1.0", "llm#1.1"]


def test_least_loaded_finds_the_lowest_load_across_any_gap():
    made = router(2, by_credits=True, max_ongoing_requests=90)
    made.step(CreditsGranted(replica_id="llm#1.0", credits=90, version=1, at=0.0))
    arrive(made, *range(80))
    made.step(CreditsGranted(replica_id="llm#1.1", credits=1, version=1, at=0.0))
    for number in range(100, 103):
        assert sent_to(arrive(made, number)) == ["llm#1.1"]
        assert sent_to(arrive(made, -number)) == ["llm#1.0"]
        made.step(RequestDone(request_id=number, at=0.0))
        made.step(RequestDone(request_id=-number, at=0.0))
        assert check_indexes(made) == []
    assert sent_to(arrive(made, *range(200, 220))) == ["llm#1.1", *["llm#1.0"] * 10]


@pytest.mark.parametrize("policy", ["round_robin", "power_of_two", "least_loaded", "shared_queue"])
def test_a_snapshot_names_who_has_room(policy):
    made = router(3, policy=policy, max_ongoing_requests=1)
    (busy,) = sent_to(arrive(made, 1))
    assert sorted(image_of(made).open) == sorted({"llm#1.0", "llm#1.1", "llm#1.2"} - {busy})


def test_a_replica_of_another_rank_than_before_gets_what_is_for_that_one():
    made = router(2, max_ongoing_requests=9)
    made.step(RoutesChanged(added=(Route("llm#1.1", 0),), at=0.0))
    assert check_indexes(made) == []
    assert sent_to(arrive(made, 1, rank=1)) == []
    made.step(RoutesChanged(added=(Route("llm#1.0", 1),), at=0.0))
    assert sent_to(arrive(made, 2, rank=0)) == ["llm#1.1"]


def test_a_replica_that_was_taken_out_of_the_routes_while_it_works_gets_requests_again_once_it_is_back():
    made = router(replicas=1, max_ongoing_requests=2)
    arrive(made, "first")
    made.step(RoutesChanged(removed=("llm#1.0",), at=1.0))
    assert sent_to(arrive(made, "second", at=2.0)) == []
    back = made.step(RoutesChanged(added=(Route("llm#1.0", 0),), world_size=1, at=3.0))
    assert sent_to(back.commands) == ["llm#1.0"]


def test_two_choices_are_drawn_from_the_state_and_spread_the_load():
    loads = []
    for seed in (1, 1, 2):
        made = router(64, policy="power_of_two", max_ongoing_requests=100, seed=seed)
        loads.append([sent_to(arrive(made, number))[0] for number in range(640)])
        assert max(loads[-1].count(each) for each in loads[-1]) <= 14
    assert loads[0] == loads[1] != loads[2]
    assert sent_to(arrive(router(1, policy="power_of_two"), 1, 2)) == ["llm#1.0"]
    assert mixed(0) == 0
    assert mixed(1) == 0xE220A8397B1DCDAF, "the first number of SplitMix64 with seed 0"


def test_requests_of_a_key_go_to_who_has_it_ready_as_long_as_that_has_room():
    made = router(3, policy="affinity", max_ongoing_requests=2)
    (by_hash,) = sent_to(arrive(made, 0, key="fr"))
    having, other = (each for each in ("llm#1.0", "llm#1.1", "llm#1.2") if each != by_hash)
    for replica_id, keys in ((by_hash, ("de",)), (having, ("fr", "fr")), (other, ("fr",)), (other, ())):
        assert made.step(KeysHeld(replica_id=replica_id, keys=keys, at=0.0)).commands == ()
    assert sent_to(arrive(made, 1, 2, key="fr")) == [having, having]
    assert sent_to(arrive(made, 3, key="fr")) == [by_hash], "who has it has no room"
    made.step(KeysHeld(replica_id=other, keys=("fr",), at=0.0))
    made.step(RequestDone(request_id=1, at=0.0))
    assert sent_to(arrive(made, 4, key="fr")) == [other], "the less loaded of two that have it"
    made.step(RoutesChanged(removed=(having, other), at=0.0))
    made.step(KeysHeld(replica_id=having, keys=("es",), at=0.0))
    made.step(RequestDone(request_id=0, at=0.0))
    assert sent_to(arrive(made, 5, key="fr")) == [by_hash]
    (note,) = made.step(KeysHeld(replica_id="unknown", keys=("fr",), at=0.0)).notes
    assert note.kind.value == "late"
    assert list(made.choice._holders) == list(router_of(image_of(made)).choice._holders) == ["de"]
    made.step(RoutingSpecChanged(spec=RoutingSpec(name="llm"), at=0.0))
    made.step(KeysHeld(replica_id=by_hash, keys=("fr",), at=0.0))
    assert check_indexes(made) == []


def test_requests_of_one_key_go_to_one_replica_up_to_its_bounded_load():
    made = router(4, policy="affinity", max_ongoing_requests=100, load_factor=2.0)
    owners = set()
    for number in range(-5, 0):
        owners |= set(sent_to(arrive(made, number, key="session")))
        made.step(RequestDone(request_id=number, at=0.0))
    assert len(owners) == 1
    found = sent_to(arrive(made, *range(3, 100), key="session"))
    assert max(found.count(each) for each in found) <= 51
    assert sent_to(arrive(made, "no key"))


def test_a_replacement_gets_the_keys_of_the_one_that_it_replaces_and_no_others():
    def owners(replicas: dict[int, str]) -> dict[str, str]:
        made = Router(RoutingSpec(name="llm", policy="affinity", max_ongoing_requests=1000))
        made.step(RoutesChanged(added=tuple(Route(each, rank) for rank, each in replicas.items()), at=0.0))
        return {
            str(key): sent_to(arrive(made, key, key=str(key)))[0]
            for key in range(50)
            if not made.step(RoutingSpecChanged(spec=made.spec, at=0.0)).commands
        }

    before = owners({0: "a", 1: "b", 2: "c"})
    after = owners({0: "a", 1: "B", 2: "c"})
    assert {each.replace("b", "B") for each in before.values()} == set(after.values())
    assert [after[key] for key in before] == [each.replace("b", "B") for each in before.values()]


def test_a_key_whose_neighbours_have_no_room_goes_to_whoever_has():
    made = router(12, policy="affinity")
    assert sorted(sent_to(arrive(made, *range(12), key="one"))) == sorted(f"llm#1.{number}" for number in range(12))


def test_a_request_for_a_rank_waits_for_that_rank_and_goes_there():
    made = router(2)
    assert sent_to(arrive(made, 1, rank=1)) == ["llm#1.1"]
    assert sent_to(arrive(made, 2, rank=1)) == []
    assert sent_to(made.step(RequestDone(request_id=1, at=1.0)).commands) == ["llm#1.1"]
    (fail,) = arrive(made, 3, rank=2)
    assert isinstance(fail, Fail)
    assert "has no rank 2: its world size is 2" in fail.reason


def test_of_what_waits_for_a_rank_and_for_anybody_the_older_goes_first():
    made = router(1)
    arrive(made, 1)
    arrive(made, 2, rank=0)
    arrive(made, 3)
    arrive(made, 4, rank=0)
    order = [made.step(RequestDone(request_id=number, at=1.0)).commands[-1].request_id for number in (1, 2, 3)]
    assert order == [2, 3, 4]


def test_the_answers_of_all_ranks_are_gathered_in_rank_order():
    made = router(3)
    assert sent_to(arrive(made, "all", broadcast=True)) == ["llm#1.0", "llm#1.1", "llm#1.2"]
    for part in (2, 0):
        assert not made.step(RequestDone(request_id="all", part=part, at=1.0)).commands
    assert made.step(RequestDone(request_id="all", part=1, at=1.0)).commands == (Complete("all", 3),)


def test_who_has_no_rank_takes_what_is_for_anybody_alone_until_it_has_one():
    made = router(2, max_ongoing_requests=2)
    made.step(RoutesChanged(added=(Route("llm#1.2"),), removed=("llm#1.1",), at=0.0))
    assert sent_to(arrive(made, 1, 2, 3, 4)) == ["llm#1.0", "llm#1.2"] * 2
    for number in (1, 3):
        made.step(RequestDone(request_id=number, at=1.0))
    assert sent_to(arrive(made, "for 1", rank=1, at=1.0)) == []
    assert sent_to(arrive(made, "all", broadcast=True, at=1.0)) == ["llm#1.0"], "it has two parts, one for each rank"
    assert sent_to(made.step(RequestDone(request_id=2, at=2.0)).commands) == []
    told = made.step(RoutesChanged(added=(Route("llm#1.2", 1),), at=3.0)).commands
    assert [(each.request_id, each.replica_id, each.part) for each in told] == [("for 1", "llm#1.2", None)]
    (rest,) = made.step(RequestDone(request_id=4, at=4.0)).commands[1:]
    assert (rest.request_id, rest.replica_id, rest.part) == ("all", "llm#1.2", 1)


def test_what_runs_without_a_rank_goes_on_when_its_replica_has_one():
    made = router(1)
    made.step(RoutesChanged(added=(Route("llm#1.2"),), removed=("llm#1.0",), at=0.0))
    assert sent_to(arrive(made, 1)) == ["llm#1.2"]
    assert not made.step(RoutesChanged(added=(Route("llm#1.2", 0),), at=1.0)).commands
    assert made.step(RequestDone(request_id=1, at=2.0)).commands == (Complete(1),)


def test_a_part_that_fails_decides_for_the_whole_broadcast():
    made = router(2)
    arrive(made, "all", broadcast=True)
    commands = made.step(RequestFailed(request_id="all", part=1, kind=FailureKind.RAISED, reason="boom", at=1.0)).commands
    assert commands == (Fail("all", FailureKind.RAISED, "boom", 1), StopAttempt("all", "llm#1.0", 1, 0))
    assert made.step(RequestDone(request_id="all", part=0, at=1.0)).commands == ()
    assert not made.requests


def test_where_failures_are_kept_each_part_has_its_own_end_and_the_whole_is_complete():
    made = router(4)
    arrive(made, "all", broadcast=True, keep_failures=True)
    arrive(made, "next", broadcast=True, keep_failures=True)
    (failed,) = made.step(RequestFailed(request_id="all", part=1, kind=FailureKind.RAISED, reason="boom", at=1.0)).commands[:1]
    assert failed == FailPart("all", FailureKind.RAISED, "boom", 1)
    failed, *_ = made.step(ReplicaLost(replica_id="llm#1.2", reason="oom", at=1.0)).commands
    assert (failed.kind, failed.part, failed.reason.startswith("replica llm#1.2 was lost (oom)")) == (FailureKind.LOST, 2, True)
    assert image_of(router_of(image_of(made))) == image_of(made)
    made.step(RequestDone(request_id="all", part=0, at=1.0))
    assert made.step(RequestDone(request_id="all", part=3, at=1.0)).commands[0] == Complete("all", 4)
    beyond = made.step(RoutesChanged(removed=("llm#1.3",), world_size=2, at=2.0)).commands
    assert beyond == (FailPart("next", None, "deployment 'llm' has no rank 2: its world size is 2", 2),)
    for part in (0, 1, 3):
        last = made.step(RequestDone(request_id="next", part=part, at=3.0)).commands
    assert last == (Complete("next", 4),)
    assert not made.requests


def test_where_failures_are_kept_the_last_part_that_fails_completes_the_whole_and_what_may_be_done_again_is():
    made = router(1, idempotent=True, max_retries=1)
    arrive(made, "all", broadcast=True, keep_failures=True)
    assert not made.step(ReplicaLost(replica_id="llm#1.0", reason="oom", at=1.0)).commands
    assert sent_to(made.step(RoutesChanged(added=(Route("llm#1.1", 0),), at=2.0)).commands) == ["llm#1.1"]
    failed, whole = made.step(ReplicaLost(replica_id="llm#1.1", reason="oom", at=3.0)).commands
    assert (failed.part, whole) == (0, Complete("all", 1))


def test_where_failures_are_kept_a_rank_that_nobody_has_is_not_waited_for_unless_nobody_has_any():
    made = router(3)
    made.step(RoutesChanged(removed=("llm#1.1",), at=1.0))
    vacant, *sent = arrive(made, "all", broadcast=True, keep_failures=True, at=1.0)
    assert vacant == FailPart("all", None, "nobody has rank 1 of deployment 'llm' at the moment", 1)
    assert sent_to(sent) == ["llm#1.0", "llm#1.2"]
    assert image_of(router_of(image_of(made))) == image_of(made)
    assert not made.step(RequestDone(request_id="all", part=0, at=2.0)).commands
    assert made.step(RequestDone(request_id="all", part=2, at=2.0)).commands == (Complete("all", 3),)
    made.step(RoutesChanged(removed=("llm#1.0", "llm#1.2"), at=3.0))
    assert arrive(made, "later", broadcast=True, keep_failures=True, at=3.0) == []
    assert sent_to(made.step(RoutesChanged(added=(Route("llm#1.5", 2),), at=4.0)).commands) == ["llm#1.5"]


def test_a_rank_that_nobody_has_takes_no_place_among_those_that_wait():
    made = router(2, max_queued_requests=0)
    made.step(RoutesChanged(removed=("llm#1.1",), at=1.0))
    assert sent_to(arrive(made, "kept", broadcast=True, keep_failures=True, at=1.0)) == ["llm#1.0"]
    made.step(RequestDone(request_id="kept", part=0, at=2.0))
    (refused,) = arrive(made, "all", broadcast=True, at=2.0)
    assert isinstance(refused, Reject)


def test_a_broadcast_that_waits_for_the_world_size_is_for_those_who_are_there_then():
    made = router(0)
    arrive(made, "all", broadcast=True, keep_failures=True)
    vacant, sent = made.step(RoutesChanged(added=(Route("llm#1.1", 1),), world_size=2, at=1.0)).commands
    assert (vacant.part, sent.part) == (0, 1)


# -- who waits, and who does not


def test_for_how_long_the_first_has_waited_is_known_whatever_it_waits_for():
    made = router(0)
    assert made.waits_since is None
    arrive(made, "all", broadcast=True, at=1.0)
    arrive(made, "a rank", rank=3, at=2.0)
    arrive(made, "anyone", at=3.0)
    assert made.waiting_requests == ["all", "a rank", "anyone"]
    for first, since in (("all", 1.0), ("a rank", 2.0), ("anyone", 3.0)):
        assert made.waits_since == since
        assert made.waiting_requests[0] == first
        made.step(RequestCancelled(request_id=first, at=4.0))
    assert made.waits_since is None


def test_what_comes_before_the_first_replica_waits_in_order():
    made = router(0)
    arrive(made, 1, 2)
    arrive(made, "all", broadcast=True)
    assert image_of(router_of(image_of(made))) == image_of(made)
    arrive(made, "not me", broadcast=True)
    made.step(RequestCancelled(request_id="not me", at=0.0))
    assert made.waiting == 3
    commands = made.step(RoutesChanged(added=(Route("llm#1.0", 0),), world_size=1, at=1.0)).commands
    assert sent_to(commands) == ["llm#1.0"]
    assert commands[0].request_id == 1


def test_too_many_are_turned_away_and_told_when_to_come_back():
    made = router(1, max_queued_requests=1)
    arrive(made, 1, 2)
    (reject,) = arrive(made, 3, at=7.0)
    assert isinstance(reject, Reject)
    assert reject.retry_after_s == 7.0, "as long as the oldest has waited"
    assert "max_queued_requests is 1" in reject.reason
    (reject,) = arrive(made, 4, at=7.0, broadcast=True)
    assert isinstance(reject, Reject)
    made = router(1, max_queued_requests=0)
    assert sent_to(arrive(made, 5, broadcast=True)) == ["llm#1.0"]
    assert arrive(made, 6)[0].retry_after_s == 1.0


def test_nothing_waits_for_a_deployment_that_is_deleted():
    made = router(1)
    arrive(made, 1, 2)
    arrive(made, "all", broadcast=True)
    made.step(RoutesChanged(world_size=2, at=0.5))
    arrive(made, "both", broadcast=True)
    commands = made.step(RouterClosed(reason="deleted", at=1.0)).commands
    assert [(type(each), each.request_id) for each in commands] == [(Fail, 2), (Fail, "all"), (Fail, "both")]
    assert isinstance(arrive(made, 3)[0], Fail)
    commands = made.step(RequestFailed(request_id=1, kind=FailureKind.REFUSED, at=1.0)).commands
    assert isinstance(commands[0], Fail)
    assert "deleted" in commands[0].reason


@pytest.mark.parametrize("policy", ["affinity", "least_loaded", "shared_queue", "round_robin", "power_of_two"])
def test_a_call_with_a_key_waits_where_the_last_replica_has_just_gone(policy):
    made = router(1, policy=policy, max_ongoing_requests=2)
    made.step(RoutesChanged(complete=True, at=1.0))
    assert arrive(made, 1, key="a", at=1.0) == []
    assert sent_to(made.step(RoutesChanged(added=(Route("llm#2.0", 0),), at=2.0)).commands) == ["llm#2.0"]


def opens_late(*names: str, **fields) -> Router:
    """One that takes requests before it knows the deployment's limits."""
    made = Router(RoutingSpec(name="llm"), opened=False)
    arrive(made, *range(6))
    made.step(RoutingSpecChanged(spec=RoutingSpec(**{"name": "llm", "max_ongoing_requests": 1, **fields}), at=0.5))
    made.step(RoutesChanged(added=tuple(Route(name) for name in names), at=1.0))
    return made


def test_what_came_before_the_limit_was_known_is_accepted_in_the_order_of_arrival():
    made = opens_late("a", max_queued_requests=2)
    rejected = made.step(RouterOpened(at=1.0)).commands
    assert [(type(each), each.request_id) for each in rejected] == [(Reject, 3), (Reject, 4), (Reject, 5)]
    assert rejected[0].reason == "2 requests of deployment 'llm' wait, max_queued_requests is 2"
    assert isinstance(arrive(made, 6)[0], Reject)
    outcome = made.step(RouterOpened(at=1.0))
    assert (outcome.commands, outcome.notes[0].because) == ((), "the router is open already")


def test_what_came_before_the_deadline_was_known_has_it_from_its_arrival_on():
    made = opens_late("a", max_queued_requests=9, request_timeout_s=5.0)
    arrive(made, "own", deadline=3.0, at=2.0)
    assert made.step(RouterOpened(at=2.0)).commands == ()
    assert check_indexes(made) == []
    assert [each.request_id for each in made.step(ClockAdvanced(at=3.0)).commands if isinstance(each, Expire)] == ["own"]
    commands = made.step(ClockAdvanced(at=5.0)).commands
    assert [each.request_id for each in commands if isinstance(each, Expire)] == list(range(6))
    late = opens_late("a", request_timeout_s=5.0)
    late.step(RequestCancelled(request_id=0, at=6.0))
    assert [each.request_id for each in late.step(RouterOpened(at=6.0)).commands] == [1, 2, 3, 4, 5]


def test_a_broadcast_of_which_a_part_was_given_out_is_accepted_when_the_limit_comes_to_be_known():
    made = Router(RoutingSpec(name="llm", max_ongoing_requests=1, max_queued_requests=0), opened=False)
    arrive(made, "begun", "not begun", broadcast=True)
    made.step(RoutesChanged(added=(Route("a", 0),), world_size=2, at=0.0))
    assert [each.request_id for each in made.step(RouterOpened(at=0.0)).commands] == ["not begun"]
    early = Router(RoutingSpec(name="llm", max_queued_requests=0), opened=False)
    arrive(early, "unsplit", broadcast=True)
    assert [each.request_id for each in early.step(RouterOpened(at=0.0)).commands] == ["unsplit"]


def test_a_deadline_answers_what_waits_and_what_is_in_flight():
    made = router(1, request_timeout_s=5.0)
    assert arrive(made, 1)[-1] == WakeAt(5.0)
    arrive(made, 2, at=1.0)
    commands = made.step(ClockAdvanced(at=5.0)).commands
    assert [type(each) for each in commands] == [Expire, StopAttempt, WakeAt]
    assert "while it was in flight" in commands[0].reason
    assert [type(each) for each in made.step(ClockAdvanced(at=6.0)).commands] == [Expire]
    assert not made.step(RequestDone(request_id=1, at=6.0)).commands
    assert isinstance(arrive(made, 3, at=7.0, deadline=7.0)[0], Expire)


def test_timers_of_what_is_answered_do_not_pile_up():
    made = router(1, request_timeout_s=1000.0)
    for number in range(500):
        arrive(made, number)
        made.step(RequestDone(request_id=number, at=0.0))
    assert len(made.timers) < 100
    made = router(1, request_timeout_s=1000.0, max_ongoing_requests=2)
    arrive(made, "first")
    for number in range(500):
        arrive(made, number, at=1.0)
        made.step(RequestDone(request_id=number, at=1.0))
    assert len(made.timers) < 100
    assert [each.request_id for each in made.step(ClockAdvanced(at=2000.0)).commands] == ["first", "first"]


def test_a_cancelled_request_is_forgotten_and_its_replica_told():
    made = router(1)
    arrive(made, 1)
    commands = made.step(RequestCancelled(request_id=1, at=0.0)).commands
    assert commands == (Forget(1), StopAttempt(1, "llm#1.0", 1))
    assert sent_to(arrive(made, 2)) == [], "it may go on to work on it"
    assert sent_to(made.step(RequestDone(request_id=1, at=1.0)).commands) == ["llm#1.0"]


# -- what is done again


def test_what_is_lost_fails_with_a_clear_error_unless_requests_are_idempotent():
    made = router(2)
    arrive(made, 1)
    (fail,) = made.step(ReplicaLost(replica_id="llm#1.0", reason="oom", at=1.0)).commands
    assert isinstance(fail, Fail)
    assert fail.kind is FailureKind.LOST
    assert fail.reason.startswith("replica llm#1.0 was lost (oom); nobody knows whether it was begun, and deployment 'llm'")
    made = router(2, idempotent=True)
    arrive(made, 1)
    (retry,) = made.step(ReplicaLost(replica_id="llm#1.0", at=1.0)).commands
    assert retry == Retry(1, "llm#1.1", 2, None, "lost: replica llm#1.0 was lost")


def test_what_is_lost_too_often_fails():
    made = router(3, idempotent=True, max_retries=1)
    arrive(made, 1)
    made.step(ReplicaLost(replica_id="llm#1.0", at=1.0))
    (fail,) = made.step(ReplicaLost(replica_id="llm#1.1", at=1.0)).commands
    assert "lost 2 times, and max_retries is 1" in fail.reason


def test_what_was_refused_is_always_done_again_elsewhere():
    made = router(2)
    arrive(made, 1)
    refused = RequestFailed(request_id=1, kind=FailureKind.REFUSED, reason="draining", at=1.0)
    commands = made.step(refused).commands
    assert sent_to(commands) == ["llm#1.1"]
    assert commands[-1] == WakeAt(1.1), "llm#1.0 is left alone until then"
    assert sent_to(arrive(made, 2, at=1.0)) == []
    assert sent_to(made.step(ClockAdvanced(at=1.1)).commands) == ["llm#1.0"]


def test_an_answer_that_has_begun_is_never_done_again():
    made = router(2, idempotent=True)
    arrive(made, 1)
    made.step(AnswerBegun(request_id=1, at=0.5))
    (fail,) = made.step(ReplicaLost(replica_id="llm#1.0", at=1.0)).commands
    assert fail.kind is FailureKind.CUT_OFF


def test_news_of_a_replica_that_was_left_alone_ends_that():
    made = router(1, max_ongoing_requests=3)
    arrive(made, 1, 2)
    made.step(RequestFailed(request_id=1, kind=FailureKind.REFUSED, at=1.0))
    assert sent_to(made.step(RequestDone(request_id=2, at=1.0)).commands) == ["llm#1.0"]


def test_what_comes_back_keeps_its_place_among_what_waits():
    line = Line()
    for serial in (10, 30, 20):
        line.add(Request(serial, serial, 0.0))
    assert [each.serial for each in line] == [10, 20, 30]
    for serial in (10, 20, 30):
        assert line.head().serial == serial
        line.remove(line.head())
    assert not len(line)


def test_a_refusal_by_who_is_not_routed_any_more_leaves_nobody_alone():
    made = router(2)
    arrive(made, 1)
    made.step(RoutesChanged(removed=("llm#1.0",), at=0.0))
    commands = made.step(RequestFailed(request_id=1, kind=FailureKind.REFUSED, at=1.0)).commands
    assert commands == (Retry(1, "llm#1.1", 2, None, "refused"),)


def test_what_was_refused_for_a_rank_that_is_no_more_fails():
    made = router(2)
    arrive(made, 1, rank=1)
    made.step(RoutesChanged(removed=("llm#1.1",), world_size=1, at=0.5))
    (fail,) = made.step(RequestFailed(request_id=1, kind=FailureKind.REFUSED, at=1.0)).commands
    assert fail.reason == "deployment 'llm' has no rank 1: its world size is 1"


def test_the_short_cuts_leave_what_is_unusual_to_the_rules():
    made = router(2, explains=False)
    assert made.arrive(1, 1.0) == "llm#1.0"
    assert made.arrive(2, 1.0) == "llm#1.1"
    made.step(RoutesChanged(removed=("llm#1.0",), at=1.0))
    assert not made.finish(1, 1, 1.0)
    assert made.commands == [Complete(1)]
    assert list(made.replicas) == ["llm#1.1"]
    assert made.finish(2, 1, 3.0)
    assert made.clock == 3.0


def test_late_news_changes_nothing():
    made = router(1)
    before = image_of(made)
    for event in (
        AnswerBegun(request_id=9, at=0.0),
        RequestDone(request_id=9, part=3, at=0.0),
        RequestFailed(request_id=9, kind=FailureKind.LOST, at=0.0),
        RequestCancelled(request_id=9, at=0.0),
        ReplicaLost(replica_id="z", at=0.0),
        RoutesChanged(removed=("z",), at=0.0),
        CreditsGranted(replica_id="z", credits=1, version=1, at=0.0),
    ):
        outcome = made.step(event)
        assert (outcome.commands, image_of(made)) == ((), before)
        assert len(outcome.notes) == 1


def test_who_is_not_routed_any_more_can_still_be_lost():
    made = router(1)
    arrive(made, 1)
    made.step(RoutesChanged(removed=("llm#1.0",), at=0.0))
    assert isinstance(made.step(ReplicaLost(replica_id="llm#1.0", at=0.0)).commands[0], Fail)
    assert not made.replicas


def test_a_key_goes_to_the_least_loaded_where_its_share_of_the_ring_is_full():
    made = router(2, policy="affinity", max_ongoing_requests=5, load_factor=1.1, by_credits=True)
    made.step(CreditsGranted(replica_id="llm#1.1", credits=5, version=1, at=0.0))
    assert sent_to(arrive(made, *range(5), key="one")) == ["llm#1.1"] * 5, "nobody else has room"


# -- what changes


def test_another_spec_keeps_what_waits_at_its_place():
    made = router(1, max_queued_requests=5)
    arrive(made, *range(5))
    spec = RoutingSpec(name="llm", max_ongoing_requests=3, max_queued_requests=0, policy="round_robin")
    commands = made.step(RoutingSpecChanged(spec=spec, at=1.0)).commands
    assert [each.request_id for each in commands] == [1, 2]
    assert made.waiting == 2
    with pytest.raises(UnknownDeploymentError, match=r"RoutingSpecChanged.spec.name must be 'llm', got 'other'"):
        made.step(RoutingSpecChanged(spec=RoutingSpec(name="other"), at=1.0))


def test_a_smaller_world_fails_what_waits_for_ranks_beyond_it():
    made = router(2)
    arrive(made, 1, 2, rank=1)
    (fail,) = made.step(RoutesChanged(removed=("llm#1.1",), world_size=1, at=1.0)).commands
    assert (type(fail), fail.request_id) == (Fail, 2)
    assert made.step(RoutesChanged(world_size=0, at=1.0)).commands == ()


# -- credits, on the router's side


def test_a_router_has_in_flight_what_was_granted_and_asks_for_more():
    made = router(1, by_credits=True, max_ongoing_requests=4)
    assert arrive(made, 1) == [AskCredits("llm#1.0", 1, 0)]
    assert sent_to(made.step(CreditsGranted(replica_id="llm#1.0", credits=1, version=1, at=0.0)).commands) == ["llm#1.0"]
    assert arrive(made, 2, 3) == [AskCredits("llm#1.0", 2, 1)]
    commands = made.step(CreditsGranted(replica_id="llm#1.0", credits=2, version=3, at=0.0)).commands
    assert [type(each) for each in commands] == [Dispatch, AskCredits]
    commands = made.step(CreditsGranted(replica_id="llm#1.0", credits=3, version=4, at=0.0)).commands
    assert [type(each) for each in commands] == [Dispatch, AskCredits]
    assert commands[-1] == AskCredits("llm#1.0", 0, 4), "nothing waits any more"
    assert made.step(CreditsGranted(replica_id="llm#1.0", credits=9, version=2, at=0.0)).commands == (), "late"


def test_what_is_called_back_is_returned_as_it_ends():
    made = router(1, by_credits=True, max_ongoing_requests=4)
    made.step(CreditsGranted(replica_id="llm#1.0", credits=3, version=1, at=0.0))
    arrive(made, 1, 2, 3)
    recall = CreditsGranted(replica_id="llm#1.0", credits=1, version=2, at=0.0)
    assert made.step(recall).commands == (ReturnCredits("llm#1.0", 3, 2),)
    assert made.step(recall).commands == (ReturnCredits("llm#1.0", 3, 2),), "it is answered again"
    assert made.step(RequestDone(request_id=1, at=0.0)).commands[-1] == ReturnCredits("llm#1.0", 2, 2)
    assert made.step(RequestDone(request_id=2, at=0.0)).commands[-1] == ReturnCredits("llm#1.0", 1, 2)
    assert not made.finish(3, 1, 0.0)
    assert made.commands == [Complete(3)]


def test_what_was_called_back_and_not_returned_is_owed_though_there_are_more_credits_again():
    made = router(1, by_credits=True, max_ongoing_requests=4)
    made.step(CreditsGranted(replica_id="llm#1.0", credits=3, version=1, at=0.0))
    arrive(made, 1, 2, 3)
    made.step(CreditsGranted(replica_id="llm#1.0", credits=0, version=2, at=0.0))
    more = CreditsGranted(replica_id="llm#1.0", credits=1, version=3, at=0.0)
    assert made.step(more).commands == (ReturnCredits("llm#1.0", 3, 3),)
    assert made.step(RequestDone(request_id=1, at=0.0)).commands[-1] == ReturnCredits("llm#1.0", 2, 3)


def test_a_refused_request_for_a_rank_asks_that_rank():
    made = router(2, by_credits=True, max_ongoing_requests=4)
    made.step(CreditsGranted(replica_id="llm#1.1", credits=1, version=1, at=0.0))
    arrive(made, 1, rank=1)
    commands = made.step(RequestFailed(request_id=1, kind=FailureKind.REFUSED, at=1.0)).commands
    assert AskCredits("llm#1.1", 2, 1) in commands


# -- the short cuts, and the value


def arrived(quick: Router, number: int, at: float) -> list[Command]:
    replica_id = quick.arrive(number, at)
    return quick.commands if replica_id is None else [Dispatch(number, replica_id)]


def finished(quick: Router, number: int, at: float) -> list[Command]:
    return [Complete(number)] if quick.finish(number, 1, at) else quick.commands


@pytest.mark.parametrize(
    "fields", [{}, {"request_timeout_s": 9.0}, {"policy": "affinity"}, {"max_queued_requests": 1}], ids=str
)
def test_the_short_cuts_do_what_the_events_do(fields: dict[str, object]):
    quick, plain = router(2, explains=False, **fields), router(2, **fields)
    for number in range(8):
        at = 1.0 + number
        assert arrived(quick, number, at) == list(plain.step(RequestArrived(request_id=number, at=at)).commands)
        assert arrived(quick, number, at) == list(plain.step(RequestArrived(request_id=number, at=at)).commands) == []
        done = number - 2
        assert finished(quick, done, at) == list(plain.step(RequestDone(request_id=done, at=at)).commands)
        assert finished(quick, done, at) == []
        assert image_of(quick) == image_of(plain)
    quick.step(RoutesChanged(removed=("llm#1.0",), at=20.0))
    plain.step(RoutesChanged(removed=("llm#1.0",), at=20.0))
    for number in (6, 7):
        assert finished(quick, number, 20.0) == list(plain.step(RequestDone(request_id=number, at=20.0)).commands)
    assert image_of(quick) == image_of(plain)
    assert image_of(copy.deepcopy(quick)) == image_of(plain)


def test_old_states_stay_what_they_are_and_can_be_gone_on_from():
    state = open_router(RoutingSpec(name="llm"))
    states = [state]
    for number in range(200):
        state = route_step(state, RequestArrived(request_id=number, at=float(number))).state
        states.append(state)
    assert [each.waiting for each in states] == list(range(201))
    old = states[70]
    assert (old.clock, old.in_flight, old.world_size, old.spec.name) == (69.0, 0, 0, "llm")
    again = route_step(old, RequestArrived(request_id=70, at=70.0)).state
    assert again == states[71]
    assert hash(again) == hash(states[71])
    assert again != old
    assert state != "something else"
    assert RouterState.of(state.image) == states[200]
    assert repr(old) == "RouterState('llm', waiting=70, in_flight=0, clock=69)"
    with_one = route_step(state, RoutesChanged(added=(Route("a"),), at=300.0)).state
    assert with_one.in_flight_by_replica == {"a": 8}


# -- what is malformed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RequestArrived(request_id="", at=0.0), r"RequestArrived.request_id must be an integer or a non-empty string"),
        (lambda: RequestArrived(request_id=1, at=-1.0), r"RequestArrived.at must be a finite number of seconds"),
        (
            lambda: RequestArrived(request_id=1, key="k", rank=1, at=0.0),
            r"RequestArrived.key must be the only one of",
        ),
        (lambda: RequestArrived(request_id=1, rank=-1, at=0.0), r"RequestArrived.rank must be an integer"),
        (lambda: RequestArrived(request_id=1, key=3, at=0.0), r"RequestArrived.key must be a string"),
        (lambda: RequestArrived(request_id=1, broadcast=1, at=0.0), r"RequestArrived.broadcast must be true or false"),
        (lambda: RequestArrived(request_id=1, broadcast=True, keep_failures=1, at=0.0), r"keep_failures must be true or false"),
        (lambda: RequestArrived(request_id=1, keep_failures=True, at=0.0), r"keep_failures must be false where broadcast is"),
        (lambda: RequestArrived(request_id=1, deadline="x", at=0.0), r"RequestArrived.deadline must be a finite"),
        (lambda: RequestDone(request_id=1, attempt=0, at=0.0), r"RequestDone.attempt must be an integer from 1"),
        (lambda: RequestDone(request_id=1, part=-1, at=0.0), r"RequestDone.part must be an integer from 0"),
        (lambda: RequestFailed(request_id=1, kind="odd", at=0.0), r"RequestFailed.kind must be a FailureKind: one of 'raised'"),
        (lambda: RoutesChanged(added=["a"], at=0.0), r"RoutesChanged.added must be a tuple of routes"),
        (lambda: RoutesChanged(added=("a",), at=0.0), r"RoutesChanged.added\[0\] must be a Route"),
        (lambda: RoutesChanged(added=(Route("a", -1),), at=0.0), r"RoutesChanged.added\[0\].rank must be an integer"),
        (lambda: RoutesChanged(removed=("",), at=0.0), r"RoutesChanged.removed\[0\] must be a string"),
        (lambda: RoutingSpecChanged(spec=None, at=0.0), r"RoutingSpecChanged.spec must be a RoutingSpec"),
        (lambda: Router(RoutingSpec(name="llm")).step("late"), r"event must be an event of rankcore.routing.events"),
    ],
)
def test_a_malformed_event_names_its_field(make, message: str):
    with pytest.raises(InvalidEventError, match=message):
        make()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "RoutingSpec.name"),
        ({"max_ongoing_requests": 0}, "RoutingSpec.max_ongoing_requests must be an integer from 1 to 100000"),
        ({"policy": "random"}, "RoutingSpec.policy must be one of 'least_loaded', 'shared_queue'"),
        ({"idempotent": 1}, "RoutingSpec.idempotent must be true or false"),
        ({"request_timeout_s": 0.0}, "RoutingSpec.request_timeout_s must be a finite number of seconds, above 0"),
        ({"load_factor": 1.0}, "RoutingSpec.load_factor must be a number above 1"),
    ],
)
def test_a_malformed_spec_names_its_field(fields: dict[str, object], message: str):
    with pytest.raises(InvalidSpecError, match=message):
        RoutingSpec(**{"name": "llm", **fields})
