"""V2 on a real cluster with room for exactly the replicas that run: an update with surge ends, and three of four serve."""

import os
import signal
import threading

import pytest

from tests.ray_local import ANSWER_S, PATIENCE_S, clean_up, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

PLACES = 4


@pytest.fixture(scope="module")
def serve(ray_cluster):  # noqa: F811
    from executors import ray_gpu

    yield ray_gpu
    clean_up(ray_gpu)


def app(version, surge):
    from tests.ray_apps import RankAware

    return RankAware.options(
        num_replicas=PLACES,
        version=version,
        max_surge=surge,
        max_unavailable=1,
        surge_patience_s=600.0,  # so that it is what Ray says of its nodes that the update goes on by
        idempotent=True,
        ray_actor_options={"num_cpus": 1},
    ).bind()


@pytest.mark.parametrize("surge", [1, pytest.param(4, marks=pytest.mark.night)])
def test_an_update_of_a_full_cluster_goes_on_without_the_room_that_there_is_not(serve, surge):
    handle = serve.run(app("1", surge), route_prefix=None)
    ended, failed, answered = threading.Event(), [], []

    def call():
        while not ended.is_set():
            try:
                answered.append(handle.remote().result(ANSWER_S)[0].rank)
            except Exception as error:
                failed.append(error)

    def running():
        replicas = serve.status().deployments["RankAware"].replicas
        return [each for each in replicas if each.state in ("RUNNING", "RECONFIGURING")]

    least, callers = PLACES, [threading.Thread(target=call, daemon=True) for _ in range(2)]
    for caller in callers:
        caller.start()
    serve.run(app("2", surge), wait=False, route_prefix=None)

    def is_done():
        nonlocal least
        now = running()
        least = min(least, len(now))
        return [each.version for each in now] == ["2"] * PLACES

    try:
        eventually(is_done, "all four run the new version")
    finally:
        ended.set()
        for caller in callers:
            caller.join(ANSWER_S)
    assert sorted(each.rank.rank for each in running()) == list(range(PLACES))
    assert least >= PLACES - 1
    assert (failed, len(answered) > 0) == ([], True)
    serve.delete("default")


def test_a_successor_that_still_queues_keeps_no_recovery_waiting(serve, tmp_path):
    """R10: it has no process, so it believes no rank; else all would wait until health_check_timeout_s is over."""
    from tests.ray_apps import ServesWithoutRank

    def deploy(version, **options):
        deployment = ServesWithoutRank.options(
            version=version,
            num_replicas=PLACES,
            max_surge=1,
            max_unavailable=0,
            hand_over="overlap",
            health_check_timeout_s=10 * PATIENCE_S,
            ray_actor_options={"num_cpus": 1},
        )
        return serve.run(deployment.bind(str(tmp_path), version), **options, route_prefix=None)

    def now():
        return serve.status().deployments["ServesWithoutRank"]

    deploy("1")
    deploy("2", wait=False)
    (queued,) = eventually(lambda: [each.replica_id for each in now().replicas if each.state == "REQUESTED"], "one queues")
    before = serve.status()
    os.kill(before.controller_pid, signal.SIGKILL)
    eventually(lambda: serve.status().epoch > before.epoch, "the next controller has taken over")
    serve.scale("ServesWithoutRank", PLACES - 1)

    def is_done():
        replicas = now().replicas
        ranks = sorted(each.rank.rank for each in replicas if each.state == "RUNNING" and each.version == "2")
        return ranks == list(range(PLACES - 1)) == list(range(len(replicas))) and replicas

    replicas = eventually(is_done, "three run the new version")
    assert queued not in [each.replica_id for each in replicas]
    serve.delete("default")
