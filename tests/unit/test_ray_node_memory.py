"""Which memory of nodes weights may use: GPUs that are held, by their numbers, told once a node has answered."""

import asyncio

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from types import SimpleNamespace

from executors.ray_gpu.worker import node_memory
from executors.ray_gpu.worker.gpu_holder import HeldGpus
from executors.ray_gpu.worker.node_memory import MemoryOffer, NodeMemories
from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.worker.places import NodeMemory
from executors.ray_gpu.world import NodeInfo
from tests.ray_in_memory import until


class Asked(NodeMemories):
    """Nodes that say what they have without a task."""

    async def _measured(self, node_id, options):
        return NodeMemory((10, 20, 30), 5)

    async def _freed(self, node_id):
        self.freed = [*getattr(self, "freed", ()), node_id]


@pytest.fixture
def scene(monkeypatch):
    """Memory options, what is held by node, what was given back, and whose misplaced workers were ended."""
    found = SimpleNamespace(options=MemoryOptions(), held={}, given_back=[], ended=[], news=[])

    def hold(namespace, node, timeout_s):
        answer = found.held[node.node_id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(node_memory, "hold", hold)
    monkeypatch.setattr(node_memory, "give_back", lambda namespace, node_id: found.given_back.append(node_id))
    return found


def memories(scene):
    async def call(function, *args):
        return function(*args)

    async def end_misplaced(node_id, held):
        scene.ended.append((node_id, held))

    world = SimpleNamespace(call=call, namespace="test", checkpoint=SimpleNamespace(memory=lambda: scene.options))
    return Asked(world, lambda: scene.news.append(1), end_misplaced)


def nodes(*ids, gpus=3):
    return {each: NodeInfo(each, "", {"GPU": gpus} if gpus else {}, {}, {"zone": each}) for each in ids}


def test_a_gpu_that_is_not_held_has_no_bytes_and_misplaced_workers_are_ended_before_it_is_told(scene):
    async def play():
        held = scene.held["a"] = HeldGpus("a", "group", (0, 2), None)
        found = memories(scene)
        found.look(nodes("a"))
        await until(lambda: scene.news)
        assert found.offers == {"a": MemoryOffer((10, 0, 30), 5, {"zone": "a"})}
        assert found.places["a"].memory == NodeMemory((10, 20, 30), 5)
        assert scene.ended == [("a", held)]
        found.look(nodes("a"))
        assert found._asking == {}

    asyncio.run(play())


def test_what_stands_for_gpus_is_not_held(scene):
    async def play():
        found = memories(scene)
        found.look(nodes("a", gpus=0))
        await until(lambda: scene.news)
        scene.options = MemoryOptions(device="cpu")
        found.look({**nodes("a", gpus=0), **nodes("b")})
        await until(lambda: len(scene.news) == 2)
        assert [each.gpu_bytes for each in found.offers.values()] == [(10, 20, 30)] * 2
        assert scene.ended == []

    asyncio.run(play())


def test_a_node_whose_gpus_are_not_free_is_asked_again(scene):
    async def play():
        scene.held["a"] = TimeoutError("others have them")
        found = memories(scene)
        found.look(nodes("a"))
        await until(lambda: not found._asking)
        assert (found.offers, scene.news) == ({}, [])
        scene.held["a"] = None
        found.look(nodes("a"))
        await until(lambda: scene.news)
        assert found.offers["a"].gpu_bytes == (0, 0, 0)

    asyncio.run(play())


def test_what_was_held_is_given_back_when_a_node_is_lost_and_when_nothing_is_planned_any_more(scene):
    async def play():
        scene.held = {"a": HeldGpus("a", "g", (0,), None), "b": HeldGpus("b", "g", (0,), None)}
        found = memories(scene)
        found.look(nodes("a", "b"))
        await until(lambda: len(scene.news) == 2)
        found.look(nodes("b"))
        await until(lambda: scene.given_back == ["a"])
        found.close()
        await until(lambda: scene.given_back == ["a", "b"])
        await found.closed()
        assert (found.offers, found.places, found.freed) == ({}, {}, ["b"])

    asyncio.run(play())


def test_a_node_that_does_not_say_what_it_has_holds_up_no_other_and_is_asked_once(scene):
    asked = []

    async def looked():
        found = memories(scene)

        async def measured(node_id, options):
            asked.append(node_id)
            if node_id == "sick":
                await asyncio.Event().wait()
            return NodeMemory((10,), 5)

        found._measured = measured
        scene.options = MemoryOptions(device="cpu")
        for _ in range(3):
            found.look(nodes("sick", "well"))
            await until(lambda: "well" in found.offers)
        found.close()
        return sorted(asked)

    assert asyncio.run(looked()) == ["sick", "well"]
    assert len(scene.news) == 1
