"""A model that is removed: who waits is told so, what is in flight is finished, and then nobody knows it (D1, D7)."""

from rankcore.autoscaling import AutoscalingSpec
from rankcore.codec import from_json, to_json
from rankcore.dispatching import FleetImage, FleetNoteKind, RankSpec, ServingChanged, ServingSpec, fleet_of, image_of
from rankcore.residency import Wanted
from rankcore.residency.commands import UnloadFromGpu
from rankcore.residency.events import RemoveRequested
from rankcore.routing import RoutingSpec
from rankcore.routing.commands import Complete, Dispatch, Fail
from tests.fleets import Fleet, decided


def remove(f, model):
    return f.tell(RemoveRequested(model=model, at=f.now))


def finals(step):
    return {each.request_id: each.reason for each in step.commands if isinstance(each, Fail)}


def test_who_waits_for_it_gets_the_reason_and_so_does_who_asks_later():
    f = Fleet(a=50, b=20)
    f.request(1, "a")
    f.request(2, "a")
    assert finals(remove(f, "a")) == {1: "model 'a' was removed", 2: "model 'a' was removed"}
    assert finals(f.request(3, "a")) == {3: "model 'a' was removed"}
    f.leave("a")
    assert "a" not in f.state.models
    assert "a" not in f.state.residency.models
    assert finals(f.request(4, "a")) == {4: "there is no model 'a': nobody has deployed it"}
    assert not f.state.moves
    assert [alarm for alarm in f.state.alarms.order if alarm.model == "a"] == []


def test_what_is_in_flight_is_finished_first():
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    f.request(2, "a")
    removed = remove(f, "a")
    assert [each for each in removed.commands if isinstance(each, Fail)] == []
    assert [type(each) for each in removed.commands if isinstance(each, UnloadFromGpu)] == [UnloadFromGpu]
    assert [each.request_id for each in f.done(1).commands if isinstance(each, Complete)] == [1]
    assert from_json(to_json(image_of(f.state)), FleetImage) == image_of(fleet_of(image_of(f.state)))
    # The node gives up on the other one.
    left = f.leave("a")
    assert list(finals(left)) == [2]
    assert not f.state.models
    assert not f.state.requests


def test_one_that_would_be_done_again_fails_with_the_reason():
    f = Fleet(a=50)
    f.serve("a", idempotent=True)
    f.request(1, "a")
    f.load("a")
    remove(f, "a")
    assert finals(f.leave("a")) == {1: "model 'a' was removed"}


def test_it_may_be_repeated_and_nobody_is_told_twice():
    f = Fleet(a=50)
    f.request(1, "a")
    remove(f, "a")
    again = remove(f, "a")
    assert again.commands == ()
    f.leave("a")
    assert remove(f, "a").commands == ()
    assert remove(f, "never").commands == ()


def test_how_a_model_is_served_that_nobody_deployed_is_forgotten():
    f = Fleet()
    f.serve("a")
    remove(f, "a")
    assert not f.state.models


def test_its_load_is_not_followed_any_more():
    f = Fleet(a=50)
    f.serve("a", AutoscalingSpec(min_replicas=1, max_replicas=2))
    f.request(1, "a")
    f.load("a")
    remove(f, "a")
    f.wait(60.0)
    assert f.state.residency.target("a") == 0


def test_one_that_is_deployed_again_while_it_leaves_is_served_as_before():
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    spec = f.state.residency.models["a"]
    remove(f, "a")
    f.deploy(Wanted(spec=spec, replicas=1))
    f.leave("a")
    f.load("a")
    again = f.request(2, "a")
    assert [each.request_id for each in again.commands if isinstance(each, Dispatch)] == [2]
    assert decided(again, FleetNoteKind.FAILED) == []


def test_a_model_whose_replicas_have_ranks_is_removed_with_them():
    f = Fleet(a=50)
    spec = ServingSpec(routing=RoutingSpec(name="a"), ranks=RankSpec())
    f.tell(ServingChanged(spec=spec, at=f.now))
    f.request(1, "a")
    f.load("a")
    assert f.state.world_size_of("a") == 1
    assert finals(remove(f, "a")) == {1: "model 'a' was removed"}
    f.leave("a")
    assert not f.state.models
    assert [alarm for alarm in f.state.alarms.order if alarm.model == "a"] == []
