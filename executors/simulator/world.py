"""The whole simulated world: one clock, one cluster, and the deployments that share them."""

from collections.abc import Mapping

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.bundles import PlacementGroups, SimulatedBundle
from executors.simulator.cluster.network import Network
from executors.simulator.cluster.nodes import UNLIMITED_MB, Cluster, SimulatedNode
from executors.simulator.cluster.outages import DOWN, Outages
from executors.simulator.cluster.partitions import Partitions
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.engine_queue import EngineQueue
from executors.simulator.load.requests import RequestQueue
from executors.simulator.record.happenings import Happening, Story
from executors.simulator.replicas.life import RecordedTimes, Surroundings
from executors.simulator.replicas.processes import SimulatedProcess
from executors.simulator.replicas.troubles import Troubles
from executors.simulator.scenario.hardware import NodeGroup, megabytes
from executors.simulator.scenario.model import Deployment, Scenario
from executors.simulator.scenario.placements import PlacementGroup
from executors.simulator.streams import Streams
from rankcore.events import NodeCordoned, NodeDrainRequested, NodeUncordoned
from rankcore.evictions import deadline_of_both


class SimulatedWorld:
    """What a scenario describes, at time 0, before any controller has told it anything.

    Attributes:
        outages: What was away when.
        troubles: What is wrong with user code at the moment.
    """

    def __init__(self, scenario: Scenario, arrivals: Mapping[str, Arrivals], recorded: RecordedTimes | None = None) -> None:
        self.scenario = scenario
        self.loop = EventLoop()
        self.story = Story(self.loop.halt)
        self.outages = Outages()
        self.streams = Streams(scenario.seed)
        self.troubles = Troubles()
        nodes = [_node(node_id, group) for group in scenario.nodes for node_id in group.node_ids]
        self.cluster = Cluster(nodes, self._room_changed)
        self.groups = PlacementGroups(
            (group.name, _bundles(group, scenario, self.cluster)) for group in scenario.placement_groups
        )
        around = Surroundings(self.loop, self.cluster, self.groups, self.streams, self.troubles, recorded or {})
        self.deployments = {
            deployment.spec.name: self._deployment(deployment, arrivals[deployment.spec.name], around)
            for deployment in scenario.deployments
        }
        self.partitions = Partitions(
            self.loop,
            self.story,
            self.outages,
            scenario.usual_network.lease_s,
            tuple(self.deployments.values()),
            self._usable_again,
        )
        self._losses: dict[str, Happening] = {}

    def tell_capacities(self) -> None:
        """Every deployment hears of every node that can be used."""
        for node in self.cluster.nodes.values():
            if node.usable:
                self._tell_capacity(node)
                if node.cordon is not None:
                    self._tell_cordon(attrs.evolve(node.cordon, at=self.loop.now))

    def cordon(self, node_id: str, deadline_s: float | None = None, drain: str | None = None, final: bool = False) -> None:
        """Nothing new is placed on a node from now on; with `drain`, a reason, what is there is to go.

        Args:
            final: Whether the node is gone by then, whatever anybody wants.
        """
        now, node = self.loop.now, self.cluster.nodes[node_id]
        if not node.up:
            self.story.tell(now, "fault", None, f"node {node_id} was to be cordoned, but is down", node=node_id)
            return
        news: NodeCordoned | NodeDrainRequested = NodeCordoned(node_id=node_id, at=now)
        if drain is None:
            what = "is cordoned"
        else:
            deadline_at = now + deadline_s if deadline_s is not None else None
            news = NodeDrainRequested(node_id=node_id, deadline_at=deadline_at, reason=drain, final=final, at=now)
            what = "is drained" + (f": it is to be empty in {deadline_s:g} s ({drain})" if deadline_s is not None else "")
        self.story.tell(now, "fault", None, f"node {node_id} {what}", node=node_id)
        self._tell_cordon(news)
        known = node.cordon
        if isinstance(news, NodeDrainRequested) and isinstance(known, NodeDrainRequested):  # to be told again as one
            deadline_at = deadline_of_both(known, news)
            news = attrs.evolve(news, deadline_at=deadline_at, final=known.final or news.final)
        if isinstance(news, NodeDrainRequested) or not isinstance(known, NodeDrainRequested):  # a drain says more, and goes on
            node.cordon = news

    def uncordon(self, node_id: str) -> None:
        """A node may be used again, if it was not lost since, nor is about to be."""
        now, node = self.loop.now, self.cluster.nodes[node_id]
        if node.cordon is None or (isinstance(node.cordon, NodeDrainRequested) and node.cordon.final):
            return
        node.cordon = None
        self.story.tell(now, "fault", None, f"node {node_id} is uncordoned", node=node_id)
        self._tell_cordon(NodeUncordoned(node_id=node_id, at=now))
        self.cluster.serve_waiting()

    def _tell_cordon(self, news: NodeCordoned | NodeUncordoned | NodeDrainRequested) -> None:
        for deployment in self.deployments.values():
            deployment.nodes.tell_cordon(news)

    def begin_without(self, node_id: str) -> None:
        """A node is not there yet."""
        self.cluster.nodes[node_id].faults += 1
        self.outages.begin(self.loop.now, node_id, DOWN)

    def begin_down(self, node_id: str) -> None:
        """A node is down already when the run begins: nothing is placed there before it is back."""
        now, node = self.loop.now, self.cluster.nodes[node_id]
        node.faults += 1
        if node.faults == 1:
            self.outages.begin(now, node_id, DOWN)
            text = f"node {node_id} is down as the run begins"
            self._losses[node_id] = self.story.tell(now, "fault", None, text, node=node_id)

    def lose_node(self, node_id: str) -> None:
        """A node goes down, with all that runs on it; it may have several faults at a time."""
        now, node = self.loop.now, self.cluster.nodes[node_id]
        node.faults += 1
        if node.faults > 1:
            self.story.tell(now, "fault", None, f"node {node_id} was to be lost, but is down already", node=node_id)
            return
        self.outages.begin(now, node_id, DOWN)
        node.cordon = None
        lost = []
        for port in self.deployments.values():
            victims = port.lives.end_with(node)
            lost += [_named(process) for process in victims]
            if node.reachable:
                port.tell_node_lost(node_id, now, victims)
            else:
                self.partitions.lost_meanwhile(node, port, victims)
        text = f"node {node_id} lost, with {', '.join(lost) or 'no replica'}"
        self._losses[node_id] = self.story.tell(now, "fault", None, text, node=node_id)

    def bring_node_back(self, node_id: str) -> None:
        """One fault of a node is over; without any it is up, empty."""
        now, node = self.loop.now, self.cluster.nodes[node_id]
        node.faults = max(0, node.faults - 1)
        if not node.up:
            return
        self.outages.end(now, node_id, DOWN)
        loss = self._losses.pop(node_id, None)
        if loss is not None:
            self.story.over(now, loss)
        what = "is back, empty" if loss is not None else "has come"
        self.story.tell(now, "fault", None, f"node {node_id} {what}", node=node_id)
        if node.usable:
            self._usable_again(node)

    def lose_bundles(self, group: str, indices: tuple[int, ...]) -> None:
        """Bundles of a placement group go, or all of them: then the group was removed."""
        now, reserved = self.loop.now, self.groups.of(group)
        bundles = tuple(reserved[index] for index in indices) if indices else reserved
        fresh = tuple(bundle for bundle in bundles if bundle.there)
        for bundle in bundles:
            bundle.faults += 1
        victims = [victim for port in self.deployments.values() for victim in port.lives.die_with(fresh, group)]
        what = f"{_shown(bundles)} of placement group {group}" if indices else f"placement group {group}"
        lost = ", ".join(map(_named, victims)) or "no replica"
        self.story.tell(now, "fault", None, f"{what} {'lost' if indices else 'removed'}, with {lost}")
        reason = "" if indices else "the placement group was removed"
        for port in self._in_group(group):
            port.bundles.tell_lost(fresh, now, reason)

    def bring_bundles_back(self, group: str, indices: tuple[int, ...]) -> None:
        """One fault of these bundles is over; without any they are there, empty."""
        reserved = self.groups.of(group)
        bundles = tuple(reserved[index] for index in indices) if indices else reserved
        for bundle in bundles:
            bundle.faults = max(0, bundle.faults - 1)
        back = tuple(bundle for bundle in bundles if bundle.there)
        what = f"{_shown(back)} of placement group {group}" if indices else f"placement group {group}"
        self.story.tell(self.loop.now, "fault", None, f"{what} {'are' if len(back) > 1 else 'is'} back, empty")
        self._tell_bundles_back(group, back)

    def _tell_bundles_back(self, group: str, bundles: tuple[SimulatedBundle, ...]) -> None:
        self.groups.serve_waiting()
        for port in self._in_group(group):
            port.bundles.tell_restored(bundles)

    def _in_group(self, group: str) -> list[DeploymentWorld]:
        return [port for port in self.deployments.values() if port.bundles.group == group]

    def _usable_again(self, node: SimulatedNode) -> None:
        self._tell_capacity(node)
        self.cluster.serve_waiting()
        for group in self.groups.names:
            self._tell_bundles_back(group, self.groups.on(node.node_id, group))

    def _tell_capacity(self, node: SimulatedNode) -> None:
        for deployment in self.deployments.values():
            deployment.nodes.tell_capacity(node)

    def _room_changed(self, node: SimulatedNode) -> None:
        """What one deployment takes is missing to the others."""
        if node.usable:
            for deployment in self.deployments.values():
                deployment.nodes.tell_capacity(node, only_news=True)

    def _deployment(self, deployment: Deployment, arrivals: Arrivals, around: Surroundings) -> DeploymentWorld:
        return DeploymentWorld(
            deployment,
            around,
            Network(self.loop, self.scenario.usual_network, self.streams),
            self._queue(deployment, arrivals),
            self.story,
        )

    def _queue(self, deployment: Deployment, arrivals: Arrivals) -> RequestQueue:
        engines = self.scenario.engines_of(deployment)
        if not engines:
            return RequestQueue(self.loop, arrivals, deployment.routing, deployment.sessions)
        return EngineQueue(self.loop, arrivals, deployment.routing, deployment.sessions, engines, deployment.request_slo)


def _node(node_id: str, group: NodeGroup) -> SimulatedNode:
    memory_mb = UNLIMITED_MB if group.memory_gb is None else megabytes(group.memory_gb)
    return SimulatedNode(node_id, group.gpus, memory_mb)


def _bundles(group: PlacementGroup, scenario: Scenario, cluster: Cluster) -> list[SimulatedBundle]:
    return [
        SimulatedBundle(index, cluster.nodes[node_id], row.gpus, megabytes(row.memory_gb))
        for index, (node_id, row) in enumerate(group.spread(scenario.nodes))
    ]


def _shown(bundles: tuple[SimulatedBundle, ...]) -> str:
    indices = ", ".join(str(bundle.index) for bundle in bundles[:8]) + (", ..." if len(bundles) > 8 else "")
    return f"bundle{'s' if len(bundles) > 1 else ''} {indices}"


def _named(process: SimulatedProcess) -> str:
    rank = f" (rank {process.replica.rank.rank})" if process.replica and process.replica.rank else ""
    return f"{process.replica_id}{rank}"
