"""P6: a bug in one deployment's rules is that deployment's outage, and nobody else's."""

from typing import Any

import pytest

from rankcore import core, kernel
from rankcore.cluster import cluster_step, conclude, recover_cluster
from rankcore.cluster.events import ApplyRequested, DeletionRequested, ScaleRequested
from rankcore.errors import ClusterDivergedError, InvalidEventError
from rankcore.events import ClockAdvanced, NodeLost, ReplicaDied, StopRequested
from tests.clusters import Cluster, application, entry


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster in which the ranks of a/d raise at every event but a deletion's."""
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)), application(entry("b/d", 2)))
    step = core.step

    def planted(state: Any, event: Any) -> Any:
        if state.spec.name == "a/d" and type(event).__name__ not in planted.spared:  # type: ignore[attr-defined]
            raise KeyError("planted")
        return step(state, event)

    planted.spared = {"DeleteRequested", "ReplicaStopped"}  # type: ignore[attr-defined]
    monkeypatch.setattr(core, "step", planted)
    cluster.planted = planted  # type: ignore[attr-defined]
    return cluster


def lose_the_node(cluster: Cluster) -> None:
    cluster.processes.clear()
    cluster.now = 1.0
    cluster.tell(NodeLost(node_id="n0", at=0.5))


def test_the_others_get_the_event_and_go_on(broken: Cluster) -> None:
    ranks = broken.state.deployments["a/d"].ranks
    lose_the_node(broken)
    frozen = broken.state.deployments["a/d"]
    assert frozen.ranks is ranks
    assert frozen.conditions == ("frozen until the controller is restarted: KeyError: 'planted'",)
    assert broken.ranks("b/d") == [0, 1]
    assert broken.status("b/d") == "HEALTHY"


def test_routes_of_a_frozen_deployment_stay_and_its_news_is_dropped(broken: Cluster) -> None:
    broken.tell(ReplicaDied(replica_id="a/d#1.0", at=1.0))
    assert broken.routes["a/d"] == {"a/d#1.0", "a/d#1.1"}
    done = len(broken.done)
    broken.tell(ReplicaDied(replica_id="a/d#1.1", at=1.0))
    broken.tell(ClockAdvanced(at=1000.0))
    assert broken.done[done:] == []
    assert broken.notes[-1].kind == "frozen"
    for event in (
        ApplyRequested(applications=(application(entry("a/d", 3)),), at=1.0),
        ScaleRequested(deployment="a/d", target_replicas=3, at=1.0),
    ):
        with pytest.raises(InvalidEventError, match="restart the controller"):
            broken.step(event)


def test_a_restart_learns_it_anew(broken: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    broken.tell(ReplicaDied(replica_id="a/d#1.0", at=1.0))
    del broken.processes["a/d#1.0"]
    monkeypatch.undo()
    broken.restart()
    assert broken.ranks("a/d") == [0, 1]
    assert broken.state.deployments["a/d"].conditions == ()


def test_a_deletion_lifts_it(broken: Cluster) -> None:
    broken.tell(ReplicaDied(replica_id="a/d#1.0", at=1.0))
    broken.tell(DeletionRequested(applications=("a",), at=2.0))
    assert set(broken.state.deployments) == {"b/d"}


def test_a_deletion_that_meets_the_bug_is_remembered_for_the_next_controller(
    broken: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken.planted.spared.clear()  # type: ignore[attr-defined]
    broken.tell(DeletionRequested(applications=("a",), at=2.0))
    assert broken.state.deployments["a/d"].frozen
    assert broken.state.deployments["a/d"].deleting
    broken.tell(DeletionRequested(applications=("a",), at=2.0))
    monkeypatch.undo()
    broken.restart()
    assert set(broken.state.deployments) == {"b/d"}


def test_a_step_without_an_end_is_charged_to_who_got_most_of_it(broken: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "EVENTS_MAX", 3)
    monkeypatch.setattr(kernel, "EVENTS_MAX_PER_PART", 0)
    broken.planted.spared.add("StopRequested")  # type: ignore[attr-defined]
    from rankcore.cluster import ranking

    tell = ranking.tell

    def restless(draft: Any, deployment: str, found: Any, event: Any) -> None:
        tell(draft, deployment, found, event)
        if deployment == "a/d":
            draft.worklist.add(deployment, event)

    monkeypatch.setattr(ranking, "tell", restless)
    broken.step(StopRequested(replica_ids=("a/d#1.0", "b/d#1.0"), at=1.0))
    assert "without an end" in broken.state.deployments["a/d"].frozen
    broken.settle()
    assert broken.ranks("b/d") == [0, 1]


def test_a_step_that_is_too_long_even_for_the_frozen_is_an_error_and_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)), application(entry("b/d", 2)))
    monkeypatch.setattr(kernel, "EVENTS_MAX", 0)
    monkeypatch.setattr(kernel, "EVENTS_MAX_PER_PART", 0)
    with pytest.raises(ClusterDivergedError):
        cluster_step(cluster.state, NodeLost(node_id="n0", at=1.0))


def test_a_callers_mistake_freezes_nobody(broken: Cluster) -> None:
    before = broken.state
    with pytest.raises(InvalidEventError):
        broken.step(StopRequested(replica_ids=("nobody",), at=1.0))
    with pytest.raises(InvalidEventError, match="one of the classes"):
        cluster_step(before, "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidEventError, match="a ClusterState"):
        cluster_step("x", ClockAdvanced(at=1.0))  # type: ignore[arg-type]
    assert broken.state is before


def test_a_bug_of_the_cluster_itself_leaves_the_step(broken: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any, **__: Any) -> None:
        raise KeyError("planted")

    before = broken.state
    monkeypatch.setattr(conclude, "to_record", raising)
    with pytest.raises(KeyError):
        broken.step(ReplicaDied(replica_id="b/d#1.0", at=1.0))
    with pytest.raises(KeyError):
        broken.step(ApplyRequested(applications=(application(entry("c/d", 1)),), at=1.0))
    monkeypatch.undo()
    monkeypatch.setattr(core, "deploy", raising)
    with pytest.raises(KeyError):
        broken.step(ApplyRequested(applications=(application(entry("c/d", 1)),), at=1.0))
    assert broken.state is before


def test_a_deployment_that_cannot_be_adopted_is_left_alone_and_the_others_come_back(
    broken: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover = core.recover

    def planted(spec: Any, *arguments: Any, **options: Any) -> Any:
        if spec.name == "a/d":
            raise KeyError("planted")
        return recover(spec, *arguments, **options)

    monkeypatch.setattr(core, "recover", planted)
    broken.restart()
    assert broken.state.left_alone == ("a/d",)
    assert {each for each in broken.processes if each.startswith("a/d")} == {"a/d#1.0", "a/d#1.1"}
    assert broken.ranks("b/d") == [0, 1]
    with pytest.raises(InvalidEventError, match="seconds"):
        recover_cluster((), (), at=-1.0, epoch=1)
