"""Ranks in the controller: what the machine of ranks has for a replica is told to its process, and what that answers."""

import asyncio
from typing import Any

from ray.exceptions import ActorUnavailableError, RayError

from executors.ray_gpu.residency.hosts import LOOK_AGAIN_S, Hosts
from executors.ray_gpu.residency.machine import Handler, Machine
from executors.ray_gpu.residency.moves import TOLD_S, Moves
from executors.ray_gpu.residency.words import SaidOfRank
from rankcore.commands import AnnounceWorldSize, KillReplica
from rankcore.dispatching import ReplicaSaid, TellReplica
from rankcore.dispatching.events import RankNews
from rankcore.events import ReplicaStartFailed
from rankcore.values import NodeId, ReplicaId

ENDED = "it did not take its rank, or did not say which one it has"


class Ranks:
    """Of all replicas that are HOT.

    Args:
        machine: Is told.
        hosts: The processes.
        moves: Ends a process that is told to end.
        epoch: Of the controller.
    """

    def __init__(self, machine: Machine, hosts: Hosts, moves: Moves, epoch: int) -> None:
        self._machine = machine
        self._hosts = hosts
        self._moves = moves
        self._epoch = epoch
        self.handlers: dict[type[Any], Handler] = {TellReplica: self.tell}

    async def tell(self, command: TellReplica) -> None:
        """Tell a replica something. What does not arrive is told again by the core; a world size, here."""
        replica_id = command.replica_id
        resident = self._machine.state.residency.replicas.get(replica_id)
        node_id = resident.node_id if resident is not None else None
        host = self._hosts.get(replica_id, node_id) if node_id is not None else None
        if host is None or node_id is None:
            return  # its end is on the way
        said = await self._answered(host, command)
        for news in said.news:
            await self._said(replica_id, node_id, host, news)
        if said.ends:
            await self._moves.restart(replica_id, node_id, host, ENDED)

    async def _answered(self, host: Any, command: TellReplica) -> SaidOfRank:
        lasting, kill = isinstance(command.command, AnnounceWorldSize), isinstance(command.command, KillReplica)
        while True:
            asked = host.tell_rank.remote(self._epoch, command.command)
            try:
                said: SaidOfRank = await asyncio.wait_for(asked, TOLD_S if kill else None)
                return said
            except ActorUnavailableError:
                if not lasting:
                    return SaidOfRank(ends=kill)
                await asyncio.sleep(LOOK_AGAIN_S)
            except TimeoutError:
                return SaidOfRank(ends=True)
            except RayError:
                return SaidOfRank()  # `Hosts` tells of its end

    async def _said(self, replica_id: ReplicaId, node_id: NodeId, host: Any, news: RankNews) -> None:
        if isinstance(news, ReplicaStartFailed) and not await self._hosts.end(replica_id, node_id, host):
            return  # it is final, and told once it is true; its end was told otherwise
        self._machine.tell(ReplicaSaid(replica_id=replica_id, news=news, at=self._machine.now()))
