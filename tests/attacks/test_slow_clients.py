"""What clients can do to a proxy by sending slowly, or nothing: over real sockets, without a cluster."""

import asyncio
import contextlib

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.requests.packing import unpack_call
from tests.certificates import Authority
from tests.unit.test_ray_access import greeting
from tests.unit.test_ray_grpc import greet, served
from tests.unit.test_ray_http import TIMEOUT_S, ask, get, proxy, respond
from tests.unit.test_ray_http_clients import closed, never, read_all, wants_more

MIB = 1024 * 1024


@contextlib.asynccontextmanager
async def begun(port, count, *pieces, length=10):
    """So many clients that have each sent the beginning of a POST."""
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        for _, writer in clients:
            writer.write(get("/", f"content-length: {length}", method="POST"))
            for piece in pieces:
                writer.write(piece)
        yield clients
    finally:
        for _, writer in clients:
            writer.transport.abort()


async def until(condition):
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("piece", [b"", b"abc"])
def test_idle_posts_take_no_place_of_a_replica(piece):
    async def play():
        async with proxy() as (port, router, _), begun(port, 5, piece) as clients:
            status = (await ask(port, get()))[0]
            asked = len(router.calls)
            for _, writer in clients:
                writer.write(b"0123456789"[len(piece) :])
            said = [await reader.readline() for reader, _ in clients]
            return status, asked, said, [unpack_call(call.packed)[1][0][1:] for call in router.calls[1:]]

    status, asked, said, bodies = asyncio.run(play())
    assert (status, asked) == (200, 1), "the one that was complete"
    assert said == [b"HTTP/1.1 200 OK\r\n"] * 5
    assert bodies == [(piece + b"0123456789"[len(piece) :], False)] * 5, "as a whole, when it was there"


def test_a_large_body_is_streamed_once_its_bound_is_here():
    async def play():
        async with (
            proxy(read_all, hold_body_bytes=100_000) as (port, router, _),
            begun(port, 1, bytes(99_999), length=1_000_000) as ((reader, writer),),
        ):
            await ask(port, get())
            before = len(router.calls)
            writer.write(bytes(50_000))
            await until(lambda: len(router.calls) > before)
            writer.write(bytes(1_000_000 - 149_999))
            _, ((_, body, has_more), _), _ = unpack_call(router.calls[1].packed)
            return before, len(body), has_more, await reader.readline()

    before, size, has_more, line = asyncio.run(play())
    assert (before, has_more, line) == (1, True, b"HTTP/1.1 200 OK\r\n")
    assert 100_000 <= size <= 149_999


def test_an_address_has_so_many_unfinished_bodies_and_others_are_answered_beside_them():
    async def play():
        async with proxy(max_open_bodies_per_client=3) as (port, _, app), begun(port, 3) as clients:
            await until(lambda: app._open_bodies._counts.total() == 3)
            more = await ask(port, get("/", "content-length: 10", method="POST"))
            whole = await ask(port, get("/", "content-length: 2", method="POST", body=b"ab"))
            clients[0][1].write(b"0123456789")
            await clients[0][0].readline()
            clients[1][1].transport.abort()
            await until(lambda: app._open_bodies._counts.total() == 1)
            async with begun(port, 2, b"0123456789") as later:
                said = [await reader.readline() for reader, _ in later]
            return more, whole[0], said

    more, whole, said = asyncio.run(play())
    assert more[0] == 429
    assert b"3 bodies from 127.0.0.1 are on their way already" in more[2]
    assert whole == 200
    assert said == [b"HTTP/1.1 200 OK\r\n"] * 2


@pytest.mark.parametrize("answer", [never, wants_more])
def test_all_bodies_together_have_a_budget_which_they_give_back(answer):
    async def play():
        options = {"max_buffered_bytes": 4 * MIB, "hold_body_bytes": 2 * MIB}
        async with proxy(answer, **options) as (port, router, _):
            async with begun(port, 8, bytes(MIB), length=2 * MIB) as clients:
                readings = [asyncio.ensure_future(reader.readline()) for reader, _ in clients]
                await until(lambda: sum(each.done() for each in readings) >= 4)
                refused = {each.result() for each in readings if each.done()}
                small = await ask(port, get("/-/healthz"))
            router.answer = respond
            again = []
            for _ in range(6):
                await until(lambda: True)
                again.append((await ask(port, get("/", f"content-length: {MIB}", method="POST", body=bytes(MIB))))[0])
            return refused, small[0], again

    refused, small, again = asyncio.run(play())
    assert refused == {b"HTTP/1.1 503 Service Unavailable\r\n"}
    assert small == 200
    assert again[-1] == 200


def test_connections_that_say_nothing_are_bounded_in_number_and_time():
    async def play():
        async with proxy(max_connections=20, header_timeout_s=1.0) as (port, _, _):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _, writer in silent[::2]:
                writer.write(b"GET / HTTP/1.1\r\nhost:")
            await asyncio.sleep(0.1)
            beyond = await ask(port, get())
            said = await asyncio.gather(*(closed(reader) for reader, _ in silent))
            return beyond, {each[:12] for each in said}, (await ask(port, get()))[0]

    beyond, said, status = asyncio.run(play())
    assert (beyond[0], beyond[1]["retry-after"]) == (503, "1")
    assert said == {b"HTTP/1.1 408"}
    assert status == 200


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("first", [b"", PREFACE[:10], PREFACE], ids=["silent", "half a preface", "no call"])
def test_grpc_connections_that_ask_for_nothing_are_closed(first):
    async def play():
        async with served(greet, handshake_timeout_s=0.5, idle_timeout_s=0.5) as (channel, _):
            port = channel._channel.target.decode().rpartition(":")[2]
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
            for _, writer in clients:
                writer.write(first)
            said = await asyncio.gather(*(closed(reader) for reader, _ in clients))
            for _, writer in clients:
                writer.close()
            return len(said), await greeting(channel)

    assert asyncio.run(play()) == (200, "OK")


def test_grpc_connections_are_bounded_in_number():
    async def play():
        async with served(greet, max_connections=20, handshake_timeout_s=5.0) as (channel, _):
            port = channel._channel.target.decode().rpartition(":")[2]
            assert await greeting(channel) == "OK"
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
            ends = [asyncio.ensure_future(closed(reader)) for reader, _ in clients]
            await until(lambda: sum(each.done() for each in ends) >= 30)
            beside = await greeting(channel)
            for _, writer in clients:
                writer.transport.abort()
            await asyncio.gather(*ends)
            return beside

    assert asyncio.run(play()) == "OK"


def test_connections_that_begin_no_tls_are_closed(tmp_path):
    certfile, keyfile = Authority(tmp_path).sign("server")

    async def play():
        async with proxy(ssl_certfile=certfile, ssl_keyfile=keyfile, header_timeout_s=0.3) as (port, _, _):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
            said = await asyncio.gather(*(closed(reader) for reader, _ in silent))
            for _, writer in silent:
                writer.close()
            return set(said)

    assert asyncio.run(play()) == {b""}
