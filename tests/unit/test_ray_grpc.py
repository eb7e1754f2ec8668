"""gRPC through a proxy's server over real sockets, without a cluster: which call is answered how."""

import asyncio
import contextlib
import json
import pickle
import time

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'rankcore[grpc]'")

import grpc
from ray.serve.generated import serve_pb2, serve_pb2_grpc  # a service that is there anyway

from executors.ray_gpu.errors import (
    DeadlineError,
    InvalidDeploymentError,
    NotRunningError,
    OverloadedError,
    RemoteError,
    ReplicaGoneError,
    UnavailableError,
    UnknownNameError,
)
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.grpc_proxy.server import GrpcServer
from executors.ray_gpu.grpc_proxy.service import Service
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.proxies.options import ProxyOptions, chosen
from executors.ray_gpu.requests.call import Answer
from executors.ray_gpu.requests.frames import ERROR, VALUE
from executors.ray_gpu.requests.inputs import InputsToCome, message, no_more, with_inputs
from executors.ray_gpu.requests.packing import pack_error, unpack_call
from executors.ray_gpu.requests.pieces import loaded
from tests.free_ports import free_ports
from tests.unit.test_ray_http import Router

TIMEOUT_S = 120
ADD = "ray.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server"


def greet(call):
    _, ((request,), _), _ = unpack_call(call.packed)
    call.finish(Answer(VALUE, pickle.dumps(serve_pb2.UserDefinedResponse(greeting=f"Hello {request.name}"))))


def count(call):
    call.stream.begin(lambda _: None)
    for number in range(3):
        call.stream.put(pickle.dumps(serve_pb2.UserDefinedResponse(num_x2=number)))
    call.stream.end()


def failing(error):
    return lambda call: call.fail(error)


def raising(error):
    return lambda call: call.finish(Answer(ERROR, pack_error(error, "Traceback: in the replica")[1]))


@contextlib.asynccontextmanager
async def served(answer=greet, applications=("app",), channel_options=(), **options):
    chosen_options = GrpcOptions(servicer_functions=[ADD], port=free_ports(1)[0], drain_timeout_s=0.1, **options)
    router = Router(answer)
    service = Service(lambda deployment: router, chosen_options.request_timeout_s)
    service.applications = None if applications is None else {name: name for name in applications}
    server = GrpcServer(chosen_options, service)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{chosen_options.port}", options=channel_options) as channel:
            yield channel, router
    finally:
        await server.end()


async def told(call):
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details()


def asked(answer=greet, method="__call__", request=None, metadata=(), timeout=TIMEOUT_S, **options):
    async def play():
        async with served(answer, **options) as (channel, _):
            method_of = getattr(serve_pb2_grpc.UserDefinedServiceStub(channel), method)
            call = method_of(request or serve_pb2.UserDefinedMessage(name="you"), metadata=metadata, timeout=timeout)
            found = await told(call)
            return found, dict(await call.trailing_metadata() or ())

    return asyncio.run(play())


def test_a_call_reaches_its_deployment_and_the_answer_its_client():
    found, metadata = asked(metadata=(("request_id", "mine"), ("odd-bin", b"\x00\xff")))
    assert found.greeting == "Hello you"
    assert metadata["request_id"] == "mine"


def test_a_name_that_cannot_stand_in_a_log_is_replaced():
    assert asked(metadata=(("request_id", "x" * 200),))[1]["request_id"] != "x" * 200


def test_a_stream_comes_item_by_item():
    async def play():
        async with served(count) as (channel, _):
            stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
            return [each.num_x2 async for each in stub.Streaming(serve_pb2.UserDefinedMessage(), timeout=TIMEOUT_S)]

    assert asyncio.run(play()) == [0, 1, 2]


def consuming(call):
    """A replica that asks for one message after the other."""
    seen = []

    def take(body):
        has_come, value = loaded(body)
        seen.append(value.name if has_come else value)
        if has_come:
            return call.source.wanted(take)
        call.finish(Answer(VALUE, pickle.dumps(serve_pb2.UserDefinedResponse(greeting=" ".join(seen)))))

    _, ((given,), _), _ = unpack_call(call.packed)
    assert given == InputsToCome()
    call.source.wanted(take)


def test_messages_of_a_client_are_read_one_by_one_as_they_are_wanted_and_what_is_none_is_told():
    async def play():
        async with served(consuming) as (channel, _):
            stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
            messages = [serve_pb2.UserDefinedMessage(name=name) for name in "abc"]
            found = await stub.ClientStreaming(iter(messages), timeout=TIMEOUT_S)
            raw = channel.stream_unary("/ray.serve.UserDefinedService/ClientStreaming")
            return found.greeting, await raw(iter([b"\xff\xff"]), timeout=TIMEOUT_S)

    greeting, broken = asyncio.run(play())
    assert greeting == "a b c "
    assert b"no message for ray.serve.UserDefinedService/ClientStreaming could be read: DecodeError" in broken


def test_a_method_gets_what_comes_later_as_something_to_iterate_over():
    async def play(*bodies):
        left = list(bodies)

        async def ask():
            return left.pop(0)

        (given, *rest), kwargs = with_inputs(((InputsToCome(), 1), {"a": 2}), ask)
        found = [each async for each in given]
        return found, [each async for each in given], rest, kwargs

    assert asyncio.run(play(message("x"), message(None), no_more())) == (["x", None], [], [1], {"a": 2})
    assert with_inputs((("x",), {}), None) == (("x",), {})
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(play(message("x"), no_more("broken")))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OverloadedError("full", 7.2), "RESOURCE_EXHAUSTED"),
        (DeadlineError("late"), "DEADLINE_EXCEEDED"),
        (ReplicaGoneError("it died"), "UNAVAILABLE"),
        (UnknownNameError("deleted"), "NOT_FOUND"),
        (NotRunningError("no cluster"), "UNAVAILABLE"),
    ],
)
def test_each_way_to_fail_has_its_status(error, code):
    assert asked(failing(error))[0] == (code, str(error))


@pytest.mark.parametrize("kind", [OverloadedError, UnavailableError])
def test_who_may_try_again_later_is_told_when(kind):
    _, metadata = asked(failing(kind("m is UNAVAILABLE: no room", 11.4)), metadata=(("request_id", "mine"),))
    assert metadata["retry-after"] == "12"
    assert metadata["request_id"] == "mine"
    assert "retry-after" not in asked(failing(UnavailableError("m is DEPLOY_FAILED")))[1]


def test_why_a_deployment_has_failed_is_told_and_not_what_user_code_raised():
    what, why = "m is DEPLOY_FAILED: it failed to start 3 times", "m#3: load: no such file: /models/m"
    assert asked(failing(UnavailableError(f"{what}\n{why}")))[0] == ("UNAVAILABLE", f"{what}\n{why}")
    assert asked(failing(UnavailableError(f"{what}\nm#3: Traceback: password")))[0] == (
        "UNAVAILABLE",
        f"{what}\n`rankcore status` says more",
    )


def test_a_client_that_tries_again_by_itself_does_so_when_it_was_told_to():
    policy = {
        "maxAttempts": 2,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.02s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
    came_at = []

    def later(call):
        came_at.append(time.monotonic())
        failing(UnavailableError("no room", 1.0))(call) if len(came_at) == 1 else greet(call)

    async def play():
        async with served(later, channel_options=[("grpc.service_config", config)]) as (channel, _):
            stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
            return await told(stub.__call__(serve_pb2.UserDefinedMessage(name="you"), timeout=TIMEOUT_S))

    assert asyncio.run(play()).greeting == "Hello you"
    assert came_at[1] - came_at[0] > 0.9, "not after its own backoff"


def test_a_long_reason_keeps_its_status():
    (code, details), _ = asked(failing(UnavailableError("m is UNHEALTHY: " + "é" * 20_000)))
    assert (code, details[:17]) == ("UNAVAILABLE", "m is UNHEALTHY: é")
    (code, details), _ = asked(applications=tuple(f"application-{number}" for number in range(2000)))
    assert (code, details[:21]) == ("NOT_FOUND", "say which application")


@pytest.mark.parametrize("error", [KeyError("secret"), RemoteError("user code raised Odd: secret")])
def test_a_traceback_is_for_the_log_and_the_client_has_a_reference(caplog, error):
    (code, details), _ = asked(raising(error), metadata=(("request_id", "r-9"),))
    assert code == "INTERNAL"
    assert "r-9" in details
    assert "secret" not in details
    assert "Traceback: in the replica" in caplog.text


def test_an_answer_of_another_type_is_an_error_with_a_reference(caplog):
    (code, details), _ = asked(
        lambda call: call.finish(Answer(VALUE, pickle.dumps("no message"))), metadata=(("request_id", "r-8"),)
    )
    assert (code, "r-8" in details) == ("INTERNAL", True)
    assert "r-8" in caplog.text


def test_which_application_is_asked_has_to_be_clear():
    assert asked(applications=("a", "b"))[0][0] == "NOT_FOUND"
    assert asked(applications=("a", "b"), metadata=(("application", "b"),))[0].greeting == "Hello you"
    assert asked(applications=("a",), metadata=(("application", "c"),))[0][0] == "NOT_FOUND"
    assert asked(applications=None)[0][0] == "UNAVAILABLE", "a new proxy does not know them yet"


@pytest.mark.parametrize("how", ["deadline", "cancelled"])
def test_a_client_that_waits_no_longer_gives_the_replica_back(how):
    async def play():
        arrived, given_up = asyncio.Event(), asyncio.Event()

        def never(call):
            call.when_given_up(lambda _: given_up.set())
            arrived.set()

        async with served(never) as (channel, router):
            async with asyncio.timeout(TIMEOUT_S):
                await channel.channel_ready()  # its deadline is to pass in the replica, and not on the way there
            stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
            call = stub.Method1(serve_pb2.UserDefinedMessage(), timeout=2.0 if how == "deadline" else None)
            waiting = asyncio.ensure_future(told(call))
            async with asyncio.timeout(TIMEOUT_S):
                await arrived.wait()
                if how == "cancelled":
                    call.cancel()
                await given_up.wait()
                await asyncio.wait([waiting])
            return router.calls[0].wishes.timeout_s

    timeout_s = asyncio.run(play())
    assert (timeout_s is None) == (how == "cancelled"), "the client's deadline is the call's"


def test_what_is_no_call_of_the_service_has_its_status():
    async def play():
        async with served(max_message_bytes=1000) as (channel, router):
            unknown = channel.unary_unary("/ray.serve.UserDefinedService/Nothing")
            known = channel.unary_unary("/ray.serve.UserDefinedService/Method1")
            answers = [await told(unknown(b"", timeout=TIMEOUT_S))]
            answers += [await told(known(body, timeout=TIMEOUT_S)) for body in (b"x" * 2000, b"\xff\xff")]
            return [code for code, _ in answers], len(router.calls)

    assert asyncio.run(play()) == (["UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"], 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"port": 0}, "port must be an integer"),
        ({"host": ""}, "host must be an address"),
        ({"max_message_bytes": 2**31}, "max_message_bytes must be an integer from 1 to"),
        ({"prot": 1}, "no option 'prot'; the options are: .*servicer_functions"),
    ],
)
def test_options_that_cannot_be_are_named(options, words):
    with pytest.raises(InvalidDeploymentError, match=words):
        chosen(GrpcOptions, {"servicer_functions": [ADD], **options})


def test_options_of_proxies_are_checked_before_anything_begins():
    with pytest.raises(InvalidDeploymentError, match="no 'servicer_functions' given"):
        chosen(GrpcOptions, {})
    with pytest.raises(InvalidDeploymentError, match="a dict of its fields, got 8000"):
        chosen(HttpOptions, 8000)
    with pytest.raises(InvalidDeploymentError, match="cannot share port 8000"):
        ProxyOptions(http=HttpOptions(port=8000), grpc=GrpcOptions(servicer_functions=[ADD], port=8000))


def test_the_health_of_a_drained_node_sends_calls_elsewhere_and_answers_those_that_come(monkeypatch):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    servers, begun = [], GrpcServer.start

    async def start(self):
        servers.append(self)
        await begun(self)

    monkeypatch.setattr(GrpcServer, "start", start)

    async def play():
        async with served() as (channel, _):
            found = []
            for leaving in (True, False):
                await servers[0].say_health(leaving=leaving)
                health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
                answer = await told(
                    serve_pb2_grpc.UserDefinedServiceStub(channel).__call__(serve_pb2.UserDefinedMessage(name="you"))
                )
                found.append((health.status, type(answer)))
            return found

    not_serving, serving = health_pb2.HealthCheckResponse.NOT_SERVING, health_pb2.HealthCheckResponse.SERVING
    response = serve_pb2.UserDefinedResponse
    assert asyncio.run(play()) == [(not_serving, response), (serving, response)]
