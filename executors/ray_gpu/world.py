"""What all deployments of one controller share: its epoch, its clock, its threads, and what Ray knows of nodes."""

import asyncio
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import attrs
import ray

from executors.ray_gpu.checkpoint import Checkpoint
from executors.ray_gpu.environment import RuntimeEnv
from executors.ray_gpu.metrics.counts import CheckCounts

if TYPE_CHECKING:
    from executors.ray_gpu.waiting_line import WaitingLine

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

Busyness = Callable[[float], Awaitable[float | None]]
"""The share of a node's processor time that is in use over so many seconds, from 0 to 1; None: nobody says."""

ASK_AGAIN_S = 0.5
THREADS = 16
"""For round trips to the cluster's own services, a few milliseconds each; nothing that waits for a replica runs there."""


@attrs.frozen
class NodeInfo:
    """One node, as Ray knows it.

    Attributes:
        total: Its resources.
        free: What of them nobody has claimed.
        labels: As `ray start --labels` gave them.
    """

    node_id: str
    address: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Mapping[str, str] = attrs.Factory(dict)


class World:
    """Shared by the deployments of one controller.

    Attributes:
        namespace: Of the controller and its replicas.
        epoch: Of this controller.
        checkpoint: What outlives it.
        numbers: Of what is published of deployments, one after the other.
        residents: By node and process, actors that can look after other processes there.
        cordoned: Nodes where nothing new is to come (`cordons`).
        own_groups: The ids of the placement groups that replicas have for themselves, by their names (`own_groups`).
        checks: Of the health of replicas, by deployment.
        line: Who waits until Ray has room; set by who makes the world.
        on_placed: Told the node of each replica that has come up, whom to ask how busy that node is, and its environment.
    """

    line: "WaitingLine"

    def __init__(self, namespace: str, epoch: int, checkpoint: Checkpoint, origin: float) -> None:
        self.namespace = namespace
        self.epoch = epoch
        self.checkpoint = checkpoint
        self.numbers = itertools.count(1)
        self.residents: dict[str, dict[int, Any]] = {}
        self.cordoned: frozenset[str] = frozenset()
        self.own_groups: dict[str, str] = {}
        self.on_placed: Callable[[str, Busyness, RuntimeEnv], None] = lambda node_id, ask, runtime_env: None
        self.checks: defaultdict[str, CheckCounts] = defaultdict(CheckCounts)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cluster")
        # Wall time says where this epoch begins, the monotonic clock how it goes on.
        self._zero = max(0.0, time.time() - origin) - time.monotonic()

    @cached_property
    def actor_class(self) -> Any:
        """Of replicas, with all that runs in them: none of it is needed to know the ranks of replicas that there are."""
        from executors.ray_gpu.replica import Replica

        return ray.remote(Replica)

    def now(self) -> float:
        """Seconds since the first controller of this namespace started; never goes back within an epoch."""
        return self._zero + time.monotonic()

    def settle(self, node_id: str, pid: int, actor: Any) -> None:
        """An actor is there to be asked of its node."""
        self.residents.setdefault(node_id, {})[pid] = actor

    def leave(self, node_id: str, pid: int) -> None:
        """It is not any more."""
        here = self.residents.get(node_id, {})
        here.pop(pid, None)
        if not here:
            self.residents.pop(node_id, None)

    async def is_alive(self, node_id: str) -> bool:
        """Whether Ray takes a node for alive; while Ray cannot say, it is."""
        try:
            return node_id in await self.call(live_nodes)
        except Exception as error:  # it raises whatever its connection raises
            LOG.warning("Ray does not say which nodes are alive: %s", error)
            return True

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that blocks for a round trip to the cluster, without blocking this controller."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))


async def persist(ask: Callable[[], T]) -> T:
    """A question to the cluster that there is no going on without: asked again until it is answered.

    An exception here would end the controller for good: Ray restarts an actor that dies, not one that cannot begin.
    """
    while True:
        try:
            return await asyncio.to_thread(ask)
        except Exception:
            LOG.exception("the cluster did not answer; it is asked again")
            await asyncio.sleep(ASK_AGAIN_S)


def live_nodes() -> dict[str, NodeInfo]:
    """The nodes that are alive, by id. Blocks for a round trip."""
    free = ray._private.state.available_resources_per_node()
    return {
        node["NodeID"]: NodeInfo(
            node["NodeID"],
            node["NodeManagerAddress"],
            node["Resources"],
            free.get(node["NodeID"], {}),
            node.get("Labels") or {},
        )
        for node in ray.nodes()
        if node["Alive"]
    }
