"""What a node can hold, told to the core where ranks steer placement. Otherwise Ray finds the room, and nobody asks."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ray._common.utils import RESOURCE_CONSTRAINT_PREFIX

from executors.ray_gpu.process import Process
from executors.ray_gpu.world import NodeInfo, World, live_nodes, persist
from rankcore import DeploymentSpec
from rankcore.events import Event, NodeChanged, NodeLost
from rankcore.values import NodeId

PERIOD_S = 1.0
SETTLING_S = 2.0
"""Ray's account of free resources lags behind: a node on which something has just begun is not counted anew yet."""
OF_THAT_TYPE = 0.001
"""What Ray asks of a node for an accelerator_type."""
UNLIMITED = 10_000
"""What a node holds of replicas that ask for no resources."""


class NodeNews:
    """Tells of nodes that came, went, or have another capacity, while a deployment has a placement policy."""

    def __init__(
        self,
        world: World,
        tell: Callable[[Event], None],
        processes: Callable[[], Iterable[Process]],
        actor_options: Callable[[str], Mapping[str, Any]],
    ) -> None:
        self._world = world
        self._tell = tell
        self._processes = processes
        self._actor_options = actor_options
        self._told: dict[NodeId, int] = {}
        self._spec: DeploymentSpec | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, spec: DeploymentSpec) -> None:
        """Begin or cease to tell, as the spec has it."""
        self._spec = spec
        if spec.placement is None or spec.static_placement is not None:
            self.close()
        elif self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def close(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._told.clear()

    async def _watch(self) -> None:
        while True:
            nodes = await persist(live_nodes)
            assert self._spec is not None, "following begins with a spec"
            demand = demands(self._actor_options(self._spec.version))
            for node_id in sorted(self._told.keys() - nodes.keys()):
                del self._told[node_id]
                self._tell(NodeLost(node_id=node_id, at=self._world.now()))
            for node_id, node in sorted(nodes.items()):
                here = [process for process in self._processes() if process.node_id == node_id]
                if node_id in self._told and any(self._is_settling(process) for process in here):
                    continue
                capacity = len(here) + fitting(node, demand) if demand else UNLIMITED
                if self._told.get(node_id) != capacity:
                    self._told[node_id] = capacity
                    self._tell(NodeChanged(node_id=node_id, capacity=capacity, at=self._world.now()))
            await asyncio.sleep(PERIOD_S)

    def _is_settling(self, process: Process) -> bool:
        return process.endpoint is None or self._world.now() - process.requested_at < SETTLING_S


def demands(actor_options: Mapping[str, Any]) -> dict[str, float]:
    """What one replica asks of its node, by Ray's names of resources."""
    asked = {
        "CPU": actor_options.get("num_cpus", 1) or 0,
        "GPU": actor_options.get("num_gpus") or 0,
        "memory": actor_options.get("memory") or 0,
        **(actor_options.get("resources") or {}),
    }
    if actor_options.get("accelerator_type"):
        asked[f"{RESOURCE_CONSTRAINT_PREFIX}{actor_options['accelerator_type']}"] = OF_THAT_TYPE
    return {name: float(amount) for name, amount in asked.items() if amount}


def fitting(node: NodeInfo, demand: Mapping[str, float]) -> int:
    """How many more replicas fit."""
    counts = [int(node.free.get(name, 0.0) // amount) for name, amount in demand.items()]
    return min(counts, default=UNLIMITED)


def obstacle(nodes: Mapping[NodeId, NodeInfo], demand: Mapping[str, float]) -> str:
    """Why no node can hold a replica: what it asks for, and what the largest node has; "": one can."""
    asked = ", ".join(f"{name} {amount:g}" for name, amount in demand.items()) or "nothing"
    for name, amount in demand.items():
        largest = max((node.total.get(name, 0.0) for node in nodes.values()), default=0.0)
        if largest < amount:
            return f"no node can ever hold it: it asks for {asked}; the largest node has {name} {largest:g}"
    if not any(all(node.total.get(name, 0.0) >= amount for name, amount in demand.items()) for node in nodes.values()):
        return f"no node can ever hold it: it asks for {asked}, which no node has all of"
    if not any(fitting(node, demand) for node in nodes.values()):
        free = max(nodes.values(), key=lambda node: sum(node.free.get(name, 0.0) for name in demand), default=None)
        shown = ", ".join(f"{name} {free.free.get(name, 0.0):g}" for name in demand) if free is not None else "no node"
        return f"it waits for room: it asks for {asked}; the node with the most free has {shown}"
    return ""
