"""What nodes offer to replicas, told to the core where ranks steer placement. Otherwise Ray finds the room, and nobody asks.

A node offers what nobody has claimed there and what replicas of this cluster have: what others run takes room from all of them.
"""

import asyncio
from collections.abc import Callable, Iterable

from executors.ray_gpu.process import Process
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.world import World, live_nodes, persist
from rankcore.cluster.events import NodeJoined
from rankcore.cluster.state import ClusterState
from rankcore.events import NodeLost
from rankcore.values import NodeId

PERIOD_S = 1.0
SETTLING_S = 2.0
"""Ray's account of free resources lags behind: a node on which something has just begun is not counted anew yet."""
DIGITS = 6
"""Of an amount that count: sums of fractions are off by the last bit of a float, which is no news."""


class NodeNews:
    """Tells of nodes that came, went, or offer something else, while a deployment has a placement policy.

    Args:
        deployments: All that there are.
    """

    def __init__(
        self, world: World, tell: Callable[[NodeJoined | NodeLost], None], deployments: Callable[[], Iterable[RayDeployment]]
    ) -> None:
        self._world = world
        self._tell = tell
        self._deployments = deployments
        self._told: dict[NodeId, dict[str, float]] = {}
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(self, state: ClusterState) -> None:
        """Begin or cease to tell, as the deployments have it."""
        specs = (state.deployments[each].ranks.spec for each in state.ranked)
        if not any(spec.placement is not None and spec.static_placement is None for spec in specs):
            self.close()
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def look_soon(self) -> None:
        """Something else may be asked for."""
        self._is_due.set()

    def close(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._told.clear()

    async def _watch(self) -> None:
        while True:
            self._is_due.clear()
            nodes = await persist(live_nodes)
            for node_id in sorted(self._told.keys() - nodes.keys()):
                del self._told[node_id]
                self._tell(NodeLost(node_id=node_id, at=self._world.now()))
            asked = [(each, each.entry.spec.demand) for each in self._deployments()]
            names = sorted({name for _, demand in asked for name in demand})
            for node_id, node in sorted(nodes.items()):
                here = [(each, demand) for one, demand in asked for each in _on(node_id, one)]
                if node_id in self._told and any(self._is_settling(process) for process, _ in here):
                    continue
                taken = {name: sum(demand.get(name, 0.0) for _, demand in here) for name in names}
                offer = {name: round(node.free.get(name, 0.0) + taken[name], DIGITS) for name in names}
                if self._told.get(node_id) != offer:
                    self._told[node_id] = offer
                    self._tell(NodeJoined(node_id=node_id, resources=offer, at=self._world.now()))
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._is_due.wait()
            except TimeoutError:
                pass

    def _is_settling(self, process: Process) -> bool:
        return process.endpoint is None or self._world.now() - process.requested_at < SETTLING_S


def _on(node_id: NodeId, deployment: RayDeployment) -> list[Process]:
    return [process for process in deployment.executor.processes.values() if process.node_id == node_id]
