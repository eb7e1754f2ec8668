"""A controller that goes on from the state that an earlier one has kept: its requests are lost, its replicas are not."""

import asyncio
import logging
from contextlib import suppress

from ray.exceptions import RayError

from executors.ray_gpu.residency.hosts import Hosts
from executors.ray_gpu.residency.machine import Machine
from executors.ray_gpu.residency.moves import TOLD_S, Moves
from executors.ray_gpu.residency.nodes import Nodes
from executors.ray_gpu.residency.requests import Requests
from executors.ray_gpu.residency.words import Told
from rankcore.dispatching import ControllerTookOver, FleetState, outstanding
from rankcore.events import ClockAdvanced
from rankcore.residency import Level
from rankcore.routing import FailureKind
from rankcore.routing.commands import Dispatch, Retry
from rankcore.routing.events import RequestCancelled
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)


async def go_on(machine: Machine, hosts: Hosts, nodes: Nodes, moves: Moves, requests: Requests, epoch: int) -> None:
    """Take over the processes that there are, and do what is still to be done."""
    await hosts.find()
    told = await asyncio.gather(*(told_at(machine, hosts, epoch, key) for key in hosts))
    requests.had_begun(frozenset().union(*told))
    machine.tell(ControllerTookOver(epoch=epoch, at=machine.now()))
    await nodes.look()
    with suppress(TimeoutError):  # what a node that says nothing was to load fails, and is planned elsewhere
        await asyncio.wait_for(nodes.all_seen(), TOLD_S)
    for command in outstanding(machine.state):
        if isinstance(command, Dispatch | Retry):
            requests.failed(command, FailureKind.LOST, "the controller was lost")
    for request_id in machine.state.unanswered:
        machine.tell(RequestCancelled(request_id=request_id, at=machine.now()))
    for replica_id, resident in sorted(machine.state.residency.replicas.items()):
        place = resident.node_id if resident.level is Level.HOT else resident.copy_node_id
        if resident.level is not Level.COLD and place is not None and hosts.get(replica_id, place) is None:
            moves.on_host_lost(replica_id, place, "its process ended while there was no controller")
    for command in outstanding(machine.state):
        machine.carry_out(command)
    machine.tell(ClockAdvanced(at=machine.now()))


async def told_at(machine: Machine, hosts: Hosts, epoch: int, key: tuple[ReplicaId, NodeId]) -> frozenset[str]:
    """The requests that were begun there. A process that does not say, or knows more than was kept, is ended."""
    asked = hosts.get(*key).told.remote(epoch)
    try:
        told: Told = await asyncio.wait_for(asked, TOLD_S)
    except (RayError, TimeoutError):
        LOG.warning("replica %s does not say what it was told", key[0])
        await hosts.end(*key)
        return frozenset()
    if told.move >= machine.state.residency.moves:
        # Commanded after the state was last kept: the same number is about to mean something else.
        LOG.info("replica %s was told of move %d, which was not kept", key[0], told.move)
        await hosts.end(*key)
    elif told.seat is not None and told.seat != _seat_of(machine.state, key[0]):
        # It believes a rank that nobody here knows of, and that another one would be given (R3).
        LOG.info("replica %s has the seat %s, which was not kept", key[0], told.seat)
        await hosts.end(*key)
    return told.begun


def _seat_of(state: FleetState, replica_id: ReplicaId) -> ReplicaId | None:
    resident = state.residency.replicas.get(replica_id)
    served = state.models.get(resident.model) if resident is not None else None
    return served.ranking.seats.get(replica_id) if served is not None and served.ranking is not None else None
