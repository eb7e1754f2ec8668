"""Requests for models that may be anywhere: they wait, are told how they stand, and get one answer each (D1 to D11)."""

import pytest
from msgspec.structs import replace

from rankcore.autoscaling import AutoscalingSpec
from rankcore.codec import from_json, to_json
from rankcore.dispatching import (
    DispatchPolicy,
    FleetImage,
    FleetNoteKind,
    LoadProgressed,
    ModelRequested,
    ServingChanged,
    ServingSpec,
    StatusKind,
    TellCaller,
    fleet_of,
    fleet_step,
    image_of,
    open_fleet,
    outstanding,
)
from rankcore.dispatching.alarms import AlarmKind, Alarms
from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.events import ClockAdvanced
from rankcore.residency import Level, ModelSpec, ResidencyPolicy, Wanted
from rankcore.residency.commands import LoadToGpu, OffloadToCpu
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFinished,
    ReplicaLost,
    ScaleRequested,
)
from rankcore.routing import FailureKind, RoutingSpec
from rankcore.routing.commands import Complete, Dispatch, Expire, Fail, Forget, Reject, Retry, StopAttempt, WakeAt
from rankcore.routing.events import RequestCancelled, RequestDone
from tests.fleets import Fleet, decided


def commands(step, kind) -> list:
    return [each for each in step.commands if isinstance(each, kind)]


# -- the life of a request to a cold model


def test_a_request_for_a_cold_model_waits_while_it_is_loaded_and_is_told_so():
    f = Fleet(a=50)
    first = f.request(1, "a")
    [load] = commands(first, LoadToGpu)
    assert (load.model, load.source) == ("a", Level.COLD)
    f.now = 2.0
    f.progress("a", 20)
    f.now = 5.0
    f.load("a")
    assert f.kinds(1) == ["loading", "loading", "ready"]
    assert [status.percent for status in f.told[1]] == [0, 40, None]
    assert f.sent[1] == load.replica_id
    f.done(1)
    assert f.answers == {1: Complete(1)}
    assert not f.state.requests


def test_several_requests_provision_once():
    f = Fleet(a=50)
    steps = [f.request(number, "a") for number in range(5)]
    assert sum(len(commands(step, LoadToGpu)) for step in steps) == 1
    assert sum(len(decided(step, FleetNoteKind.ASKED_FOR)) for step in steps) == 1
    assert len(commands(f.load("a"), Dispatch)) == 5


def test_a_request_for_a_hot_model_is_told_nothing_and_answered():
    f = Fleet(a=50)
    f.deploy(Wanted(spec=ModelSpec(model="a", weight_bytes=50)))
    f.load("a")
    f.request(1, "a")
    f.done(1)
    assert f.told == {}
    assert f.answers == {1: Complete(1)}


def test_a_request_waits_while_all_replicas_are_full_and_is_told_so():
    f = Fleet(a=50)
    f.serve("a", max_ongoing_requests=1)
    f.request(1, "a")
    f.load("a")
    f.request(2, "a")
    assert f.kinds(2) == ["queued"]
    f.done(1)
    assert f.kinds(2) == ["queued", "ready"]


def test_who_waits_for_room_is_told_behind_whom():
    f = Fleet(a=50, b=60)
    f.request(1, "a")
    f.load("a")
    f.request(2, "b")
    [status] = f.told[2]
    assert status.kind is StatusKind.PROVISIONING
    assert status.because
    f.wait(5.0)  # the turn of a is over
    [a] = [move.command for move in f.state.moves.values()]
    assert isinstance(a, OffloadToCpu)
    assert f.told[2][-1].behind == (a.replica_id,)
    f.done(1)
    f.leave("a")
    f.load("b")
    assert f.kinds(2) == ["provisioning", "provisioning", "loading", "ready"]
    f.done(2)
    assert set(f.answers) == {1, 2}


def test_two_models_that_share_a_gpu_take_turns_and_nobody_waits_for_ever():
    f = Fleet(a=50, b=60)
    for model in "ab":
        f.serve(model, max_ongoing_requests=1)
    for number in range(6):
        f.request(number, "ab"[number % 2])
    for _ in range(60):
        for under_way in list(f.state.moves.values()):
            model = under_way.command.replica_id[0]
            (f.load if isinstance(under_way.command, LoadToGpu) else f.leave)(model)
        for command in outstanding(f.state):
            if isinstance(command, (Dispatch, Retry)):
                f.done(command.request_id, command.attempt)
        f.wait(1.0)
    assert f.answers == {number: Complete(number) for number in range(6)}


# -- estimates


def test_the_time_that_a_load_takes_is_estimated_from_those_before_it():
    """D9."""
    f = Fleet(a=50, b=60, gpus=(80, 80, 80))
    f.request(1, "a")
    assert f.told[1][0].seconds_left is None
    f.now = 2.0
    f.progress("a", 10)
    assert f.told[1][-1].seconds_left == 8.0  # by its own pace: 10 bytes in 2 s
    f.now = 10.0
    f.load("a")
    f.request(2, "b")
    assert f.told[2][0].seconds_left == 12.0  # by that of a: 50 bytes in 10 s
    f.now = 16.0
    f.load("b")
    # b came at 10 bytes/s: the mean goes from 5 to 5 + 0.3 * 5
    assert f.state.bandwidths[("n1", "COLD")] == pytest.approx(6.5)


def test_a_load_that_takes_no_time_measures_nothing():
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    assert not f.state.bandwidths


def test_progress_is_told_in_steps_and_never_backwards():
    f = Fleet(a=100, gpus=(200,), policy=DispatchPolicy(progress_percent=10))
    f.request(1, "a")
    f.now = 1.0
    for done in (9, 11, 19, 15, 25, 250):
        f.progress("a", done)
    assert [status.percent for status in f.told[1]] == [0, 10, 20, 100]


def test_progress_of_another_move_is_late():
    f = Fleet(a=50)
    f.request(1, "a")
    move = f.under_way("a")
    late = f.tell(LoadProgressed(replica_id=move.replica_id, move=move.move + 1, bytes_done=10, at=0.0))
    nobody = f.tell(LoadProgressed(replica_id="z#0", move=1, bytes_done=10, at=0.0))
    assert decided(late, FleetNoteKind.LATE)
    assert decided(nobody, FleetNoteKind.LATE)
    assert not late.commands


# -- eviction, loss


def test_an_eviction_of_the_last_replica_with_requests_waiting_provisions_again():
    f = Fleet(a=50)
    f.serve("a", max_ongoing_requests=1)
    f.request(1, "a")
    f.load("a")
    f.request(2, "a")
    evicted = f.tell(EvictRequested(model="a", at=0.0))
    assert decided(evicted, FleetNoteKind.ASKED_FOR)
    assert 2 not in f.answers
    f.done(1)
    while any(each.command for each in f.state.moves.values()):
        move = next(iter(f.state.moves.values())).command
        (f.load if isinstance(move, LoadToGpu) else f.leave)("a")
    assert f.hot("a")
    f.done(2)
    assert f.answers == {1: Complete(1), 2: Complete(2)}


def test_what_is_in_flight_on_an_evicted_replica_finishes():
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    step = f.tell(EvictRequested(model="a", at=0.0))
    assert commands(step, OffloadToCpu)
    f.done(1)
    assert f.answers == {1: Complete(1)}
    f.leave("a")
    assert not f.hot("a")


def test_what_has_not_finished_when_its_replica_has_left_is_lost_and_done_again_where_that_is_allowed():
    f = Fleet(a=50, b=20)
    f.serve("a", idempotent=True)
    f.request(1, "a")
    f.load("a")
    f.request(2, "b")
    f.load("b")
    f.tell(EvictRequested(model="a", at=0.0))
    f.tell(EvictRequested(model="b", at=0.0))
    a, b = f.leave("a"), f.leave("b")
    assert decided(a, FleetNoteKind.CUT_LOOSE)
    assert decided(a, FleetNoteKind.ASKED_FOR)
    assert isinstance(f.answers[2], Fail)
    assert f.answers[2].kind is FailureKind.LOST
    assert decided(b, FleetNoteKind.CUT_LOOSE)
    f.load("a")
    assert f.kinds(1) == ["loading", "ready", "loading", "ready"]
    f.done(1, attempt=2)
    assert f.answers[1] == Complete(1)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_request_that_a_lost_fleet_had_begun_is_done_again_only_where_that_does_no_harm(idempotent: bool):
    f = Fleet(a=30)
    f.serve("a", idempotent=idempotent)
    f.request(1, "a", begun=True)
    if not idempotent:
        answer = f.answers[1]
        assert (answer.kind, "may have had its effect" in answer.reason) == (FailureKind.LOST, True)
        assert dict(f.state.moves) == {}
        return
    f.load("a")
    f.done(1)
    assert f.answers[1] == Complete(1)


def test_a_request_that_was_begun_for_a_model_that_nobody_knows_fails_for_that():
    f = Fleet(a=30)
    f.request(1, "nobody", begun=True)
    assert "nobody has deployed it" in f.answers[1].reason


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_replica_that_dies_loses_its_requests_or_has_them_done_again(idempotent: bool):
    f = Fleet(a=50)
    f.serve("a", idempotent=idempotent)
    f.request(1, "a")
    f.load("a")
    [replica_id] = f.hot("a")
    f.tell(ReplicaLost(replica_id=replica_id, reason="CUDA error", at=0.0))
    if not idempotent:
        assert isinstance(f.answers[1], Fail)
        assert "CUDA error" in f.answers[1].reason
        return
    f.load("a")
    f.done(1, attempt=2)
    assert f.answers == {1: Complete(1)}


def test_a_node_that_is_lost_during_a_load_costs_nobody_the_answer():
    f = Fleet(a=50)
    f.tell(NodeJoined(node_id="n2", gpu_bytes=(80,), cpu_bytes=0, at=0.0))
    f.request(1, "a")
    f.tell(NodeLost(node_id=f.under_way("a").node_id, at=0.0))
    f.load("a")
    f.done(1)
    assert f.answers == {1: Complete(1)}


def test_a_node_that_is_lost_with_requests_in_flight_says_so():
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    f.tell(NodeLost(node_id="n1", at=0.0))
    assert "node n1 was lost" in f.answers[1].reason


def test_an_actor_that_is_gone_at_dispatch_costs_nothing():
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    refused = f.lost(1, FailureKind.REFUSED)
    assert not commands(refused, Retry)
    assert f.kinds(1)[-1] == "queued"
    again = f.wait(1.0)
    assert commands(again, Retry)
    f.done(1, attempt=2)
    assert f.answers == {1: Complete(1)}


# -- what cannot be had


def test_a_load_that_fails_is_tried_again_and_one_that_fails_for_good_fails_who_waits():
    f = Fleet(a=50, planner=ResidencyPolicy(max_load_failures=2, retry_s=1.0), policy=DispatchPolicy(failed_for_s=10.0))
    f.request(1, "a")
    f.load("a", fails="no such file")
    assert 1 not in f.answers
    assert f.told[1][-1].kind is StatusKind.PROVISIONING
    f.wait(1.0)
    f.load("a", fails="no such file")
    assert isinstance(f.answers[1], Fail)
    assert "no such file" in f.answers[1].reason
    f.request(2, "a")  # soon after: at once
    assert "no such file" in f.answers[2].reason
    assert not f.state.residency.target("a")
    f.wait(10.0)
    f.request(3, "a")  # later: it is tried again
    f.load("a")
    f.done(3)
    assert f.answers[3] == Complete(3)


def test_what_was_deployed_and_could_not_be_loaded_is_tried_again_for_a_later_request():
    f = Fleet(a=50, planner=ResidencyPolicy(max_load_failures=1), policy=DispatchPolicy(failed_for_s=10.0))
    f.deploy(Wanted(spec=ModelSpec(model="a", weight_bytes=50)))
    f.load("a", fails="truncated")
    f.request(1, "a")
    assert 1 not in f.answers, "it is tried once more for who asks"
    f.load("a", fails="truncated")
    assert "truncated" in f.answers[1].reason
    f.request(2, "a")
    assert "truncated" in f.answers[2].reason
    f.wait(10.0)
    f.request(3, "a")
    f.load("a")
    f.done(3)
    assert f.answers[3] == Complete(3)


def test_a_deployed_model_whose_load_backs_off_is_not_hurried_by_who_waits():
    f = Fleet(a=50, planner=ResidencyPolicy(max_load_failures=2, retry_s=4.0))
    f.deploy(Wanted(spec=ModelSpec(model="a", weight_bytes=50)))
    f.request(1, "a")
    f.load("a", fails="no such file")
    f.request(2, "a")
    assert not f.state.moves
    assert "load 1 failed: no such file" in f.told[2][-1].because
    f.wait(4.0)
    f.load("a", fails="no such file")
    assert "load 2 failed" in f.answers[1].reason
    assert "load 2 failed" in f.answers[2].reason


def test_somebody_who_scales_a_model_that_could_not_be_loaded_has_it_tried_again():
    f = Fleet(a=50, planner=ResidencyPolicy(max_load_failures=1))
    f.request(1, "a")
    f.load("a", fails="truncated")
    f.tell(ScaleRequested(model="a", replicas=1, at=0.0))
    f.request(2, "a")
    f.load("a")
    f.done(2)
    assert f.answers[2] == Complete(2)


def test_who_waits_for_room_that_does_not_appear_fails_with_the_reason():
    f = Fleet(a=500, policy=DispatchPolicy(wait_for_room_s=10.0))
    f.request(1, "a")
    assert f.told[1][0].kind is StatusKind.PROVISIONING
    f.wait(9.0)
    assert not f.answers
    f.wait(1.0)
    assert isinstance(f.answers[1], Fail)
    assert "no room for model 'a' for 10 s" in f.answers[1].reason
    assert f.state.residency.target("a") == 0


def test_the_reason_names_the_nodes_and_counts_the_others():
    f = Fleet(a=500, policy=DispatchPolicy(wait_for_room_s=0.0))
    f.request(1, "a")
    assert "n1: " in f.answers[1].reason
    assert "more" not in f.answers[1].reason
    for number in range(2, 9):
        f.tell(NodeJoined(node_id=f"n{number}", gpu_bytes=(80,), cpu_bytes=0, at=0.0))
    f.request(2, "a")
    assert "and 3 nodes more" in f.answers[2].reason


def test_without_any_node_the_reason_says_so():
    f = Fleet(a=50, policy=DispatchPolicy(wait_for_room_s=0.0))
    f.tell(NodeLost(node_id="n1", at=0.0))
    f.request(1, "a")
    assert "there is no node" in f.answers[1].reason


def test_who_would_wait_for_room_fails_at_once_where_that_is_wanted():
    f = Fleet(a=500, policy=DispatchPolicy(wait_for_room_s=0.0))
    f.request(1, "a")
    assert "no room for model 'a' now" in f.answers[1].reason


def test_room_that_appears_in_time_is_taken():
    f = Fleet(a=100, policy=DispatchPolicy(wait_for_room_s=10.0))
    f.request(1, "a")
    f.wait(5.0)
    f.tell(NodeJoined(node_id="n2", gpu_bytes=(200,), cpu_bytes=0, at=f.now))
    f.wait(20.0)
    f.load("a")
    f.done(1)
    assert f.answers == {1: Complete(1)}


def test_a_model_that_was_deployed_together_with_those_that_are_there_takes_turns_with_them():
    f = Fleet()
    f.deploy(*(Wanted(spec=ModelSpec(model=model, weight_bytes=size)) for model, size in (("a", 60), ("b", 50))))
    f.load("a")
    f.request(1, "b")
    f.wait(5.0)
    f.leave("a")
    f.load("b")
    f.done(1)
    assert f.answers == {1: Complete(1)}


def test_what_somebody_deployed_stays_wanted_when_who_waits_gives_up():
    f = Fleet(a=500, policy=DispatchPolicy(wait_for_room_s=10.0))
    f.deploy(Wanted(spec=ModelSpec(model="a", weight_bytes=500)))
    f.request(1, "a")
    f.wait(10.0)
    assert isinstance(f.answers[1], Fail)
    assert f.state.residency.target("a") == 1


def test_a_model_that_nobody_deployed_is_a_failed_request_and_no_error():
    f = Fleet(a=50)
    f.request(1, "b")
    assert "there is no model 'b'" in f.answers[1].reason
    f.serve("c")
    f.request(2, "c")
    assert "there is no model 'c'" in f.answers[2].reason


# -- callers


def test_a_deadline_passes_while_the_model_is_loaded():
    f = Fleet(a=50)
    f.request(1, "a", deadline=3.0)
    assert f.state.wake_at == 3.0
    f.wait(3.0)
    assert isinstance(f.answers[1], Expire)
    f.load("a")
    assert 1 not in f.sent


def test_a_deadline_that_passes_in_flight_is_told_to_the_replica_and_the_slot_is_free_at_its_end():
    f = Fleet(a=50)
    f.serve("a", max_ongoing_requests=1, request_timeout_s=4.0)
    f.request(1, "a")
    f.load("a")
    assert commands(f.wait(4.0), StopAttempt)
    assert isinstance(f.answers[1], Expire)
    assert f.state.requests[1].answered
    f.request(2, "a")
    assert f.kinds(2) == ["queued"]
    f.done(1)
    assert f.sent[2]
    assert 1 not in f.state.requests


def test_who_cancels_what_has_expired_is_late():
    f = Fleet(a=50)
    f.request(1, "a", deadline=2.0)
    f.load("a")
    f.wait(2.0)
    step = f.tell(RequestCancelled(request_id=1, at=f.now))
    assert not step.commands
    assert isinstance(f.answers[1], Expire)


def test_too_many_that_wait_are_turned_away():
    f = Fleet(a=50)
    f.serve("a", max_queued_requests=1)
    f.request(1, "a")
    f.request(2, "a")
    assert isinstance(f.answers[2], Reject)


def test_a_provisioning_without_a_place_that_nobody_waits_for_is_withdrawn():
    f = Fleet(a=500)
    f.request(1, "a")
    assert f.state.residency.target("a") == 1
    step = f.tell(RequestCancelled(request_id=1, at=0.0))
    assert f.answers == {1: Forget(1)}
    assert decided(step, FleetNoteKind.WITHDRAWN)
    assert f.state.residency.target("a") == 0


def test_a_load_that_nobody_waits_for_any_more_arrives():
    f = Fleet(a=50)
    f.request(1, "a")
    f.tell(RequestCancelled(request_id=1, at=0.0))
    f.load("a")
    assert f.hot("a")


def test_a_load_that_fails_when_nobody_waits_for_it_any_more_is_not_tried_again():
    f = Fleet(a=50)
    f.request(1, "a")
    f.tell(RequestCancelled(request_id=1, at=0.0))
    step = f.load("a", fails="no such file")
    assert decided(step, FleetNoteKind.WITHDRAWN)
    assert f.state.residency.target("a") == 0


def test_a_replica_that_leaves_to_be_planned_anew_is_waited_for():
    f = Fleet(a=50, cpu=0, policy=DispatchPolicy(wait_for_room_s=0.0))
    f.tell(NodeJoined(node_id="n2", gpu_bytes=(80,), cpu_bytes=0, at=0.0))
    f.deploy(Wanted(spec=ModelSpec(model="a", weight_bytes=50)))
    node_id = f.under_way("a").node_id
    f.load("a")
    f.tell(MemoryMeasured(node_id=node_id, gpu_bytes=(40,), at=0.0))
    f.request(1, "a")
    assert f.kinds(1) == ["provisioning"]
    f.leave("a")
    f.load("a")
    f.done(1)
    assert f.answers == {1: Complete(1)}


def test_who_waits_until_a_copy_elsewhere_is_dropped_is_told_so():
    f = Fleet(a=50, b=60)
    f.request(1, "a")
    f.load("a")
    f.done(1)
    f.tell(EvictRequested(model="a", at=0.0))
    f.leave("a")
    f.deploy(Wanted(spec=ModelSpec(model="b", weight_bytes=60, dedicated=True)))
    f.load("b")
    f.tell(NodeJoined(node_id="n2", gpu_bytes=(80,), cpu_bytes=0, at=0.0))
    f.request(2, "a")
    assert "once its copy on n1 is gone" in f.told[2][0].because
    f.leave("a")
    f.load("a")
    f.done(2)
    assert f.answers[2] == Complete(2)


def test_news_of_a_request_that_is_over_is_late_and_changes_nothing():
    f = Fleet(a=50)
    f.request(1, "a")
    f.load("a")
    f.done(1)
    before = f.state
    assert decided(f.done(1), FleetNoteKind.LATE)
    assert f.state == before


def test_the_clock_never_goes_back():
    f = Fleet(a=50)
    f.wait(9.0)
    f.now = 2.0
    f.request(1, "a")
    assert f.state.clock == 9.0
    f.now = 19.0
    f.load("a")
    assert f.state.bandwidths[("n1", "COLD")] == 5.0, "50 bytes from 9 s to 19 s"


def test_a_request_that_is_told_twice_is_one():
    f = Fleet(a=50)
    f.request(1, "a")
    again = f.request(1, "a")
    assert decided(again, FleetNoteKind.LATE)
    assert not again.commands


# -- scaling


AUTO = AutoscalingSpec(
    min_replicas=0,
    max_replicas=3,
    target_ongoing_requests=1.0,
    metrics_interval_s=1.0,
    look_back_period_s=2.0,
    upscale_delay_s=2.0,
    downscale_delay_s=4.0,
)


def test_the_number_of_replicas_follows_the_load_down_to_none():
    f = Fleet(a=50, gpus=(80, 80))
    f.serve("a", AUTO, max_ongoing_requests=1)
    for number in range(2):
        f.request(number, "a")
    f.load("a")
    for _ in range(6):
        f.wait(1.0)
    f.load("a")
    assert len(f.hot("a")) == 2
    for number in range(2):
        f.done(number)
    for _ in range(20):
        f.wait(1.0)
        while f.state.moves:
            f.tell(
                OffloadFinished(
                    replica_id=(move := next(iter(f.state.moves.values())).command).replica_id, move=move.move, at=f.now
                )
            )
    assert f.hot("a") == ()
    assert {each.level for each in f.state.residency.replicas.values()} == {Level.WARM}
    assert (AlarmKind.AUTOSCALER, "a") not in f.state.alarms.times, "an idle model is not looked at"
    f.request(7, "a")
    assert f.under_way("a").source is Level.WARM


def test_an_autoscaler_has_its_turn_however_much_comes_in():
    f = Fleet(a=50, gpus=(80, 80))
    f.serve("a", AUTO, max_ongoing_requests=1)
    f.request(0, "a")
    f.load("a")
    for number in range(1, 20):
        f.now += 0.4
        f.request(number, "a")
    assert f.state.residency.target("a") > 1


def test_a_least_number_of_replicas_is_kept():
    f = Fleet(a=50)
    f.serve("a", AutoscalingSpec(min_replicas=1, metrics_interval_s=1.0))
    f.wait(1.0)
    f.load("a")
    assert f.hot("a")


def test_an_autoscaler_is_changed_and_taken_away():
    f = Fleet(a=50)
    f.serve("a", AUTO)
    f.request(1, "a")
    f.serve("a", AutoscalingSpec(min_replicas=0, max_replicas=1))
    assert f.state.models["a"].autoscaler.spec.max_replicas == 1
    f.serve("a")
    assert f.state.models["a"].autoscaler is None
    assert (AlarmKind.AUTOSCALER, "a") not in f.state.alarms.times


def test_an_autoscaler_of_a_model_that_is_not_deployed_yet_waits():
    f = Fleet()
    f.serve("a", AUTO)
    assert not f.state.alarms.times
    f.deploy(Wanted(spec=ModelSpec(model="a", weight_bytes=50), replicas=1))
    f.load("a")
    assert (AlarmKind.AUTOSCALER, "a") in f.state.alarms.times


def test_an_idle_model_becomes_warm_and_then_cold():
    f = Fleet(a=50, planner=ResidencyPolicy(idle_to_warm_s=10.0, idle_to_cold_s=30.0))
    f.request(1, "a")
    f.load("a")
    f.done(1)
    f.wait(10.0)
    f.leave("a")
    [record] = f.state.residency.replicas.values()
    assert record.level is Level.WARM
    f.wait(30.0)
    f.leave("a")
    [record] = f.state.residency.replicas.values()
    assert record.level is Level.COLD


def test_a_replica_with_requests_in_flight_is_not_idle():
    f = Fleet(a=50, planner=ResidencyPolicy(idle_to_warm_s=10.0))
    f.request(1, "a")
    f.load("a")
    f.wait(50.0)
    assert f.hot("a")


# -- one control plane


def test_a_deployed_model_has_a_least_turn():
    f = Fleet(a=50)
    assert f.state.residency.models["a"].min_hot_s == 5.0
    f.deploy(Wanted(spec=ModelSpec(model="a", weight_bytes=50, min_hot_s=60.0)))
    assert f.state.residency.models["a"].min_hot_s == 60.0


def test_a_state_is_written_read_and_goes_on_alike():
    f = Fleet(a=50, b=60)
    f.serve("a", AUTO)
    f.request(1, "a")
    f.now = 1.0
    f.progress("a", 10)
    f.now = 2.0
    f.load("a")
    f.request("two", "b")
    image = from_json(to_json(image_of(f.state)), FleetImage)
    other = fleet_of(image)
    assert other == f.state
    assert hash(other) == hash(f.state)
    event = ClockAdvanced(at=9.0)
    assert fleet_step(other, event) == fleet_step(f.state, event)


def test_every_event_and_command_can_be_written():
    f = Fleet(a=50)
    event = ModelRequested(request_id=1, model="a", at=0.0)
    step = f.tell(event)
    for value in (event, *step.commands, *step.notes):
        assert from_json(to_json(value), type(value)) == value


def test_a_controller_that_takes_over_is_told_all_that_is_outstanding():
    f = Fleet(a=30, b=60, c=40)
    f.serve("a", max_ongoing_requests=1, idempotent=True)
    f.request(1, "a")
    f.load("a")
    f.lost(1)
    f.wait(1.0)
    f.request(2, "b")
    f.request(3, "c")
    f.load("c")
    f.request(4, "a")
    told = outstanding(f.state)
    assert [each for each in told if isinstance(each, (Dispatch, Retry))] == [
        Retry(1, f.hot("a")[0], 2, None, "lost: gone"),
        Dispatch(3, f.hot("c")[0]),
    ]
    assert [(each.request_id, each.status.kind) for each in told if isinstance(each, TellCaller)] == [
        (2, StatusKind.PROVISIONING),
        (4, StatusKind.QUEUED),
    ]
    assert told[-1] == WakeAt(f.state.wake_at)
    assert [each.revision for each in told if isinstance(each, TellCaller)] == [
        f.state.requests[2].revision,
        f.state.requests[4].revision,
    ]


def test_what_a_replica_was_told_to_stop_is_told_again():
    f = Fleet(a=50)
    f.request(1, "a", deadline=2.0)
    f.load("a")
    f.wait(2.0)
    assert [each for each in outstanding(f.state) if isinstance(each, StopAttempt)] == [StopAttempt(1, f.hot("a")[0], 1)]


def test_moves_are_outstanding_in_the_order_in_which_they_were_given():
    f = Fleet(a=30, b=30)
    f.request(1, "a")
    f.request(2, "b")
    told = outstanding(f.state)
    assert [each.model for each in told if isinstance(each, LoadToGpu)] == ["a", "b"]
    assert outstanding(open_fleet()) == ()


def test_a_state_says_who_waits():
    f = Fleet(a=50)
    f.request("x", "a")
    f.request(7, "a")
    assert f.state.waiting("a") == ("x", 7)
    assert f.state.waiting("nobody's") == ()
    assert list(f.state.unanswered) == ["x", 7]


def test_what_was_answered_is_a_move_no_more():
    f = Fleet(a=50)
    f.request(1, "a")
    move = f.under_way("a")
    wrong = f.tell(OffloadFinished(replica_id=move.replica_id, move=move.move, at=0.0))
    assert f.under_way("a") == move, "an answer of another kind is none"
    assert wrong.state.moves
    f.tell(LoadFinished(replica_id=move.replica_id, move=move.move, at=0.0))
    assert not f.state.moves


def test_alarms_are_one_for_each_subject():
    alarms = Alarms().set(AlarmKind.ROOM, "a", 3.0).set(AlarmKind.ROUTER, "a", 2.0).set(AlarmKind.ROOM, "a", 1.0)
    assert [alarm.at for alarm in alarms.order] == [1.0, 2.0]
    assert alarms == Alarms(alarms.times)
    assert alarms.order == Alarms(alarms.times).order
    assert alarms.set(AlarmKind.ROUTER, "a", None).set(AlarmKind.ROOM, "a", None) == Alarms()
    assert Alarms().next_at is None


# -- what is refused


def test_what_is_no_event_is_refused_and_changes_nothing():
    state = open_fleet()
    with pytest.raises(InvalidEventError, match=r"event must be an event of rankcore\.dispatching\.events, got 7"):
        fleet_step(state, 7)


def test_a_scale_of_an_unknown_model_is_refused():
    f = Fleet(a=50)
    for event in (ScaleRequested(model="z", replicas=1, at=0.0), EvictRequested(model="z", at=0.0)):
        before = f.state
        with pytest.raises(InvalidEventError):
            f.tell(event)
        assert f.state == before


GOOD = {
    "model": ModelRequested(request_id=1, model="a", at=0.0),
    "progress": LoadProgressed(replica_id="a#0", move=1, bytes_done=0, at=0.0),
}


@pytest.mark.parametrize(
    ("which", "changes"),
    [
        ("model", {"model": ""}),
        ("model", {"request_id": 1.5}),
        ("model", {"deadline": -1.0}),
        ("model", {"key": 3}),
        ("model", {"at": float("nan")}),
        ("progress", {"replica_id": 3}),
        ("progress", {"move": -1}),
        ("progress", {"bytes_done": 2**64}),
        ("progress", {"at": -1.0}),
    ],
)
def test_a_malformed_event_is_refused(which: str, changes: dict):
    with pytest.raises(InvalidEventError):
        replace(GOOD[which], **changes)


def test_a_malformed_spec_is_refused():
    with pytest.raises(InvalidEventError, match=r"ServingChanged\.spec"):
        ServingChanged(spec=7, at=0.0)
    with pytest.raises(InvalidEventError, match=r"ServingChanged\.at"):
        ServingChanged(spec=ServingSpec(routing=RoutingSpec(name="a")), at=-1.0)
    with pytest.raises(InvalidSpecError, match=r"ServingSpec\.routing must be a RoutingSpec"):
        ServingSpec(routing=7)
    with pytest.raises(InvalidSpecError, match=r"ServingSpec\.routing\.by_credits"):
        ServingSpec(routing=RoutingSpec(name="a", by_credits=True))
    with pytest.raises(InvalidSpecError, match=r"ServingSpec\.autoscaling"):
        ServingSpec(routing=RoutingSpec(name="a"), autoscaling=7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait_for_room_s": -1.0},
        {"failed_for_s": float("inf")},
        {"turn_s": 0.0},
        {"progress_percent": 0},
        {"newest_weight": 0.0},
        {"newest_weight": True},
        {"newest_weight": "1"},
    ],
)
def test_a_malformed_policy_is_refused(wrong: dict):
    with pytest.raises(InvalidSpecError, match=f"DispatchPolicy.{next(iter(wrong))}"):
        DispatchPolicy(**wrong)


def test_deploying_the_same_again_changes_nothing():
    f = Fleet(a=50)
    f.request(1, "a")
    step = f.tell(DeployRequested(wanted=(Wanted(spec=ModelSpec(model="a", weight_bytes=50)),), at=0.0))
    assert not commands(step, LoadToGpu)
    assert not f.state.models["a"].demanded
    assert RequestDone


def test_who_is_heard_late_to_be_hot_has_its_time_from_then_on():
    """The load was done long ago, longer than the model is to be HOT for: it is not displaced before it has served anybody."""
    f = Fleet(policy=DispatchPolicy(wait_for_room_s=1000))
    f.deploy(*(Wanted(spec=ModelSpec(model=model, weight_bytes=60, min_hot_s=30), replicas=0) for model in "ab"))
    f.request(1, "a")
    f.request(2, "b")
    f.wait(100.0)
    move = f.under_way("a")
    step = f.tell(LoadFinished(replica_id=move.replica_id, move=move.move, at=50.0))
    assert [command.request_id for command in commands(step, Dispatch)] == [1]
    assert f.hot("a") == ("a#0",)
    f.done(1)
    f.wait(29.0)
    assert f.hot("a") == ("a#0",)
    f.wait(2.0)
    assert f.hot("a") == ()
