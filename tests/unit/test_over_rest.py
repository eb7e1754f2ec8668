"""A cluster asked through its REST server: the same verbs, by HTTP, of the real server with a stand-in for the controller."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

pytest.importorskip("starlette", reason="Starlette is not installed: pip install 'rankcore[http]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from typer.testing import CliRunner

from executors.cli.app import app
from executors.over_rest.api import RestApi
from executors.over_rest.client import RestClient, token_said
from executors.ray_gpu import changing, deploying, inspecting, instance
from executors.ray_gpu.errors import (
    ConflictError,
    InvalidCallError,
    NameInUseError,
    NoAnswerError,
    NotRunningError,
    UnknownNameError,
)
from executors.ray_gpu.overview import CordonedNode
from executors.ray_gpu.rest.cluster_view import NothingRunsError
from rankcore.cluster import ClusterPlan, PlannedChange
from tests.free_ports import free_ports
from tests.unit.test_rest import Rest, status_of

TOKEN = "a-token-of-22-letters!"
NODE = CordonedNode(node_id="n1", address="10.0.0.7", state="draining", left_s=5.0, reason="kernel")


class Server:
    """A REST server's application, over HTTP; `asked` has what came."""

    def __init__(self, rest):
        self.asked = []
        loop = asyncio.new_event_loop()
        self._turning = threading.Thread(target=loop.run_forever, daemon=True)
        self._turning.start()

        class Handler(BaseHTTPRequestHandler):
            def answer(handler):
                body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
                self.asked.append((handler.command, handler.path, json.loads(body) if body else None))
                named = {
                    key.lower(): each for key, each in handler.headers.items() if key.lower() in ("authorization", "if-match")
                }
                asking = rest.ask(handler.command, handler.path, body, **named)
                status, found, headers = asyncio.run_coroutine_threadsafe(asking, loop).result(60)
                raw = found if isinstance(found, bytes) else json.dumps(found).encode()
                handler.send_response(status)
                for key in ("content-type", "etag"):
                    if key in headers:
                        handler.send_header(key, headers[key])
                handler.send_header("content-length", str(len(raw)))
                handler.end_headers()
                handler.wfile.write(raw)

            do_GET = do_PUT = do_POST = do_DELETE = answer

            def log_message(*_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._loop = loop

    def end(self):
        self._server.shutdown()
        self._server.server_close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._turning.join(60)
        self._loop.close()


@pytest.fixture
def serve():
    there = []

    def begin(**options):
        there.append(Server(Rest(**options)))
        return there[-1]

    yield begin
    for each in there:
        each.end()


@pytest.fixture
def server(serve):
    return serve()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_DASHBOARD_ADDRESS", "RANKCORE_REST_TOKEN", "RANKCORE_REST_TOKEN_FILE"):
        monkeypatch.setenv(name, "")  # so that what a command sets is undone
        monkeypatch.delenv(name)


def typed(*words, status=0):
    done = CliRunner().invoke(app, words)
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


def api_at(server, token=None):
    return RestApi(RestClient(server.address, token))


def test_status_is_what_the_controller_has_said(server):
    assert api_at(server).status() == status_of()
    assert api_at(server).status(namespace="rankcore") == status_of()
    assert api_at(server).config_in_force()["applications"][0]["import_path"] == "models:app"


def test_how_the_controller_keeps_up_is_printed(server, monkeypatch):
    monkeypatch.setattr(inspecting, "controller_health", lambda namespace: {"uptime_s": 2.5, "node_update_duration_s": None})
    assert typed("controller-health", "-a", server.address) == "uptime_s: 2.5\nnode_update_duration_s: null\n"
    assert json.loads(typed("controller-health", "--json", "-a", server.address))["uptime_s"] == 2.5


def test_a_server_of_another_namespace_is_not_asked(server):
    for ask in (api_at(server).status, api_at(server).config_in_force, api_at(server).shutdown):
        with pytest.raises(NotRunningError, match="serves namespace 'rankcore', and not 'staging'"):
            ask(namespace="staging")


def test_where_no_controller_runs_status_is_empty(serve):
    def nobody():
        raise NothingRunsError("nothing runs")

    server = serve(find=nobody)
    assert (api_at(server).status().epoch, api_at(server).status().applications) == (0, {})
    assert "error: nothing runs there: " in typed("status", "-a", server.address, status=2)


VERBS = [
    ("scale", ("shop/Chat", 3), {}, ("shop/Chat", 3), {"stop_first": []}),
    ("restart", ("shop/Chat",), {"token": "t"}, ("shop/Chat",), {"token": "t"}),
    ("pause", ("shop/Chat",), {}, ("shop/Chat",), {}),
    ("promote", ("shop/Chat", "50%"), {}, ("shop/Chat", "50%"), {}),
    ("resume", ("shop/Chat",), {}, ("shop/Chat",), {}),
    ("rollback", ("shop/Chat",), {}, ("shop/Chat",), {}),
    ("retry", ("shop/Chat",), {"ranks": (2,)}, ("shop/Chat",), {"ranks": [2]}),
    ("evict", ("shop/Chat#1.0",), {"keep": "COLD"}, ("shop/Chat#1.0",), {"keep": "COLD"}),
    ("stop_replicas", (("shop/Chat#1.0",),), {}, (["shop/Chat#1.0"],), {}),
    ("replace_replicas", (("shop/Chat#1.0",),), {"deadline_s": 5.0}, (["shop/Chat#1.0"],), {"deadline_s": 5.0}),
    ("cordon", ("n1",), {}, ("n1",), {}),
    ("uncordon", ("10.0.0.7",), {}, ("10.0.0.7",), {}),
    ("drain", ("n1",), {"deadline_s": 5.0, "reason": "kernel"}, ("n1",), {"deadline_s": 5.0, "reason": "kernel"}),
]


@pytest.mark.parametrize(("verb", "arguments", "options", "reach", "with_options"), VERBS)
def test_each_verb_reaches_the_function_of_its_name(server, monkeypatch, verb, arguments, options, reach, with_options):
    heard = []

    def act(*given, **named):
        heard.append((given, named))
        return NODE

    monkeypatch.setattr(changing, verb, act)
    found = getattr(api_at(server), verb)(*arguments, **options)
    assert heard == [(reach, {**with_options, "namespace": "rankcore"})]
    assert found in (None, NODE)


@pytest.mark.parametrize("named", ["shop/Chat#1.0", "Chat#1.0"])
def test_the_shell_says_whom_a_downscale_stops_first(server, monkeypatch, named):
    heard = []
    monkeypatch.setattr(changing, "scale", lambda *given, **options: heard.append((given, options)))
    typed("scale", "Chat", "1", "--stop-first", named, "-a", server.address)
    assert heard == [(("shop/Chat", 1), {"stop_first": ["shop/Chat#1.0"], "namespace": "rankcore"})]
    said = typed("scale", "Chat", "1", "--stop-first", "Chat#7.7", "-a", server.address, status=2)
    assert said == "rankcore: error: shop/Chat has no replica 'Chat#7.7': status() shows those that there are\n"
    assert len(heard) == 1


def test_options_are_updated_and_what_is_deleted_is_waited_for(server, monkeypatch):
    heard = []
    monkeypatch.setattr(changing, "update_options", lambda *given, **named: heard.append((given, named)))
    monkeypatch.setattr(deploying, "begin_deletion", lambda *given, **named: heard.append((given, named)))
    api_at(server).update("shop/Chat", max_surge=2)
    assert heard == [(("shop/Chat", {"max_surge": 2}), {"namespace": "rankcore"})]
    for name in ("shop", "Chat", "shop/Chat"):
        with pytest.raises(TimeoutError, match=f"{name} is not gone within 0 s"):
            api_at(server).delete(name, timeout_s=0.0)
    assert [given for given, _ in heard[1:]] == [("shop", None), ("shop", "Chat"), ("shop", "Chat")]
    with pytest.raises(UnknownNameError, match="there is: shop/Chat"):
        api_at(server).delete("nobody")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (UnknownNameError("no such"), UnknownNameError),
        (NameInUseError("taken"), NameInUseError),
        (ValueError, InvalidCallError),
    ],
)
def test_what_is_refused_there_is_raised_here(server, monkeypatch, raised, error):
    def refuse(*_, **__):
        raise raised

    monkeypatch.setattr(changing, "pause", refuse)
    with pytest.raises(error):
        api_at(server).pause("shop/Chat")


def test_a_token_is_sent_and_where_it_is_missing_the_error_says_where_to_name_it(serve, monkeypatch, tmp_path):
    server = serve(token=TOKEN)
    assert api_at(server, TOKEN).status() == status_of()
    problem = typed("status", "--address", server.address, status=2)
    assert problem.count("\n") == 1
    assert "RANKCORE_REST_TOKEN_FILE names the file that has the token" in problem
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("RANKCORE_REST_TOKEN_FILE", str(tmp_path / "token"))
    assert "shop/Chat HEALTHY" in " ".join(typed("status", "--address", server.address).split())
    monkeypatch.setenv("RANKCORE_REST_TOKEN_FILE", str(tmp_path / "nowhere"))
    assert "RANKCORE_REST_TOKEN_FILE: " in typed("status", "--address", server.address, status=2)
    monkeypatch.delenv("RANKCORE_REST_TOKEN_FILE")
    monkeypatch.setenv("RANKCORE_REST_TOKEN", TOKEN)
    assert token_said() == TOKEN


def test_a_token_does_not_follow_a_redirect():
    heard = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append(self.path)
            self.send_response(302)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(*_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        client = RestClient(f"http://127.0.0.1:{server.server_address[1]}", TOKEN)
        with pytest.raises(NotRunningError, match="is no REST server of rankcore, and answers 302"):
            client.ask("GET", "/api/v1/status")
    finally:
        server.shutdown()
        server.server_close()
    assert heard == ["/api/v1/status"]


def test_where_nobody_listens_one_line_says_what_to_do():
    (port,) = free_ports(1)
    problem = typed("config", "-a", f"http://127.0.0.1:{port}", status=2)
    assert problem.startswith(f"rankcore: error: no REST server can be reached at http://127.0.0.1:{port}: ")
    assert problem.endswith("`rankcore rest` starts one\n")
    assert problem.count("\n") == 1


@pytest.mark.parametrize("address", ["http://", "http://a:b@c:1", "http://h:1/?x=1"])
def test_an_address_is_looked_at_before_anybody_is_asked(address):
    assert "error: address must be http://HOST:PORT" in typed("status", "--address", address, status=2)


def test_the_variable_of_ray_serve_names_the_server_and_an_address_of_ray_overrides_it(server, monkeypatch):
    monkeypatch.setenv("RAY_DASHBOARD_ADDRESS", server.address)
    assert json.loads(typed("config", "--json"))["applications"][0]["name"] == "shop"
    monkeypatch.setattr("executors.ray_gpu.connection._answers", lambda _: False)
    assert "no Ray cluster can be reached at RAY_ADDRESS=10.0.0.1:1" in typed("status", "-a", "10.0.0.1:1", status=2)


@pytest.mark.parametrize("words", [["start"], ["run", "shop:app"], ["rest"]])
def test_what_needs_ray_itself_refuses_the_address_of_a_server(words):
    assert "expected HOST:PORT of a Ray cluster, which this command needs" in typed(*words, "-a", "http://h:1", status=2)


@pytest.mark.parametrize(
    "words", [["logs", "shop"], ["notes"], ["requests"], ["cancel", "x"], ["cancel", "--waiting-for", "x"]]
)
def test_what_a_server_does_not_have_says_where_it_is(server, words):
    assert "through a REST server: " in typed(*words, "-a", server.address, status=2)


def test_a_cancellation_is_of_one_request_or_of_all_that_wait():
    for words in ([], ["x", "--waiting-for", "y"]):
        assert "the ID of a request, or --waiting-for" in typed("cancel", *words, status=2)


def test_everything_is_ended_after_a_question(server, monkeypatch):
    ended = []
    monkeypatch.setattr(instance, "shutdown", lambda **named: ended.append(named))
    assert f"it would end the controller of {server.address}" in typed("shutdown", "-a", server.address, status=2)
    assert typed("shutdown", "--yes", "-a", server.address).startswith(f"ended the controller of {server.address}")
    assert ended == [{"namespace": "rankcore", "keep_rest": True}]
    assert "timeout_s cannot be had" in typed("shutdown", "--yes", "--timeout", "3", "-a", server.address, status=2)


class TestDeploy:
    """`rankcore deploy` by HTTP."""

    @pytest.fixture
    def deployed(self, monkeypatch):
        heard = []
        plan = ClusterPlan((PlannedChange("shop/Chat", "new", None),))
        monkeypatch.setattr("executors.ray_gpu.rest.writing.packing.packages_of", lambda *_, **__: ())
        monkeypatch.setattr(deploying, "plan_packages", lambda packages, **how: (plan, "r1"))

        def deploy(packages, **how):
            if how["expected"] != "r1":
                raise ConflictError(how["expected"], "r1")
            heard.append(how)
            return "r2"

        monkeypatch.setattr(deploying, "deploy_packages", deploy)
        return heard

    def test_a_file_is_planned_and_sent_as_it_is(self, server, deployed, tmp_path):
        config = {
            "applications": [{"name": "shop", "import_path": "models:app", "args": {"size": 1}}],
            "http_options": {"port": 1},
        }
        (tmp_path / "apps.yaml").write_text(yaml.safe_dump(config))
        lines = typed("deploy", str(tmp_path / "apps.yaml"), "--wait", "-a", server.address).splitlines()
        assert lines[0] == "new       shop/Chat: no replica would change"
        assert lines[1].startswith("shop/Chat HEALTHY, 1 of 1 running")
        assert [body for _, _, body in server.asked if body is not None] == [config, config]
        ((how),) = deployed
        assert (how["prune"], how["replace"], how["expected"], how["http_options"]) == (True, False, "r1", {"port": 1})

    def test_a_dry_run_changes_nothing(self, server, deployed, tmp_path):
        (tmp_path / "apps.yaml").write_text("applications: []\n")
        typed("deploy", str(tmp_path / "apps.yaml"), "--dry-run", "-a", server.address)
        assert deployed == []

    def test_an_import_path_is_sent_without_being_imported_here(self, server, deployed):
        words = ["deploy", "no_such_module:app", "size=2", "--name", "shop", "--runtime-env-json", '{"env_vars": {"A": "b"}}']
        typed(*words, "-a", server.address)
        (how,) = deployed
        assert how["prune"] is False
        environment = {"env_vars": {"A": "b"}}
        application = {"import_path": "no_such_module:app", "name": "shop", "args": {"size": "2"}, "runtime_env": environment}
        assert {json.dumps(body) for _, _, body in server.asked if body is not None} == {
            json.dumps({"applications": [application]})
        }

    def test_another_writer_comes_first(self, server, deployed, tmp_path):
        (tmp_path / "apps.yaml").write_text("applications: []\n")
        problem = typed("deploy", str(tmp_path / "apps.yaml"), "--expect", "r0", "-a", server.address, status=1)
        assert problem.startswith("rankcore: error: revision must be r1, which is in force, got r0: another writer")

    def test_folders_of_this_machine_are_not_there(self, server, deployed):
        words = ["deploy", "m:app", "--working-dir", "."]
        assert "expected the URI of a .zip" in typed(*words, "-a", server.address, status=2)
        assert "--replicas cannot be had" in typed("deploy", "m:app", "--replicas", "2", "-a", server.address, status=2)
        assert deployed == []


def test_nothing_of_it_needs_ray(server):
    text = f"""
import sys
sys.modules["ray"] = sys.modules["starlette"] = None
sys.argv = ["rankcore", "status", "-a", {server.address!r}]
from executors.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "shop/Chat HEALTHY" in " ".join(done.stdout.split())


class Rubbish:
    """Listens, answers whoever asks with the same bytes, and hangs up; `heard` has what was sent."""

    def __init__(self, raw):
        self.heard = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._answer, args=(raw,), daemon=True)
        self._thread.start()

    def _answer(self, raw):
        while True:
            connection, _ = self._listening.accept()
            with connection:
                self.heard.append(connection.recv(1 << 16))
                if self.heard[-1] == b"":
                    return
                connection.sendall(raw)

    def end(self):
        socket.create_connection(self._listening.getsockname()).close()
        self._thread.join(60)
        self._listening.close()


JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
RUBBISH = {
    "another protocol": b"SSH-2.0-OpenSSH_9\r\n",
    "less than it says": JSON + b"content-length: 100\r\n\r\n{}",
    "no chunks": JSON + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    "too long a line": b"HTTP/1.1 200 " + b"a" * 70000 + b"\r\n\r\n",
    "a list": JSON + b"\r\n[]",
    "nothing": JSON + b"\r\nnull",
    "other fields": JSON + b'\r\n{"controller_info": true}',
    "too deep": JSON + b"\r\n" + b"[" * 100_000,
    "a refusal that breaks off": b"HTTP/1.1 500 x\r\ncontent-length: 50\r\n\r\n{}",
    "a refusal that is too deep": b"HTTP/1.1 400 x\r\n\r\n" + b"[" * 100_000,
}


@pytest.mark.parametrize("raw", RUBBISH.values(), ids=RUBBISH)
def test_rubbish_in_the_place_of_an_answer_is_one_line(raw):
    server = Rubbish(raw)
    try:
        said = typed("status", "-a", server.address, status=2)
    finally:
        server.end()
    assert said.startswith(f"rankcore: error: {server.address} ")
    assert said.count("\n") == 1
    assert len(said) < 400


@pytest.mark.parametrize(
    "address", ["http://localhost:abc", "http://localhost:99999", "http://[::1", "http://[zz]:1", "http://a b:1"]
)
def test_an_address_that_cannot_be_one_is_refused_in_one_line(address):
    assert typed("status", "-a", address, status=2) == (
        f"rankcore: error: address must be http://HOST:PORT or https://HOST:PORT of a REST server, got {address!r}\n"
    )


def test_a_token_is_in_no_error_and_one_of_the_environment_may_end_in_a_new_line(serve, monkeypatch):
    with pytest.raises(
        InvalidCallError, match="the token must be ASCII characters without blanks, got 22 characters"
    ) as raised:
        RestClient("http://127.0.0.1:1", "two\nlines-of-a-secret!")
    assert "secret" not in str(raised.value)
    monkeypatch.setenv("RANKCORE_REST_TOKEN", f"{TOKEN}\n")
    assert token_said() == TOKEN


def test_what_is_asked_of_this_machine_goes_to_no_proxy(server, monkeypatch):
    proxy = Rubbish(b"")
    monkeypatch.setenv("http_proxy", proxy.address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    try:
        assert api_at(server, TOKEN).status() == status_of()
    finally:
        proxy.end()
    assert proxy.heard == [b""]


def test_an_answer_that_never_ends_is_given_up():
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip():
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(JSON + b"\r\n")
            while not ended.wait(0.02):
                connection.sendall(b" ")

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    waits = threading.Timer(30.0, ended.set)
    waits.start()
    try:
        with pytest.raises(NoAnswerError, match=r"has not answered within 0\.2 s"):
            RestClient(f"http://127.0.0.1:{listening.getsockname()[1]}").ask("GET", "/", timeout_s=0.2)
    finally:
        waits.cancel()
        ended.set()
        dripping.join(60)
        listening.close()
