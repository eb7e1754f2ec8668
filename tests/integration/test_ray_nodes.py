"""Several nodes (raylets on one machine): node and local ranks, lost nodes, placement by rank, calls between nodes."""

import os
import signal
import subprocess
import sys

import pytest

from tests.ray_local import ANSWER_S, add_node, clean_up, eventually, several_nodes

pytestmark = pytest.mark.slow


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


def reports(name):
    from executors.ray_gpu.observation import observe

    return {report.ranks[0]: report for report in observe(name, timeout_s=30.0) if report.ranks is not None and report.ready}


def settled(serve, name, world_size):
    def check():
        now = serve.status().deployments[name]
        found = reports(name)
        return now.status == "HEALTHY" and sorted(found) == list(range(world_size)) and found

    return eventually(check, f"{world_size} ranks are held")


def ranks_are_right_on_nodes(found):
    by_node = {}
    for report in found.values():
        by_node.setdefault(report.endpoint.node_id, []).append(report.ranks)
    node_ranks = []
    for ranks in by_node.values():
        assert len({node_rank for _, node_rank, _ in ranks}) == 1, "replicas of one node agree on its rank"
        assert sorted(local_rank for _, _, local_rank in ranks) == list(range(len(ranks)))
        node_ranks.append(ranks[0][1])
    assert sorted(node_ranks) == list(range(len(by_node)))


@pytest.mark.parametrize("graceful", [pytest.param(True, marks=pytest.mark.night), False], ids=["shut down", "killed"])
def test_a_lost_nodes_replicas_restart_elsewhere_with_their_global_ranks(cluster, serve, graceful):
    from tests.ray_apps import RankAware

    first, second = add_node(cluster), add_node(cluster)
    handle = serve.run(RankAware.options(num_replicas=3, ray_actor_options={"num_cpus": 1}).bind(), route_prefix=None)
    before = settled(serve, "RankAware", 3)
    ranks_are_right_on_nodes(before)
    homes = {report.endpoint.node_id for report in before.values()}
    assert homes == {first.node_id, second.node_id}
    eventually(lambda: {handle.remote().result(ANSWER_S)[0].rank for _ in range(3)} == {0, 1, 2}, "calls reach all nodes")
    add_node(cluster)
    cluster.remove_node(second, allow_graceful=graceful)
    # Workers outlive a raylet that is killed by a moment.
    eventually(lambda: second.node_id not in {each.endpoint.node_id for each in reports("RankAware").values()}, "all have left")
    after = settled(serve, "RankAware", 3)
    ranks_are_right_on_nodes(after)
    for rank, report in before.items():
        if report.endpoint.node_id == first.node_id:
            assert after[rank].endpoint == report.endpoint, "who was elsewhere stays, with its rank"
        else:
            assert after[rank].endpoint.node_id != second.node_id
    eventually(lambda: {handle.remote().result(ANSWER_S)[0].rank for _ in range(3)} == {0, 1, 2}, "calls reach all again")


def test_pack_ranks_puts_consecutive_ranks_on_one_node(cluster, serve):
    from tests.ray_apps import RankAware

    nodes = [add_node(cluster) for _ in range(3)]
    options = {"num_replicas": 4, "placement": "pack_ranks", "ray_actor_options": {"num_cpus": 1}}
    serve.run(RankAware.options(**options).bind(), route_prefix=None)
    found = settled(serve, "RankAware", 4)
    ranks_are_right_on_nodes(found)
    homes = [found[rank].endpoint.node_id for rank in range(4)]
    assert homes[0] == homes[1] != homes[2] == homes[3]
    lost = next(node for node in nodes if node.node_id == homes[3])
    cluster.remove_node(lost, allow_graceful=True)
    eventually(lambda: homes[3] not in {each.endpoint.node_id for each in reports("RankAware").values()}, "all have left")
    after = settled(serve, "RankAware", 4)
    ranks_are_right_on_nodes(after)
    assert after[0].endpoint.node_id == after[1].endpoint.node_id == homes[0]
    assert after[2].endpoint.node_id == after[3].endpoint.node_id not in homes


def test_a_replica_that_waits_for_room_starts_when_a_node_comes(cluster, serve):
    from tests.ray_apps import RankAware

    add_node(cluster)
    serve.run(RankAware.options(num_replicas=3, ray_actor_options={"num_cpus": 1}).bind(), wait=False, route_prefix=None)
    eventually(lambda: "it waits for room" in serve.status().deployments["RankAware"].message, "status says so")
    add_node(cluster)
    ranks_are_right_on_nodes(settled(serve, "RankAware", 3))


def test_a_node_that_does_not_answer_delays_nobody_else(cluster, serve):
    from tests.ray_apps import RankAware, double

    silent = add_node(cluster, resources={"left": 10})
    add_node(cluster, resources={"right": 10})
    on_left = {"num_cpus": 0, "resources": {"left": 1}}
    on_right = {"num_cpus": 0, "resources": {"right": 1}}
    serve.run(RankAware.options(num_replicas=2, ray_actor_options=on_left).bind(), route_prefix=None)
    serve.run(double.options(num_replicas=1, ray_actor_options=on_right).bind(), name="other", route_prefix=None)
    raylet = silent.all_processes["raylet"][0].process.pid
    os.kill(raylet, signal.SIGSTOP)
    try:
        serve.scale("RankAware", 4)
        serve.scale("double", 3)
        settled(serve, "double", 3)
        assert serve.status().deployments["RankAware"].status != "HEALTHY"
    finally:
        os.kill(raylet, signal.SIGCONT)


@pytest.mark.night
def test_weights_that_stood_on_a_lost_node_are_loaded_on_another(cluster, serve, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")
    from tests.fleet_models import WEIGHT_BYTES, Probe, write_weights

    nodes = [add_node(cluster, labels={"for": "models"}) for _ in range(2)]
    path, answer = write_weights(tmp_path, "m", 3)
    serve.start(
        memory={"device": "cpu", "stand_in_gpu_bytes": (2 * WEIGHT_BYTES,), "cache_bytes": 0}, proxy_location="Disabled"
    )
    residency = serve.Residency(weights=path, node_labels={"for": "models"})
    handle = serve.run(
        serve.deployment(Probe).options(name="m", residency=residency, idempotent=True).bind(), route_prefix=None
    )
    assert handle.remote().result(ANSWER_S) == pytest.approx(answer)
    (before,) = serve.status().deployments["m"].workers
    cluster.remove_node(next(each for each in nodes if each.node_id == before.node_id), allow_graceful=False)

    def is_elsewhere():
        found = serve.status().deployments["m"].workers
        return [(each.level, each.node_id != before.node_id) for each in found] == [("HOT", True)]

    eventually(is_elsewhere, "it is HOT on the other node")
    assert handle.remote().result(ANSWER_S) == pytest.approx(answer)
    assert before.node_id not in {node.node_id for node in serve.status().memory}


PROGRAM = """
import os
import sys
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="warning")
from executors import ray_gpu as serve
assert serve.get_deployment_handle("Caller").remote(1).result(60) == 3
if sys.argv[2] == "is killed":
    os.kill(os.getpid(), 9)
"""
WELL_BEFORE_ITS_SILENCE_IS_NOTICED_S = 25.0


@pytest.mark.night
def test_whoever_has_called_from_another_node_and_has_ended_is_not_waited_for_when_a_replica_drains(cluster, serve):
    import ray

    from tests.ray_apps import Caller, double

    add_node(cluster, num_cpus=1)
    add_node(cluster, num_cpus=1)
    options = {"ray_actor_options": {"num_cpus": 1}, "graceful_shutdown_timeout_s": 200.0}
    serve.run(Caller.options(**options).bind(double.options(**options).bind()), wait=True, route_prefix=None)
    address = ray.get_runtime_context().gcs_address
    for end, status in (("ends", 0), ("is killed", -9)):
        assert subprocess.run([sys.executable, "-c", PROGRAM, address, end], timeout=ANSWER_S).returncode == status

    def restarted(name):
        (before,) = settled(serve, name, 1).values()
        serve.restart(name)

        def is_another():
            now = reports(name)
            return 0 in now and now[0].endpoint.pid != before.endpoint.pid

        eventually(is_another, f"{name} is another", WELL_BEFORE_ITS_SILENCE_IS_NOTICED_S)

    restarted("Caller")  # which the program has called
    restarted("double")  # which the replica has called that has just ended
