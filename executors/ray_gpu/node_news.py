"""What nodes offer, told to the machine: room for replicas where ranks steer placement, memory where weights are planned.

Of room a node offers what nobody has claimed there and what replicas of this cluster have: what others run takes room from all
of them. Otherwise Ray finds the room, and nobody asks.
"""

import asyncio
from collections.abc import Callable, Iterable

from executors.ray_gpu.conversation import Conversation
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.room import amount_of
from executors.ray_gpu.worker.node_memory import MemoryOffer, NodeMemories
from executors.ray_gpu.worker.workers import WorkersOnRay
from executors.ray_gpu.world import NodeInfo, World, live_nodes, persist
from rankcore.cluster.events import NodeJoined, NodesListed
from rankcore.cluster.state import ClusterState
from rankcore.events import NodeLost
from rankcore.values import NodeId

PERIOD_S = 1.0
SETTLING_S = 2.0
"""Ray's account of free resources lags behind: a node on which something has just begun is not counted anew yet."""
DIGITS = 6
"""Of an amount that count: sums of fractions are off by the last bit of a float, which is no news."""
NO_MEMORY = MemoryOffer((), 0, {})


class NodeNews:
    """Tells of nodes that came, went, or offer something else, while a deployment has a placement policy or residency.

    Args:
        deployments: All that there are.
        workers: The processes that may hold weights.

    Attributes:
        memory: What of nodes is planned for weights.
    """

    def __init__(
        self,
        world: World,
        tell: Callable[[NodeJoined | NodeLost | NodesListed], None],
        deployments: Callable[[], Iterable[RayDeployment]],
        workers: WorkersOnRay,
    ) -> None:
        self.memory = NodeMemories(world, self.look_soon, workers.end_misplaced)
        self._world = world
        self._tell = tell
        self._deployments = deployments
        self._workers = workers
        self._plans_weights = False
        self._places_by_rank = False
        self._told: dict[NodeId, tuple[dict[str, float], MemoryOffer]] = {}
        self._listed: tuple[NodeId, ...] | None = None
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(self, state: ClusterState) -> None:
        """Begin or cease to tell, as the deployments have it."""
        specs = (state.deployments[each].ranks.spec for each in state.ranked)
        self._places_by_rank = any(spec.placement is not None and spec.static_placement is None for spec in specs)
        residents = any(entry.residency is not None for entry in state.deployments.values())
        self._plans_weights = residents or bool(state.weights.recovering)
        if self._task is None and (self._places_by_rank or self._plans_weights or self._workers.processes):
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def look_soon(self) -> None:
        """Something else may be asked for, or offered."""
        self._is_due.set()

    def close(self) -> None:
        """Tell nothing more. Memory that was offered is given back, and no weights are to be planned on it."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            told, self._told = self._told, {}
            self._list(None)
            self.memory.close()
            for node_id, (resources, memory) in told.items():
                if memory != NO_MEMORY:
                    self._tell(NodeJoined(node_id=node_id, resources=resources, at=self._world.now()))

    async def _watch(self) -> None:
        while self._places_by_rank or self._plans_weights or self._workers.processes:
            self._is_due.clear()
            nodes = await persist(live_nodes)
            if self._plans_weights or self._workers.processes:
                self.memory.look(nodes)
            else:
                self.memory.close()
            self._look_at(nodes)
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._is_due.wait()
            except TimeoutError:
                pass
        self.close()

    def _look_at(self, nodes: dict[NodeId, NodeInfo]) -> None:
        """Tell what is new of nodes, and which there are once it is known of each what it offers."""
        all_offer = bool(nodes) and nodes.keys() <= self.memory.offers.keys()
        if not all_offer:
            self._list(None)
        self._look(nodes)
        if all_offer:
            self._list(tuple(sorted(nodes)))

    def _list(self, node_ids: tuple[NodeId, ...] | None) -> None:
        """Say which nodes there are, of all of which it is known what they offer; None: of one it is not."""
        if node_ids != self._listed:
            self._listed = node_ids
            shapes = self.memory.expected_shapes
            self._tell(NodesListed(node_ids=node_ids, expected_shapes=shapes, at=self._world.now()))

    def _look(self, nodes: dict[NodeId, NodeInfo]) -> None:
        for node_id in sorted(self._told.keys() - nodes.keys()):
            del self._told[node_id]
            self._tell(NodeLost(node_id=node_id, at=self._world.now()))
        asked = [(each, each.entry.spec.demand) for each in self._deployments()]
        names = sorted({name for _, demand in asked for name in demand})
        for node_id, node in sorted(nodes.items()):
            memory = self.memory.offers.get(node_id, NO_MEMORY)
            if memory is NO_MEMORY and not self._places_by_rank and node_id not in self._told:
                continue  # it is told together with its memory
            here = [(each, demand) for one, demand in asked for each in _on(node_id, one)]
            known = self._told.get(node_id)
            offer = known[0] if known is not None else {}
            if known is None or not any(self._is_settling(process) for process, _ in here):
                taken = {name: sum(demand.get(name, 0.0) for _, demand in here) for name in names}
                offer = {name: round(amount_of(node.free, name) + taken[name], DIGITS) for name in names}
            if known != (offer, memory):
                self._told[node_id] = offer, memory
                self._tell(
                    NodeJoined(
                        node_id=node_id,
                        resources=offer,
                        gpu_bytes=memory.gpu_bytes,
                        cpu_bytes=memory.cpu_bytes,
                        labels=memory.labels,
                        at=self._world.now(),
                    )
                )

    def _is_settling(self, process: Conversation) -> bool:
        return process.endpoint is None or self._world.now() - process.requested_at < SETTLING_S


def _on(node_id: NodeId, deployment: RayDeployment) -> list[Conversation]:
    return [process for process in deployment.executor.processes.values() if process.node_id == node_id]
