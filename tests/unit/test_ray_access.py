"""TLS and bearer tokens in front of a proxy: who is let in, and what is never shown. Over real sockets, without a cluster."""

import asyncio
import ssl
import subprocess
import sys

import grpc
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray.serve.generated import serve_pb2, serve_pb2_grpc

from executors.ray_gpu import connection, instance
from executors.ray_gpu.errors import InvalidDeploymentError, NotRunningError, RayExecutorError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.proxies.options import ProxyOptions, chosen
from executors.ray_gpu.requests.packing import unpack_call
from tests.certificates import Authority
from tests.unit.test_ray_grpc import ADD, greet, served, told
from tests.unit.test_ray_http import TIMEOUT_S, ask, get, proxy
from tests.unit.test_ray_http_clients import HANDSHAKE, accepts

TOKEN = "a-token-of-a-test-0123456789"
BEARER = f"authorization: Bearer {TOKEN}"
WRONG = (
    (),
    ("authorization: Bearer wrong-token-of-a-test-012",),
    (f"authorization: Bearer {TOKEN}x",),
    (f"authorization: Basic {TOKEN}",),
    (f"authorization: {TOKEN}",),
    ("authorization: Bearer",),
    ("authorization: Bearer \xff\xfe",),
    (BEARER, "authorization: Bearer other"),
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


def played(*headers, path="/", answer=None):
    async def play():
        async with proxy(*([answer] if answer else []), bearer_token=TOKEN) as (port, router, _):
            return (await ask(port, get(path, *headers)))[:2], [unpack_call(call.packed)[1][0][0] for call in router.calls]

    return asyncio.run(play())


@pytest.mark.parametrize("headers", WRONG)
def test_nobody_is_let_in_without_the_token(headers):
    (status, said), calls = played(*headers)
    assert (status, said["www-authenticate"], calls) == (401, "bearer", [])


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_a_request_comes_in_and_the_token_goes_no_further(scheme):
    (status, _), calls = played(f"authorization: {scheme} {TOKEN}")
    assert status == 200
    assert TOKEN.encode() not in repr(calls[0]).encode()


def test_health_is_for_all_and_routes_are_not():
    assert played(path="/-/healthz")[0][0] == 200
    assert played(path="/-/routes")[0][0] == 401
    assert played(BEARER, path="/-/routes")[0][0] == 200


def test_websockets_need_the_token_too():
    assert played(*HANDSHAKE)[0][0] == 401
    assert played(*HANDSHAKE, path="/-/healthz")[0][0] == 401

    async def play():
        async with proxy(accepts, bearer_token=TOKEN) as (port, _, _):
            return (await ask(port, get("/", *HANDSHAKE, BEARER)))[0]

    assert asyncio.run(play()) == 101


def client_context(authority, *own):
    context = ssl.create_default_context(cafile=authority.certfile)
    if own:
        context.load_cert_chain(*own)
    return context


async def ask_over_tls(port, context, text):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(text)
        async with asyncio.timeout(TIMEOUT_S):
            return await reader.readline()
    finally:
        writer.transport.abort()


def test_with_a_certificate_all_is_tls(authority):
    certfile, keyfile = authority.sign("server", "secret")
    options = {"ssl_certfile": certfile, "ssl_keyfile": keyfile, "ssl_keyfile_password": "secret"}
    body = bytes(300_000)

    async def play():
        async with proxy(**options) as (port, router, _):
            found = await ask_over_tls(port, client_context(authority), get("/", "content-length: 300000", body=body))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await ask(port, get())
            return found, unpack_call(router.calls[0].packed)[1][0][0]["scheme"], len(router.calls)

    assert asyncio.run(play()) == (b"HTTP/1.1 200 OK\r\n", "https", 1)


def test_nobody_is_asked_for_a_password_at_the_terminal(authority):
    """The proxy would wait for the answer, and serve nobody."""
    certfile, keyfile = authority.sign("hidden", "secret")
    config = f"HttpOptions(ssl_certfile={certfile!r}, ssl_keyfile={keyfile!r})"
    script = (
        "import asyncio\nfrom executors.ray_gpu.http.options import HttpOptions\n"
        "from executors.ray_gpu.http.proxy_app import ProxyApp, serve\n"
        f"options = {config}\nasyncio.run(serve(ProxyApp(options, lambda _: None), options, []))"
    )
    at_terminal = f"import pty, sys\npty.spawn([sys.executable, '-c', {script!r}])"
    ended = subprocess.run(
        [sys.executable, "-c", at_terminal], stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
    )
    said = " ".join(ended.stdout.decode().split())
    assert "PEM pass phrase" not in said
    assert "if the key is encrypted, give its ssl_keyfile_password" in said


def test_clients_have_to_show_a_certificate_where_an_authority_is_given(authority):
    certfile, keyfile = authority.sign("server")
    options = {"ssl_certfile": certfile, "ssl_keyfile": keyfile, "ssl_ca_certs": authority.certfile}

    async def play():
        async with proxy(**options) as (port, router, _):
            found = await ask_over_tls(port, client_context(authority, *authority.sign("client")), get())
            try:
                without = await ask_over_tls(port, client_context(authority), get())
            except (ssl.SSLError, ConnectionError):
                without = b""
            return found, without, len(router.calls)

    assert asyncio.run(play()) == (b"HTTP/1.1 200 OK\r\n", b"", 1)


def test_certificates_that_cannot_be_read_are_named(tmp_path):
    async def play():
        async with proxy(ssl_certfile=str(tmp_path / "none.pem"), ssl_keyfile=str(tmp_path / "none.key")):
            pass

    with pytest.raises(RayExecutorError, match=r"no TLS with .*none\.pem"):
        asyncio.run(play())


async def greeting(channel, *metadata):
    call = serve_pb2_grpc.UserDefinedServiceStub(channel).__call__
    found = await told(call(serve_pb2.UserDefinedMessage(name="you"), metadata=metadata, timeout=TIMEOUT_S))
    return found[0] if isinstance(found, tuple) else "OK"


def test_grpc_needs_the_token_too_but_for_health():
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    async def play():
        async with served(greet, bearer_token=TOKEN) as (channel, router):
            found = [
                await greeting(channel),
                await greeting(channel, ("authorization", "Bearer wrong")),
                await greeting(channel, ("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer other")),
                await greeting(channel, ("authorization", f"Bearer {TOKEN}")),
            ]
            stream = serve_pb2_grpc.UserDefinedServiceStub(channel).Streaming(serve_pb2.UserDefinedMessage(), timeout=TIMEOUT_S)
            with pytest.raises(grpc.aio.AioRpcError) as streamed:
                await stream.read()
            asked = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
                iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=TIMEOUT_S
            )
            with pytest.raises(grpc.aio.AioRpcError) as reflected:
                await asked.read()
            health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
            codes = streamed.value.code().name, reflected.value.code().name
            return found, codes, health.status, len(router.calls)

    refused = "UNAUTHENTICATED"
    assert asyncio.run(play()) == ([refused, refused, refused, "OK"], (refused, refused), 1, 1)


@pytest.mark.parametrize("method", ["__call__", "Streaming"])
def test_grpc_refuses_without_waiting_for_the_request(method):
    """Else a client without the token could keep calls open, or have large messages read."""

    async def play():
        async with served(greet, bearer_token=TOKEN) as (channel, _):
            call = channel.stream_stream(f"/ray.serve.UserDefinedService/{method}")(timeout=TIMEOUT_S)
            async with asyncio.timeout(TIMEOUT_S / 2):
                return (await call.code()).name

    assert asyncio.run(play()) == "UNAUTHENTICATED"


def test_grpc_has_tls_too(authority):
    certfile, keyfile = authority.sign("server")
    with open(authority.certfile, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())

    async def play():
        async with served(greet, ssl_certfile=certfile, ssl_keyfile=keyfile) as (plain, router):
            port = plain._channel.target.decode().rpartition(":")[2]
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
                return await greeting(channel), await greeting(plain), len(router.calls)

    assert asyncio.run(play()) == ("OK", "UNAVAILABLE", 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_certfile": "a.pem"}, "ssl_certfile and ssl_keyfile go together, got ssl_certfile alone"),
        ({"ssl_keyfile": "a.key"}, "ssl_certfile and ssl_keyfile go together, got ssl_keyfile alone"),
        ({"ssl_ca_certs": "a.pem"}, "ssl_ca_certs needs ssl_certfile and ssl_keyfile"),
        ({"ssl_certfile": 3, "ssl_keyfile": "a"}, "ssl_certfile must be the path of a file, got 3"),
        ({"bearer_token": "short-secret"}, "bearer_token must be a string of 16 or more ASCII characters"),
        ({"bearer_token": "secret with blanks in it"}, "bearer_token must be"),
        ({"bearer_token": b"secret-secret-secret"}, "bearer_token must be .*, got a bytes"),
    ],
)
def test_options_that_cannot_be_are_named_and_secrets_are_not_shown(options, words):
    for kind, more in ((HttpOptions, {}), (GrpcOptions, {"servicer_functions": [ADD]})):
        with pytest.raises(InvalidDeploymentError, match=words) as raised:
            chosen(kind, {**more, **options})
        assert "secret" not in str(raised.value)


def test_secrets_are_in_no_representation():
    options = ProxyOptions(
        http=HttpOptions(bearer_token=TOKEN, ssl_certfile="a", ssl_keyfile="b", ssl_keyfile_password="secret"),
        grpc=GrpcOptions(servicer_functions=[ADD], bearer_token=TOKEN),
    )
    assert TOKEN not in repr(options)
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"host": "0.0.0.0"}, "without TLS and without a bearer token"),
        ({"host": "::"}, "without TLS and without a bearer token"),
        ({"host": "0.0.0.0", "bearer_token": TOKEN}, "without TLS:"),
        ({"host": "0.0.0.0", "ssl_certfile": "a", "ssl_keyfile": "b"}, "without a bearer token:"),
        ({"host": "0.0.0.0", "ssl_certfile": "a", "ssl_keyfile": "b", "ssl_ca_certs": "c"}, ""),
        ({"host": "0.0.0.0", "ssl_certfile": "a", "ssl_keyfile": "b", "bearer_token": TOKEN}, ""),
        ({"host": "127.0.0.1"}, ""),
        ({"host": "::1"}, ""),
        ({"host": "localhost"}, ""),
    ],
)
def test_an_open_door_is_said_in_one_line(options, missing, caplog, monkeypatch):
    def not_now(start):
        raise NotRunningError("no Ray here")

    monkeypatch.setattr(connection, "connect", not_now)
    with pytest.raises(NotRunningError):
        instance.start(http_options=options, grpc_options={"servicer_functions": [ADD], **options})
    lines = [record.getMessage() for record in caplog.records if "listens on" in record.getMessage()]
    assert len(lines) == (2 if missing else 0)
    assert all(missing in line and TOKEN not in line and "\n" not in line for line in lines)
