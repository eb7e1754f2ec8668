"""GPUs that a planner gives out stay the same, whoever of those that hold them dies. Ray counts GPUs; there need be none."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import ray

from executors.ray_gpu.worker.gpu_holder import PLANNED_GPUS, give_back, group_name, hold
from executors.ray_gpu.world import live_nodes
from tests.ray_local import PATIENCE_S, add_node, eventually, several_nodes

pytestmark = pytest.mark.ray
NAMESPACE = "held"


class Pinned:
    def gpus(self):
        return tuple(ray.get_gpu_ids())


def pinned(node_id):
    """A replica that Ray gives one GPU of a node."""
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(Pinned).options(num_cpus=0, num_gpus=1, scheduling_strategy=there).remote()


def holder_is_gone(node_id):
    try:
        ray.get_actor(group_name(NAMESPACE, node_id), namespace=NAMESPACE)
    except ValueError:
        return True
    return False


@pytest.fixture(scope="module")
def nodes():
    """Of three nodes: one of which two of four GPUs are to be planned, one with two that all are, and one without any."""
    with several_nodes() as cluster:
        labelled = add_node(cluster, num_gpus=4, labels={PLANNED_GPUS: "2"})
        yield labelled.node_id, add_node(cluster, num_gpus=2).node_id, add_node(cluster).node_id


def held(node_id):
    return hold(NAMESPACE, live_nodes()[node_id], PATIENCE_S)


def test_held_gpus_stay_the_same_without_their_actor_and_no_replica_is_put_on_them(nodes):
    node_id, *_ = nodes
    early = pinned(node_id)
    (first,) = ray.get(early.gpus.remote())
    found = held(node_id)
    assert (found.node_id, len(found.gpus)) == (node_id, 2)
    assert first not in found.gpus
    assert held(node_id) == found

    ray.kill(early)
    ray.kill(found.holder)
    eventually(lambda: holder_is_gone(node_id), "its actor is gone")
    replicas = [pinned(node_id) for _ in range(2)]
    others = {number for each in replicas for number in ray.get(each.gpus.remote())}
    assert others | set(found.gpus) == set(range(4)), "each GPU has one owner"
    further = pinned(node_id)
    again = held(node_id)
    assert (again.group_id, again.gpus) == (found.group_id, found.gpus)
    assert again.holder != found.holder

    waits = further.gpus.remote()
    assert ray.wait([waits], timeout=0) == ([], [waits])
    give_back(NAMESPACE, node_id)
    assert set(ray.get(waits)) < set(found.gpus)


def test_a_node_without_free_gpus_is_not_held_and_one_without_a_label_is_held_whole(nodes):
    _, whole, none = nodes
    assert held(none) is None
    assert held(whole).gpus == (0, 1)
    assert held(whole).gpus == (0, 1), "though nothing is free now"
