"""Nodes of a cluster are cordoned and drained: whoever is there is told, and who gets a replica there later (V14)."""

from typing import Any

import pytest

from rankcore import NoteKind
from rankcore.cluster.events import NodeJoined
from rankcore.cluster.residency import ResidencySpec
from rankcore.errors import InvalidEventError
from rankcore.events import (
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaPlaced,
    StopRequested,
)
from tests.clusters import Cluster, application, entry

PACKED: dict[str, Any] = {"placement": "pack_ranks", "demand": {"GPU": 1, "CPU": 0}}


def places(cluster: Cluster, deployment: str) -> list[str]:
    return sorted(each.node_id for each in cluster.state.deployments[deployment].ranks.replicas.values() if each.node_id)


def cordoned(cluster: Cluster, deployment: str, node_id: str = "n0") -> bool:
    node = cluster.state.deployments[deployment].ranks.nodes.get(node_id)
    return node is not None and node.cordoned


def test_a_drained_node_is_left_by_every_deployment_that_is_there() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)), application(entry("b/d", 1)))
    cluster.node_id = "n1"
    cluster.apply(application(entry("c/d", 1)))
    untouched = cluster.state.deployments["c/d"]
    cluster.tell(NodeDrainRequested(node_id="n0", at=1.0))
    assert (places(cluster, "a/d"), places(cluster, "b/d")) == (["n1", "n1"], ["n1"])
    assert (cluster.ranks("a/d"), cluster.ranks("b/d")) == ([0, 1], [0])
    assert cluster.state.deployments["c/d"] is untouched


def test_who_comes_up_there_later_is_told_before() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    cluster.node_id = "n1"
    cluster.apply(application(entry("b/d", 1)))
    cluster.tell(NodeDrainRequested(node_id="n0", at=1.0))
    assert not cordoned(cluster, "b/d")
    cluster.node_id = "n0"
    cluster.step(StopRequested(replica_ids=["b/d#1.0"], at=2.0))
    while not any(isinstance(each, ReplicaPlaced) for each in cluster.news):
        cluster.step(cluster.news.popleft())
    cluster.node_id = "n1"
    cluster.settle()
    assert cordoned(cluster, "b/d")
    assert (places(cluster, "b/d"), cluster.status("b/d")) == (["n1"], "HEALTHY")


def test_a_cordon_leaves_a_drain_as_it_is_also_for_who_comes_up_there_later() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1, **PACKED)))
    cluster.node_id = "n1"
    cluster.apply(application(entry("b/d", 1)))
    cluster.tell(NodeDrainRequested(node_id="n0", reason="new driver", at=1.0))
    cluster.tell(NodeCordoned(node_id="n0", at=2.0))
    cluster.node_id = "n0"
    cluster.step(StopRequested(replica_ids=["b/d#1.0"], at=3.0))
    while not any(isinstance(each, ReplicaPlaced) for each in cluster.news):
        cluster.step(cluster.news.popleft())
    cluster.node_id = "n1"
    cluster.settle()
    nodes = [cluster.state.deployments[each].ranks.nodes["n0"] for each in ("a/d", "b/d")]
    assert [(node.drain.reason, node.cordon_at) for node in nodes if node.drain is not None] == [("new driver", 2.0)] * 2
    assert (places(cluster, "b/d"), cluster.status("b/d")) == (["n1"], "HEALTHY")


def test_who_is_killed_for_a_drain_is_nothing_that_went_wrong() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    cluster.tell(NodeDrainRequested(node_id="n1", at=1.0))
    cluster.node_id = "n1"
    cluster.step(StopRequested(replica_ids=["a/d#1.0"], at=2.0))
    while not any(note.of is not None and note.of.kind is NoteKind.KILL_CHOSEN for note in cluster.notes):
        cluster.step(cluster.news.popleft())
    assert (cluster.status("a/d"), cluster.state.deployments["a/d"].trouble) == ("UNHEALTHY", "")


def test_the_deadline_that_holds_of_two_is_told_to_who_comes_up_there_later() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1, **PACKED)))
    cluster.node_id = "n1"
    cluster.apply(application(entry("b/d", 1)))
    cluster.tell(NodeDrainRequested(node_id="n0", deadline_at=500.0, final=True, at=1.0))
    cluster.tell(NodeDrainRequested(node_id="n0", deadline_at=900.0, reason="new driver", at=2.0))
    cluster.node_id = "n0"
    cluster.step(StopRequested(replica_ids=["b/d#1.0"], at=3.0))
    while not any(isinstance(each, ReplicaPlaced) for each in cluster.news):
        cluster.step(cluster.news.popleft())
    cluster.node_id = "n1"
    cluster.settle()
    drains = [cluster.state.deployments[each].ranks.nodes["n0"].drain for each in ("a/d", "b/d")]
    assert [(drain.deadline_at, drain.reason, drain.final) for drain in drains if drain is not None] == (
        [(500.0, "new driver", True)] * 2
    )


def test_uncordoned_is_told_to_who_takes_it_for_cordoned_though_nobody_is_there_any_more() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    cluster.node_id = "n1"
    cluster.tell(NodeDrainRequested(node_id="n0", at=1.0))
    assert (places(cluster, "a/d"), cordoned(cluster, "a/d")) == (["n1"], True)
    cluster.tell(NodeUncordoned(node_id="n0", at=2.0))
    assert not cordoned(cluster, "a/d")
    cluster.node_id = "n0"
    cluster.tell(StopRequested(replica_ids=sorted(cluster.processes), at=3.0))
    assert (places(cluster, "a/d"), cluster.status("a/d")) == (["n0"], "HEALTHY")


def test_a_new_deployment_is_packed_elsewhere() -> None:
    cluster = Cluster()
    for node_id in ("n0", "n1"):
        cluster.tell(NodeJoined(node_id=node_id, resources={"GPU": 2.0}, at=0.0))
    cluster.tell(NodeCordoned(node_id="n0", at=1.0))
    cluster.apply(application(entry("a/d", 3, **PACKED)))
    assert places(cluster, "a/d") == ["n1", "n1"]
    cluster.tell(NodeUncordoned(node_id="n0", at=2.0))
    assert places(cluster, "a/d") == ["n0", "n1", "n1"]


def test_older_news_of_a_node_is_late_and_a_loss_ends_its_cordon() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    cluster.now, cluster.node_id = 5.0, "n1"
    cluster.tell(NodeUncordoned(node_id="n0", at=2.0))
    cluster.tell(NodeCordoned(node_id="n0", at=1.0))
    assert (cluster.notes[-1].kind, cordoned(cluster, "a/d")) == ("late", False)
    cluster.tell(NodeCordoned(node_id="n0", at=3.0))
    cluster.tell(NodeLost(node_id="n0", at=2.5))
    assert cluster.state.nodes["n0"].cordon is not None
    cluster.tell(NodeLost(node_id="n0", at=4.0))
    assert cluster.state.nodes["n0"].cordon is None
    cluster.tell(NodeCordoned(node_id="n0", at=4.0))
    assert cluster.notes[-1].kind == "late"


def test_who_was_told_of_a_cordon_is_not_told_again() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1)))
    cluster.tell(NodeCordoned(node_id="n0", at=1.0))
    cluster.step(StopRequested(replica_ids=["a/d#1.0"], at=2.0))
    while not any(isinstance(each, ReplicaPlaced) for each in cluster.news):
        cluster.step(cluster.news.popleft())
    cluster.notes.clear()
    cluster.node_id = "n1"
    cluster.settle()
    assert [note for note in cluster.notes if note.kind == "node cordoned"] == []
    assert (places(cluster, "a/d"), cluster.status("a/d")) == (["n1"], "HEALTHY")


def test_replicas_are_replaced_by_name() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)), application(entry("b/d", 1)))
    cluster.tell(ReplaceRequested(replica_ids=["a/d#1.1", "b/d#1.0"], at=1.0))
    assert sorted(cluster.processes) == ["a/d#1.0", "a/d#1.2", "b/d#1.1"]
    assert cluster.ranks("a/d") == [0, 1]


def test_weights_that_may_be_cold_are_left_alone() -> None:
    cluster = Cluster()
    cluster.join(8)
    cluster.apply(application(entry("a/d", 1, residency=ResidencySpec(weight_bytes=4))))
    cluster.call("a/d", 1)
    assert cluster.ranks("a/d") == [0]
    before = cluster.state.deployments["a/d"]
    cluster.tell(NodeDrainRequested(node_id="n0", at=1.0))
    assert cluster.state.deployments["a/d"] is before
    (replica_id,) = before.ranks.replicas
    with pytest.raises(InvalidEventError, match="whose weights are never COLD"):
        cluster.step(ReplaceRequested(replica_ids=[replica_id], at=1.0))
