"""What lies between the controller and each node, and those who call: nothing, or a lasting connection that takes its time."""

from collections import Counter
from collections.abc import Callable

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.network import Link, Network
from executors.simulator.residency.nodes import GpuNode
from executors.simulator.scenario.hardware import NetworkModel
from executors.simulator.streams import Streams

Arrive = Callable[..., object]
CALLERS = "callers"


class Wire:
    """Carries commands to nodes and news to the controller. What is sent one way arrives in its order, and once.

    A command arrives only in the life of the node for which it was meant: one that went down meanwhile is not there, or back
    without anything that the command could be about. News that was sent before arrives all the same, and its loss after it.
    """

    def __init__(
        self, loop: EventLoop, streams: Streams, model: NetworkModel | None, when_quiet: Callable[[GpuNode], None]
    ) -> None:
        self._network = None if model is None else Network(loop, model, streams)
        self._when_quiet = when_quiet
        self._links: dict[tuple[str, str], Link] = {}
        self._under_way: Counter[str] = Counter()
        self._known: Counter[str] = Counter()

    @property
    def takes_time(self) -> bool:
        """Whether anything can be under way at all."""
        return self._network is not None

    def is_quiet(self, node: GpuNode) -> bool:
        """Whether nothing is under way to or from a node."""
        return not self._under_way[node.shape.node_id]

    @property
    def is_quiet_everywhere(self) -> bool:
        """Whether nothing is under way at all."""
        return not any(self._under_way.values())

    def to_node(self, node: GpuNode, arrive: Arrive, *arguments: object) -> None:
        """A command: carry it out when it gets there."""
        if self._network is None:
            arrive(*arguments)
            return
        node_id = node.shape.node_id
        self._under_way[node_id] += 1
        life = self._known[node_id]
        self._network.send_in_order(self._link("to", node_id), self._at_node, node, life, arrive, arguments, steady=True)

    def to_controller(self, node: GpuNode, arrive: Arrive, *arguments: object) -> None:
        """News of a node: hear it when it gets there."""
        if self._network is None:
            arrive(*arguments)
            return
        node_id = node.shape.node_id
        self._under_way[node_id] += 1
        self._network.send_in_order(self._link("from", node_id), self._at_controller, node, arrive, arguments, steady=True)

    def to_callers(self, arrive: Arrive, *arguments: object) -> None:
        """Routes, and how things stand."""
        self._along("to", arrive, arguments)

    def from_callers(self, arrive: Arrive, *arguments: object) -> None:
        """What waits."""
        self._along("from", arrive, arguments)

    def _along(self, way: str, arrive: Arrive, arguments: tuple[object, ...]) -> None:
        if self._network is None:
            arrive(*arguments)
        else:
            self._under_way[CALLERS] += 1
            self._network.send_in_order(self._link(way, CALLERS), self._at_the_other_end, arrive, arguments, steady=True)

    def _at_the_other_end(self, arrive: Arrive, arguments: tuple[object, ...]) -> None:
        self._under_way[CALLERS] -= 1
        arrive(*arguments)

    def meet(self, node: GpuNode, life: int) -> None:
        """The controller hears that a node has joined: from now on its commands are for this life of it."""
        self._known[node.shape.node_id] = life

    def _at_node(self, node: GpuNode, life: int, arrive: Arrive, arguments: tuple[object, ...]) -> None:
        self._under_way[node.shape.node_id] -= 1
        if node.up and node.life == life:
            arrive(*arguments)

    def _at_controller(self, node: GpuNode, arrive: Arrive, arguments: tuple[object, ...]) -> None:
        self._under_way[node.shape.node_id] -= 1
        arrive(*arguments)
        if self.is_quiet(node):
            self._when_quiet(node)

    def _link(self, way: str, node_id: str) -> Link:
        key = (way, node_id)
        if key not in self._links:
            self._links[key] = Link(key)
        return self._links[key]
