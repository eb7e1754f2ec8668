"""Each way to roll out, for each kind of change, on a real cluster with four places for four replicas, under calls.

None stands still (V2), never do fewer than N - U run (V1), no call fails, and the ranks are 0 to 3 afterwards.
"""

import pytest

from tests.ray_load import Calls
from tests.ray_local import add_node, clean_up, eventually, several_nodes

pytestmark = [pytest.mark.slow, pytest.mark.night]

N = 4
UNAVAILABLE = {1: 1, 2: 2, "50%": 2}
"""`max_unavailable`, and how many that are of four."""
WAYS = [(surge, "none") for surge in (0, 1, 2, 4)] + [(surge, "prepared") for surge in (1, 2, 4)]
"""`max_surge` and `hand_over`."""


@pytest.fixture(scope="module")
def cluster():
    with several_nodes() as nodes:
        add_node(nodes, num_cpus=N)
        yield nodes


@pytest.fixture
def serve(cluster):
    from executors import ray_gpu

    yield ray_gpu
    clean_up(ray_gpu)


def info(serve):
    return serve.status().deployments["RankAware"]


def running(serve):
    return [each for each in info(serve).replicas if each.state in ("RUNNING", "RECONFIGURING")]


def is_whole(serve):
    return info(serve).status == "HEALTHY" and sorted(each.rank.rank for each in running(serve)) == list(range(N))


def changed(serve, handle, change, is_done, unavailable):
    """Make a change under calls, and wait until it is done; the fewest that ran meanwhile."""
    least = N

    def look():
        nonlocal least
        least = min(least, len(running(serve)))
        return is_done() and is_whole(serve)

    with Calls(handle) as calls:
        change()
        eventually(look, "the change is done with")
    assert calls.failed == []
    assert least >= N - UNAVAILABLE[unavailable]


@pytest.mark.parametrize(("surge", "hand_over"), WAYS)
@pytest.mark.parametrize("unavailable", UNAVAILABLE)
def test_an_update_a_restart_a_config_and_a_drain_where_there_are_as_many_places_as_replicas(
    cluster, serve, unavailable, surge, hand_over
):
    from tests.ray_apps import ConfigOnly, RankAware

    deployment = RankAware if hand_over == "none" else ConfigOnly.options(name="RankAware")  # which needs no rank in `__init__`
    options = {
        "num_replicas": N,
        "max_unavailable": unavailable,
        "max_surge": surge,
        "hand_over": hand_over,
        "idempotent": True,
        "ray_actor_options": {"num_cpus": 1},
    }
    first, second = (deployment.options(**options, version=version) for version in "12")
    other_config = second.options(user_config={"name": "v2"})
    handle = serve.run(first.bind())

    def pids():
        return {each.pid for each in running(serve)}

    changed(
        serve,
        handle,
        lambda: serve.run(second.bind(), wait=False),
        lambda: [each.version for each in running(serve)] == ["2"] * N,
        unavailable,
    )
    before = pids()
    changed(serve, handle, lambda: serve.restart("RankAware"), lambda: not pids() & before, unavailable)
    before = pids()
    changed(serve, handle, lambda: serve.run(other_config.bind(), wait=False), lambda: not info(serve).rollout, unavailable)
    assert pids() == before, "a config starts nobody"
    (full,) = {each.node_id for each in running(serve)}
    room = add_node(cluster, num_cpus=N)
    changed(
        serve,
        handle,
        lambda: serve.drain(full),
        lambda: {each.node_id for each in running(serve)} == {room.node_id},
        unavailable,
    )
    serve.uncordon(full)
    cluster.remove_node(next(each for each in cluster.worker_nodes if each.node_id == full))
