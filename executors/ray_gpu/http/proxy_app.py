"""What a proxy's uvicorn calls: finds the deployment of a path, and answers what is the proxy's own."""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from executors.ray_gpu.errors import RayExecutorError
from executors.ray_gpu.http.exchange import Exchange, Message, Submits, refuse
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.refusals import Refusal, refusal_of

LOG = logging.getLogger(__name__)

HEALTH, ROUTES = "/-/healthz", "/-/routes"
REQUEST_ID_MAX = 128


class ProxyApp:
    """An ASGI application. Runs on the routers' thread.

    Attributes:
        routes: Deployments by route prefix; None: not known yet.
        draining: Whether the proxy is about to end, which its health says.
    """

    def __init__(self, options: HttpOptions, router_of: Callable[[str], Submits]) -> None:
        self.routes: Mapping[str, str] | None = None
        self.draining = False
        self._options = options
        self._router_of = router_of

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """One request, or one websocket."""
        path, request_id = scope["path"], request_id_of(scope)
        if path in (HEALTH, ROUTES) and scope["type"] == "http":
            return await self._own(path, send, request_id)
        found = self._find(path)
        if found is None:
            text = f"no application at {path}; GET {ROUTES} shows those that there are\n"
            return await self._refuse(scope, receive, send, Refusal(404, text), request_id)
        prefix, deployment = found
        scope["root_path"] = "" if prefix == "/" else prefix
        exchange = Exchange(scope, receive, send, request_id, self._options)
        try:
            router = self._router_of(deployment)
        except RayExecutorError as error:
            return await self._refuse(scope, receive, send, refusal_of(error, request_id, None), request_id)
        await exchange.run(router)

    def _find(self, path: str) -> tuple[str, str] | None:
        """The longest prefix that ends where a part of the path ends."""
        if not self.routes:
            return None
        prefix = path
        while True:
            deployment = self.routes.get(prefix or "/")
            if deployment is not None:
                return prefix or "/", deployment
            if not prefix:
                return None
            prefix = prefix[: prefix.rindex("/")] if "/" in prefix else ""

    async def _own(self, path: str, send: Any, request_id: str) -> None:
        if self.draining or self.routes is None:
            text = "draining\n" if self.draining else "the routes are not known yet\n"
            return await refuse(send, Refusal(503, text), request_id)
        body = b"success" if path == HEALTH else json.dumps(dict(sorted(self.routes.items()))).encode()
        kind = b"text/plain" if path == HEALTH else b"application/json"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _refuse(self, scope: Message, receive: Any, send: Any, refusal: Refusal, request_id: str) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1011, "reason": refusal.text.strip()[:120]})
        else:
            await refuse(send, refusal, request_id)


def request_id_of(scope: Message) -> str:
    """The client's name for its request, if it has given one that can stand in a log; else a new one."""
    for key, value in scope["headers"]:
        if key == b"x-request-id" and 0 < len(value) <= REQUEST_ID_MAX and value.isascii():
            text = value.decode("ascii")
            if text.isprintable():
                return str(text)
    return uuid.uuid4().hex


async def serve(app: ProxyApp, options: HttpOptions, sockets: list[Any]) -> Any:
    """Begin to serve; returns the server once it listens.

    Args:
        sockets: Bound already.
    """
    import uvicorn

    from executors.ray_gpu.http.protocol import bounded

    config = uvicorn.Config(
        app,
        http=bounded(options.max_header_bytes, options.header_timeout_s),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(options.keep_alive_timeout_s)),
        timeout_graceful_shutdown=max(1, round(options.drain_timeout_s)),
        backlog=4096,
    )
    server = uvicorn.Server(config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=sockets))
    while not server.started:
        if task.done():
            task.result()
            raise RayExecutorError("uvicorn has ended before it began")
        await asyncio.sleep(0.005)
    return server, task
