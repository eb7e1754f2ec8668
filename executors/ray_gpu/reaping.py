"""Making sure that a process that was told to end is gone: Ray calls an actor dead as soon as it has told its process so.

A process that is stopped or stuck lives on for seconds, and so does what it believes. Its replacement must wait (R3).

On another node a task looks. Ray starts none on a node that it drains: there a replica or proxy looks that is still there
(`World.residents`). Where none is left, the end is known when the node is gone, which Ray ends once nothing runs there.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu.os_processes import LOOK_AGAIN_S, REMOTE_TURN_S, STUCK_S, ended, reap
from executors.ray_gpu.world import World
from rankcore.values import NodeId


class Reaper:
    """Waits for the end of processes, here and on other nodes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._own_node: NodeId = ray.get_runtime_context().get_node_id()
        self._task: Any = ray.remote(num_cpus=0, max_retries=0)(reap)

    async def gone(self, node_id: NodeId, pid: int, started: int | None) -> None:
        """Wait until a replica's process is gone, or its node; end it the hard way if it is stuck."""
        if node_id == self._own_node:
            begin = time.monotonic()
            while not ended(pid, started, force=time.monotonic() - begin > STUCK_S):
                await asyncio.sleep(LOOK_AGAIN_S)
            return
        while await self._world.is_alive(node_id):
            strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
            try:
                if await self._task.options(scheduling_strategy=strategy).remote(pid, started):
                    return
            except RayError:
                if await self._seen_by_another(node_id, pid, started):
                    return
                await asyncio.sleep(STUCK_S)  # out of reach, or lost: who knows which looks again

    async def _seen_by_another(self, node_id: NodeId, pid: int, started: int | None) -> bool:
        for other, actor in tuple(self._world.residents.get(node_id, {}).items()):
            if other != pid:
                with suppress(RayError, AttributeError, TimeoutError):  # it is gone too, or of a release that cannot look
                    async with asyncio.timeout(REMOTE_TURN_S + STUCK_S):
                        if await actor.reap.remote(pid, started):
                            return True
        return False


def locate(actor: Any) -> tuple[NodeId, int] | None:
    """Node and process of an actor that has not told where it is; None: it has no process. Blocks for a round trip."""
    found = ray._private.state.actors(actor_id=actor._actor_id.hex())
    node_id, pid = found.get("Address", {}).get("NodeID", ""), found.get("Pid", 0)
    return (node_id, pid) if node_id and pid else None
