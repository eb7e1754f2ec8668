"""The proxy's actor: uvicorn, and grpc.aio, on the routers' thread of a process of its own."""

import asyncio
import errno
import gc
import logging
import os
import resource
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from executors.ray_gpu import names, traces
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.proxy_app import ProxyApp, serve
from executors.ray_gpu.logs.config import UNASKED, from_plain
from executors.ray_gpu.logs.process import log_from_here
from executors.ray_gpu.messages import Ingress
from executors.ray_gpu.metrics.of_requests import of_proxy
from executors.ray_gpu.metrics.publisher import publish
from executors.ray_gpu.os_processes import reap, started_at
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.requests.router import Router
from executors.ray_gpu.requests.routes import router_of, routing_loop, say_goodbye
from executors.ray_gpu.requests.tracing import trace_as

if TYPE_CHECKING:
    from executors.ray_gpu.grpc_proxy.server import GrpcServer
    from executors.ray_gpu.grpc_proxy.service import Service

LOG = logging.getLogger(__name__)

RETRY_S = 0.2
GARBAGE_OBJECTS = 10_000
"""So many more objects there have to be before it is looked which of them nobody needs."""
BIND_S = 2.0
"""How long a new proxy waits for the port that an ended one is about to leave. The controller tries again later."""
ROUTES_S = 10.0
"""How long a new proxy waits for its routes before it serves: the controller may be away."""


class Proxy:
    """Serves HTTP and gRPC on its node, with the routes that the controller tells it. `watch` and `drain` wait."""

    async def __init__(self, namespace: str, options: ProxyOptions) -> None:  # type: ignore[misc]
        """Listen, and begin to serve."""
        allow_many_connections()
        self._namespace = namespace
        self._options = options
        self._loop = routing_loop()
        address = ray.util.get_node_ip_address()
        self._name = f"proxy@{address}"
        who = {"component_name": "proxy", "component_id": address}
        access = log_from_here(from_plain(options.logging) or UNASKED, "proxy", address, lambda: who)
        trace_as(traces.kept(namespace), self._name)
        self._app = ProxyApp(options.http, self._router, access)
        self._service: Service | None = None
        self._grpc: GrpcServer | None = None
        self._ingress: Ingress | None = None
        self._known = asyncio.Event()
        self._node_id = ray.get_runtime_context().get_node_id()
        publish(self._app.counts, partial(of_proxy, "http", self._node_id, address))
        listening = await bound(options.http.host, options.http.port)
        self._following = asyncio.run_coroutine_threadsafe(self._follow(), self._loop)
        await self._there(self._wait_for_routes())
        self._server, self._task = await self._there(serve(self._app, options.http, [listening]))
        if options.grpc is not None:
            await self._there(self._serve_grpc(options.grpc))
        look_for_garbage_seldom()

    def __repr__(self) -> str:
        """What Ray calls it."""
        return self._name

    async def describe(self) -> tuple[int, int | None, ProxyOptions, int]:
        """The process that serves, when it started in the system's ticks, what it was asked to serve, and its protocol."""
        return os.getpid(), started_at(os.getpid()), self._options, names.PROTOCOL

    async def reap(self, pid: int, started: int | None) -> bool:
        """Whether another process of this node is gone. Waits for that a while; one that is stuck is killed."""
        return await asyncio.to_thread(reap, pid, started)

    async def watch(self, for_s: float) -> None:
        """Returns after so long, by the loop that serves: the controller learns that it turns, and of this process's end."""
        await self._there(asyncio.sleep(for_s))

    async def drain(self) -> None:
        """Take nothing new, and return when what is under way is answered, or its time is up; replicas are told."""
        self._app.draining = True
        self._server.should_exit = True

        async def http_ended() -> None:
            await asyncio.wait([self._task], timeout=self._options.http.drain_timeout_s + 1.0)

        async def ended() -> None:
            grpc_ended = [self._grpc.end()] if self._grpc is not None else []
            await asyncio.gather(http_ended(), *grpc_ended, return_exceptions=True)

        await self._there(ended())
        await say_goodbye()

    async def _wait_for_routes(self) -> None:
        """Clients that connect meanwhile wait too, and are not turned away by a proxy that has just come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUTES_S):
                await self._known.wait()

    def _router(self, deployment: str) -> Router:
        return router_of(self._namespace, deployment)

    async def _serve_grpc(self, options: GrpcOptions) -> None:
        from executors.ray_gpu.grpc_proxy.server import GrpcServer
        from executors.ray_gpu.grpc_proxy.service import Service

        self._service = Service(self._router, options.request_timeout_s, self._app.access_log)
        self._tell_service()
        publish(self._service.counts, partial(of_proxy, "grpc", self._node_id, ray.util.get_node_ip_address()))
        self._grpc = GrpcServer(options, self._service)
        await self._grpc.start()
        await self._grpc.say_health(leaving=self._app.leaving)

    async def _there(self, work: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _follow(self) -> None:
        """Ask the controller for the routes, again and again; it answers when they have changed, or after a while."""
        seen: Ingress | None = None
        while True:
            try:
                controller = await asyncio.to_thread(ray.get_actor, names.CONTROLLER, namespace=self._namespace)
                future = controller.ingress.options(max_task_retries=0).remote(seen).future()
                seen = await asyncio.wrap_future(future)
                assert seen is not None, "there always is an answer"
                self._ingress = seen
                self._app.routes, self._app.leaving = seen.prefixes, self._node_id in (seen.drained or ())
                if self._grpc is not None:
                    await self._grpc.say_health(leaving=self._app.leaving)
                self._tell_service()
                self._known.set()
            except Exception as error:  # the controller is down: requests go on with the routes that there are
                LOG.debug("no routes: %s", error)
                await asyncio.sleep(RETRY_S)

    def _tell_service(self) -> None:
        if self._service is not None and self._ingress is not None:
            self._service.applications = self._ingress.applications


async def bound(host: str, port: int) -> socket.socket:
    """A listening socket; waits while another process still has the port.

    Raises:
        OSError: It is another's, or the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = asyncio.get_running_loop().time() + BIND_S
    while True:
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio lets answers wait for each other
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
            found.listen(4096)
            found.setblocking(False)
            return found
        except OSError as error:
            found.close()
            if error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, f"{error.strerror}: nothing can listen on {host}:{port}") from None
            if asyncio.get_running_loop().time() > deadline:
                raise OSError(error.errno, f"port {port} of {host} is another process's: choose another port") from None
        await asyncio.sleep(0.05)


def look_for_garbage_seldom() -> None:
    """What is here stays here, and of what comes and goes little is held by itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)


def allow_many_connections() -> None:
    """As many files as this user may have: each idle connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
