"""Calls that wait where there is no replica: one is asked for, once, and not for ever (P3, D2, D3, D4, D7, D11)."""

from itertools import pairwise
from typing import Any

import pytest

from rankcore.autoscaling.spec import AutoscalingSpec
from rankcore.cluster import planner as planner_part
from rankcore.cluster import ranking
from rankcore.cluster.commands import GiveTenure, MoveWeights, PublishAvailability, Standing
from rankcore.cluster.events import DeletionRequested, LoadReported, MoveProgressed, NodeJoined, ReportedLoad, ScaleRequested
from rankcore.cluster.invariants import check
from rankcore.cluster.records import Cause
from rankcore.cluster.residency import ResidencySpec, model_id, version_of
from rankcore.cluster.spec import EntrySpec
from rankcore.cluster.step import cluster_step
from rankcore.errors import InvalidEventError, InvalidSpecError, PlannerFailedError
from rankcore.events import NodeLost, ReplicaUnhealthy
from rankcore.residency import Level
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import EvictRequested
from rankcore.spec import DeploymentSpec
from tests.clusters import Cluster, application, entry

SMALL, LARGE = (ResidencySpec(weight_bytes=size, min_hot_s=0.0) for size in (4, 6))


def cold(*specs: EntrySpec, gpus: tuple[int, ...] = (8,)) -> Cluster:
    cluster = Cluster()
    cluster.join(*gpus)
    cluster.apply(*(application(each) for each in specs))
    return cluster


def loads(cluster: Cluster) -> list[str]:
    given = [each.command for each in cluster.done if isinstance(each, MoveWeights)]
    return [each.replica_id for each in given if isinstance(each, LoadToGpu)]


def shown(cluster: Cluster, deployment: str) -> list[Standing]:
    told = [each for each in cluster.done if isinstance(each, PublishAvailability) and each.deployment == deployment]
    return [each.availability.standing for each in told]


def test_any_number_of_processes_brings_one_replica_once() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    for process in ("p", "q", "r"):
        cluster.call("a/x", 5, process)
    assert cluster.target("a/x") == 1
    assert cluster.state.deployments["a/x"].target.cause is Cause.DEMAND
    assert len(loads(cluster)) == 1
    cluster.moves_end = True
    cluster.settle()
    cluster.call("a/x", 9)
    assert cluster.target("a/x") == 1
    assert len(loads(cluster)) == 1


def test_what_demand_has_raised_is_saved_lazily_and_nothing_waits_for_it() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL))
    cluster.saves_at_once = cluster.moves_end = False
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 1
    assert not cluster.under_way
    cluster.wait(1.0)
    assert [each.cause for each in cluster.under_way] == [Cause.DEMAND]


def test_a_target_that_demand_has_raised_falls_when_nobody_waits_and_there_is_no_place() -> None:
    cluster = cold(entry("a/x", 0, residency=LARGE), gpus=(4,))
    cluster.call("a/x", 1)
    assert list(cluster.phases().values()) == ["WAITING"]
    cluster.call("a/x", 0)
    assert cluster.target("a/x") == 0
    assert cluster.phases() == {}


def test_demand_that_is_not_heard_of_for_long_is_forgotten() -> None:
    cluster = cold(entry("a/x", 0, residency=LARGE), gpus=(4,))
    cluster.call("a/x", 1)
    cluster.wait(9.0)
    assert cluster.target("a/x") == 1
    cluster.wait(10.0)
    assert cluster.target("a/x") == 0


def test_what_is_deleted_and_applied_again_is_not_loaded_for_calls_of_before() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL))
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 1
    cluster.tell(DeletionRequested(applications=("a",), at=cluster.now))
    cluster.settle()
    assert "a/x" not in cluster.state.deployments
    cluster.call("a/x", 0)  # comes too late to be of anything
    cluster.apply(application(entry("a/x", 0, residency=SMALL)))
    cluster.wait(5.0)
    assert (cluster.target("a/x"), len(loads(cluster))) == (0, 1)
    assert list(check(cluster.state)) == []


def test_what_loads_goes_on_though_nobody_waits_any_more() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.call("a/x", 1)
    cluster.call("a/x", 0)
    assert cluster.target("a/x") == 1
    assert list(cluster.phases().values()) == ["LOADING"]


def test_nobody_is_loaded_over_whom_another_has_left_if_nobody_waits_any_more() -> None:
    cluster = cold(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=LARGE))
    cluster.moves_end = False
    cluster.call("b/x", 1)
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING", "b/x@1#1.1": "RESERVING"}
    assert shown(cluster, "b/x") == [Standing.PROVISIONING]
    cluster.call("b/x", 0)
    assert cluster.target("b/x") == 1, "it may be wanted again before the last one has left"
    cluster.moves_end = True
    cluster.settle()
    assert cluster.phases() == {"a/x@1#1.0": "RESTING"}
    assert loads(cluster) == ["a/x@1#1.0"]


def test_who_is_first_in_line_has_a_place_and_is_told_behind_whom_while_that_has_its_turn() -> None:
    """A reservation is a place (T12): those who call are not told that it waits for one."""
    cluster = cold(entry("a/x", 1, residency=ResidencySpec(weight_bytes=4, min_hot_s=2.0)), entry("b/x", 0, residency=LARGE))
    cluster.call("b/x", 1)
    told = [each.availability for each in cluster.done if isinstance(each, PublishAvailability) and each.deployment == "b/x"]
    assert [(each.standing, each.behind) for each in told] == [(Standing.PROVISIONING, ("a/x",))]
    assert cluster.phases()["a/x@1#1.0"] == "SERVING"
    cluster.moves_end = False
    cluster.wait(2.5)
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING", "b/x@1#1.1": "RESERVING"}
    told = [each.availability for each in cluster.done if isinstance(each, PublishAvailability) and each.deployment == "b/x"]
    assert (told[-1].standing, told[-1].behind) == (Standing.PROVISIONING, ("a/x",))


def test_who_is_first_in_line_no_more_is_told_that_it_waits_for_a_place() -> None:
    """Somebody of a higher priority has the reservation now."""
    urgent = ResidencySpec(weight_bytes=6, priority=1)
    first = entry("a/x", 1, residency=ResidencySpec(weight_bytes=4, min_hot_s=2.0))
    cluster = cold(first, entry("b/x", 0, residency=LARGE), entry("c/x", 0, residency=urgent))
    cluster.call("b/x", 1)
    cluster.call("c/x", 1)
    assert shown(cluster, "c/x") == [Standing.PROVISIONING]
    assert shown(cluster, "b/x") == [Standing.PROVISIONING, Standing.QUEUED]


def test_who_is_the_next_in_line_is_told_so_as_soon_as_the_first_is_loaded() -> None:
    patient = ResidencySpec(weight_bytes=6, min_hot_s=2.0, wait_for_room_s=600.0)
    cluster = cold(*[entry(each, 0, residency=patient) for each in ("a/x", "b/x", "c/x")])
    for each in ("a/x", "b/x", "c/x"):
        cluster.call(each, 1)
    assert shown(cluster, "c/x") == [Standing.QUEUED]
    cluster.wait(2.5)
    assert shown(cluster, "b/x")[-1] is Standing.READY
    told = [each.availability for each in cluster.done if isinstance(each, PublishAvailability) and each.deployment == "c/x"]
    assert (told[-1].standing, told[-1].behind) == (Standing.PROVISIONING, ("b/x",))


def test_without_a_place_for_long_those_who_wait_are_told_and_it_is_tried_again_later() -> None:
    spec = ResidencySpec(weight_bytes=6, wait_for_room_s=20.0, failed_for_s=30.0)
    cluster = cold(entry("a/x", 0, residency=spec), gpus=(4,))
    for _ in range(6):
        cluster.call("a/x", 1)
        cluster.wait(4.0)
    assert shown(cluster, "a/x") == [Standing.QUEUED, Standing.UNAVAILABLE]
    assert cluster.target("a/x") == 0
    cluster.call("a/x", 1)
    assert cluster.target("a/x") == 0, "nothing is tried for those who call"
    for _ in range(8):
        cluster.wait(4.0)
        cluster.call("a/x", 1)
    assert cluster.target("a/x") == 1
    assert shown(cluster, "a/x")[-1] is Standing.QUEUED


def test_who_calls_a_deployment_that_leaves_is_told_behind_whom_it_comes_back_and_not_that_it_is_hot() -> None:
    cluster = cold(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=LARGE))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=1, at=0.0))
    assert list(cluster.phases().values()) == ["LEAVING", "RESERVING"]
    cluster.call("a/x", 1)
    assert cluster.target("a/x") == 1
    assert cluster.state.deployments["a/x"].residency.availability.standing is Standing.QUEUED


def test_who_waits_for_room_is_told_behind_whom_and_how_far_its_load_has_come() -> None:
    cluster = cold(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=LARGE))
    cluster.moves_end = False
    before = len(cluster.done)
    cluster.call("b/x", 1)
    cluster.settle()
    cluster.end_moves()
    cluster.settle()
    (load,) = (each.command for each in cluster.done[before:] if isinstance(each, MoveWeights) and "b/x" in each.deployment)
    for share in (0.25, 0.5):
        cluster.tell(MoveProgressed(worker_id=load.replica_id, move=load.move, share=share, at=cluster.now))
    cluster.tell(MoveProgressed(worker_id=load.replica_id, move=load.move - 1, share=0.1, at=cluster.now))
    cluster.end_moves()
    cluster.settle()
    told = [
        each.availability
        for each in cluster.done[before:]
        if isinstance(each, PublishAvailability) and each.deployment == "b/x"
    ]
    assert [(each.standing, each.behind, each.percent) for each in told] == [
        (Standing.PROVISIONING, ("a/x",), 0),
        (Standing.LOADING, (), 0),
        (Standing.LOADING, (), 25),
        (Standing.LOADING, (), 50),
        (Standing.LOADING, (), 100),
        (Standing.READY, (), 0),
    ]


def test_two_that_do_not_fit_together_take_turns_and_nobody_waits_for_longer_than_one() -> None:
    turn = ResidencySpec(weight_bytes=6, min_hot_s=5.0)
    cluster = cold(entry("a/x", 0, residency=turn), entry("b/x", 0, residency=turn))
    served = []
    for _ in range(30):
        for each in ("a/x", "b/x"):
            cluster.call(each, 0 if cluster.routes.get(each) else 1, each)
        served.append([each for each in ("a/x", "b/x") if cluster.routes.get(each)])
        cluster.wait(1.0)
    assert all(len(each) == 1 for each in served), "there is room for one"
    changes = [index for index in range(1, 30) if served[index] != served[index - 1]]
    assert len(changes) >= 4
    assert all(later - before >= 5 for before, later in pairwise(changes)), "each has its turn"
    assert all(later - before <= 6 for before, later in pairwise(changes)), "and no more than that while the other waits"


def test_an_eviction_while_calls_wait_costs_them_a_load_and_not_the_answer() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.call("a/x", 1)
    cluster.tell(EvictRequested(model="a/x", keep=Level.COLD, at=cluster.now))
    cluster.moves_end = True
    cluster.end_moves()
    cluster.settle()
    assert cluster.phases() == {}
    cluster.call("a/x", 1)
    assert cluster.routes["a/x"]


def test_room_that_appears_in_time_is_taken() -> None:
    cluster = cold(entry("a/x", 0, residency=LARGE), gpus=(4,))
    cluster.call("a/x", 1)
    assert list(cluster.phases().values()) == ["WAITING"]
    cluster.join(8, node_id="n1")
    assert list(cluster.phases().values()) == ["SERVING"]
    assert shown(cluster, "a/x")[-1] is Standing.READY


def test_a_node_that_is_lost_during_a_load_costs_nobody_the_answer() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL))
    cluster.join(8, node_id="n1")
    cluster.moves_end = False
    cluster.call("a/x", 1)
    (worker_id,) = cluster.phases()
    lost = cluster.state.weights.planner.replicas[worker_id].node_id
    cluster.workers.held.clear()
    cluster.now = 1.0
    cluster.moves_end = True
    cluster.tell(NodeLost(node_id=lost, at=1.0))
    cluster.wait(3.0)
    assert cluster.routes["a/x"]
    assert [each.node_id for each in cluster.state.weights.planner.replicas.values()] != [lost]


def test_the_number_of_hot_replicas_follows_the_load_down_to_none() -> None:
    scaling = AutoscalingSpec(
        min_replicas=0,
        max_replicas=3,
        target_ongoing_requests=1.0,
        metrics_interval_s=1.0,
        look_back_period_s=1.0,
        upscale_delay_s=0.0,
        downscale_delay_s=5.0,
    )
    cluster = cold(entry("a/x", 0, residency=SMALL, autoscaling=scaling), gpus=(4, 4))
    cluster.join(8, node_id="n1")
    cluster.call("a/x", 3)
    assert cluster.target("a/x") == 1, "demand asks for one"
    counts = []
    for second in range(40):
        replicas = sorted(cluster.routes["a/x"])
        for number, each in enumerate(replicas):
            busy = ReportedLoad(in_flight=1 if second < 10 else 0)
            cluster.tell(
                LoadReported(reporter=each, incarnation=1, seq=100 * second + number, entries={"a/x": busy}, at=cluster.now)
            )
        cluster.call("a/x", max(0, 3 - len(replicas)) if second < 10 else 0)
        cluster.wait(1.0)
        counts.append(len(cluster.routes["a/x"]))
    assert max(counts) == 3
    assert counts[-1] == 0


def test_a_user_s_target_stays_though_there_is_no_place() -> None:
    cluster = cold(entry("a/x", 1, residency=ResidencySpec(weight_bytes=6, wait_for_room_s=20.0)), gpus=(4,))
    cluster.wait(21.0)
    assert shown(cluster, "a/x")[-1] is Standing.UNAVAILABLE
    assert cluster.target("a/x") == 1
    cluster.join(8, node_id="n1")
    assert cluster.status("a/x") == "HEALTHY"
    assert shown(cluster, "a/x")[-1] is Standing.READY


def test_a_load_that_does_not_end_is_broken_off() -> None:
    cluster = cold(entry("a/x", 0, residency=ResidencySpec(weight_bytes=4, load_timeout_s=60.0)))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    cluster.wait(59.0)
    assert len(loads(cluster)) == 1
    cluster.wait(10.0)
    assert len(loads(cluster)) == 2
    assert "load: killed" in cluster.state.deployments["a/x"].trouble


def given_up(replicas: int = 1) -> Cluster:
    """All loads have failed for good."""
    cluster = cold(entry("a/x", 0, residency=SMALL, max_start_failures=1), gpus=(8, 8))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=replicas, at=0.0))
    for worker_id in list(cluster.workers.held):
        cluster.workers.fail(worker_id, 0.0)
    cluster.hear()
    cluster.settle()
    assert cluster.status("a/x") == "DEPLOY_FAILED"
    assert cluster.phases() == {}
    return cluster


def standing(cluster: Cluster) -> Any:
    told = [each.availability for each in cluster.done if isinstance(each, PublishAvailability)]
    return told[-1]


def test_a_version_that_fails_to_load_for_good_is_not_to_be_had_and_after_a_while_one_who_calls_has_it_tried_again() -> None:
    cluster = given_up()
    assert (standing(cluster).standing, standing(cluster).retry_after_s) == (Standing.UNAVAILABLE, 30.0)
    assert "load: no luck" in standing(cluster).because
    cluster.call("a/x", 1)
    cluster.wait(29.0)
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 1, "nothing is tried for those who call"
    cluster.wait(2.0)
    assert len(loads(cluster)) == 2
    assert standing(cluster).standing is Standing.LOADING
    cluster.end_moves()
    cluster.settle()
    assert cluster.status("a/x") == "HEALTHY"
    assert standing(cluster).standing is Standing.READY


def test_a_version_that_nobody_calls_is_not_tried_again() -> None:
    cluster = given_up()
    cluster.wait(100.0)
    assert len(loads(cluster)) == 1


def test_who_is_tried_again_and_fails_again_is_not_to_be_had_for_as_long_once_more() -> None:
    cluster = given_up()
    for tries in (2, 3):
        cluster.wait(31.0)
        cluster.call("a/x", 1)
        assert len(loads(cluster)) == tries
        (worker_id,) = cluster.workers.held
        cluster.workers.fail(worker_id, cluster.now)
        cluster.hear()
        cluster.settle()
        assert cluster.status("a/x") == "DEPLOY_FAILED"
        assert (standing(cluster).standing, standing(cluster).retry_after_s) == (Standing.UNAVAILABLE, 30.0)
        cluster.call("a/x", 1)
        assert len(loads(cluster)) == tries


def test_of_several_replicas_one_is_tried_again_and_the_others_follow_once_it_is_ready() -> None:
    cluster = given_up(replicas=2)
    cluster.wait(31.0)
    before = len(loads(cluster))
    for process in ("p", "q"):
        cluster.call("a/x", 1, process)
    assert len(loads(cluster)) == before + 1
    cluster.wait(5.0)
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == before + 1
    cluster.moves_end = True
    cluster.settle()
    assert cluster.ranks("a/x") == [0, 1]
    assert cluster.status("a/x") == "HEALTHY"


def test_what_was_scaled_to_nothing_after_it_had_failed_for_good_is_tried_again_too() -> None:
    cluster = given_up()
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.wait(31.0)
    cluster.call("a/x", 1)
    assert (cluster.target("a/x"), len(loads(cluster))) == (1, 2)
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=cluster.now))
    cluster.end_moves()
    cluster.settle()
    assert cluster.phases() == {}
    cluster.call("a/x", 0)
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 3, "it did not fail: nobody has to wait"


def test_what_is_tried_again_and_has_no_place_waits_for_one() -> None:
    cluster = given_up()
    cluster.apply(application(entry("b/x", 2, residency=ResidencySpec(weight_bytes=6, dedicated=True))))
    cluster.end_moves()
    cluster.settle()
    cluster.wait(31.0)
    cluster.call("a/x", 1)
    assert standing(cluster).standing is Standing.QUEUED


def test_what_has_failed_for_good_while_another_version_works_is_served_by_that() -> None:
    cluster = cold(entry("a/x", 1, residency=SMALL, max_start_failures=1))
    cluster.moves_end = False
    cluster.apply(application(entry("a/x", 1, residency=SMALL, max_start_failures=1, version="2")))
    cluster.end_moves()
    cluster.settle()
    (worker_id,) = cluster.workers.held
    assert "@2" in worker_id
    cluster.workers.fail(worker_id, 0.0)
    cluster.hear()
    cluster.moves_end = True
    cluster.settle()
    assert cluster.status("a/x") == "DEPLOY_FAILED"
    assert [each.partition("@")[2][0] for each in cluster.phases()] == ["1"]
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    assert cluster.routes["a/x"] == set()
    assert refusals(cluster) == [], "who is refused does not ask for it"
    cluster.call("a/x", 1)
    assert (cluster.target("a/x"), len(cluster.routes["a/x"])) == (1, 1)


def test_a_controller_that_comes_back_has_it_tried_again_after_as_long_as_the_last_one() -> None:
    cluster = given_up()
    cluster.wait(20.0)
    cluster.restart()
    cluster.join(8)
    assert cluster.status("a/x") == "DEPLOY_FAILED"
    assert (standing(cluster).standing, standing(cluster).retry_after_s) == (Standing.UNAVAILABLE, 30.0)
    cluster.wait(29.0)
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 1
    cluster.wait(2.0)
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 2
    cluster.moves_end = True
    cluster.settle()
    assert standing(cluster).standing is Standing.READY


def test_after_a_restart_nobody_is_refused_where_one_is_hot_that_had_been_tried_again() -> None:
    cluster = given_up()
    cluster.wait(31.0)
    cluster.call("a/x", 1)
    for worker_id in list(cluster.workers.held):
        cluster.workers.finish(worker_id, cluster.now)
    cluster.hear()
    while not any(isinstance(each, GiveTenure) for each in cluster.done):
        cluster.step(cluster.news.popleft())
    assert cluster.status("a/x") == "DEPLOY_FAILED"
    cluster.moves_end = True
    cluster.restart()
    cluster.join(8, 8)
    assert (cluster.status("a/x"), cluster.state.deployments["a/x"].residency.failed_until) == ("HEALTHY", 0.0)


def test_what_is_applied_anew_is_tried_for_those_who_call() -> None:
    cluster = given_up()
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=cluster.now))
    cluster.moves_end = True
    cluster.apply(application(entry("a/x", 0, version="2", residency=SMALL, max_start_failures=1)))
    assert standing(cluster).standing is Standing.QUEUED, "those who refuse calls for what was told last do so no more"
    cluster.call("a/x", 1)
    assert loads(cluster)[-1].startswith("a/x@2#")
    assert standing(cluster).standing is Standing.READY


def test_controllers_that_come_back_over_and_over_try_no_load_each_time() -> None:
    cluster = given_up()
    for _ in range(8):
        cluster.wait(10.0)
        cluster.call("a/x", 1)
        cluster.restart()
        cluster.join(8)
        cluster.call("a/x", 1)
    assert len(loads(cluster)) == 1
    cluster.wait(31.0)
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 2, "and the first that stays tries it"


def test_a_load_that_was_tried_again_goes_on_after_a_restart_and_is_for_who_calls() -> None:
    cluster = given_up()
    cluster.wait(31.0)
    cluster.call("a/x", 1)
    assert len(loads(cluster)) == 2
    cluster.restart()
    cluster.join(8)
    cluster.call("a/x", 1)
    assert standing(cluster).standing is Standing.LOADING
    cluster.moves_end = True
    cluster.settle()
    cluster.wait(1.0)
    assert (standing(cluster).standing, len(loads(cluster))) == (Standing.READY, 2)


def test_after_a_restart_what_had_no_place_waits_for_one_again() -> None:
    spec = ResidencySpec(weight_bytes=6, wait_for_room_s=20.0, failed_for_s=1000.0)
    cluster = cold(entry("a/x", 0, residency=spec), gpus=(4,))
    for _ in range(6):
        cluster.call("a/x", 1)
        cluster.wait(4.0)
    assert standing(cluster).standing is Standing.UNAVAILABLE
    cluster.restart()
    cluster.join(4)
    cluster.call("a/x", 1)
    assert (standing(cluster).standing, loads(cluster)) == (Standing.QUEUED, [])
    cluster.join(8, node_id="n1")
    assert standing(cluster).standing is Standing.READY


def refusals(cluster: Cluster) -> list[Any]:
    told = [each.availability for each in cluster.done if isinstance(each, PublishAvailability)]
    return [each for each in told if each.standing is Standing.UNAVAILABLE]


def test_what_is_given_up_while_another_replica_begins_is_not_refused_for_ever() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL, max_start_failures=1), gpus=(8, 8))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=2, at=0.0))
    first, second = cluster.workers.held
    cluster.workers.finish(first, 0.0)
    cluster.hear()
    while not any(isinstance(each, GiveTenure) for each in cluster.done):
        cluster.step(cluster.news.popleft())
    cluster.workers.fail(second, 0.0)
    cluster.step(cluster.workers.news.pop(0))
    cluster.settle()
    assert cluster.status("a/x") == "DEPLOY_FAILED"
    assert [*cluster.phases().values()] == ["LEAVING"]
    cluster.end_moves()
    cluster.settle()
    assert [each.retry_after_s for each in refusals(cluster)] == [30.0]


def test_after_a_restart_nobody_is_taken_for_gone_who_has_not_reported_yet() -> None:
    cluster = cold(entry("a/x", 0, residency=LARGE), gpus=(4,))
    cluster.call("a/x", 1)
    cluster.wait(2.0)
    cluster.restart()
    cluster.join(4)
    assert cluster.target("a/x") == 1
    cluster.wait(9.0)
    assert cluster.target("a/x") == 1
    cluster.wait(2.0)
    assert cluster.target("a/x") == 0


def test_load_of_others_and_of_replicas_is_no_demand() -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL), entry("b/x", 0))
    loads_of = {"a/x": ReportedLoad(waiting=3)}
    cluster.tell(LoadReported(reporter="a/x#1.0", incarnation=1, seq=1, entries=loads_of, at=0.0))
    cluster.call("b/x", 3)
    cluster.call("c/x", 3)
    assert cluster.target("a/x") == cluster.target("b/x") == 0
    cluster.reports = 0
    cluster.call("a/x", 3)
    assert cluster.target("a/x") == 0, "an older report counts for nothing"


def test_a_bug_of_the_planner_ends_the_step_and_nothing_of_it_has_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cold(entry("a/x", 0, residency=SMALL))
    before = cluster.state

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("of bytes")

    monkeypatch.setattr(planner_part, "carried_out", broken)
    with pytest.raises(PlannerFailedError, match="ZeroDivisionError: of bytes"):
        cluster_step(before, ScaleRequested(deployment="a/x", target_replicas=1, at=0.0)) and cluster.call("a/x", 1)
    assert cluster.state.weights.planner.replicas == before.weights.planner.replicas


def test_nobody_is_displaced_of_a_deployment_that_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cold(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=LARGE))
    honest = ranking.core.step

    def buggy(state: Any, event: Any) -> Any:
        if isinstance(event, ReplicaUnhealthy):
            raise ZeroDivisionError
        return honest(state, event)

    monkeypatch.setattr(ranking.core, "step", buggy)
    cluster.tell(ReplicaUnhealthy(replica_id="a/x#1.0", at=0.0))
    assert cluster.state.deployments["a/x"].frozen
    assert check(cluster.state) == []
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=1, at=1.0))
    assert sorted(cluster.phases().values()) == ["SERVING", "WAITING"]


@pytest.mark.parametrize(
    ("field", "options", "ranks"),
    [
        ("EntrySpec.residency", {"residency": "4 GB"}, {}),
        ("EntrySpec.ranks.placement", {"residency": SMALL}, {"placement": "pack_ranks"}),
        ("EntrySpec.ranks.max_surge", {"residency": SMALL}, {"max_surge": 1}),
        ("EntrySpec.ranks.max_surge", {"residency": SMALL}, {"max_surge": "25%"}),
        ("EntrySpec.ranks.restart_token", {"residency": SMALL}, {"restart_token": "monday"}),
        ("EntrySpec.demand['num_gpus']", {"residency": SMALL, "demand": {"num_gpus": 1.0}}, {}),
        ("EntrySpec.ranks.version", {"residency": SMALL}, {"version": "v" * 240}),
    ],
)
def test_what_cannot_be_had_together_with_residency_is_named(field: str, options: Any, ranks: Any) -> None:
    with pytest.raises(InvalidSpecError) as error:
        EntrySpec(ranks=DeploymentSpec(name="a/x", target_replicas=1, **ranks), **options)
    assert str(error.value).startswith(field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight_bytes", 0),
        ("weights", 7),
        ("working_bytes", -1),
        ("gpus", 0),
        ("priority", 101),
        ("dedicated", 1),
        ("min_hot_s", -1.0),
        ("spread", None),
        ("node_labels", "n"),
        ("keep", "HOT"),
        ("load_timeout_s", 0.0),
        ("idle_to_cold_s", 0.0),
    ],
)
def test_a_residency_that_cannot_be_is_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(InvalidSpecError, match=rf"ResidencySpec\.{field}"):
        ResidencySpec(**{"weight_bytes": 1, field: value})
    good = ResidencySpec(weight_bytes=1, gpus=2, idle_to_warm_s=5.0, node_labels={"zone": "a"})
    assert good.node_labels == {"zone": "a"}


def test_versions_with_any_character_have_models_of_their_own() -> None:
    names = [model_id("a/x", version) for version in ("1", "1#2", "1%232", "1@2", "%")]
    assert len(set(names)) == 5
    assert not any("#" in each for each in names)
    assert [version_of(each) for each in names] == ["1", "1#2", "1%232", "1@2", "%"]


@pytest.mark.parametrize(("field", "value"), [("gpu_bytes", (-1,)), ("cpu_bytes", -1), ("labels", 3)])
def test_memory_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidEventError, match=rf"NodeJoined\.{field}"):
        NodeJoined(node_id="n", resources={}, at=0.0, **{field: value})
