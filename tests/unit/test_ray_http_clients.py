"""What slow and malicious clients can do to a proxy, over real sockets and without a cluster."""

import asyncio
import pickle
import resource

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.errors import OverloadedError, RemoteError, UnavailableError
from executors.ray_gpu.requests.packing import unpack_call
from executors.ray_gpu.requests.pieces import loaded
from executors.ray_gpu.requests.streams import WINDOW_BYTES, weight_bytes
from tests.unit.test_ray_http import TIMEOUT_S, ask, failing, get, played, proxy, raising, respond

START = {"type": "http.response.start", "status": 200, "headers": []}


def never(call):
    """No answer."""


KERNEL_BYTES = 16 * 1024 * 1024
"""So much the system may keep between two sockets."""


def wants_more(call):
    """Asks for the next piece of the body, and for no other."""
    call.source.wanted(lambda piece: None)


def read_all(call):
    """Reads the whole body, then answers."""
    _, ((_, _, has_more), _), _ = unpack_call(call.packed)
    if not has_more:
        return respond(call)

    def take(piece):
        if loaded(piece)["more_body"]:
            call.source.wanted(take)
        else:
            respond(call)

    call.source.wanted(take)


def streaming(size):
    """A response that goes on for as long as it is taken."""

    def answer(call):
        def more(_=0):
            if not call.given_up:
                call.stream.put(pickle.dumps([{"type": "http.response.body", "body": b"x" * size, "more_body": True}]))

        call.stream.begin(more)
        call.stream.put(pickle.dumps([START]))
        more()

    return answer


async def closed(reader):
    """Read until the other side hangs up."""
    async with asyncio.timeout(TIMEOUT_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


def until_hung_up_on(*pieces, answer=respond, pause_s=0.0, **options):
    """What a client reads that sends these pieces and nothing more."""

    async def play():
        async with proxy(answer, **options) as (port, router, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(pause_s)
            return await closed(reader), router

    return asyncio.run(play())


def until_hung_up_on_after_an_answer(first, then, **options):
    """What a client reads that sends more once its request is being answered, and waits."""

    async def play():
        # Half a second: far longer than it takes to send a request, for a process that has to wait for its turn too.
        async with proxy(header_timeout_s=0.5, **options) as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first)
            async with asyncio.timeout(TIMEOUT_S):
                line = await reader.readline()
            writer.write(then)
            return line + await closed(reader)

    return asyncio.run(play())


def test_a_client_that_stops_in_its_body_is_hung_up_on():
    said, router = until_hung_up_on(get("/", "content-length: 10", "connection: close", method="POST"), stall_timeout_s=0.05)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert not router.calls, "no replica was held up by it"


def test_a_client_that_stops_in_its_body_while_the_replica_waits_for_it_gives_it_back():
    said, router = until_hung_up_on(
        get("/", "content-length: 10", "connection: close", method="POST", body=b"abc"),
        answer=wants_more,
        stall_timeout_s=0.05,
        hold_body_bytes=0,
    )
    assert said.startswith(b"HTTP/1.1 408 ")
    assert router.calls[0].given_up


def test_a_line_break_behind_a_body_is_no_header_that_does_not_end():
    """As some old clients send it (RFC 9112, 2.2); here in a packet of its own."""

    async def play():
        def answer(call):
            asyncio.get_running_loop().call_later(0.5, respond, call)

        async with proxy(answer, header_timeout_s=0.1) as (port, router, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/", "content-length: 2", method="POST", body=b"hi"))
            async with asyncio.timeout(TIMEOUT_S):
                while not router.calls:
                    await asyncio.sleep(0.01)
                writer.write(b"\r\n")
                return await reader.readline()

    assert asyncio.run(play()).startswith(b"HTTP/1.1 200 ")


async def dripping(port, head, body):
    """A client that sends a byte at a time, and neither stops nor hurries; the status that it reads, until it is hung up on."""

    async def read():
        status = await reader.readline()
        await closed(reader)  # perhaps with an error, since it is sending still
        return status

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(read())
    writer.write(head)
    for byte in body:
        if reading.done():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(0.01)
    return await reading


def test_a_body_that_drips_in_is_answered_with_408_and_hung_up_on():
    async def play():
        async with proxy(wants_more, stall_timeout_s=1.0, min_body_bytes_per_s=10_000, hold_body_bytes=0) as (port, router, _):
            said = await dripping(port, get("/", "content-length: 1000000", method="POST"), bytes(3_000))
            return said, [call.given_up for call in router.calls]

    said, given_up = asyncio.run(play())
    assert said.startswith(b"HTTP/1.1 408 ")
    assert given_up == [True]


@pytest.mark.parametrize("hold", [0, 1024])
def test_a_body_of_any_speed_is_taken_where_the_user_says_so(hold):
    async def play():
        options = {"stall_timeout_s": TIMEOUT_S, "min_body_bytes_per_s": 0, "hold_body_bytes": hold}
        async with proxy(read_all, **options) as (port, _, _):
            return await dripping(port, get("/", "content-length: 30", "connection: close", method="POST"), bytes(30))

    assert asyncio.run(play()).startswith(b"HTTP/1.1 200 ")


def test_time_in_which_nobody_reads_a_body_does_not_count():
    sent = bytes(4_000_000)

    def reads_late(call):
        asyncio.get_running_loop().call_later(1.0, read_all, call)

    async def play():
        async with proxy(reads_late, stall_timeout_s=TIMEOUT_S, min_body_bytes_per_s=100_000_000) as (port, _, _):
            return await ask(port, get("/", f"content-length: {len(sent)}", method="POST", body=sent))

    assert asyncio.run(play())[0] == 200


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_client_that_takes_a_stream_slowly_costs_no_more_than_what_may_be_ahead_of_it(in_pieces):
    produced = read = 0

    def window(call):
        left = WINDOW_BYTES

        def more(taken=0):
            nonlocal left, produced
            left += taken
            while left > 0 and not call.given_up:
                piece = b"x" * 50_000
                item = piece if in_pieces else pickle.dumps([{"type": "http.response.body", "body": piece, "more_body": True}])
                left, produced = left - weight_bytes(item), produced + len(item)
                (call.stream.put_piece if in_pieces else call.stream.put)(item)

        call.stream.begin(more)
        call.stream.put(pickle.dumps([START]))
        more()

    async def play():
        nonlocal read
        ahead = []
        async with proxy(window) as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(get())
            async with asyncio.timeout(TIMEOUT_S):
                while read < 30_000_000:
                    read += len(await reader.read(100_000))
                    await asyncio.sleep(0)
                    ahead.append(produced - read)
            writer.transport.abort()
        return max(ahead)

    assert asyncio.run(play()) < WINDOW_BYTES + KERNEL_BYTES


def test_empty_lines_do_not_keep_a_connection_open():
    assert b"200 OK" in until_hung_up_on_after_an_answer(get(), b"\r\n")


def test_a_refused_body_may_not_drip_in_for_ever():
    begin = get("/", "content-length: 100", method="POST", body=b"abc")
    assert until_hung_up_on_after_an_answer(begin, b"d", max_body_bytes=10).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("rest", [b"0\r\nx: " + b"y" * 5000, b"1;" + b"y" * 5000])
def test_trailers_and_chunk_extensions_are_bounded(rest):
    begin = get("/", "transfer-encoding: chunked", method="POST", body=b"1\r\na\r\n")
    until_hung_up_on(begin, rest, answer=never, pause_s=0.2, max_header_bytes=1000)


def test_trailers_are_no_headers():
    body = b"1\r\na\r\n0\r\nx-user: admin\r\n\r\n"

    async def play():
        async with proxy() as (port, router, _):
            await ask(port, get("/", "transfer-encoding: chunked", method="POST", body=body))
            return unpack_call(router.calls[0].packed)

    _, ((scope, _, _), _), _ = asyncio.run(play())
    assert b"x-user" not in dict(scope["headers"])


def test_a_header_whose_end_comes_apart_from_it_may_have_a_large_body():
    text = get("/", "content-length: 5000", method="POST", body=b"z" * 5000)
    cut = text.index(b"\r\n\r\n") + 3

    async def play():
        async with proxy(max_header_bytes=1000) as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text[:cut])
            await asyncio.sleep(0.1)
            writer.write(text[cut:])
            async with asyncio.timeout(TIMEOUT_S):
                return await reader.readline()

    assert asyncio.run(play()) == b"HTTP/1.1 200 OK\r\n"


def test_few_requests_may_wait_behind_one_another():
    said, router = until_hung_up_on(get() * 1000, answer=never)
    assert len(router.calls) == 1
    assert said == b"", "an answer would be taken for that of the first request"


def test_some_requests_in_a_row_are_answered_in_their_order():
    async def play():
        async with proxy() as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"".join(get("/", f"x-request-id: r{number}") for number in range(8)))
            async with asyncio.timeout(TIMEOUT_S):
                return [(await reader.readuntil(f"r{number}\r\n".encode()))[:15] for number in range(8)]

    assert {each.lstrip(b"\r\nfine")[:8] for each in asyncio.run(play())} == {b"HTTP/1.1"}


def test_what_follows_a_request_too_slowly_does_not_stand_in_its_response():
    async def play():
        async with proxy(never, header_timeout_s=0.5) as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get() + b"GET / HT")
            return await closed(reader)

    assert b"408" not in asyncio.run(play())


@pytest.mark.parametrize("length", [None, 10_000_000])
def test_a_client_that_takes_nothing_is_hung_up_on(length):
    async def play():
        cancelled = asyncio.Event()

        def answer(call):
            call.when_given_up(lambda _: cancelled.set())
            streaming(1_000_000)(call)

        async with proxy(answer, stall_timeout_s=0.2, hold_body_bytes=0) as (port, _, _):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            more = (f"content-length: {length}",) if length else ()
            writer.write(get("/", *more, method="POST" if length else "GET"))
            if length:
                writer.write(b"a" * 400_000)
            async with asyncio.timeout(TIMEOUT_S):
                await cancelled.wait()

    asyncio.run(play())


def in_pieces(*pieces, headers=(), end=lambda call: call.stream.end()):
    """A response that comes piece by piece."""

    def answer(call):
        call.stream.begin(lambda _: None)
        call.stream.put(pickle.dumps([{**START, "headers": list(headers)}]))
        for piece in pieces:
            call.stream.put_piece(piece)
        end(call)

    return answer


def complete(call):
    call.stream.put(pickle.dumps([{"type": "http.response.body", "body": b"", "more_body": False}]))
    call.stream.end()


@pytest.mark.parametrize(
    ("request_line", "headers", "body"),
    [
        ("GET", (), b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"),
        ("GET", ((b"content-length", b"11"),), b"onetwothree"),
        ("HEAD", (), b""),
    ],
)
def test_a_client_gets_each_piece_of_a_response_as_a_chunk_of_its_own(request_line, headers, body):
    answer = in_pieces(b"one", b"", b"two", b"three", headers=headers, end=complete)
    said, _ = until_hung_up_on(get("/", "connection: close", method=request_line), answer=answer)
    assert said.startswith(b"HTTP/1.1 200")
    assert said.partition(b"\r\n\r\n")[2] == body


def test_a_response_that_fails_after_some_pieces_ends_with_them_and_is_not_complete():
    answer = in_pieces(b"one", b"two", end=lambda call: call.fail(OverloadedError("full")))
    said, _ = until_hung_up_on(get("/"), answer=answer)
    assert said.partition(b"\r\n\r\n")[2] == b"3\r\none\r\n3\r\ntwo\r\n", "no last chunk"


def test_a_client_that_leaves_in_the_middle_of_its_body_cancels_its_request():
    async def play():
        arrived, cancelled = asyncio.Event(), asyncio.Event()

        def reads_nothing(call):
            call.when_given_up(lambda _: cancelled.set())
            arrived.set()

        async with proxy(reads_nothing, hold_body_bytes=0) as (port, _, _):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/", "content-length: 200000", method="POST", body=b"a" * 100_000))
            async with asyncio.timeout(TIMEOUT_S):
                await arrived.wait()
                await asyncio.sleep(0.2)  # longer than it takes to look for the first time
                writer.close()
                await cancelled.wait()

    asyncio.run(play())


def test_a_body_comes_in_its_order_however_late_it_is_asked_for():
    sent = bytes(range(256)) * 4000
    got = []

    def reads_late(call):
        def take(piece):
            message = loaded(piece)
            got.append(message["body"])
            if message["more_body"]:
                loop.call_later(0.01, call.source.wanted, take)
            else:
                respond(call)

        loop = asyncio.get_running_loop()
        _, ((_, first, _), _), _ = unpack_call(call.packed)
        got.append(first)
        loop.call_later(0.3, call.source.wanted, take)

    asked = get("/", f"content-length: {len(sent)}", method="POST", body=sent)
    assert played(asked, reads_late, hold_body_bytes=0)[0] == 200
    assert b"".join(got) == sent


def test_routes_that_are_not_known_yet_are_no_404():
    async def play():
        async with proxy() as (port, _, app):
            app.routes = None
            return await ask(port, get("/a"))

    status, headers, _ = asyncio.run(play())
    assert (status, headers["retry-after"]) == (503, "1")


def test_what_user_code_says_in_its_errors_is_not_for_clients(caplog):
    status, _, body = played(get(), raising(RemoteError("user code raised Odd: secret")))
    assert (status, b"secret" in body) == (500, False)
    assert "Traceback: in the replica" in caplog.text


def test_no_line_of_the_log_is_a_clients_own(caplog):
    played(get("/a%0Aforged"), raising(KeyError("x")))
    assert "\nforged" not in caplog.text


def test_an_application_that_ends_without_an_answer_is_a_500():
    status, headers, _ = played(get(), lambda call: call.stream.end())
    assert status == 500
    assert headers["x-request-id"]


def test_head_and_options_are_requests_like_others():
    async def play(text):
        async with proxy() as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            return await closed(reader)

    said = asyncio.run(play(get("/", "connection: close", method="HEAD")))
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.endswith(b"\r\n\r\n")
    assert asyncio.run(play(get("*", "connection: close", method="OPTIONS"))).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_is_too_large_is_refused_before_it_is_asked_for():
    wanting = get("/", "content-length: 11", "expect: 100-continue", "connection: close", method="POST")
    said, _ = until_hung_up_on(wanting, max_body_bytes=10)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in said


HANDSHAKE = (
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
)


@pytest.mark.parametrize(
    ("path", "answer", "status"),
    [
        ("/unknown", respond, 404),
        ("/m", failing(OverloadedError("full", 7)), 503),
        ("/m", failing(UnavailableError("no room\nTraceback", 7)), 503),
        ("/m", raising(KeyError("x")), 500),
    ],
)
def test_a_refused_websocket_has_the_status_of_a_refused_request(path, answer, status):
    async def play():
        async with proxy(answer, routes={"/m": "m"}) as (port, _, _):
            return await ask(port, get(path, *HANDSHAKE, "x-request-id: r-7"))

    found, headers, body = asyncio.run(play())
    assert (found, headers["x-request-id"], headers.get("retry-after")) == (status, "r-7", "7" if status == 503 else None)
    told = (b"full\n", b"no room\n`rankcore status` says more\n")
    assert status != 503 or body in told, "the reason, and nothing that is not for clients"


def accepts(call):
    call.stream.put(pickle.dumps([{"type": "websocket.accept", "headers": []}]))


def test_an_accepted_websocket_whose_replica_fails_is_closed_with_1011():
    def fails(call):
        accepts(call)
        asyncio.get_running_loop().call_later(0.05, call.fail, OverloadedError("é" * 200))

    async def play():
        async with proxy(fails) as (port, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/", *HANDSHAKE))
            async with asyncio.timeout(TIMEOUT_S):
                return await reader.readuntil(b"\r\n\r\n"), await reader.readexactly(4)

    head, frame = asyncio.run(play())
    assert head.startswith(b"HTTP/1.1 101 ")
    assert frame[2:] == (1011).to_bytes(2, "big")


def test_a_websocket_that_takes_nothing_is_hung_up_on():
    async def play():
        cancelled = asyncio.Event()

        def floods(call):
            call.when_given_up(lambda _: cancelled.set())
            flood = pickle.dumps([{"type": "websocket.send", "bytes": b"x" * 1_000_000}])
            call.stream.begin(lambda _: call.stream.put(flood))
            accepts(call)
            call.stream.put(flood)

        async with proxy(floods, stall_timeout_s=0.2) as (port, _, _):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(get("/", *HANDSHAKE))
            async with asyncio.timeout(TIMEOUT_S):
                await cancelled.wait()

    asyncio.run(play())


IDLE = 2000


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_idle_connections_cost_little_and_others_are_served_beside_them():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * IDLE + 200
    if hard < needed:
        pytest.skip(f"this user may have {hard} files, and {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))

    async def play():
        async with proxy(header_timeout_s=600.0) as (port, _, _):
            await ask(port, get())
            before = resident_bytes()
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(IDLE)]
            for _, writer in idle[::2]:
                writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n")
            status = (await ask(port, get()))[0]
            grown = resident_bytes() - before
            for _, writer in idle:
                writer.transport.abort()
            return status, grown / IDLE

    try:
        status, bytes_each = asyncio.run(play())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert status == 200
    assert bytes_each < 50_000, "both ends of a connection are in this process"


def test_idle_connections_are_closed_when_their_time_is_up():
    async def play():
        async with proxy(header_timeout_s=0.3, keep_alive_timeout_s=1.0) as (port, _, _):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
            asked = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
            for reader, writer in asked:
                writer.write(get())
                await reader.readline()
            said = await asyncio.gather(*(closed(reader) for reader, _ in (*silent, *asked)))
            for _, writer in (*silent, *asked):
                writer.close()
            return {each[:12] for each in said[:100]}

    assert asyncio.run(play()) == {b"HTTP/1.1 408"}
