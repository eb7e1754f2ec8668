"""Calls to a replica on another node, which go by actor calls that may be lost or overtake each other; without a cluster."""

import asyncio
import types

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from concurrent.futures import Future

from ray.exceptions import ActorDiedError, ActorUnavailableError

from executors.ray_gpu.requests import connection, transports
from executors.ray_gpu.requests import server as call_server
from executors.ray_gpu.requests.channel import Channel
from executors.ray_gpu.requests.frames import (
    CALL,
    CONNECTION,
    GOODBYE,
    HEADER,
    HELLO,
    VALUE,
    Frames,
    caller_of,
    counts,
    key_of,
    replica_meant,
)
from executors.ray_gpu.requests.packing import pack_call, unpack
from executors.ray_gpu.requests.transports import ActorTransport
from tests.unit.test_ray_calls import TIMEOUT_S, Heard, answer, begin, replica


class Actor:
    """A replica's actor. Each method can be made to fail some times, before or after it has had its effect."""

    def __init__(self, user, server):
        self.failures = {"say": [], "hear": []}

        async def say(key, number, data):
            server.mailbox(key).say(number, data)

        async def hang_up(key):
            server.mailbox(key).hang_up()

        for name, make in {"say": say, "hear": server.hear, "hang_up": hang_up}.items():
            setattr(self, name, types.SimpleNamespace(remote=self._calls(name, make, user)))

    def _calls(self, name, make, user):
        def remote(*args):
            failures = self.failures.get(name)
            if not failures:
                made = user.submit(make(*args))
                return types.SimpleNamespace(future=lambda: made)
            error, arrives = failures.pop(0)
            if arrives:
                user.submit(make(*args))
            failed = Future()
            failed.set_exception(error)
            return types.SimpleNamespace(future=lambda: failed)

        return remote


def played(folder, scenario):
    with replica(folder) as (user, server):

        async def play():
            heard = Heard()
            channel = Channel("m#1.0", heard, None)
            actor = Actor(user, server)
            ActorTransport(channel, actor)
            try:
                async with asyncio.timeout(2 * TIMEOUT_S):
                    await heard.until(lambda: heard.granted_credits)
                    return await scenario(channel, heard, user, server, actor)
            finally:
                channel.close()
                await asyncio.sleep(0)

        return asyncio.run(play())


UNAVAILABLE = ActorUnavailableError("no network", None)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("method", ["say", "hear"])
def test_an_actor_call_that_fails_on_its_way_loses_no_call_and_doubles_none(tmp_path, monkeypatch, method, arrives):
    monkeypatch.setattr(transports, "RETRY_S", 0.01)

    async def scenario(channel, heard, user, server, actor):
        actor.failures[method] = [(UNAVAILABLE, arrives)] * 2
        for number in range(5):
            await answer(channel, heard, "note", number)
        return unpack(*await answer(channel, heard, "what_was_seen"))

    assert played(tmp_path, scenario) == [0, 1, 2, 3, 4]


def test_a_caller_that_was_silent_for_too_long_learns_that_it_was_given_up(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        begin(channel, "for_ever")
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)
        user.loop.call_soon_threadsafe(server.mailbox(channel.key).hang_up)
        await heard.until(lambda: heard.lost_with is not None)
        await asyncio.to_thread(user.instance.gate.wait, TIMEOUT_S)
        return len(heard.lost_with), user.instance.seen, server._mailboxes

    assert played(tmp_path, scenario) == (1, ["cancelled"], {})


def test_who_is_hung_up_on_has_every_answer_that_was_said_before_and_loses_what_still_ran(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        begin(channel, "for_ever")
        await asyncio.to_thread(user.instance.begun.wait, TIMEOUT_S)

        async def close():
            connected = server._connections[channel.key]
            connected.say(99, VALUE, b"the last word")
            server._mailboxes[channel.key]._news.clear()  # nobody has heard of it when it is closed
            return await server.close()

        taken = []
        channel._frames = Frames(lambda call_id, kind, body: taken.append((call_id, kind, bytes(body))))
        ended = await asyncio.wrap_future(user.submit(close()))
        await heard.until(lambda: heard.lost_with is not None)
        call = pack_call("__call__", ((), {}))
        late = HEADER.pack(len(call), 7, CALL) + call
        await asyncio.wrap_future(actor.say.remote(channel.key, 50, late).future())
        return ended, taken, len(heard.lost_with), user.instance.seen, server.under_way

    ended, taken, lost, seen, under_way = played(tmp_path, scenario)
    assert (ended, lost, seen, under_way) == (True, 1, ["cancelled"], 0)
    assert (99, VALUE, b"the last word") in taken


def test_a_caller_whose_first_words_were_given_up_learns_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "HEAR_S", 0.05)

    async def scenario(channel, heard, user, server, actor):
        with pytest.raises(LookupError):
            await asyncio.wrap_future(user.submit(server.hear("another", 0)))
        with pytest.raises(LookupError):
            await asyncio.wrap_future(user.submit(server.hear("a third", 3)))
        assert (await answer(channel, heard, "__call__"))[0] == VALUE
        return list(server._mailboxes)

    with_one = played(tmp_path, scenario)
    assert len(with_one) == 1, "and leaves nothing behind"


def test_an_actor_that_dies_is_a_lost_channel(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        begin(channel, "for_ever")
        actor.failures["hear"] = [(ActorDiedError(), False)]
        begin(channel, "__call__")  # whose answer lets the question end that is under way
        await heard.until(lambda: heard.lost_with is not None)
        return len(heard.lost_with), channel.is_lost

    assert played(tmp_path, scenario) == (1, True)


def test_what_there_is_to_hear_comes_in_bounded_pieces_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "HEAR_BYTES", 100_000)

    async def scenario(channel, heard, user, server, actor):
        values = [bytes([number]) * 90_000 for number in range(5)]
        calls = [begin(channel, "later", value) for value in values]
        await heard.until(lambda: len(heard.answers) == len(calls))
        return [unpack(*heard.answers[call.request_id]) for call in calls] == values

    assert played(tmp_path, scenario)


def test_a_mailbox_hands_out_no_more_at_once_than_it_may(monkeypatch):
    monkeypatch.setattr(connection, "HEAR_BYTES", 10)

    async def play():
        mailbox = connection.Mailbox(types.SimpleNamespace(left=lambda _: None, emptied=lambda _: None), "key")
        for letter in (b"aaaa", b"bbbb", b"cccc", b"d" * 20, b"e"):
            mailbox._write(letter)
        heard = []
        for number in range(4):
            heard.append((await mailbox.hear(number))[1])
        mailbox.hang_up()
        return heard

    assert asyncio.run(play()) == [b"aaaabbbb", b"cccc", b"d" * 20, b"e"]


def test_who_drains_waits_until_its_last_answers_were_fetched(tmp_path):
    async def scenario(channel, heard, user, server, actor):
        async def drains():
            mailbox = server.mailbox("m#1.0/another")
            hello, goodbye = b"m#1.0/another", counts(0)
            mailbox.say(0, HEADER.pack(len(hello), CONNECTION, HELLO) + hello)
            mailbox.say(1, HEADER.pack(len(goodbye), CONNECTION, GOODBYE) + goodbye)
            server._connections["m#1.0/another"].say(99, VALUE, b"the last word")
            draining = asyncio.create_task(server.drain())
            while not all(each.has_parted for each in server._connections.values()):
                await asyncio.sleep(0)
            await turns()
            assert not draining.done()
            number, said = await mailbox.hear(0)  # which may be lost on its way
            assert b"the last word" in said
            await turns()
            assert not draining.done()
            listening = asyncio.create_task(mailbox.hear(number))
            async with asyncio.timeout(TIMEOUT_S):
                await draining
            listening.cancel()

        await asyncio.wrap_future(user.submit(drains()))

    async def turns():
        for _ in range(100):
            await asyncio.sleep(0)

    played(tmp_path, scenario)


def test_who_drains_waits_for_no_caller_that_ray_knows_to_be_dead(tmp_path, monkeypatch):
    """Three callers that never say goodbye: one of them alone has a process that Ray knows to have ended."""
    monkeypatch.setattr(call_server, "LOOK_S", 0.001)
    asked, dead, body = [], set(), pack_call("for_ever", ((), {}))
    keys = key_of("m#1.0", "aa", "1"), key_of("m#1.0", "bb", "1"), "m#1.0!of-before"

    async def scenario(channel, heard, user, server, actor):
        def dead_among(worker_ids):
            asked.append(worker_ids)
            if len(asked) == 1:
                raise OSError("Ray does not answer")
            return dead & worker_ids

        async def drains():
            for key in keys:
                server.mailbox(key).say(0, HEADER.pack(len(key), CONNECTION, HELLO) + key.encode())
            server.granting.take = lambda key: True
            server.mailbox(keys[0]).say(1, HEADER.pack(len(body), 7, CALL) + body)
            await until(lambda: server.under_way == 1)
            draining = asyncio.create_task(server.drain())
            await until(lambda: len(asked) > 3)
            assert not draining.done()
            dead.add("aa")
            await until(lambda: keys[0] not in server._connections and server.under_way == 0)
            assert not draining.done()
            dead.add("bb")
            await until(lambda: keys[1] not in server._connections)
            assert not draining.done(), "who is not known may be alive"
            server.mailbox(keys[2]).hang_up()
            async with asyncio.timeout(TIMEOUT_S):
                await draining
            count = len(asked)
            await asyncio.sleep(0.05)
            assert len(asked) <= count + 1, "nobody is asked any more"

        server.dead_among = dead_among
        await asyncio.wrap_future(user.submit(drains()))
        return asked

    async def until(condition):
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.001)

    assert played(tmp_path, scenario)[-1] <= {"aa", "bb", ""}


def test_a_key_says_which_process_calls_and_which_replica_is_meant():
    key = key_of("a/m#1.0", "aa", "1")
    assert (replica_meant(key), caller_of(key)) == ("a/m#1.0", "aa")
    assert [caller_of(each) for each in (key_of("a/m#1.0", "", "1"), "a/m#1.0!of-before", "of-before")] == ["", "", ""]
