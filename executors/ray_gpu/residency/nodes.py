"""Which nodes there are, and what memory they have."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu.residency.hosts import LOOK_AGAIN_S
from executors.ray_gpu.residency.machine import Machine
from executors.ray_gpu.residency.options import FleetOptions
from executors.ray_gpu.worker.places import NodeMemory, Places, forget, measure
from executors.ray_gpu.world import live_nodes
from rankcore.residency.events import NodeJoined, NodeLost
from rankcore.values import NodeId

LOG = logging.getLogger(__name__)

LOOK_AT_NODES_S = 1.0
FORGET_S = 15.0


class Nodes:
    """Those of a cluster, as far as they have said what memory they have.

    Args:
        machine: Is told.
        options: Which memory may be used.
        namespace: Of the fleet.

    Attributes:
        places: Where weights may be, by node.
    """

    def __init__(self, machine: Machine, options: FleetOptions, namespace: str) -> None:
        self.places: dict[NodeId, Places] = {}
        self._machine = machine
        self._options = options
        self._namespace = namespace
        self._probing: set[NodeId] = set()

    async def watch(self) -> None:
        """Look again and again; returns never."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_AT_NODES_S)

    async def look(self) -> None:
        """Learn which nodes are lost, and ask those that are new what they have."""
        try:
            alive = await asyncio.to_thread(live_nodes)
        except Exception as error:  # it raises whatever its connection raises
            LOG.warning("Ray does not say which nodes are alive: %s", error)
            return
        for node_id in sorted(set(self._machine.state.residency.nodes) - set(alive)):
            self.places.pop(node_id, None)
            self._machine.tell(NodeLost(node_id=node_id, at=self._machine.now()))
        for node_id in sorted(set(alive) - set(self.places) - self._probing):
            self._probing.add(node_id)
            self._machine.spawn(self._probe(node_id, dict(alive[node_id].labels)))

    async def all_seen(self) -> None:
        """Return once every node that was asked has answered."""
        while self._probing:
            await asyncio.sleep(LOOK_AGAIN_S)

    async def forget(self) -> None:
        """Leave nothing of the fleet in the memory of any node."""
        await asyncio.gather(*(self._forget(node_id) for node_id in self.places))

    async def _probe(self, node_id: NodeId, labels: dict[str, str]) -> None:
        try:
            found = await self._measured(node_id)
        except RayError as error:
            LOG.warning("node %s does not say what memory it has; it is asked again: %s", node_id, error)
            return
        finally:
            self._probing.discard(node_id)
        self.places[node_id] = Places(self._options, self._namespace, node_id, found)
        at = self._machine.now()
        joined = NodeJoined(node_id=node_id, gpu_bytes=found.gpu_bytes, cpu_bytes=found.cpu_bytes, labels=labels, at=at)
        self._machine.tell(joined)

    async def _measured(self, node_id: NodeId) -> NodeMemory:
        probe: Any = ray.remote(num_cpus=0, max_retries=0)(measure)
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        found: NodeMemory = await probe.options(scheduling_strategy=there).remote(self._options)
        return found

    async def _forget(self, node_id: NodeId) -> None:
        task: Any = ray.remote(num_cpus=0, max_retries=0)(forget)
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        with suppress(RayError, TimeoutError):  # whoever looks at that node next frees what is left there
            forgetting = task.options(scheduling_strategy=there).remote(self._namespace, node_id)
            await asyncio.wait_for(asyncio.wrap_future(forgetting.future()), FORGET_S)
