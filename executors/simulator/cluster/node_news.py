"""What a deployment's controller is told of nodes: how much they hold, and that they are lost."""

from collections import Counter
from collections.abc import Callable

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.network import Link, Network
from executors.simulator.cluster.nodes import SimulatedNode
from executors.simulator.replicas.processes import SimulatedProcess
from rankcore.events import NodeChanged, NodeCordoned, NodeDrainRequested, NodeUncordoned
from rankcore.values import NodeId


class NodeNews:
    """One lasting connection for each node. News that is told at one instant is told in order, and the newest counts.

    Args:
        room: How many replicas of the deployment fit on a node beside those that are there.
        on_node: How many of its replicas are on each node.
        changed: Called when news of a change arrives.
    """

    def __init__(
        self,
        name: str,
        loop: EventLoop,
        network: Network,
        room: Callable[[SimulatedNode], int],
        on_node: Counter[NodeId],
        changed: Callable[[NodeChanged | NodeCordoned | NodeUncordoned | NodeDrainRequested], None],
    ) -> None:
        self._name = name
        self._loop = loop
        self._network = network
        self._room = room
        self._on_node = on_node
        self._changed = changed
        self._links: dict[NodeId, Link] = {}
        self._told: dict[NodeId, int] = {}
        self._number = 0
        self._heard: dict[NodeId, tuple[float, int]] = {}

    def tell_capacity(self, node: SimulatedNode, *, only_news: bool = False) -> None:
        """How many replicas of this deployment the node can hold: those that it has, and what fits beside them."""
        capacity = self._on_node[node.node_id] + self._room(node)
        if only_news and self._told.get(node.node_id) in (None, capacity):
            return  # nobody was told of the node yet, or nothing has changed for this deployment
        self._told[node.node_id] = capacity
        self._number += 1
        news = NodeChanged(node_id=node.node_id, capacity=capacity, at=self._loop.now)
        self._network.send_in_order(self._link(node.node_id), self._arrive, news, self._number)

    def tell_cordon(self, news: NodeCordoned | NodeUncordoned | NodeDrainRequested) -> None:
        """Whether anything new may be placed on a node, and whether what is there is to go."""
        self._network.send_in_order(self._link(news.node_id), self._changed, news)

    def tell_lost(
        self,
        node_id: NodeId,
        lost_at: float,
        victims: tuple[SimulatedProcess, ...],
        lost: Callable[[NodeId, float, tuple[SimulatedProcess, ...]], None],
    ) -> None:
        """A node is lost, and what was on it."""
        self._told.pop(node_id, None)
        self._network.send_in_order(self._link(node_id), lost, node_id, lost_at, victims)

    def forget(self) -> None:
        """A new controller has not heard of any node."""
        self._told.clear()

    def _arrive(self, news: NodeChanged, number: int) -> None:
        heard_at, newest = self._heard.get(news.node_id, (-1.0, 0))
        if news.at == heard_at and number < newest:
            return  # repeated, and replaced at the very instant at which it was told: no time tells which is newer
        self._heard[news.node_id] = (news.at, number)
        self._changed(news)

    def _link(self, node_id: NodeId) -> Link:
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = Link((self._name, "node", node_id))
        return link
