"""A proxy over real sockets and without a cluster: which request is answered how, and what a bad client can do to it."""

import asyncio
import contextlib
import gc
import json
import pickle
import socket

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.errors import (
    DeadlineError,
    InvalidDeploymentError,
    OverloadedError,
    ReplicaGoneError,
    UnavailableError,
    UnknownNameError,
)
from executors.ray_gpu.http.exchange import Exchange
from executors.ray_gpu.http.options import HttpOptions, checked_prefix
from executors.ray_gpu.http.proxy_app import ProxyApp, serve
from executors.ray_gpu.requests.call import Answer, Call
from executors.ray_gpu.requests.frames import ERROR, VALUE
from executors.ray_gpu.requests.packing import pack_error, unpack_call

TIMEOUT_S = 120


class Router:
    """Answers each call as the test says."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = []

    def submit_here(self, call):
        self.calls.append(call)
        self.answer(call)


def respond(call, status=200, body=b"fine", headers=()):
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [length, *headers]}
    call.finish(Answer(VALUE, pickle.dumps([start, {"type": "http.response.body", "body": body}])))


def failing(error):
    return lambda call: call.fail(error)


def raising(error):
    return lambda call: call.finish(Answer(ERROR, pack_error(error, "Traceback: in the replica")[1]))


@contextlib.asynccontextmanager
async def proxy(answer=respond, routes=None, **options):
    chosen = HttpOptions(**options)
    router = Router(answer)
    app = ProxyApp(chosen, lambda deployment: router)
    app.routes = {"/": "m"} if routes is None else routes
    listening = socket.create_server(("127.0.0.1", 0))
    server, task = await serve(app, chosen, [listening])
    try:
        yield listening.getsockname()[1], router, app
    finally:
        server.should_exit = True
        server.force_exit = True
        await task


async def ask(port, text):
    """Send raw bytes and return what comes back: status, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        async with asyncio.timeout(TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        return int(lines[0].split()[1]), headers, body
    finally:
        writer.close()


def get(path="/", *headers, method="GET", body=b""):
    lines = [f"{method} {path} HTTP/1.1", "host: here", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def played(text, answer=respond, **options):
    async def play():
        async with proxy(answer, **options) as (port, _, _):
            return await ask(port, text)

    return asyncio.run(play())


def test_applications_see_the_path_that_a_proxy_in_front_has_taken_away():
    async def play():
        async with proxy(routes={"/a": "m"}, root_path="/base") as (port, router, _):
            answers = [await ask(port, get("/a/b%20c")), await ask(port, get("/base/a"))]
            return answers, unpack_call(router.calls[0].packed)[1][0][0]

    (found, not_found), scope = asyncio.run(play())
    assert (found[0], not_found[0]) == (200, 404)
    assert (scope["path"], scope["raw_path"], scope["root_path"]) == ("/base/a/b c", b"/base/a/b%20c", "/base/a")


def test_a_request_reaches_its_deployment_and_the_answer_its_client():
    async def play():
        async with proxy() as (port, router, _):
            answer = await ask(port, get("/a?b=c", "x-request-id: mine"))
            _, ((scope, body, more), _), about = unpack_call(router.calls[0].packed)
            return answer, scope, body, more, about

    (status, headers, body), scope, sent, more, about = asyncio.run(play())
    assert (status, body, headers["x-request-id"]) == (200, b"fine", "mine")
    assert (scope["path"], scope["query_string"], scope["method"]) == ("/a", b"b=c", "GET")
    assert (sent, more) == (b"", False)
    assert about.request_id == "mine"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OverloadedError("full", 6.2), 503),
        (OverloadedError("full", 6.2, 429), 429),
        (DeadlineError("late"), 504),
        (ReplicaGoneError("it died"), 502),
        (UnknownNameError("deleted"), 503),
    ],
)
def test_each_way_to_fail_has_its_status(error, status):
    found, headers, body = played(get(), failing(error))
    assert (found, body.decode().strip()) == (status, str(error))
    assert headers.get("retry-after") == ("7" if isinstance(error, OverloadedError) else None)


def test_a_traceback_is_for_the_log_and_the_client_has_a_reference(caplog):
    status, headers, body = played(get("/", "x-request-id: r-9"), raising(KeyError("secret")))
    assert (status, headers["x-request-id"]) == (500, "r-9")
    assert b"r-9" in body
    assert b"Traceback" not in body
    assert "Traceback: in the replica" in caplog.text
    assert "r-9" in caplog.text
    assert b"Traceback: in the replica" in played(get(), raising(KeyError("secret")), debug=True)[2]


@pytest.mark.parametrize("sent", ["a b", "x" * 200, "\x01"])
def test_a_name_that_cannot_stand_in_a_log_is_replaced(sent):
    status, headers, _ = played(get("/", f"x-request-id: {sent}"))
    assert status in (200, 400)
    if status == 200 and sent != "a b":
        assert headers["x-request-id"] != sent


def test_paths_find_the_longest_prefix_that_ends_with_a_part():
    async def play(path):
        async with proxy(routes={"/llm": "llm", "/llm/small": "small"}) as (port, _, app):
            found = app._find(path)
            status, _, body = await ask(port, get(path))
            assert (status == 404) == (found is None)
            return found, body

    assert asyncio.run(play("/llm/x"))[0] == ("/llm", "llm")
    assert asyncio.run(play("/llm/small/x"))[0] == ("/llm/small", "small")
    assert asyncio.run(play("/llmx")) == (None, b"no application at /llmx; GET /-/routes shows those that there are\n")


def test_health_and_routes_are_the_proxys_own():
    async def play():
        async with proxy(failing(AssertionError())) as (port, _, app):
            healthy, routes = await ask(port, get("/-/healthz")), await ask(port, get("/-/routes"))
            app.leaving = True
            leaving = await ask(port, get("/-/healthz")), await ask(port, get("/-/routes"))
            app.draining = True
            return healthy, routes, leaving, await ask(port, get("/-/healthz"))

    healthy, routes, leaving, draining = asyncio.run(play())
    assert [status for status, *_ in leaving] == [503, 200]
    assert leaving[0][2] == b"the node is drained\n"
    assert (healthy[0], healthy[2]) == (200, b"success")
    assert json.loads(routes[2]) == {"/": "m"}
    assert draining[0] == 503


@pytest.mark.parametrize(
    "text",
    [
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_with_400_or_hung_up_on(text):
    async def play():
        async with proxy() as (port, _, _):
            try:
                status = (await ask(port, text))[0]
            except (asyncio.IncompleteReadError, ConnectionError):
                status = 400
            return status, (await ask(port, get()))[0]

    assert asyncio.run(play()) == (400, 200), "and the next client is served"


def waits(call):
    """An application that wants the whole body first."""
    call.source.wanted(lambda piece: waits(call))


def test_a_body_that_is_no_chunk_is_answered_with_400():
    whole = get("/", "transfer-encoding: chunked", method="POST", body=b"2\r\nab\r\nzz\r\n")
    assert played(whole, waits)[0] == 400


def test_a_wrong_request_behind_one_that_is_not_answered_yet_is_not_taken_for_its_answer():
    async def play():
        async with proxy(lambda call: None) as (port, router, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get())
            async with asyncio.timeout(TIMEOUT_S):
                while not router.calls:
                    await asyncio.sleep(0.01)
                writer.write(b"NONSENSE\r\n\r\n")
                return await reader.read()

    assert asyncio.run(play()) == b"", "it is hung up on"


def test_huge_headers_are_refused_before_they_are_kept():
    status, _, _ = played(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 2000, max_header_bytes=1000)
    assert status == 431


def test_a_large_body_does_not_count_as_a_header():
    body = b"z" * 5000
    status, _, _ = played(get("/", "content-length: 5000", method="POST", body=body), max_header_bytes=1000)
    assert status == 200


def test_a_client_that_does_not_finish_its_header_is_hung_up_on():
    assert played(b"GET / HTTP/1.1\r\nhost: a\r\n", header_timeout_s=0.5)[0] == 408


def test_a_body_over_the_limit_is_refused_when_it_is_announced_and_when_it_comes():
    def wants_more(call):
        call.source.wanted(lambda piece: wants_more(call))

    assert played(get("/", "content-length: 11", method="POST"), wants_more, max_body_bytes=10)[0] == 413
    chunked = get("/", "transfer-encoding: chunked", method="POST", body=b"6\r\nabcdef\r\n6\r\nabcdef\r\n0\r\n\r\n")
    assert played(chunked, wants_more, max_body_bytes=10)[0] == 413


def test_a_client_that_leaves_cancels_its_request():
    async def play():
        cancelled = asyncio.Event()
        arrived = asyncio.Event()

        def never(call):
            call.when_given_up(lambda _: cancelled.set())
            arrived.set()

        async with proxy(never) as (port, _, _):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get())
            async with asyncio.timeout(TIMEOUT_S):
                await arrived.wait()
                writer.close()
                await cancelled.wait()

    asyncio.run(play())


def test_requests_leave_nothing_for_the_garbage_collector():
    """It stops the whole proxy, and every client waits."""

    def held():
        return sum(type(each) in (Call, Exchange) for each in gc.get_objects())

    async def play():
        async with proxy() as (port, router, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            gc.collect()
            gc.disable()
            before = held()  # by other tests
            try:
                for _ in range(20):
                    writer.write(get())
                    async with asyncio.timeout(TIMEOUT_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
                    router.calls.clear()
                return held() - before
            finally:
                gc.enable()
                writer.close()

    assert asyncio.run(play()) < 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"port": 0}, "port must be an integer from 1 to 65535, got 0"),
        ({"location": "Everywhere"}, "location must be one of 'HeadOnly'"),
        ({"request_timeout_s": -1}, "request_timeout_s must be a number of seconds above 0"),
        ({"host": ""}, "host must be an address"),
        ({"debug": 1}, "debug must be True or False"),
    ],
)
def test_options_that_cannot_be_are_named(options, told):
    with pytest.raises(InvalidDeploymentError, match=told):
        HttpOptions(**options)


def test_prefixes_are_kept_in_one_form():
    assert [checked_prefix(each) for each in ("/", "/a/", "//a//b")] == ["/", "/a", "/a/b"]
    for wrong in ("a", "", "/a?b", "/{x}", "/-/healthz", None):
        with pytest.raises(InvalidDeploymentError, match="route_prefix"):
            checked_prefix(wrong)


@pytest.mark.parametrize("retry_after_s", [None, 10.0])
def test_a_deployment_that_has_failed_is_a_503_with_the_reason_and_without_the_traceback(retry_after_s):
    error = UnavailableError("m is DEPLOY_FAILED: it failed to start 3 times\nTraceback: password", retry_after_s)
    status, headers, body = played(get(), failing(error))
    assert (status, body) == (503, b"m is DEPLOY_FAILED: it failed to start 3 times\n`rankcore status` says more\n")
    assert headers.get("retry-after") == ("10" if retry_after_s else None)


TOLD = "shop/m is UNAVAILABLE: version '1' failed 3 times in one slot and was never ready\n"


def test_why_weights_cannot_be_loaded_is_in_the_503_of_their_deployment():
    because = "shop/m#3: load: no such file: /models/m; failure 3 in its slot, next start after 4 s"
    status, _, body = played(get(), failing(UnavailableError(TOLD + because)))
    assert (status, body.decode()) == (503, f"{TOLD}{because}\n")


def test_what_user_code_raised_when_it_was_started_is_for_clients_where_debug_says_so():
    error = UnavailableError(f"{TOLD}m#3: ValueError: password\n\nwas the direct cause of\n\nTraceback: ...")
    assert played(get(), failing(error))[2].decode() == f"{TOLD}`rankcore status` says more\n"
    assert played(get(), failing(error), debug=True)[2].decode() == f"{error}\n"
