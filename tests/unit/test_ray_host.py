"""One deployment in the controller, without a cluster: what happens at the same time, and whoever waits."""

import asyncio
import threading
from types import SimpleNamespace

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

import rankcore
from executors.deployment_ids import deployment_id
from executors.ray_gpu import controller as controllers
from executors.ray_gpu import executor
from executors.ray_gpu import host as hosts
from executors.ray_gpu.checkpoint import Record
from executors.ray_gpu.controller import Controller
from executors.ray_gpu.errors import InvalidDeploymentError, NameInUseError, UnavailableError, UnknownNameError
from executors.ray_gpu.messages import Endpoint
from executors.ray_gpu.packing import Package
from executors.ray_gpu.proxies.keeper import ProxyKeeper
from executors.ray_gpu.user_code import Code
from rankcore import DeploymentSpec, DeploymentStatus
from rankcore.codec import from_json, to_json
from rankcore.commands import InitializeReplica, KillReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPlaced, ReplicaReady, ReplicaStartFailed, ReplicaStopped
from rankcore.routing import RoutingSpec

M = "default/m"


class Store:
    """A checkpoint in memory. What is done under `slow` waits for `gate`."""

    def __init__(self):
        self.records = {}
        self.codes = {}
        self.gate = threading.Event()
        self.gate.set()
        self.failures = 0

    def put_code(self, code):
        self.codes[code.deployment, code.version] = code

    def put_record(self, record):
        assert self.gate.wait(120)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the cluster does not answer")
        self.records[record.spec.name] = record

    def drop_code(self, name, keep):
        self.codes = {key: code for key, code in self.codes.items() if key[0] != name or key[1] in keep}

    def forget(self, name):
        self.drop_code(name, frozenset())
        self.records.pop(name, None)


class World:
    namespace, epoch = "test", 1

    def __init__(self):
        self.checkpoint = Store()

    def now(self):
        return asyncio.get_running_loop().time()

    async def call(self, function, *args):
        return await asyncio.to_thread(function, *args)


def a_controller():
    controller = Controller.__new__(Controller)
    controller._world = World()
    controller._hosts, controller._tasks, controller._left_alone = {}, set(), {}
    controller._journal = None
    controller._deploying = asyncio.Lock()
    controller._ingress_news, controller._proxies = asyncio.Event(), ProxyKeeper(controller._world)
    return controller


@pytest.fixture(autouse=True)
def no_processes(monkeypatch):
    monkeypatch.setattr(executor, "Reaper", lambda world: SimpleNamespace())


def package(name="m", app_name="default", **fields):
    found = deployment_id(app_name, name)
    spec = DeploymentSpec(name=found, **{"target_replicas": 0, "version": "a", **fields})
    return Package(Code(found, spec.version, f"models.{name}", app_name, b"", (), {}), spec, 0, RoutingSpec(name=found))


def test_deleting_twice_harms_no_later_deployment_of_that_name():
    async def scenario():
        controller = a_controller()
        store = controller._world.checkpoint
        await controller.deploy((package(),), False)
        await asyncio.gather(*(controller.delete((M,)) for _ in range(5)))
        assert (store.records, store.codes) == ({}, {})
        await controller.deploy((package(),), False)
        while asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0.001)
        assert not store.records[M].deleting
        assert (M, "a") in store.codes

    asyncio.run(scenario())


def test_a_change_that_meets_a_deletion_is_refused():
    async def scenario():
        controller = a_controller()
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


def test_a_failure_is_stored_and_forgotten_with_the_build_that_failed():
    async def scenario():
        controller = a_controller()
        store = controller._world.checkpoint
        await controller.deploy((package(),), False)
        host = controller._hosts[M]
        host.driver._follow(rankcore.recover(host.record.spec, [], at=0.0, epoch=2, failed=True))
        while not host.driver.is_saved:
            await asyncio.sleep(0.001)
        assert store.records[M].failed
        await controller.change("m", {"max_unavailable": 2}, ())
        assert store.records[M].failed
        await controller.change("m", {"user_config": {"other": 1}}, ())
        assert not store.records[M].failed

    asyncio.run(scenario())


def test_the_next_controller_knows_why_a_build_has_failed():
    async def scenario():
        controller = a_controller()
        await controller.deploy((package(),), False)
        host = controller._hosts[M]
        failed(host)
        host.driver._follow(rankcore.Step(host.driver.state, (), ()))
        while not host.driver.is_saved:
            await asyncio.sleep(0.001)
        said = host.routes()[1].problem
        stored = from_json(to_json(controller._world.checkpoint.records[M]), Record)
        following = hosts.Host(controller._world, stored, {}, lambda: None)
        following.recover(None, ())
        following.executor.routes = {}
        assert following.routes()[1].problem == said
        assert "m#1.0: Traceback" in said

    asyncio.run(scenario())


@pytest.fixture
def answering(monkeypatch):
    """Replicas that do what they are told at once, but those of version "b" do not start. Who is told what, and what was stored
    then, is written down.
    """
    done = []

    def execute(self, command):
        host = self._host
        done.append((command, host._world.checkpoint.records[host.name]))
        about = {"replica_id": getattr(command, "replica_id", None), "at": host._world.now()}
        match command:
            case StartReplica():
                host.versions[command.replica_id] = command.version
                self.tell(ReplicaPlaced(node_id="n", **about))
            case InitializeReplica() if host.versions[command.replica_id] == "b":
                self.tell(ReplicaStartFailed(reason="b does not start", **about))
            case InitializeReplica():
                self.tell(ReplicaReady(**about))
            case StopReplica() | KillReplica():
                self.tell(ReplicaStopped(**about))

    class Answering(hosts.RayExecutor):
        def __init__(self, world, spec, *more):
            super().__init__(world, spec, *more)
            self._host = SimpleNamespace(_world=world, name=spec().name, versions={})

    Answering.execute = execute
    monkeypatch.setattr(hosts, "RayExecutor", Answering)
    return done


def test_a_rollback_is_stored_before_anything_is_done_about_it(answering):
    """A controller that dies in between, at any command, finds the spec in the store that the commands were for."""

    async def scenario():
        controller = a_controller()
        store, status = controller._world.checkpoint, lambda: controller._hosts[M].status
        fields = {"target_replicas": 2, "max_start_failures": 1, "rollback": True, "start_backoff_s": 0.001}
        await controller.deploy((package(**fields),), False)
        host = controller._hosts[M]
        async with asyncio.timeout(120):
            await host.until(lambda host: host.status is DeploymentStatus.HEALTHY)
            while store.records[M].previous is None:
                await asyncio.sleep(0.001)
            await controller.deploy((package(version="b", **fields),), False)
            store.gate.clear()
            await host.until(lambda host: host.driver.state.spec.version == "a")  # rolled back, and that is not stored
            assert store.records[M].spec.version == "b"
            store.gate.set()
            await host.until(lambda host: host.driver.is_saved and status() is DeploymentStatus.HEALTHY)
        assert store.records[M].spec.version == "a"
        return [(each.version, record.spec.version) for each, record in answering if isinstance(each, StartReplica)]

    started = asyncio.run(scenario())
    assert ("b", "b") in started
    assert started[-1] == ("a", "a")
    assert all(version == stored for version, stored in started)


def test_a_build_that_is_given_up_is_stored_before_anything_is_done_about_it(answering):
    async def scenario():
        controller = a_controller()
        store = controller._world.checkpoint
        fields = {"target_replicas": 1, "max_start_failures": 1, "start_backoff_s": 0.001}
        await controller.deploy((package(**fields),), False)
        host = controller._hosts[M]
        async with asyncio.timeout(120):
            await host.until(lambda host: host.status is DeploymentStatus.HEALTHY and host.driver.is_saved)
            await controller.deploy((package(version="b", **fields),), False)
            store.gate.clear()
            await host.until(lambda host: host.status is DeploymentStatus.DEPLOY_FAILED)  # and that is not stored
            carried_out = len(answering)
            host.stop_replicas(tuple(host.state.replicas))
            for _ in range(20):
                await asyncio.sleep(0)
            assert (len(answering), store.records[M].failed) == (carried_out, False)
            store.gate.set()
            await host.until(lambda host: host.driver.is_saved)
        assert store.records[M].failed
        assert "b does not start" in store.records[M].trouble

    asyncio.run(scenario())


def test_a_record_that_cannot_be_stored_is_shown_and_holds_back_its_own_deployment_only(answering, monkeypatch):
    monkeypatch.setattr(hosts, "ASK_AGAIN_S", 0.01)

    async def scenario():
        controller = a_controller()
        store = controller._world.checkpoint
        healthy = lambda host: host.status is DeploymentStatus.HEALTHY and host.driver.is_saved  # noqa: E731
        await controller.deploy((package(), package("other", target_replicas=1)), False)
        host, other = controller._hosts[M], controller._hosts["default/other"]
        put = store.put_record

        def refuse(record):
            if record.spec.name == M:
                raise ConnectionError("the cluster does not answer")
            put(record)

        async with asyncio.timeout(120):
            await host.until(healthy)
            await other.until(healthy)
            store.put_record = refuse
            host.driver._follow(rankcore.recover(host.record.spec, ["default/m#1.0"], at=0.0, epoch=2, failed=True))
            await host.until(lambda host: host.driver.unsaved != "")
            shown = controller._info(host, {}).message
            held = [record for command, record in answering if getattr(command, "epoch", 0) == 2]
            other.stop_replicas(tuple(other.state.replicas))
            await other.until(lambda host: len(host.state.replicas) == 1 and "default/other#1.0" not in host.state.replicas)
            await other.until(healthy)
            store.put_record = put
            await host.until(lambda host: host.driver.is_saved)
        assert "what was decided about default/m cannot be stored" in shown
        assert "the cluster does not answer" in shown
        assert held == []
        assert host.driver.unsaved == ""
        assert next(record.failed for command, record in answering if getattr(command, "epoch", 0) == 2)

    asyncio.run(scenario())


def test_a_deletion_that_could_not_be_stored_can_be_asked_for_again():
    async def scenario():
        controller = a_controller()
        await controller.deploy((package(),), False)
        controller._world.checkpoint.failures = 1
        with pytest.raises(ConnectionError):
            await controller.delete((M,))
        await controller.change("m", {"max_unavailable": 2}, ())
        await controller.delete((M,))
        assert await controller.deployments() == {}

    asyncio.run(scenario())


def test_an_application_of_which_one_name_is_in_use_is_not_deployed_at_all():
    async def scenario():
        controller = a_controller()
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
        controller = a_controller()
        await controller.deploy((package("a"), package("b")), False)
        await controller.deploy((package("a", "other"),), False)
        await controller.deploy((package("b"), package("d")), False)
        while "default/a" in controller._hosts:
            await asyncio.sleep(0.001)
        assert sorted(await controller.deployments()) == ["default/b", "default/d", "other/a"]
        await controller.deploy((package("b", "other"),), False)
        while "other/a" in controller._hosts:
            await asyncio.sleep(0.001)
        assert sorted(await controller.deployments()) == ["default/b", "default/d", "other/b"]

    asyncio.run(scenario())


@pytest.mark.parametrize("replace", [False, True])
def test_a_deployment_of_another_application_is_never_touched(replace):
    """One class bound in two applications is two deployments."""

    async def scenario():
        controller = a_controller()
        await controller.deploy((package("one", "first"),), False)
        before = controller._hosts["first/one"].record
        await controller.deploy((package("new", "second"), package("one", "second", version="b")), replace)
        assert sorted(await controller.deployments()) == ["first/one", "second/new", "second/one"]
        await controller.change("second/one", {"max_unavailable": 2}, ())
        assert controller._hosts["first/one"].record is before
        await controller.delete(await controller.find_all("second"))
        assert sorted(await controller.deployments()) == ["first/one"]
        assert controller._hosts["first/one"].record is before

    asyncio.run(scenario())


def test_a_bare_name_is_enough_where_one_application_has_it_and_else_all_are_named():
    async def scenario():
        controller = a_controller()
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
    return Record(
        spec=DeploymentSpec(name=name, target_replicas=0, version="a"), class_name=f"models.{name}", app_name=app_name
    )


@pytest.fixture
def found_replicas(monkeypatch):
    """Those that a controller finds when it comes up, by the ids of their deployments; and those of them that it ends."""
    found, ended = {}, []
    monkeypatch.setattr(controllers, "find_replicas", lambda namespace: {name: list(ids) for name, ids in found.items()})
    monkeypatch.setattr(controllers, "kill_replica", lambda namespace, name, replica_id: ended.append(replica_id))
    return found, ended


async def recovered(*records):
    controller = a_controller()
    store = controller._world.checkpoint
    store.records = {record.spec.name: record for record in records}
    reading = SimpleNamespace(proxies=lambda: None, records=lambda: dict(store.records), code=lambda name, version: None)
    controller._world.checkpoint = reading
    await controller._recover()
    controller._world.checkpoint = store
    return controller


def test_what_was_deployed_before_ids_were_full_keeps_its_id_until_it_is_deleted(found_replicas):
    async def scenario():
        controller = await recovered(before_ids_were_full("m", "default"), before_ids_were_full("app", "examples/app.py:app"))
        store, records = controller._world.checkpoint, dict(controller._world.checkpoint.records)
        assert sorted(await controller.deployments()) == ["default/m", "examples.app.py:app/app"]
        assert (await controller.status()).deployments["m"].name == "default/m"
        await controller.deploy((package("m", "other"),), False)
        assert controller._host_of_handle("m") is controller._hosts["default/m"], "handles of before"
        for name in ("m", "default/m"):
            _, routes = await controller.routes(name, (0, 0))
            assert routes.spec.name == name, "a router has one name"
        await controller.deploy((package("m", version="b"),), False)
        assert {name: each.spec.version for name, each in store.records.items()} == {"m": "b", "app": "a", "other/m": "a"}
        assert ("m", "b") in store.codes
        assert store.records["app"] is records["app"]
        await controller.delete(await controller.find_all("default"))
        assert sorted(store.records) == ["app", "other/m"]
        await controller.deploy((package("m"),), False)
        assert sorted(store.records) == ["app", "default/m", "other/m"]

    asyncio.run(scenario())


def test_an_old_name_that_looks_like_an_id_is_taken_from_nobody(found_replicas):
    """Names of before could have a '/', and then be the ids of others now."""
    found_replicas[0].update({"m": ["m#1.0"]})

    async def scenario():
        controller = await recovered(
            before_ids_were_full("a/c", "x"), before_ids_were_full("b/m", "b"), before_ids_were_full("m", "b")
        )
        store, records = controller._world.checkpoint, dict(controller._world.checkpoint.records)
        assert sorted(await controller.deployments()) == ["b/m", "x/a/c"]
        with pytest.raises(NameInUseError, match="a/c is the id of x/a/c, which is older: delete that first"):
            await controller.deploy((package("c", "a"),), False)
        with pytest.raises(NameInUseError, match="b/m is left alone: there is another b/m, which is older"):
            await controller.deploy((package("m", "b"),), False)
        assert (store.records, found_replicas[1]) == (records, [])

    asyncio.run(scenario())


def test_what_cannot_be_taken_over_is_left_alone_and_all_else_goes_on(monkeypatch):
    """An exception there ended the controller, again and again, and nothing was looked after any more."""

    def record(found, **fields):
        return Record(
            spec=DeploymentSpec(name=found, target_replicas=0),
            class_name="models.M",
            app_name=found.partition("/")[0],
            **fields,
        )

    records = {
        "a/fine": record("a/fine"),
        "a/key": record("a/another"),
        "a/odd": record("a/odd"),
        "a/previous": record("a/previous", previous=DeploymentSpec(name="a/other", target_replicas=1)),
        "a/text": "its record cannot be read: why",
        "z/fine": record("z/fine"),
    }
    replicas = {"a/odd": ["a/odd#7.0"], "a/text": ["a/text#0.0"]}
    monkeypatch.setattr(controllers, "find_replicas", lambda namespace: {**replicas})
    killed = []
    monkeypatch.setattr(controllers, "kill_replica", lambda *which: killed.append(which))

    async def scenario():
        controller = a_controller()
        controller._world.checkpoint = SimpleNamespace(
            proxies=lambda: None, records=lambda: records, code=lambda *which: None, drop_code=lambda *which: None
        )
        await controller._recover()
        status = await controller.status()
        assert list(status.deployments) == ["a/fine", "z/fine"]
        whys = {
            "a/key": "one of a/another",
            "a/odd": "an id of an epoch before 1",
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
        controller._left_alone["c/m"] = "why"
        with pytest.raises(UnknownNameError, match="c/m is left alone: why"):
            await controller.find_all("c")
        with pytest.raises(UnknownNameError, match="there is no deployment 'a/none'"):
            await controller.require("a/none")

    asyncio.run(scenario())
    assert killed == []


OF_A_RUNNING_CLASS = """
    __init__ _check_name _check_prefix _deleted _deploy _host _info _ingress _ingress_changed _recover change delete deploy
    deployments end_proxies hear_load hello ingress proxy_options require routes serve_outside status stop_replicas wait_settled
    world
"""
"""Methods of the controller in a cluster that is upgraded in place. Ray has their names, and cannot restart it without them."""


def test_a_controller_that_runs_can_be_restarted_with_the_code_of_now():
    assert [each for each in OF_A_RUNNING_CLASS.split() if not callable(getattr(Controller, each, None))] == []


def test_nobody_who_waits_does_so_without_end(monkeypatch):
    """A caller that dies, or that no longer waits, leaves its question behind: ten thousand of them were all that fits."""
    monkeypatch.setattr(controllers, "LONG_POLL_S", 0.05)

    async def scenario():
        controller = a_controller()
        await controller.deploy((package(),), False)
        async with asyncio.timeout(120):
            controller._hosts[M].executor.routes = None  # as after a restart, before the core has told them
            assert await controller.routes(M, (0, 0)) == ((0, 0), None)
            controller._hosts[M].executor.routes = {}
            version, routes = await controller.routes(M, (1, 0))
            assert (version, routes.endpoints, routes.world_size) == ((1, 1), (), 0)
            assert await controller.routes(M, version) == (version, routes)
            controller._left_alone["other"] = "why"
            assert await controller.routes("other", (1, 0)) == ((1, 0), None)
            membership = await controller.world(M, None, 5.0)
            with pytest.raises(TimeoutError):
                await controller.world(M, membership.generation, 0.01)
            with pytest.raises(TimeoutError):
                await controller.world(M, membership.generation, 1e9)

    asyncio.run(scenario())


def test_a_wait_for_health_tells_how_it_is_meanwhile():
    async def scenario():
        controller = a_controller()
        await controller.deploy((package(),), False)
        info = await controller.wait_settled("m", 5.0)
        assert info.is_settled

    asyncio.run(scenario())


@pytest.mark.parametrize("first_has_it", [True, False])
def test_of_two_applications_that_want_one_prefix_at_once_one_has_it(first_has_it):
    async def scenario():
        controller = a_controller()
        if not first_has_it:
            await controller.deploy((package("a", "a"), package("b", "b")), False)
        controller._world.checkpoint.gate.clear()
        both = [
            asyncio.create_task(controller.deploy((attrs.evolve(package(name, name), route_prefix="/x"),), False))
            for name in ("a", "b")
        ]
        for _ in range(10):
            await asyncio.sleep(0)
        controller._world.checkpoint.gate.set()
        done = await asyncio.gather(*both, return_exceptions=True)
        prefixes = [host.record.route_prefix for host in controller._hosts.values()]
        return [type(each) for each in done], prefixes.count("/x")

    assert asyncio.run(scenario()) == ([type(None), NameInUseError], 1)


def test_of_two_classes_that_want_one_name_at_once_one_has_it():
    async def scenario():
        controller = a_controller()
        other = attrs.evolve(package(), code=attrs.evolve(package().code, class_name="models.other"))
        done = await asyncio.gather(
            controller.deploy((package(),), False), controller.deploy((other,), False), return_exceptions=True
        )
        return [type(each) for each in done], controller._hosts[M].record.class_name

    assert asyncio.run(scenario()) == ([type(None), NameInUseError], "models.m")


def failed(host):
    """As after starts that have all failed."""
    state = rankcore.recover(host.record.spec, ["default/m#1.0"], at=0.0, epoch=2, failed=True).state
    host.driver.state = state
    host.trouble = "version 'v' failed to start 3 times in one slot\nm#1.0: Traceback"
    host.executor.routes = {}
    host._look()


def test_whoever_calls_a_deployment_that_has_failed_is_told_why_until_there_is_another():
    async def scenario():
        controller = a_controller()
        await controller.deploy((package(),), False)
        host = controller._hosts[M]
        version, routes = await controller.routes(M, (0, 0))
        assert (routes.problem, routes.endpoints) == ("", ())
        waiting = asyncio.create_task(controller.routes(M, version))
        await asyncio.sleep(0)
        failed(host)
        async with asyncio.timeout(120):
            version, routes = await waiting
        assert routes.problem == "default/m is DEPLOY_FAILED: version 'v' failed to start 3 times in one slot\nm#1.0: Traceback"
        assert routes.retry_after_s is None
        await controller.change("m", {"user_config": {"other": 1}}, ())
        async with asyncio.timeout(120):
            assert (await controller.routes(M, version))[1].problem == ""

    asyncio.run(scenario())


def test_whoever_waits_for_replicas_that_fail_to_start_is_told_so_after_a_while(monkeypatch):
    monkeypatch.setattr(hosts, "PATIENCE_S", 0.05)
    monkeypatch.setattr(hosts.Host, "status", rankcore.DeploymentStatus.UNHEALTHY)

    async def scenario():
        controller = a_controller()
        await controller.deploy((package(),), False)
        host = controller._hosts[M]
        version, routes = await controller.routes(M, (0, 0))
        assert routes.problem == ""
        host.trouble = "default/m#1.3: start failed: Traceback (most recent call last):\nOSError: no such file"
        host._have_patience()
        async with asyncio.timeout(120):
            version, routes = await controller.routes(M, version)
        assert routes.problem.endswith("\nOSError: no such file"), "for whoever calls by a handle"
        first_line = UnavailableError(routes.problem).reason
        assert first_line == "default/m is UNHEALTHY: its replicas have ended or fail to start, and are tried again"
        assert routes.retry_after_s == hosts.TRY_AGAIN_S
        host.executor.routes["default/m#1.4"] = Endpoint("default/m#1.4", "actor", "here", "", 1)
        host.executor.routes_version += 1
        host._have_patience()
        host.wake()
        async with asyncio.timeout(120):
            assert (await controller.routes(M, version))[1].problem == ""

    asyncio.run(scenario())
