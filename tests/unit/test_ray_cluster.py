"""The controller and its loop, without a cluster: what happens at the same time, what is stored when, and whoever waits."""

import asyncio
import errno
import json
import logging
from importlib import import_module

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from msgspec.structs import replace

import rankcore
from executors.engine import journal as journals
from executors.engine.clusters import CLUSTER
from executors.engine.journal import lenient_journal, write_whole_line
from executors.engine.replay import replay
from executors.ray_gpu import controller as controllers
from executors.ray_gpu import ray_deployment as deployments
from executors.ray_gpu import routing_table
from executors.ray_gpu.checkpoint import Found
from executors.ray_gpu.control import callers, doors
from executors.ray_gpu.controller import Controller
from executors.ray_gpu.errors import InvalidDeploymentError, NameInUseError, UnavailableError, UnknownNameError
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.messages import Endpoint
from executors.ray_gpu.packing import Package
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.replica import Replica
from executors.ray_gpu.user_code import Code
from rankcore import DeploymentSpec, DeploymentStatus
from rankcore.cluster import outbox
from rankcore.cluster.records import Record
from rankcore.codec import from_json, to_json
from rankcore.commands import StartReplica
from rankcore.events import ReplicaStopped
from rankcore.routing import RoutingSpec
from rankcore.upgrade import upgraded
from tests.ray_in_memory import M, a_controller, answer_at_once, of, package, status_of, until, without_actors


@pytest.fixture(autouse=True)
def found_replicas(monkeypatch):
    return without_actors(monkeypatch)


def test_deleting_twice_harms_no_later_deployment_of_that_name():
    async def scenario():
        controller = await a_controller()
        store = controller._world.checkpoint
        await controller.deploy((package(),), False)
        await asyncio.gather(*(controller.delete((M,)) for _ in range(5)))
        assert (store.live, store.codes) == ([], {})
        await controller.deploy((package(),), False)
        await until(lambda: not controller._cluster._tasks)
        assert not store[M].deleting
        assert (M, "a") in store.codes

    asyncio.run(scenario())


def test_a_change_that_meets_a_deletion_is_refused():
    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(),), False)
        controller._world.checkpoint.gate.clear()
        deletion = asyncio.create_task(controller.delete((M,)))
        await asyncio.sleep(0)
        change = asyncio.create_task(controller.change("m", {"max_unavailable": 2}, ()))
        await asyncio.sleep(0)
        controller._world.checkpoint.gate.set()
        with pytest.raises(InvalidDeploymentError, match="m is being deleted"):
            await change
        await deletion

    asyncio.run(scenario())


@pytest.fixture
def answering(monkeypatch):
    return answer_at_once(monkeypatch)


def test_a_rollback_is_stored_before_anything_is_done_about_it(answering):
    """A controller that dies in between, at any command, finds the spec in the store that the commands were for."""

    async def scenario():
        controller = await a_controller()
        store = controller._world.checkpoint
        fields = {"target_replicas": 2, "max_start_failures": 1, "rollback": True, "start_backoff_s": 0.001}
        await controller.deploy((package(**fields),), False)
        await until(lambda: status_of(controller) is DeploymentStatus.HEALTHY and store[M].previous is not None)
        store.holds = lambda record: record.spec.version == "a"
        store.gate.clear()
        await controller.deploy((package(version="b", **fields),), False)
        await until(lambda: of(controller).entry.ranks.spec.version == "a")  # rolled back, and that is not stored
        assert store[M].spec.version == "b"
        store.gate.set()
        await until(lambda: controller._cluster.is_saved(M) and status_of(controller) is DeploymentStatus.HEALTHY)
        assert (store[M].spec.version, store[M].applied.ranks.version) == ("a", "b")
        return [(each.version, record.spec.version) for each, record in answering if isinstance(each, StartReplica)]

    started = asyncio.run(scenario())
    assert ("b", "b") in started
    assert started[-1] == ("a", "a")
    assert all(version == stored for version, stored in started)


def test_a_build_that_is_given_up_is_stored_before_anything_is_done_about_it(answering):
    async def scenario():
        controller = await a_controller()
        store = controller._world.checkpoint
        fields = {"target_replicas": 1, "max_start_failures": 1, "start_backoff_s": 0.001}
        await controller.deploy((package(**fields),), False)
        await until(lambda: status_of(controller) is DeploymentStatus.HEALTHY and controller._cluster.is_saved(M))
        store.holds = lambda record: record.failed
        store.gate.clear()
        await controller.deploy((package(version="b", **fields),), False)
        await until(lambda: status_of(controller) is DeploymentStatus.DEPLOY_FAILED)  # and that is not stored
        carried_out = len(answering)
        await controller.stop_replicas(tuple(of(controller).entry.ranks.replicas))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(answering), store[M].failed) == (carried_out, False)
        store.gate.set()
        await until(lambda: controller._cluster.is_saved(M))
        assert store[M].failed
        assert "b does not start" in store[M].trouble
        await controller.change("m", {"max_unavailable": 2}, ())
        assert store[M].failed
        await controller.change("m", {"user_config": {"other": 1}}, ())
        assert not store[M].failed

    asyncio.run(scenario())


def test_the_next_controller_knows_why_a_build_has_failed(answering):
    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(version="b", target_replicas=1, max_start_failures=1, start_backoff_s=0.001),), False)
        await until(lambda: status_of(controller) is DeploymentStatus.DEPLOY_FAILED and controller._cluster.is_saved(M))
        said = of(controller).routes()[1].problem
        stored = from_json(to_json(controller._world.checkpoint[M]), Record)
        following = await a_controller(Found(M, stored), epoch=2)
        of(following).executor.routes = {}
        assert of(following).routes()[1].problem == said
        assert "default/m#1.0: start failed: b does not start" in said

    asyncio.run(scenario())


def test_a_record_that_cannot_be_stored_is_shown_and_holds_back_its_own_deployment_only(answering, monkeypatch):
    monkeypatch.setattr(outbox, "REPEAT_S", 0.01)

    async def scenario():
        controller = await a_controller()
        store, cluster = controller._world.checkpoint, controller._cluster
        healthy = lambda name: status_of(controller, name) is DeploymentStatus.HEALTHY and cluster.is_saved(name)  # noqa: E731
        await controller.deploy((package(target_replicas=1), package("other", target_replicas=1)), False)
        await until(lambda: healthy(M) and healthy("default/other"))
        put = store.put_record

        def refuse(record):
            if record.deployment == M:
                raise ConnectionError("the cluster does not answer")
            put(record)

        store.put_record = refuse
        change = asyncio.create_task(controller.change("m", {"target_replicas": 2}, ()))
        await until(lambda: M in cluster.backend.unsaved)
        shown = controller._info(of(controller), {}).message
        started = [command for command, _ in answering if isinstance(command, StartReplica)]
        await controller.stop_replicas(("default/other#1.0",))
        await until(
            lambda: healthy("default/other") and "default/other#1.0" not in of(controller, "default/other").entry.ranks.replicas
        )
        assert not change.done()
        store.put_record = put
        await asyncio.wait_for(change, 120)
        await until(lambda: healthy(M))
        assert "what was decided about default/m cannot be stored" in shown
        assert "the cluster does not answer" in shown
        assert len(started) == 2
        assert cluster.backend.unsaved == {}
        assert controller._info(of(controller), {}).message == ""

    asyncio.run(scenario())


def test_a_deletion_that_could_not_be_stored_is_stored_later(monkeypatch):
    monkeypatch.setattr(outbox, "REPEAT_S", 0.01)

    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(),), False)
        controller._world.checkpoint.failures = 3
        await asyncio.wait_for(controller.delete((M,)), 120)
        assert (await controller.deployments(), controller._world.checkpoint.live) == ({}, [])

    asyncio.run(scenario())


def test_an_application_of_which_one_name_is_in_use_is_not_deployed_at_all():
    async def scenario():
        controller = await a_controller()
        await controller.deploy((package("taken"),), False)
        other = Package(
            Code("default/taken", "b", "models.Other", "default", b"", (), {}),
            package("taken", version="b").spec,
            0,
            RoutingSpec(name="default/taken"),
        )
        with pytest.raises(NameInUseError, match=r"default/taken is the name of a deployment of models\.taken"):
            await controller.deploy((package("new"), other), False)
        assert sorted(await controller.deployments()) == ["default/taken"]

    asyncio.run(scenario())


def test_an_application_replaces_the_one_that_has_its_name_and_no_other():
    async def scenario():
        controller = await a_controller()
        await controller.deploy((package("a"), package("b")), False)
        await controller.deploy((package("a", "other"),), False)
        await controller.deploy((package("b"), package("d")), False)
        await until(lambda: "default/a" not in controller._cluster.deployments)
        assert sorted(await controller.deployments()) == ["default/b", "default/d", "other/a"]
        await controller.deploy((package("b", "other"),), False)
        await until(lambda: "other/a" not in controller._cluster.deployments)
        assert sorted(await controller.deployments()) == ["default/b", "default/d", "other/b"]

    asyncio.run(scenario())


@pytest.mark.parametrize("replace", [False, True])
def test_a_deployment_of_another_application_is_never_touched(replace):
    """One class bound in two applications is two deployments."""

    async def scenario():
        controller = await a_controller()
        await controller.deploy((package("one", "first"),), False)
        before = controller._cluster.state.deployments["first/one"].outbox.record
        await controller.deploy((package("new", "second"), package("one", "second", version="b")), replace)
        assert sorted(await controller.deployments()) == ["first/one", "second/new", "second/one"]
        await controller.change("second/one", {"max_unavailable": 2}, ())
        assert controller._cluster.state.deployments["first/one"].outbox.record is before
        await controller.delete(await controller.find_all("second"))
        assert sorted(await controller.deployments()) == ["first/one"]
        assert controller._cluster.state.deployments["first/one"].outbox.record is before

    asyncio.run(scenario())


def test_a_bare_name_is_enough_where_one_application_has_it_and_else_all_are_named():
    async def scenario():
        controller = await a_controller()
        await controller.deploy((attrs.evolve(package("m", "a"), is_ingress=True), package("only", "a")), False)
        assert await controller.require("m") == await controller.require("a/m") == await controller.ingress_of("a") == "a/m"
        await controller.deploy((package("m", "b"),), False)
        assert (await controller.require("only"), await controller.require("m", "b")) == ("a/only", "b/m")
        assert (await controller.require("only", "b"), await controller.find_all("only")) == ("a/only", ("a/only",))
        assert await controller.find_all("a") == ("a/m", "a/only")
        for ask in (
            controller.require("m"),
            controller.find_all("m"),
            controller.change("m", {}, ()),
            controller.require("m", "c"),
        ):
            with pytest.raises(UnknownNameError, match="deployment 'm' may be any of: a/m, b/m"):
                await ask
        for unknown in ("M", "c/m", "a/", "/m", "a/m/m"):
            with pytest.raises(UnknownNameError, match=r"there is no deployment '.*'; there is: a/m, a/only, b/m"):
                await controller.require(unknown)
        with pytest.raises(UnknownNameError, match="there is no application 'm'; there is: a"):
            await controller.ingress_of("m")
        status = (await controller.status()).deployments
        assert ("m" in status, "only" in status, status.get("m"), status["only"].name) == (False, True, None, "a/only")
        with pytest.raises(KeyError, match="may be any of: a/m, b/m"):
            status["m"]
        found = (await controller.status()).applications
        assert {name: list(each.deployments) for name, each in found.items()} == {"a": ["m", "only"], "b": ["m"]}

    asyncio.run(scenario())


def before_ids_were_full(name, app_name):
    """What a controller of then has stored."""
    spec = {"name": name, "target_replicas": 0, "version": "a"}
    old = {"format": [4, 0], "type": "Record", "spec": spec, "class_name": f"models.{name}", "app_name": app_name}
    return Found(name, from_json(upgraded(json.dumps(old)), Record))


def test_what_was_deployed_before_ids_were_full_keeps_its_id_until_it_is_deleted():
    async def scenario():
        controller = await a_controller(
            before_ids_were_full("m", "default"), before_ids_were_full("app", "examples/app.py:app"), epoch=2
        )
        store = controller._world.checkpoint
        await until(lambda: controller._cluster.is_saved("examples.app.py:app/app"))
        record = store["app"]
        assert sorted(await controller.deployments()) == ["default/m", "examples.app.py:app/app"]
        assert (await controller.status()).deployments["m"].name == "default/m"
        await controller.deploy((package("m", "other"),), False)
        assert controller._of_handle("m") is of(controller), "handles of before"
        for name in ("m", "default/m"):
            _, routes = await controller.routes(name, (0, 0))
            assert routes.spec.name == name, "a router has one name"
        await controller.deploy((package("m", version="b"),), False)
        assert {name: store[name].spec.version for name in store.live} == {"m": "b", "app": "a", "other/m": "a"}
        assert ("m", "b") in store.codes
        assert store["app"] is record
        await controller.delete(await controller.find_all("default"))
        assert store.live == ["app", "other/m"]
        await controller.deploy((package("m"),), False)
        assert store.live == ["app", "default/m", "other/m"]

    asyncio.run(scenario())


def test_the_replicas_of_before_ids_were_full_are_asked_by_the_names_that_they_have(found_replicas, monkeypatch):
    found_replicas[0].update({"m": ["m#1.0"], "default/m": ["default/m#1.0"], "stray": ["stray#1.3"]})
    asked = []
    monkeypatch.setattr(deployments.RayExecutor, "take_over", lambda self, ids: asked.extend(ids))
    monkeypatch.setattr(deployments.RayExecutor, "execute", lambda self, command: asked.append(command))

    async def scenario():
        controller = await a_controller(before_ids_were_full("m", "default"), epoch=2)
        await until(lambda: len(asked) > 1 and len(found_replicas[1]) == 2)
        assert list(of(controller).entry.ranks.replicas) == ["default/m#1.0"]
        assert [each.replica_id for each in controller._info(of(controller), {}).replicas] == ["m#1.0"]
        event = ReplicaStopped(replica_id="m#1.0", at=controller._world.now())
        of(controller).executor.tell(event)
        await until(lambda: not of(controller).entry.ranks.replicas)

    asyncio.run(scenario())
    assert asked[0] == "m#1.0"
    assert {each.replica_id for each in asked[1:] if hasattr(each, "replica_id")} == {"m#1.0"}
    assert sorted(found_replicas[1]) == ["default/m#1.0", "stray#1.3"], "nobody's"


def test_an_old_name_that_looks_like_an_id_is_taken_from_nobody(found_replicas):
    """Names of before could have a '/', and then be the ids of others now."""
    found_replicas[0].update({"m": ["m#1.0"]})

    async def scenario():
        controller = await a_controller(
            before_ids_were_full("a/c", "x"), before_ids_were_full("b/m", "b"), before_ids_were_full("m", "b"), epoch=2
        )
        store = controller._world.checkpoint
        await until(lambda: all(map(controller._cluster.is_saved, ("x/a.c", "b/m"))))
        kept = dict(store.kept)
        assert sorted(await controller.deployments()) == ["b/m", "x/a.c"]
        with pytest.raises(NameInUseError, match=r"a/c is the id of x/a\.c, which is older: delete that first"):
            await controller.deploy((package("c", "a"),), False)
        with pytest.raises(NameInUseError, match="b/m is left alone: there is another b/m, which is older"):
            await controller.deploy((package("m", "b"),), False)
        assert (store.kept, found_replicas[1]) == (kept, [])

    asyncio.run(scenario())


def test_what_cannot_be_taken_over_is_left_alone_and_all_else_goes_on(found_replicas):
    """An exception there ended the controller, again and again, and nothing was looked after any more."""

    def stored(found, **fields):
        before = before_ids_were_full(found, found.partition("/")[0])
        return attrs.evolve(before, record=attrs.evolve(before.record, **fields))

    records = (
        stored("a/fine"),
        Found("a/key", None, "its record is one of a/another"),
        stored("a/odd"),
        stored("a/previous", previous=DeploymentSpec(name="a/other", target_replicas=1)),
        Found("a/text", None, "its record cannot be read: why"),
        stored("z/fine"),
    )
    found_replicas[0].update({"a/odd": ["a/odd#7.0"], "a/text": ["a/text#0.0"]})

    async def scenario():
        controller = await a_controller(*records, epoch=2)
        status = await controller.status()
        assert list(status.deployments) == ["a/fine", "z/fine"]
        whys = {
            "a/key": "one of a/another",
            "a/odd": "not of an epoch before 2",
            "a/previous": "recover.previous.name",
            "a/text": "why",
        }
        assert sorted(status.left_alone) == sorted(whys)
        for name, why in whys.items():
            assert why in status.left_alone[name]
            for asked in (name, name.partition("/")[2]):
                with pytest.raises(UnknownNameError, match=f"{name} is left alone: .*{why}.*; shutdown"):
                    await controller.require(asked)
            with pytest.raises(NameInUseError, match=f"{name} is left alone: "):
                await controller.deploy((package(name.partition("/")[2], "a"),), False)
        controller._cluster.left_alone["c/m"] = "why"
        with pytest.raises(UnknownNameError, match="c/m is left alone: why"):
            await controller.find_all("c")
        with pytest.raises(UnknownNameError, match="there is no deployment 'a/none'"):
            await controller.require("a/none")

    asyncio.run(scenario())
    assert found_replicas[1] == []


def test_what_is_gone_stays_gone_and_its_replicas_are_nobodys(found_replicas):
    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(),), False)
        await controller.delete((M,))
        return controller._world.checkpoint[M]

    gone = asyncio.run(scenario())
    assert gone.deleted
    found_replicas[0][M] = ["default/m#1.0"]

    async def later():
        controller = await a_controller(Found(M, gone), epoch=2)
        await until(lambda: found_replicas[1])
        assert await controller.deployments() == {}
        await controller.deploy((package(),), False)
        assert controller._world.checkpoint.live == [M]

    asyncio.run(later())
    assert found_replicas[1] == ["default/m#1.0"]


OF_A_RUNNING_CLASS = """
    __init__ _check_name _check_prefix _deleted _deploy _host _info _ingress _ingress_changed _recover change delete deploy
    deployments end_proxies hear_load hello ingress proxy_options require routes serve_outside status stop_replicas wait_settled
    world
"""
"""Methods of the controller in a cluster that is upgraded in place. Ray has their names, and cannot restart it without them."""


OF_A_RUNNING_REPLICA = """
    __init__ _apply _carry_out _refusal _show _start _work announce beliefs call_large change check_health describe drain fetch
    hang_up hear limit load processors_in_use query report say wait_ready watch
"""
"""Of replicas then, likewise: without one of them a controller of now knows no method of a replica that it has found."""
NAMED_BY_A_RUNNING_CLASS = """
    host:Host messages:Change messages:Ingress messages:Outcome messages:Report proxies.options:ProxyOptions replica:_Pending
    user_code:Code world:NodeInfo
"""
"""In `executors.ray_gpu`: what the signatures of these methods name. Ray pickles them, and needs each."""


def test_a_controller_that_runs_can_be_restarted_with_the_code_of_now():
    assert [each for each in OF_A_RUNNING_CLASS.split() if not callable(getattr(Controller, each, None))] == []
    assert [each for each in OF_A_RUNNING_REPLICA.split() if not callable(getattr(Replica, each, None))] == []
    for module, name in (each.split(":") for each in NAMED_BY_A_RUNNING_CLASS.split()):
        assert isinstance(getattr(import_module(f"executors.ray_gpu.{module}"), name), type)


def test_nobody_who_waits_does_so_without_end(monkeypatch):
    """A caller that dies, or that no longer waits, leaves its question behind: ten thousand of them were all that fits."""
    for module in (controllers, callers, doors):
        monkeypatch.setattr(module, "LONG_POLL_S", 0.05)

    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(),), False)
        async with asyncio.timeout(120):
            of(controller).executor.routes = None  # as after a restart, before the core has told them
            assert await controller.routes(M, (0, 0)) == ((0, 0), None)
            of(controller).executor.routes = {}
            version, routes = await controller.routes(M, (1, 0))
            assert (version, routes.endpoints, routes.world_size) == ((1, 1), (), 0)
            assert await controller.routes(M, version) == (version, None), "they are as they were"
            controller._cluster.left_alone["other"] = "why"
            assert await controller.routes("other", (1, 0)) == ((1, 0), None)
            membership = await controller.world(M, None, 5.0)
            with pytest.raises(TimeoutError):
                await controller.world(M, membership.generation, 0.01)
            with pytest.raises(TimeoutError):
                await controller.world(M, membership.generation, 1e9)

    asyncio.run(scenario())


def test_a_wait_for_health_tells_how_it_is_meanwhile():
    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(),), False)
        info = await controller.wait_settled("m", 5.0)
        assert info.is_settled

    asyncio.run(scenario())


@pytest.mark.parametrize("lines", [0, 2])
def test_a_journal_whose_disk_is_full_ends_with_one_line_and_decisions_go_on(answering, tmp_path, caplog, lines):
    """Were its error the loop's, the event would be tried again and again, and the next one never."""
    path = tmp_path / "run.jsonl"
    journal = lenient_journal(path, kind=CLUSTER)
    written = []

    def take(file, line):
        if len(written) >= lines:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(line)
        write_whole_line(file, line)

    async def scenario():
        controller = await a_controller(journal=journal)
        await controller.deploy((package(),), False)
        await until(lambda: status_of(controller) is DeploymentStatus.HEALTHY)
        await controller.delete((M,))
        await until(lambda: M not in controller._cluster.deployments)

    with pytest.MonkeyPatch.context() as full:
        full.setattr(journals, "write_whole_line", take)
        asyncio.run(scenario())
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    why = "No space left on device; it is taken up again once it can be"
    assert told == [f"the journal {path} ends here, since it cannot be written: {why}"]
    assert len(written) == lines
    assert journal.broken
    if lines:
        assert replay(path).difference is None


@pytest.mark.parametrize("first_has_it", [True, False])
def test_of_two_applications_that_want_one_prefix_at_once_one_has_it(first_has_it):
    async def scenario():
        controller = await a_controller()
        if not first_has_it:
            await controller.deploy((package("a", "a"), package("b", "b")), False)
        controller._world.checkpoint.gate.clear()
        both = [
            asyncio.create_task(
                controller.deploy((attrs.evolve(package(name, name), route_prefix="/x", is_ingress=True),), False)
            )
            for name in ("a", "b")
        ]
        for _ in range(10):
            await asyncio.sleep(0)
        controller._world.checkpoint.gate.set()
        done = await asyncio.gather(*both, return_exceptions=True)
        prefixes = [each.entry.route_prefix for each in controller._cluster.deployments.values()]
        return [type(each) for each in done], prefixes.count("/x")

    assert asyncio.run(scenario()) == ([type(None), NameInUseError], 1)


def test_proxies_that_the_first_route_starts_make_no_other_revision_and_those_that_are_asked_for_do():
    async def scenario():
        controller = await a_controller()
        found = []
        for options in (None, ProxyOptions(), ProxyOptions(http=HttpOptions(port=8001))):
            controller._proxies._options = options
            found.append(controller._revision())
        return found

    before, started, asked = asyncio.run(scenario())
    assert before == started != asked


def test_a_second_application_at_the_root_is_refused_in_a_line_that_names_the_first():
    async def scenario():
        controller = await a_controller()
        both = [attrs.evolve(package(name, name), route_prefix="/", is_ingress=True) for name in ("first", "second")]
        await controller.deploy((both[0],), False)
        with pytest.raises(NameInUseError) as caught:
            await controller.deploy((both[1],), False)
        await controller.deploy((attrs.evolve(both[1], route_prefix=None),), False)
        await controller.deploy((both[0],), False)  # it may be deployed again
        return str(caught.value), {each.route_prefix for each in controller._cluster.state.applications.values()}

    told, routes = asyncio.run(scenario())
    expected = "route_prefix '/' must be one that application 'first' does not have: give this application another, or None"
    assert told.startswith(expected)
    assert routes == {"/", None}


def test_of_two_classes_that_want_one_name_at_once_one_has_it():
    async def scenario():
        controller = await a_controller()
        other = attrs.evolve(package(), code=attrs.evolve(package().code, class_name="models.other"))
        done = await asyncio.gather(
            controller.deploy((package(),), False), controller.deploy((other,), False), return_exceptions=True
        )
        return [type(each) for each in done], of(controller).extras.class_name

    assert asyncio.run(scenario()) == ([type(None), NameInUseError], "models.m")


def seen_as(controller, status, trouble):
    """As after starts that have all failed."""
    found = of(controller)
    spec = found.entry.ranks.spec
    failing = status is DeploymentStatus.DEPLOY_FAILED
    ranks = rankcore.recover(spec, ["default/m#0.0"], at=0.0, epoch=1, failed=failing).state
    found.look(replace(found.entry, ranks=replace(ranks, status=status), trouble=trouble))


def test_whoever_calls_a_deployment_that_has_failed_is_told_why_until_there_is_another():
    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(),), False)
        version, routes = await controller.routes(M, (0, 0))
        assert (routes.problem, routes.endpoints) == ("", ())
        waiting = asyncio.create_task(controller.routes(M, version))
        await asyncio.sleep(0)
        seen_as(controller, DeploymentStatus.DEPLOY_FAILED, "version 'v' failed to start 3 times in one slot\nm#1.0: Traceback")
        async with asyncio.timeout(120):
            version, routes = await waiting
        assert routes.problem == "default/m is DEPLOY_FAILED: version 'v' failed to start 3 times in one slot\nm#1.0: Traceback"
        assert routes.retry_after_s is None
        await controller.change("m", {"user_config": {"other": 1}}, ())
        async with asyncio.timeout(120):
            assert (await controller.routes(M, version))[1].problem == ""

    asyncio.run(scenario())


def test_whoever_waits_for_replicas_that_fail_to_start_is_told_so_after_a_while(monkeypatch):
    monkeypatch.setattr(routing_table, "PATIENCE_S", 0.05)

    async def scenario():
        controller = await a_controller()
        await controller.deploy((package(),), False)
        found = of(controller)
        version, routes = await controller.routes(M, (0, 0))
        assert routes.problem == ""
        trouble = "default/m#1.3: start failed: Traceback (most recent call last):\nOSError: no such file"
        seen_as(controller, DeploymentStatus.UNHEALTHY, trouble)
        async with asyncio.timeout(120):
            version, routes = await controller.routes(M, version)
        assert routes.problem.endswith("\nOSError: no such file"), "for whoever calls by a handle"
        unhealthy = "default/m is UNHEALTHY: its replicas have ended or fail to start, and are tried again"
        assert UnavailableError(routes.problem).reason == f"{unhealthy}\n`rankcore status` says more", "for clients"
        assert routes.retry_after_s == routing_table.TRY_AGAIN_S
        found.executor.routes["default/m#1.4"] = Endpoint("default/m#1.4", "actor", "here", "", 1)
        found.executor.routes_version += 1
        found.look(found.entry)
        async with asyncio.timeout(120):
            assert (await controller.routes(M, version))[1].problem == ""

    asyncio.run(scenario())


def test_actors_that_replicas_of_a_version_in_between_share_are_the_next_controllers_too(monkeypatch):
    swept = []
    monkeypatch.setattr("executors.ray_gpu.cluster.sweep_actors", lambda namespace, kept, but: swept.append(kept))

    async def scenario():
        before = await a_controller()
        await before.deploy((package(),), False)
        store = before._world.checkpoint
        await until(lambda: not before._cluster._tasks)
        between = attrs.evolve(package().code, version="between", actor_names=("tree",))
        store.put_code(between)  # the record does not name it, but replicas of it may run
        following = await a_controller(epoch=2, store=store)
        assert swept[-1] == {M: ["a", "between"]}
        assert of(following).codes()["between"].actor_names == ("tree",)

    asyncio.run(scenario())
