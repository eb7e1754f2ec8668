"""The actor of the REST server: a proxy's uvicorn, on a loop of its own, on the head node, where the controller is."""

import asyncio
import logging
import os
from functools import partial
from typing import Any

import ray

from executors.ray_gpu.http.proxy_app import serve
from executors.ray_gpu.proxies.proxy import bound
from executors.ray_gpu.rest.app import RestApp
from executors.ray_gpu.rest.cluster_view import ClusterView, controller_of
from executors.ray_gpu.rest.counting import CountsOfReplicas, nodes
from executors.ray_gpu.rest.live import LivePlane
from executors.ray_gpu.rest.options import RestOptions
from executors.ray_gpu.rest.writing import Writer
from executors.ray_gpu.versions import versions

LOG = logging.getLogger(__name__)

BIND_AGAIN_S = 1.0
BEHIND = 5
"""So far this process stands behind those that decide and answer calls, where a node has no processor to spare."""


class RestServer:
    """Serves until it is killed. Ray starts another where it dies, which waits for the port where that is taken."""

    async def __init__(self, namespace: str, options: str) -> None:  # type: ignore[misc]
        """Listen, and begin to serve."""
        os.nice(BEHIND)
        self._options = options
        chosen = RestOptions.of_json(options)
        view = ClusterView(partial(controller_of, namespace), ray.get_runtime_context().get_node_id())
        live = LivePlane(view, CountsOfReplicas(), nodes)
        app = RestApp(view, Writer(namespace, view), live, chosen.bearer_token)
        listening = await _listening(chosen)
        live.begin()
        self._server, self._task = await serve(app, chosen.http, [listening])

    async def hello(self) -> dict[str, str]:
        """Which versions run here."""
        return versions()

    async def describe(self) -> tuple[int, str]:
        """The process that serves, and what it was asked to serve."""
        return os.getpid(), self._options


async def _listening(options: RestOptions) -> Any:
    while True:
        try:
            return await bound(options.host, options.port)
        except OSError as error:
            if not ray.get_runtime_context().was_current_actor_reconstructed:
                raise  # whoever starts it is told; there is nobody who is when it comes back
            LOG.warning("%s", error)
            await asyncio.sleep(BIND_AGAIN_S)
