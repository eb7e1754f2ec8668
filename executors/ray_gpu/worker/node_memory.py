"""Which memory of the nodes weights may use: each node is asked once, as long as a deployment has weights that may be COLD.

1. The GPUs that are planned are held first (`gpu_holder`): what is measured and told later is nobody else's by then. Workers
   that were found on others are seen to their end before.
2. Measured is on the node, by a task. A GPU that is not held counts as one of no bytes, so that numbers stay those of the node.
3. GPUs that others have at that moment are asked for again; until then nothing is told of the node.
4. When there are no such weights any more, and no process that could have some, Ray gets the GPUs back, and what killed
   processes have left in a node's memory is freed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu.worker.gpu_holder import GPU, HeldGpus, give_back, hold
from executors.ray_gpu.worker.options import DeviceKind, MemoryOptions, environment_of
from executors.ray_gpu.world import NodeInfo, World
from rankcore.residency.spec import ExpectedShape
from rankcore.values import NodeId

if TYPE_CHECKING:
    from executors.ray_gpu.worker.places import NodeMemory, Places

LOG = logging.getLogger(__name__)

HOLD_S = 10.0
FORGET_S = 15.0


@attrs.frozen
class MemoryOffer:
    """What a node offers, as `NodeJoined` has it."""

    gpu_bytes: tuple[int, ...]
    cpu_bytes: int
    labels: Mapping[str, str]


class NodeMemories:
    """Of all nodes.

    Args:
        on_news: Called when a node has answered.
        end_misplaced: Ends the workers of a node that are on GPUs which are not held there, and returns when they have ended.

    Attributes:
        offers: By node, of those that have answered.
        places: Where weights may be, likewise.
        expected_shapes: Nodes that may be added; known once a node has answered.
    """

    def __init__(
        self,
        world: World,
        on_news: Callable[[], None],
        end_misplaced: Callable[[NodeId, HeldGpus | None], Awaitable[None]],
    ) -> None:
        self.offers: dict[NodeId, MemoryOffer] = {}
        self.places: dict[NodeId, Places] = {}
        self.expected_shapes: tuple[ExpectedShape, ...] = ()
        self._world = world
        self._on_news = on_news
        self._end_misplaced = end_misplaced
        self._asking: dict[NodeId, asyncio.Task[None]] = {}
        self._forgetting: set[asyncio.Task[None]] = set()

    def look(self, nodes: Mapping[NodeId, NodeInfo]) -> None:
        """Ask those that are new, and forget those that are gone."""
        for node_id in sorted(self.offers.keys() - nodes.keys()):
            self._forget(node_id, lost=True)
        fresh = nodes.keys() - self.offers.keys() - self._asking.keys()
        for node_id in sorted(fresh) if not self._forgetting else ():  # what is being given back is not to be held meanwhile
            self._asking[node_id] = asyncio.get_running_loop().create_task(self._ask(nodes[node_id]))

    def close(self) -> None:
        """There are no weights to be planned any more: Ray gets its GPUs back."""
        for node_id, task in self._asking.items():
            task.cancel()
            self._forget(node_id, lost=False)
        for node_id in tuple(self.offers):
            self._forget(node_id, lost=False)

    async def closed(self) -> None:
        """Return when all that is to be given back was."""
        await asyncio.gather(*self._forgetting, return_exceptions=True)

    def _forget(self, node_id: NodeId, *, lost: bool) -> None:
        self.offers.pop(node_id, None)
        self.places.pop(node_id, None)
        forgetting = asyncio.get_running_loop().create_task(self._given_back(node_id, lost))
        self._forgetting.add(forgetting)
        forgetting.add_done_callback(self._forgetting.discard)

    async def _given_back(self, node_id: NodeId, lost: bool) -> None:
        try:
            await self._world.call(give_back, self._world.namespace, node_id)
            if not lost:
                await asyncio.wait_for(self._freed(node_id), FORGET_S)
        except Exception as error:  # Ray's, whatever it raises; who asks that node next frees what is left there
            LOG.warning("not all memory of node %s is given back: %s", node_id, error)

    async def _freed(self, node_id: NodeId) -> None:
        from executors.ray_gpu.worker.places import forget

        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task: Any = ray.remote(num_cpus=0, max_retries=0)(forget)
        await task.options(scheduling_strategy=there).remote(self._world.namespace, node_id)

    async def _ask(self, node: NodeInfo) -> None:
        try:
            options = await self._world.call(self._world.checkpoint.memory)
            held = await self._held(node, options)
            measured = await self._measured(node.node_id, options)
        except Exception as error:  # Ray's, whatever it raises; or the GPUs are not free (3)
            LOG.warning("node %s does not say which memory it has; it is asked again: %s", node.node_id, error)
            return
        finally:
            self._asking.pop(node.node_id, None)
        from executors.ray_gpu.worker.places import Places  # with torch, which a controller without such weights needs not

        self.expected_shapes = options.expected_shapes
        self.places[node.node_id] = Places(options, self._world.namespace, node.node_id, measured)
        gpu_bytes = tuple(size if held is None or number in held else 0 for number, size in enumerate(measured.gpu_bytes))
        self.offers[node.node_id] = MemoryOffer(gpu_bytes, measured.cpu_bytes, dict(node.labels))
        self._on_news()

    async def _held(self, node: NodeInfo, options: MemoryOptions) -> frozenset[int] | None:
        """The GPUs of a node that are planned; None: what stands for GPUs is not Ray's."""
        if options.device is DeviceKind.CPU or (options.device is DeviceKind.AUTO and not node.total.get(GPU)):
            return None
        held = await self._world.call(partial(hold, self._world.namespace, node, HOLD_S))
        await self._end_misplaced(node.node_id, held)
        return frozenset(held.gpus if held is not None else ())

    async def _measured(self, node_id: NodeId, options: MemoryOptions) -> "NodeMemory":
        from executors.ray_gpu.worker.places import measure

        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task: Any = ray.remote(num_cpus=0, max_retries=0)(measure)
        asked = task.options(scheduling_strategy=there, runtime_env=environment_of(options, {}))
        found: NodeMemory = await asked.remote(options)
        return found
