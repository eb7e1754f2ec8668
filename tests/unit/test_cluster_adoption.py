"""T11: after a restart the books of memory are learnt from the workers, and nothing is placed where they are not known."""

from typing import Any

import pytest

from rankcore.cluster import ranking
from rankcore.cluster.adoption import SILENT_S, UNKNOWN_S
from rankcore.cluster.commands import CarryOut, GiveTenure, KillWorker, MoveWeights, QueryWorker
from rankcore.cluster.events import DeletionRequested, MoveFailed, MoveFinished, ScaleRequested, WorkerLost, WorkerReported
from rankcore.cluster.planner import may_place
from rankcore.cluster.recovery import recover_cluster
from rankcore.cluster.residency import ResidencySpec
from rankcore.cluster.step import cluster_step
from rankcore.commands import KillReplica
from rankcore.errors import InvalidEventError
from rankcore.events import NodeLost, ReplicaMissing, ReplicaReady, ReplicaReported, StopRequested
from rankcore.residency import Level, Phase
from rankcore.residency.events import EvictRequested, MemoryMeasured
from tests.clusters import Cluster, application, entry

SMALL = ResidencySpec(weight_bytes=4)
OWNED = ResidencySpec(weight_bytes=6, dedicated=True)


def running(*specs: Any, gpus: tuple[int, ...] = (8,)) -> Cluster:
    cluster = Cluster()
    cluster.join(*gpus)
    cluster.apply(*(application(each) for each in specs))
    return cluster


def given(cluster: Cluster, kind: type[Any]) -> list[Any]:
    return [each for each in cluster.done if isinstance(each, kind)]


def deaf(cluster: Cluster, **options: Any) -> None:
    """The controller comes back, and no worker has answered it yet."""
    workers = {each: held.worker.node_id for each, held in cluster.workers.held.items()}
    cluster.epoch += 1
    cluster.routes = {}
    cluster.workers.held.clear()
    cluster._take(recover_cluster(cluster.store, (), at=cluster.now, epoch=cluster.epoch, workers=workers, **options))
    cluster.news.clear()
    cluster.settle()


def test_what_is_hot_goes_on_with_its_rank_and_its_memory_is_booked_before_its_node_is_used() -> None:
    cluster = running(entry("a/x", 1, residency=OWNED), entry("b/x", 1, residency=OWNED))
    loads = len(given(cluster, MoveWeights))
    cluster.restart()
    assert cluster.ranks("a/x") == [0]
    assert dict(cluster.state.weights.planner.nodes) == {}, "the node has not joined this controller"
    cluster.join(8)
    assert cluster.phases()["a/x@1#1.0"] == "SERVING"
    assert cluster.status("a/x") == "HEALTHY"
    assert len(given(cluster, MoveWeights)) == loads, "nobody was moved"
    cluster.wait(UNKNOWN_S + 1)
    assert cluster.ranks("b/x") == [], "there is no room beside it"


def test_a_node_is_not_used_while_a_worker_there_has_not_reported_and_who_is_silent_is_killed() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL), gpus=(8, 8))
    worker = cluster.workers.held.pop("a/x@1#1.0")
    cluster.epoch += 1
    cluster.routes = {}
    step = recover_cluster(cluster.store, (), at=0.0, epoch=2, workers={"a/x@1#1.0": "n0"})
    cluster._take(step)
    cluster.news.clear()
    cluster.settle()
    cluster.join(8, 8)
    with pytest.raises(InvalidEventError, match="whose workers have all reported"):
        cluster.tell(ScaleRequested(deployment="a/x", target_replicas=2, at=0.0))
    with pytest.raises(InvalidEventError, match="whose workers have all reported"):
        cluster.apply(application(entry("a/x", 2, residency=SMALL)))
    cluster.apply(application(entry("b/x", 1, residency=SMALL)))
    assert not cluster.state.weights.planner.nodes
    cluster.workers.held["a/x@1#1.0"] = worker
    cluster.wait(SILENT_S)
    assert [each.worker_id for each in given(cluster, KillWorker)] == ["a/x@1#1.0"]
    assert sorted(cluster.state.weights.planner.nodes) == ["n0"]
    assert cluster.status("a/x") == cluster.status("b/x") == "HEALTHY"


def test_a_load_of_the_last_controller_is_adopted_with_its_move() -> None:
    cluster = running(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    loads = len(given(cluster, MoveWeights))
    cluster.restart()
    cluster.join(8)
    assert cluster.phases() == {"a/x@1#1.0": "LOADING"}
    cluster.end_moves()
    cluster.settle()
    assert cluster.status("a/x") == "HEALTHY"
    assert len(given(cluster, MoveWeights)) == loads, "what had been loaded was not loaded again"


def test_a_worker_that_is_hot_without_a_rank_gets_a_new_tenure() -> None:
    cluster = running(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    cluster.workers.finish("a/x@1#1.0", 0.0)
    cluster.workers.news.clear()
    cluster.restart()
    cluster.join(8)
    assert cluster.status("a/x") == "HEALTHY"
    assert [each.start.replica_id for each in given(cluster, GiveTenure)] == ["a/x#2.0"]


def test_what_is_hot_or_loads_where_another_worker_is_silent_is_waited_for_and_not_loaded_elsewhere() -> None:
    cluster = running(entry("a/x", 0, residency=SMALL), entry("b/x", 1, residency=SMALL), gpus=(8, 8))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    (worker_id,) = (each for each in cluster.workers.held if each.startswith("a/x"))
    cluster.workers.finish(worker_id, 0.0)
    cluster.workers.news.clear()
    hot = dict(cluster.workers.held)
    deaf(cluster)
    cluster.workers.held.update(hot)
    cluster.join(8, 8)
    cluster.join(8, node_id="n1")
    loads = len(given(cluster, MoveWeights))
    cluster.workers.obey(QueryWorker(worker_id, cluster.epoch), frozenset(), cluster.now)
    cluster.hear()
    cluster.settle()
    assert sorted(cluster.state.weights.planner.nodes) == ["n1"]
    assert len(given(cluster, MoveWeights)) == loads
    assert [each.replica_id for each in cluster.state.deployments["a/x"].residency.claims] == ["a/x#2.0"]


def test_news_of_a_worker_before_its_node_is_known_asks_it_again() -> None:
    cluster = running(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    cluster.restart()
    assert cluster.state.weights.found["a/x@1#1.0"].report.phase is Phase.LOADING
    cluster.end_moves()
    cluster.settle()
    assert cluster.state.weights.found["a/x@1#1.0"].report.phase is Phase.SERVING
    assert len(given(cluster, QueryWorker)) == 2
    cluster.join(8)
    assert cluster.status("a/x") == "HEALTHY"


def test_a_worker_that_ends_before_its_node_is_known_holds_nothing() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.restart()
    cluster.workers.ends("a/x@1#1.0", 0.0, "")
    cluster.hear()
    cluster.settle()
    assert not cluster.state.weights.found
    cluster.join(8)
    assert cluster.status("a/x") == "HEALTHY"
    assert cluster.ranks("a/x") == [0]


def test_a_node_that_is_lost_before_it_is_known_takes_what_was_found_with_it() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.restart()
    cluster.workers.held.clear()
    cluster.workers.memory = cluster.workers.memory.without(lambda _who, _place: True)
    cluster.tell(NodeLost(node_id="n0", at=1.0))
    assert not cluster.state.weights.found
    cluster.now = 2.0
    cluster.join(8, node_id="n1")
    assert cluster.status("a/x") == "HEALTHY"


def test_a_node_that_is_lost_before_it_is_known_takes_nobody_of_another_with_it() -> None:
    cluster = running(entry("a/x", 1, residency=OWNED))
    cluster.join(8, node_id="n1")
    cluster.apply(application(entry("b/x", 1, residency=OWNED)))
    cluster.restart()
    assert {each.node_id for each in cluster.state.weights.found.values()} == {"n0", "n1"}
    cluster.workers.held.pop("a/x@1#1.0")
    cluster.workers.memory = cluster.workers.memory.without(lambda who, _place: who == "a/x@1#1.0")
    cluster.tell(NodeLost(node_id="n0", at=0.0))
    assert list(cluster.state.weights.found) == ["b/x@1#1.1"]
    cluster.join(8, node_id="n1")
    assert cluster.status("b/x") == "HEALTHY"


def test_memory_that_is_measured_before_the_node_is_known_is_what_it_is_known_with() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    worker = cluster.workers.held["a/x@1#1.0"]
    deaf(cluster)
    cluster.join(8)
    cluster.tell(MemoryMeasured(node_id="n0", gpu_bytes=(6,), at=0.0))
    assert not cluster.state.weights.planner.nodes
    cluster.workers.held["a/x@1#1.0"] = worker
    cluster.workers._report("a/x@1#1.0", 2, 0.0)
    cluster.hear()
    cluster.settle()
    assert cluster.state.weights.planner.nodes["n0"].gpus[0].real_bytes == 6


def test_workers_of_a_deployment_that_there_is_not_are_killed_before_their_node_is_used() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL), entry("b/x", 1, residency=SMALL))
    cluster.store = [each for each in cluster.store if each.deployment != "a/x"]
    cluster.restart()
    cluster.join(8)
    assert [each.worker_id for each in given(cluster, KillWorker)] == ["a/x@1#1.0"]
    assert cluster.phases() == {"b/x@1#1.1": "SERVING"}


def test_workers_whose_record_cannot_be_read_are_left_alone_and_their_memory_is_theirs() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=ResidencySpec(weight_bytes=6, priority=9)))
    cluster.restart(unreadable=("a/x",))
    cluster.join(8)
    assert cluster.phases() == {"a/x@1#1.0": "SERVING"}
    cluster.wait(SILENT_S + UNKNOWN_S)
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=1, at=cluster.now))
    assert cluster.phases()["a/x@1#1.0"] == "SERVING"
    assert not given(cluster, KillWorker)


def test_a_silent_worker_whose_record_cannot_be_read_is_not_killed() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL), entry("b/x", 1, residency=SMALL))
    deaf(cluster, unreadable=("a/x",))
    cluster.wait(SILENT_S)
    assert {each.worker_id for each in given(cluster, KillWorker)} == {"b/x@1#1.1"}


def found_loading() -> Cluster:
    """A deployment counts on a worker that was found, of which the planner does not know yet: its node has not joined."""
    cluster = running(entry("a/x", 0, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    cluster.restart()
    residency = cluster.state.deployments["a/x"].residency
    assert (len(residency.claims), residency.versions) == (1, ("1",))
    assert dict(cluster.state.weights.planner.models) == {}
    return cluster


@pytest.mark.parametrize("leaves", ["it ends", "its load fails"])
def test_a_claim_that_counted_on_a_worker_that_was_found_asks_for_another_where_that_comes_to_nothing(leaves: str) -> None:
    """With no other news of the deployment: nobody else would look at it."""
    cluster = found_loading()
    cluster.join(8, node_id="n1")
    cluster.wait(UNKNOWN_S + 1)
    assert cluster.state.weights.unknown_until is None
    assert cluster.phases() == {}, "what is found is waited for"
    if leaves == "it ends":
        cluster.workers.ends("a/x@1#1.0", cluster.now, "")
    else:
        cluster.workers.fail("a/x@1#1.0", cluster.now)
    cluster.moves_end = True
    cluster.hear()
    cluster.settle()
    assert cluster.phases() == {"a/x@1#2.0": "SERVING"}
    assert cluster.status("a/x") == "HEALTHY"


def test_a_claim_asks_for_another_worker_where_the_one_that_was_found_has_only_a_copy() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    cluster.restart()
    cluster.join(8, node_id="n1")
    cluster.wait(SILENT_S + 1)
    assert cluster.phases() == {}, "its load from the copy is waited for"
    assert cluster.state.weights.killed_at is None, "all have reported"
    worker = cluster.workers.held.pop("a/x@1#1.0")
    cluster.step(MoveFailed(worker_id="a/x@1#1.0", move=worker.move, reason="no luck", at=cluster.now))
    cluster.news.clear()
    cluster.wait(1.0)
    assert cluster.phases() == {}, "it is asked, and counts until it answers"
    cluster.workers.held["a/x@1#1.0"] = worker
    cluster.workers.fail("a/x@1#1.0", cluster.now)
    cluster.hear()
    cluster.settle()
    assert cluster.phases() == {"a/x@1#2.0": "LOADING"}


def test_a_worker_that_has_news_and_then_is_silent_is_killed() -> None:
    cluster = found_loading()
    cluster.wait(SILENT_S + 1)
    assert cluster.state.weights.killed_at is None, "all have reported"
    worker = cluster.workers.held.pop("a/x@1#1.0")
    cluster.step(MoveFinished(worker_id="a/x@1#1.0", move=worker.move, at=cluster.now))
    cluster.news.clear()
    cluster.wait(SILENT_S)
    assert [each.worker_id for each in given(cluster, KillWorker)] == ["a/x@1#1.0"]


def test_late_news_of_a_replica_whose_deployment_is_not_recovered_yet_ends_nobody() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    held = dict(cluster.workers.held)
    deaf(cluster)
    cluster.join(8)
    assert "a/x" in cluster.state.weights.recovering
    cluster.workers.held.update(held)
    cluster.tell(ReplicaReady(replica_id="a/x#1.0", at=0.0))
    assert [each for each in given(cluster, CarryOut) if isinstance(each.command, KillReplica)] == []
    cluster.workers.obey(QueryWorker("a/x@1#1.0", cluster.epoch), frozenset(), cluster.now)
    cluster.hear()
    cluster.settle()
    assert cluster.status("a/x") == "HEALTHY"
    assert cluster.ranks("a/x") == [0]


def test_a_deployment_is_evicted_before_the_node_of_its_worker_is_known() -> None:
    cluster = found_loading()
    cluster.tell(EvictRequested(model="a/x", keep=Level.COLD, at=0.0))
    assert cluster.target("a/x") == 0
    cluster.moves_end = True
    cluster.join(8)
    cluster.wait(UNKNOWN_S + 1)
    assert "SERVING" not in cluster.phases().values()


def test_a_deployment_is_frozen_before_the_node_of_its_worker_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = found_loading()

    def buggy(*_: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(ranking.core, "step", buggy)
        cluster.tell(StopRequested(replica_ids=("a/x#2.0",), at=0.0))
    assert cluster.state.deployments["a/x"].frozen
    cluster.join(8)
    assert cluster.phases() == {"a/x@1#1.0": "LOADING"}
    assert cluster.state.weights.planner.models["a/x@1"].dedicated


def test_a_worker_that_leaves_and_whose_replica_has_not_reported_contradicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    monkeypatch.setattr(type(cluster.workers), "carry_out", lambda *_: None)
    cluster.restart()
    cluster.join(8)
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING"}
    (replica,) = cluster.state.deployments["a/x"].ranks.replicas.values()
    assert replica.state == "RECOVERING"


def test_the_steps_of_the_ranks_are_told_to_who_asks_for_them() -> None:
    cluster = running(entry("a/x", 1))
    steps: list[Any] = [None]
    state = recover_cluster(cluster.store, ("a/x#1.0",), at=0.0, epoch=2, trace=steps).state
    assert [(each.deployment, each.event) for each in steps] == [("a/x", None)]
    cluster_step(state, ReplicaMissing(replica_id="a/x#1.0", at=0.0), steps)
    assert [(each.deployment, type(each.event)) for each in steps] == [("a/x", ReplicaMissing)]


def test_more_than_a_node_holds_leaves_it() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.restart()
    cluster.join(2)
    assert cluster.state.weights.planner.nodes["n0"].gpus[0].real_bytes == 2
    assert [each for each, phase in cluster.phases().items() if phase == "SERVING"] == []
    cluster.restart()
    cluster.tell(MemoryMeasured(node_id="n0", gpu_bytes=(), at=0.0))
    assert cluster.notes[-1].kind == "late"
    cluster.join(cpu_bytes=0)
    assert cluster.state.weights.planner.nodes["n0"].gpus == ()
    assert "SERVING" not in cluster.phases().values()


def test_a_copy_is_adopted_and_the_next_load_comes_from_it() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.restart()
    cluster.join(8)
    assert cluster.phases() == {"a/x@1#1.0": "RESTING"}
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=1, at=0.0))
    assert given(cluster, MoveWeights)[-1].command.source == "WARM"
    assert cluster.phases() == {"a/x@1#1.0": "SERVING"}


def test_a_worker_that_leaves_goes_on_leaving() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    cluster.restart()
    cluster.join(8)
    assert cluster.phases() == {"a/x@1#1.0": "LEAVING"}
    cluster.end_moves()
    cluster.settle()
    assert cluster.phases() == {"a/x@1#1.0": "RESTING"}
    assert cluster.status("a/x") == "HEALTHY"


def test_a_deletion_goes_on_after_a_restart() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.moves_end = False
    cluster.tell(DeletionRequested(deployments=("a/x",), at=0.0))
    cluster.restart()
    cluster.join(8)
    cluster.moves_end = True
    cluster.settle()
    cluster.wait(UNKNOWN_S + 1)
    assert not cluster.state.deployments
    assert cluster.workers.held == {}


def test_a_prefix_that_another_application_has_by_now_is_not_taken_back() -> None:
    cluster = Cluster()
    cluster.join(8)
    cluster.apply(application(entry("a/x", 1, residency=SMALL), prefix="/m"))
    worker = cluster.workers.held["a/x@1#1.0"]
    step = recover_cluster(cluster.store, (), at=0.0, epoch=2, workers={"a/x@1#1.0": "n0"})
    cluster.epoch, cluster.routes = 2, {}
    cluster.workers.held.clear()
    cluster._take(step)
    cluster.news.clear()
    cluster.apply(application(entry("b/x", 0), prefix="/m"))
    cluster.workers.held["a/x@1#1.0"] = worker
    cluster.workers._report("a/x@1#1.0", 2, 0.0)
    cluster.hear()
    cluster.settle()
    assert cluster.state.applications["a"].route_prefix is None
    assert cluster.state.applications["a"].ingress == "a/x"


def test_an_answer_before_the_question_is_late() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.restart()
    cluster.tell(WorkerReported(worker_id="a/x@1#1.0", node_id="n0", phase=Phase.RESTING, cpu_bytes=4, epoch=1, at=0.0))
    assert cluster.notes[-1].kind == "late"
    cluster.tell(MoveFinished(worker_id="a/y@1#1.0", move=1, at=0.0))
    cluster.tell(WorkerLost(worker_id="a/y@1#1.0", at=0.0))
    assert cluster.notes[-1].kind == "late"


@pytest.mark.parametrize("workers", [("a/x@1#1.0",), {"": "n0"}, {"a/x@1#1.0": ""}])
def test_workers_are_given_by_id_with_their_node(workers: Any) -> None:
    with pytest.raises(InvalidEventError, match=r"recover_cluster\.workers"):
        recover_cluster((), (), at=0.0, epoch=1, workers=workers)


def test_the_third_time_in_ten_minutes_nothing_is_placed() -> None:
    assert may_place(())
    assert may_place((1.0, 2.0, 700.0))
    assert not may_place((1.0, 2.0, 3.0))
    with pytest.raises(InvalidEventError, match="failures_s_ago"):
        may_place((-1.0,))
    cluster = running(entry("a/x", 1, residency=SMALL), entry("b/x", 0, residency=SMALL))
    cluster.restart(placing=False)
    cluster.join(8)
    assert cluster.ranks("a/x") == [0], "what is HOT goes on"
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=1, at=0.0))
    cluster.call("b/x", 1)
    assert cluster.target("b/x") == 1
    availability = cluster.state.deployments["b/x"].residency.availability
    assert (availability.standing, availability.because) == (
        "unavailable",
        "the planner of weights has failed too often: nothing is placed",
    )
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=0, at=0.0))
    assert [each.worker_id for each in given(cluster, KillWorker)] == ["a/x@1#1.0"]
    assert cluster.status("a/x") == "HEALTHY"


def test_a_replica_is_evicted_though_nothing_is_placed() -> None:
    cluster = running(entry("a/x", 1, residency=SMALL))
    cluster.restart(placing=False)
    cluster.join(8)
    cluster.tell(EvictRequested(replica_id="a/x#1.0", at=0.0))
    assert [each.worker_id for each in given(cluster, KillWorker)] == ["a/x@1#1.0"]
    assert cluster.target("a/x") == 0


def test_workers_of_a_version_that_was_never_healthy_are_had_until_they_have_ended() -> None:
    """Two are wanted, and there is room for one: version 1 was never healthy, so no record names it once it is version 2."""
    cluster = running(entry("a/x", 2, residency=OWNED))
    cluster.moves_end = False
    cluster.apply(application(entry("a/x", 2, version="2", residency=OWNED)))
    assert sorted(cluster.workers.held) == ["a/x@1#1.0"]
    cluster.restart()
    cluster.join(8)
    assert sorted(cluster.state.deployments["a/x"].residency.versions) == ["1", "2"]
    cluster.moves_end = True
    cluster.tell(DeletionRequested(deployments=("a/x",), at=cluster.now))
    assert not cluster.workers.held
    assert not cluster.state.weights.planner.models


class LateReports(Cluster):
    """Where what replicas report of themselves stays under way."""

    are_late = True

    def step(self, event: Any) -> Any:
        if isinstance(event, ReplicaReported) and self.are_late:
            self.reported = event
            return None
        return super().step(event)


def test_who_is_displaced_after_it_has_reported_its_rank_drains() -> None:
    cluster = LateReports()
    cluster.join(8)
    cluster.apply(application(entry("a/x", 1, residency=SMALL)))
    cluster.restart()
    cluster.join(8)
    cluster.wait(UNKNOWN_S + 1)
    cluster.moves_end = False
    cluster.apply(application(entry("b/x", 1, residency=ResidencySpec(weight_bytes=8, priority=1))))
    assert cluster.phases()["a/x@1#1.0"] == "LEAVING"
    assert not cluster.reported.draining
    cluster.are_late = False
    cluster.tell(cluster.reported)
    (replica,) = cluster.state.deployments["a/x"].ranks.replicas.values()
    assert (replica.state, replica.routed) == ("DRAINING", False)
    assert not cluster.routes.get("a/x")
