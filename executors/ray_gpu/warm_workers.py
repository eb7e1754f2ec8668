"""One started worker process at hand on each node that has replicas, so that a replacement need not wait for one to start.

Starting a Python process with Ray in it takes half a second of a processor. Ray itself starts some ahead when a node comes up,
keeps idle ones as long as processors are free, and starts no further ones when those are used up. A task makes it do so, and
imports what runs in replicas; where such a worker is there already, it runs there and takes a millisecond. A worker serves the
runtime environment alone that it was started with: here that of the replica that was placed on the node last. On the
controller's own node one has the controller's modules too, since a controller that dies is started there again.
"""

import asyncio
import logging
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu.environment import RuntimeEnv
from executors.ray_gpu.warming import CONTROLLER, REPLICA, bring
from executors.ray_gpu.world import Busyness, World, live_nodes
from rankcore.values import NodeId

LOG = logging.getLogger(__name__)

QUIET_S = 1.0
"""Replicas that are being started have the processors first: a worker is warmed when none was for this long."""
LOOK_S = 1.0
CALM = 0.5
"""So have requests: a worker is warmed where less than this share of the processors' time was in use for `LOOK_S`."""
AGAIN_S = 5.0
"""How long after a node was busy it is looked at again."""


class WarmWorkers:
    """Keeps a worker warm where replicas are.

    Args:
        own_node_id: Where this controller is.
    """

    def __init__(self, world: World, own_node_id: NodeId) -> None:
        self._world = world
        self._nodes: dict[NodeId, tuple[Busyness, RuntimeEnv]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._own_node_id = own_node_id
        self._bring: Any = ray.remote(num_cpus=0, max_retries=0)(bring)

    def used(self, node_id: NodeId, busyness: Busyness, runtime_env: RuntimeEnv) -> None:
        """A replica has been placed there, which has used up a worker if there was one; it says how busy its node is."""
        self._nodes[node_id] = busyness, runtime_env
        self._later(QUIET_S)

    def _later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._warm())
        else:
            self._later(QUIET_S)

    async def _warm(self) -> None:
        calm = await self._calm_nodes()
        nodes = await self._world.call(live_nodes)
        # Ray ends idle workers that outnumber the free processors: there it would be for nothing.
        chosen = sorted(node_id for node_id in calm if node_id in nodes and nodes[node_id].free.get("CPU", 0.0) >= 1.0)
        answers = [
            self._bring.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False), runtime_env=calm[node_id] or None
            ).remote(REPLICA + CONTROLLER if node_id == self._own_node_id else REPLICA)
            for node_id in chosen
        ]
        for answer in answers:
            try:
                await answer
            except RayError as error:
                LOG.info("no worker was warmed: %s", error)
        if self._nodes and self._timer is None:
            self._later(AGAIN_S)

    async def _calm_nodes(self) -> dict[NodeId, RuntimeEnv]:
        """The nodes that can have a worker now, and which; busy ones stay for the next look, those that do not answer go."""
        wanted, self._nodes = self._nodes, {}
        shares = await asyncio.gather(*(busyness(LOOK_S) for busyness, _ in wanted.values()))
        calm = {}
        for (node_id, used), share in zip(wanted.items(), shares, strict=True):
            if share is not None and share < CALM:
                calm[node_id] = used[1]
            elif share is not None:
                self._nodes.setdefault(node_id, used)
        return calm
