"""Each way to roll out, for each kind of change, on a real cluster with four places for four replicas, under calls.

None stands still (V2), never do fewer than N - U take calls (V1), no call fails, and the ranks are 0 to 3 afterwards. Where
nobody may be out of service there is a fifth place (V3).
"""

import pytest

from tests.ray_load import Calls
from tests.ray_local import add_node, clean_up, eventually, several_nodes

pytestmark = [pytest.mark.slow, pytest.mark.night]

N = 4
UNAVAILABLE = {0: 0, 1: 1, 2: 2, "50%": 2}
"""`max_unavailable`, and how many that are of four."""
SURGES = (1, 2, 4)
WAYS = [(0, "none"), *((surge, hand_over) for hand_over in ("none", "prepared", "overlap") for surge in SURGES)]
"""`max_surge` and `hand_over`."""
FULL = [(N, unavailable, *way) for unavailable in (1, 2, "50%") for way in WAYS]
WITH_ROOM = [(N + 1, 0, surge, "overlap") for surge in SURGES]


@pytest.fixture(scope="module")
def nodes():
    with several_nodes() as nodes:
        yield nodes


@pytest.fixture
def cluster(nodes, places):
    add_node(nodes, num_cpus=places)
    yield nodes
    for each in list(nodes.worker_nodes):
        nodes.remove_node(each)


@pytest.fixture
def routed(monkeypatch):
    """How many take calls, in each news of it that this process has had."""
    from executors.ray_gpu.requests.router import Router

    counts, follow = [], Router.follow

    def followed(router, routes):
        counts.append(len(routes.endpoints))
        follow(router, routes)

    monkeypatch.setattr(Router, "follow", followed)
    return counts


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


@pytest.mark.parametrize(("places", "unavailable", "surge", "hand_over"), [*FULL, *WITH_ROOM])
def test_an_update_a_restart_a_config_and_a_drain_where_there_are_as_many_places_as_are_needed(
    cluster, serve, routed, places, unavailable, surge, hand_over
):
    from tests.ray_apps import ConfigOnly, RankAware, ServesWithoutRank

    classes = {
        "none": RankAware,
        "prepared": ConfigOnly.options(name="RankAware"),  # which needs no rank in `__init__`
        "overlap": ServesWithoutRank.options(name="RankAware"),  # nor in calls
    }
    deployment = classes[hand_over]
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
    handle = serve.run(first.bind(), route_prefix=None)

    def pids():
        return {each.pid for each in running(serve)}

    def changed(change, is_done):
        """Make a change under calls, and wait until it is done."""
        with Calls(handle) as calls:
            routed.clear()
            change()
            eventually(lambda: is_done() and is_whole(serve), "the change is done with")
        assert calls.failed == []
        assert min(routed, default=N) >= N - UNAVAILABLE[unavailable]

    changed(
        lambda: serve.run(second.bind(), wait=False, route_prefix=None),
        lambda: [each.version for each in running(serve)] == ["2"] * N,
    )
    before = pids()
    changed(lambda: serve.restart("RankAware"), lambda: not pids() & before)
    before = pids()
    changed(lambda: serve.run(other_config.bind(), wait=False, route_prefix=None), lambda: not info(serve).rollout)
    assert pids() == before, "a config starts nobody"
    (full,) = {each.node_id for each in running(serve)}
    room = add_node(cluster, num_cpus=places)
    changed(lambda: serve.drain(full), lambda: {each.node_id for each in running(serve)} == {room.node_id})
    serve.uncordon(full)
