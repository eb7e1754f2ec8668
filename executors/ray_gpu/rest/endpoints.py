"""What the server answers to, as one table: the routes and the OpenAPI description are made of it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import msgspec
import ray
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from executors.deployment_ids import deployment_id
from executors.ray_gpu.metrics.scrape import scrape
from executors.ray_gpu.overview import DeploymentInfo
from executors.ray_gpu.requests import under_way
from executors.ray_gpu.requests.under_way import CallUnderWay, CallWaiting
from executors.ray_gpu.rest import bodies, journal_file, notes, page, serve_json, whatif, writing
from executors.ray_gpu.rest.bodies import NoQuery
from executors.ray_gpu.rest.cluster_view import ClusterSeen, ClusterView, NothingRunsError
from executors.ray_gpu.rest.guard import HEALTH, PAGES
from executors.ray_gpu.rest.journal_file import JournalPlace, LostPlaceError
from executors.ray_gpu.rest.live import LivePlane
from executors.ray_gpu.rest.problems import Problem
from executors.ray_gpu.rest.writing import Writer, etag, revision_in

API_TYPES = ("declarative", "imperative")
SERVE_API_VERSION = "4"
"""Of Ray's dashboard, which Serve's CLI asks for before anything else."""
STREAMS_MAX = 64
METRICS_FRESH_S = 2.0
"""Nodes are asked for their metrics no more often."""
EVENTS = "text/event-stream"
SCALED = {"message": "Scaling request received. Deployment will get scaled asynchronously."}
"""Ray Serve's words."""


@attrs.define
class RestRequest:
    """A request that was let in and checked.

    Attributes:
        body: As it came.
        said: The body, checked, where the endpoint has a kind of it.
        query: Checked.
    """

    request: Request
    body: bytes
    said: Any
    query: Any
    view: ClusterView
    writer: Writer
    live: LivePlane
    whatif: whatif.WhatIf
    path: dict[str, str]


Answer = Callable[[RestRequest], Awaitable[Response]]


@attrs.frozen
class RestEndpoint:
    """One method of one path.

    Attributes:
        what: For people, in a line.
        status: Of an answer to what could be had.
        body: What it takes; None: nothing; `dict`: what the endpoint itself checks.
        checks: Whether the body is checked here, before it is answered.
    """

    method: str
    path: str
    answer: Answer
    what: str
    body: type[Any] | None = None
    query: type[Any] = NoQuery
    checks: bool = True
    status: int = 200


def answered(value: object, status: int = 200, **headers: str) -> Response:
    """JSON."""
    body = value if isinstance(value, bytes) else json.dumps(value, default=str).encode()
    return Response(body, status, headers, "application/json")


# -- Ray Serve's


async def _version(asked: RestRequest) -> Response:
    return answered({"version": SERVE_API_VERSION, "ray_version": ray.__version__, "ray_commit": "", "session_name": ""})


async def _serve_details(asked: RestRequest) -> Response:
    api_type = asked.query.api_type
    if api_type is not None and api_type not in API_TYPES:
        raise Problem(422, f"api_type: expected one of {', '.join(API_TYPES)}, found {api_type!r:.80}", "api_type")
    try:
        seen = await asked.view.look()
    except NothingRunsError:
        return answered(serve_json.NONE)
    body = seen.once(serve_json.as_bytes) if api_type is None else json.dumps(serve_json.details(seen, api_type)).encode()
    return answered(body, etag=etag(seen.status.revision))


async def _put(asked: RestRequest) -> Response:
    revision = await asked.writer.put(asked.body, asked.query, revision_in(asked.request.headers.get("if-match")))
    return answered({}, etag=etag(revision))


async def _end_all(asked: RestRequest) -> Response:
    await asked.writer.end_all()
    return answered({})


async def _of_deployment(verb: str, asked: RestRequest) -> Response:
    name = deployment_id(asked.path["application_name"], asked.path["deployment_name"])
    await asked.writer.act(writing.OF_DEPLOYMENT[verb][1], name, asked.said)
    return answered(SCALED if verb == "scale" else {})


# -- ours


async def _metrics(asked: RestRequest) -> Response:
    page, content_type = await asked.view.shared("metrics", scrape, METRICS_FRESH_S)
    return Response(page, headers={"content-type": content_type})


async def _health(asked: RestRequest) -> Response:
    return Response("success", media_type="text/plain")


def _status_bytes(seen: ClusterSeen) -> bytes:
    return json.dumps(attrs.asdict(seen.status), default=str).encode()


async def _status(asked: RestRequest) -> Response:
    seen = await asked.view.look()
    return answered(seen.once(_status_bytes), etag=etag(seen.status.revision))


async def _config(asked: RestRequest) -> Response:
    seen = await asked.view.look()
    return answered(seen.config, etag=etag(seen.status.revision))


def _meant(seen: ClusterSeen, whose: bodies.RanksQuery | bodies.RequestsQuery) -> list[DeploymentInfo]:
    """Of these an application or a deployment, or all."""
    infos = [
        each
        for each in seen.status.deployments.values()
        if whose.application in (None, each.app_name) and whose.deployment in (None, each.own_name, each.name)
    ]
    for field in ("application", "deployment"):
        if getattr(whose, field) is not None and not infos:
            there_are = ", ".join(seen.status.deployments) or "none"
            raise Problem(404, f"{field}: there is no {getattr(whose, field)!r:.80}; there is: {there_are}", field)
    return infos


async def _ranks(asked: RestRequest) -> Response:
    seen = await asked.view.look()
    infos = _meant(seen, asked.query)
    return answered(
        [
            {"application": each.app_name, "deployment": each.own_name, "world_size": each.world_size, **attrs.asdict(replica)}
            for each in infos
            for replica in each.replicas
        ],
        etag=etag(seen.status.revision),
    )


async def _requests(asked: RestRequest) -> Response:
    seen, query = await asked.view.look(), asked.query
    infos = {each.name: each for each in _meant(seen, query)}
    found = await asked.view.shared("requests", partial(asyncio.to_thread, under_way.calls_in, seen.status))

    def meant(each: CallUnderWay | CallWaiting) -> bool:
        is_named = query.request_id in (None, each.request_id)
        return each.deployment in infos and is_named and each.age_s >= query.older_than_s

    def shown(calls: tuple[CallUnderWay, ...] | tuple[CallWaiting, ...]) -> list[dict[str, Any]]:
        return [attrs.asdict(each) for each in calls if meant(each)]

    waiting = {name: each.waiting for name, each in infos.items()}
    return answered(
        {
            "requests": shown(found.calls),
            "waiting": waiting,
            "waiting_requests": shown(found.waiting),
            "silent": [each for each in found.silent if each.partition("#")[0] in infos],
            "silent_callers": found.silent_callers,
        }
    )


async def _defragmentation(asked: RestRequest) -> Response:
    name = asked.query.deployment
    _meant(await asked.view.look(), bodies.RanksQuery(deployment=name))  # else others would be as many questions
    propose = partial(asyncio.to_thread, writing.defragmentation, name, asked.writer.namespace)
    return answered(msgspec.to_builtins(await asked.view.shared(("defragmentation", name), propose)))


async def _cancel(asked: RestRequest) -> Response:
    await asked.writer.act(writing.cancel, asked.path["request"])
    return answered({})


async def _cancel_waiting(asked: RestRequest) -> Response:
    ended = await asked.writer.act(writing.cancel_waiting, asked.query.waiting_for)
    return answered({"cancelled": list(ended)})


async def _nodes(asked: RestRequest) -> Response:
    status = (await asked.view.look()).status
    shown: dict[str, tuple[Any, ...]] = {"cordons": status.cordons, "memory": status.memory, "proxies": status.proxy_infos}
    found = {what: [attrs.asdict(each) for each in items] for what, items in shown.items()}
    return answered(found, etag=etag(status.revision))


async def _controller_health(asked: RestRequest) -> Response:
    ask = partial(asyncio.to_thread, writing.controller_health, asked.writer.namespace)
    return answered(await asked.view.shared("controller-health", ask))


async def _plan(asked: RestRequest) -> Response:
    planned, revision = await asked.writer.plan(asked.body, asked.query)
    return answered(attrs.asdict(planned), etag=etag(revision))


async def _of_node(verb: str, asked: RestRequest) -> Response:
    return answered(attrs.asdict(await asked.writer.act(writing.OF_NODE[verb][1], asked.path["node"], asked.said)))


async def _of_replicas(verb: str, asked: RestRequest) -> Response:
    await asked.writer.act(writing.OF_REPLICAS[verb][1], None, asked.said)
    return answered({})


async def _delete(asked: RestRequest) -> Response:
    await asked.writer.delete(asked.path["application_name"], asked.path.get("deployment_name"))
    return answered({}, 202)


async def _journal_path(asked: RestRequest) -> str:
    status = (await asked.view.look()).status
    path = status.journal
    if status.journal_problem is not None:
        raise Problem(503, f"the journal {status.journal_problem}", None, {"retry-after": "10"})
    if path is None:
        raise Problem(404, "the controller writes no journal: start it with one (start(journal=...))")
    return path


def _place_of(text: str | None, field: str) -> JournalPlace | None:
    try:
        return JournalPlace.of(text) if text is not None else None
    except ValueError as error:
        raise Problem(422, f"{field}: {error}", field) from None


async def _journal(asked: RestRequest) -> Response:
    after = _place_of(asked.query.after, "after")
    path = await _journal_path(asked)
    place = after or journal_file.beginning(path)
    if place is None:
        raise Problem(404, "the journal's file is not there")
    try:
        lines, behind = await asyncio.to_thread(journal_file.lines_after, path, place, asked.query.limit)
    except LostPlaceError as error:
        raise Problem(410, f"after: {error}", "after") from None
    body = b"".join(line + b"\n" for line, _ in lines)
    return Response(body, 200, {"x-next": str(behind)}, "application/x-ndjson")


class _EventStream(StreamingResponse):
    """Events, for as long as the client stays and reads. It counts from its making on, so that many at once are counted too.

    A client that takes nothing of it is cut off as any other of this server (`RestOptions.http`).
    """

    open = 0

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, 200, {"cache-control": "no-store"}, EVENTS)
        self._events = events
        type(self).open += 1

    @classmethod
    def of(cls, events: Callable[[], AsyncIterator[bytes]]) -> "_EventStream":
        """One more.

        Raises:
            Problem: There are too many of this kind.
        """
        if cls.open >= STREAMS_MAX:
            raise Problem(429, f"{STREAMS_MAX} streams are open already", None, {"retry-after": "5"})
        return cls(events())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            type(self).open -= 1
            if isinstance(self._events, AsyncGenerator):
                await self._events.aclose()  # else it stands at its last item until somebody collects garbage


class _NoteStream(_EventStream):
    """Notes."""

    open = 0


class _LiveStream(_EventStream):
    """What the live page shows."""

    open = 0


async def _notes(asked: RestRequest) -> Response:
    said, came_back = asked.query.after, asked.request.headers.get("last-event-id")
    from_start = said == "start" and came_back is None
    field, text = ("after", said) if came_back is None else ("last-event-id", came_back)
    place = None if from_start else _place_of(text, field)
    path = await _journal_path(asked)
    place = journal_file.beginning(path) if from_start else place
    if asked.request.method == "HEAD":
        return Response(None, 200, {"cache-control": "no-store"}, EVENTS)
    wanted = notes.NoteFilter(asked.query.deployment, asked.query.kind)
    return _NoteStream.of(lambda: notes.stream(path, place, wanted))


async def _page(asked: RestRequest) -> Response:
    return Response(page.live_page(), 200, page.HEADERS, "text/html; charset=utf-8")


async def _live(asked: RestRequest) -> Response:
    if asked.request.method == "HEAD":
        return Response(None, 200, {"cache-control": "no-store"}, EVENTS)
    return _LiveStream.of(asked.live.events)


async def _whatif(asked: RestRequest) -> Response:
    status, nodes, calls = (await asked.view.look()).status, await asked.live.nodes_now(), asked.live.measured()
    what = whatif.asked_in(asked.said, status, nodes, calls)
    path = await _journal_path(asked)
    question = whatif.question_of(path, await asked.view.now(), what, asked.said.horizon_s, calls, nodes)
    return answered(await asked.whatif.ask(question, asked.request.is_disconnected))


APPLICATIONS = "/api/serve/applications/"
DEPLOYMENT = "/api/v1/applications/{application_name}/deployments/{deployment_name}"
ENDPOINTS: tuple[RestEndpoint, ...] = (
    RestEndpoint("GET", "/api/ray/version", _version, "Ray's version, which Serve's CLI asks for"),
    RestEndpoint("GET", APPLICATIONS, _serve_details, "What runs, as Ray Serve says it", query=bodies.ServeQuery),
    RestEndpoint(
        "PUT", APPLICATIONS, _put, "Bring all applications to a config; others go", dict, bodies.ChangeQuery, checks=False
    ),
    RestEndpoint("DELETE", APPLICATIONS, _end_all, "Delete all applications, and end the controller"),
    *(
        RestEndpoint("POST", f"{DEPLOYMENT}/{verb}", partial(_of_deployment, verb), f"{verb} a deployment", body)
        for verb, (body, _) in writing.OF_DEPLOYMENT.items()
    ),
    RestEndpoint("DELETE", DEPLOYMENT, _delete, "Begin to delete a deployment", status=202),
    RestEndpoint("DELETE", "/api/v1/applications/{application_name}", _delete, "Begin to delete an application", status=202),
    RestEndpoint("GET", "/api/v1/status", _status, "What runs: what `rankcore status --json` prints"),
    RestEndpoint("GET", "/api/v1/config", _config, "What is in force, as a file of applications"),
    RestEndpoint("GET", "/api/v1/ranks", _ranks, "Who has which rank", query=bodies.RanksQuery),
    RestEndpoint("GET", "/api/v1/requests", _requests, "Calls under way, with their age", query=bodies.RequestsQuery),
    RestEndpoint("DELETE", "/api/v1/requests/{request}", _cancel, "End a call, whose caller is told"),
    RestEndpoint("DELETE", "/api/v1/requests", _cancel_waiting, "End all calls that wait for it", query=bodies.CancelQuery),
    RestEndpoint(
        "GET",
        "/api/v1/defragmentation",
        _defragmentation,
        "Moves that would let weights fit; nothing is moved",
        query=bodies.DefragmentationQuery,
    ),
    RestEndpoint(
        "GET", "/api/v1/controller-health", _controller_health, "How the controller keeps up, in the fields of Serve's"
    ),
    RestEndpoint("GET", "/api/v1/nodes", _nodes, "Nodes that are cordoned, memory for weights, proxies"),
    RestEndpoint(
        "POST", "/api/v1/plan", _plan, "What a config would bring; nothing changes", dict, bodies.ChangeQuery, checks=False
    ),
    RestEndpoint("GET", "/api/v1/journal", _journal, "Lines of the journal", query=bodies.JournalQuery),
    RestEndpoint("GET", "/api/v1/notes", _notes, "Notes as they come, as server-sent events", query=bodies.NotesQuery),
    *(RestEndpoint("GET", path, _page, "The live page; it asks for the token itself") for path in PAGES),
    RestEndpoint("GET", "/api/v1/live", _live, "What the live page shows, as server-sent events"),
    RestEndpoint(
        "POST", "/api/v1/whatif", _whatif, "What comes of it if a node is lost, a target set, a replica dies", whatif.WhatIfBody
    ),
    *(
        RestEndpoint("POST", f"/api/v1/nodes/{{node}}/{verb}", partial(_of_node, verb), f"{verb} a node", body)
        for verb, (body, _) in writing.OF_NODE.items()
    ),
    *(
        RestEndpoint("POST", f"/api/v1/replicas/{verb}", partial(_of_replicas, verb), f"{verb} replicas by name", body)
        for verb, (body, _) in writing.OF_REPLICAS.items()
    ),
    RestEndpoint("GET", "/metrics", _metrics, "Metrics of all nodes, for Prometheus"),
    RestEndpoint("GET", HEALTH, _health, "Whether this server is up; needs no token"),
)
