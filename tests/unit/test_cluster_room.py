"""Ranks hear for which of their claims there is no GPU memory (`rankcore/cluster/room.py`), so that V18 holds there too."""

from rankcore.cluster.events import ScaleRequested
from rankcore.cluster.residency import ResidencySpec
from rankcore.events import NodeLost
from tests.clusters import Cluster, application, entry

SMALL = ResidencySpec(weight_bytes=4, min_hot_s=0.0)


def full_cluster(replicas: int = 3, **options: object) -> Cluster:
    cluster = Cluster()
    for number in range(replicas):
        cluster.join(4, node_id=f"n{number}", cpu_bytes=0)
    cluster.apply(application(entry("a/x", replicas, residency=SMALL, **options)))
    return cluster


def lose(cluster: Cluster, node_id: str) -> None:
    for worker_id, held in list(cluster.workers.held.items()):
        if held.worker.node_id == node_id:
            del cluster.workers.held[worker_id]
    cluster.tell(NodeLost(node_id=node_id, at=cluster.now))


def roomless(cluster: Cluster) -> list[str]:
    return sorted(
        each.replica_id for each in cluster.state.deployments["a/x"].ranks.replicas.values() if each.no_room_since is not None
    )


def test_a_rank_whose_weights_fit_nowhere_is_starved() -> None:
    cluster = full_cluster()
    lose(cluster, "n0")
    assert cluster.ranks("a/x") == [1, 2]
    cluster.wait(59.0)
    assert cluster.ranks("a/x") == [1, 2]
    cluster.wait(1.0)
    assert cluster.ranks("a/x") == [0, 1]


def test_of_several_claims_the_newest_are_without_room_and_one_that_has_a_place_is_not() -> None:
    cluster = full_cluster(1)
    cluster.tell(ScaleRequested(deployment="a/x", target_replicas=3, at=0.0))
    assert roomless(cluster) == ["a/x#1.1", "a/x#1.2"]
    cluster.moves_end = False  # its load begins, and lasts
    cluster.join(4, node_id="n1", cpu_bytes=0)
    assert roomless(cluster) == ["a/x#1.2"]
    lose(cluster, "n1")
    assert roomless(cluster) == ["a/x#1.1", "a/x#1.2"]


def test_whose_load_lasts_longer_than_a_rank_may_starve_has_room_and_moves_nobody() -> None:
    cluster = full_cluster()
    cluster.join(4, node_id="n3", cpu_bytes=0)
    cluster.moves_end = False
    lose(cluster, "n0")
    cluster.wait(100.0)
    assert roomless(cluster) == []
    assert cluster.ranks("a/x") == [1, 2]
