"""Nodes with GPUs, and the line of those that wait for room on them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import attrs

from rankcore.events import NodeCordoned, NodeDrainRequested
from rankcore.values import NodeId

UNLIMITED_MB = 10**15


@attrs.define(eq=False)
class SimulatedNode:
    """One machine.

    Attributes:
        faults: For how many reasons it is down; what was on a lost node does not come back with it.
        cuts: For how many reasons the controller cannot reach it.
        cordon: What is to be told of it, if nothing new is to be placed here.
        lapsed: Whether it could not be reached for so long that it counts as lost.
        free_gpus, free_memory_mb: Of what it has, that which nobody has.
    """

    node_id: NodeId
    gpus: int
    memory_mb: int = UNLIMITED_MB
    faults: int = 0
    cuts: int = 0
    cordon: NodeCordoned | NodeDrainRequested | None = None
    lapsed: bool = False
    free_gpus: int = attrs.field(default=attrs.Factory(lambda self: self.gpus, takes_self=True))
    free_memory_mb: int = attrs.field(default=attrs.Factory(lambda self: self.memory_mb, takes_self=True))

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return self.faults == 0

    @property
    def reachable(self) -> bool:
        """Whether messages pass between it and the controller."""
        return self.cuts == 0

    @property
    def usable(self) -> bool:
        """Whether something can be started on it."""
        return self.faults == 0 and self.cuts == 0

    def room_for(self, gpus: int, memory_mb: int) -> int:
        """How many times so much is free."""
        times = max(0, self.free_gpus) // gpus
        return min(times, self.free_memory_mb // memory_mb) if memory_mb else times

    def has_room(self, claim: "Claim") -> bool:
        """Whether a claim can be placed here now."""
        return self.usable and self.cordon is None and self.free_gpus >= claim.gpus and self.free_memory_mb >= claim.memory_mb


class Claim(Protocol):
    """Something that wants GPUs and memory of one node."""

    @property
    def gpus(self) -> int:
        """How many."""

    @property
    def memory_mb(self) -> int:
        """How much memory with them."""

    @property
    def wanted_node_id(self) -> NodeId | None:
        """Where; None: on any node."""

    def placed_on(self, node: SimulatedNode) -> None:
        """It has them now."""


class Cluster:
    """Gives GPUs and memory to claims, in the order in which they came; `room_changed` hears of each node that they change.

    A claim for any node waits behind earlier ones for any node, even where it would fit and they do not: none starves.
    A claim for a named node waits for that node only.
    """

    def __init__(self, nodes: Iterable[SimulatedNode], room_changed: Callable[[SimulatedNode], None]) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self._room_changed = room_changed
        # In the order of arrival. There is room for none of them: whatever makes room serves them.
        self._waiting: dict[Claim, None] = {}
        self._anywhere = 0  # of those in the line, how many want any node

    def claim(self, claim: Claim) -> None:
        """Place it now, or as soon as there is room."""
        waits_behind_others = claim.wanted_node_id is None and self._anywhere > 0
        node = None if waits_behind_others else self._place(claim)
        if node is not None:
            self._room_changed(node)
            return
        self._waiting[claim] = None
        self._anywhere += claim.wanted_node_id is None

    def occupy(self, node: SimulatedNode, claim: Claim) -> None:
        """A claim has its place already, whether or not there was room."""
        node.free_gpus -= claim.gpus
        node.free_memory_mb -= claim.memory_mb

    def withdraw(self, claim: Claim) -> bool:
        """Take a claim out of the line. False when it is not in it."""
        if claim not in self._waiting:
            return False
        self._leave(claim)
        self._serve()  # it may have held up others
        return True

    def give_back(self, node: SimulatedNode, claim: Claim) -> None:
        """What a claim had of a node is free again; nothing starts on a node that is lost."""
        node.free_gpus += claim.gpus
        node.free_memory_mb += claim.memory_mb
        self._serve(node)

    def serve_waiting(self) -> None:
        """Place those for whom there is room now."""
        self._serve()

    def _serve(self, *given_back: SimulatedNode) -> None:
        changed = {node.node_id: node for node in given_back}
        for claim in self._next_in_line():
            node = self._place(claim)
            if node is not None:
                self._leave(claim)
                changed[node.node_id] = node
        for node in changed.values():
            self._room_changed(node)

    def _next_in_line(self) -> Iterator[Claim]:
        """Those who may be placed, in the order of the line: nobody for any node behind one who stays in it."""
        blocked = False
        for claim in tuple(self._waiting):
            if blocked and self._anywhere == len(self._waiting):
                return  # of a long line that waits for one room, nobody else is looked at
            if claim.wanted_node_id is not None or not blocked:
                yield claim
                blocked = blocked or (claim.wanted_node_id is None and claim in self._waiting)

    def _leave(self, claim: Claim) -> None:
        del self._waiting[claim]
        self._anywhere -= claim.wanted_node_id is None

    def _place(self, claim: Claim) -> SimulatedNode | None:
        """Give it what it wants, if anybody has it; returns who."""
        node = self._node_for(claim)
        if node is not None:
            node.free_gpus -= claim.gpus
            node.free_memory_mb -= claim.memory_mb
            claim.placed_on(node)
        return node

    def _node_for(self, claim: Claim) -> SimulatedNode | None:
        """The named node; else the one with most free GPUs, the first of equals, so that replicas spread."""
        if claim.wanted_node_id is not None:
            node = self.nodes.get(claim.wanted_node_id)
            return node if node is not None and node.has_room(claim) else None
        fitting = [node for node in self.nodes.values() if node.has_room(claim)]
        return max(fitting, key=lambda node: node.free_gpus, default=None)
