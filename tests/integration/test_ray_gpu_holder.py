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


def test_held_gpus_stay_the_same_without_their_actor_and_no_replica_is_put_on_them():
    with several_nodes() as cluster:
        node_id = add_node(cluster, num_gpus=4, labels={PLANNED_GPUS: "2"}).node_id
        add_node(cluster, num_gpus=4)
        early = pinned(node_id)
        (first,) = ray.get(early.gpus.remote())
        held = hold(NAMESPACE, live_nodes()[node_id], PATIENCE_S)
        assert (held.node_id, len(held.gpus)) == (node_id, 2)
        assert first not in held.gpus
        assert hold(NAMESPACE, live_nodes()[node_id], PATIENCE_S) == held

        ray.kill(early)
        ray.kill(held.holder)
        eventually(lambda: holder_is_gone(node_id), "its actor is gone")
        replicas = [pinned(node_id) for _ in range(2)]
        others = {number for each in replicas for number in ray.get(each.gpus.remote())}
        assert others | set(held.gpus) == set(range(4)), "each GPU has one owner"
        further = pinned(node_id)
        again = hold(NAMESPACE, live_nodes()[node_id], PATIENCE_S)
        assert (again.group_id, again.gpus) == (held.group_id, held.gpus)
        assert again.holder != held.holder

        waits = further.gpus.remote()
        assert ray.wait([waits], timeout=0) == ([], [waits])
        give_back(NAMESPACE, node_id)
        assert set(ray.get(waits)) < set(held.gpus)


def test_a_node_without_free_gpus_is_not_held_and_one_without_a_label_is_held_whole():
    with several_nodes() as cluster:
        none, all_of_them = add_node(cluster).node_id, add_node(cluster, num_gpus=2).node_id
        assert hold(NAMESPACE, live_nodes()[none], PATIENCE_S) is None
        assert hold(NAMESPACE, live_nodes()[all_of_them], PATIENCE_S).gpus == (0, 1)
        assert hold(NAMESPACE, live_nodes()[all_of_them], PATIENCE_S).gpus == (0, 1), "though nothing is free now"
