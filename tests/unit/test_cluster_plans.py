"""A dry run says what a request would bring, and refuses what the request would be refused for."""

import pytest

from rankcore.cluster import plan_cluster
from rankcore.cluster.events import ApplyRequested, ChangeRequested, DeletionRequested, ScaleRequested
from rankcore.cluster.residency import ResidencySpec
from rankcore.errors import UnknownDeploymentError
from rankcore.residency.events import EvictRequested
from tests.clusters import Cluster, application, entry


def test_an_apply_is_planned_deployment_by_deployment() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/x", 2), entry("a/y"), prefix="/"), application(entry("b/x")))
    before = cluster.state
    wanted = (application(entry("a/x", 3), entry("a/z", 2)), application(entry("b/x"), prefix="/b"))
    plan = plan_cluster(before, ApplyRequested(applications=wanted, at=1.0))
    assert {each.deployment: each.what for each in plan.changes} == {
        "a/x": "changed",
        "a/y": "deleted",
        "a/z": "new",
        "b/x": "recorded",
    }
    found = {each.deployment: each.plan for each in plan.changes}
    assert [each.rank for each in found["a/x"].starts] == [2]  # type: ignore[union-attr]
    assert [each.replica_id for each in found["a/y"].stops] == ["a/y#1.0"]  # type: ignore[union-attr]
    assert [each.rank for each in found["a/z"].starts] == [0, 1]  # type: ignore[union-attr]
    assert found["b/x"] is None
    assert cluster.state is before
    cluster.apply(*wanted)
    assert set(cluster.state.deployments) == {"a/x", "a/z", "b/x"}
    assert plan_cluster(cluster.state, ApplyRequested(applications=wanted, at=1.0)).changes == ()


def test_a_plan_says_which_routes_change() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/x")), application(entry("b/x"), prefix="/b"), application(entry("c/x"), prefix="/c"))
    wanted = (application(entry("a/x"), prefix="/"), application(entry("b/x", 2)), application(entry("c/x", 2), prefix="/c"))
    plan = plan_cluster(cluster.state, ApplyRequested(applications=wanted, at=1.0))
    assert [(each.what, each.routes) for each in plan.changes] == [
        ("recorded", (None, "/")),
        ("changed", ("/b", None)),
        ("changed", None),
    ]


def test_a_scale_is_planned_with_whom_it_stops() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/x", 3)))
    event = ScaleRequested(deployment="a/x", target_replicas=2, stop_first=("a/x#1.0",), at=1.0)
    (change,) = plan_cluster(cluster.state, event).changes
    assert change.plan is not None
    assert [each.replica_id for each in change.plan.stops] == ["a/x#1.0"]
    assert [(each.before, each.after) for each in change.plan.moves] == [(2, 0)]


def test_where_weights_go_is_not_said_before_any_memory_is_known() -> None:
    wanted = (application(entry("a/x", residency=ResidencySpec(weight_bytes=4))),)
    cluster = Cluster()
    for gpus in (None, ()):
        if gpus is not None:
            cluster.join(*gpus)
        (placed,) = plan_cluster(cluster.state, ApplyRequested(applications=wanted, at=1.0)).weights
        assert (placed.worker_id, placed.what, placed.node_id, placed.reasons) == ("a/x@1#1.0", "placed", None, ())
        assert placed.because.startswith("once memory of GPUs has been measured")
    cluster.join(2, node_id="n1")
    (waits,) = plan_cluster(cluster.state, ApplyRequested(applications=wanted, at=1.0)).weights
    assert waits.what == "left waiting"


def test_what_would_be_refused_is_refused() -> None:
    with pytest.raises(UnknownDeploymentError):
        plan_cluster(Cluster().state, DeletionRequested(applications=("a",), at=1.0))


def taking_turns() -> Cluster:
    """A GPU of 6 bytes, on which `a/x` is."""
    cluster = Cluster()
    cluster.join(6)
    sizes = {"a/x": 4, "a/y": 5, "a/z": 9}
    specs = {each: ResidencySpec(weight_bytes=size, min_hot_s=0.0) for each, size in sizes.items()}
    cluster.apply(application(*(entry(each, int(each == "a/x"), residency=spec) for each, spec in specs.items())))
    cluster.now = 1.0
    return cluster


def test_a_scale_is_planned_with_whom_it_displaces() -> None:
    cluster = taking_turns()
    plan = plan_cluster(cluster.state, ScaleRequested(deployment="a/y", target_replicas=1, at=1.0))
    assert [(each.deployment, each.what) for each in plan.changes] == [("a/x", "preempted"), ("a/y", "changed")]
    (stop,) = plan.changes[0].plan.stops  # type: ignore[union-attr]
    assert (stop.replica_id, stop.rank) == ("a/x#1.0", 0)
    assert plan.changes[0].plan.world_size_after == 0  # type: ignore[union-attr]
    assert [(each.deployment, each.worker_id, each.what, each.node_id) for each in plan.weights] == [
        ("a/y", "a/y@1#1.1", "loaded", "n0"),
        ("a/x", "a/x@1#1.0", "displaced", "n0"),
    ]
    assert plan.weights[1].because == "by a/y@1#1.1"
    cluster.tell(ScaleRequested(deployment="a/y", target_replicas=1, at=1.0))
    assert cluster.phases() == {"a/x@1#1.0": "RESTING", "a/y@1#1.1": "SERVING"}


def test_what_fits_nowhere_is_planned_with_the_reason_of_each_node() -> None:
    plan = plan_cluster(taking_turns().state, ScaleRequested(deployment="a/z", target_replicas=1, at=1.0))
    (waits,) = plan.weights
    assert (waits.worker_id, waits.what, waits.node_id) == ("a/z@1#1.1", "left waiting", None)
    assert waits.reasons == (("n0", "9 bytes do not fit: it has 1 GPU of at most 6 bytes"),)
    assert [each.deployment for each in plan.changes] == ["a/z"], "nobody is disturbed for it"


def test_an_eviction_is_planned_with_who_leaves() -> None:
    for request in (EvictRequested(model="a/x", at=1.0), EvictRequested(replica_id="a/x#1.0", at=1.0)):
        plan = plan_cluster(taking_turns().state, request)
        (change,) = plan.changes
        assert (change.deployment, change.what) == ("a/x", "changed")
        assert [each.replica_id for each in change.plan.stops] == ["a/x#1.0"]  # type: ignore[union-attr]
        assert [(each.worker_id, each.what) for each in plan.weights] == [("a/x@1#1.0", "evicted")]


def test_another_spec_and_a_deletion_are_planned() -> None:
    cluster = taking_turns()
    changed = ChangeRequested(spec=entry("a/x", 1, version="2", residency=ResidencySpec(weight_bytes=4)), at=1.0)
    (change,) = plan_cluster(cluster.state, changed).changes
    assert [each.version for each in change.plan.starts] == ["2"]  # type: ignore[union-attr]
    plan = plan_cluster(cluster.state, DeletionRequested(deployments=("a/x", "a/y"), at=1.0))
    assert [(each.deployment, each.what) for each in plan.changes] == [("a/x", "deleted"), ("a/y", "deleted")]
    assert [(each.worker_id, each.what) for each in plan.weights] == [("a/x@1#1.0", "evicted")]
