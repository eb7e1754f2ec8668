"""HTTP and gRPC in front of replicas on a real Ray cluster."""

import http.client
import json
import os
import signal
import socket
import threading

import pytest

from tests.free_ports import free_ports
from tests.ray_local import ANSWER_S, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def ports():
    """Two that are free."""
    return free_ports(2)


class Client:
    """A connection for each request."""

    def __init__(self, port):
        self.port = port

    def open(self, path, body=None, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        connection.request(method, path, body, headers)
        return connection.getresponse()

    def ask(self, path, body=None, **options):
        response = self.open(path, body, **options)
        return response.status, response.read()

    def up(self):
        try:
            return self.ask("/-/healthz")[0] == 200
        except OSError:
            return False


@pytest.fixture
def client(serve, ports):
    serve.start(http_options={"port": ports[0], "max_body_bytes": 4_000_000}, proxy_location="HeadOnly")
    return Client(ports[0])


def test_requests_reach_their_application_and_all_kinds_of_answers_come_back(serve, client, tmp_path):
    from tests.ray_apps import Web

    serve.run(Web.bind(str(tmp_path / "go")), route_prefix="/web")
    eventually(lambda: client.ask("/web")[0] == 200, "the route is known")
    response = client.open("/web/x", b"a" * 3_000_000, method="POST", **{"x-request-id": "r-1"})
    assert json.loads(response.read()) == {"length": 3_000_000, "id": "r-1"}, "a body that comes in pieces"
    assert response.getheader("x-request-id") == "r-1"
    assert client.ask("/web/x", b"a" * 5_000_000, method="POST")[0] == 413
    assert client.ask("/web/stream") == (200, b"0\n1\n2\n")
    status, body = client.ask("/web/fail")
    assert status == 500
    assert b"the log has the traceback of request" in body
    assert client.ask("/other")[0] == 404
    assert json.loads(client.ask("/-/routes")[1]) == {"/web": "default/Web"}
    response = client.open("/web/for-ever")
    assert response.readline() == b"more\n"
    response.close()
    eventually(lambda: client.ask("/web/cancelled")[1] == b"1", "the client's leaving has reached the generator")


def test_a_proxy_on_a_drained_node_fails_its_health_check_and_serves_on(serve, client, tmp_path):
    from tests.ray_apps import Web

    serve.run(Web.bind(str(tmp_path / "go")), route_prefix="/web")
    eventually(lambda: client.ask("/web")[0] == 200, "the route is known")
    (proxy,) = serve.status().proxy_infos
    serve.drain(proxy.node_id)
    eventually(lambda: client.ask("/-/healthz") == (503, b"the node is drained\n"), "load balancers go elsewhere")
    assert client.ask("/web")[0] == 200
    serve.uncordon(proxy.node_id)
    eventually(client.up, "they come back")


def test_a_dead_proxy_is_replaced_on_its_port_and_a_dead_controller_is_not_missed(serve, client, tmp_path):
    from tests.ray_apps import Web

    serve.run(Web.bind(str(tmp_path / "go")), route_prefix="/")
    eventually(lambda: client.ask("/")[0] == 200, "the route is known")
    (before,) = serve.status().proxy_infos
    os.kill(before.pid, signal.SIGKILL)
    eventually(client.up, "another proxy has its port")
    eventually(lambda: client.ask("/")[0] == 200, "it knows the route")
    after = eventually(
        lambda: (found := serve.status().proxy_infos[0]).pid not in (None, before.pid) and found, "status says so"
    )
    os.kill(serve.status().controller_pid, signal.SIGKILL)
    assert client.ask("/")[0] == 200, "while there is no controller"
    eventually(lambda: [each.pid for each in serve.status().proxy_infos] == [after.pid], "the next controller has found it")


def test_what_is_under_way_is_answered_when_all_is_shut_down(serve, client, tmp_path):
    import threading

    from tests.ray_apps import Web

    serve.run(Web.bind(str(tmp_path / "go")), route_prefix="/")
    eventually(lambda: client.ask("/")[0] == 200, "the route is known")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(client.ask("/wait")))
    asking.start()
    eventually((tmp_path / "go.begun").exists, "it is under way")
    ending = threading.Thread(target=lambda: serve.shutdown(timeout_s=ANSWER_S))
    ending.start()
    (tmp_path / "go").touch()
    asking.join()
    ending.join()
    assert answers == [(200, b"waited")]


def test_an_ingress_application_has_its_routes_methods_and_websockets(serve, client):
    import websockets.sync.client
    from fastapi import FastAPI, WebSocket

    app = FastAPI()
    names = {"serve": serve, "app": app, "WebSocket": WebSocket, "__name__": "__main__"}
    exec(  # as a user's main module would define it
        """
@serve.deployment(ray_actor_options={"num_cpus": 0})
@serve.ingress(app)
class Api:
    def __init__(self, greeting):
        self.greeting = greeting

    @app.get("/hello")
    def hello(self, name: str):
        return f"{self.greeting} {name}"

    @app.websocket("/echo")
    async def echo(self, socket: WebSocket):
        await socket.accept()
        while True:
            await socket.send_text(self.greeting + await socket.receive_text())
""",
        names,
    )
    serve.run(names["Api"].bind("Good day"), route_prefix="/api")
    eventually(lambda: client.ask("/api/hello?name=you") == (200, b'"Good day you"'), "the route is known")
    assert client.ask("/api/hello")[0] == 422
    assert client.ask("/api/nothing")[0] == 404
    with websockets.sync.client.connect(f"ws://127.0.0.1:{client.port}/api/echo") as connection:
        for text in ("a", "b"):
            connection.send(text)
            assert connection.recv(timeout=ANSWER_S) == f"Good day{text}"


def test_the_lifespan_of_an_application_is_that_of_its_replica(serve, client, tmp_path):
    from contextlib import asynccontextmanager

    from fastapi import FastAPI

    from executors.ray_gpu.errors import DeploymentFailedError

    started, stopped = str(tmp_path / "started"), str(tmp_path / "stopped")

    def api(fails):
        @asynccontextmanager
        async def lifespan(app):
            from pathlib import Path

            if fails:
                raise KeyError("no weights here")
            Path(started).touch()
            yield {"model": "loaded"}
            Path(stopped).touch()

        app = FastAPI(lifespan=lifespan)

        @serve.deployment(name="api", num_replicas=1, max_start_failures=1, ray_actor_options={"num_cpus": 0})
        @serve.ingress(app)
        class Api:
            def was_started(self):
                import os

                return os.path.exists(started)

        return Api.bind()

    handle = serve.run(api(fails=False), route_prefix="/api")
    assert handle.was_started.remote().result(ANSWER_S), "before the replica was ready"
    assert not (tmp_path / "stopped").exists()
    serve.delete("api")
    assert (tmp_path / "stopped").exists()
    with pytest.raises(DeploymentFailedError, match="no weights here"):
        serve.run(api(fails=True), route_prefix="/api")


def test_grpc_has_status_codes_streams_deadlines_health_and_reflection(serve, ports):
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
    from ray.serve.generated import serve_pb2, serve_pb2_grpc  # a service that is there anyway

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Service:
        def __call__(self, request):
            return serve_pb2.UserDefinedResponse(greeting=f"Hello {request.name}", num_x2=2 * request.num)

        async def Method1(self, request):
            import asyncio

            if request.name == "wait":
                await asyncio.Event().wait()
            raise KeyError("not here")

        def Streaming(self, request):
            for number in range(request.num):
                yield serve_pb2.UserDefinedResponse(num_x2=number)

    http_port, grpc_port = ports
    functions = [serve_pb2_grpc.add_UserDefinedServiceServicer_to_server]
    serve.start(
        http_options={"port": http_port},
        grpc_options={"port": grpc_port, "servicer_functions": functions},
        proxy_location="HeadOnly",
    )
    serve.run(Service.bind(), name="app", route_prefix=None)
    message = serve_pb2.UserDefinedMessage
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
        call = stub.__call__

        def code(function, request, **options):
            try:
                return function(request, timeout=ANSWER_S if "timeout" not in options else options.pop("timeout"), **options)
            except grpc.RpcError as error:
                return error.code().name

        eventually(lambda: not isinstance(code(call, message(name="you")), str), "the application is known")
        assert call(message(name="you", num=3)).num_x2 == 6
        assert [each.num_x2 for each in stub.Streaming(message(num=4))] == [0, 1, 2, 3]
        assert code(stub.Method1, message(name="fail")) == "INTERNAL"
        assert code(stub.Method1, message(name="wait"), timeout=0.5) == "DEADLINE_EXCEEDED"
        assert code(call, message(), metadata=(("application", "other"),)) == "NOT_FOUND"
        assert code(call, message(name="you"), metadata=(("application", "app"),)).greeting == "Hello you"
        check = health_pb2.HealthCheckRequest(service="ray.serve.UserDefinedService")
        assert health_pb2_grpc.HealthStub(channel).Check(check).status == health_pb2.HealthCheckResponse.SERVING
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        (answer,) = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked)
        assert "ray.serve.UserDefinedService" in {each.name for each in answer.list_services_response.service}


def test_a_port_that_is_anothers_is_said_at_once_and_had_when_it_is_free(serve, client, ports, caplog):
    eventually(client.up, "the first proxy knows the routes, of which there are none")
    with socket.create_server(("127.0.0.1", ports[1])):
        serve.start(http_options={"port": ports[1]}, proxy_location="HeadOnly")
        (proxy,) = serve.status().proxy_infos
        assert proxy.pid is None
        assert proxy.problem.endswith(f"port {ports[1]} of 127.0.0.1 is another process's: choose another port")
        assert proxy.problem in caplog.text
    eventually(Client(ports[1]).up, "the proxy has its port")
    assert not client.up(), "the proxy with the options before has ended"
    serve.start(http_options={"location": "Disabled"})
    assert serve.status().proxy_infos == ()
    assert not Client(ports[1]).up()


def test_an_application_that_has_failed_says_why_over_http_and_by_its_handle(serve, client):
    from executors.ray_gpu.errors import DeploymentFailedError, UnavailableError

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Fails:
        def __init__(self):
            raise OSError("no such weights")

        def __call__(self):
            return "never"

    with pytest.raises(DeploymentFailedError, match="no such weights"):
        serve.run(Fails.bind(), route_prefix="/fails")
    response = client.open("/fails")
    assert (response.status, b"Fails is DEPLOY_FAILED: " in response.read()) == (503, True)
    with pytest.raises(UnavailableError, match="no such weights"):
        serve.get_deployment_handle("Fails").remote().result(timeout_s=ANSWER_S)


def test_what_takes_no_request_is_called_without_one_and_an_application_is_made_on_its_replica(serve, client):
    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Nothing:
        def __call__(self):
            return "nothing"

    @serve.multiplexed(max_num_models_per_replica=1)
    async def model(model_id):
        return f"model {model_id}"

    def build():
        from fastapi import FastAPI

        app = FastAPI()
        process = os.getpid()

        @app.get("/made")
        async def made(model_id: str):
            return [process == os.getpid(), await model(model_id)]

        return app

    @serve.deployment(ray_actor_options={"num_cpus": 0})
    @serve.ingress(build)
    class Built:
        pass

    serve.run(Nothing.bind(), name="nothing", route_prefix="/nothing")
    serve.run(Built.bind(), name="built", route_prefix="/built")
    eventually(lambda: client.ask("/nothing") == (200, b"nothing"), "the route is known")
    eventually(lambda: client.ask("/built/made?model_id=a") == (200, b'[true,"model a"]'), "the route is known")


def test_two_applications_of_one_class_touch_only_their_own(serve, ports):
    """One is deployed with other code, and deleted, and the controller is killed in between, while the other answers."""
    import grpc
    from ray.serve.generated import serve_pb2, serve_pb2_grpc

    from executors.ray_gpu.discovery import find_replicas
    from executors.ray_gpu.errors import UnknownNameError

    @serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})
    class Named:
        def __init__(self, greeting):
            self.greeting = greeting

        def __call__(self, request):
            context = serve.get_replica_context()
            said = f"{self.greeting} {context.app_name} {context.deployment}"
            return serve_pb2.UserDefinedResponse(greeting=said) if hasattr(request, "num") else said

    client, options = Client(ports[0]), {"port": ports[1], "servicer_functions": [add_service(serve_pb2_grpc)]}
    serve.start(http_options={"port": ports[0]}, grpc_options=options, proxy_location="HeadOnly")
    with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
        stub = serve_pb2_grpc.UserDefinedServiceStub(channel)

        def answers(name):
            """What is said over HTTP, gRPC and handles."""
            call = stub.__call__
            try:
                over_grpc = call(serve_pb2.UserDefinedMessage(), timeout=ANSWER_S, metadata=(("application", name),)).greeting
            except grpc.RpcError as error:
                over_grpc = error.code().name
            return client.ask(f"/{name}"), over_grpc

        def say(name, greeting):
            said = f"{greeting} {name} Named"
            return eventually(lambda: answers(name) == ((200, said.encode()), said), f"{name} says {greeting}")

        first = serve.run(Named.bind("hello"), name="a", route_prefix="/a")
        serve.run(Named.bind("hi"), name="b", route_prefix="/b")
        assert say("a", "hello")
        assert say("b", "hi")
        assert serve.get_app_handle("b").remote(0).result(ANSWER_S) == "hi b Named"
        assert serve.get_deployment_handle("Named", "a").remote(0).result(ANSWER_S) == "hello a Named"
        with pytest.raises(UnknownNameError, match="deployment 'Named' may be any of: a/Named, b/Named"):
            serve.scale("Named", 1)
        ended, wrong = threading.Event(), []

        def ask():
            while not ended.is_set():
                found = answers("b")
                if found != ((200, b"hi b Named"), "hi b Named"):
                    wrong.append(found)

        def pids(status):
            found = status.deployments["b/Named"]
            return found.status, [(each.rank, each.replica_id, each.pid) for each in found.replicas]

        before = serve.status()
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            serve.run(Named.bind("good day"), name="a", route_prefix="/a")
            assert say("a", "good day")
            os.kill(serve.status().controller_pid, signal.SIGKILL)
            eventually(lambda: serve.status().epoch > before.epoch, "the next controller")
            assert first.remote(0).result(ANSWER_S) == "good day a Named"
            serve.delete("a")
            eventually(lambda: (client.ask("/a")[0], answers("a")[1]) == (404, "NOT_FOUND"), "its routes are gone")
            eventually(lambda: pids(serve.status()) == pids(before), "the other one has its replicas and ranks")
        finally:
            ended.set()
            asking.join()
        assert wrong == []
        assert say("b", "hi")
        assert find_replicas("rankcore") == {
            "b/Named": sorted(each.replica_id for each in before.deployments["b/Named"].replicas)
        }
        with pytest.raises(UnknownNameError, match="there is no application 'a'; there is: b"):
            serve.get_app_handle("a")


def add_service(generated):
    return generated.add_UserDefinedServiceServicer_to_server
