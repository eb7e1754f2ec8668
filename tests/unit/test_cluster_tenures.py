"""A worker is not a replica: claims, tenures, and what goes sideways between ranks and planner (D6, D8, D12)."""

from typing import Any

import pytest

from rankcore.cluster import cluster_step
from rankcore.cluster.commands import CarryOut, GiveTenure, KillWorker, MoveWeights, PublishAvailability, Standing
from rankcore.cluster.events import (
    DeletionRequested,
    LoadReported,
    MoveFailed,
    MoveFinished,
    MoveProgressed,
    ReportedLoad,
    ScaleRequested,
    WorkerLost,
    WorkerReported,
)
from rankcore.cluster.residency import ResidencySpec
from rankcore.cluster.state import ClusterState
from rankcore.commands import InitializeReplica, KillReplica, PublishRoutes, StopReplica
from rankcore.errors import InvalidEventError
from rankcore.events import ClockAdvanced, NodeLost, ReplicaDied, ReplicaStartFailed, StopRequested
from rankcore.residency import Level, Phase
from rankcore.residency.commands import LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import EvictRequested, MemoryMeasured, UsageReported
from tests.clusters import Cluster, application, entry

SMALL, LARGE = (ResidencySpec(weight_bytes=size, min_hot_s=0.0) for size in (4, 6))


def cluster_with(*specs: Any, gpus: tuple[int, ...] = (8,), cpu_bytes: int = 6) -> Cluster:
    cluster = Cluster()
    cluster.join(*gpus, cpu_bytes=cpu_bytes)
    cluster.apply(*(application(each) for each in specs))
    return cluster


def moves(cluster: Cluster, kind: type[Any]) -> list[Any]:
    return [each.command for each in cluster.done if isinstance(each, MoveWeights) and isinstance(each.command, kind)]


def standing(cluster: Cluster, deployment: str) -> Any:
    return cluster.state.deployments[deployment].residency.availability


def test_a_cold_deployment_has_no_worker_until_it_is_wanted() -> None:
    cluster = cluster_with(entry("a/x", 0, residency=SMALL))
    assert cluster.phases() == {}
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    assert cluster.phases() == {"a/x@1#1.0": "SERVING"}
    assert cluster.status("a/x") == "HEALTHY"
    assert cluster.routes["a/x"] == {"a/x#1.0"}
    assert standing(cluster, "a/x").standing is Standing.READY


def test_a_tenure_is_given_at_the_end_of_the_load_and_before_the_ranks() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    kinds = [each for each in cluster.done if isinstance(each, (GiveTenure, MoveWeights))]
    assert isinstance(kinds[0], MoveWeights)
    assert isinstance(kinds[1], GiveTenure)
    assert (kinds[1].worker_id, kinds[1].start.replica_id) == ("a/x@1#1.0", "a/x#1.0")
    given = cluster.done.index(kinds[1])
    assert any(isinstance(each, CarryOut) and isinstance(each.command, InitializeReplica) for each in cluster.done[given:])


def test_one_who_is_wanted_displaces_another_whose_target_falls_with_it() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=LARGE))
    before = len(cluster.done)
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=1, at=1.0))
    assert (cluster.target("a/x"), cluster.target("b/x")) == (0, 1)
    assert cluster.phases() == {"a/x@1#1.0": "RESTING", "b/x@1#1.1": "SERVING"}
    done = cluster.done[before:]
    removed = next(i for i, each in enumerate(done) if isinstance(each, CarryOut) and isinstance(each.command, PublishRoutes))
    offload = next(i for i, each in enumerate(done) if isinstance(each, MoveWeights) and isinstance(each.command, OffloadToCpu))
    assert removed < offload
    shown = [each.availability.standing for each in done if isinstance(each, PublishAvailability) and each.deployment == "b/x"]
    assert shown == [Standing.PROVISIONING, Standing.LOADING, Standing.LOADING, Standing.READY]


def test_of_two_replicas_the_victim_alone_goes_and_the_other_moves_to_rank_0() -> None:
    cluster = cluster_with(entry("a/x", 2, residency=SMALL), entry("b/x", 0, residency=LARGE), gpus=(4, 8))
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=1, at=1.0))
    assert cluster.target("a/x") == 1
    assert cluster.ranks("a/x") == [0]
    assert cluster.ranks("b/x") == [0]


def test_a_stop_is_no_command_for_the_backend_but_the_worker_leaves() -> None:
    cluster = cluster_with(entry("a/x", 2, residency=SMALL))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=1.0))
    assert not [
        each for each in cluster.done if isinstance(each, CarryOut) and isinstance(each.command, (StopReplica, KillReplica))
    ]
    assert sorted(cluster.phases().values()) == ["RESTING", "SERVING"]


def test_a_claim_that_is_given_up_has_stopped_at_once_and_its_load_is_broken_off() -> None:
    cluster = cluster_with(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    assert cluster.phases() == {"a/x@1#1.0": "LOADING"}
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=1.0))
    assert cluster.status("a/x") == "HEALTHY"
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING"}
    cluster.end_moves()
    cluster.settle()
    assert cluster.phases() == {}, "what is on disk alone has no worker"


def test_a_failed_load_is_a_failed_start_and_is_tried_again_after_the_back_off() -> None:
    cluster = cluster_with(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    (worker_id,) = cluster.moving
    cluster.workers.fail(worker_id, cluster.now)
    cluster.hear()
    cluster.settle()
    assert cluster.phases() == {}
    cluster.moves_end = True
    cluster.wait(2.0)
    assert cluster.status("a/x") == "HEALTHY"


def test_a_load_that_fails_is_given_up_though_its_deployment_is_scaled_to_nothing_and_back_each_time() -> None:
    """Amendment 18."""
    cluster = cluster_with(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    failed_at = []
    for _ in range(16):
        cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=cluster.now))
        for worker_id in list(cluster.moving):
            cluster.workers.fail(worker_id, cluster.now)
            cluster.hear()
            cluster.settle()
            failed_at.append(cluster.now)
        cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=cluster.now))
        cluster.wait(0.5)
    assert failed_at == [0.0, 1.0, 3.0], "start_backoff_s is 1, and max_start_failures 3"
    assert cluster.status("a/x") == "DEPLOY_FAILED"


def test_the_load_of_a_worker_that_ends_has_failed() -> None:
    cluster = cluster_with(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    cluster.tell(MoveProgressed(worker_id="a/x@1#1.0", move=(1 << 32) + 1, share=0.5, at=0.0))
    assert standing(cluster, "a/x").percent == 50
    cluster.workers.ends("a/x@1#1.0", cluster.now, "")
    cluster.hear()
    cluster.settle()
    assert cluster.phases() == {}
    assert "load: its worker has ended" in cluster.state.deployments["a/x"].trouble


def test_the_successor_of_a_lost_worker_gets_its_place_before_others_who_wait() -> None:
    first = ResidencySpec(weight_bytes=6, dedicated=True)
    cluster = cluster_with(entry("a/x", 1, residency=first), entry("b/x", 1, residency=first))
    assert sorted(cluster.phases().values()) == ["SERVING", "WAITING"]
    cluster.workers.ends("a/x@1#1.0", cluster.now, "out of memory")
    cluster.hear()
    cluster.settle()
    assert cluster.ranks("a/x") == [0]
    assert cluster.status("a/x") == "HEALTHY"
    assert cluster.status("b/x") == "UPDATING"


def test_an_update_hands_the_memory_of_the_old_version_to_the_new_one() -> None:
    first = ResidencySpec(weight_bytes=6, dedicated=True)
    cluster = cluster_with(entry("a/x", 1, residency=first), entry("b/x", 1, residency=first))
    cluster.apply(application(entry("a/x", 1, version="2", residency=first)))
    assert cluster.status("a/x") == "HEALTHY"
    assert [each for each, phase in cluster.phases().items() if phase == "SERVING"] == ["a/x@2#1.2"]
    assert not any(each.startswith("a/x@1") for each in cluster.phases())


def test_final_news_of_a_replica_whose_worker_lives_lets_the_worker_go() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ReplicaStartFailed(replica_id="a/x#1.0", reason="bad", at=1.0))
    assert cluster.phases()["a/x@1#1.0"] == "LEAVING"
    cluster.moves_end = True
    cluster.settle()
    cluster.wait(2.0)
    assert cluster.status("a/x") == "HEALTHY"
    cluster.tell(ReplicaDied(replica_id="a/x#1.0", at=9.0))
    assert cluster.status("a/x") == "HEALTHY"


def test_the_worker_of_a_replica_that_died_is_not_its_successor() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL), gpus=(8, 8))
    cluster.moves_end = False
    cluster.tell(ReplicaDied(replica_id="a/x#1.0", at=1.0))
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING", "a/x@1#1.1": "LOADING"}


def test_final_news_of_a_replica_whose_worker_leaves_already_changes_nothing_about_the_worker() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    given = len(moves(cluster, OffloadToCpu))
    cluster.tell(ReplicaDied(replica_id="a/x#1.0", at=1.0))
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING"}
    assert len(moves(cluster, OffloadToCpu)) == given == 1
    cluster.end_moves()
    cluster.settle()
    assert cluster.phases() == {"a/x@1#1.0": "RESTING"}


def test_a_load_from_a_copy_that_fails_leaves_the_copy() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    assert cluster.phases() == {"a/x@1#1.0": "LOADING"}
    cluster.workers.fail("a/x@1#1.0", cluster.now)
    cluster.hear()
    cluster.settle()
    assert cluster.phases() == {"a/x@1#1.0": "RESTING"}
    assert cluster.workers.held["a/x@1#1.0"].phase is Phase.RESTING


@pytest.mark.parametrize(("cpu_bytes", "kind"), [(6, OffloadToCpu), (0, UnloadFromGpu)])
def test_what_leaves_has_the_time_for_its_calls_that_its_deployment_says(cpu_bytes: int, kind: type[Any]) -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL, graceful_shutdown_timeout_s=7.0), cpu_bytes=cpu_bytes)
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    assert [each.timeout_s for each in moves(cluster, kind)] == [7.0]


IMPATIENT = {"graceful_shutdown_timeout_s": 1.0, "health_check_timeout_s": 1.0, "repeat_period_s": 1.0}


def killed(cluster: Cluster) -> list[str]:
    return [each.worker_id for each in cluster.done if isinstance(each, KillWorker)]


def initialized(cluster: Cluster) -> list[Any]:
    told = [each.command for each in cluster.done if isinstance(each, CarryOut)]
    return [each for each in told if isinstance(each, InitializeReplica)]


def test_a_copy_that_takes_longer_than_calls_have_is_made_and_its_rank_is_taken_until_then() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL, **IMPATIENT))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.wait(300.0)
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=cluster.now))
    cluster.wait(200.0)
    assert (killed(cluster), cluster.phases()) == ([], {"a/x@1#1.0": "LEAVING"}), "the rank is not given to a second one"
    cluster.moves_end = True
    cluster.settle()
    assert [each.source for each in moves(cluster, LoadToGpu)] == [Level.COLD, Level.WARM]
    assert [each.rank.rank for each in initialized(cluster)] == [0, 0]


@pytest.mark.parametrize(
    "meanwhile",
    [
        EvictRequested(model="a/x", keep=Level.COLD, at=0.0),
        application(entry("a/x", 1, version="2", residency=SMALL, **IMPATIENT)),
    ],
    ids=["evicted to COLD", "of another version"],
)
def test_a_copy_that_nobody_keeps_any_more_has_no_more_time_than_calls_have(meanwhile: Any) -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL, **IMPATIENT))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    if isinstance(meanwhile, EvictRequested):
        cluster.tell(meanwhile)
    else:
        cluster.apply(meanwhile)
    cluster.wait(5.0)
    assert killed(cluster) == ["a/x@1#1.0"]


def test_a_copy_that_waits_for_others_to_be_dropped_is_made_too() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=SMALL, **IMPATIENT), gpus=(8,))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=1, at=0.0))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=0, at=0.0))
    assert list(cluster.phases().values()) == ["DROPPING", "LEAVING"]
    cluster.wait(60.0)
    cluster.moves_end = True
    cluster.settle()
    assert (killed(cluster), list(cluster.phases().values())) == ([], ["RESTING"])


@pytest.mark.parametrize(
    ("options", "cpu_bytes", "at_s"), [({"load_timeout_s": 60.0}, 6, 61.0), ({}, 0, 2.0), ({"keep": "COLD"}, 6, 2.0)]
)
def test_a_replica_that_hangs_while_it_leaves_is_killed_with_its_worker_once_its_time_is_over(
    options: Any, cpu_bytes: int, at_s: float
) -> None:
    """That of its calls, and where it is to be copied to CPU memory that of a load more."""
    weights = ResidencySpec(weight_bytes=4, min_hot_s=0.0, **options)
    cluster = cluster_with(entry("a/x", 1, residency=weights, **IMPATIENT), cpu_bytes=cpu_bytes)
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING"}
    cluster.wait(at_s - 0.5)
    assert killed(cluster) == []
    cluster.wait(2.0)
    assert killed(cluster) == ["a/x@1#1.0"]
    assert cluster.phases() == {}
    assert cluster.status("a/x") == "HEALTHY"


def test_what_is_deleted_has_no_time_to_be_copied() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL, **IMPATIENT))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.tell(DeletionRequested(deployments=("a/x",), at=0.0))
    cluster.wait(5.0)
    assert killed(cluster) == ["a/x@1#1.0"]


def test_a_replica_that_is_killed_outright_keeps_its_memory_in_the_books_until_its_worker_has_ended(monkeypatch: Any) -> None:
    """Its start-up time is over: it was never told to stop, and no offload frees what it holds."""
    owned = ResidencySpec(weight_bytes=6, dedicated=True)
    cluster = cluster_with(entry("a/x", 0, residency=owned, start_timeout_s=50.0), entry("b/x", 0, residency=owned))
    with monkeypatch.context() as deaf:
        deaf.setattr(type(cluster.workers), "carry_out", lambda *_: None)
        cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
        deaf.setattr(type(cluster.workers), "obey", lambda *_: None)
        cluster.wait(51.0)
        cluster.call("b/x", 1)
    (replica,) = cluster.state.deployments["a/x"].ranks.replicas.values()
    assert replica.state == "DRAINING"
    assert {each.worker_id for each in cluster.done if isinstance(each, KillWorker)} == {"a/x@1#1.0"}
    assert cluster.phases() == {"a/x@1#1.0": "SERVING", "b/x@1#1.1": "WAITING"}
    cluster.workers.ends("a/x@1#1.0", cluster.now, "killed")
    cluster.hear()
    cluster.settle()
    assert replica.replica_id not in cluster.state.deployments["a/x"].ranks.replicas
    assert cluster.phases() == {"a/x@1#1.2": "SERVING", "b/x@1#1.1": "WAITING"}, "its successor inherits its place"
    assert cluster.status("a/x") == "HEALTHY"


def test_a_kill_is_for_one_move_and_not_for_what_comes_after() -> None:
    loading, hot, anything = (
        KillWorker("a/x", "a/x@1#1.0", move, over, 1) for move, over in ((7, False), (7, True), (None, False))
    )
    about = [(6, True), (7, False), (7, True), (8, False)]
    assert [loading.concerns(*each) for each in about] == [True, True, False, False]
    assert [hot.concerns(*each) for each in about] == [True, True, True, False]
    assert all(anything.concerns(*each) for each in about)


def test_a_load_that_ends_before_it_is_broken_off_is_kept() -> None:
    cluster = cluster_with(entry("a/x", 0, residency=ResidencySpec(weight_bytes=4, load_timeout_s=10.0)))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    late = cluster_step(cluster.state, ClockAdvanced(at=11.0))
    (kill,) = (each for each in late.commands if isinstance(each, KillWorker))
    cluster.state = late.state
    cluster.end_moves()
    cluster.settle()
    cluster.workers.obey(kill, frozenset(), 11.0)
    cluster.hear()
    cluster.settle()
    assert cluster.phases() == {"a/x@1#1.0": "SERVING"}


def test_a_replica_that_is_stopped_is_replaced_by_the_copy_that_it_leaves() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.tell(StopRequested(replica_ids=("a/x#1.0",), at=1.0))
    assert cluster.ranks("a/x") == [0]
    assert [each.source for each in moves(cluster, LoadToGpu)] == [Level.COLD, Level.WARM]


@pytest.mark.parametrize(("keep", "left"), [(Level.WARM, 1), (Level.COLD, 0)])
def test_an_evicted_deployment_is_cold_or_warm_and_its_target_falls(keep: Level, left: int) -> None:
    cluster = cluster_with(entry("a/x", 2, residency=ResidencySpec(weight_bytes=4)))
    cluster.tell(EvictRequested(model="a/x", keep=keep, at=1.0))
    assert cluster.target("a/x") == 0
    assert list(cluster.phases().values()) == ["RESTING"] * left


def test_one_replica_is_evicted_and_its_target_falls_by_one() -> None:
    cluster = cluster_with(entry("a/x", 2, residency=SMALL))
    cluster.tell(EvictRequested(replica_id="a/x#1.0", keep=Level.COLD, at=1.0))
    assert cluster.target("a/x") == 1
    assert list(cluster.phases().values()) == ["SERVING"]


def test_a_claim_is_evicted_before_it_has_a_worker() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL), gpus=(2,))
    assert list(cluster.phases().values()) == ["WAITING"]
    cluster.tell(EvictRequested(replica_id="a/x#1.0", at=1.0))
    assert cluster.target("a/x") == 0
    assert cluster.phases() == {}


def test_who_is_evicted_has_residency_and_is_known() -> None:
    cluster = cluster_with(entry("a/x", 1))
    with pytest.raises(InvalidEventError, match="a deployment with residency"):
        cluster.tell(EvictRequested(model="a/x", at=1.0))


def test_a_deleted_deployment_leaves_nothing_in_memory() -> None:
    cluster = cluster_with(entry("a/x", 2, residency=SMALL))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=1.0))
    cluster.tell(DeletionRequested(deployments=("a/x",), at=2.0))
    assert cluster.phases() == {}
    assert not cluster.state.deployments
    assert cluster.workers.held == {}


def test_a_copy_is_dropped_though_its_deployment_is_gone_once_its_deletion_is_saved() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=1.0))
    cluster.saves_at_once = False
    cluster.tell(DeletionRequested(deployments=("a/x",), at=2.0))
    assert (list(cluster.workers.held), len(cluster.under_way)) == (["a/x@1#1.0"], 1)
    cluster.land()
    assert not cluster.state.deployments
    assert (cluster.phases(), cluster.workers.held) == ({}, {}), "the drop waited for the record that ends the deployment"


def test_keep_cold_leaves_no_copy() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=ResidencySpec(weight_bytes=4, keep="COLD")))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=1.0))
    assert cluster.phases() == {}
    assert moves(cluster, UnloadFromGpu)


def test_an_idle_replica_becomes_warm_then_cold() -> None:
    spec = ResidencySpec(weight_bytes=4, idle_to_warm_s=10.0, idle_to_cold_s=20.0)
    cluster = cluster_with(entry("a/x", 1, residency=spec))
    cluster.wait(11.0)
    assert cluster.target("a/x") == 0
    assert list(cluster.phases().values()) == ["RESTING"]
    cluster.wait(20.0)
    assert cluster.phases() == {}


def test_who_takes_more_than_it_was_given_room_for_leaves_and_is_replaced_with_its_true_size() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL), entry("b/x", 1, residency=SMALL), gpus=(8, 8))
    assert cluster.phases() == {"a/x@1#1.0": "SERVING", "b/x@1#1.1": "SERVING"}
    cluster.tell(UsageReported(replica_id="a/x@1#1.0", gpu_bytes=(4,), at=1.0))
    assert cluster.state.weights.planner.replicas["a/x@1#1.0"].used_bytes == (4,)
    cluster.tell(UsageReported(replica_id="a/x@1#1.0", gpu_bytes=(7,), at=1.0))
    assert cluster.target("a/x") == 1
    served = [each for each in cluster.state.weights.planner.replicas.values() if each.phase is Phase.SERVING]
    assert sorted((each.model, each.held_bytes) for each in served) == [("a/x@1", 7), ("b/x@1", 4)]
    cluster.tell(UsageReported(replica_id="a/x@1#0.9", gpu_bytes=(7,), at=1.0))
    assert cluster.notes[-1].rule == "T8"


def test_who_works_is_not_idle_and_who_says_again_that_it_does_not_is() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=ResidencySpec(weight_bytes=4, idle_to_warm_s=10.0)))
    for second in range(30):
        busy = {"a/x": ReportedLoad(in_flight=1 if second < 15 else 0)}
        cluster.tell(LoadReported(reporter="a/x#1.0", incarnation=1, seq=second, entries=busy, at=cluster.now))
        cluster.wait(1.0)
        assert (cluster.target("a/x") == 1) is (second < 24)


def test_a_lost_node_takes_its_replicas_with_it_and_they_come_back_elsewhere() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.join(8, node_id="n1")
    cluster.workers.held.clear()
    cluster.workers.memory = cluster.workers.memory.without(lambda _who, _place: True)
    cluster.now = 1.0
    cluster.tell(NodeLost(node_id="n0", at=1.0))
    assert cluster.status("a/x") == "HEALTHY"
    (record,) = cluster.state.weights.planner.replicas.values()
    assert record.node_id == "n1"


def test_a_move_that_waits_for_a_record_comes_to_nothing_if_its_worker_is_lost_meanwhile() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.saves_at_once = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=2, at=0.0))
    cluster.tell(EvictRequested(replica_id="a/x#1.0", at=0.0))
    assert any(isinstance(each.command, MoveWeights) for each in cluster.state.deployments["a/x"].outbox.held)
    cluster.workers.held.clear()
    cluster.now = 1.0
    cluster.tell(NodeLost(node_id="n0", at=1.0))
    before = len(cluster.done)
    cluster.land()
    assert [each for each in cluster.done[before:] if isinstance(each, MoveWeights)] == []


def test_who_no_longer_fits_is_replaced_and_the_target_stays() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.join(8, node_id="n1")
    cluster.tell(MemoryMeasured(node_id="n0", gpu_bytes=(2,), at=1.0))
    assert cluster.target("a/x") == 1
    assert cluster.status("a/x") == "HEALTHY"
    (record,) = (each for each in cluster.state.weights.planner.replicas.values() if each.phase is Phase.SERVING)
    assert record.node_id == "n1"


def test_a_node_that_joins_again_with_other_memory_is_planned_with_that() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=LARGE), gpus=(4,))
    assert list(cluster.phases().values()) == ["WAITING"]
    assert standing(cluster, "a/x").standing is Standing.QUEUED
    cluster.now = 1.0
    cluster.join(8)
    assert cluster.status("a/x") == "HEALTHY"


def test_news_that_answers_nothing_is_late() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    before: ClusterState = cluster.state
    for event in (
        MoveFinished(worker_id="a/x@1#1.0", move=1, at=0.0),
        MoveFailed(worker_id="a/x@1#9.9", move=1, at=0.0),
        MoveProgressed(worker_id="a/x@1#1.0", move=1, share=0.5, at=0.0),
        WorkerLost(worker_id="a/x@1#9.9", at=0.0),
        WorkerLost(worker_id="a/x@1#1.0", node_id="n7", at=0.0),
        WorkerReported(worker_id="a/x@1#1.0", node_id="n0", phase=Phase.RESTING, cpu_bytes=4, epoch=9, at=0.0),
        WorkerReported(worker_id="a/x@1#1.0", node_id="n0", phase=Phase.RESTING, cpu_bytes=4, epoch=1, at=0.0),
        MemoryMeasured(node_id="n7", gpu_bytes=(), at=0.0),
    ):
        cluster.tell(event)
        assert cluster.notes[-1].kind == "late"
    assert cluster.state.weights.planner.replicas == before.weights.planner.replicas


def test_a_worker_that_nobody_knows_is_killed() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.tell(WorkerReported(worker_id="a/x@1#1.9", node_id="n0", phase=Phase.RESTING, cpu_bytes=4, epoch=1, at=0.0))
    assert [each.worker_id for each in cluster.done if isinstance(each, KillWorker)] == ["a/x@1#1.9"]


def test_a_report_stands_for_the_lost_end_of_a_load() -> None:
    cluster = cluster_with(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    cluster.workers.finish("a/x@1#1.0", 0.0)
    cluster.workers.news.clear()
    (move,) = (each.move for each in moves(cluster, LoadToGpu))
    cluster.tell(
        WorkerReported(
            worker_id="a/x@1#1.0", node_id="n0", phase=Phase.SERVING, gpus=(0,), gpu_bytes=(4,), move=move, epoch=1, at=1.0
        )
    )
    assert cluster.status("a/x") == "HEALTHY"


def test_residency_is_not_taken_away_from_a_deployment_that_there_is() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    with pytest.raises(InvalidEventError, match="delete the deployment first"):
        cluster.apply(application(entry("a/x", 1)))


def test_of_a_version_that_is_replaced_while_nobody_calls_no_copy_stays() -> None:
    cluster = cluster_with(entry("a/x", 1, residency=SMALL))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=1.0))
    cluster.apply(application(entry("a/x", 0, residency=SMALL)))
    assert cluster.phases() == {"a/x@1#1.0": "RESTING"}, "the same again changes nothing"
    cluster.apply(application(entry("a/x", 0, residency=SMALL, version="2")))
    assert cluster.phases() == {}
    assert cluster.state.deployments["a/x"].residency.versions == ()


@pytest.mark.parametrize("there", [SMALL, None], ids=["it waits", "it loads"])
@pytest.mark.parametrize(
    "gone",
    [DeletionRequested(deployments=("b/x",), at=1.0), EvictRequested(model="b/x", keep=Level.COLD, at=1.0)],
    ids=["deleted", "evicted"],
)
def test_what_is_given_up_before_its_record_is_saved_is_not_asked_for_again(there: ResidencySpec | None, gone: Any) -> None:
    cluster = Cluster(saves_at_once=False)
    cluster.join(8)
    if there is not None:
        cluster.apply(application(entry("a/x", 1, residency=ResidencySpec(weight_bytes=4, dedicated=True))))
        cluster.land()
    cluster.moves_end = False
    cluster.apply(application(entry("b/x", 1, residency=ResidencySpec(weight_bytes=6))))
    cluster.land()
    worker_id, phase = next((each, phase) for each, phase in cluster.phases().items() if each.startswith("b/x"))
    assert phase == ("LOADING" if there is None else "WAITING")
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=2, at=1.0))  # its record is on its way
    cluster.tell(gone)
    assert cluster.state.deployments["b/x"].residency.claims, "it is let go once that is saved"
    assert {each for each in cluster.phases() if each.startswith("b/x")} <= {worker_id}
    cluster.land()
    cluster.end_moves()
    cluster.settle()
    assert [each for each in cluster.phases() if each.startswith("b/x")] == []
    assert "b/x" not in cluster.state.deployments or cluster.target("b/x") == 0
