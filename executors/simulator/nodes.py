"""Nodes with GPUs, and the line of those that wait for room on them."""

from collections.abc import Callable, Iterable
from typing import Protocol

import attrs

from rankcore.values import NodeId


@attrs.define(eq=False)
class SimulatedNode:
    """One machine.

    Attributes:
        up: Whether it runs; what was on a lost node does not come back with it.
        free_gpus: Of its `gpus`, those that nobody has.
    """

    node_id: NodeId
    gpus: int
    up: bool = True
    free_gpus: int = attrs.field(default=attrs.Factory(lambda self: self.gpus, takes_self=True))


class Claim(Protocol):
    """Something that wants GPUs on one node."""

    @property
    def gpus(self) -> int:
        """How many."""

    @property
    def wanted_node_id(self) -> NodeId | None:
        """Where; None: on any node."""

    def placed_on(self, node: SimulatedNode) -> None:
        """It has them now."""


class Cluster:
    """Gives GPUs to claims, in the order in which they came, and calls `room_changed` for each node that they change.

    A claim for any node waits behind earlier ones for any node, even where it would fit and they do not: none starves.
    A claim for a named node waits for that node only.
    """

    def __init__(self, nodes: Iterable[SimulatedNode], room_changed: Callable[[SimulatedNode], None]) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self._room_changed = room_changed
        self._waiting: list[Claim] = []

    def claim(self, claim: Claim) -> None:
        """Place it now, or as soon as there is room."""
        self._waiting.append(claim)
        self._serve()

    def withdraw(self, claim: Claim) -> bool:
        """Take a claim out of the line. False when it is not in it."""
        if claim not in self._waiting:
            return False
        self._waiting.remove(claim)
        self._serve()  # it may have held up others
        return True

    def give_back(self, node: SimulatedNode, gpus: int) -> None:
        """GPUs of a node are free again; nothing starts on a node that is lost."""
        node.free_gpus += gpus
        self._serve(node)

    def lose(self, node_id: NodeId) -> bool:
        """A node goes down. False when it was down already."""
        node = self.nodes[node_id]
        was_up, node.up = node.up, False
        return was_up

    def bring_back(self, node_id: NodeId) -> bool:
        """A node is up again, empty. False when it was up already. Whoever waits is served by `serve_waiting`."""
        node = self.nodes[node_id]
        was_down, node.up = not node.up, True
        return was_down

    def serve_waiting(self) -> None:
        """Place those for whom there is room now."""
        self._serve()

    def _serve(self, *given_back: SimulatedNode) -> None:
        changed = {node.node_id: node for node in given_back}
        blocked = False
        for claim in tuple(self._waiting):
            if claim.wanted_node_id is None and blocked:
                continue
            node = self._node_for(claim)
            if node is None:
                blocked = blocked or claim.wanted_node_id is None
                continue
            self._waiting.remove(claim)
            node.free_gpus -= claim.gpus
            claim.placed_on(node)
            changed[node.node_id] = node
        for node in changed.values():
            self._room_changed(node)

    def _node_for(self, claim: Claim) -> SimulatedNode | None:
        """The named node; else the one with most free GPUs, the first of equals, so that replicas spread."""
        if claim.wanted_node_id is not None:
            node = self.nodes.get(claim.wanted_node_id)
            return node if node is not None and node.up and node.free_gpus >= claim.gpus else None
        fitting = [node for node in self.nodes.values() if node.up and node.free_gpus >= claim.gpus]
        return max(fitting, key=lambda node: node.free_gpus, default=None)
