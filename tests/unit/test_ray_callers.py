"""A process that calls, and the controller, without a cluster: what calls of a deployment that has no replica come to."""

import asyncio
import itertools
import threading
from itertools import pairwise
from types import SimpleNamespace

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from msgspec.structs import replace

from executors.ray_gpu.errors import CallCancelledError, InvalidCallError, NoAnswerError, UnavailableError, UnknownNameError
from executors.ray_gpu.messages import NEVER_SEEN, CallStatus, DeploymentNews, Endpoint, Routes
from executors.ray_gpu.requests import caller as callers
from executors.ray_gpu.requests import routes, under_way
from executors.ray_gpu.requests.call import Answer, Call
from executors.ray_gpu.requests.caller import CallingProcess
from executors.ray_gpu.requests.frames import VALUE
from executors.ray_gpu.requests.loops import new_loop
from executors.ray_gpu.requests.response import DeploymentResponse
from executors.ray_gpu.requests.router import Router
from executors.ray_gpu.requests.statuses import CallStatuses
from executors.ray_gpu.routing_table import RoutingTable
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.commands import Availability, Standing
from rankcore.cluster.state import Residency
from rankcore.routing import Route, RoutingSpec, demand
from rankcore.routing.events import RoutesChanged
from rankcore.values import ReplicaRank
from tests.ray_in_memory import ActorInMemory, M, a_controller, of, package, until, without_actors
from tests.unit.test_cluster_demand import given_up

OLD_METHODS = ("routes", "hear_load")


@pytest.fixture(autouse=True)
def no_actors(monkeypatch):
    without_actors(monkeypatch)


@pytest.fixture
def actors(monkeypatch):
    """What `find_actor` finds: put the controller's there."""
    found = []

    async def find_actor(name, namespace, cluster):
        if not found:
            raise ValueError("there is no such actor")
        return found[-1]

    monkeypatch.setattr(callers, "find_actor", find_actor)
    monkeypatch.setattr(callers, "connection", lambda: "cluster")
    return found


class Process:
    """One that calls."""

    def __init__(self):
        self.process = CallingProcess("test", "cluster")
        self.routers, self.tasks = {}, []

    def router(self, deployment=M):
        if deployment not in self.routers:
            self.routers[deployment] = router = Router("test", deployment, "here", asyncio.get_running_loop())
            self.tasks.append(asyncio.get_running_loop().create_task(self.process.add(deployment, router)))
        return self.routers[deployment]

    def call(self, deployment=M):
        call = Call("__call__")
        self.router(deployment).submit_here(call)
        return call


def stands(controller, standing, name=M, failed_until=0.0, **more):
    """As the machine would have it."""
    found = of(controller, name)
    residency = Residency(availability=Availability(standing, **more), failed_until=failed_until)
    found.look(replace(found.entry, residency=residency))


async def shown(statuses, found):
    async for each in statuses:
        found.append(str(each))


@pytest.mark.parametrize("methods", [None, OLD_METHODS], ids=["of now", "upgraded in place"])
def test_a_call_of_a_deployment_scaled_to_zero_waits_and_is_what_scales_it_up(actors, methods):
    async def scenario():
        controller = await a_controller()
        actors.append(ActorInMemory(controller, methods))
        scaled = attrs.evolve(package(), autoscaling=AutoscalingSpec(min_replicas=0, max_replicas=3))
        await controller.deploy((scaled, package("other")), False)
        process = Process()
        call = process.call()
        process.call("default/other")
        await until(lambda: of(controller).entry.target.replicas == 1)
        assert of(controller, "default/other").entry.target.replicas == 0, "nothing makes it follow its load"
        reported = controller._cluster.state.reporters
        assert len(reported) == 1, "one report of the process, whatever it calls"
        assert not call.answer.done()
        await until(lambda: sum(actors[-1].pending.values()) == 1)  # the one question
        call.cancel()

    asyncio.run(scenario())


def test_a_call_that_waits_is_told_how_its_deployment_stands_until_the_answer_is_there(actors):
    async def scenario():
        controller = await a_controller()
        actors.append(ActorInMemory(controller))
        await controller.deploy((package(),), False)
        process = Process()
        call, other = process.call(), process.call()
        response, found = DeploymentResponse(call), []
        watching = asyncio.create_task(shown(response.statuses(), found))
        threaded = []
        thread = threading.Thread(target=lambda: threaded.extend(map(str, DeploymentResponse(other).statuses())))
        thread.start()
        await until(lambda: process.router().seen.routes != NEVER_SEEN)
        for standing, more in (
            (Standing.QUEUED, {"because": "no room"}),
            (Standing.PROVISIONING, {"behind": ("chat/M",)}),
            (Standing.LOADING, {"percent": 5}),
            (Standing.LOADING, {"percent": 5}),
            (Standing.LOADING, {"percent": 100}),
            (Standing.READY, {}),
        ):
            stands(controller, standing, **more)
            await until(lambda: process.router().seen.status[1] == of(controller).status()[0])
        await until(lambda: len(found) == len(threaded) == 5)
        assert response.statuses() is response.statuses(), "one for all who ask"
        late = process.call()
        for each in (call, other):
            each.finish(Answer(VALUE, b""))
        stands(controller, Standing.QUEUED)
        await watching
        await asyncio.to_thread(thread.join)
        late_ones = []
        watching = asyncio.create_task(shown(DeploymentResponse(late).statuses(), late_ones))
        await until(lambda: late_ones)
        late.cancel()
        await watching
        return found, threaded, late_ones

    found, threaded, late_ones = asyncio.run(scenario())
    assert found == threaded
    assert [each.partition(",")[0] for each in found] == [
        "QUEUED: no room", "PROVISIONING behind chat/M", "LOADING 5 %", "LOADING 100 %", "READY"
    ]  # fmt: skip
    assert late_ones[0] in ("READY", "QUEUED"), "who comes late begins with the newest"


def test_what_waits_is_listed_and_ended_wherever_it_waits_and_what_it_asked_for_is_withdrawn(actors):
    async def scenario():
        controller = await a_controller()
        actors.append(ActorInMemory(controller))
        await controller.deploy((package(), package("other")), False)
        first, second = Process(), Process()
        calls = [first.call(), first.call(), second.call()]
        other = second.call("default/other")
        stands(controller, Standing.PROVISIONING, behind=("chat/M",))
        for process in (first, second):
            await until(lambda process=process: process.router()._standing.status is not None)

        async def inquire(*which):
            found = await controller.inquire_waiting((M,), *which)
            assert found["silent"] == 0
            mine = first.process._name
            return sorted(found["calls"], key=lambda each: (each["process"] != mine, each["position"]))

        listed = await inquire(None, None, None)
        assert [(each["position"], each["status"], each["deployment"]) for each in listed] == [
            (position, "PROVISIONING behind chat/M", M) for position in (1, 2, 1)
        ]
        one = listed[0]
        assert len(await inquire(one["process"], one["request"], "enough")) == 1
        with pytest.raises(CallCancelledError, match="enough"):
            calls[0].answer.result(0)
        assert await inquire(one["process"], one["request"], "enough") == [], "it has ended"
        assert not any(call.answer.done() for call in calls[1:])
        assert [each["position"] for each in await inquire(None, None, "all of them")] == [1, 1]
        for call in calls[1:]:
            with pytest.raises(CallCancelledError, match="all of them"):
                call.answer.result(0)
        assert first.router().unserved == second.router().unserved == 0
        await until(lambda: controller._watches.waiting(M) == 0)
        assert not other.answer.done(), "it waits for something else"
        other.cancel()

    asyncio.run(scenario())


def test_what_cannot_be_had_fails_all_that_wait_with_its_reason_and_newcomers_until_its_time_is_over(actors):
    async def scenario():
        controller = await a_controller()
        actors.append(ActorInMemory(controller))
        await controller.deploy((package(),), False)
        process = Process()
        calls = [process.call() for _ in range(3)]
        statuses = []
        watching = asyncio.create_task(shown(DeploymentResponse(calls[0]).statuses(), statuses))
        await until(lambda: process.router().unserved)
        now = controller._world.now()
        stands(controller, Standing.UNAVAILABLE, because="no room: 80 GB on n1", retry_after_s=0.5, failed_until=now + 0.5)
        await until(lambda: all(call.answer.done() for call in calls))
        errors = [call.answer.exception(0) for call in calls]
        newcomer = process.call().answer.exception(0)
        await watching
        assert not statuses, "that it is not to be had is the answer"
        later = process.call
        call = later()
        while call.answer.done():  # its time is not over
            assert 0.0 < call.answer.exception(0).retry_after_s <= 0.5
            await asyncio.sleep(0.01)
            call = later()
        assert controller._world.now() >= now + 0.5
        assert not call.answer.done(), "it waits, which is demand again"
        call.cancel()
        return errors, newcomer

    errors, newcomer = asyncio.run(scenario())
    for each in (*errors, newcomer):
        assert isinstance(each, UnavailableError)
        assert str(each) == "default/m is UNAVAILABLE: no room: 80 GB on n1"
        assert 0.0 < each.retry_after_s <= 0.5


def test_where_nothing_will_change_by_itself_calls_are_refused_until_something_has(actors):
    async def scenario():
        controller = await a_controller()
        actors.append(ActorInMemory(controller))
        await controller.deploy((package(),), False)
        process = Process()
        first = process.call()
        await until(lambda: process.router().unserved)
        stands(controller, Standing.UNAVAILABLE, because="it has failed to start")
        await until(first.answer.done)
        assert first.answer.exception(0).retry_after_s is None
        version = process.router().seen.routes
        await controller.change("m", {}, (), {"max_retries": 1})  # routes that say nothing of it
        await until(lambda: process.router().seen.routes != version)
        assert isinstance(process.call().answer.exception(0), UnavailableError)
        stands(controller, Standing.QUEUED, because="it was deployed again")
        await until(lambda: not process.router().seen.refuses)
        call = process.call()
        await asyncio.sleep(0)
        assert not call.answer.done()
        call.cancel()

    asyncio.run(scenario())


def test_a_controller_that_begins_again_hears_at_once_what_waits(actors, monkeypatch):
    monkeypatch.setattr(demand, "AGAIN_S", 1e6)

    async def scenario():
        first = await a_controller()
        actors.append(ActorInMemory(first))
        await first.deploy((package(),), False)
        process = Process()
        call = process.call()
        await until(lambda: "report_load" in actors[0].called)
        following = await a_controller(*first._world.checkpoint.kept.values(), epoch=2)
        of(following).executor.routes = {}
        actors.append(ActorInMemory(following))
        first._watches.touch(M)
        for each in tuple(first._watches._processes):  # as when the first one dies
            first._watches.forget(each)
        await until(lambda: process.router().seen.routes[0] == 2)
        await until(lambda: "report_load" in actors[1].called)
        call.cancel()

    asyncio.run(scenario())


def test_one_more_deployment_is_asked_for_at_once_and_one_that_is_gone_no_more(actors):
    async def scenario():
        controller = await a_controller()
        actors.append(ActorInMemory(controller))
        await controller.deploy((package(), package("other")), False)
        process = Process()
        process.router()
        await until(lambda: process.router().seen.routes != NEVER_SEEN)
        process.router("default/other")
        await until(lambda: process.router("default/other").seen.routes != NEVER_SEEN)
        await until(lambda: actors[0].pending["watch"] == 1)
        call = process.call("default/other")
        await controller.delete(("default/other",))
        await until(call.answer.done)
        assert isinstance(call.answer.exception(0), UnknownNameError)
        assert list(process.process._routers) == [M]
        unknown = process.call("default/no")
        await until(unknown.answer.done)
        assert isinstance(unknown.answer.exception(0), UnknownNameError)

    asyncio.run(scenario())


def test_what_is_gone_is_asked_for_again_by_who_calls_it_again(actors):
    """The second call knew as little as the first, so nothing seemed new to ask for, and it waited for ever."""

    async def scenario():
        controller = await a_controller()
        actors.append(ActorInMemory(controller))
        process = Process()
        for _ in range(3):
            call = process.call("default/no")
            await until(call.answer.done)
            assert isinstance(call.answer.exception(0), UnknownNameError)
            await until(lambda: process.routers.pop("default/no").gone)
        assert not controller._watches._callers

    asyncio.run(scenario())


def test_what_is_there_again_has_newer_routes_and_statuses_than_who_missed_its_deletion_knows():
    async def scenario():
        controller = await a_controller()
        known = []
        for _ in range(3):
            await controller.deploy((package(),), False)
            await until(lambda: of(controller).routes() is not None)
            stands(controller, Standing.QUEUED)
            known.append((of(controller).routes()[0], of(controller).status()[0]))
            await controller.delete((M,))
        assert all(before < after for before, after in pairwise(max(each) for each in known))

    asyncio.run(scenario())


def test_news_that_other_news_have_overtaken_change_nothing():
    async def scenario():
        router = Router("test", M, "here", asyncio.get_running_loop())
        spec = RoutingSpec(name=M, by_credits=True)
        router.learn(DeploymentNews(((2, 1), Routes((), 5, spec)), ((2, 3), CallStatus("READY"))))
        router.learn(DeploymentNews(((1, 9), Routes((), 7, spec)), ((2, 2), CallStatus("UNAVAILABLE"))))
        assert router._core.world_size == 5
        call = Call("__call__")
        router.submit_here(call)
        assert not call.answer.done()
        call.cancel()

    asyncio.run(scenario())


def test_that_nobody_serves_ends_with_the_controller_that_said_so():
    async def scenario():
        router, spec = Router("test", M, "here", asyncio.get_running_loop()), RoutingSpec(name=M, by_credits=True)
        router.learn(DeploymentNews(((2, 1), Routes((), 0, spec)), ((2, 2), CallStatus("UNAVAILABLE", "nothing is placed"))))
        refused, call = Call("__call__"), Call("__call__")
        router.submit_here(refused)
        assert isinstance(refused.answer.exception(0), UnavailableError)
        router.learn(DeploymentNews(((3, 1), Routes((), 0, spec))))
        router.submit_here(call)
        assert not call.answer.done()
        assert (router.unserved, router.seen.refuses) == (1, False), "it is reported, which is demand"
        call.cancel()

    asyncio.run(scenario())


def test_of_weights_whose_loads_have_failed_for_good_routes_say_nothing_that_would_keep_calls_from_having_them_tried_again():
    cluster = given_up()
    cluster.wait(3600.0)
    entry = cluster.state.deployments["a/x"]
    executor = SimpleNamespace(routes={}, routes_version=1)
    _, routes = RoutingTable("a/x", "a/x", executor, itertools.count(1), lambda: None).routes(entry)
    assert (entry.ranks.status, routes.problem) == ("DEPLOY_FAILED", "")


@pytest.mark.parametrize(
    ("state", "told", "rank"),
    [("PREPARED", None, None), ("STARTING", 3, None), ("RUNNING", 3, 3), ("RECONFIGURING", 3, 3)],
)
def test_a_replica_takes_calls_for_its_rank_once_it_has_said_that_it_has_it(state, told, rank):
    replica = SimpleNamespace(state=state, told=ReplicaRank(told, 0, told) if told is not None else None)
    ranks = SimpleNamespace(replicas={f"{M}#1.4": replica}, world_size=4, status="UPDATING")
    spec = SimpleNamespace(routing=RoutingSpec(name=M), autoscaling=None)
    entry = SimpleNamespace(ranks=ranks, residency=None, trouble="", spec=spec)
    executor = SimpleNamespace(routes={f"{M}#1.4": Endpoint(f"{M}#1.4", "actor", "here", "", 1)}, routes_version=1)
    _, routes = RoutingTable(M, M, executor, itertools.count(1), lambda: None).routes(entry)
    assert [(endpoint.replica_id, found) for endpoint, found in routes.endpoints] == [(f"{M}#1.4", rank)]


def test_beside_a_replica_that_nobody_serves_is_neither_believed_nor_shown():
    async def scenario():
        router = Router("test", M, "here", asyncio.get_running_loop())
        endpoint = Endpoint("default/m#1.0", "actor", "here", "", 1)
        router.learn(DeploymentNews(((1, 1), Routes(((endpoint, 0),), 1, RoutingSpec(name=M, by_credits=True)))))
        router.adopted([])
        router._core.step(RoutesChanged(added=(Route("default/m#1.0", 0),), at=0.0))
        call, found = Call("__call__"), []
        watching = asyncio.create_task(shown(DeploymentResponse(call).statuses(), found))
        router.submit_here(call)
        router.learn(DeploymentNews(None, ((1, 1), CallStatus("UNAVAILABLE", "no room"))))
        assert not call.answer.done()
        router.learn(DeploymentNews(None, ((1, 2), CallStatus("READY"))))
        await until(lambda: found)
        call.cancel()
        await watching
        return found

    assert asyncio.run(scenario()) == ["READY"]


def test_statuses_block_no_event_loop():
    async def scenario():
        with pytest.raises(InvalidCallError, match="async for"):
            next(CallStatuses())

    asyncio.run(scenario())


def test_statuses_of_a_call_that_is_not_sent_yet_are_those_of_its_router_later(actors):
    async def scenario():
        router = Router("test", M, "here", asyncio.get_running_loop())
        call = Call("__call__")
        statuses = DeploymentResponse(call).statuses()
        router._standing.status = ((1, 1), CallStatus("QUEUED"))
        router.submit_here(call)
        assert str(await anext(statuses)) == "QUEUED"
        call.cancel()
        assert [each async for each in statuses] == []

    asyncio.run(scenario())


def test_a_handle_of_before_reports_as_before():
    async def scenario():
        controller = await a_controller()
        scaled = attrs.evolve(package(), autoscaling=AutoscalingSpec(min_replicas=0, max_replicas=3))
        await controller.deploy((scaled,), False)
        await controller.hear_load("m", "handle", 0)
        await controller.hear_load("m", "handle", 2)
        await controller.hear_load("no", "handle", 2)
        await until(lambda: of(controller).entry.target.replicas == 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("cluster", ["ours", "another"])
@pytest.mark.parametrize("how", ["the program ends", "the replica or proxy ends"])
def test_a_process_that_ends_closes_its_routers_so_that_replicas_do_not_wait_for_it(monkeypatch, how, cluster):
    closed, loop = [], new_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    process = SimpleNamespace(close=lambda error: closed.append((str(error), threading.current_thread())))
    monkeypatch.setattr(routes, "_loop", loop)
    monkeypatch.setattr(routes, "_processes", {"test": process})
    monkeypatch.setattr(routes, "_routers", {("test", M): SimpleNamespace()})
    monkeypatch.setattr(routes, "_cluster", "ours")
    monkeypatch.setattr(routes, "connection", lambda: cluster)
    if how == "the program ends":
        routes._end(loop, thread)
        assert not thread.is_alive()
    else:
        asyncio.run(routes.say_goodbye())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    assert closed == ([("this process ends", thread)] if cluster == "ours" else [])
    assert (routes._processes, routes._routers) == ({}, {})
    loop.close()


def test_a_process_that_calls_nobody_ends_likewise(monkeypatch):
    monkeypatch.setattr(routes, "_loop", None)
    asyncio.run(routes.say_goodbye())


def test_an_id_that_was_listed_names_no_call_of_a_router_that_came_later(actors):
    async def go():
        controller = await a_controller()
        actors.append(ActorInMemory(controller))
        await controller.deploy((package(),), False)
        process = Process()
        first = process.call()
        await until(lambda: process.router().seen.routes != NEVER_SEEN)
        (listed,) = (await controller.inquire_waiting((M,), None, None, None))["calls"]
        first.cancel()
        former = process.routers.pop(M)
        process.process.remove(M, former)
        former.close(UnknownNameError("the handle was shut down"))
        second = process.call()
        await until(lambda: process.router().seen.routes != NEVER_SEEN)
        found = await controller.inquire_waiting((M,), listed["process"], listed["request"], "enough")
        assert found["calls"] == []
        assert not second.answer.done()

    asyncio.run(go())


def test_ending_a_call_whose_caller_does_not_answer_is_no_success(monkeypatch):
    monkeypatch.setattr(under_way, "running_status", lambda _: SimpleNamespace(namespace="n", deployments={}))
    monkeypatch.setattr(under_way, "_inquire", lambda *_: {"calls": [], "silent": 1})
    with pytest.raises(NoAnswerError, match="try again"):
        under_way.cancel_request(under_way._id_of(under_way.WAITS + "a/x", "p", 0))
