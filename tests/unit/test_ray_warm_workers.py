"""When a worker process is started ahead: after the replicas that are coming up, and not beside requests."""

import asyncio

import pytest

from executors.ray_gpu import warm_workers
from executors.ray_gpu.os_processes import processors_in_use
from executors.ray_gpu.warm_workers import WarmWorkers
from executors.ray_gpu.warming import CONTROLLER, REPLICA
from executors.ray_gpu.world import NodeInfo


class Cluster:
    """Stands for the controller's world and for Ray: nodes, and on which of them a worker was started."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = {node: NodeInfo(node, "", {"CPU": 2.0}, {"CPU": 2.0}) for node in nodes}
        self.warmed: list[str] = []
        self.brought: list[tuple[str, ...]] = []

    async def call(self, ask):
        return self.nodes

    def options(self, scheduling_strategy, runtime_env):
        self.warmed.append(scheduling_strategy.node_id)
        return self

    async def remote(self, modules):
        self.brought.append(modules)


@pytest.fixture
def cluster(monkeypatch):
    for name in ("QUIET_S", "LOOK_S", "AGAIN_S"):
        monkeypatch.setattr(warm_workers, name, 0.001)
    return Cluster("a" * 56, "b" * 56)


def workers_of(cluster) -> WarmWorkers:
    workers = WarmWorkers(cluster, "a" * 56)
    workers._bring = cluster
    return workers


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def saying(*shares):
    """A node that says so when it is asked, and the last of it from then on."""
    left = list(shares)
    asked = []

    async def busyness(during_s):
        asked.append(during_s)
        return left.pop(0) if len(left) > 1 else left[0]

    return busyness, asked


def test_a_busy_node_gets_its_worker_once_it_is_calm(cluster):
    async def story():
        workers = workers_of(cluster)
        calm, _ = saying(0.1)
        busy, asked = saying(0.9, 0.7, 0.5, 0.4)
        workers.used("a" * 56, calm, {})
        workers.used("b" * 56, busy, {})
        await until(lambda: "a" * 56 in cluster.warmed)
        await until(lambda: "b" * 56 in cluster.warmed)
        assert len(asked) == 4
        assert len(cluster.warmed) == 2

    asyncio.run(story())


def test_a_worker_has_what_runs_in_replicas_and_beside_the_controller_what_its_successor_needs(cluster):
    async def story():
        workers = workers_of(cluster)
        for node in cluster.nodes:
            workers.used(node, saying(0.1)[0], {})
        await until(lambda: len(cluster.warmed) == 2)
        has = dict(zip(cluster.warmed, cluster.brought, strict=True))
        assert has == {"a" * 56: REPLICA + CONTROLLER, "b" * 56: REPLICA}

    asyncio.run(story())


def test_a_node_is_forgotten_when_the_replica_that_would_say_is_gone(cluster):
    async def story():
        workers = workers_of(cluster)
        gone, asked = saying(None)
        calm, _ = saying(0.1)
        workers.used("a" * 56, gone, {})
        await until(lambda: asked)
        workers.used("b" * 56, calm, {})
        await until(lambda: cluster.warmed)
        assert cluster.warmed == ["b" * 56]
        assert len(asked) == 1

    asyncio.run(story())


def test_a_replica_that_comes_up_while_nodes_are_looked_at_has_its_worker_too(cluster):
    async def story():
        workers = workers_of(cluster)
        looking, go_on = asyncio.Event(), asyncio.Event()

        async def slow(during_s):
            looking.set()
            await go_on.wait()
            return 0.1

        calm, _ = saying(0.1)
        workers.used("a" * 56, slow, {})
        await looking.wait()
        workers.used("b" * 56, calm, {})
        await asyncio.sleep(0.01)  # its time is up before the look at the other one has ended
        go_on.set()
        await until(lambda: len(cluster.warmed) == 2)

    asyncio.run(story())


def test_the_processors_use_is_a_share():
    assert 0.0 <= asyncio.run(processors_in_use(0.05)) <= 1.0


def test_a_system_that_says_nothing_counts_as_idle(monkeypatch):
    monkeypatch.setattr("executors.ray_gpu.os_processes.Path", lambda name: __import__("pathlib").Path("/nowhere"))
    assert asyncio.run(processors_in_use(0.0)) == 0.0
