"""V3 on a real Ray cluster under a load: four replicas, room for a fifth, none of four may be out, and no call fails."""

import json
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.free_ports import free_ports
from tests.integration.test_ray_http import Client
from tests.ray_load import Calls
from tests.ray_local import ANSWER_S, add_node, clean_up, eventually, several_nodes

pytestmark = [pytest.mark.slow, pytest.mark.night]

N = 4
CALLS = 10_000
OPTIONS = {
    "num_replicas": N,
    "max_unavailable": 0,
    "max_surge": 1,
    "hand_over": "overlap",
    "min_ready_s": 0.5,
    "idempotent": False,
    "ray_actor_options": {"num_cpus": 1},
}
WAYS = {
    "any": lambda handle: handle.remote().result(ANSWER_S),
    "on a thread": lambda handle: handle.on_a_thread.remote().result(ANSWER_S),
    "a stream": lambda handle: list(handle.options(stream=True).items.remote(2)),
    "a batch": lambda handle: handle.together.remote(0).result(ANSWER_S),
}


@pytest.fixture(scope="module")
def cluster():
    with several_nodes() as nodes:
        add_node(nodes, num_cpus=N + 1)
        yield nodes


@pytest.fixture
def serve(cluster):
    from executors import ray_gpu

    yield ray_gpu
    clean_up(ray_gpu)


def info(serve):
    return serve.status().deployments["ServesWithoutRank"]


def running(serve):
    return [each for each in info(serve).replicas if each.state in ("RUNNING", "RECONFIGURING")]


def is_whole(serve):
    return info(serve).status == "HEALTHY" and sorted(each.rank.rank for each in running(serve)) == list(range(N))


def rank_1(handle):
    assert handle.options(rank=1).standing.remote().result(ANSWER_S)["rank"] == 1


def everybody(handle):
    ranks = [each["rank"] for each in handle.options(broadcast=True).standing.remote().result(ANSWER_S)]
    assert ranks == list(range(N))


def routed(journal):
    """How many took calls after each step, from the first in which all did."""
    from executors.engine.reading import JournalReader
    from rankcore.cluster.commands import CarryOut
    from rankcore.commands import PublishRoutes

    routes, counts = set(), []
    for line in JournalReader(journal):
        for each in line.commands:
            if isinstance(each, CarryOut) and isinstance(each.command, PublishRoutes):
                routes = (routes - set(each.command.removed)) | set(each.command.added)
        if counts or len(routes) == N:
            counts.append(len(routes))
    return counts


def test_an_update_a_restart_a_config_and_a_drain_under_ten_thousand_calls(cluster, serve, tmp_path):
    from tests.ray_apps import ServesWithoutRank

    journal = tmp_path / "run.jsonl"
    (http_port,) = free_ports(1)
    serve.start(journal=str(journal), http_options={"port": http_port}, proxy_location="HeadOnly")
    client = Client(http_port)
    first, second = (ServesWithoutRank.options(**OPTIONS, version=version) for version in "12")
    other_config = second.options(user_config={"name": "v2"})
    handle = serve.run(first.bind(), route_prefix="/")
    eventually(lambda: client.ask("/")[0] == 200, "the route is known")
    without_rank = Counter()

    def counted(way, ask):
        def asked(handle):
            answer = ask(handle)
            for each in answer if isinstance(answer, list) else [answer]:
                without_rank[way] += each["rank"] is None

        return asked

    def over_http(_):
        status, body = client.ask("/")
        assert status == 200
        return json.loads(body)

    def pids():
        return {each.pid for each in running(serve)}

    with ExitStack() as stack:
        load = {way: counted(way, ask) for way, ask in {**WAYS, "HTTP": over_http}.items()}
        load |= {"rank 1": rank_1, "everybody": everybody}
        calls = {way: stack.enter_context(Calls(handle, ask)) for way, ask in load.items()}

        def done(change, is_done):
            change()
            eventually(lambda: is_done() and is_whole(serve), "the change is done with")

        done(
            lambda: serve.run(second.bind(), route_prefix="/", wait=False),
            lambda: [each.version for each in running(serve)] == ["2"] * N,
        )
        before = pids()
        done(lambda: serve.restart("ServesWithoutRank"), lambda: not pids() & before)
        before = pids()
        done(lambda: serve.run(other_config.bind(), route_prefix="/", wait=False), lambda: not info(serve).rollout)
        assert pids() == before, "a config starts nobody"
        (full,) = {each.node_id for each in running(serve)}
        room = add_node(cluster, num_cpus=N + 1)
        done(lambda: serve.drain(full), lambda: {each.node_id for each in running(serve)} == {room.node_id})
        eventually(lambda: sum(each.answered for each in calls.values()) >= CALLS, "there were enough calls")
    print({way: (each.answered, without_rank[way], round(each.slowest_s, 2)) for way, each in calls.items()})
    assert {way: each.failed for way, each in calls.items() if each.failed} == {}
    assert all(without_rank[way] for way in (*WAYS, "HTTP")), "each kind was answered by one without a rank too"
    counts = routed(journal)
    assert (min(counts), max(counts)) == (N, N + 1)
