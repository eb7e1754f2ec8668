"""The ASGI application: lets in, routes by the table, checks, answers, and says in one line what is wrong."""

import logging
from typing import Any

import attrs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from executors.ray_gpu.http.protocol import WRITE_CHUNKS
from executors.ray_gpu.rest import openapi
from executors.ray_gpu.rest.blame import field_of
from executors.ray_gpu.rest.bodies import body_of, query_of, read_body
from executors.ray_gpu.rest.cluster_view import ClusterView
from executors.ray_gpu.rest.endpoints import ENDPOINTS, RestEndpoint, RestRequest, answered
from executors.ray_gpu.rest.guard import refused
from executors.ray_gpu.rest.live import LivePlane
from executors.ray_gpu.rest.problems import Problem, problem_of
from executors.ray_gpu.rest.whatif import WhatIf
from executors.ray_gpu.rest.writing import Writer

LOG = logging.getLogger(__name__)

DESCRIPTION = "/openapi.json"
OF_A_FIELD = (404, 409, 422)
"""Statuses of which a request is to blame, and so a field of it."""


class RestApp:
    """An ASGI application.

    Args:
        token: That requests must have; None: whoever can connect may ask.
    """

    def __init__(self, view: ClusterView, writer: Writer, live: LivePlane, token: str | None) -> None:
        self._token = token
        given = view, writer, live, WhatIf()
        routes = [Route(each.path, _endpoint(each, given), methods=[each.method]) for each in ENDPOINTS]
        routes.append(Route(DESCRIPTION, _describe, methods=["GET"]))
        self._routed = Starlette(routes=routes, exception_handlers={404: _no_path, 405: _no_method})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no websockets here"})
            return
        scope.pop(WRITE_CHUNKS, None)
        problem = refused(scope, self._token)
        if problem is not None:
            return await _told(problem)(scope, receive, send)
        await self._routed(scope, receive, send)


def _endpoint(endpoint: RestEndpoint, given: tuple[ClusterView, Writer, LivePlane, WhatIf]) -> Any:
    async def answer(request: Request) -> Response:
        body, said = b"", None
        try:
            body = await read_body(request)
            if body and endpoint.body is None:
                raise Problem(422, "body: expected none", "body")
            said = body_of(body, endpoint.body) if endpoint.body is not None and endpoint.checks else None
            query = query_of(request, endpoint.query)
            return await endpoint.answer(RestRequest(request, body, said, query, *given, dict(request.path_params)))
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                LOG.exception("%s %s", endpoint.method, endpoint.path)
                problem = Problem(500, f"{type(error).__name__}: {error}")
            if problem.field is None and problem.status in OF_A_FIELD:
                refused_argument = getattr(error, "field", None)
                field = field_of(refused_argument, said, request.path_params, has_body=bool(body))
                problem = attrs.evolve(problem, field=field)
            return _told(problem)

    return answer


def _told(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, "application/json")


async def _describe(request: Request) -> Response:
    return answered(openapi.as_bytes(ENDPOINTS))


async def _no_path(request: Request, error: Exception) -> Response:
    return _told(Problem(404, f"path: there is no {request.url.path!r:.200}; GET {DESCRIPTION} says what there is", "path"))


async def _no_method(request: Request, error: Exception) -> Response:
    headers = dict(getattr(error, "headers", None) or {})
    return _told(Problem(405, f"method: {request.method} cannot be had of {request.url.path!r:.200}", "method", headers))
