"""Who waits for Ray to have room, and who has it while its environment is installed (`executors/ray_gpu/waiting_line.py`)."""

import asyncio
from types import SimpleNamespace

import pytest

from executors.ray_gpu import waiting_line
from executors.ray_gpu.waiting_line import WaitingLine, see, shape_of
from executors.ray_gpu.world import NodeInfo
from tests.ray_in_memory import World

ONE_CPU = {"num_cpus": 1}
FULL = "it waits for room: it asks for CPU 1; the node with the most free has CPU 0"


def node(free):
    return {"n": NodeInfo("n", "10.0.0.1", {"CPU": 2.0}, {"CPU": free})}


def found(monkeypatch, queued, *names, free=0.0, options=ONE_CPU):
    """Why each of these, asked for in this order, finds no room while so many queue."""
    monkeypatch.setattr(waiting_line, "see", lambda: (node(free), {shape_of({"CPU": 1.0}): queued}))

    async def scenario():
        line = WaitingLine(World())
        for name in names:
            line.enter(name, options)
        return [await line.obstacle(name, options) for name in names]

    return asyncio.run(scenario())


def test_one_that_has_taken_the_last_room_itself_is_not_without(monkeypatch):
    """Its environment is installed: Ray counts what it asked for as used, and says of it nothing else."""
    assert found(monkeypatch, 0, "a") == [""]


def test_of_those_that_ask_for_the_same_the_newest_queue(monkeypatch):
    assert found(monkeypatch, 2, "a", "b", "c") == ["", FULL, FULL]
    assert found(monkeypatch, 3, "a", "b") == [FULL, FULL], "others queue as well"


def test_one_that_queues_while_a_node_has_room_is_about_to_get_it(monkeypatch):
    assert found(monkeypatch, 1, "a", free=1.0) == [""]


def test_who_has_its_process_or_is_not_wanted_any_more_stands_in_nobodys_way(monkeypatch):
    monkeypatch.setattr(waiting_line, "see", lambda: (node(0.0), {shape_of({"CPU": 1.0}): 1}))

    async def scenario():
        line = WaitingLine(World())
        for name in ("a", "b"):
            line.enter(name, ONE_CPU)
        line.leave("b")
        line.leave("b")
        assert await line.obstacle("a", ONE_CPU) == FULL
        line.leave("a")
        assert (line._shapes, line._line) == ({}, {})

    asyncio.run(scenario())


def test_all_who_wait_at_one_time_look_once_and_a_look_that_fails_is_not_kept(monkeypatch):
    looks = []

    def look():
        looks.append(len(looks))
        if looks == [0]:
            raise OSError("away")
        return node(0.0), {shape_of({"CPU": 1.0}): 9}

    monkeypatch.setattr(waiting_line, "see", look)

    async def scenario():
        line = WaitingLine(World())
        names = [str(number) for number in range(20)]
        for name in names:
            line.enter(name, ONE_CPU)
        with pytest.raises(OSError, match="away"):
            await line.obstacle("0", ONE_CPU)
        said = await asyncio.gather(*(line.obstacle(name, ONE_CPU) for name in names))
        assert said == [""] * 11 + [FULL] * 9
        assert looks == [0, 1]

    asyncio.run(scenario())


def test_what_ray_counts_is_compared_in_its_own_parts(monkeypatch):
    request = SimpleNamespace(resources_bundle={"GPU": 0.30000000000000004, "CPU": 1.0})
    state = SimpleNamespace(pending_resource_requests=[SimpleNamespace(request=request, count=2)] * 2)
    monkeypatch.setattr(waiting_line, "get_cluster_resource_state", lambda gcs: state)
    monkeypatch.setattr(waiting_line, "live_nodes", dict)
    monkeypatch.setattr(waiting_line.ray._private.worker, "global_worker", SimpleNamespace(gcs_client=None))
    assert see() == ({}, {shape_of({"CPU": 1.0, "GPU": 0.3}): 4})
