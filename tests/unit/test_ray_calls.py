"""Calls between handles and replicas, without a cluster: what is given up harms no other call, and each gets an answer."""

import asyncio
import pickle

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray import cloudpickle

from executors.ray_gpu import context
from executors.ray_gpu.channel import SocketChannel
from executors.ray_gpu.context import ReplicaContext
from executors.ray_gpu.errors import RemoteError, ReplicaGoneError
from executors.ray_gpu.messages import Change
from executors.ray_gpu.router import Call
from executors.ray_gpu.server import CallServer
from executors.ray_gpu.user_code import Code, UserCode, traceback_of
from executors.ray_gpu.wire import ANSWER, VALUE, pack_call, unpack

TIMEOUT_S = 10


class Wire:
    """Takes what is written."""

    def __init__(self):
        self.written = b""

    def write(self, data):
        self.written += data

    def close(self):
        pass


class Turn:
    """A router that only takes note."""

    def __init__(self):
        self.gone = []

    def left(self, channel):
        self.gone.append(channel)


def answer(call_id, value):
    body = pickle.dumps(value)
    return ANSWER.pack(len(body), call_id, VALUE) + body


async def channel_with(*calls):
    channel = SocketChannel("m#1.0", Turn())
    channel.connection_made(Wire())
    for call in calls:
        channel.send(call)
    return channel


def test_a_call_that_its_caller_gave_up_harms_no_other_on_the_connection():
    async def scenario():
        given_up, other = Call(b""), Call(b"")
        channel = await channel_with(given_up, other)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(given_up.answer), 0.001)
        channel.data_received(answer(1, "late") + answer(2, "here"))
        return unpack(*other.answer.result(0))

    assert asyncio.run(scenario()) == "here"


def test_a_dead_replica_is_told_to_all_callers_whoever_gave_up():
    async def scenario():
        given_up, other = Call(b""), Call(b"")
        channel = await channel_with(given_up, other)
        given_up.answer.cancel()
        channel.connection_lost(None)
        return other.answer.exception(0)

    assert isinstance(asyncio.run(scenario()), ReplicaGoneError)


class Model:
    """Ends in ways that are no errors."""

    def leave(self):
        raise SystemExit("no more")

    async def leave_later(self):
        await asyncio.sleep(0)
        raise SystemExit("no more")

    async def cancelled(self):
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    def __call__(self):
        return "here"


@pytest.fixture
def user():
    blob = cloudpickle.dumps((Model, (), {}))
    user = UserCode(Code("m", "1", "Model", "default", blob, (), {}))
    user._loaded.result(TIMEOUT_S)
    user.instance = Model()
    yield user
    user.loop.call_soon_threadsafe(user.loop.stop)


@pytest.mark.parametrize("method", ["leave", "leave_later", "cancelled"])
def test_a_call_that_ends_in_no_error_has_an_answer_and_the_replica_lives_on(user, method):
    server = CallServer(user, "")
    server.accepting = True

    def call(name):
        return user.submit(server.run_for_ray(pack_call(name, (), {}))).result(TIMEOUT_S)

    with pytest.raises(RemoteError, match=r"SystemExit|CancelledError"):
        unpack(*call(method))
    assert unpack(*call("__call__")) == "here"


class SlowToBuild:
    """Its `__init__` is asynchronous, as Ray Serve allows."""

    async def __init__(self, name):
        await asyncio.sleep(0)
        self.name = name


class Refuses:
    """Leaves instead of starting."""

    def __init__(self):
        raise SystemExit("no weights")


def started(target, *args):
    user = UserCode(Code("m", "1", target.__name__, "default", cloudpickle.dumps((target, args, {})), (), {}))
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
