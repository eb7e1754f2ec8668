"""Which proxies the controller keeps, without a cluster: stand-ins for nodes and actors."""

import asyncio
import socket
import threading
import time
from contextlib import suppress

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import names
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.patience import PROXY_SILENCE_S
from executors.ray_gpu.proxies import keeper, probing
from executors.ray_gpu.proxies.keeper import ProxyKeeper, reason_of
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.proxies.probing import ProxySilentError
from executors.ray_gpu.proxies.proxy import bound
from tests.free_ports import free_ports

TIMEOUT_S = 120


class Method:
    def __init__(self, function):
        self.remote = function


class Actor:
    """A proxy that is up, until it is ended."""

    def __init__(self, options, gate):
        self.options = options
        self.gate = gate
        self.describe = Method(self._describe)
        self.watch = Method(self._watch)

    async def _describe(self):
        await self.gate.wait()
        return 7, 70, self.options, names.PROTOCOL

    async def _watch(self, for_s):
        await asyncio.Event().wait()


class World:
    namespace = "tests"

    def settle(self, node_id, pid, actor):
        pass

    def leave(self, node_id, pid):
        pass

    async def call(self, function, *args):
        return function(*args)


class Kept(ProxyKeeper):
    """On these nodes, with actors that stay when the keeper goes."""

    def __init__(self, *nodes, actors=None, gates=None, taken=()):
        super().__init__(World())
        self.nodes = set(nodes)
        self.actors = {} if actors is None else actors
        self.gates = gates or {}
        self.taken = set(taken)
        self.ended = []
        self.put_down = []

    async def _wanted(self):
        return self.nodes

    def _get_or_create(self, node_id):
        if node_id in self.taken:
            raise RuntimeError("The actor died:\n  a traceback\nOSError: the port is another's\n")
        gate = self.gates.get(node_id, asyncio.Event())
        if node_id not in self.gates:
            gate.set()
        return self.actors.setdefault(node_id, Actor(self._options, gate))

    async def _until_up(self, actor):
        return await actor.describe.remote()

    async def _put_down(self, actor, started):
        self.put_down.append((actor, started))
        self.actors = {node_id: each for node_id, each in self.actors.items() if each is not actor}

    async def _end(self, node_id):
        await asyncio.sleep(0)
        self.ended.append(node_id)
        self.actors.pop(node_id, None)


def on_port(port, location="EveryNode"):
    return ProxyOptions(http=HttpOptions(port=port, location=location))


def play(work):
    async def bounded():
        async with asyncio.timeout(TIMEOUT_S):
            return await work

    return asyncio.run(bounded())


def test_no_proxies_are_not_waited_for():
    async def work():
        kept = Kept("a")
        await kept.keep(on_port(8000, "Disabled"))
        return await kept.until_up(10 * TIMEOUT_S)

    assert play(work()) == ()


def test_all_of_them_are_waited_for():
    async def work():
        gate = asyncio.Event()
        kept = Kept("a", "b", gates={"b": gate})
        await kept.keep(on_port(8000))
        waiting = asyncio.ensure_future(kept.until_up(10 * TIMEOUT_S))
        while not any(each.pid for each in kept.infos):
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        early = waiting.done()
        gate.set()
        infos = await waiting
        await kept.close()
        return early, [each.pid for each in infos]

    assert play(work()) == (False, [7, 7])


def test_why_there_is_none_is_said_at_once_in_one_line():
    async def work():
        kept = Kept("a", taken="a")
        await kept.keep(on_port(8000))
        (info,) = await kept.until_up(10 * TIMEOUT_S)
        await kept.close()
        return info

    info = play(work())
    assert (info.pid, info.problem) == (None, "OSError: the port is another's")
    assert reason_of(RuntimeError()) == "RuntimeError()"


def test_a_proxy_that_the_last_controller_left_with_other_options_is_replaced(monkeypatch):
    monkeypatch.setattr(keeper, "RETRY_S", 0.0)

    async def work():
        gate = asyncio.Event()
        gate.set()
        kept = Kept("a", actors={"a": Actor(on_port(8001), gate)})
        await kept.keep(on_port(8000))
        await kept.until_up(10 * TIMEOUT_S)
        found = kept.actors["a"].options
        await kept.close()
        return kept.ended, found

    ended, found = play(work())
    assert ended[0] == "a"
    assert found == on_port(8000)


@pytest.mark.parametrize("described", [(7, on_port(8000)), (7, 70, on_port(8000)), (7, 70, on_port(8000), names.PROTOCOL - 1)])
def test_proxies_of_another_release_are_replaced_one_node_after_another(monkeypatch, described):
    async def work():
        gate = asyncio.Event()
        gate.set()
        kept = Kept("a", "b", actors={node_id: Actor(on_port(8000), gate) for node_id in "ab"})
        slow = asyncio.Event()
        for actor in kept.actors.values():
            actor.describe = Method(lambda: as_described(described))
        kept.gates = {"a": slow, "b": slow}
        await kept.keep(on_port(8000))
        while not kept.ended:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        at_first = list(kept.ended)
        slow.set()
        infos = await kept.until_up(10 * TIMEOUT_S)
        ended = sorted(kept.ended)
        await kept.close()
        return at_first, ended, [each.pid for each in infos]

    at_first, ended, pids = play(work())
    assert len(at_first) == 1, "the other one serves until the first one's successor is up"
    assert (ended, pids) == (["a", "b"], [7, 7])


async def as_described(described):
    return described


def test_of_two_wishes_at_once_the_last_one_holds():
    async def work():
        kept = Kept("a", "b")
        await kept.keep(on_port(8000))
        await kept.until_up(10 * TIMEOUT_S)
        await asyncio.gather(kept.keep(on_port(8001)), kept.keep(on_port(8002)))
        await kept.until_up(10 * TIMEOUT_S)
        looking = [each for each in asyncio.all_tasks() if "_look" in repr(each.get_coro())]
        ports = {each.options.http.port for each in kept.actors.values()}
        await kept.close()
        return len(looking), ports, kept.options, kept.infos

    assert play(work()) == (1, {8002}, None, ())


def test_a_proxy_that_answers_how_it_is_now_and_then_is_not_taken_for_one_that_has_ended():
    async def scenario():
        gate, asked = asyncio.Event(), 0
        gate.set()
        actor = Actor(on_port(8001), gate)
        keeper = Kept("n0", actors={"n0": actor})

        async def watch(for_s):
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)

        actor.watch = Method(watch)
        await keeper.keep(on_port(8001))
        while asked < 10:
            await asyncio.sleep(0)
        pids = [each.pid for each in keeper.infos]
        await keeper.close()
        return pids

    assert play(scenario()) == [7]


def test_what_a_proxy_sends_does_not_wait_for_what_it_has_sent_before():
    """Nagle's algorithm and a client that is slow to acknowledge made each answer in two pieces wait 40 ms, but for uvloop."""

    async def play():
        accepted = asyncio.get_running_loop().create_future()

        class Accepts(asyncio.Protocol):
            def connection_made(self, transport):
                kept = transport.get_extra_info("socket")
                accepted.set_result(kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        (port,) = free_ports(1)
        server = await asyncio.get_running_loop().create_server(Accepts, sock=await bound("127.0.0.1", port))
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(TIMEOUT_S):
            found = await accepted
        writer.close()
        server.close()
        return found

    assert asyncio.run(play()) != 0


def silent(asked=None):
    """A proxy's process that is stopped: it takes every question, and answers none."""
    gate = asyncio.Event()
    gate.set()
    return Actor(asked or on_port(8000), gate)


def test_a_proxy_that_falls_silent_is_ended_and_another_takes_its_place(monkeypatch):
    monkeypatch.setenv(PROXY_SILENCE_S, "0.5")

    async def scenario():
        kept = Kept("a")
        await kept.keep(on_port(8000))
        (before,) = await kept.until_up(10 * TIMEOUT_S)
        first = kept.actors["a"]
        while not kept.put_down or "a" not in kept.actors:
            await asyncio.sleep(0.01)
        infos, (put_down, *_), second = await kept.until_up(10 * TIMEOUT_S), kept.put_down, kept.actors["a"]
        await kept.close()
        return put_down == (first, 70), second is not first, [(each.pid, each.problem) for each in (before, *infos)]

    assert play(scenario()) == (True, True, [(7, ""), (7, "")])


def test_one_that_answers_late_is_not_silent():
    """Slower than a turn each time, and faster than all of them."""

    async def scenario():
        answered = 0

        async def watch(for_s):
            nonlocal answered
            await asyncio.sleep(4 * for_s)
            answered += 1

        actor = silent()
        actor.watch = Method(watch)
        watching = asyncio.ensure_future(probing.until_silent(actor, 0.2))
        while answered < 5 and not watching.done():
            await asyncio.sleep(0.01)
        found = watching.done()
        watching.cancel()
        return found

    assert play(scenario()) is False


def test_a_controller_that_was_itself_away_finds_the_answers_before_it_judges():
    async def scenario():
        loop, answered = asyncio.get_running_loop(), 0

        def arrive(answer):
            with suppress(RuntimeError):  # the test is over
                loop.call_soon_threadsafe(lambda: answer.done() or answer.set_result(None))

        async def watch(for_s):
            nonlocal answered
            answer = loop.create_future()
            threading.Timer(for_s, arrive, [answer]).start()
            await answer
            answered += 1

        actor = silent()
        actor.watch = Method(watch)
        watching = asyncio.ensure_future(probing.until_silent(actor, 0.5))
        await asyncio.sleep(0)
        time.sleep(1.0)  # the loop that asks stands still
        while answered < 5 and not watching.done():
            await asyncio.sleep(0.01)
        found = watching.done()
        watching.cancel()
        return found

    assert play(scenario()) is False


def test_work_that_a_proxy_takes_long_for_is_waited_for_as_long_as_it_answers():
    async def scenario():
        release = asyncio.Event()

        async def drain():
            await release.wait()
            return "drained"

        async def watch(for_s):
            await asyncio.sleep(for_s)
            release.set()

        lively = silent()
        lively.watch = Method(watch)
        drained = await probing.while_it_answers(lively, drain(), 0.2)
        release.clear()
        with pytest.raises(ProxySilentError, match=r"has not answered for 0\.2 s"):
            await probing.while_it_answers(silent(), drain(), 0.2)
        return drained

    assert play(scenario()) == "drained"
