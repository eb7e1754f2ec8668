"""Which nodes are cordoned or drained, by users and by Ray itself: told to the machine, and to who places.

| who says so | known after a crash by | over |
|---|---|---|
| a user: cordon, drain | a key of the store for each node, put before the machine is told | with an uncordon, or the node |
| Ray: a preemption notice, an autoscaler, a SIGTERM | Ray, asked every `PERIOD_S` | with the node: Ray has no way back |

The machine keeps no cordon over a crash. So all are told again when a controller begins, and whoever places is told before that
(`World.cordoned`): the first command of a new epoch may be a start. Of two deadlines of one node the machine says which holds;
it is told that what Ray drains is gone by Ray's, whatever users say.

Ray places nothing on what it drains; passing over what users have cordoned is asked of it with the label that each node has.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

import attrs
import ray

from executors import node_reports
from executors.maintenance import Cordon, Maintenance, says_more
from executors.node_reports import Place
from executors.ray_gpu.errors import InvalidCallError
from executors.ray_gpu.overview import CordonedNode
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.world import NodeInfo, World, live_nodes
from rankcore.cluster.events import ClusterEvent, CordonNews
from rankcore.cluster.state import ClusterState
from rankcore.events import NodeCordoned, NodeDrainRequested, NodeLost, NodeUncordoned
from rankcore.values import NodeId

LOG = logging.getLogger(__name__)

PERIOD_S = 1.0
HEAD = "node:__internal_head__"
"""Resource that Ray gives the node of its head."""
DRAINED_BY_RAY = "Ray drains it"
"""The reason of such a drain: Ray says no other."""


class Cordons:
    """Runs on the controller's event loop.

    Args:
        maintenance: Read by now, once this recovers.
        state: Of the machine.
        request: Hands an event to the machine, which has taken it when this returns.
        on_change: Called when other nodes are cordoned or drained than before.

    Attributes:
        nodes: What was said last of each node; one that is not here is open.
    """

    def __init__(
        self,
        world: World,
        maintenance: Maintenance,
        state: Callable[[], ClusterState],
        request: Callable[[ClusterEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.nodes: dict[NodeId, Cordon] = {}
        self._world = world
        self._maintenance = maintenance
        self._state = state
        self._request = request
        self._on_change = on_change
        self._by_ray: dict[NodeId, int] = {}  # Ray's deadlines, in milliseconds since 1970
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def recover(self) -> None:
        """Nothing comes to what users have cordoned or drained before; the machine is not told yet."""
        self.nodes = self._maintenance.cordons
        self._world.cordoned = frozenset(self.nodes)

    def begin(self) -> None:
        """Tell all of it again, and look from now on what Ray drains."""
        for each in tuple(self.nodes.values()):
            self._request(attrs.evolve(each, at=self._world.now()))
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def ask(self, event: CordonNews) -> None:
        """What a user wants of a node that is alive: stored, then told. Repeatable.

        Raises:
            InvalidCallError: Ray drains the node, which cannot be taken back.
        """
        async with self._lock:
            known = self.nodes.get(event.node_id)
            if isinstance(event, NodeUncordoned):
                if event.node_id in self._by_ray:
                    raise InvalidCallError(f"node {event.node_id} cannot be uncordoned: Ray itself drains it, for good")
                await self._world.call(self._maintenance.forget, nodes=(event.node_id,))
                self._tell(event)
            elif says_more(event, known):
                await self._world.call(self._maintenance.ask, event)
                self._tell(event)

    def _tell(self, event: CordonNews | NodeLost) -> None:
        event = attrs.evolve(event, at=self._world.now())
        before = self._world.cordoned, self.drained
        if isinstance(event, NodeCordoned | NodeDrainRequested):
            self.nodes[event.node_id] = event
        else:
            self.nodes.pop(event.node_id, None)
        self._world.cordoned = frozenset(self.nodes)
        self._request(event)
        if before != (self._world.cordoned, self.drained):
            self._on_change()

    # -- what becomes of nodes

    async def _watch(self) -> None:
        while True:
            try:
                async with self._lock:
                    await self._look()
            except Exception as error:  # Ray raises whatever its connection raises; it is asked again
                LOG.debug("Ray does not say which nodes it drains: %s", error)
            await asyncio.sleep(PERIOD_S)

    async def _look(self) -> None:
        draining = await self._world.call(draining_nodes)
        for node_id, deadline_ms in sorted(draining.items()):
            if self._by_ray.get(node_id) != deadline_ms:
                self._by_ray[node_id] = deadline_ms
                self._tell_drain(node_id, deadline_ms)
        if not self.nodes:
            return
        alive = await self._world.call(live_nodes)
        for node_id in sorted(self.nodes.keys() - alive.keys()):
            await self._world.call(self._maintenance.forget, nodes=(node_id,))
            self._by_ray.pop(node_id, None)
            self._tell(NodeLost(node_id=node_id, at=self._world.now()))

    def _tell_drain(self, node_id: NodeId, deadline_ms: int) -> None:
        now = self._world.now()
        deadline_at = max(now, now + deadline_ms / 1000 - time.time()) if deadline_ms else None
        LOG.warning("Ray drains node %s%s", node_id, "" if deadline_at is None else f", until in {deadline_at - now:.0f} s")
        self._tell(NodeDrainRequested(node_id=node_id, deadline_at=deadline_at, reason=DRAINED_BY_RAY, final=True, at=now))

    # -- for who asks

    @property
    def drained(self) -> tuple[NodeId, ...]:
        """The nodes that are to be left."""
        return tuple(sorted(each for each, cordon in self.nodes.items() if isinstance(cordon, NodeDrainRequested)))

    def report(self, node_id: NodeId, node: NodeInfo | None, deployments: Iterable[RayDeployment]) -> CordonedNode:
        """How it stands with a node, and who is there.

        Args:
            node: As Ray knows it; None: it is not alive any more.
        """
        place = Place() if node is None else Place(node.address, HEAD in node.total)
        shown = ((each.entry, each.replica_on_ray) for each in deployments)
        return node_reports.report(node_id, place, self._state(), self._world.now(), shown)


def draining_nodes() -> dict[NodeId, int]:
    """Those that Ray drains, with their deadlines in milliseconds since 1970; 0: none. Blocks for a round trip."""
    found: dict[NodeId, int] = ray._private.state.state.get_draining_nodes()
    return found
