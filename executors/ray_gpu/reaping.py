"""Making sure that a process that was told to end is gone: Ray calls an actor dead as soon as it has told its process so.

A process that is stopped or stuck lives on for seconds, and so does what it believes. Its replacement must wait (R3).
"""

import asyncio
import os
import signal
import time
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu.os_processes import stat_of
from executors.ray_gpu.world import World
from rankcore.values import NodeId

STUCK_S = 0.25
"""A process that has not ended by itself after this long is ended by the system."""
LOOK_AGAIN_S = 0.002
REMOTE_TURN_S = 10.0


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
                await asyncio.sleep(STUCK_S)  # out of reach, or lost: who knows which looks again


def reap(pid: int, started: int | None) -> bool:
    """A task on the process's node; whether it is gone."""
    begin = time.monotonic()
    while time.monotonic() - begin < REMOTE_TURN_S:
        if ended(pid, started, force=time.monotonic() - begin > STUCK_S):
            return True
        time.sleep(LOOK_AGAIN_S)
    return False


def ended(pid: int, started: int | None, *, force: bool) -> bool:
    """Whether a process on this machine is gone; if not, and `force` says so, it is killed.

    Args:
        started: When it did, in the system's ticks, since numbers of processes are used again; None: not known.
    """
    fields = stat_of(pid)
    if fields is None or fields[0] in "ZX" or started not in (None, int(fields[19])):
        return True
    if force:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            return stat_of(pid) is None
    return False


def locate(actor: Any) -> tuple[NodeId, int] | None:
    """Node and process of an actor that has not told where it is; None: it has no process. Blocks for a round trip."""
    found = ray._private.state.actors(actor_id=actor._actor_id.hex())
    node_id, pid = found.get("Address", {}).get("NodeID", ""), found.get("Pid", 0)
    return (node_id, pid) if node_id and pid else None
