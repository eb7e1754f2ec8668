"""What operators ask of nodes: cordon, drain, and the end of both."""

from executors.node_reports import node_meant
from executors.ray_gpu.control.named import NamesKnown
from executors.ray_gpu.overview import CordonedNode
from executors.ray_gpu.world import NodeInfo, live_nodes
from rankcore.cluster.events import CordonNews
from rankcore.events import NodeCordoned, NodeDrainRequested, NodeUncordoned


class LeavesNodes(NamesKnown):
    """Lets nothing new come to nodes, and has replicas leave them."""

    async def cordon(self, name: str) -> CordonedNode:
        """Let nothing new come to a node. Repeatable. Waits until that is stored.

        Raises:
            UnknownNameError: No node that is alive has this id, beginning of an id, or address, or several have.
        """
        node = await self._node_meant(name)
        return await self._ask_of_node(node, NodeCordoned(node_id=node.node_id, at=self._world.now()))

    async def uncordon(self, name: str) -> CordonedNode:
        """Cordon and drain of a node are over. Repeatable. Waits until that is stored.

        Raises:
            UnknownNameError: As `cordon`.
            InvalidCallError: Ray itself drains it.
        """
        node = await self._node_meant(name)
        return await self._ask_of_node(node, NodeUncordoned(node_id=node.node_id, at=self._world.now()))

    async def drain(self, name: str, deadline_s: float | None, reason: str) -> CordonedNode:
        """Have all replicas leave a node, by a deadline or when it suits. Waits until that is stored.

        Raises:
            UnknownNameError: As `cordon`.
        """
        node, now = await self._node_meant(name), self._world.now()
        deadline_at = now + deadline_s if deadline_s is not None else None
        return await self._ask_of_node(
            node, NodeDrainRequested(node_id=node.node_id, deadline_at=deadline_at, reason=reason, at=now)
        )

    async def _node_meant(self, name: str) -> NodeInfo:
        nodes = await self._world.call(live_nodes)
        return nodes[node_meant(name, {each: node.address for each, node in nodes.items()})]

    async def _ask_of_node(self, node: NodeInfo, event: CordonNews) -> CordonedNode:
        await self._cluster.cordons.ask(event)
        return self._cluster.cordons.report(node.node_id, node, self._cluster.deployments.values())
