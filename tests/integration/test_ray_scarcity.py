"""V18 on a real cluster of three places: of five that are wanted the lowest run, and a start that takes long moves nobody."""

import os
import signal
import sys

import pytest

from tests.ray_local import ANSWER_S, add_node, clean_up, eventually, several_nodes

pytestmark = pytest.mark.slow

START_S = 3
"""Several times as long as a rank may lack room."""


@pytest.fixture(scope="module")
def nodes():
    with several_nodes() as cluster:
        yield cluster, {each.node_id: each for each in [add_node(cluster, num_cpus=1) for _ in range(3)]}


@pytest.fixture
def cluster(nodes):
    from executors import ray_gpu

    yield nodes[0]
    clean_up(ray_gpu)


def held(serve):
    """By rank, those that run."""
    replicas = serve.status().deployments["RankAware"].replicas
    return {each.rank.rank: each for each in replicas if each.state == "RUNNING" and each.rank is not None}


def told(serve):
    return serve.status().deployments["RankAware"].message


@pytest.mark.night
def test_a_start_that_takes_long_on_room_that_there_is_moves_nobody(cluster, tmp_path):
    """Its process takes seconds, as while an environment is installed, and has taken the last room itself."""
    from executors import ray_gpu as serve
    from tests.ray_apps import RankAware

    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep {START_S}\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    slowly = {"num_cpus": 1, "runtime_env": {"py_executable": str(slow)}}
    times = {"scarcity_after_s": 0.5, "repeat_period_s": 0.3}
    serve.run(RankAware.options(num_replicas=3, ray_actor_options=slowly, **times).bind(), wait=False, route_prefix=None)
    eventually(lambda: sorted(held(serve)) == [0, 1, 2], "all three run")
    before = held(serve)
    os.kill(before[0].pid, signal.SIGKILL)
    eventually(lambda: sorted(held(serve)) == [1, 2], "rank 0 is away")
    assert "no room" not in told(serve)
    eventually(lambda: len(held(serve)) == 3, "all three run again")
    after = held(serve)
    assert after[0].replica_id != before[0].replica_id
    assert [after[rank].replica_id for rank in (1, 2)] == [before[rank].replica_id for rank in (1, 2)], "nobody has moved"


def test_the_lowest_ranks_run_on_the_places_that_there_are(cluster, nodes):
    from executors import ray_gpu as serve
    from tests.ray_apps import RankAware

    nodes = nodes[1]
    app = RankAware.options(num_replicas=5, scarcity_after_s=1.0, repeat_period_s=1.0, ray_actor_options={"num_cpus": 1}).bind()
    handle = serve.run(app, wait=False, route_prefix=None)
    eventually(lambda: sorted(held(serve)) == [0, 1, 2], "the ranks 0, 1 and 2 run")
    eventually(lambda: "ranks 3, 4 have no place: 3 of 5 have one" in told(serve), "status says which have no place")
    eventually(lambda: "it asks for CPU 1; the node with the most free has CPU 0" in told(serve), "status says what is lacking")
    assert "\n" not in told(serve)
    before = held(serve)
    assert {handle.remote().result(ANSWER_S)[0].rank for _ in range(20)} <= {0, 1, 2}
    cluster.remove_node(nodes[before[0].node_id], allow_graceful=False)
    eventually(lambda: sorted(held(serve)) == [0, 1], "the ranks 0 and 1 run")
    after = held(serve)
    assert after[1].replica_id == before[1].replica_id, "who has rank 1 keeps it"
    assert after[0].replica_id == before[2].replica_id, "the highest has moved, with one message"
    eventually(lambda: "ranks 2, 3, 4 have no place: 2 of 5 have one" in told(serve), "status says which have no place")
    add_node(cluster, num_cpus=1)
    eventually(lambda: sorted(held(serve)) == [0, 1, 2], "the place that is back has rank 2")
    assert {rank: each.replica_id for rank, each in held(serve).items() if rank < 2} == {
        rank: each.replica_id for rank, each in after.items()
    }
