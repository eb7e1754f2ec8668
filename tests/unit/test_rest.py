"""The REST server's application, called as uvicorn calls it, with a stand-in for the controller."""

import asyncio
import json
import re
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs
import pytest

pytest.importorskip("starlette", reason="Starlette is not installed: pip install 'rankcore[http]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from starlette.routing import compile_path

from executors import ray_gpu
from executors.cli.requests import lines_of
from executors.ray_gpu import building, changing, connection, deploying, inspecting
from executors.ray_gpu.errors import (
    ConflictError,
    InvalidCallError,
    InvalidDeploymentError,
    NameInUseError,
    NotRunningError,
    UnknownNameError,
)
from executors.ray_gpu.messages import Ingress
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus, Status
from executors.ray_gpu.requests.under_way import CallsUnderWay, CallWaiting
from executors.ray_gpu.rest import endpoints, journal_file, notes, openapi, writing
from executors.ray_gpu.rest.app import RestApp
from executors.ray_gpu.rest.cluster_view import ClusterView, NothingRunsError
from executors.ray_gpu.rest.endpoints import ENDPOINTS
from executors.ray_gpu.rest.journal_file import JournalPlace, LostPlaceError
from executors.ray_gpu.rest.live import LivePlane
from executors.ray_gpu.rest.options import RestOptions
from executors.ray_gpu.rest.writing import Writer
from rankcore import DeploymentStatus, ReplicaRank, ReplicaState

APPLICATIONS = "/api/serve/applications/"
SCALE = "/api/v1/applications/shop/deployments/Chat/scale"
WHATIF = "/api/v1/whatif"
UPDATE = SCALE.replace("scale", "update")


def nested(depth):
    return b"[" * depth + b"]" * depth


def status_of(journal=None, state=DeploymentStatus.HEALTHY, revision="r1", app_name="shop"):
    replica = ReplicaStatus(
        replica_id="shop/Chat#1.0", state=ReplicaState.RUNNING, rank=ReplicaRank(0, 0, 0), node_id="n1", pid=7, version="v1"
    )
    chat = DeploymentInfo(
        name="shop/Chat",
        status=state,
        message="",
        world_size=1,
        version="v1",
        class_name="models.Chat",
        app_name=app_name,
        replicas=(replica,),
    )
    return Status(
        namespace="rankcore",
        epoch=1,
        controller_pid=1,
        journal=journal,
        deployments={"shop/Chat": chat},
        revision=revision,
    )


class Remote:
    def __init__(self, answer):
        self._answer = answer

    def remote(self, *_):
        async def answer():
            return self._answer()

        return answer()


class Controller:
    """Counts what it is asked."""

    def __init__(self, status):
        self.asked = 0
        self.revision = None
        self.status = Remote(lambda: self._count(status))
        self.ingress = Remote(lambda: Ingress({"/shop": "shop/Chat"}, {"shop": "shop/Chat"}))
        self.proxy_options = Remote(lambda: None)
        idle = {"name": "Chat", "num_replicas": 0, "residency": {"weights": "/w"}, "autoscaling_config": {"policy": "mine"}}
        shop = {"name": "shop", "import_path": "models:app", "deployments": [idle]}
        self.config = Remote(lambda: {"applications": [shop, {"name": "imperative", "deployments": []}]})

    def _count(self, status):
        self.asked += 1
        return status if self.revision is None else attrs.evolve(status, revision=self.revision())


async def nothing(*_):
    return {}


class Rest:
    def __init__(self, status=None, token=None, find=None):
        self.controller = Controller(status or status_of())
        view = ClusterView(find or (lambda: self.controller), "n1")
        self.live = LivePlane(view, nothing, nothing)
        self.app = RestApp(view, Writer("rankcore", view), self.live, token)

    async def ask(self, method, target, body=b"", **headers):
        parts = urlsplit(target)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"host": "localhost:8280", "content-type": "application/json"}
        named |= {"content-length": str(len(raw))} if raw else {}
        named |= {key.replace("_", "-"): value for key, value in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(key.encode(), value.encode()) for key, value in named.items()],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 8280),
        }
        sent = []

        parts_of_body = [{"type": "http.request", "body": raw, "more_body": False}]

        async def receive():
            while not parts_of_body:
                await asyncio.sleep(3600)  # the client stays
            return parts_of_body.pop()

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        found = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], json.loads(text) if found.get("content-type") == "application/json" else text, found


def ask(*arguments, rest=None, **headers):
    return asyncio.run((rest or Rest()).ask(*arguments, **headers))


@pytest.fixture
def scaled(monkeypatch):
    found = []
    monkeypatch.setattr(changing, "scale", lambda *a, **k: found.append((a, k)))
    return found


def test_what_runs_is_said_as_ray_serve_says_it():
    from ray.serve.schema import ServeInstanceDetails

    status, said, headers = ask("GET", APPLICATIONS)
    assert (status, headers["etag"]) == (200, '"r1"')
    shop = ServeInstanceDetails(**said).applications["shop"]
    assert (shop.status, shop.route_prefix, shop.source) == ("RUNNING", "/shop", "declarative")
    assert shop.deployed_app_config.import_path == "models:app"
    assert [each.state for each in shop.deployments["Chat"].replicas] == ["RUNNING"]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (DeploymentStatus.HEALTHY, "RUNNING"),
        (DeploymentStatus.UPSCALING, "RUNNING"),
        (DeploymentStatus.UPDATING, "DEPLOYING"),
        (DeploymentStatus.RECOVERING, "DEPLOYING"),
        (DeploymentStatus.DEPLOY_FAILED, "DEPLOY_FAILED"),
        (DeploymentStatus.UNHEALTHY, "UNHEALTHY"),
        (DeploymentStatus.DELETING, "DELETING"),
    ],
)
def test_every_status_has_a_word_of_serves(state, shown):
    from ray.serve.schema import ServeInstanceDetails

    _, said, _ = ask("GET", APPLICATIONS, rest=Rest(status_of(state=state)))
    assert ServeInstanceDetails(**said).applications["shop"].status == shown


def test_readers_however_many_ask_the_controller_once():
    rest = Rest()

    async def many():
        return await asyncio.gather(*(rest.ask("GET", path) for path in ("/api/v1/ranks", APPLICATIONS) * 200))

    assert {status for status, *_ in asyncio.run(many())} == {200}
    assert rest.controller.asked == 1


@pytest.mark.parametrize("path", ["/api/v1/requests", "/api/v1/defragmentation", "/metrics"])
def test_what_one_path_needs_is_asked_once_for_all_its_readers(monkeypatch, path):
    asked = []

    async def scraped():
        asked.append("nodes")
        return b"", "text/plain"

    monkeypatch.setattr(endpoints, "scrape", scraped)
    monkeypatch.setattr(
        endpoints.under_way, "calls_in", lambda _: asked.append("replicas") or CallsUnderWay((), ("shop/Chat#1.0",))
    )
    monkeypatch.setattr(inspecting, "propose_defragmentation", lambda *_, **__: asked.append("controller"))
    rest = Rest()

    async def many():
        return await asyncio.gather(*(rest.ask("GET", path) for _ in range(20)))

    assert {status for status, *_ in asyncio.run(many())} == {200}
    assert len(asked) == 1


def test_what_waits_is_shown_by_name_and_age_and_all_of_it_ended_at_once(monkeypatch):
    waiting = tuple(
        CallWaiting(id=str(age), deployment=name, method="m", request_id="r", model_id="", stream=False, age_s=age, position=1,
            status="QUEUED")
        for name, age in (("shop/Chat", 9.0), ("shop/Chat", 1.0), ("other/Chat", 9.0))
    )  # fmt: skip
    monkeypatch.setattr(endpoints.under_way, "calls_in", lambda _: CallsUnderWay((), (), waiting, 2))
    ended = []
    monkeypatch.setattr(writing.under_way, "cancel_waiting", lambda name, **_: ended.append(name) or ("r", "r"))
    rest = Rest()
    status, said, *_ = asyncio.run(rest.ask("GET", "/api/v1/requests?application=shop&older_than_s=5"))
    assert (status, [each["id"] for each in said["waiting_requests"]], said["silent_callers"]) == (200, ["9.0"], 2)
    status, said, *_ = asyncio.run(Rest().ask("DELETE", "/api/v1/requests?waiting_for=shop/Chat"))
    assert (status, said, ended) == (200, {"cancelled": ["r", "r"]}, ["shop/Chat"])
    lines = list(lines_of(CallsUnderWay((), (), waiting[:1], 2)))
    assert lines == [
        "     9.0 s  waits for shop/Chat  QUEUED, place 1  m  r  9.0",
        "did not answer: 2 processes in which calls may wait",
    ]


def test_whoever_has_written_reads_what_came_of_it(scaled):
    rest = Rest()

    async def write_between_reads():
        await rest.ask("GET", "/api/v1/status")
        await rest.ask("POST", SCALE, {"target_num_replicas": 3})
        await rest.ask("GET", "/api/v1/status")

    asyncio.run(write_between_reads())
    assert rest.controller.asked == 2
    assert scaled == [(("shop/Chat", 3), {"stop_first": [], "namespace": "rankcore"})]


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "field"),
    [
        ("POST", SCALE, b"{", 422, "body"),
        ("POST", SCALE, b"[]", 422, "body"),
        ("POST", SCALE, b'{"target_num_replicas": "\xff"}', 422, "body"),
        ("POST", SCALE, b'{"target_num_replicas": 1, "target_num_replicas": 9}', 422, "target_num_replicas"),
        ("POST", UPDATE, b'{"options": {"user_config": %s}}' % nested(39), 422, "body"),
        ("POST", UPDATE, b'{"options": {"user_config": %s}}' % nested(100_000), 422, "body"),
        ("PUT", APPLICATIONS, b'{"applications": %s}' % nested(100_000), 422, "body"),
        ("PUT", APPLICATIONS, b'{"applications": [{"import_path": "a:b", "args": {"a": 1, "a": 2}}]}', 422, "a"),
        ("PUT", APPLICATIONS, '{"applications": []}'.encode("utf-16"), 422, "body"),
        ("GET", "/api/v1/journal?after=zz", b"", 422, "after"),
        ("GET", "/api/v1/journal?after=-5-0", b"", 422, "after"),
        ("GET", "/api/v1/notes?after=zz", b"", 422, "after"),
        ("POST", SCALE, {"target_num_replicas": "3"}, 422, "target_num_replicas"),
        ("POST", SCALE, {"target_num_replicas": -1}, 422, "target_num_replicas"),
        ("POST", SCALE, {"target_num_replicas": 1, "target": 1}, 422, "target"),
        ("POST", SCALE, {}, 422, "target_num_replicas"),
        ("GET", "/api/v1/ranks?whose=x", b"", 422, "whose"),
        ("GET", "/api/v1/ranks?application=a&application=b", b"", 422, "application"),
        ("GET", "/api/v1/ranks?application=nobody", b"", 404, "application"),
        ("GET", "/api/v1/journal?limit=0", b"", 422, "limit"),
        ("POST", WHATIF, {"deployment": "shop/Chat"}, 422, "node"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "rank": 0, "target": 2}, 422, "node"),
        ("POST", WHATIF, {"deployment": "shop/Nobody", "rank": 0}, 404, "deployment"),
        ("POST", WHATIF, {"rank": 0}, 422, "deployment"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "rank": 1}, 422, "rank"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "rank": -1}, 422, "rank"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "target": 10**9}, 422, "target"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "node": "n2"}, 422, "node"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "rank": 0, "horizon_s": 5}, 422, "horizon_s"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "rank": 0, "horizon_s": 1e9}, 422, "horizon_s"),
        ("POST", WHATIF, {"deployment": "shop/Chat", "rank": 0, "horizon": 60}, 422, "horizon"),
        ("GET", f"{APPLICATIONS}?api_type=both", b"", 422, "api_type"),
        ("GET", "/api/v1/ranks", {"a": 1}, 422, "body"),
        ("GET", "/nowhere", b"", 404, "path"),
        ("PATCH", SCALE, b"", 405, "method"),
        ("PUT", APPLICATIONS, {"applications": [{"import_path": "a:b", "nane": "x"}]}, 422, "applications[0].nane"),
        ("PUT", APPLICATIONS, {"applications": [], "http_options": {"port": "x"}}, 422, "http_options.port"),
        ("PUT", APPLICATIONS, {}, 422, "body"),
    ],
)
def test_bad_input_is_one_line_with_its_field_and_nobody_else_sees_it(scaled, monkeypatch, method, target, body, status, field):
    monkeypatch.setattr(deploying, "deploy_packages", lambda *a, **k: pytest.fail("it was deployed"))
    found, said, _ = ask(method, target, body)
    assert (found, said.get("field"), scaled) == (status, field, [])
    assert "\n" not in said["error"]
    assert field is None or field in said["error"]


def asked_in_vain(error):
    """Whatever the controller is asked, it refuses."""

    def refuse(*_, **__):
        raise error

    return refuse


NOBODY = UnknownNameError("there is no deployment 'shop/Nobody'; there is: shop/Chat")
NO_REPLICA = "there is no replica {!r}: status() shows those that there are"
GOING = InvalidDeploymentError("shop/Chat is being deleted")
LOADED = InvalidDeploymentError("the number of replicas of shop/Chat follows its load", field="num_replicas")
NO_NODE = UnknownNameError("there is no node 'n9'; there is: n1")
TWO = {"replica_ids": ["shop/Chat#1.0", "shop/Chat#9.9"]}
NO_SECOND = UnknownNameError(NO_REPLICA.format("shop/Chat#9.9"), field="replica_ids[1]")
ONE = {"target_num_replicas": 1}


def of_argument(text, argument):
    return InvalidDeploymentError(text, field=argument)


REFUSED = [
    *((verb, body, NOBODY, 404, "deployment_name") for verb, body in (
        ("scale", ONE), ("restart", {}), ("pause", {}), ("resume", {}), ("rollback", {}), ("retry", {}),
        ("evict", {}), ("update", {"options": {"max_surge": 2}}))),
    ("scale", ONE, GOING, 422, "deployment_name"),
    ("scale", ONE, LOADED, 422, "target_num_replicas"),
    ("scale", ONE, of_argument("num_replicas must be an integer, got 1", "num_replicas"), 422, "target_num_replicas"),
    ("scale", ONE | {"stop_first": ["a#1", "b#1"]}, of_argument(
        "it must be an id of deployment 'shop/Chat', got 'b#1'", "ScaleRequested.stop_first[1]"), 422, "stop_first[1]"),
    ("restart", {"token": "t"}, InvalidDeploymentError("shop/Chat has residency: evict it"), 422, "deployment_name"),
    ("promote", {"replicas": "half"}, None, 422, "replicas"),
    ("promote", {"replicas": -1}, None, 422, "replicas"),
    ("rollback", {}, InvalidDeploymentError("shop/Chat was never healthy, so there is nothing to go back to"), 422,
        "deployment_name"),
    ("retry", {"ranks": [7]}, of_argument("shop/Chat has no rank 7: it has 2 replicas", "ranks"), 422, "ranks"),
    ("retry", {"ranks": [10**30]}, None, 422, "ranks"),
    ("retry", {"ranks": [0, 1]}, of_argument("rank 0, 1 of shop/Chat waits for no back-off", "ranks"), 422, "ranks"),
    ("retry", {}, InvalidDeploymentError("shop/Chat waits for no back-off, and was not given up"), 422, "deployment_name"),
    ("evict", {"keep": "HOT"}, None, 422, "keep"),
    ("evict", {}, InvalidDeploymentError("shop/Chat has no residency: its replicas have their weights for life"), 422,
        "deployment_name"),
    ("update", {"options": {"namespace": "x"}}, None, 422, "options.namespace"),
    ("update", {"options": {"max_surge": 1, "name": "x"}}, None, 422, "options.name"),
    ("update", {"options": {"num_replicas": 1}}, LOADED, 422, "options.num_replicas"),
    ("update", {"options": {"max_surge": -1}}, of_argument("it must be 0 or more", "max_surge"), 422, "options.max_surge"),
    *((verb, {}, NO_NODE, 404, "node") for verb in ("cordon", "uncordon", "drain")),
    ("uncordon", {}, InvalidCallError("node n9 cannot be uncordoned: Ray itself drains it, for good"), 422, "node"),
    ("drain", {"deadline_s": -1}, None, 422, "deadline_s"),
    ("stop", TWO, NO_SECOND, 404, "replica_ids[1]"),
    ("replace", TWO, NO_SECOND, 404, "replica_ids[1]"),
    ("replace", TWO, InvalidDeploymentError("shop/Chat has weights that may be COLD: evict it"), 422, "replica_ids"),
    ("replace", TWO | {"deadline_s": -1}, None, 422, "deadline_s"),
    ("cancel", None, UnknownNameError("there is no request 'abc' under way (any more)"), 404, "request"),
    ("cancel", None, None, 422, "request"),
    ("delete", None, UnknownNameError("there is no application 'shop'; there is: none"), 404, "application_name"),
    ("delete deployment", None, NOBODY, 404, "deployment_name"),
]  # fmt: skip
"""Verb, body, what the controller refuses it with (None: it is refused before that), and status and field of the answer."""


def place_of(verb):
    """Its method and path."""
    if verb in writing.OF_DEPLOYMENT:
        return "POST", SCALE.replace("scale", verb)
    if verb in writing.OF_NODE:
        return "POST", f"/api/v1/nodes/n9/{verb}"
    if verb in writing.OF_REPLICAS:
        return "POST", f"/api/v1/replicas/{verb}"
    deployment = SCALE.rpartition("/")[0]
    application = deployment.rpartition("/deployments")[0]
    return "DELETE", {"cancel": "/api/v1/requests/abc", "delete": application}.get(verb, deployment)


@pytest.mark.parametrize(("verb", "body", "error", "status", "field"), REFUSED)
def test_each_verb_that_is_refused_says_which_field_is_to_blame(monkeypatch, verb, body, error, status, field):
    never = AssertionError("the controller was asked")
    monkeypatch.setattr(changing.connection, "running", lambda _: None)
    monkeypatch.setattr(changing, "running_status", lambda _: status_of())
    monkeypatch.setattr(changing, "ask", asked_in_vain(error or never))
    monkeypatch.setattr(deploying, "begin_deletion", asked_in_vain(error or never))
    if error is not None:
        monkeypatch.setattr(writing.under_way, "cancel_request", asked_in_vain(error))
    found, said, _ = ask(*place_of(verb), body if body is not None else b"")
    assert (found, said.get("field")) == (status, field), said
    assert "\n" not in said["error"]


def test_no_verb_is_left_out():
    assert {*writing.OF_DEPLOYMENT, *writing.OF_NODE, *writing.OF_REPLICAS} <= {verb for verb, *_ in REFUSED}


@pytest.mark.parametrize("error", [UnknownNameError("odd"), NameInUseError("odd"), InvalidDeploymentError("odd words: 'x'")])
@pytest.mark.parametrize("verb", sorted({*writing.OF_DEPLOYMENT, *writing.OF_NODE, *writing.OF_REPLICAS}))
def test_whatever_a_refusal_says_it_has_a_field_of_the_request(monkeypatch, verb, error):
    bodies = {"scale": ONE, "update": {"options": {}}, "stop": TWO, "replace": TWO}
    monkeypatch.setattr(changing.connection, "running", lambda _: None)
    monkeypatch.setattr(changing, "running_status", lambda _: status_of())
    monkeypatch.setattr(changing, "ask", asked_in_vain(error))
    _, said, _ = ask(*place_of(verb), bodies.get(verb, {}))
    assert said["field"] in ("deployment_name", "node", "replica_ids")


def test_what_the_controller_refuses_of_a_config_is_the_fault_of_its_body(monkeypatch, deployed):
    monkeypatch.setattr(deploying, "deploy_packages", asked_in_vain(NameInUseError("another has it")))
    status, said, _ = ask("PUT", APPLICATIONS, BODY)
    assert (status, said["field"]) == (409, "body")


def test_where_no_journal_is_written_the_path_is_to_blame():
    status, said, _ = ask("GET", "/api/v1/journal")
    assert (status, said["field"]) == (404, "path")


def test_where_the_journal_cannot_be_written_now_it_says_so():
    problem = "/j/run.jsonl cannot be written: No space left on device; it is taken up again once it can be"
    rest = Rest(attrs.evolve(status_of(), journal_problem=problem))
    for method, target, body in (("GET", "/api/v1/journal", b""), ("GET", "/api/v1/notes", b"")):
        status, said, headers = ask(method, target, body, rest=rest)
        assert (status, said, headers["retry-after"]) == (503, {"error": f"the journal {problem}"}, "10")
    assert ask("GET", "/api/v1/status", rest=rest)[1]["journal_problem"] == problem


def test_what_nobody_can_help_has_no_field(monkeypatch):
    monkeypatch.setattr(changing, "scale", asked_in_vain(NotRunningError("the controller is away")))
    status, said, _ = ask("POST", SCALE, ONE)
    assert (status, "field" in said) == (503, False)


def test_a_body_may_be_as_deep_as_a_file(monkeypatch):
    found = []
    monkeypatch.setattr(changing, "_change", lambda *given: found.append(given))
    assert ask("POST", UPDATE, b'{"options": {"user_config": %s}}' % nested(38))[0] == 200
    assert len(found) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [(UnknownNameError("there is no 'x'"), 404), (InvalidDeploymentError("it is\nbeing deleted"), 422), (OSError("odd"), 500)],
)
def test_what_is_refused_behind_the_door_is_one_line_too(monkeypatch, error, status):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(changing, "scale", refuse)
    found, said, _ = ask("POST", SCALE, {"target_num_replicas": 1})
    assert (found, "\n" in said["error"]) == (status, False)


def test_a_body_of_another_kind_than_json_is_refused(scaled):
    status, said, _ = ask("POST", SCALE, {"target_num_replicas": 1}, content_type="text/plain")
    assert (status, said["field"], scaled) == (415, "content-type", [])


TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"bearer {TOKEN}"}, 200),
    ],
)
def test_with_a_token_whoever_has_it_is_let_in(headers, status):
    assert ask("GET", "/api/v1/ranks", rest=Rest(token=TOKEN), **headers)[0] == status
    assert ask("GET", "/-/healthz", rest=Rest(token=TOKEN), **headers)[0] == 200
    assert ask("POST", "/-/healthz", rest=Rest(token=TOKEN))[0] == 401


@pytest.mark.parametrize("path", ["/", "/dashboard"])
def test_the_live_page_needs_no_token_and_has_nothing_of_the_cluster_in_it(path):
    rest = Rest(token=TOKEN)
    status, page, headers = ask("GET", path, rest=rest)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert rest.controller.asked == 0
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert b"Chat" not in page
    assert ask("POST", path, rest=rest)[0] == 401
    assert ask("GET", path, rest=Rest(), host="evil.example")[0] == 403


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v1/live"), ("POST", "/api/v1/whatif")])
def test_what_the_live_page_asks_for_needs_the_token(method, path):
    assert ask(method, path, rest=Rest(token=TOKEN))[0] == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:8280"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "127.0.0.1:8280", "origin": "http://127.0.0.1:8280"}, 200),
        ({"host": "[::1]:8280"}, 200),
        ({"host": "LOCALHOST:8280"}, 200),
        ({"host": "LocalHost:8280", "origin": "http://localhost:8280"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
def test_without_a_token_no_page_of_another_site_is_let_in(headers, status):
    assert ask("GET", "/api/v1/ranks", **headers)[0] == status


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "example.com", "::"])
def test_others_than_this_machine_need_a_token(host):
    with pytest.raises(InvalidDeploymentError, match="bearer_token"):
        RestOptions(host=host)
    assert RestOptions.of_json(RestOptions(host=host, bearer_token=TOKEN).to_json()).bearer_token == TOKEN


def test_a_token_is_in_no_repr():
    assert TOKEN not in repr(RestOptions(bearer_token=TOKEN))


BODY = {"applications": [{"name": "shop", "import_path": "models:app"}]}


@pytest.fixture
def deployed(monkeypatch):
    """What is deployed, and by which revision; none is packed."""
    found = []
    monkeypatch.setattr("executors.apps.packing.packages_of", lambda *a, **k: ())
    monkeypatch.setattr(deploying, "deploy_packages", lambda packages, **how: found.append(how["expected"]))
    return found


def test_a_body_that_changes_nothing_takes_nothing_from_another_writer(deployed):
    rest = Rest()

    async def both():
        return await asyncio.gather(rest.ask("PUT", APPLICATIONS, BODY), rest.ask("PUT", APPLICATIONS, {"applications": []}))

    assert [status for status, *_ in asyncio.run(both())] == [200, 200]
    assert deployed == [None, None]


def test_a_writer_who_has_read_something_else_is_told_what_is_in_force(monkeypatch, deployed):
    def refuse(packages, **how):
        raise ConflictError(how["expected"], "r2")

    monkeypatch.setattr(deploying, "deploy_packages", refuse)
    status, said, headers = ask("PUT", APPLICATIONS, BODY, if_match='"r1"')
    assert (status, said["field"], headers["etag"]) == (412, "if-match", '"r2"')
    assert "r2" in said["error"]


def test_of_two_bodies_at_once_one_wins(deployed):
    rest = Rest()
    rest.controller.revision = lambda: f"r{len(deployed)}"
    other = {"applications": []}

    async def both():
        return await asyncio.gather(rest.ask("PUT", APPLICATIONS, BODY), rest.ask("PUT", APPLICATIONS, other))

    assert sorted(status for status, *_ in asyncio.run(both())) == [200, 412]
    assert deployed == [None]


def test_a_client_that_has_not_waited_sends_the_same_again_and_it_is_done_once(deployed):
    rest = Rest()
    rest.controller.revision = lambda: f"r{len(deployed)}"

    async def both():
        return await asyncio.gather(*(rest.ask("PUT", APPLICATIONS, BODY) for _ in range(2)))

    assert [status for status, *_ in asyncio.run(both())] == [200, 200]
    assert deployed == [None]


def test_the_same_again_is_deployed_where_another_process_has_changed_something_since(deployed):
    rest, changed = Rest(), []
    rest.controller.revision = lambda: f"r{len(deployed)}{changed}"

    async def again():
        await rest.ask("PUT", APPLICATIONS, BODY)
        changed.append("from Python")
        return await rest.ask("PUT", APPLICATIONS, BODY)

    assert asyncio.run(again())[0] == 200
    assert deployed == [None, None]


def test_the_same_again_is_deployed_where_nobody_says_what_is_in_force(deployed):
    def find():
        raise NothingRunsError("nothing runs")

    rest = Rest(find=find)

    async def twice():
        return [(await rest.ask("PUT", APPLICATIONS, BODY))[0] for _ in range(2)]

    assert asyncio.run(twice()) == [200, 200]
    assert deployed == [None, None]


def test_applications_that_a_config_does_not_name_stay_where_that_is_asked_for(monkeypatch, deployed):
    asked = []
    monkeypatch.setattr(
        deploying, "deploy_packages", lambda packages, **how: asked.append((how["prune"], how["replace"])) or "r1"
    )
    monkeypatch.setattr(
        deploying, "plan_packages", lambda packages, **how: asked.append((how["prune"], how["replace"])) or ({}, "")
    )
    monkeypatch.setattr(endpoints.attrs, "asdict", lambda found: found)
    rest = Rest()

    async def all_of_them():
        for query in ("", "?prune=false", "?prune=false&replace=true"):
            for method, path in (("PUT", APPLICATIONS), ("POST", "/api/v1/plan")):
                assert (await rest.ask(method, path + query, BODY))[0] == 200

    asyncio.run(all_of_them())
    assert asked == [(True, False), (True, False), (False, False), (False, False), (False, True), (False, True)]


def test_a_writer_is_told_the_revision_that_it_has_brought_itself(monkeypatch, deployed):
    monkeypatch.setattr(deploying, "deploy_packages", lambda packages, **how: "r7")
    assert ask("PUT", APPLICATIONS, BODY)[2]["etag"] == '"r7"', "r1 is another writer's, who came after it"


PATIENCE_S = 10.0
RESTART = SCALE.replace("scale", "restart")


@pytest.fixture
def slow(monkeypatch):
    """A restart that takes until this is set."""
    over = threading.Event()
    monkeypatch.setattr(changing, "restart", lambda *_, **__: over.wait(PATIENCE_S))
    yield over
    over.set()


def test_changes_that_take_long_keep_nobody_else_waiting(slow, scaled, journal, monkeypatch):
    rest = Rest(status_of(str(journal)))

    async def beside():
        going = [asyncio.create_task(rest.ask("POST", RESTART, {})) for _ in range(30)]
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S / 2):
            found = [await rest.ask("GET", "/api/v1/journal"), await rest.ask("POST", SCALE, {"target_num_replicas": 1})]
            monkeypatch.setattr(writing, "CHANGES_MAX", 30)
            found.append(await rest.ask("POST", SCALE, {"target_num_replicas": 1}))
        slow.set()
        await asyncio.gather(*going)
        return [status for status, *_ in found]

    assert asyncio.run(beside()) == [200, 200, 503]
    assert len(scaled) == 1


def test_a_client_waits_for_a_change_for_so_long_and_is_told_that_it_goes_on(slow, monkeypatch):
    monkeypatch.setattr(writing, "ANSWER_S", 0.05)
    rest = Rest()

    async def waited():
        async with asyncio.timeout(PATIENCE_S / 2):
            found = await rest.ask("POST", RESTART, {})
        slow.set()
        return found

    status, said, _ = asyncio.run(waited())
    assert (status, "goes on" in said["error"], "\n" in said["error"]) == (504, True, False)


def test_an_import_that_takes_long_keeps_no_other_config_waiting_and_is_shared_by_who_sends_it_again(monkeypatch, deployed):
    over, begun = threading.Event(), []

    def packed(file, *_, **how):
        begun.append(how["timeout_s"])
        if file.config.applications:
            over.wait(PATIENCE_S)
        return ()

    monkeypatch.setattr("executors.apps.packing.packages_of", packed)
    rest = Rest()

    async def beside():
        slow = [asyncio.create_task(rest.ask("PUT", APPLICATIONS, BODY)) for _ in range(5)]
        try:
            async with asyncio.timeout(PATIENCE_S / 2):
                return await rest.ask("PUT", APPLICATIONS, {"applications": []})
        finally:
            over.set()
            await asyncio.gather(*slow)

    assert asyncio.run(beside())[0] == 200
    assert begun == [writing.BUILD_S] * 2


def test_an_import_that_takes_too_long_is_ended_and_said_in_one_line(monkeypatch):
    class Task:
        def options(self, **_):
            return self

        def remote(self, *_):
            return "building"

    def get(_, timeout):
        raise building.GetTimeoutError(f"{timeout} s")

    ended = []
    monkeypatch.setattr(building.ray, "remote", lambda _: Task())
    monkeypatch.setattr(building.ray, "get", get)
    monkeypatch.setattr(building.ray, "cancel", lambda which, force: ended.append((which, force)))
    status, said, _ = ask("PUT", APPLICATIONS, BODY)
    assert (status, ended) == (504, [("building", True)])
    assert said["error"] == "import_path: models:app of application 'shop' is not imported within 300 s"


@pytest.fixture
def there(monkeypatch):
    """Deployments that the controller has, and whether each is being deleted; a deletion takes for ever."""
    found = {"shop/Chat": False, "shop/Embed": False, "other/gone": False}
    controller = Controller(status_of())
    controller.delete = Remote(lambda: None)
    controller.delete.remote = lambda names: found.update(dict.fromkeys(names, True))
    monkeypatch.setattr(connection, "running", lambda *_: controller)
    monkeypatch.setattr(deploying, "ask", lambda _, method, *__, **___: {"deployments": found}[method])
    return found


def test_a_deletion_is_answered_once_it_is_taken_on_and_may_be_repeated(there):
    paths = ("/api/v1/applications/shop/deployments/Chat", "/api/v1/applications/shop", "/api/v1/applications/shop")
    assert [ask("DELETE", path)[0] for path in paths] == [202, 202, 202]
    assert there == {"shop/Chat": True, "shop/Embed": True, "other/gone": False}


@pytest.mark.parametrize("path", ["gone", "shop/deployments/gone", "shop/deployments/Cha", "sho"])
def test_nothing_of_another_application_is_deleted_for_one_that_is_gone(there, path):
    status, said, _ = ask("DELETE", f"/api/v1/applications/{path}", rest=Rest(status_of(app_name="gone")))
    assert (status, path.rpartition("/")[2] in said["error"]) == (404, True)
    assert not any(there.values())


@pytest.mark.parametrize("header", ["r1", '"a", "b"', '"'])
def test_if_match_is_one_etag(deployed, header):
    status, said, _ = ask("PUT", APPLICATIONS, BODY, if_match=header)
    assert (status, said["field"], deployed) == (422, "if-match", [])


def test_openapi_describes_each_endpoint_with_its_body_and_query():
    _, said, _ = ask("GET", "/openapi.json")
    assert said["openapi"] == "3.1.0"
    assert {(method.upper(), path) for path, methods in said["paths"].items() for method in methods} == {
        (each.method, each.path) for each in ENDPOINTS
    }
    scale = said["paths"][SCALE.replace("shop", "{application_name}").replace("Chat", "{deployment_name}")]["post"]
    name = scale["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert said["components"]["schemas"][name]["properties"]["target_num_replicas"] == {"type": "integer", "minimum": 0}
    assert [each["name"] for each in scale["parameters"]] == ["application_name", "deployment_name"]
    ids = [operation["operationId"] for methods in said["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)
    deletion = said["paths"]["/api/v1/applications/{application_name}"]["delete"]["responses"]
    assert "202" in deletion
    assert "200" not in deletion
    assert {"408", "413", "415", "503"} <= scale["responses"].keys()
    assert "410" in said["paths"]["/api/v1/journal"]["get"]["responses"]
    assert "429" in said["paths"]["/api/v1/notes"]["get"]["responses"]
    assert "429" in said["paths"]["/api/v1/live"]["get"]["responses"]
    assert "429" in said["paths"]["/api/v1/whatif"]["post"]["responses"]
    references = [value for value in json.dumps(said).split('"') if value.startswith("#/components/schemas/")]
    assert {each.rpartition("/")[2] for each in references} <= said["components"]["schemas"].keys()
    assert openapi.as_bytes(ENDPOINTS) == openapi.as_bytes(ENDPOINTS)


@pytest.mark.parametrize("path", [APPLICATIONS, "/api/v1/status", "/api/v1/config", "/api/v1/ranks", "/api/v1/nodes"])
def test_what_is_deployed_is_said_with_its_revision(path):
    assert ask("GET", path)[2]["etag"] == '"r1"'


def test_an_application_that_scales_itself_is_not_for_others_to_scale():
    assert ask("GET", APPLICATIONS)[1]["applications"]["shop"]["external_scaler_enabled"] is False


def test_every_verb_of_the_shell_has_a_path():
    from tests.unit.test_verbs_reach_the_core import REACHED, VERBS

    paths = {each.path.rpartition("/")[2] for each in ENDPOINTS if each.method == "POST"}
    otherwise = {"deploy": "PUT", "delete": "DELETE", "defragment": "GET"}
    assert {command for _, command in REACHED.values()} - paths == set(otherwise)
    assert set(VERBS) <= paths


def test_the_page_shows_requests_that_there_are():
    page = (Path(__file__).resolve().parents[2] / "docs" / "rest.md").read_text().replace("\\\n", " ")
    shown = re.findall(r"^ +curl (.*?)https?://[^/ ]+(/[^\s?]*)", page, re.MULTILINE)
    assert len(shown) > 5
    for options, path in shown:
        said = re.search(r"-X (\w+)", options)
        method = said[1] if said else "GET"
        fitting = [each for each in ENDPOINTS if each.method == method and compile_path(each.path)[0].match(path)]
        assert fitting, f"{method} {path}"
    for method, path in re.findall(r"^\| `(\w+) (/[^`?]*)", page, re.MULTILINE):
        named = [each for each in ENDPOINTS if each.method == method and each.path in (path, path.replace("VERB", "drain"))]
        verbs = [each for each in ENDPOINTS if each.path.rpartition("/")[0] == path.removesuffix("/VERB")]
        assert named or (path.endswith("VERB") and verbs), f"{method} {path}"


HEADER = {"journal": 2}


def line(number, *kinds):
    notes = [{"type": "ClusterNote", "kind": kind, "deployment": "shop/Chat"} for kind in kinds]
    return json.dumps({"event": {"type": "ClockAdvanced", "at": float(number)}, "commands": [], "notes": notes}) + "\n"


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text(json.dumps(HEADER) + "\n" + line(1, "a") + line(2, "b", "c"))
    return path


def numbers(lines):
    return [json.loads(raw)["event"]["at"] for raw, _ in lines]


def test_a_journal_is_read_on_from_a_place_also_where_the_file_has_become_the_older_one(journal):
    lines, place = journal_file.lines_after(str(journal), journal_file.beginning(str(journal)), 1)
    assert numbers(lines) == [1.0]
    lines, place = journal_file.lines_after(str(journal), place, 10)
    assert numbers(lines) == [2.0]
    with journal.open("a") as file:
        file.write(line(3, "d") + line(4)[:9])
    journal.rename(f"{journal}.1")
    journal.write_text(json.dumps(HEADER) + "\n" + line(5, "e"))
    lines, place = journal_file.lines_after(str(journal), place, 10)
    assert numbers(lines) == [3.0]


def test_a_full_file_is_read_to_its_end_and_then_the_next_one(journal):
    place = journal_file.end(str(journal))
    journal.rename(f"{journal}.1")
    journal.write_text(json.dumps(HEADER) + "\n" + line(3, "d"))
    lines, place = journal_file.lines_after(str(journal), place, 10)
    assert lines == []
    lines, place = journal_file.lines_after(str(journal), place, 10)
    assert numbers(lines) == [3.0]


def test_half_a_line_is_left_for_later(journal):
    with journal.open("a") as file:
        file.write(line(3, "d")[:20])
    lines, place = journal_file.lines_after(str(journal), journal_file.beginning(str(journal)), 10)
    assert numbers(lines) == [1.0, 2.0]
    with journal.open("a") as file:
        file.write(line(3, "d")[20:])
    assert numbers(journal_file.lines_after(str(journal), place, 10)[0]) == [3.0]


def test_a_place_that_is_gone_is_said(journal):
    with pytest.raises(LostPlaceError):
        journal_file.lines_after(str(journal), JournalPlace(1, 0), 10)
    status, said, _ = ask("GET", "/api/v1/journal?after=1-0", rest=Rest(status_of(str(journal))))
    assert (status, said["field"]) == (410, "after")


def test_journal_lines_come_with_the_place_to_go_on_from(journal):
    rest = Rest(status_of(str(journal)))
    status, text, headers = ask("GET", "/api/v1/journal?limit=1", rest=rest)
    assert (status, text.decode()) == (200, line(1, "a"))
    _, text, _ = ask("GET", f"/api/v1/journal?after={headers['x-next']}", rest=rest)
    assert text.decode() == line(2, "b", "c")
    assert ask("GET", "/api/v1/journal")[0] == 404, "there is no journal"


def test_notes_are_events_and_a_line_has_one_id_behind_its_last_note(journal):
    async def first(count, wanted):
        found = b""
        async for each in notes.stream(str(journal), journal_file.beginning(str(journal)), wanted):
            found += each
            if found.count(b"event: note") >= count:
                return found.decode()

    text = asyncio.run(first(3, notes.NoteFilter()))
    kinds = [json.loads(each.removeprefix("data: "))["kind"] for each in text.splitlines() if each.startswith("data: ")]
    assert kinds == ["a", "b", "c"]
    assert text.count("\nid: ") == 2
    assert text.endswith("\n\n")
    last = JournalPlace.of(text.rpartition("id: ")[2].partition("\n")[0])
    assert journal_file.lines_after(str(journal), last, 10)[0] == []
    assert '"kind": "c"' in asyncio.run(first(1, notes.NoteFilter("Chat", "c")))
    assert '"kind": "a"' not in asyncio.run(first(1, notes.NoteFilter("shop", "c")))


def test_streams_are_bounded(journal, monkeypatch):
    monkeypatch.setattr(endpoints, "STREAMS_MAX", 0)
    status, said, headers = ask("GET", "/api/v1/notes", rest=Rest(status_of(str(journal))))
    assert (status, headers["retry-after"], "open already" in said["error"]) == (429, "5", True)


def test_many_streams_at_once_are_bounded_too(journal, monkeypatch):
    monkeypatch.setattr(endpoints, "STREAMS_MAX", 3)
    rest = Rest(status_of(str(journal)))

    async def at_once():
        going = [asyncio.create_task(rest.ask("GET", "/api/v1/notes?after=start")) for _ in range(9)]
        done, open_ = await asyncio.wait(going, timeout=0.5)
        for each in open_:
            each.cancel()
        await asyncio.wait(open_)
        return [each.result()[0] for each in done], len(open_)

    assert asyncio.run(at_once()) == ([429] * 6, 3)
    assert asyncio.run(at_once()) == ([429] * 6, 3), "streams that have ended are counted no more"


def test_the_head_of_a_stream_is_no_stream(journal):
    async def head():
        async with asyncio.timeout(PATIENCE_S / 2):
            return await Rest(status_of(str(journal))).ask("HEAD", "/api/v1/notes")

    status, text, headers = asyncio.run(head())
    assert (status, text, headers["content-type"].partition(";")[0]) == (200, b"", "text/event-stream")


def test_a_place_in_the_middle_of_a_line_is_none(journal):
    middle = JournalPlace(journal_file.beginning(str(journal)).file, 30)
    with pytest.raises(LostPlaceError, match="middle of a line"):
        journal_file.lines_after(str(journal), middle, 10)

    async def first():
        async for each in notes.stream(str(journal), middle, notes.NoteFilter()):
            if b"event" in each:
                return each.decode()

    assert asyncio.run(first()).startswith("event: gap")


def test_from_now_on_begins_with_a_line_that_is_half_written(journal):
    with journal.open("a") as file:
        file.write(line(3, "d")[:20])
    place = journal_file.end(str(journal))
    with journal.open("a") as file:
        file.write(line(3, "d")[20:])
    assert numbers(journal_file.lines_after(str(journal), place, 10)[0]) == [3.0]


def test_a_client_that_does_not_read_is_cut_off():
    assert RestOptions().http.stall_timeout_s == 30


def test_a_stream_whose_place_is_gone_says_so_and_goes_on(journal):
    async def first():
        async for each in notes.stream(str(journal), JournalPlace(1, 0), notes.NoteFilter()):
            if b"event" in each:
                return each.decode()

    assert asyncio.run(first()).startswith("event: gap")


def test_users_reach_it_by_name():
    assert {"start_rest", "stop_rest", "RestOptions"} <= set(ray_gpu.__all__)
    with pytest.raises(InvalidDeploymentError, match="no option 'prot'"):
        RestOptions.of({"prot": 1})
