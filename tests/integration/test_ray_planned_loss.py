"""Nodes that are cordoned or drained, by users and by Ray itself, on a real cluster of several nodes."""

import os
import signal
import time

import pytest

from tests.ray_load import Calls
from tests.ray_local import add_node, clean_up, eventually, several_nodes

pytestmark = pytest.mark.slow

ON_ONE = {"num_cpus": 1}
PREEMPTION = 2
"""Of Ray's reasons for a drain the one that it never refuses."""


@pytest.fixture
def cluster():
    from executors import ray_gpu

    with several_nodes() as cluster:
        yield cluster
        clean_up(ray_gpu)


@pytest.fixture
def serve(cluster):
    from executors import ray_gpu

    return ray_gpu


def info(serve):
    return serve.status().deployments["RankAware"]


def homes(serve):
    """The nodes of those that have ranks, by rank, once all have and it is healthy; None: not yet."""
    found = info(serve)
    ranks = {each.rank.rank: each.node_id for each in found.replicas if each.rank is not None}
    return ranks if found.status == "HEALTHY" and sorted(ranks) == list(range(found.world_size)) else None


def test_a_drained_node_is_emptied_without_a_failed_call_and_uncordoned_it_is_used_again(cluster, serve):
    from tests.ray_apps import RankAware

    drained, other = add_node(cluster), add_node(cluster)
    handle = serve.run(RankAware.options(num_replicas=4, ray_actor_options=ON_ONE).bind(), route_prefix=None)
    before = eventually(lambda: homes(serve), "four run")
    assert set(before.values()) == {drained.node_id, other.node_id}
    add_node(cluster)
    with Calls(handle) as calls:
        answer = serve.drain(drained.node_id[:12], deadline_s=300.0, reason="new driver")
        assert (answer.state, answer.reason, len(answer.replicas)) == ("draining", "new driver", 2)
        assert {each.what for each in answer.replicas} == {
            "moves, once its successor has a place elsewhere, or at its deadline"
        }
        assert 0 < answer.left_s <= 300.0
        after = eventually(lambda: (now := homes(serve)) and drained.node_id not in now.values() and now, "it is empty")
    assert calls.failed == []
    assert {rank: node for rank, node in after.items() if before[rank] == other.node_id} == {
        rank: node for rank, node in before.items() if node == other.node_id
    }
    (left,) = serve.status().cordons
    assert (left.node_id, left.replicas) == (drained.node_id, ())
    assert serve.cordon(drained.node_id).state == "draining", "a drained node is cordoned already"

    serve.scale("RankAware", 5)
    eventually(lambda: "cordoned" in info(serve).message, "the fifth has no room but there, and status says so")
    assert drained.node_id not in {each.node_id for each in info(serve).replicas}
    assert serve.uncordon(drained.node_id).state == "open"
    eventually(lambda: (now := homes(serve)) and now[4] == drained.node_id, "it is placed there, now that it may be")


@pytest.mark.night
def test_cordon_and_drain_outlive_the_controller(cluster, serve):
    from tests.ray_apps import RankAware

    drained = add_node(cluster)
    handle = serve.run(RankAware.options(num_replicas=2, ray_actor_options=ON_ONE).bind(), route_prefix=None)
    assert set(eventually(lambda: homes(serve), "two run").values()) == {drained.node_id}
    cordoned = add_node(cluster)
    with Calls(handle) as calls:
        assert serve.cordon(cordoned.node_id).replicas == ()
        serve.drain(drained.node_id)
        pid = serve.status().controller_pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: serve.status().controller_pid != pid, "another controller is there")
        states = {each.node_id: each.state for each in serve.status().cordons}
        assert states == {drained.node_id: "draining", cordoned.node_id: "cordoned"}
        eventually(lambda: "cordoned" in info(serve).message, "successors wait for room")
        assert {each.node_id for each in info(serve).replicas} <= {drained.node_id, None}
        serve.uncordon(cordoned.node_id)
        eventually(lambda: (now := homes(serve)) and set(now.values()) == {cordoned.node_id}, "both have moved")
    assert calls.failed == []


@pytest.mark.night
def test_a_replica_that_is_pinned_to_a_drained_node_stays_there_and_that_is_said(cluster, serve):
    from tests.ray_apps import RankAware

    drained = add_node(cluster)
    pinned = ON_ONE | {"label_selector": {"ray.io/node-id": drained.node_id}}
    handle = serve.run(RankAware.options(num_replicas=1, ray_actor_options=pinned).bind(), route_prefix=None)
    eventually(lambda: homes(serve), "it runs")
    (before,) = info(serve).replicas
    add_node(cluster)
    with Calls(handle) as calls:
        serve.drain(drained.node_id)
        no_other = "no other node than those that are cordoned carries the label"
        eventually(lambda: no_other in info(serve).message, "its successor waits")
        (successor,) = (each.replica_id for each in info(serve).replicas if each.rank is None)
        eventually(lambda: "rank 0 has a successor without a place" in info(serve).rollout, "the core has heard of it")
        assert {each.replica_id for each in info(serve).replicas} == {before.replica_id, successor}
        serve.uncordon(drained.node_id)
        eventually(lambda: info(serve).status == "HEALTHY", "it may stay")
        assert [each.replica_id for each in info(serve).replicas] == [before.replica_id]
    assert calls.failed == []


@pytest.mark.night
def test_a_replacement_by_name_outlives_the_controller(cluster, serve):
    from tests.ray_apps import RankAware

    full = add_node(cluster)
    handle = serve.run(RankAware.options(num_replicas=2, ray_actor_options=ON_ONE).bind(), route_prefix=None)
    assert set(eventually(lambda: homes(serve), "two run").values()) == {full.node_id}
    gone = info(serve).ranks[0]
    with Calls(handle) as calls:
        serve.replace_replicas([gone.partition("/")[2]])
        assert gone in info(serve).ranks.values(), "its successor has no place"
        pid = serve.status().controller_pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: serve.status().controller_pid != pid, "another controller is there")
        eventually(lambda: "rank 0 by name" in info(serve).message, "it knows of it")
        new = add_node(cluster)
        eventually(lambda: (now := homes(serve)) and now[0] == new.node_id, "it is replaced")
    assert gone not in info(serve).ranks.values()
    assert calls.failed == []


def test_what_ray_drains_is_left_without_a_failed_call_though_the_controller_dies(cluster, serve):
    import ray

    from tests.ray_apps import RankAware

    drained = add_node(cluster)
    handle = serve.run(RankAware.options(num_replicas=2, ray_actor_options=ON_ONE).bind(), route_prefix=None)
    assert set(eventually(lambda: homes(serve), "two run").values()) == {drained.node_id}
    deadline_ms = int((time.time() + 600.0) * 1000)
    with Calls(handle) as calls:
        ray._private.worker.global_worker.gcs_client.drain_node(drained.node_id, PREEMPTION, "spot", deadline_ms)
        (seen,) = eventually(lambda: serve.status().cordons, "it is heard")
        assert (seen.node_id, seen.state, 0 < seen.left_s <= 600.0) == (drained.node_id, "draining", True)
        with pytest.raises(serve.InvalidCallError, match="Ray itself drains it"):
            serve.uncordon(drained.node_id)
        pid = serve.status().controller_pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: serve.status().controller_pid != pid, "another controller is there")
        eventually(lambda: serve.status().cordons, "it hears of it too")
        ranks = {each.rank.rank: each.node_id for each in info(serve).replicas if each.rank is not None}
        assert set(ranks.values()) <= {drained.node_id}, "there is no room elsewhere"
        add_node(cluster)
        after = eventually(lambda: (now := homes(serve)) and drained.node_id not in now.values() and now, "both have moved")
    assert calls.failed == []
    assert sorted(after) == [0, 1]
    eventually(lambda: not serve.status().cordons, "the node has ended, and is spoken of no more")
