"""One replica's process from the executor's side: where it is, and what waits for it to come up."""

from collections.abc import Callable
from typing import Any

import attrs

from executors.simulator.cluster.network import Link
from executors.simulator.cluster.nodes import SimulatedNode
from executors.simulator.replicas.pauses import Pauses
from executors.waiting_for_room import NewsOfRoom
from rankcore.commands import StartReplica
from rankcore.replica.messages import Message
from rankcore.replica.replica import ReplicaHalf
from rankcore.values import NodeId, ReplicaId


@attrs.define
class Work:
    """Something that the process does for a time; it stands still while the process hangs."""

    began_at: float
    takes_s: float
    done: Callable[..., object]
    arguments: tuple[Any, ...]


@attrs.define(eq=False)
class SimulatedProcess:
    """A replica that was asked for and has not ended.

    Attributes:
        start: What asked for it.
        gpus, memory_mb: How much it takes.
        on_placed: Called when it has them.
        link: Between it and the controller.
        node: Where they are; None: it waits for room.
        placed_at: Since when it has them.
        replica: What the process itself is by now; None: it is being created.
        refused: How many messages of an older epoch it has refused.
        ready_at: When its start-up was over.
        early: Messages that reached the node before the process was up, or while it hangs.
        stuck: Work that ought to be done by now, but for a hang.
        pauses: When it hung; None: it never did.
        room: What was said of the room that it waits for.
        known_in_epoch: The controller's epoch that was told where it is; None: none was.
        ended: Whether it is over; what was scheduled for it no longer counts.
        draws: How many durations have been drawn for it.
        unready: How many faults keep it from taking requests.
        had_s: How much of what takes its time next is over already.
    """

    start: StartReplica
    gpus: int
    memory_mb: int
    on_placed: Callable[["SimulatedProcess"], None]
    link: Link
    node: SimulatedNode | None = None
    placed_at: float = 0.0
    replica: ReplicaHalf | None = None
    refused: int = 0
    ready_at: float | None = None
    early: list[Message] = attrs.Factory(list)
    stuck: list[Work] = attrs.Factory(list)
    pauses: Pauses | None = None
    room: NewsOfRoom = attrs.Factory(NewsOfRoom)
    known_in_epoch: int | None = None
    ended: bool = False
    draws: int = 0
    unready: int = 0
    had_s: float = 0.0

    @property
    def replica_id(self) -> ReplicaId:
        """Its id."""
        return self.start.replica_id

    @property
    def wanted_node_id(self) -> NodeId | None:
        """The node that the core chose; None: any."""
        return self.start.node_id

    @property
    def hangs(self) -> bool:
        """Whether it lives and does nothing."""
        return self.pauses is not None and self.pauses.since is not None

    @property
    def silent(self) -> bool:
        """Whether the controller gets no answer from it."""
        return self.hangs or (self.node is not None and not self.node.reachable)

    def placed_on(self, node: SimulatedNode) -> None:
        """There is room."""
        self.node = node
        self.link.node_id = node.node_id
        self.on_placed(self)
