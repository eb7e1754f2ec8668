"""The controller's proxies: one on each node that should have one, and another at once where one has ended or hangs.

A process that is stopped keeps its listening socket, and clients that connect wait in its queue. Its successor can have the
port only once it is gone: it is ended with SIGKILL, and seen to its end, before another is started.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import ray
from ray._common.constants import HEAD_NODE_RESOURCE_NAME
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu import names
from executors.ray_gpu.metrics.counts import LIFETIME_MS, Latency
from executors.ray_gpu.os_processes import started_at
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.proxies.probing import ProxySilentError, until_silent, while_it_answers
from executors.ray_gpu.reaping import Reaper, locate
from executors.ray_gpu.world import World, live_nodes

if TYPE_CHECKING:
    from executors.ray_gpu.proxies.options import ProxyOptions

LOG = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often it is looked for nodes that came or went."""
RETRY_S = 0.2
AGAIN_S = 5.0
"""After a proxy could not be had, such as for a port that is another's."""
STARTING = (None, "DEPENDENCIES_UNREADY", "PENDING_CREATION")
"""What Ray says of an actor whose `__init__` is not over."""
START_S = 60.0
"""So long a proxy may take to come up: a process, its port, and the routes."""
END_S = 5.0
"""How much longer than it is allowed the end of a proxy may take, before it is ended from outside."""


class ProxyKeeper:
    """Keeps the proxies that the options ask for. Runs on the controller's event loop.

    Attributes:
        addresses: Of the nodes, by their ids.
        ends: How long the proxies of a node have taken to end in order.
    """

    def __init__(self, world: World) -> None:
        self.addresses: dict[str, str] = {}
        self.ends: dict[str, Latency] = {}
        self._world = world
        self._options: ProxyOptions | None = None
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._infos: dict[str, ProxyInfo] = {}
        self._looking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._changing = asyncio.Lock()
        self._replacing = asyncio.Lock()

    @property
    def options(self) -> "ProxyOptions | None":
        """What was asked for; None: no proxies."""
        return self._options

    @property
    def infos(self) -> tuple[ProxyInfo, ...]:
        """The proxies that there should be."""
        return tuple(self._infos[node_id] for node_id in sorted(self._infos))

    async def keep(self, options: "ProxyOptions") -> None:
        """Have proxies like this from now on; others are ended first, in order."""
        async with self._changing:
            if options == self._options:
                return
            await self._close()
            self._options = options
            if options.http.location != "Disabled":
                self._looking = asyncio.get_running_loop().create_task(self._look())

    async def until_up(self, timeout_s: float) -> tuple[ProxyInfo, ...]:
        """Wait until all are up, or one of them says why it is not; returns them."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._looking is not None and (
                    not self._infos or any(each.pid is None and not each.problem for each in self._infos.values())
                ):
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.infos

    async def close(self) -> None:
        """End all proxies: what is under way is answered first."""
        async with self._changing:
            await self._close()

    async def _close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for task in self._keeping.values():
            task.cancel()
        node_ids, self._keeping, self._infos = list(self._keeping), {}, {}
        self._tell()
        await asyncio.gather(*(self._end(node_id) for node_id in node_ids))
        self._options = None

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
                    self._tell()
                for node_id in sorted(wanted - self._keeping.keys()):
                    self._keeping[node_id] = asyncio.get_running_loop().create_task(self._keep_one(node_id))
                    self._show(node_id, None, "")
            await asyncio.sleep(LOOK_S)

    async def _wanted(self) -> set[str]:
        nodes = await self._world.call(live_nodes)
        self.addresses = {node_id: node.address for node_id, node in nodes.items()}
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
            except Exception as error:
                was_up = node_id in self._infos and self._infos[node_id].pid is not None
                problem = "" if was_up else reason_of(error)
                LOG.warning("the proxy on %s has ended, and is replaced: %s", node_id[:8], reason_of(error))
                self._show(node_id, None, problem)
                await asyncio.sleep(AGAIN_S if problem else RETRY_S)

    async def _live(self, node_id: str) -> None:
        actor = await self._world.call(self._get_or_create, node_id)
        started: int | None = None
        try:
            described = await self._until_up(actor)
            if not self._is_ours(described):  # the last controller's, which has ended before it could end it, or its release's
                async with self._replacing:  # one node after another
                    await self._end(node_id)
                    actor = await self._world.call(self._get_or_create, node_id)
                    described = await self._until_up(actor)
            pid, started, *_ = described
            self._show(node_id, pid, "")
            self._world.settle(node_id, pid, actor)
            try:
                await until_silent(actor)
            finally:
                self._world.leave(node_id, pid)
        except ProxySilentError as error:
            LOG.warning("the proxy on %s is ended, and replaced: %s", node_id[:8], error)
            await self._put_down(actor, started)
            self._show(node_id, None, "")

    def _is_ours(self, described: tuple[Any, ...]) -> bool:
        """Whether a proxy is as it should be. One of another release describes itself in its own way."""
        try:
            return described[3:] == (names.PROTOCOL,) and described[2] == self._options
        except AttributeError:  # its options are from before one of today's was there
            return False

    async def _until_up(self, actor: Any) -> tuple[Any, ...]:
        """How a proxy describes itself. One that is up already has to answer soon, one that is starting may take its time."""
        describing = asyncio.ensure_future(actor.describe.remote())
        try:
            async with asyncio.timeout(START_S):
                while not await self._world.call(has_begun, actor):
                    await asyncio.wait({describing}, timeout=LOOK_S)
                    if describing.done():
                        break
                described: tuple[Any, ...] = await while_it_answers(actor, describing)
                return described
        except TimeoutError:
            describing.cancel()
            raise ProxySilentError(f"it has not come up within {START_S:g} s") from None

    async def _put_down(self, actor: Any, started: int | None) -> None:
        """End a proxy, and return once its process is gone, so that its port is free.

        Args:
            started: When its process did; None: it has not said.
        """
        place = await self._world.call(locate, actor)
        await self._world.call(ray.kill, actor)
        if place is None:
            return
        node_id, pid = place
        if started is None and node_id == ray.get_runtime_context().get_node_id():
            started = started_at(pid)
        if started is not None:  # a number alone could be another's by now
            await Reaper(self._world).gone(node_id, pid, started)

    def _get_or_create(self, node_id: str) -> Any:
        from executors.ray_gpu.proxies.proxy import Proxy

        assert self._options is not None, "somebody has asked for proxies"
        grpc = self._options.grpc
        actor_class: Any = ray.remote(Proxy)
        return actor_class.options(
            name=names.proxy_name(node_id),
            namespace=self._world.namespace,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=1000,
            num_cpus=0,
            runtime_env=(grpc.runtime_env or None) if grpc is not None else None,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        ).remote(self._world.namespace, self._options)

    async def _end(self, node_id: str) -> None:
        try:
            actor = await self._world.call(find_proxy, self._world.namespace, node_id)
        except ValueError:
            return
        began = self._world.now()
        try:
            async with asyncio.timeout(self._end_s()):
                await while_it_answers(actor, actor.drain.remote())
        except (RayError, TimeoutError, ProxySilentError) as error:
            LOG.info("the proxy on %s has not ended in order: %r", node_id[:8], error)
        await self._put_down(actor, None)
        self.ends.setdefault(node_id, Latency(LIFETIME_MS)).add(self._world.now() - began)

    def _end_s(self) -> float:
        if self._options is None:
            return END_S
        of_grpc = self._options.grpc.drain_timeout_s if self._options.grpc is not None else 0.0
        return END_S + max(self._options.http.drain_timeout_s, of_grpc)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _show(self, node_id: str, pid: int | None, problem: str) -> None:
        if self._options is not None and node_id in self._keeping:
            grpc_port = self._options.grpc.port if self._options.grpc is not None else None
            self._infos[node_id] = ProxyInfo(node_id, self._options.http.host, self._options.http.port, grpc_port, pid, problem)
            self._tell()


def reason_of(error: Exception) -> str:
    """In one line: what Ray tells of an actor that could not begin ends with what it raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)


def has_begun(actor: Any) -> bool:
    """Whether a proxy's actor has come up, be it that it has ended since. Blocks for a round trip."""
    return ray._private.state.actors(actor_id=actor._actor_id.hex()).get("State") not in STARTING


def find_proxy(namespace: str, node_id: str) -> Any:
    """The actor. Blocks for a round trip.

    Raises:
        ValueError: There is none.
    """
    return ray.get_actor(names.proxy_name(node_id), namespace=namespace)
