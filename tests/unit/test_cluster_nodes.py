"""News of nodes and bundles goes to the deployments that it concerns, and capacities are what others leave."""

from typing import Any

import pytest
from msgspec.structs import replace

from rankcore import kernel
from rankcore.cluster import cluster_step
from rankcore.cluster.commands import CarryOut
from rankcore.cluster.events import DeletionRequested, NodeJoined
from rankcore.cluster.residency import ResidencySpec
from rankcore.commands import StartReplica
from rankcore.events import BundleLost, BundleRestored, NodeLost, ReplicaPlaced
from rankcore.frozen import PMap
from rankcore.placement import StaticPlacement
from tests.clusters import Cluster, application, entry

PACKED: dict[str, Any] = {"placement": "pack_ranks", "demand": {"GPU": 1, "CPU": 0}}


def join(cluster: Cluster, node_id: str, gpus: float, at: float | None = None) -> None:
    cluster.tell(NodeJoined(node_id=node_id, resources={"GPU": gpus}, at=cluster.now if at is None else at))


def places(cluster: Cluster, deployment: str) -> list[str]:
    return sorted(each.node_id for each in cluster.state.deployments[deployment].ranks.replicas.values() if each.node_id)


def test_a_lost_node_is_told_to_who_was_there() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)), application(entry("b/d", 1)))
    cluster.tell(NodeLost(node_id="n9", at=0.5))
    untouched = cluster.state.deployments["b/d"]
    assert cluster.state.deployments["b/d"] is untouched
    cluster.now = 2.0
    cluster.processes.clear()
    cluster.tell(NodeLost(node_id="n0", at=1.0))
    assert cluster.ranks("a/d") == [0, 1]
    assert cluster.ranks("b/d") == [0]
    cluster.tell(NodeLost(node_id="n0", at=0.5))
    assert cluster.ranks("a/d") == [0, 1], "an older loss changes nothing"


def test_more_deployments_than_a_step_has_events_are_told_of_a_loss_and_none_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    names = [f"a{number}/d" for number in range(12)]
    cluster.apply(*[application(entry(each, 1)) for each in names])
    monkeypatch.setattr(kernel, "EVENTS_MAX", 10)
    cluster.now = 2.0
    cluster.processes.clear()
    cluster.tell(NodeLost(node_id="n0", at=1.0))
    assert [each for each in names if cluster.state.deployments[each].frozen] == []
    assert all(cluster.ranks(each) == [0] for each in names)


def test_a_node_that_joins_ten_thousand_deployments_without_a_replica_touches_none_of_them() -> None:
    spec = entry("a/d", 0, residency=ResidencySpec(weight_bytes=4))
    cluster = Cluster()
    cluster.apply(application(spec))
    cold = cluster.state.deployments["a/d"]
    state = replace(cluster.state, deployments=PMap({f"a{number}/d": cold for number in range(10_000)}))
    step = cluster_step(state, NodeJoined(node_id="n1", resources={"GPU": 1.0}, gpu_bytes=(8,), cpu_bytes=8, at=1.0))
    assert step.state.deployments is state.deployments
    assert step.commands == ()
    assert list(step.state.weights.planner.nodes) == ["n1"]


def test_who_turns_out_to_have_been_on_a_lost_node_is_lost() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1, repeat_period_s=1.0)))
    cluster.tell(NodeLost(node_id="n9", at=3.0))
    del cluster.processes["a/d#1.0"]
    cluster.now = 5.0
    cluster.saves_at_once = False
    cluster.apply(application(entry("b/d", 1)))
    cluster.store.append(cluster.under_way.popleft())
    step = cluster.state
    assert step.nodes["n9"].lost_at == 3.0
    cluster.saves_at_once = True
    cluster.land()
    cluster.tell(ReplicaPlaced(replica_id="b/d#1.0", node_id="n9", at=2.0))
    cluster.wait(60.0)
    assert "n9" not in places(cluster, "b/d")


def test_capacity_is_what_the_others_leave() -> None:
    cluster = Cluster()
    join(cluster, "n1", 3)
    cluster.apply(application(entry("a/d", 2, **PACKED)), application(entry("b/d", 2, **PACKED)))
    assert places(cluster, "a/d") == ["n1", "n1"]
    assert places(cluster, "b/d") == ["n1"], "the fourth does not fit"
    join(cluster, "n2", 1)
    assert places(cluster, "b/d") == ["n1", "n2"]
    cluster.apply(application(entry("a/d", 1, **PACKED)), application(entry("b/d", 3, **PACKED)))
    assert places(cluster, "b/d") == ["n1", "n1", "n2"]


def test_a_node_that_changes_and_is_lost_and_comes_back_is_counted_anew() -> None:
    cluster = Cluster()
    join(cluster, "n1", 1)
    cluster.apply(application(entry("a/d", 2, **PACKED)))
    assert places(cluster, "a/d") == ["n1"]
    cluster.now = 1.0
    join(cluster, "n1", 2)
    assert places(cluster, "a/d") == ["n1", "n1"]
    join(cluster, "n1", 9, at=0.5)
    assert cluster.notes[-1].kind == "late"
    cluster.processes.clear()
    cluster.now = 3.0
    cluster.tell(NodeLost(node_id="n1", at=2.0))
    assert places(cluster, "a/d") == []
    cluster.now = 4.0
    join(cluster, "n1", 2)
    cluster.wait(5.0)
    assert places(cluster, "a/d") == ["n1", "n1"]


def test_a_late_loss_leaves_what_a_node_has_offered_since() -> None:
    cluster = Cluster()
    cluster.now = 3.0
    join(cluster, "n1", 2)
    cluster.tell(NodeLost(node_id="n1", at=2.0))
    cluster.apply(application(entry("a/d", 2, **PACKED)))
    assert places(cluster, "a/d") == ["n1", "n1"]


def test_a_deployment_that_is_placed_by_room_no_more_gets_no_such_news() -> None:
    cluster = Cluster()
    join(cluster, "n1", 2)
    cluster.apply(application(entry("a/d", 1, **PACKED)))
    assert cluster.state.ranked == ("a/d",)
    cluster.apply(application(entry("a/d", 1)))
    assert cluster.state.ranked == ()
    cluster.apply(application(entry("a/d", 1, **PACKED)))
    cluster.tell(DeletionRequested(applications=("a",), at=cluster.now))
    assert cluster.state.ranked == ()
    assert dict(cluster.state.members) == {}


def test_bundles_are_told_to_who_stands_on_their_group() -> None:
    cluster = Cluster()
    one, two = (StaticPlacement({0: (0,)}, 1, group=name) for name in ("one", "two"))
    cluster.apply(application(entry("a/d", 1, placement=one)), application(entry("b/d", 1, placement=two)))
    cluster.now = 1.0
    join(cluster, "n5", 1)
    cluster.processes.pop("a/d#1.0")
    other = cluster.state.deployments["b/d"]
    cluster.tell(BundleLost(bundles=(0,), group_id="one", at=1.0))
    assert cluster.status("a/d") == "UNHEALTHY"
    assert cluster.state.deployments["b/d"] is other
    done = len(cluster.done)
    cluster.now = 2.0
    cluster.tell(BundleRestored(bundles=(0,), group_id="one", at=2.0))
    started = [each.command for each in cluster.done[done:] if isinstance(each, CarryOut)]
    assert [each.group_id for each in started if isinstance(each, StartReplica)] == ["one"]
