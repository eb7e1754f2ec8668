"""V2 on a real cluster with room for exactly the replicas that run: an update with surge ends, and three of four serve."""

import threading

import pytest

from tests.ray_local import ANSWER_S, clean_up, eventually, ray_cluster  # noqa: F401 (a fixture)

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


@pytest.mark.parametrize("surge", [1, 4])
def test_an_update_of_a_full_cluster_goes_on_without_the_room_that_there_is_not(serve, surge):
    handle = serve.run(app("1", surge))
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
    serve.run(app("2", surge), wait=False)

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
