"""What a websocket's client can do to a proxy: over real sockets, without a cluster."""

import asyncio
import contextlib
import struct
import zlib
from functools import partial

import pytest
import uvicorn

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.requests.packing import unpack_call
from executors.ray_gpu.requests.pieces import loaded
from tests.attacks.test_slow_clients import until
from tests.unit.test_ray_http import TIMEOUT_S, ask, get, proxy, respond
from tests.unit.test_ray_http_clients import HANDSHAKE, accepts, closed, never, resident_bytes

TEXT, BINARY, CONT, PING, PONG, CLOSE = 1, 2, 0, 9, 10, 8
MIB = 1024 * 1024


def frame(opcode, payload=b"", *, fin=True, compressed=False):
    """As clients send them: masked, here with nothing but zeros."""
    length = len(payload)
    head = struct.pack("!B", opcode | (0x80 if fin else 0) | (0x40 if compressed else 0))
    if length < 126:
        head += struct.pack("!B", 0x80 | length)
    elif length < 65536:
        head += struct.pack("!BH", 0x80 | 126, length)
    else:
        head += struct.pack("!BQ", 0x80 | 127, length)
    return head + bytes(4) + payload


@contextlib.asynccontextmanager
async def connected(port, *headers):
    """A websocket that is accepted, and the head of what accepted it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get("/", *HANDSHAKE, *headers))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield reader, writer, await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.transport.abort()


async def closing_code(reader):
    """The code with which the proxy closes; None: it closes without one."""
    said = await closed(reader)
    return struct.unpack("!H", said[2:4])[0] if len(said) >= 4 and said[0] & 0x0F == CLOSE else None


async def flood(writer, piece, times):
    """Send as much as is taken, and go on no longer when nothing is."""
    for _ in range(times):
        writer.write(piece)
        try:
            async with asyncio.timeout(0.5):
                await writer.drain()
        except (TimeoutError, ConnectionError):
            return


def collects(got, count, done):
    """An application that accepts, and reads so many messages."""

    def answer(call):
        accepts(call)
        reads(call, got, count, done)

    return answer


def reads(call, got, count, done):
    """Read so many messages."""

    def take(piece):
        message = loaded(piece)
        got.append(message.get("text") or message.get("bytes") or "")
        if len(got) < count:
            asyncio.get_running_loop().call_soon(call.source.wanted, take)
        else:
            done.set()

    call.source.wanted(take)


def test_a_websocket_is_not_compressed_so_that_few_bytes_are_few_bytes():
    """1.5 MB of deflated zeros are 1.5 GB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    bomb = (packer.compress(bytes(15 * MIB)) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]

    async def play():
        async with proxy(accepts) as (port, _, _):
            async with connected(port, "sec-websocket-extensions: permessage-deflate") as (reader, writer, head):
                before = resident_bytes()
                await flood(writer, frame(BINARY, bomb, compressed=True), 100)
                code = await closing_code(reader)
                grown = resident_bytes() - before
            return head, code, grown, (await ask(port, get("/-/healthz")))[0]

    head, code, grown, status = asyncio.run(play())
    assert b"permessage-deflate" not in head.lower()
    assert code in (1002, None), "nobody has agreed to a compression; the connection is reset, as more is sent"
    assert grown < 20 * MIB
    assert status == 200


@pytest.mark.parametrize(
    "piece",
    [
        frame(TEXT) * 40_000,
        frame(TEXT, b"x") * 40_000,
        frame(TEXT, fin=False) + frame(CONT, b"ab", fin=False) * 40_000,
        frame(PING, b"p" * 125) * 2_000,
    ],
    ids=["empty messages", "small messages", "fragments", "pings that are not answered for"],
)
def test_what_no_replica_takes_stays_with_its_client(piece):
    async def play():
        async with proxy(accepts, stall_timeout_s=TIMEOUT_S) as (port, _, _):
            async with connected(port) as (_, writer, _):
                writer.transport.set_write_buffer_limits(high=0)
                before = resident_bytes()
                await flood(writer, piece, 100)
                grown = resident_bytes() - before - writer.transport.get_write_buffer_size()
            return grown, (await ask(port, get("/-/healthz")))[0]

    grown, status = asyncio.run(play())
    assert grown < 12 * MIB
    assert status == 200


def test_messages_and_fragments_come_whole_and_in_their_order_however_they_are_cut():
    sent = ["", "a" * 70_000, "b", "c" * 5000, *(str(number) for number in range(3000)), "end"]
    middle = frame(TEXT, b"c" * 2000, fin=False) + frame(PING) + frame(CONT, b"c" * 2999, fin=False) + frame(CONT, b"c")
    stream = b"".join(middle if text.startswith("cc") else frame(TEXT, text.encode()) for text in sent)

    async def play():
        got, done = [], asyncio.Event()
        async with proxy(collects(got, len(sent), done)) as (port, _, _), connected(port) as (_, writer, _):
            for start in range(0, len(stream), 30_011):
                writer.write(stream[start : start + 30_011])
                await asyncio.sleep(0)
            await done.wait()
        return got

    assert asyncio.run(play()) == sent


def test_all_websockets_together_have_a_budget():
    begun = frame(BINARY, bytes(MIB), fin=False)

    async def play():
        async with proxy(accepts, max_buffered_bytes=4 * MIB) as (port, _, _), contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(port)) for _ in range(8)]
            for _, writer, _ in clients:
                writer.write(begun)
            readings = [asyncio.ensure_future(closing_code(reader)) for reader, _, _ in clients]
            async with asyncio.timeout(TIMEOUT_S):
                while sum(each.done() for each in readings) < 4:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            ended = [each.result() for each in readings if each.done()]
            for each in readings:
                each.cancel()
            return ended

    ended = asyncio.run(play())
    assert 4 <= len(ended) <= 6, "those that are within it go on"
    assert set(ended) <= {1013, None}, "without a code where what was sent on resets the connection"


def test_a_message_may_not_be_half_sent_for_ever():
    async def play():
        async with proxy(accepts, stall_timeout_s=0.2) as (port, _, _), connected(port) as (reader, writer, _):
            writer.write(frame(BINARY, b"begun", fin=False))
            return await closing_code(reader)

    assert asyncio.run(play()) == 1008


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize("length", [(), ("content-length: 5",), ("transfer-encoding: chunked",)])
def test_only_a_get_becomes_a_websocket(method, length):
    async def play():
        async with proxy(never, header_timeout_s=TIMEOUT_S, stall_timeout_s=TIMEOUT_S) as (port, router, _):
            return (await ask(port, get("/", *HANDSHAKE, *length, method=method)))[0], router.calls

    assert asyncio.run(play()) == (400, [])


def test_a_websocket_does_not_begin_in_the_middle_of_another_response():
    def answer(call):
        if unpack_call(call.packed)[1][0][0]["type"] == "websocket":
            accepts(call)
        else:
            asyncio.get_running_loop().call_later(0.2, respond, call)

    async def play():
        async with proxy(answer) as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/") + get("/", *HANDSHAKE))
            return await closed(reader)

    assert asyncio.run(play()) == b"", "nothing that could be taken for the answer to the first request"


def test_a_websocket_is_of_http_1_1():
    async def play():
        async with proxy(accepts) as (port, router, _):
            return (await ask(port, get("/", *HANDSHAKE).replace(b"HTTP/1.1", b"HTTP/1.0")))[0], router.calls

    assert asyncio.run(play()) == (400, [])


@pytest.fixture
def often_asked(monkeypatch):
    """Clients are asked whether they are there so often that a test can wait for what becomes of those that do not say so."""
    monkeypatch.setattr(uvicorn, "Config", partial(uvicorn.Config, ws_ping_interval=0.05, ws_ping_timeout=0.1))


@pytest.mark.usefixtures("often_asked")
def test_a_client_whose_messages_wait_for_the_replica_is_not_taken_for_gone():
    async def play():
        begun, got, done = [], [], asyncio.Event()
        async with proxy(begun.append) as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/", *HANDSHAKE))
            await until(lambda: begun)
            accepts(begun[0])
            await reader.readuntil(b"\r\n\r\n")
            writer.write(frame(TEXT, b"first") + frame(TEXT, b"second"))
            head = await reader.readexactly(2)
            writer.write(frame(PONG, await reader.readexactly(head[1])))
            reading = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({reading}, timeout=0.5)  # the replica is busy for longer than the client may be silent
            assert not reading.done(), "nor is it hung up on"
            reads(begun[0], got, 2, done)
            await asyncio.wait_for(done.wait(), TIMEOUT_S)
            reading.cancel()
            writer.close()
        return got

    assert asyncio.run(play()) == ["first", "second"]


@pytest.mark.usefixtures("often_asked")
def test_a_client_that_is_heard_and_does_not_say_that_it_is_there_is_hung_up_on():
    async def play():
        async with proxy(accepts) as (port, _, _), connected(port) as (reader, _, _):
            return await closed(reader)

    assert struct.pack("!H", 1011) in asyncio.run(play())


def test_a_get_with_a_body_becomes_none_and_neither_does_what_the_parser_of_websockets_refuses():
    many = tuple(f"x-{number}: 1" for number in range(200))

    async def play(*headers):
        async with proxy(never, header_timeout_s=TIMEOUT_S) as (port, _, _):
            return (await ask(port, get("/", *HANDSHAKE, *headers)))[0]

    assert asyncio.run(play("content-length: 5")) == 400
    assert asyncio.run(play(*many)) == 400
    assert asyncio.run(play("x-long: " + "y" * 20_000)) == 400


def test_a_websocket_that_is_not_accepted_in_time_is_refused_and_its_replica_free():
    async def play():
        async with proxy(never, websocket_accept_timeout_s=0.2) as (port, router, _):
            answer = await ask(port, get("/", *HANDSHAKE))
            return answer, [call.given_up for call in router.calls]

    (status, _, body), given_up = asyncio.run(play())
    assert (status, given_up) == (504, [True])
    assert b"not accepted within 0.2 s" in body


def test_a_websocket_that_is_accepted_may_be_silent_for_longer_than_that():
    async def play():
        got, done = [], asyncio.Event()
        async with proxy(collects(got, 1, done), websocket_accept_timeout_s=0.1) as (port, *_), connected(port) as (_, w, _):
            await asyncio.sleep(0.3)
            w.write(frame(TEXT, b"late"))
            await done.wait()
        return got

    assert asyncio.run(play()) == ["late"]


def test_what_is_sent_before_the_websocket_is_accepted_is_heard_after_it():
    got = []

    async def play():
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        async with proxy(lambda call: loop.call_later(0.2, collects(got, 1, done), call)) as (port, _, _):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/", *HANDSHAKE))
            await asyncio.sleep(0.05)
            writer.write(frame(TEXT, b"early"))
            async with asyncio.timeout(TIMEOUT_S):
                await done.wait()
            writer.close()

    asyncio.run(play())
    assert got == ["early"]
