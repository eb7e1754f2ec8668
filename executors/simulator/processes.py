"""One replica's process from the executor's side: where it is, and what waits for it to come up."""

from collections.abc import Callable

import attrs

from executors.simulator.nodes import SimulatedNode
from executors.simulator.replicas import Message, SimulatedReplica
from rankcore.commands import StartReplica
from rankcore.values import NodeId, ReplicaId


@attrs.define(eq=False)
class Process:
    """A replica that was asked for and has not ended.

    Attributes:
        start: What asked for it.
        gpus: How many it takes.
        on_placed: Called when it has them.
        node: Where they are; None: it waits for room.
        placed_at: Since when it has them.
        replica: The process itself; None: it is being created.
        early: Messages that reached the node before the process was up.
        known_in_epoch: The controller's epoch that was told where it is; None: none was.
        ended: Whether it is over; what was scheduled for it no longer counts.
        draws: How many durations have been drawn for it.
    """

    start: StartReplica
    gpus: int
    on_placed: Callable[["Process"], None]
    node: SimulatedNode | None = None
    placed_at: float = 0.0
    replica: SimulatedReplica | None = None
    early: list[Message] = attrs.Factory(list)
    known_in_epoch: int | None = None
    ended: bool = False
    draws: int = 0

    @property
    def replica_id(self) -> ReplicaId:
        """Its id."""
        return self.start.replica_id

    @property
    def wanted_node_id(self) -> NodeId | None:
        """The node that the core chose; None: any."""
        return self.start.node_id

    def placed_on(self, node: SimulatedNode) -> None:
        """There is room."""
        self.node = node
        self.on_placed(self)
