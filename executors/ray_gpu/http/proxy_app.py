"""What a proxy's uvicorn calls: finds the deployment of a path, and answers what is the proxy's own."""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from executors.ray_gpu.errors import RayExecutorError
from executors.ray_gpu.http.access import is_let_in
from executors.ray_gpu.http.budget import OpenBodies
from executors.ray_gpu.http.exchange import SAID_STATUS, Exchange, Message, Submits, refuse
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.refusals import UNAUTHENTICATED, Refusal, refusal_of
from executors.ray_gpu.logs.access import AccessLog
from executors.ray_gpu.metrics.counts import ProxyCounts
from executors.ray_gpu.requests.request_ids import made_up

LOG = logging.getLogger(__name__)

HEALTH, ROUTES = "/-/healthz", "/-/routes"
FOUND = "rankcore.found"
"""In the scope of a request: the prefix of its application, and the deployment."""
CLIENT_LEFT = 499
"""In place of the status of a request whose client has left before there was one."""
REQUEST_ID_MAX = 128
SHOWN_MAX = 200
DRAINING = Refusal(503, "draining\n")
LEAVING = Refusal(503, "the node is drained\n")
UNKNOWN_YET = Refusal(503, "the routes are not known yet\n", ((b"retry-after", b"1"),))
WEBSOCKET_MAX_BYTES = 16 * 1024 * 1024
"""Of one message."""


NO_PASSWORD = "none was given"
"""Opens no key. Without any OpenSSL would ask for it at the terminal of whoever started the cluster, and the proxy wait."""


class ProxyApp:
    """An ASGI application. Runs on the routers' thread.

    Attributes:
        routes: Deployments by route prefix; None: not known yet.
        draining: Whether the proxy is about to end, which its health says.
        leaving: Whether its node is drained: its health says so, and whoever comes all the same is served.
        access_log: Takes a line for each request; None: there are to be none.
        counts: Of the requests that were answered.
    """

    def __init__(self, options: HttpOptions, router_of: Callable[[str], Submits], access_log: AccessLog | None = None) -> None:
        self.routes: Mapping[str, str] | None = None
        self.draining = False
        self.leaving = False
        self.access_log = access_log
        self.counts = ProxyCounts()
        self._options = options
        self._router_of = router_of
        self._open_bodies = OpenBodies(options.max_open_bodies_per_client)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """One request, or one websocket."""
        began, request_id = perf_counter(), request_id_of(scope)
        self.counts.ongoing += 1
        try:
            await self._serve(scope, receive, send, request_id)
        finally:
            self.counts.ongoing -= 1
            self._note(scope, request_id, perf_counter() - began)

    def _note(self, scope: Message, request_id: str, latency_s: float) -> None:
        """A request is over: count it, and write it down where that is wanted. The proxy's own are none."""
        path, status = scope["path"], str(scope.get(SAID_STATUS, CLIENT_LEFT))
        if path in (HEALTH, ROUTES) and scope["type"] == "http":
            return
        method = scope.get("method", "WS")
        route, deployment = scope.get(FOUND, ("", ""))
        self.counts.answered(route, deployment, method, status, latency_s)
        if self.access_log is not None:
            self.access_log.note(method, path, status, latency_s, request_id)

    async def _serve(self, scope: Message, receive: Any, send: Any, request_id: str) -> None:
        path = scope["path"]
        if self._options.bearer_token is not None and not self._lets_in(scope, self._options.bearer_token):
            return await self._refuse(scope, receive, send, UNAUTHENTICATED, request_id)
        if path in (HEALTH, ROUTES) and scope["type"] == "http":
            return await self._own(scope, send, request_id)
        if self.routes is None:
            return await self._refuse(scope, receive, send, UNKNOWN_YET, request_id)
        found = self._find(path)
        if found is None:
            text = f"no application at {path[:SHOWN_MAX]}; GET {ROUTES} shows those that there are\n"
            return await self._refuse(scope, receive, send, Refusal(404, text), request_id)
        prefix, deployment = scope[FOUND] = found
        base = self._options.root_path
        scope["root_path"] = base + ("" if prefix == "/" else prefix)
        if base:
            scope["path"], scope["raw_path"] = base + path, base.encode() + scope["raw_path"]
        exchange = Exchange(scope, receive, send, request_id, self._options, self._open_bodies)
        try:
            router = self._router_of(deployment)
        except RayExecutorError as error:
            return await self._refuse(scope, receive, send, refusal_of(error, request_id, None), request_id)
        await exchange.run(router)

    def _lets_in(self, scope: Message, token: str) -> bool:
        """Whether a request has the token, or asks for health. The token goes no further: it is not the application's."""
        if scope["path"] == HEALTH and scope["type"] == "http":
            return True
        said = [value for key, value in scope["headers"] if key.lower() == b"authorization"]
        scope["headers"] = [header for header in scope["headers"] if header[0].lower() != b"authorization"]
        return len(said) == 1 and is_let_in(token, said[0])

    def _find(self, path: str) -> tuple[str, str] | None:
        """The longest prefix that ends where a part of the path ends."""
        routes = self.routes or {}
        fitting = [each for each in routes if each in ("/", path) or path.startswith(each + "/")]
        prefix = max(fitting, key=len, default=None)
        return (prefix, routes[prefix]) if prefix is not None else None

    async def _own(self, scope: Message, send: Any, request_id: str) -> None:
        path = scope["path"]
        if self.draining or self.routes is None:
            return await refuse(scope, send, DRAINING if self.draining else UNKNOWN_YET, request_id)
        if self.leaving and path == HEALTH:
            return await refuse(scope, send, LEAVING, request_id)
        body = b"success" if path == HEALTH else json.dumps(dict(sorted(self.routes.items()))).encode()
        kind = b"text/plain" if path == HEALTH else b"application/json"
        headers = [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", request_id.encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _refuse(self, scope: Message, receive: Any, send: Any, refusal: Refusal, request_id: str) -> None:
        if scope["type"] == "websocket":
            await receive()  # that it wants to connect
        await refuse(scope, send, refusal, request_id)


def request_id_of(scope: Message) -> str:
    """Names a request, by its header."""
    for key, value in scope["headers"]:
        if key == b"x-request-id":
            return named(value.decode("latin-1"))
    return named(None)


def named(asked: str | None) -> str:
    """The client's name for its request, if it has given one that can stand in a log; else a new one."""
    if asked and len(asked) <= REQUEST_ID_MAX and asked.isascii() and asked.isprintable():
        return asked
    return made_up()


def _load_certificates(config: Any) -> None:
    """Read them now.

    Raises:
        RayExecutorError: They cannot be read; says which, and why.
    """
    try:
        config.load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        hint = "; if the key is encrypted, give its ssl_keyfile_password" if config.ssl_keyfile_password == NO_PASSWORD else ""
        raise RayExecutorError(f"no TLS with {config.ssl_certfile} and {config.ssl_keyfile}: {error}{hint}") from None


async def serve(app: Any, options: HttpOptions, sockets: list[Any]) -> Any:
    """Begin to serve; returns the server once it listens.

    Args:
        sockets: Bound already.
    """
    import uvicorn

    from executors.ray_gpu.http.protocol import bounded

    http, websocket = bounded(options)
    config = uvicorn.Config(
        app,
        http=http,
        ws=websocket,
        ws_max_size=min(WEBSOCKET_MAX_BYTES, options.max_body_bytes),
        ssl_certfile=options.ssl_certfile,
        ssl_keyfile=options.ssl_keyfile,
        ssl_keyfile_password=options.ssl_keyfile_password or NO_PASSWORD,
        ssl_ca_certs=options.ssl_ca_certs,
        ssl_cert_reqs=ssl.CERT_NONE if options.ssl_ca_certs is None else ssl.CERT_REQUIRED,
        ws_per_message_deflate=False,  # a few bytes may be a thousand times as many
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(options.keep_alive_timeout_s)),
        timeout_graceful_shutdown=max(1, round(options.drain_timeout_s)),
        backlog=4096,
    )
    if options.ssl_certfile is not None:
        _load_certificates(config)

    class Server(uvicorn.Server):
        """One that waits for a TLS handshake as long as for a header, and not for a minute."""

        async def startup(self, sockets: list[Any] | None = None) -> None:
            if config.ssl is None:
                return await super().startup(sockets)
            loop, kind, timeout_s = asyncio.get_running_loop(), config.http_protocol_class, options.header_timeout_s
            make: Any = partial(kind, config, self.server_state, {})  # type: ignore[call-arg]
            self.servers = [
                await loop.create_server(
                    make, sock=each, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=timeout_s
                )
                for each in sockets or ()
            ]
            self.started = True

    server = Server(config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=sockets))
    while not server.started:
        if task.done():
            task.result()
            raise RayExecutorError("uvicorn has ended before it began")
        await asyncio.sleep(0.005)
    return server, task
