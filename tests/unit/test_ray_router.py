"""A process's router and real replicas, over sockets and without a cluster: no call is left without an answer."""

import asyncio
import contextlib
import gc
import itertools
import uuid
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.errors import (
    CallCancelledError,
    CallError,
    DeadlineError,
    InvalidCallError,
    NoAnswerError,
    OverloadedError,
    ReplicaGoneError,
    UnavailableError,
)
from executors.ray_gpu.messages import Endpoint, Routes
from executors.ray_gpu.requests import caller as caller_module
from executors.ray_gpu.requests import ways
from executors.ray_gpu.requests.call import Call, Wishes
from executors.ray_gpu.requests.composition import submit
from executors.ray_gpu.requests.handle import CallOptions
from executors.ray_gpu.requests.packing import About, Reference
from executors.ray_gpu.requests.request_context import get_request_context
from executors.ray_gpu.requests.request_ids import next_number
from executors.ray_gpu.requests.response import (
    DeploymentBroadcastResponse,
    DeploymentResponse,
    DeploymentResponseGenerator,
)
from executors.ray_gpu.requests.router import Router
from rankcore.routing import RoutingSpec
from tests.unit.test_ray_calls import TIMEOUT_S, replica, under_way


class Caller:
    """A process that calls `m`, by one router."""

    def __init__(self, **spec):
        self.spec = RoutingSpec(**{"name": "m", "by_credits": True, "max_ongoing_requests": 5, **spec})
        self.router = Router("rankcore", "m", "here", asyncio.get_running_loop())

    def follow(self, *servers, world_size=None):
        endpoints = [(Endpoint(f"m#1.{number}", "actor", "here", server._socket_path, 1), number) for number, server in servers]
        self.router.follow(Routes(tuple(endpoints), world_size or len(endpoints), self.spec))

    def call(self, method, *args, wishes=None):
        call = Call(method, wishes=wishes or Wishes())
        submit(call, (args, {}), self.router)
        return call

    async def answer(self, method, *args, **options):
        async with asyncio.timeout(TIMEOUT_S):
            return await DeploymentResponse(self.call(method, *args, **options))

    async def until(self, condition):
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def connected(self, replicas=1):
        await self.until(lambda: len(self.router._ways.current) == replicas)


def played(folder, scenario, *, max_ongoing_requests=5):
    with replica(folder, max_ongoing_requests=max_ongoing_requests) as (user, server):

        async def play():
            async with asyncio.timeout(2 * TIMEOUT_S):
                return await scenario(user, server)

        return asyncio.run(play())


async def begun(user):
    await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)


def break_connections(user, server):
    """As when the replica's process ends."""

    def break_all():
        for connection in tuple(server._connections.values()):
            connection._outbox._write.__self__._transport.abort()

    user.loop.call_soon_threadsafe(break_all)


def test_a_call_to_a_replica_that_is_routed_no_more_fails_when_that_dies(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        response = DeploymentResponse(caller.call("for_ever"))
        await begun(user)
        caller.follow()
        break_connections(user, server)
        with pytest.raises(ReplicaGoneError):
            async with asyncio.timeout(TIMEOUT_S):
                await response

    played(tmp_path, scenario)


def test_a_call_to_a_replica_that_is_routed_no_more_can_be_cancelled(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        call = caller.call("for_ever")
        await begun(user)
        caller.follow()
        call.cancel()
        assert await asyncio.to_thread(user.instance.gate.wait, TIMEOUT_S), "the replica was told"
        await caller.until(lambda: not server._connections)
        return user.instance.seen, caller.router._ways._ending

    assert played(tmp_path, scenario) == (["cancelled"], set())


def test_news_of_routes_while_replicas_are_met_makes_no_second_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(ways, "MEET_S", 5.0)

    async def scenario(user, server):
        caller = Caller()
        silent = await asyncio.start_unix_server(lambda reader, writer: reader.read(), str(tmp_path / "silent"))
        slow = type("Slow", (), {"_socket_path": str(tmp_path / "silent")})
        caller.follow((0, server), (1, slow))
        await caller.until(lambda: server._connections)  # it is met, and not adopted as long as the other is silent
        for _ in range(3):
            await asyncio.sleep(0.05)
            caller.follow((0, server), (1, slow))
        await caller.connected(2)
        assert await caller.answer("later", 3, wishes=Wishes(rank=0)) == 3
        silent.close()
        return len(server._connections)

    assert played(tmp_path, scenario) == 1


@pytest.mark.parametrize("ahead", [16, 7, 0])
def test_no_more_calls_of_a_first_burst_wait_than_may_whenever_the_limit_comes_to_be_known(tmp_path, ahead):
    async def scenario(user, server):
        caller = Caller(max_queued_requests=2, max_ongoing_requests=1)
        calls = [caller.call("for_ever") for _ in range(ahead)]
        await asyncio.sleep(0.05)
        assert not any(call.answer.done() for call in calls), "nothing is accepted or rejected before the limit is known"
        caller.follow((0, server))
        calls += [caller.call("for_ever") for _ in range(16 - ahead)]
        await begun(user)
        await caller.until(lambda: sum(call.answer.done() for call in calls) == 13)
        rejected = [isinstance(call.answer.exception(0), OverloadedError) for call in calls[3:]]
        for call in calls[:3]:
            call.cancel()
        return rejected, str(calls[3].answer.exception(0))

    rejected, text = played(tmp_path, scenario, max_ongoing_requests=1)
    assert rejected == [True] * 13
    assert text == "2 requests of deployment 'm' wait, max_queued_requests is 2"


@pytest.mark.parametrize("unreachable", [True, False])
def test_calls_that_nobody_can_take_are_no_more_than_may_wait(tmp_path, unreachable):
    async def scenario(user, server):
        caller = Caller(max_queued_requests=2)
        calls = [caller.call("for_ever") for _ in range(5)]
        nobody = type("Nobody", (), {"_socket_path": str(tmp_path / "not there")})
        caller.follow(*([(0, nobody)] if unreachable else []))
        await caller.until(lambda: sum(call.answer.done() for call in calls) == 3)
        return [type(call.answer.exception(0)) for call in calls[2:]]

    assert played(tmp_path, scenario) == [OverloadedError] * 3


class LateClock:
    """An event loop on which a second has gone by whenever it is looked at."""

    def __init__(self, loop):
        self._loop, self._seconds = loop, itertools.count(loop.time())

    def time(self):
        return next(self._seconds)

    def __getattr__(self, name):
        return getattr(self._loop, name)


def test_all_that_wait_are_told_that_nobody_comes_also_where_a_deadline_passes_meanwhile():
    async def scenario():
        caller = Caller()
        caller.follow()
        calls = [caller.call("later", wishes=Wishes(timeout_s=each)) for each in (None, 0.5, None)]
        await asyncio.sleep(0)
        caller.router._loop = LateClock(caller.router._loop)
        caller.router.follow(Routes((), 0, caller.spec, problem="m is DEPLOY_FAILED"))
        return [type(call.answer.exception(TIMEOUT_S)) for call in calls]

    assert asyncio.run(scenario()) == [UnavailableError, DeadlineError, UnavailableError]


def test_calls_of_a_first_burst_have_the_deadline_of_the_deployment(tmp_path):
    async def scenario(user, server):
        caller = Caller(request_timeout_s=0.1)
        call = caller.call("for_ever")
        await asyncio.sleep(0)
        caller.follow((0, server))
        with pytest.raises(DeadlineError):
            await DeploymentResponse(call)

    played(tmp_path, scenario)


def test_credits_that_are_recalled_before_a_replica_is_adopted_are_returned(tmp_path, monkeypatch):
    monkeypatch.setattr(ways, "MEET_S", 2.0)

    async def scenario(user, server):
        first, second = Caller(max_ongoing_requests=1), Caller(max_ongoing_requests=1)
        silent = await asyncio.start_unix_server(lambda reader, writer: reader.read(), str(tmp_path / "silent"))
        slow = type("Slow", (), {"_socket_path": str(tmp_path / "silent")})
        first.follow((0, server), (1, slow))
        await first.until(lambda: server._connections)
        monkeypatch.setattr(ways, "MEET_S", 0.1)
        second.follow((0, server))
        answer = await second.answer("later", 3, wishes=Wishes(rank=0))
        silent.close()
        return answer

    assert played(tmp_path, scenario, max_ongoing_requests=1) == 3


def test_a_replica_whose_connection_breaks_is_connected_to_again(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        assert await caller.answer("later", 1) == 1
        break_connections(user, server)
        await caller.until(lambda: not caller.router._ways.current)
        return await caller.answer("later", 2)

    assert played(tmp_path, scenario) == 2


def test_a_call_that_cannot_be_asked_for_fails_and_hangs_nobody(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        with pytest.raises(InvalidCallError, match="key"):
            await caller.answer("later", 1, wishes=Wishes(key=7))
        return await caller.answer("later", 2)

    assert played(tmp_path, scenario) == 2


@pytest.mark.parametrize(
    "option",
    [
        {"key": 7},
        {"key": ""},
        {"method_name": None},
        {"request_id": 1},
        {"multiplexed_model_id": None},
        {"timeout_s": True},
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"rank": -1},
    ],
)
def test_an_option_that_is_not_what_it_may_be_is_refused_by_its_name(option):
    with pytest.raises(InvalidCallError, match=next(iter(option))):
        CallOptions(**option)


def test_awaiting_a_call_that_somebody_else_has_cancelled_does_not_look_like_ones_own_end(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        response = DeploymentResponse(caller.call("for_ever"))
        await begun(user)
        asyncio.get_running_loop().call_later(0.01, response.cancel)
        with pytest.raises(CallCancelledError):
            await response
        await caller.until(lambda: "cancelled" in user.instance.seen)
        await caller.until(lambda: not caller.router._calls)
        async with asyncio.timeout(TIMEOUT_S):
            while await under_way(user, server):
                await asyncio.sleep(0.01)

    played(tmp_path, scenario)


async def left_for_the_collector(calls, count, *kinds):
    """How many objects of these kinds so many calls leave. A collection stops the whole process, and is felt."""

    def held():
        return sum(type(each) in kinds for each in gc.get_objects())

    await calls(5)
    gc.collect()
    gc.disable()
    before = held()  # by other tests
    try:
        await calls(count)
        return held() - before
    finally:
        gc.enable()


def test_calls_leave_nothing_for_the_garbage_collector(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))

        async def calls(count):
            for _ in range(count):
                await caller.answer("__call__", 1)
                await asyncio.to_thread(DeploymentResponse(caller.call("__call__", 2)).result, TIMEOUT_S)
                response = DeploymentResponse(caller.call("__call__", 3))
                response.cancel()
                with pytest.raises(CallCancelledError):
                    await response
            await caller.until(lambda: not caller.router._calls)

        assert await left_for_the_collector(calls, 100, Call) < 10

    played(tmp_path, scenario)


class Lost:
    """What cannot be read again."""

    def __reduce__(self):
        return _cannot, ()


def _cannot():
    raise ModuleNotFoundError("not here")


def test_arguments_that_a_replica_cannot_read_fail_their_call_and_no_other(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        waiting = DeploymentResponse(caller.call("wait"))
        await begun(user)
        with pytest.raises(ModuleNotFoundError):
            await caller.answer("later", Lost())
        user.instance.gate.set()
        return await waiting

    assert played(tmp_path, scenario) == "waited"


def test_a_closed_router_keeps_no_connection(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        assert await caller.answer("later", 1) == 1
        caller.router.close(InvalidCallError("no more"))
        await caller.until(lambda: not server._connections)
        with contextlib.suppress(InvalidCallError):
            await caller.answer("later", 2)
        return caller.router._calls

    assert played(tmp_path, scenario) == {}


def test_a_large_result_is_passed_on_by_reference():
    from executors.ray_gpu.requests.packing import pack_call

    assert pack_call("add", ((Reference("where it lies"), 1), {})) is None


def test_callers_that_compete_for_few_credits_are_all_served(tmp_path):
    async def scenario(user, server):
        callers = [Caller(max_ongoing_requests=3) for _ in range(4)]
        for caller in callers:
            caller.follow((0, server))
        responses = [DeploymentResponse(caller.call("hold", 0.01)) for caller in callers for _ in range(10)]
        async with asyncio.timeout(TIMEOUT_S):
            return [await each for each in responses]

    at_once = played(tmp_path, scenario, max_ongoing_requests=3)
    assert len(at_once) == 40
    assert set(at_once) <= {1, 2, 3}


def gated(user):
    """Calls of `gated` end one by one, as they are let go."""
    under_way = []

    async def hold():
        under_way.append(ending := asyncio.get_running_loop().create_future())
        await ending

    def let_go(which=0):
        user.loop.call_soon_threadsafe(under_way.pop(which).set_result, None)

    user.instance.gated = hold
    return under_way, let_go


def test_callers_that_always_have_more_to_ask_keep_a_replica_full(tmp_path):
    """A credit that one had in flight, when it was granted others again, was nobody's for ever."""

    async def scenario(user, server):
        under_way, let_go = gated(user)
        callers = [Caller(max_ongoing_requests=3) for _ in range(4)]
        callers[0].follow((0, server))
        responses = [DeploymentResponse(callers[0].call("gated")) for _ in range(6)]
        await callers[0].until(lambda: len(under_way) == 3)
        for caller in callers[1:]:
            caller.follow((0, server))
            responses += [DeploymentResponse(caller.call("gated")) for _ in range(6)]
        for left in range(len(responses), 0, -1):
            await callers[0].until(lambda left=left: len(under_way) == min(3, left))
            let_go(left % len(under_way))
        for each in responses:
            await each

    played(tmp_path, scenario, max_ongoing_requests=3)


def test_a_caller_does_not_wait_long_for_a_replica_whose_credits_are_anothers(tmp_path, monkeypatch):
    monkeypatch.setattr(ways, "MEET_S", 10 * TIMEOUT_S)

    async def scenario(user, server):
        under_way, let_go = gated(user)
        first, second = Caller(max_ongoing_requests=1), Caller(max_ongoing_requests=1)
        first.follow((0, server))
        busy = [DeploymentResponse(first.call("gated")) for _ in range(2)]
        await first.until(lambda: under_way)
        second.follow((0, server))
        asked = DeploymentResponse(second.call("gated"))
        await second.connected()
        for _ in range(3):
            await first.until(lambda: under_way)
            let_go()
        for each in (asked, *busy):
            await each

    played(tmp_path, scenario, max_ongoing_requests=1)


def test_waiting_that_would_block_an_event_loop_raises_at_once_and_says_what_to_do_instead(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        response, answered = (DeploymentResponse(caller.call("later", each)) for each in (1, 2))
        await answered
        for each in (response, answered):  # whether the answer is there is a matter of chance
            with pytest.raises(InvalidCallError, match=r"use `await response`"):
                each.result()
            with pytest.raises(InvalidCallError, match=r"response.result\(\) would block the event loop"):
                each.result(timeout_s=0)
        stream = DeploymentResponseGenerator(Call("items", About("", "", True)))
        with pytest.raises(InvalidCallError, match=r"use `async for`"):
            next(iter(stream))
        assert await asyncio.to_thread(response.result, TIMEOUT_S) == 1
        return await response

    assert played(tmp_path, scenario) == 1


def test_a_stream_as_an_argument_is_an_error_that_says_so():
    async def play():
        stream = DeploymentResponseGenerator(Call("items", About("", "", True)))
        for argument in (stream, [stream]):
            with pytest.raises(TypeError, match="a stream cannot be an argument of a call"):
                Caller().call("__call__", argument)

    asyncio.run(play())


def test_calls_that_fail_and_calls_that_wait_for_others_leave_nothing_for_it_either(tmp_path):
    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))

        async def calls(count):
            for _ in range(count):
                for method, wishes in (("no_such_method", Wishes()), ("__call__", Wishes(rank=9))):
                    with contextlib.suppress(AttributeError, CallError):
                        await caller.answer(method, wishes=wishes)
                    with contextlib.suppress(AttributeError, CallError):
                        call = caller.call(method, wishes=wishes)
                        await caller.until(call.answer.done)
                        await DeploymentResponse(call)
                await caller.answer("__call__", DeploymentResponse(caller.call("__call__", 1)))
            await caller.until(lambda: not caller.router._calls)

        assert await left_for_the_collector(calls, 50, Call, AttributeError, CallError) < 10

    played(tmp_path, scenario)


@pytest.mark.parametrize("is_early", [True, False], ids=["before the routes", "after the routes"])
def test_the_controller_is_told_at_once_of_a_call_that_nobody_is_there_for(is_early):
    async def play():
        caller, told = Caller(), []
        caller.router.when_unserved = lambda: told.append((caller.router.unserved, caller.router.report_every_s))

        def learn():
            caller.router.follow(Routes((), 0, caller.spec, report_every_s=0.5))

        if is_early:
            caller.call("echo", 1)
            await caller.until(lambda: caller.router.waiting)
            learn()
        else:
            learn()
            assert not told, "nobody waits"
            caller.call("echo", 1)
            await caller.until(lambda: caller.router.waiting)
        assert told == [(1, 0.5)], "told once it was known that there is nobody"

    asyncio.run(play())


def test_calls_of_a_deployment_that_has_failed_end_with_its_reason_and_those_that_run_go_on(tmp_path):
    problem = "m is DEPLOY_FAILED: version '1' failed to start 3 times\nTraceback: ..."

    async def scenario(user, server):
        caller = Caller()
        caller.follow((0, server))
        await caller.connected()
        running = caller.call("wait")
        await begun(user)
        caller.router.follow(Routes((), 1, caller.spec))
        waiting = caller.call("__call__")
        await asyncio.sleep(0.05)
        assert not waiting.answer.done()
        caller.router.follow(Routes((), 1, caller.spec, None, problem))
        with pytest.raises(UnavailableError) as waited:
            await DeploymentResponse(waiting)
        with pytest.raises(UnavailableError) as asked:
            await caller.answer("__call__")
        assert not running.answer.done()
        user.instance.gate.set()
        found = await DeploymentResponse(running)
        caller.follow((0, server))
        return str(waited.value), asked.value.reason, found, await caller.answer("__call__", 7)

    waited, reason, found, later = played(tmp_path, scenario)
    assert waited == problem
    assert reason == f"{problem.splitlines()[0]}\n`rankcore status` says more"
    assert (found, later) == ("waited", 7)


def test_a_controller_that_is_silent_is_asked_anew_and_its_late_end_is_nobodys(monkeypatch):
    late, complaints = [Future()], []
    question = SimpleNamespace(remote=lambda *_: SimpleNamespace(future=lambda: late[0]))
    controller = SimpleNamespace(watch=SimpleNamespace(options=lambda **_: question))

    async def find_actor(*_):
        return controller

    monkeypatch.setattr(caller_module, "find_actor", find_actor)
    monkeypatch.setattr(caller_module, "connection", lambda: "cluster")
    monkeypatch.setattr(caller_module, "SILENT_S", 0.02)
    monkeypatch.setattr(caller_module, "LOOK_S", 0.01)

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        process = caller_module.CallingProcess("rankcore", "cluster")
        process._routers["m"] = Caller().router
        with pytest.raises(NoAnswerError, match=r"has not answered for 0\.02 s"):
            await process._ask()
        late.pop().set_exception(OSError("the controller has ended"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(scenario())
    gc.collect()
    assert complaints == []


def test_a_broadcast_that_keeps_errors_waits_for_all_and_one_that_does_not_for_the_first(tmp_path):
    async def refuse(value):
        raise ValueError(f"not {value}")

    async def asked(caller, **wishes):
        async with asyncio.timeout(TIMEOUT_S):
            return await DeploymentBroadcastResponse(
                DeploymentResponse(caller.call("later", 3, wishes=Wishes(**wishes)))
            ).results_async(return_exceptions=True)

    async def play(first, second):
        caller = Caller()
        caller.follow((0, first), (1, second))
        kept = await asked(caller, broadcast=True, keep_failures=True)
        with pytest.raises(ValueError, match="not 3"):
            await DeploymentResponse(caller.call("later", 3, wishes=Wishes(broadcast=True)))
        return kept

    for each in ("a", "b"):
        (tmp_path / each).mkdir()
    with replica(tmp_path / "a") as (_, first), replica(tmp_path / "b") as (user, second):
        user.instance.later = refuse
        answered, raised = asyncio.run(play(first, second))
    assert answered == 3
    assert str(raised) == "not 3"


def test_a_call_that_is_named_by_its_number_has_that_name_at_the_replica_too(tmp_path):
    async def seen(value):
        return get_request_context().request_id

    async def play(server):
        caller = Caller()
        caller.follow((0, server))
        calls = [caller.call("later", 1) for _ in range(2)]
        unnamed = calls.pop()
        named = Call("later", wishes=Wishes())
        named.number = next_number()
        submit(named, ((1,), {}), caller.router)
        async with asyncio.timeout(TIMEOUT_S):
            found = [await DeploymentResponse(each) for each in (named, unnamed)]
        return found, [DeploymentResponse(each).request_id for each in (named, unnamed)]

    with replica(tmp_path) as (user, server):
        user.instance.later = seen
        found, said = asyncio.run(play(server))
    assert found == said
    assert (uuid.UUID(said[0]).version, said[1]) == (4, "")


def test_of_a_broadcast_that_keeps_failures_a_rank_that_nobody_has_is_left_out(tmp_path):
    async def play(first):
        caller = Caller()
        caller.follow((1, first), world_size=2)
        await caller.connected(1)
        async with asyncio.timeout(TIMEOUT_S):
            return await DeploymentBroadcastResponse(
                DeploymentResponse(caller.call("later", 3, wishes=Wishes(broadcast=True, keep_failures=True)))
            ).results_async()

    with replica(tmp_path) as (_, first):
        assert asyncio.run(play(first)) == [3]


def test_of_a_broadcast_that_keeps_failures_who_dies_has_its_exception_in_its_place(tmp_path):
    async def play(user, first, second):
        caller = Caller()
        caller.follow((0, first), (1, second))
        await caller.connected(2)
        whole = DeploymentBroadcastResponse(
            DeploymentResponse(caller.call("later", 3, wishes=Wishes(broadcast=True, keep_failures=True)))
        )
        await begun(user)
        break_connections(user, second)
        async with asyncio.timeout(TIMEOUT_S):
            kept = await whole.results_async(return_exceptions=True)
            with pytest.raises(ReplicaGoneError, match="was lost"):
                await whole.results_async()
        return kept

    async def never(value):
        user.instance.begun.set()
        await asyncio.sleep(TIMEOUT_S)

    for each in ("a", "b"):
        (tmp_path / each).mkdir()
    with replica(tmp_path / "a") as (_, first), replica(tmp_path / "b") as (user, second):
        user.instance.later = never
        answered, gone = asyncio.run(play(user, first, second))
    assert answered == 3
    assert isinstance(gone, ReplicaGoneError)
    assert gone.__cause__ is None, "nothing was raised over there"
