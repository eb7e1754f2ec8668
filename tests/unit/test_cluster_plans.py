"""A dry run says what a request would bring, and refuses what the request would be refused for."""

import pytest

from rankcore.cluster import plan_cluster
from rankcore.cluster.events import ApplyRequested, DeletionRequested, ScaleRequested
from rankcore.errors import UnknownDeploymentError
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


def test_a_scale_is_planned_with_whom_it_stops() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/x", 3)))
    event = ScaleRequested(deployment="a/x", target_replicas=2, stop_first=("a/x#1.0",), at=1.0)
    (change,) = plan_cluster(cluster.state, event).changes
    assert change.plan is not None
    assert [each.replica_id for each in change.plan.stops] == ["a/x#1.0"]
    assert [(each.before, each.after) for each in change.plan.moves] == [(2, 0)]


def test_what_would_be_refused_is_refused() -> None:
    with pytest.raises(UnknownDeploymentError):
        plan_cluster(Cluster().state, DeletionRequested(applications=("a",), at=1.0))
