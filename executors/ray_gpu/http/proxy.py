"""The proxy's actor: uvicorn on the routers' thread of a process of its own."""

import asyncio
import logging
import os
import resource
import socket
from contextlib import suppress
from typing import Any

import ray

from executors.ray_gpu import names
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.proxy_app import ProxyApp, serve
from executors.ray_gpu.requests.routes import router_of, routing_loop

LOG = logging.getLogger(__name__)

RETRY_S = 0.2
BIND_S = 30.0
"""How long a new proxy waits for the port that an ended one is about to leave."""


class Proxy:
    """Serves HTTP on its node, with the routes that the controller tells it. Its methods answer at once but for `watch`."""

    async def __init__(self, namespace: str, options: HttpOptions) -> None:  # type: ignore[misc]
        """Listen, and begin to serve."""
        allow_many_connections()
        self._namespace = namespace
        self._options = options
        self._app = ProxyApp(options, lambda deployment: router_of(namespace, deployment))
        self._socket = await bound(options.host, options.port)
        self._loop = routing_loop()
        self._server, self._task = await self._there(serve(self._app, options, [self._socket]))
        self._following = asyncio.run_coroutine_threadsafe(self._follow(), self._loop)

    async def describe(self) -> tuple[str, int, int]:
        """Address, port and process."""
        return self._options.host, self._socket.getsockname()[1], os.getpid()

    async def watch(self) -> None:
        """Never returns: that this call fails is how the controller learns of this process's end."""
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Take nothing new, and return when what is under way is answered, or its time is up."""
        self._app.draining = True
        self._server.should_exit = True

        async def ended() -> None:
            with suppress(Exception):
                await asyncio.wait_for(asyncio.shield(self._task), self._options.drain_timeout_s + 1.0)

        await self._there(ended())

    async def _there(self, work: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _follow(self) -> None:
        """Ask the controller for the routes, again and again; it answers when they have changed, or after a while."""
        seen: dict[str, str] | None = None
        while True:
            try:
                controller = await asyncio.to_thread(ray.get_actor, names.CONTROLLER, namespace=self._namespace)
                future = controller.http_routes.options(max_task_retries=0).remote(seen).future()
                seen = await asyncio.wrap_future(future)
                self._app.routes = seen
            except Exception as error:  # the controller is down: requests go on with the routes that there are
                LOG.debug("no routes: %s", error)
                await asyncio.sleep(RETRY_S)


async def bound(host: str, port: int) -> socket.socket:
    """A listening socket; waits while another process still has the port.

    Raises:
        OSError: It is another's, or the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = asyncio.get_running_loop().time() + BIND_S
    while True:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
            found.listen(4096)
            found.setblocking(False)
            return found
        except OSError:
            found.close()
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)


def allow_many_connections() -> None:
    """As many files as this user may have: each idle connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
