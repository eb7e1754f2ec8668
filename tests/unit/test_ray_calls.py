"""Calls between a handle's process and a replica, over a real socket and without a cluster: each gets one answer."""

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
import time
import types

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray import cloudpickle
from ray.exceptions import ActorDiedError, ActorUnavailableError, RaySystemError

from executors.ray_gpu import context
from executors.ray_gpu.context import ReplicaContext
from executors.ray_gpu.errors import CallCancelledError, NoAnswerError, RemoteError
from executors.ray_gpu.messages import Change
from executors.ray_gpu.requests.call import Call
from executors.ray_gpu.requests.channel import Attempt, Channel
from executors.ray_gpu.requests.frames import ERROR, LARGE, REFUSED, VALUE
from executors.ray_gpu.requests.packing import LARGE_BYTES, NOTHING_SAID, About, unpack
from executors.ray_gpu.requests.request_context import get_request_context
from executors.ray_gpu.requests.response import DeploymentResponse
from executors.ray_gpu.requests.server import HTTP, CallServer
from executors.ray_gpu.requests.streams import WINDOW_BYTES
from executors.ray_gpu.requests.transports import SocketTransport
from executors.ray_gpu.user_code import Code, UserCode, traceback_of

TIMEOUT_S = 120


class Heard:
    """A router that only takes note."""

    def __init__(self):
        self.answers = {}
        self.failures = {}
        self.granted_credits = []
        self.parted_from = []
        self.lost_with = None
        self.news = asyncio.Event()

    def begun(self, attempt):
        pass

    def answered(self, attempt, kind, payload):
        self.answers[attempt.call.request_id] = kind, payload
        if attempt.call.stream is not None:
            attempt.call.stream.end(payload if kind == ERROR else None)
        self.news.set()

    def failed(self, attempt, reason):
        self.failures[attempt.call.request_id] = reason
        self.news.set()

    def granted(self, channel):
        self.granted_credits += channel.take_grants()
        self.news.set()

    def parted(self, channel):
        self.parted_from.append(channel.replica_id)
        self.news.set()

    def lost(self, channel, unanswered):
        self.lost_with = [attempt.call.request_id for attempt in unanswered]
        self.news.set()

    async def until(self, condition):
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                self.news.clear()
                await self.news.wait()


class Model:
    """What the tests call."""

    def __init__(self):
        self.seen = []
        self.held = 0
        self.gate = threading.Event()
        self.begun = threading.Event()

    def __call__(self, value="here"):
        return value

    async def later(self, value):
        await asyncio.sleep(0)
        return value

    async def hold(self, wait_s):
        self.held += 1
        held = self.held
        await asyncio.sleep(wait_s)
        self.held -= 1
        return held

    def leave(self):
        raise SystemExit("no more")

    async def leave_later(self):
        await asyncio.sleep(0)
        raise SystemExit("no more")

    async def cancelled(self):
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    def stop_iteration(self):
        raise StopIteration("odd")

    def wait(self):
        self.begun.set()
        assert self.gate.wait(TIMEOUT_S)
        return "waited"

    async def for_ever(self):
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            self.gate.set()
            raise

    def what_was_seen(self):
        return self.seen

    def note(self, value):
        self.seen.append(value)

    def request(self):
        return get_request_context()

    def large(self):
        return bytes(2 * LARGE_BYTES)

    def count(self, upto, size_bytes=0):
        try:
            for number in range(upto):
                self.seen.append(number)
                yield (number, bytes(size_bytes)) if size_bytes else number
        finally:
            self.seen.append("closed")

    async def count_later(self, upto):
        for number in range(upto):
            await asyncio.sleep(0)
            yield number

    def fail_at(self, number):
        yield from range(number)
        raise KeyError(number)


class Waits(Model):
    """One that is asked by HTTP waits too."""

    def __call__(self, request):
        return self.wait()


async def close_listener(server):
    server._server.close()


def end(user):
    """End the user's thread and its loop: a loop left to the garbage collector closes descriptors that others have by then."""
    user.loop.call_soon_threadsafe(user.loop.stop)
    ended = time.monotonic() + TIMEOUT_S
    while user.loop.is_running():
        assert time.monotonic() < ended, "the user's loop goes on"
        time.sleep(0.001)
    left = asyncio.all_tasks(user.loop)
    for task in left:
        task.cancel()
    user.loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
    user.loop.close()


@contextlib.contextmanager
def replica(folder, target=Model, max_ongoing_requests=5, **code):
    """A replica's user thread and call server, listening on a socket."""
    user = UserCode(Code("m", "1", "Model", "default", cloudpickle.dumps((target, (), {})), (), {}, **code))
    user._loaded.result(TIMEOUT_S)
    user.instance = target()
    server = CallServer(user, str(folder / "socket"), max_ongoing_requests)
    user.submit(server.listen()).result(TIMEOUT_S)
    server.accepting = True
    try:
        yield user, server
    finally:
        user.instance.gate.set()
        user.submit(close_listener(server)).result(TIMEOUT_S)
        end(user)


@contextlib.asynccontextmanager
async def connected(server):
    heard = Heard()
    channel = Channel("m#1.0", heard, None)
    await asyncio.get_running_loop().create_unix_connection(lambda: SocketTransport(channel), server._socket_path)
    try:
        yield channel, heard
    finally:
        channel.close()


numbers = iter(range(1_000_000))


def begin(channel, method, *args, about=NOTHING_SAID):
    call = Call(method, about)
    call.request_id = next(numbers)
    call.pack((args, {}))
    channel.send(Attempt(call, 1, None))
    return call


def stop(channel, call):
    channel.stop(call.request_id, 1, None)


def played(folder, scenario, **options):
    """Run a scenario against a replica."""
    with replica(folder, **options) as (user, server):

        async def play():
            async with connected(server) as (channel, heard):
                return await scenario(channel, heard, user, server)

        return asyncio.run(play())


async def answer(channel, heard, method, *args, **options):
    call = begin(channel, method, *args, **options)
    await heard.until(lambda: call.request_id in heard.answers)
    return heard.answers[call.request_id]


async def under_way(user, server):
    """Asked on the user's thread: an answer may be here before its call is taken off there."""

    async def ask():
        return server.under_way

    return await asyncio.wrap_future(user.submit(ask()))


def items(call):
    from executors.ray_gpu.requests.response import DeploymentResponseGenerator

    return DeploymentResponseGenerator(call)


def test_calls_are_answered_whoever_ends_first(tmp_path):
    async def scenario(channel, heard, user, server):
        waiting = begin(channel, "wait")
        assert unpack(*await answer(channel, heard, "later", 3)) == 3, "an asynchronous call passes a synchronous one"
        user.instance.gate.set()
        await heard.until(lambda: waiting.request_id in heard.answers)
        return unpack(*heard.answers[waiting.request_id])

    assert played(tmp_path, scenario) == "waited"


def test_synchronous_calls_run_one_after_another_unless_threads_are_asked_for(tmp_path):
    async def scenario(channel, heard, user, server):
        waiting = begin(channel, "wait")
        second = begin(channel, "note", "second")
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)
        if user.code.sync_threads == 1:
            assert (await answer(channel, heard, "later", 1))[0] == VALUE
            assert user.instance.seen == [], "the second waits for the first"
        else:
            await heard.until(lambda: second.request_id in heard.answers)
        user.instance.gate.set()
        await heard.until(lambda: {waiting.request_id, second.request_id} <= heard.answers.keys())
        return user.instance.seen

    assert played(tmp_path, scenario) == ["second"]
    (tmp_path / "two").mkdir()
    assert played(tmp_path / "two", scenario, sync_threads=2) == ["second"]


@pytest.mark.parametrize("method", ["leave", "leave_later", "cancelled"])
def test_a_call_that_ends_in_no_error_has_an_answer_and_the_replica_lives_on(tmp_path, method):
    async def scenario(channel, heard, user, server):
        with pytest.raises(RemoteError, match=r"SystemExit|CancelledError"):
            unpack(*await answer(channel, heard, method))
        return unpack(*await answer(channel, heard, "__call__"))

    assert played(tmp_path, scenario) == "here"


def test_stop_iteration_of_user_code_is_an_error_like_any_other(tmp_path):
    async def scenario(channel, heard, user, server):
        with pytest.raises(RuntimeError, match="StopIteration"):
            unpack(*await answer(channel, heard, "stop_iteration"))

    played(tmp_path, scenario)


def test_a_cancelled_call_is_cancelled_in_the_replica(tmp_path):
    async def scenario(channel, heard, user, server):
        call = begin(channel, "for_ever")
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)
        stop(channel, call)
        await heard.until(lambda: call.request_id in heard.answers)
        return user.instance.seen, await under_way(user, server)

    assert played(tmp_path, scenario) == (["cancelled"], 0)


def test_a_synchronous_call_that_is_cancelled_before_it_begins_never_runs(tmp_path):
    async def scenario(channel, heard, user, server):
        begin(channel, "wait")
        never = begin(channel, "note", "never")
        stop(channel, never)
        assert (await answer(channel, heard, "later", 1))[0] == VALUE
        user.instance.gate.set()
        await heard.until(lambda: never.request_id in heard.answers)
        return user.instance.seen

    assert played(tmp_path, scenario) == []


@pytest.mark.parametrize("method", ["for_ever", "wait"])
def test_a_call_that_somebody_else_ends_is_shown_before_and_its_caller_is_told_why(tmp_path, method):
    async def scenario(channel, heard, user, server):
        call = begin(channel, method, about=About(request_id="r-1"))
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)
        (shown,) = await asyncio.wrap_future(user.submit(server.requests()))
        assert (shown["method"], shown["request_id"], shown["age_s"] > 0) == (method, "r-1", True)
        ended = server.end_request(shown["key"], shown["call_id"], "it hangs")
        assert await asyncio.wrap_future(user.submit(ended))
        user.instance.gate.set()
        await heard.until(lambda: call.request_id in heard.answers)
        with pytest.raises(CallCancelledError, match="it hangs"):
            unpack(*heard.answers[call.request_id])
        assert not await asyncio.wrap_future(user.submit(server.end_request(shown["key"], 12345, "")))
        return await under_way(user, server), await asyncio.wrap_future(user.submit(server.requests()))

    assert played(tmp_path, scenario) == (0, [])


def test_a_call_that_is_ended_before_it_begins_has_an_answer_too(tmp_path):
    async def scenario(channel, heard, user, server):
        begin_call = server.begin

        def ended_at_once(*arguments):
            running = begin_call(*arguments)
            running.end("too many")
            return running

        server.begin = ended_at_once
        with pytest.raises(CallCancelledError, match="too many"):
            unpack(*await answer(channel, heard, "later", 1))
        return await under_way(user, server)

    assert played(tmp_path, scenario) == 0


GET = {"type": "http", "path": "/", "method": "GET", "query_string": b"", "headers": []}


def test_a_synchronous_call_that_is_cancelled_while_it_runs_counts_until_it_has_ended(tmp_path):
    async def scenario(channel, heard, user, server):
        call = begin(channel, "wait")
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)
        stop(channel, call)
        assert (await answer(channel, heard, "later", 1))[0] == VALUE
        counted = await under_way(user, server)
        user.instance.gate.set()
        await heard.until(lambda: call.request_id in heard.answers)
        return counted, await under_way(user, server)

    assert played(tmp_path, scenario) == (1, 0)


@pytest.mark.parametrize(("method", "arguments"), [("wait", ()), (HTTP, (GET, b"", False))])
def test_a_synchronous_call_that_is_cancelled_again_counts_until_it_has_ended(tmp_path, method, arguments):
    """Such as by code around it that has a time-out of its own."""

    async def scenario(channel, heard, user, server):
        user.instance.__class__ = Waits
        call = begin(channel, method, *arguments, about=About("", "", method == HTTP))
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)

        async def cancel():
            (running,) = (each for connection in server._connections.values() for each in connection._running.values())
            for _ in range(3):
                running.task.cancel()
                for _ in range(10):
                    await asyncio.sleep(0)

        await asyncio.wrap_future(user.submit(cancel()))
        counted = await under_way(user, server)
        user.instance.gate.set()
        await heard.until(lambda: call.request_id in heard.answers)
        return counted, await under_way(user, server)

    assert played(tmp_path, scenario) == (1, 0)


def test_callers_that_vanish_end_what_runs_for_them(tmp_path):
    async def scenario(channel, heard, user, server):
        begin(channel, "for_ever")
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)
        channel._transport._transport.abort()
        await heard.until(lambda: heard.lost_with is not None)
        await asyncio.to_thread(user.instance.gate.wait, TIMEOUT_S)
        return len(heard.lost_with), user.instance.seen

    assert played(tmp_path, scenario) == (1, ["cancelled"])


def test_streams_come_item_by_item_from_both_kinds_of_generators(tmp_path):
    async def scenario(channel, heard, user, server):
        call = begin(channel, "count", 5, about=About(stream=True))
        later = begin(channel, "count_later", 5, about=About(stream=True))
        return [each async for each in items(call)], [each async for each in items(later)]

    assert played(tmp_path, scenario) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])


def test_what_a_stream_has_yielded_before_it_fails_is_delivered(tmp_path):
    async def scenario(channel, heard, user, server):
        call = begin(channel, "fail_at", 3, about=About(stream=True))
        stream = items(call)
        found = [await anext(stream) for _ in range(3)]
        with pytest.raises(KeyError):
            await anext(stream)
        return found

    assert played(tmp_path, scenario) == [0, 1, 2]


def test_a_stream_that_nobody_reads_waits_for_its_reader_and_ends_with_it(tmp_path):
    size_bytes = WINDOW_BYTES // 4

    async def scenario(channel, heard, user, server):
        call = begin(channel, "count", 100, size_bytes, about=About(stream=True))
        stream = items(call)
        assert (await anext(stream))[0] == 0
        assert (await answer(channel, heard, "later", 1))[0] == VALUE, "others are served meanwhile"
        sent = len(user.instance.seen)
        for _ in range(19):
            await anext(stream)
        stop(channel, call)
        await heard.until(lambda: call.request_id in heard.answers)
        return sent, len(user.instance.seen), user.instance.seen[-1]

    sent, in_all, last = played(tmp_path, scenario)
    assert sent <= 7, "a window of four, what was consumed, and the one that waits"
    assert 20 < in_all < 30, "it went on as it was read, and no further"
    assert last == "closed"


@pytest.mark.parametrize(
    ("method", "stream", "told"),
    [("count", False, "call it with handle.options.stream=True"), ("__call__", True, "call it without stream=True")],
)
def test_streaming_what_is_no_generator_or_the_reverse_says_what_to_do(tmp_path, method, stream, told):
    async def scenario(channel, heard, user, server):
        call = begin(channel, method, 3, about=About(stream=stream))
        await heard.until(lambda: call.request_id in heard.answers)
        with pytest.raises(TypeError, match=told):
            unpack(*heard.answers[call.request_id])

    played(tmp_path, scenario)


def test_user_code_knows_which_request_it_answers_on_threads_too(tmp_path):
    async def scenario(channel, heard, user, server):
        said = unpack(*await answer(channel, heard, "request", about=About("r7", "french")))
        nothing = unpack(*await answer(channel, heard, "request"))
        return said.request_id, said.multiplexed_model_id, nothing.request_id

    assert played(tmp_path, scenario) == ("r7", "french", "")


class Actor:
    """A replica's actor, whose calls run at once on its user's thread, and may be made to fail."""

    def __init__(self, user, server):
        self._user, self._server = user, server
        self.fails_with = None
        self.finding = asyncio.Event()
        self.finding.set()
        self.fetch = self._method(lambda key, call_id: server.fetch(key, call_id))
        self.call_large = self._method(
            lambda key, call_id, method, about, arguments: server.call_large(key, call_id, method, arguments, about)
        )

    async def find(self):
        await self.finding.wait()
        return self

    def _method(self, make):
        class Sent:
            def __init__(sent, *args):
                sent.args = args

            def future(sent):
                if self.fails_with is not None:
                    failed = concurrent.futures.Future()
                    failed.set_exception(self.fails_with)
                    return failed
                return self._user.submit(make(*sent.args))

        return types.SimpleNamespace(remote=Sent)


def begin_large(channel, method, *args):
    call = Call(method)
    call.request_id = next(numbers)
    call.arguments = args, {}
    channel.send(Attempt(call, 1, None))
    return call


def played_large(folder, scenario):
    async def with_actor(channel, heard, user, server):
        actor = Actor(user, server)
        channel._find_actor = actor.find
        await heard.until(lambda: heard.granted_credits)
        async with asyncio.timeout(2 * TIMEOUT_S):
            return await scenario(channel, heard, user, server, actor)

    return played(folder, with_actor)


async def kept(user, server):
    async def ask():
        return sum(len(each._results) for each in server._connections.values())

    return await asyncio.wrap_future(user.submit(ask()))


def test_a_large_result_is_kept_until_its_caller_has_it_and_no_longer(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        actor.finding.clear()
        call = begin(channel, "large")
        while not await kept(user, server):
            await asyncio.sleep(0.01)
        drained = user.submit(server.drain())
        await heard.until(lambda: heard.parted_from)
        assert not drained.done(), "the replica may not end before"
        actor.finding.set()
        await heard.until(lambda: call.request_id in heard.answers)
        kind, payload = heard.answers[call.request_id]
        await asyncio.wrap_future(drained)
        return kind, len(payload.value), await kept(user, server)

    assert played_large(tmp_path, scenario) == (LARGE, 2 * LARGE_BYTES, 0)


def test_a_large_result_that_is_lost_with_its_replica_is_no_answer_and_can_be_asked_for_again(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        actor.fails_with = ActorDiedError()
        call = begin(channel, "large")
        await heard.until(lambda: call.request_id in heard.failures)
        return heard.answers

    assert played_large(tmp_path, scenario) == {}


@pytest.mark.parametrize("error", [ActorUnavailableError("no network", None), ValueError("no such actor")])
def test_large_arguments_that_may_not_have_arrived_leave_no_call_without_an_answer(tmp_path, error):
    async def scenario(channel, heard, user, server, actor):
        actor.fails_with = error
        call = begin_large(channel, "later", 1)
        await heard.until(lambda: call.request_id in heard.failures)
        await asyncio.wrap_future(user.submit(server.drain()))  # nor does it wait for them

    played_large(tmp_path, scenario)


def test_large_arguments_that_the_replica_cannot_read_are_an_error_and_hold_up_no_draining(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        actor.fails_with = RaySystemError("no module")
        call = begin_large(channel, "later", 1)
        drained = user.submit(server.drain())
        await heard.until(lambda: call.request_id in heard.answers)
        with pytest.raises(TypeError, match="no module"):
            unpack(*heard.answers[call.request_id])
        await asyncio.wrap_future(drained)

    played_large(tmp_path, scenario)


async def answer_large(channel, heard, method, *args):
    call = begin_large(channel, method, *args)
    await heard.until(lambda: call.request_id in heard.answers)
    return heard.answers[call.request_id]


def test_a_large_call_whose_replica_says_goodbye_before_it_is_sent_goes_elsewhere(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        actor.finding.clear()
        call = begin_large(channel, "note", 1)
        drained = user.submit(server.drain())
        await heard.until(lambda: heard.parted_from)
        actor.finding.set()
        await heard.until(lambda: call.request_id in heard.answers)
        await asyncio.wrap_future(drained)
        return heard.answers[call.request_id][0], user.instance.seen

    assert played_large(tmp_path, scenario) == (REFUSED, [])


def test_a_large_call_whose_replica_cannot_be_found_goes_elsewhere(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        async def nowhere():
            raise ValueError("no such actor")

        channel._find_actor = nowhere
        return (await answer_large(channel, heard, "note", 1))[0], user.instance.seen

    assert played_large(tmp_path, scenario) == (REFUSED, [])


def test_a_large_call_that_is_cancelled_on_its_way_is_cancelled_in_the_replica(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        never = begin_large(channel, "note", "never")
        stop(channel, never)
        actor.finding.clear()
        on_its_way = begin_large(channel, "for_ever")
        actor.finding.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stop(channel, on_its_way)
        await heard.until(lambda: {never.request_id, on_its_way.request_id} <= heard.answers.keys())
        return "never" in user.instance.seen, await under_way(user, server)

    assert played_large(tmp_path, scenario) == (False, 0)


def test_a_connection_that_is_closed_ends_with_its_last_large_result(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        actor.finding.clear()
        begin(channel, "large")
        while not await kept(user, server):
            await asyncio.sleep(0.01)
        channel.close()
        actor.finding.set()
        await heard.until(lambda: heard.lost_with is not None)
        return heard.lost_with

    assert played_large(tmp_path, scenario) == []


def test_draining_says_goodbye_answers_what_came_and_refuses_what_comes_too_late(tmp_path):
    async def scenario(channel, heard, user, server):
        waiting = begin(channel, "wait")
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)
        drained = user.submit(server.drain())
        await heard.until(lambda: heard.parted_from)
        assert not drained.done(), "a call is under way"
        user.instance.gate.set()
        await heard.until(lambda: waiting.request_id in heard.answers)
        await asyncio.wrap_future(drained)
        return heard.answers[waiting.request_id][0], (await answer(channel, heard, "__call__"))[0]

    assert played(tmp_path, scenario) == (VALUE, REFUSED)


def test_an_unknown_method_says_which_there_are(tmp_path):
    async def scenario(channel, heard, user, server):
        with pytest.raises(AttributeError, match=r"m has no method 'predict'; there is: .*later"):
            unpack(*await answer(channel, heard, "predict"))

    played(tmp_path, scenario)


class SlowToBuild:
    """Its `__init__` is asynchronous, as Ray Serve allows."""

    async def __init__(self, name):
        await asyncio.sleep(0)
        self.name = name


class Refuses:
    """Leaves instead of starting."""

    def __init__(self):
        raise SystemExit("no weights")


class Configured:
    """Its reconfigure looks whether a call runs beside it."""

    def __init__(self):
        self.running = False
        self.beside = []

    def reconfigure(self, user_config):
        self.beside.append(self.running)
        time.sleep(0.01)
        self.beside.append(self.running)

    def call(self):
        self.running = True
        time.sleep(0.01)
        self.running = False


def user_code(target, *args):
    return UserCode(Code("m", "1", target.__name__, "default", cloudpickle.dumps((target, args, {})), (), {}))


def started(target, *args):
    user = user_code(target, *args)
    context.set_context(ReplicaContext("default", "m", "m#1.0", (0, 0, 0), 1, "node", "rankcore"))
    try:
        user.submit(user.start(Change(1, 1, True, (0, 0, 0), 1, None))).result(TIMEOUT_S)
        return user.instance
    finally:
        end(user)


def test_an_asynchronous_init_is_awaited(monkeypatch):
    monkeypatch.setattr(context, "_current", None)
    assert started(SlowToBuild, "m").name == "m"


def test_leaving_in_init_is_a_failed_start(monkeypatch):
    monkeypatch.setattr(context, "_current", None)
    with pytest.raises(RemoteError, match="user code raised SystemExit: no weights") as caught:
        started(Refuses)
    told = traceback_of(caught.value)
    assert "in __init__" in told
    assert "user_code.py" not in told, "the user's own frames alone"


def test_a_reconfigure_never_runs_beside_a_synchronous_call(monkeypatch):
    monkeypatch.setattr(context, "_current", None)
    context.set_context(ReplicaContext("default", "m", "m#1.0", (0, 0, 0), 1, "node", "rankcore"))
    user = user_code(Configured)
    user.submit(user.start(Change(1, 1, True, (0, 0, 0), 1, "a", {"a": 1}))).result(TIMEOUT_S)

    async def both():
        calls = [asyncio.create_task(user.threads.run(user.instance.call)) for _ in range(20)]
        for number in range(5):
            await user.change(Change(1, 2 + number, False, (0, 0, 0), 1, f"b{number}", {"a": number}))
        await asyncio.gather(*calls)

    user.submit(both()).result(TIMEOUT_S)
    assert user.instance.beside == [False] * 12
    end(user)


def test_an_answer_that_does_not_come_in_time_is_an_error_that_says_so():
    call = Call("predict")
    with pytest.raises(TimeoutError, match=r"no answer to 'predict' within 0\.01 s\. The call goes on"):
        DeploymentResponse(call).result(timeout_s=0.01)
    call.fail(NoAnswerError("the controller hangs"))
    with pytest.raises(NoAnswerError, match="the controller hangs"):
        DeploymentResponse(call).result(timeout_s=0.01)


class Unsure:
    """A class whose `check_ready` says what a test wants it to."""

    def __init__(self, answer):
        self.answer = answer

    @property
    def check_ready(self):
        if self.answer is None:
            raise ValueError("nobody knows")
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: None, None),
        (lambda: "no", None),
        (lambda: "", "check_ready returned ''"),
        (lambda: sys.exit(3), "SystemExit: 3"),
        (True, "'bool' object is not callable"),
        (None, "ValueError: nobody knows"),
    ],
)
def test_whatever_check_ready_does_says_whether_it_takes_requests(answer, said):
    user = user_code(Unsure, answer)
    try:
        user.submit(user.build()).result(TIMEOUT_S)
        problem = user.submit(user.check_ready()).result(TIMEOUT_S)
        assert problem == said if said is None else said in problem
    finally:
        end(user)
