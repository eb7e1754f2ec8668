"""Who waits for Ray to have room, and who has it while its environment is installed (`executors/ray_gpu/waiting_line.py`)."""

import asyncio
from types import SimpleNamespace

import pytest
from ray.autoscaler.v2 import sdk
from ray.core.generated.autoscaler_pb2 import ResourceRequest
from ray.core.generated.common_pb2 import (
    LABEL_OPERATOR_IN,
    LABEL_OPERATOR_NOT_IN,
    LabelSelector,
    LabelSelectorConstraint,
)

from executors.ray_gpu import process as processes
from executors.ray_gpu import waiting_line
from executors.ray_gpu.process import Process
from executors.ray_gpu.room import NODE_ID, OWN_GROUP
from executors.ray_gpu.waiting_line import WaitingLine, labels_of, see, shape_of
from executors.ray_gpu.world import NodeInfo
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica
from tests.ray_in_memory import World, until

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
    request = ResourceRequest(resources_bundle={"GPU": 0.30000000000000004, "CPU": 1.0})
    assert seen(monkeypatch, [request] * 2) == {shape_of({"CPU": 1.0, "GPU": 0.3}): 4}


def seen(monkeypatch, requests):
    """How many of each shape wait, where Ray says that two of each of these do."""
    state = SimpleNamespace(pending_resource_requests=[SimpleNamespace(request=each, count=2) for each in requests])
    monkeypatch.setattr(sdk, "get_cluster_resource_state", lambda gcs: state)
    monkeypatch.setattr(waiting_line, "live_nodes", dict)
    monkeypatch.setattr(waiting_line.ray._private.worker, "global_worker", SimpleNamespace(gcs_client=None))
    nodes, queued = see()
    assert nodes == {}
    return queued


def selector(name, operator, *values):
    return LabelSelector(label_constraints=[LabelSelectorConstraint(label_key=name, operator=operator, label_values=values)])


def test_what_ray_says_of_labels_is_what_the_options_of_actors_say(monkeypatch):
    """In all four ways of saying it."""
    for text, proto in (
        ("a", selector("zone", LABEL_OPERATOR_IN, "a")),
        ("!a", selector("zone", LABEL_OPERATOR_NOT_IN, "a")),
        ("in(b,a)", selector("zone", LABEL_OPERATOR_IN, "a", "b")),
        ("!in(a,b)", selector("zone", LABEL_OPERATOR_NOT_IN, "b", "a")),
    ):
        request = ResourceRequest(resources_bundle={"CPU": 1.0}, label_selectors=[proto])
        labels = labels_of({"label_selector": {"zone": text}})
        assert seen(monkeypatch, [request]) == {shape_of({"CPU": 1.0}, labels): 2}, text
    assert list(labels_of({})) == []


IN_A, IN_B = ({**ONE_CPU, "label_selector": {"zone": each}} for each in "ab")


def test_who_has_the_last_room_of_one_zone_is_not_taken_for_who_queues_for_another(monkeypatch):
    """What is asked for is the same but for the labels."""
    full = {each: NodeInfo(each, "10.0.0.1", {"CPU": 2.0}, {"CPU": 0.0}, {"zone": each}) for each in "ab"}
    monkeypatch.setattr(waiting_line, "see", lambda: (full, {shape_of({"CPU": 1.0}, labels_of(IN_A)): 1}))

    async def scenario():
        line = WaitingLine(World())
        line.enter("first", IN_A)
        line.enter("second", IN_B)
        assert [await line.obstacle("first", IN_A), await line.obstacle("second", IN_B)] == [FULL, ""]

    asyncio.run(scenario())


OWN = {"num_cpus": 0, OWN_GROUP: {"bundles": [{"CPU": 1.0}], "strategy": "PACK", "labels": []}}


@pytest.mark.parametrize("made", [False, True])
def test_a_placement_group_of_ones_own_finds_no_room_on_a_full_node_until_it_is_made(monkeypatch, made):
    """Ray counts groups that queue apart from actors that do."""
    assert found(monkeypatch, 0, "a", options=OWN) == [FULL]
    monkeypatch.setattr(processes, "locate", lambda actor: None)
    monkeypatch.setattr(processes.own_groups, "is_made", lambda name: made)

    async def scenario():
        told = []
        process = process_of(World(), told)
        process._create = asked_of_ray([])
        process.create(START, OWN)
        process._world.own_groups[process._group_name] = "0a"
        process._actor.set_result(SimpleNamespace())
        process.look_for_room(OWN)
        await until(lambda: process.room.no_room is not None)
        assert [each.no_room for each in told] == ([] if made else [True])

    asyncio.run(scenario())


START = StartReplica("m#1.0", 0, "a", None, (), 1)


def process_of(world, told):
    listener = SimpleNamespace(tell=told.append, has_ended=lambda process: None)
    return Process(world, SimpleNamespace(), "m#1.0", lambda: DeploymentSpec(name="m", target_replicas=1), listener)


def asked_of_ray(asked):
    async def create(start, actor_options):
        asked.append(actor_options)

    return create


def test_who_takes_the_place_of_one_without_room_says_that_there_is_room_by_now(monkeypatch):
    """It was told otherwise, of other cordons, so that it is created anew: the ranks know of one replica."""
    monkeypatch.setattr(waiting_line, "see", lambda: (node(2.0), {}))

    async def scenario():
        world, told = World(), []
        world.cordoned = frozenset("n")
        first = process_of(world, told)
        first.create(START, ONE_CPU | {"label_selector": {NODE_ID: "n"}})
        await until(lambda: told)
        world.cordoned = frozenset()
        second = process_of(world, told)
        first.withdraw()
        second._create = asked_of_ray([])
        second.create(START, ONE_CPU, after=first)
        second.look_for_room(ONE_CPU)
        await until(lambda: len(told) == 2)
        assert [each.no_room for each in told] == [True, False]

    asyncio.run(scenario())


def test_who_passes_over_cordoned_nodes_stands_in_line_with_the_labels_that_ray_is_told(monkeypatch):
    async def scenario():
        world, asked = World(), []
        world.cordoned = frozenset("n")
        process = process_of(world, [])
        process._make_actor = lambda start, options: asked.append(options) or RuntimeError("enough")
        process.create(START, ONE_CPU)
        await until(lambda: asked)
        ((_, labels),) = [world.line._shapes[process]]
        assert (labels, asked[0]["label_selector"]) == (((NODE_ID, True, ("n",)),), {NODE_ID: "!in(n)"})

    asyncio.run(scenario())
