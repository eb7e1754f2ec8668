"""Weights that move: what the planner commands is asked of a replica's process, and what becomes of it is told."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayActorError, RayError

from executors.ray_gpu.residency.hosts import LOOK_AGAIN_S, Hosts, unless_blocked, why
from executors.ray_gpu.residency.machine import Handler, Machine
from executors.ray_gpu.residency.packing import opened
from executors.ray_gpu.worker.messages import MoveEnded, Progressed
from executors.ray_gpu.worker.places import Places
from rankcore.dispatching import LoadProgressed
from rankcore.residency import Phase
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import (
    LoadFailed,
    LoadFinished,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    UsageReported,
)
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)

TOLD_S = 30.0
"""A process that says nothing for so long blocks its loop, and would block whoever waits for it."""


class Moves:
    """All moves of a fleet.

    Args:
        machine: Is told.
        hosts: The processes.
        models: As they were packed, by name.
        places: Of each node that has said what memory it has.
        epoch: Of the controller.
    """

    def __init__(
        self,
        machine: Machine,
        hosts: Hosts,
        models: Mapping[str, bytes],
        places: Mapping[NodeId, Places],
        epoch: int,
    ) -> None:
        self._machine = machine
        self._hosts = hosts
        self._models = models
        self._places = places
        self._epoch = epoch
        self.handlers: dict[type[Any], Handler] = {
            LoadToGpu: self.load,
            OffloadToCpu: self.leave,
            UnloadFromGpu: self.leave,
            DropFromCpu: self.drop,
        }

    async def load(self, command: LoadToGpu) -> None:
        """Have a replica HOT, in a process that is started if there is none."""
        packed, places = self._models.get(command.model), self._places.get(command.node_id)
        if packed is None or places is None:
            reason = "its code is not known any more: deploy it again" if packed is None else "nothing is known of the node"
            self._load_failed(command, reason)
            return
        if command.version and opened(packed).version != command.version:
            # A controller that ended while it was told of a new version has kept the model, and not that it is wanted.
            self._load_failed(
                command, "what is kept of it is another version than the one that is to be loaded: deploy it again"
            )
            return
        await self._hosts.ended(command.replica_id, command.node_id)
        if self._machine.closed or not self._is_wanted(command):
            return
        model = opened(packed)
        host = self._hosts.start(command.replica_id, packed, places, model.runtime_env)
        timeout_s = model.load_timeout_s
        while True:
            words = host.load.options(num_returns="streaming").remote(
                self._epoch, command.move, command.gpus, command.gpu_bytes
            )
            try:
                while (reference := await asyncio.wait_for(anext(words, None), timeout_s)) is not None:
                    await self._hear(command, host, await reference)
            except TimeoutError:
                reason = f"nothing arrived for {timeout_s:g} s (load_timeout_s)"
                await self.restart(command.replica_id, command.node_id, host, reason)
            except ActorUnavailableError:
                await asyncio.sleep(LOOK_AGAIN_S)  # it goes on there: the same is asked again
                continue
            except (RayActorError, ActorUnschedulableError):
                LOG.info("replica %s ended while it was loaded", command.replica_id)  # `Hosts` tells of it
            except RayError as error:
                self._load_failed(command, why(error))
            return

    def _is_wanted(self, command: LoadToGpu) -> bool:
        """Called off meanwhile, perhaps for another version: no process of it may be there for whoever is loaded next."""
        resident = self._machine.state.residency.replicas.get(command.replica_id)
        return resident is not None and resident.phase is Phase.LOADING and resident.move == command.move

    async def _hear(self, command: LoadToGpu, host: Any, word: Progressed | MoveEnded) -> None:
        if isinstance(word, MoveEnded):
            await self._loaded(command, host, word)
            return
        replica_id, done, at = command.replica_id, word.bytes_done, self._machine.now()
        self._machine.tell(LoadProgressed(replica_id=replica_id, move=command.move, bytes_done=done, at=at))

    async def _loaded(self, command: LoadToGpu, host: Any, end: MoveEnded) -> None:
        replica_id = command.replica_id
        if end.poisoned:
            await self.restart(replica_id, command.node_id, host, end.failed_because or "")
        elif end.failed_because is not None:
            self._load_failed(command, end.failed_because)
        else:
            self._machine.tell(LoadFinished(replica_id=replica_id, move=command.move, at=self._machine.now()))
            if any(taken > given for taken, given in zip(end.gpu_bytes, command.gpu_bytes, strict=True)):
                used = UsageReported(replica_id=replica_id, gpu_bytes=end.gpu_bytes, at=self._machine.now())
                self._machine.tell(used)

    def _load_failed(self, command: LoadToGpu, reason: str) -> None:
        at = self._machine.now()
        self._machine.tell(LoadFailed(replica_id=command.replica_id, move=command.move, reason=reason, at=at))

    async def restart(self, replica_id: ReplicaId, node_id: NodeId, host: Any, reason: str) -> None:
        """A process is of no use any more: end it, and let the planner start the replica again."""
        if await self._hosts.end(replica_id, node_id, host):
            self._machine.tell(ReplicaLost(replica_id=replica_id, reason=reason, at=self._machine.now()))

    async def leave(self, command: OffloadToCpu | UnloadFromGpu) -> None:
        """Have a replica leave its GPUs."""
        keep = isinstance(command, OffloadToCpu) or command.keep_copy
        host = self._hosts.get(command.replica_id, command.node_id)
        failed: str | None = "its process has ended"
        if host is not None:
            try:
                asked = host.leave.remote(self._epoch, command.move, command.timeout_s, keep)
                failed = (await unless_blocked(host, asked, command.timeout_s, TOLD_S)).failed_because
            except TimeoutError:
                failed = f"its process did not answer for {TOLD_S:g} s"
            except RayError as error:
                failed = why(error)
        if failed is not None or not keep:
            # Before it is told: who is loaded again next gets a process of its own.
            await self._end(command, host)
        self._left(command, failed if keep else None)

    async def drop(self, command: DropFromCpu) -> None:
        """Free a copy in a node's memory."""
        host = self._hosts.get(command.replica_id, command.node_id)
        if host is not None:
            # By itself first: when Ray says that a process has ended, its memory may be taken still.
            with suppress(RayError, TimeoutError):
                await unless_blocked(host, host.drop.remote(self._epoch, command.move), 0.0, TOLD_S)
        await self._end(command, host)
        self._left(command, None)

    async def _end(self, command: OffloadToCpu | UnloadFromGpu | DropFromCpu, host: Any) -> None:
        """The process that a command was for; where it has died, another one may be there by now."""
        if host is None:
            await self._hosts.ended(command.replica_id, command.node_id)
        else:
            await self._hosts.end(command.replica_id, command.node_id, host)

    def _left(self, command: OffloadToCpu | UnloadFromGpu | DropFromCpu, failed: str | None) -> None:
        replica_id, move, at = command.replica_id, command.move, self._machine.now()
        if failed is None:
            self._machine.tell(OffloadFinished(replica_id=replica_id, move=move, at=at))
        else:
            self._machine.tell(OffloadFailed(replica_id=replica_id, move=move, reason=failed, at=at))

    def on_host_lost(self, replica_id: ReplicaId, node_id: NodeId, reason: str) -> None:
        """A process has ended without having been asked to."""
        resident = self._machine.state.residency.replicas.get(replica_id)
        if resident is not None and node_id in (resident.node_id, resident.copy_node_id):
            self._machine.tell(ReplicaLost(replica_id=replica_id, reason=reason, at=self._machine.now()))
