"""The controller's proxies: one on each node that should have one, and another at once where one has ended."""

import asyncio
import logging
from typing import Any

import ray
from ray._common.constants import HEAD_NODE_RESOURCE_NAME
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu import names
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.world import World, live_nodes

LOG = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often it is looked for nodes that came or went."""
RETRY_S = 0.2


class ProxyKeeper:
    """Keeps the proxies that the options ask for. Runs on the controller's event loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._options: ProxyOptions | None = None
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._infos: dict[str, ProxyInfo] = {}
        self._looking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def options(self) -> ProxyOptions | None:
        """What was asked for; None: no proxies."""
        return self._options

    @property
    def infos(self) -> tuple[ProxyInfo, ...]:
        """The proxies that there should be."""
        return tuple(self._infos[node_id] for node_id in sorted(self._infos))

    async def keep(self, options: ProxyOptions) -> None:
        """Have proxies like this from now on; others are ended first, in order."""
        if options == self._options:
            return
        await self.close()
        self._options = options
        if options.http.location != "Disabled":
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def until_up(self, timeout_s: float) -> tuple[ProxyInfo, ...]:
        """Wait until all are up, or one of them says why it is not; returns them."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._infos or any(each.pid is None and not each.problem for each in self._infos.values()):
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.infos

    async def close(self) -> None:
        """End all proxies: what is under way is answered first."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for task in self._keeping.values():
            task.cancel()
        node_ids, self._keeping, self._infos = list(self._keeping), {}, {}
        await asyncio.gather(*(self._end(node_id) for node_id in node_ids))

    # -- which nodes

    async def _look(self) -> None:
        while True:
            try:
                wanted = await self._wanted()
            except Exception as error:  # the cluster does not answer
                LOG.info("the nodes are not known: %s", error)
            else:
                for node_id in self._keeping.keys() - wanted:
                    self._keeping.pop(node_id).cancel()
                    self._infos.pop(node_id, None)
                for node_id in sorted(wanted - self._keeping.keys()):
                    self._keeping[node_id] = asyncio.get_running_loop().create_task(self._keep_one(node_id))
            await asyncio.sleep(LOOK_S)

    async def _wanted(self) -> set[str]:
        nodes = await self._world.call(live_nodes)
        assert self._options is not None, "somebody has asked for proxies"
        if self._options.http.location == "EveryNode":
            return set(nodes)
        return {node_id for node_id, node in nodes.items() if HEAD_NODE_RESOURCE_NAME in node.total}

    # -- one proxy

    async def _keep_one(self, node_id: str) -> None:
        """Start it, or find the one of the last controller, and start another one whenever it has ended."""
        while True:
            try:
                await self._live(node_id)
            except RayActorError as error:
                LOG.warning("the proxy on %s has ended, and is replaced: %s", node_id[:8], error)
                self._show(node_id, None, "" if "_init" not in str(error) else str(error))
            except Exception as error:
                LOG.warning("the proxy on %s cannot be had: %s", node_id[:8], error)
                self._show(node_id, None, str(error))
            await asyncio.sleep(RETRY_S)

    async def _live(self, node_id: str) -> None:
        actor = await self._world.call(self._get_or_create, node_id)
        pid = await actor.describe.remote()
        self._show(node_id, pid, "")
        await actor.watch.remote()

    def _get_or_create(self, node_id: str) -> Any:
        from executors.ray_gpu.proxies.proxy import Proxy

        actor_class: Any = ray.remote(Proxy)
        return actor_class.options(
            name=names.proxy_name(node_id),
            namespace=self._world.namespace,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=1000,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        ).remote(self._world.namespace, self._options)

    async def _end(self, node_id: str) -> None:
        try:
            actor = await self._world.call(find_proxy, self._world.namespace, node_id)
        except ValueError:
            return
        try:
            await actor.drain.remote()
        except RayError as error:
            LOG.info("the proxy on %s has ended by itself: %s", node_id[:8], error)
        await self._world.call(ray.kill, actor)

    def _show(self, node_id: str, pid: int | None, problem: str) -> None:
        if self._options is not None and node_id in self._keeping:
            grpc_port = self._options.grpc.port if self._options.grpc is not None else None
            self._infos[node_id] = ProxyInfo(node_id, self._options.http.host, self._options.http.port, grpc_port, pid, problem)
            self._changed.set()
            self._changed = asyncio.Event()


def find_proxy(namespace: str, node_id: str) -> Any:
    """The actor. Blocks for a round trip.

    Raises:
        ValueError: There is none.
    """
    return ray.get_actor(names.proxy_name(node_id), namespace=namespace)
