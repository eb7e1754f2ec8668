"""Calls between a handle's process and a replica, over a real socket and without a cluster: each gets one answer."""

import asyncio
import contextlib
import threading
import time

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray import cloudpickle

from executors.ray_gpu import context
from executors.ray_gpu.context import ReplicaContext
from executors.ray_gpu.errors import RemoteError
from executors.ray_gpu.messages import Change
from executors.ray_gpu.requests.call import Call
from executors.ray_gpu.requests.channel import Attempt, Channel
from executors.ray_gpu.requests.frames import ERROR, LARGE, REFUSED, VALUE
from executors.ray_gpu.requests.packing import LARGE_BYTES, NOTHING_SAID, About, unpack
from executors.ray_gpu.requests.request_context import get_request_context
from executors.ray_gpu.requests.server import CallServer
from executors.ray_gpu.requests.streams import WINDOW_BYTES
from executors.ray_gpu.requests.transports import SocketTransport
from executors.ray_gpu.user_code import Code, UserCode, traceback_of

TIMEOUT_S = 30


class Heard:
    """A router that only takes note."""

    def __init__(self):
        self.answers = {}
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

    def granted(self, channel):
        self.granted_credits.append(channel.grant)
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
        self.gate = threading.Event()
        self.begun = threading.Event()

    def __call__(self, value="here"):
        return value

    async def later(self, value):
        await asyncio.sleep(0)
        return value

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
        user.loop.call_soon_threadsafe(user.loop.stop)


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


def test_a_large_result_is_not_sent_but_waits_to_be_fetched_once(tmp_path):
    async def scenario(channel, heard, user, server):
        call = begin(channel, "large")

        class Actor:
            class fetch:
                @staticmethod
                def remote(key, call_id):
                    return user.submit(server.fetch(key, call_id)).result(TIMEOUT_S)

        async def find():
            return Actor

        channel._find_actor = find
        await heard.until(lambda: call.request_id in heard.answers)
        kind, payload = heard.answers[call.request_id]
        with pytest.raises(LookupError):
            user.submit(server.fetch(channel.key, 1)).result(TIMEOUT_S)
        return kind, len(payload)

    assert played(tmp_path, scenario) == (LARGE, 2 * LARGE_BYTES)


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
        user.loop.call_soon_threadsafe(user.loop.stop)


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
    user.loop.call_soon_threadsafe(user.loop.stop)
