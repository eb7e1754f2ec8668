"""The kernel: who handles which event, and how the parts of a machine settle."""

import pickle

import pytest

from rankcore import DeploymentSpec, NoteKind, Step, deploy, kernel
from rankcore.cluster import cluster_step, recover_cluster
from rankcore.codec import from_json, to_json
from rankcore.errors import ClusterDivergedError, InvalidEventError
from rankcore.events import ClockAdvanced, StopRequested
from rankcore.notes import RankNote
from rankcore.residency import ResidencyPolicy, open_residency, residency_step
from rankcore.routing import RoutingSpec, open_router, route_step
from rankcore.routing.credits import RouterJoined, credit_step, open_credits

SPEC = DeploymentSpec(name="llm", target_replicas=2, version="1")
TABLE = {ClockAdvanced: "passes time"}


def test_a_handler_is_found_by_the_class_of_the_event():
    assert kernel.handler_of(TABLE, ClockAdvanced(at=0.0), "news") == "passes time"


class Tick(ClockAdvanced):
    """Of another class, though it could stand in for its base."""


@pytest.mark.parametrize("event", [None, ClockAdvanced, StopRequested(replica_ids=["llm#1.0"], at=0.0), {}, Tick(at=0.0)])
def test_what_is_no_event_of_a_machine_is_refused(event):
    with pytest.raises(InvalidEventError, match="event must be news, got") as caught:
        kernel.handler_of(TABLE, event, "news")
    assert caught.value.found is event


def test_a_note_of_a_machine_is_one_of_the_kernel_and_comes_back_from_its_text():
    note = RankNote(NoteKind.RANK_KEPT, "2.3", "llm#1.0", rank=3, because="it crashed")
    assert from_json(to_json(note), RankNote) == note
    assert isinstance(note, kernel.Note)


def test_a_step_of_every_machine_is_a_step_of_the_kernel():
    steps = (
        deploy(SPEC),
        residency_step(open_residency(ResidencyPolicy()), ClockAdvanced(at=1.0)),
        route_step(open_router(RoutingSpec(name="llm")), ClockAdvanced(at=1.0)),
        cluster_step(recover_cluster((), (), at=0.0, epoch=1).state, ClockAdvanced(at=1.0)),
        credit_step(open_credits(2), RouterJoined(router_id="a")),
    )
    assert {type(each) for each in steps} == {kernel.Step}
    assert all(isinstance(note, kernel.Note) for each in steps for note in each.notes)
    assert Step is kernel.Step


# -- parts that settle


def settled(answers, *first):
    """The (part, event) pairs in the order in which they are handled, where an event has these answers."""
    work = kernel.Worklist()
    handled = []

    def handle(part, event):
        assert work.running == part
        handled.append((part, event))
        for answer in answers.get((part, event), ()):
            work.add(*answer)

    for each in first:
        work.add(*each)
    work.settle(handle)
    return handled


def test_events_are_handled_in_the_order_in_which_they_were_added():
    answers = {("planner", "joined"): [("b", "room"), ("a", "room")], ("b", "room"): [("planner", "want")]}
    assert settled(answers, ("planner", "joined"), ("c", "joined")) == [
        ("planner", "joined"),
        ("c", "joined"),
        ("b", "room"),
        ("a", "room"),
        ("planner", "want"),
    ]


def test_nothing_to_do_is_done():
    assert settled({}) == []


def test_two_parts_that_ask_each_other_without_end_are_an_error_that_names_one_of_them():
    answers = {("a", "ask"): [("b", "ask"), ("b", "hint")], ("b", "ask"): [("a", "ask")]}
    with pytest.raises(ClusterDivergedError) as caught:
        settled(answers, ("c", "begin"), ("a", "ask"))
    assert caught.value.part == "b"
    assert caught.value.events == kernel.EVENTS_MAX + 3 * kernel.EVENTS_MAX_PER_PART + 1
    assert str(caught.value) == "a step handed on 10031 events without an end, most of them to 'b'"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.part, again.events, str(again)) == ("b", 10_031, str(caught.value))


def test_news_that_fans_out_to_many_parts_is_no_error():
    parts = [f"d{number}" for number in range(kernel.EVENTS_MAX + 1)]
    answers = {("nodes", "joined"): [(part, "joined") for part in parts]}
    assert len(settled(answers, ("nodes", "joined"))) == len(parts) + 1


def test_a_step_may_hand_on_as_many_events_as_are_allowed():
    allowed = kernel.EVENTS_MAX + kernel.EVENTS_MAX_PER_PART
    assert len(settled({}, *[("a", "news")] * allowed)) == allowed
    with pytest.raises(ClusterDivergedError):
        settled({}, *[("a", "news")] * (allowed + 1))


def test_the_bound_holds_for_a_worklist_that_settles_more_than_once():
    work = kernel.Worklist()
    for _ in range(kernel.EVENTS_MAX + kernel.EVENTS_MAX_PER_PART):
        work.add("a", "news")
    work.settle(lambda _part, _event: None)
    work.add("a", "news")
    with pytest.raises(ClusterDivergedError):
        work.settle(lambda _part, _event: None)


def test_an_exception_leaves_the_part_whose_handler_raised():
    work = kernel.Worklist()
    work.add("a", 1)
    work.add("b", 0)
    work.add("c", 1)
    with pytest.raises(ZeroDivisionError):
        work.settle(lambda _part, event: 1 / event)
    assert work.running == "b"
