"""The whole simulated world: one clock, one cluster, one network, and the deployments that share them."""

from collections.abc import Mapping

from executors.simulator.arrivals import Arrivals
from executors.simulator.clock import EventLoop
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.happenings import Story
from executors.simulator.network import Network
from executors.simulator.nodes import Cluster, SimulatedNode
from executors.simulator.requests import RequestQueue
from executors.simulator.scenario.model import Deployment, Scenario
from executors.simulator.streams import Streams


class World:
    """What a scenario describes, at time 0, before any controller has told it anything."""

    def __init__(self, scenario: Scenario, arrivals: Mapping[str, Arrivals]) -> None:
        self.scenario = scenario
        self.loop = EventLoop()
        self.story = Story()
        self.streams = Streams(scenario.seed)
        nodes = [SimulatedNode(node_id, gpus) for node_id, gpus in scenario.node_gpus.items()]
        self.cluster = Cluster(nodes, self._room_changed)
        self.deployments = {
            deployment.spec.name: self._deployment(deployment, arrivals[deployment.spec.name])
            for deployment in scenario.deployments
        }

    def tell_capacities(self) -> None:
        """Every deployment hears of every node that is up."""
        for node in self.cluster.nodes.values():
            if node.up:
                self._tell_capacity(node)

    def lose_node(self, node_id: str) -> None:
        """A node goes down, with all that runs on it."""
        now = self.loop.now
        if not self.cluster.lose(node_id):
            self.story.tell(now, "fault", None, f"node {node_id} was to be lost, but is down already")
            return
        node = self.cluster.nodes[node_id]
        lost = []
        for deployment in self.deployments.values():
            for process in deployment.lose_node(node):
                rank = f" (rank {process.replica.rank.rank})" if process.replica and process.replica.rank else ""
                lost.append(f"{process.replica_id}{rank}")
        self.story.tell(now, "fault", None, f"node {node_id} lost, with {', '.join(lost) or 'no replica'}")

    def bring_node_back(self, node_id: str) -> None:
        """A node is up again, empty."""
        if not self.cluster.bring_back(node_id):
            return
        node = self.cluster.nodes[node_id]
        self.story.tell(self.loop.now, "fault", None, f"node {node_id} is back, empty")
        self._tell_capacity(node)
        self.cluster.serve_waiting()

    def _tell_capacity(self, node: SimulatedNode) -> None:
        for deployment in self.deployments.values():
            deployment.tell_capacity(node)

    def _room_changed(self, node: SimulatedNode) -> None:
        """What one deployment takes is missing to the others."""
        if node.up:
            for deployment in self.deployments.values():
                deployment.tell_capacity(node, only_news=True)

    def _deployment(self, deployment: Deployment, arrivals: Arrivals) -> DeploymentWorld:
        name = deployment.spec.name
        latency_s = self.scenario.network.latency_s
        return DeploymentWorld(
            deployment,
            self.loop,
            self.cluster,
            Network(self.loop, latency_s, self.streams.of("network", name)),
            RequestQueue(self.loop, arrivals, deployment.max_ongoing_requests, deployment.max_queued_requests),
            self.streams,
            self.story,
        )
