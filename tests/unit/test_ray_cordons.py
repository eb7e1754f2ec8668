"""Cordons and drains on Ray, without a cluster: who says so, what is stored, who is told again, where nothing is placed."""

import asyncio
import time
from types import SimpleNamespace

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.node_reports import node_meant
from executors.ray_gpu import cluster as clusters
from executors.ray_gpu import controller as controllers
from executors.ray_gpu import cordons, waiting_line
from executors.ray_gpu import ray_deployment as deployments
from executors.ray_gpu.checkpoint import Found
from executors.ray_gpu.control import of_nodes
from executors.ray_gpu.errors import InvalidCallError, InvalidDeploymentError, UnknownNameError
from executors.ray_gpu.executor import RayExecutor
from executors.ray_gpu.process import Process
from executors.ray_gpu.room import NODE_ID, elsewhere, obstacle
from executors.ray_gpu.world import NodeInfo
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica
from rankcore.errors import UnknownDeploymentError
from rankcore.events import (
    NodeCordoned,
    NodeDrainRequested,
    ReplaceRequested,
    ReplicaDied,
    ReplicaPending,
    ReplicaStartFailed,
    ReplicaStopped,
)
from rankcore.values import age_key
from tests.ray_in_memory import World, a_controller, answer_at_once, of, package, status_of, until, without_actors


def node(node_id, address="10.0.0.1", free=1.0):
    return NodeInfo(node_id, address, {"CPU": 1.0}, {"CPU": free})


@pytest.fixture
def cluster(monkeypatch):
    """The nodes that are alive, and those that Ray drains; replicas do at once what they are told, on node "n"."""
    without_actors(monkeypatch)
    answer_at_once(monkeypatch)
    found = SimpleNamespace(alive={"n": node("n"), "other": node("other", "10.0.0.2")}, draining={})
    monkeypatch.setattr(cordons, "PERIOD_S", 0.001)
    monkeypatch.setattr(cordons, "live_nodes", lambda: dict(found.alive))
    for module in (controllers, of_nodes):
        monkeypatch.setattr(module, "live_nodes", lambda: dict(found.alive))
    monkeypatch.setattr(cordons, "draining_nodes", lambda: dict(found.draining))
    return found


async def two_replicas(stay=True):
    """A controller with two replicas on node "n".

    Args:
        stay: Whether nothing that is wanted of them happens any more: there is room on that node alone.
    """
    controller = await a_controller()
    await controller.deploy((package(target_replicas=2),), False)
    await until(lambda: status_of(controller) == "HEALTHY")
    if stay:
        of(controller).executor.execute = lambda command: None
    return controller


def known(controller, node_id="n"):
    return of(controller).entry.ranks.nodes[node_id]


def test_a_cordon_is_stored_and_told_and_nobody_there_is_touched(cluster):
    async def scenario():
        controller = await two_replicas()
        answer = await controller.cordon("n")
        assert (answer.state, [each.what for each in answer.replicas]) == ("cordoned", ["stays", "stays"])
        assert known(controller).cordoned
        assert controller._world.cordoned == {"n"}
        assert [type(each) for each in controller._world.checkpoint.cordons()] == [NodeCordoned]
        (shown,) = (await controller.status()).cordons
        assert (shown.node_id, shown.address, len(shown.replicas)) == ("n", "10.0.0.1", 2)
        assert (await controller.uncordon("n")).state == "open"
        assert not known(controller).cordoned
        assert (controller._world.cordoned, controller._world.checkpoint.cordons()) == (frozenset(), [])

    asyncio.run(scenario())


def test_a_drain_says_who_moves_by_when_and_a_later_cordon_takes_nothing_back(cluster):
    async def scenario():
        controller = await two_replicas()
        answer = await controller.drain("n", 120.0, "new driver")
        assert (answer.state, answer.reason, 119.0 < answer.left_s <= 120.0) == ("draining", "new driver", True)
        moves = "moves, once its successor has a place elsewhere, or at its deadline"
        assert [(each.rank, each.what) for each in answer.replicas] == [(0, moves), (1, moves)]
        assert (await controller.cordon("n")).state == "draining"
        assert known(controller).drain.reason == "new driver"
        answer = await controller.drain("n", None, "drain")
        assert answer.left_s is None, "a later one replaces the deadline"
        assert {each.what for each in answer.replicas} == {"moves, once its successor has a place elsewhere"}

    asyncio.run(scenario())


def test_the_status_says_of_a_drain_where_the_head_is_and_what_has_failed_beside_it(cluster):
    cluster.alive["n"] = attrs.evolve(node("n"), total={"CPU": 1.0, cordons.HEAD: 1.0})

    async def scenario():
        controller = await two_replicas()
        assert (await controller.drain("n", None, "drain")).is_head
        replica_id = max(of(controller).entry.ranks.replicas, key=age_key)
        failed = ReplicaStartFailed(replica_id=replica_id, reason="no module", at=controller._world.now())
        controller._cluster.request(failed)
        status = await controller.status()
        assert status.cordons[0].is_head
        (found,) = status.deployments.values()
        assert "to be replaced: rank 0 from n (drain)" in found.message
        assert f"{replica_id}: start failed: no module; failure 1 in its slot" in found.message

    asyncio.run(scenario())


def test_proxies_are_told_at_once_which_nodes_are_drained(cluster):
    async def scenario():
        controller = await two_replicas()
        seen = await controller.ingress(None)
        assert seen.drained == ()
        for asking, drained in (
            (lambda: controller.drain("n", None, ""), ("n",)),
            (lambda: controller.uncordon("n"), ()),
            (lambda: controller.cordon("n"), None),
            (lambda: controller.drain("n", None, ""), ("n",)),
        ):
            waiting = asyncio.create_task(controller.ingress(seen))
            await asyncio.sleep(0)
            assert not waiting.done()
            await asking()
            if drained is not None:
                seen = await waiting
                assert seen.drained == drained
            else:
                waiting.cancel()
        waiting = asyncio.create_task(controller.ingress(attrs.evolve(seen, drained=None)))
        await asyncio.sleep(0)
        assert not waiting.done(), "one of before is not told again and again"
        waiting.cancel()

    asyncio.run(scenario())


def test_the_next_controller_passes_over_cordoned_nodes_before_it_places_anything_and_tells_all_again(cluster):
    async def scenario():
        controller = await two_replicas()
        store = controller._world.checkpoint
        await controller.cordon("other")
        await controller.drain("n", 600.0, "drain")
        (deadline_at,) = [each.deadline_at for each in store.cordons() if isinstance(each, NodeDrainRequested)]
        following = controllers.Controller.__new__(controllers.Controller)
        following._world = World(*store.kept.values())
        following._world.epoch, following._world.checkpoint = 2, store
        seen = []
        started = cordons.Cordons(following._world, store.kept_maintenance(), lambda: None, seen.append, lambda: None)
        started.recover()
        assert (following._world.cordoned, seen) == ({"n", "other"}, [])
        started.begin()
        assert {each.node_id: type(each) for each in seen} == {"n": NodeDrainRequested, "other": NodeCordoned}
        assert {each.deadline_at for each in seen if isinstance(each, NodeDrainRequested)} == {deadline_at}
        assert min(each.at for each in seen) > max(each.at for each in store.cordons()), "told as of now"

    asyncio.run(scenario())


def test_what_ray_drains_is_drained_by_rays_deadline(cluster):
    async def scenario():
        controller = await two_replicas()
        cluster.draining["n"] = int((time.time() + 50.0) * 1000)
        await until(lambda: known(controller).drain is not None)
        (shown,) = (await controller.status()).cordons
        assert (shown.reason, 45.0 < shown.left_s <= 50.0) == (cordons.DRAINED_BY_RAY, True)
        assert controller._world.checkpoint.cordons() == [], "Ray knows it"
        with pytest.raises(InvalidCallError, match="node n cannot be uncordoned: Ray itself drains it"):
            await controller.uncordon("n")
        assert (await controller.drain("n", 600.0, "later")).left_s <= 50.0, "it is gone by then"
        assert (await controller.drain("n", 10.0, "sooner")).left_s <= 10.0
        cluster.draining["n"] = int((time.time() + 5.0) * 1000)
        await until(lambda: (now := known(controller).drain) and now.deadline_at - controller._world.now() <= 5.0)
        del cluster.alive["n"], cluster.draining["n"]
        await until(lambda: not controller._cluster.cordons.nodes)
        assert (controller._world.checkpoint.cordons(), controller._world.cordoned) == ([], frozenset())

    asyncio.run(scenario())


def test_ray_has_no_deadline_where_it_says_0(cluster):
    async def scenario():
        controller = await two_replicas()
        cluster.draining["n"] = 0
        await until(lambda: known(controller).drain is not None)
        assert known(controller).drain.deadline_at is None

    asyncio.run(scenario())


def test_ray_is_asked_again_after_it_did_not_answer(cluster, monkeypatch):
    answers = iter([ConnectionError("not now"), ConnectionError("not now")])

    def look():
        for each in answers:
            raise each
        return {"n": 0}

    monkeypatch.setattr(cordons, "draining_nodes", look)

    async def scenario():
        controller = await two_replicas()
        await until(lambda: controller._world.cordoned == {"n"})

    asyncio.run(scenario())


def test_a_node_of_which_nothing_is_known_is_named_with_those_that_there_are(cluster):
    async def scenario():
        controller = await two_replicas()
        for ask in (controller.cordon("m"), controller.uncordon("m"), controller.drain("m", None, "drain")):
            with pytest.raises(UnknownNameError) as caught:
                await ask
            assert str(caught.value) == "there is no node 'm'; there is: n (10.0.0.1), other (10.0.0.2)"
        assert controller._world.checkpoint.cordons() == []

    asyncio.run(scenario())


def test_a_node_is_called_by_its_id_the_beginning_of_it_or_its_address():
    nodes = {"ab1": "10.0.0.1", "ab2": "10.0.0.2", "ab": "10.0.0.3", "c": "10.0.0.1"}
    for name, meant in (("ab", "ab"), ("ab2", "ab2"), ("10.0.0.2", "ab2"), ("c", "c")):
        assert node_meant(name, nodes) == meant
    for name, problem in (
        ("a", "node 'a' may be any of: ab, ab1, ab2"),
        ("10.0.0.1", "node '10.0.0.1' may be any of: ab1, c"),
        ("", "there is no node ''; there is: ab (10.0.0.3), ab1 (10.0.0.1), ab2 (10.0.0.2), c (10.0.0.1)"),
    ):
        with pytest.raises(UnknownNameError) as caught:
            node_meant(name, nodes)
        assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("of_user", "cordoned", "asked"),
    [
        (None, "", {}),
        ({"zone": "a"}, "", {"zone": "a"}),
        ({"zone": "a"}, "x", {"zone": "a", NODE_ID: "!in(x)"}),
        (None, "xy", {NODE_ID: "!in(x,y)"}),
        ({NODE_ID: "!z"}, "xy", {NODE_ID: "!in(x,y,z)"}),
        ({NODE_ID: "!in(z, x)"}, "xy", {NODE_ID: "!in(x,y,z)"}),
        ({NODE_ID: "in(x, z)"}, "xy", {NODE_ID: "in(z)"}),
        ({NODE_ID: "z"}, "xy", {NODE_ID: "in(z)"}),
        ({NODE_ID: "x"}, "xy", None),
        ({NODE_ID: "in(x,y)", "zone": "a"}, "xy", None),
    ],
)
def test_ray_is_told_to_pass_over_what_is_cordoned(of_user, cordoned, asked):
    assert elsewhere(of_user, frozenset(cordoned)) == asked


def test_that_room_is_on_a_cordoned_node_alone_is_said():
    nodes = {"a": node("a", free=0.0), "b": node("b")}
    assert obstacle(nodes, {"CPU": 1.0}) == ""
    assert obstacle(nodes, {"CPU": 1.0}, frozenset("b")).endswith("the node with the most free has CPU 0, and 1 is cordoned")
    assert obstacle(nodes, {"CPU": 1.0}, frozenset("ab")) == "it waits for room: every node is cordoned"
    assert obstacle(nodes, {"CPU": 9.0}, frozenset("ab")).startswith("no node can ever hold it")


def test_what_labels_leave_no_node_for_is_said():
    nodes = {"a": attrs.evolve(node("a"), labels={"zone": "east"}), "b": node("b")}
    assert obstacle(nodes, {"CPU": 1.0}, frozenset("b"), {"zone": "in(east,west)"}) == ""
    assert obstacle(nodes, {"CPU": 1.0}, frozenset("b"), {"zone": "!west"}) == ""
    cordoned = "it waits for room: no other node than those that are cordoned carries the label "
    assert obstacle(nodes, {"CPU": 1.0}, frozenset("a"), {"zone": "east"}) == f"{cordoned}zone=east"
    assert obstacle(nodes, {"CPU": 1.0}, frozenset("b"), {NODE_ID: "b"}) == f"{cordoned}{NODE_ID}=b"
    assert obstacle(nodes, {"CPU": 1.0}, frozenset("b"), {"zone": "!east"}) == f"{cordoned}zone=!east"
    said = "it waits for a node: none carries the label zone=north"
    assert obstacle(nodes, {"CPU": 1.0}, frozenset(), {"zone": "north"}) == said


def pinned(world, told, ended):
    """A process that may be on node "x" alone."""
    listener = SimpleNamespace(tell=told.append, has_ended=ended.append)
    return Process(world, SimpleNamespace(), "m#1.0", lambda: DeploymentSpec(name="m", target_replicas=1), listener)


ON_X = {"label_selector": {NODE_ID: "x"}}


@pytest.mark.parametrize("standby", [False, True])
def test_who_may_be_nowhere_waits_and_says_so_and_ray_is_not_asked(monkeypatch, standby):
    """Ray ends at once whoever may be on no node: the core would start one after the other."""
    monkeypatch.setattr(waiting_line, "see", lambda: ({"x": node("x"), "y": node("y")}, {}))
    start = StartReplica("m#1.0", 0, "a", None, (), 1)

    async def scenario():
        world, told, ended = World(), [], []
        world.cordoned = frozenset("x")
        process = pinned(world, told, ended)
        process.standby = standby
        process._make_actor = lambda *_: pytest.fail("Ray is asked")
        process.create(start, ON_X)
        if standby:
            await process.gone.wait()
            assert (told, ended) == ([], [process])
            return
        await until(lambda: told)
        (pending,) = told
        assert pending.no_room
        assert pending.reason.endswith(f"no other node than those that are cordoned carries the label {NODE_ID}=x")
        world.cordoned = frozenset()
        assert process.is_told_otherwise
        process.stop(1, 5.0)
        await process.gone.wait()
        assert [type(each) for each in told] == [ReplicaPending, ReplicaStopped]

    asyncio.run(scenario())


def test_who_takes_the_name_of_one_that_may_be_nowhere_waits_for_whoever_had_it_before(monkeypatch):
    monkeypatch.setattr(waiting_line, "see", lambda: ({}, {}))
    start = StartReplica("m#1.0", 0, "a", None, (), 1)

    async def scenario():
        world, told, ended = World(), [], []
        first, second = pinned(world, told, ended), pinned(world, told, ended)
        world.cordoned = frozenset("x")
        second.create(start, ON_X, after=first)
        second.withdraw()
        await asyncio.sleep(0)
        assert not second.gone.is_set()
        first.gone.set()
        await second.gone.wait()
        assert (told, ended) == ([], [second])

    asyncio.run(scenario())


def test_who_waits_is_created_anew_once_other_nodes_are_cordoned(monkeypatch):
    """Ray has the labels of when it was asked: it would wait for ever for what was uncordoned since."""
    without_actors(monkeypatch)
    made = []

    async def scenario():
        world = World()
        processes = RayExecutor(world, lambda: DeploymentSpec(name="m", target_replicas=1), lambda version: {}, 0, lambda: None)
        create = processes._process

        def in_memory(replica_id):
            process = create(replica_id)
            process.kill = lambda: made.append("killed")
            process.look_for_room = lambda options: made.append("looks")
            process.create = lambda start, options, after: (
                made.append((start.replica_id, after)) or setattr(process, "passes_over", world.cordoned)
            )
            return process

        monkeypatch.setattr(processes, "_process", in_memory)
        start = StartReplica("m#1.0", 0, "a", None, (), 1)
        processes.execute(start)
        first = processes.processes["m#1.0"]
        processes.execute(start)
        world.cordoned = frozenset("x")
        processes.execute(start)
        assert made == [("m#1.0", None), "looks", "killed", ("m#1.0", first)]
        assert (first.standby, processes.processes["m#1.0"] is first) == (True, False), "nobody hears of the end of the first"

    asyncio.run(scenario())


def test_replicas_that_are_named_are_replaced_or_none_of_them(cluster):
    async def scenario():
        controller = await two_replicas(stay=False)
        replica_ids = sorted(of(controller).entry.ranks.replicas)
        with pytest.raises(UnknownNameError, match=r"default/m#9\.9"):
            await controller.replace_replicas((replica_ids[0], "default/m#9.9"), None)
        assert sorted(of(controller).entry.ranks.replicas) == replica_ids
        await controller.deploy((package("m", "other", target_replicas=1),), False)
        with pytest.raises(UnknownNameError, match=r"replica 'm#1\.0' may be any of: default/m#1\.0, other/m#1\.0"):
            await controller.replace_replicas(("m#1.0",), None)
        with pytest.raises(UnknownNameError, match=r"there is no replica 'm#9\.9'"):
            await controller.replace_replicas(("m#9.9",), None)
        await controller.delete(("other/m",))
        await controller.replace_replicas(("m#1.0",), 60.0)
        await until(lambda: status_of(controller) == "HEALTHY" and replica_ids[0] not in of(controller).entry.ranks.replicas)
        now = of(controller).entry.ranks.replicas
        assert len(now) == 2
        assert sorted(each.rank.rank for each in now.values()) == [0, 1]

    asyncio.run(scenario())


def test_the_next_controller_tells_again_who_is_to_be_replaced_and_forgets_who_is_gone(cluster, monkeypatch):
    monkeypatch.setattr(deployments.RayExecutor, "take_over", lambda processes, replica_ids: None)

    async def scenario():
        controller = await two_replicas()
        store = controller._world.checkpoint
        await controller.replace_replicas(("default/m#1.0",), None)
        await controller.replace_replicas(("default/m#1.1",), 600.0)
        (_, later) = store.replacements()
        monkeypatch.setattr(clusters, "find_replicas", lambda namespace: {"default/m": ["default/m#1.1"]})
        following = await a_controller(epoch=2, store=store)
        asked = of(following).entry.ranks.tables.evictions.asked
        assert {each: (found.deadline_at, found.with_node) for each, found in asked.items()} == {
            "default/m#1.1": (later.deadline_at, False)
        }
        assert store.replacements() == [later]
        of(following).executor.tell(ReplicaDied(replica_id="default/m#1.1", reason="killed", at=following._world.now()))
        await until(lambda: "default/m#1.1" not in of(following).entry.ranks.replicas)
        (replica_id, *_) = of(following).entry.ranks.replicas
        await following.replace_replicas((replica_id,), None)
        assert [each.replica_ids for each in store.replacements()] == [(replica_id,)]

    asyncio.run(scenario())


def test_a_replacement_that_is_refused_is_not_stored(cluster):
    async def scenario():
        controller = await two_replicas()
        with pytest.raises(UnknownDeploymentError):
            await controller._cluster.replacements.ask(ReplaceRequested(replica_ids=("default/x#1.0",), at=1.0))
        assert controller._world.checkpoint.replacements() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["m#1.0", "default/m#1.0"])
def test_a_downscale_stops_who_is_named_by_the_bare_id_or_the_full_one(cluster, name):
    async def scenario():
        controller = await two_replicas(stay=False)
        await controller.change("m", {"target_replicas": 1}, (name,))
        await until(lambda: status_of(controller) == "HEALTHY")
        assert sorted(of(controller).entry.ranks.replicas) == ["default/m#1.1"]

    asyncio.run(scenario())


@pytest.mark.parametrize("deadline_s", [-1, float("nan"), float("inf"), True, "120s"])
def test_a_deadline_that_is_none_is_refused_before_anybody_is_asked(monkeypatch, deadline_s):
    from executors.ray_gpu import changing, connection

    monkeypatch.setattr(connection, "running", lambda namespace: None)
    for ask in (
        lambda: changing.drain("n", deadline_s=deadline_s),
        lambda: changing.replace_replicas(["m#1.0"], deadline_s=deadline_s),
    ):
        with pytest.raises(InvalidCallError, match="deadline_s must be a number of seconds from 0 to 1e\\+12, or None, got"):
            ask()
    with pytest.raises(InvalidCallError, match="reason must be a text, got 3"):
        changing.drain("n", reason=3)
    with pytest.raises(InvalidDeploymentError, match=r"takes a list of ids, got the string 'm#1\.0'"):
        changing.replace_replicas("m#1.0")


def test_who_is_to_be_replaced_of_what_is_left_alone_is_told_to_the_controller_that_can_read_it(cluster, monkeypatch):
    monkeypatch.setattr(deployments.RayExecutor, "take_over", lambda processes, replica_ids: None)

    async def scenario():
        controller = await two_replicas()
        store = controller._world.checkpoint
        await controller.replace_replicas(("default/m#1.0",), None)
        asked, good = store.replacements(), store.kept["default/m"]
        monkeypatch.setattr(clusters, "find_replicas", lambda namespace: {"default/m": ["default/m#1.0", "default/m#1.1"]})
        store.kept["default/m"] = Found("default/m", None, "its record cannot be read")
        following = await a_controller(epoch=2, store=store)
        assert following._cluster.left_alone
        await following.deploy((package("other", target_replicas=1),), False)
        await following.replace_replicas(tuple(of(following, "default/other").entry.ranks.replicas), None)
        assert store.replacements()[:1] == asked
        store.kept["default/m"] = good
        third = await a_controller(epoch=3, store=store)
        assert set(of(third).entry.ranks.tables.evictions.asked) == {"default/m#1.0"}

    asyncio.run(scenario())


def test_who_has_not_reported_to_the_next_controller_is_not_said_to_be_starting(cluster, monkeypatch):
    async def scenario():
        controller = await two_replicas()
        store = controller._world.checkpoint
        monkeypatch.setattr(clusters, "find_replicas", lambda namespace: {"default/m": ["default/m#1.0"]})

        def found(executor, replica_ids):
            executor.processes.update({each: SimpleNamespace(endpoint=None) for each in replica_ids})

        monkeypatch.setattr(deployments.RayExecutor, "take_over", found)
        following = await a_controller(epoch=2, store=store)
        (shown,) = (await following.status()).deployments.values()
        assert [(each.state, each.message) for each in shown.replicas] == [("RECOVERING", "it has not reported yet")]
        assert "it has not reported yet" in shown.message

    asyncio.run(scenario())
