"""Nodes that the controller cannot reach, and what becomes of them when their lease lapses."""

from collections.abc import Callable

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.nodes import SimulatedNode
from executors.simulator.cluster.outages import PARTITION, Outages
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.record.happenings import Happening, Story
from executors.simulator.replicas.processes import SimulatedProcess
from rankcore.values import NodeId


@attrs.define(eq=False)
class Partition:
    """One node that is cut off.

    Attributes:
        began: The line that says so.
        lost_at: When the node went down meanwhile, which nobody could be told; None: it did not.
        victims: What was on it then, by deployment.
    """

    began: Happening
    lost_at: float | None = None
    victims: dict[str, tuple[SimulatedProcess, ...]] = attrs.Factory(dict)


class Partitions:
    """Cuts nodes off and connects them again.

    A node keeps a lease, which it renews through the controller's side of the network. When it cannot for `lease_s`, its
    replicas stop themselves; only after that it counts as lost, and is told to be, whether the partition lasts or not.

    Args:
        usable_again: Called with a node that was lost to its lease, is reachable again and up, and empty.
    """

    def __init__(
        self,
        loop: EventLoop,
        story: Story,
        outages: Outages,
        lease_s: float,
        deployments: tuple[DeploymentWorld, ...],
        usable_again: Callable[[SimulatedNode], None],
    ) -> None:
        self._loop = loop
        self._story = story
        self._outages = outages
        self._lease_s = lease_s
        self._deployments = deployments
        self._usable_again = usable_again
        self._partitions: dict[NodeId, Partition] = {}

    def cut(self, node: SimulatedNode) -> None:
        """A node and the controller no longer reach each other; one may be cut off for several reasons at a time."""
        now = self._loop.now
        node.cuts += 1
        if node.cuts > 1:
            text = f"node {node.node_id} was to be cut off, but is already"
            self._story.tell(now, "fault", None, text, node=node.node_id)
            return
        self._outages.begin(now, node.node_id, PARTITION)
        there = sum(len(port.lives.there(node)) for port in self._deployments)
        text = f"node {node.node_id} cut off from the controller, with {there} replicas that go on"
        partition = Partition(self._story.tell(now, "fault", None, text, node=node.node_id))
        self._partitions[node.node_id] = partition
        for port in self._deployments:
            port.cut_off(node)
        self._loop.after(self._lease_s, self._lapse, node, partition)

    def mend(self, node: SimulatedNode) -> None:
        """One reason why a node is cut off is over."""
        now = self._loop.now
        node.cuts -= 1
        if not node.reachable:
            return
        self._outages.end(now, node.node_id, PARTITION)
        partition = self._partitions.pop(node.node_id)
        self._story.over(now, partition.began)
        state = "empty" if node.lapsed else "and has kept its replicas"
        self._story.tell(now, "fault", None, f"node {node.node_id} is reachable again, {state}", node=node.node_id)
        node.lapsed = False
        for port in self._deployments:
            port.connect_again(node)
        if partition.lost_at is not None:
            self._tell_lost(node, partition.lost_at, partition)
        if node.up:
            self._usable_again(node)

    def lost_meanwhile(self, node: SimulatedNode, port: DeploymentWorld, victims: tuple[SimulatedProcess, ...]) -> None:
        """A node that is cut off goes down: nobody is told before the lease lapses, or it is reached again."""
        if node.lapsed:
            return  # it counts as lost, and nothing was on it
        partition = self._partitions[node.node_id]
        partition.lost_at = self._loop.now
        partition.victims[port.name] = (*partition.victims.get(port.name, ()), *victims)

    def _lapse(self, node: SimulatedNode, partition: Partition) -> None:
        now = self._loop.now
        if self._partitions.get(node.node_id) is not partition:
            return  # it was reached in time
        node.lapsed = True
        for port in self._deployments:
            stopped = port.lives.end_with(node)
            partition.victims[port.name] = (*partition.victims.get(port.name, ()), *stopped)
            port.network.write_off(node.node_id)
        count = sum(len(victims) for victims in partition.victims.values())
        text = f"the lease of node {node.node_id} has lapsed: it is lost, with {count} replicas"
        self._story.tell(now, "fault", None, text, node=node.node_id)
        self._tell_lost(node, now, partition)
        partition.lost_at, partition.victims = None, {}

    def _tell_lost(self, node: SimulatedNode, lost_at: float, partition: Partition) -> None:
        for port in self._deployments:
            port.tell_node_lost(node.node_id, lost_at, partition.victims.get(port.name, ()))
