"""The world of a cluster whose weights may be COLD: nodes with real memory, workers, callers, and a controller."""

from collections import Counter
from collections.abc import Mapping

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.outages import CONTROLLER, CONTROLLER_DOWN
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestQueue
from executors.simulator.record.happenings import Failure, Happening, Story
from executors.simulator.residency.callers import Callers, Calls
from executors.simulator.residency.control import CLUSTER_NAME, Control
from executors.simulator.residency.nodes import GpuNode
from executors.simulator.residency.notebook import Notebook
from executors.simulator.residency.record import DeploymentTally, PartGauge, Together
from executors.simulator.residency.watch import MemoryWatch
from executors.simulator.residency.wire import Wire
from executors.simulator.residency.workers import Workers
from executors.simulator.scenario.entries import applications_of, changed, entries_of, id_of, shown
from executors.simulator.scenario.gpu_nodes import shapes_of
from executors.simulator.scenario.model import Change, Scenario
from executors.simulator.scenario.weights import GB
from executors.simulator.streams import Streams
from rankcore.cluster.commands import PublishAvailability
from rankcore.cluster.events import (
    ChangeRequested,
    ClusterEvent,
    DeletionRequested,
    LoadReported,
    NodeJoined,
    NodesListed,
    ScaleRequested,
)
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNote, ClusterNoteKind
from rankcore.cluster.residency import WorkerId
from rankcore.commands import PublishRoutes
from rankcore.errors import RankcoreError
from rankcore.events import NodeLost
from rankcore.residency import Level
from rankcore.residency.events import EvictRequested
from rankcore.residency.levels import Phase
from rankcore.residency.spec import ExpectedShape
from rankcore.residency.state import Resident
from rankcore.values import ReplicaId


class ClusterWorld:
    """Everything that is simulated.

    Attributes:
        loop: Virtual time.
        story: What happened, in words, and the first broken promise.
        control: The controller.
        together: What is measured of all deployments together.
        tallies: What is counted of each, beside its requests.
        queues: Its requests, and the router that its callers have.
        callers: The process that calls.
        nodes: By id, in the order of the scenario.
        wire: What is under way between the controller and everybody else.
        workers: The processes.
        watch: Who held what when.
        notebook: What was decided.
    """

    def __init__(self, scenario: Scenario, arrivals: Mapping[str, Arrivals]) -> None:
        self.scenario = scenario
        self.entries = {spec.deployment: spec for spec in entries_of(scenario)}
        entries, arrivals = tuple(self.entries.values()), {id_of(name): each for name, each in arrivals.items()}
        sessions = {id_of(each.spec.name): each.sessions for each in scenario.deployments}
        sizes = {id_of(name): size for name, size in scenario.sizes.items()}
        self.loop = EventLoop()
        self.story = Story(self.loop.halt)
        self.together = Together()
        streams = Streams(scenario.seed)
        self.nodes = {shape.node_id: GpuNode(self.loop, shape, scenario.loading) for shape in scenario.shapes}
        self.tallies = {spec.deployment: DeploymentTally() for spec in entries}
        self.watch = MemoryWatch(self.loop, scenario.shapes, entries, self.tallies, self.nodes, arrivals)
        self.notebook = Notebook()
        self.wire = Wire(self.loop, streams, scenario.network, self.check_held)
        self.control = Control(self.loop, self.story, self, scenario.displacement.policy)
        self.workers = Workers(self.loop, scenario.loading, sizes, streams, self)
        sampled = {each.deployment: each.autoscaling.metrics_interval_s for each in entries if each.autoscaling}
        self.callers = Callers(self.loop, sampled, self._send_load)
        self.queues: dict[DeploymentId, RequestQueue] = {}
        for spec in entries:
            assert spec.routing is not None, f"{spec.deployment} says nothing of its router"
            queue = RequestQueue(self.loop, arrivals[spec.deployment], spec.routing, sessions[spec.deployment])
            self.queues[spec.deployment] = queue
            queue.series.waiting = PartGauge(self.together.waiting)
            calls = Calls(queue, self.tallies[spec.deployment], self.together, self.callers.look_soon)
            queue.watcher = calls
            self.callers.add(spec.deployment, calls)
        self._outage: Happening | None = None
        self._postponed: list[Change] = []

    def start(self) -> None:
        """The run begins: a controller is up, nodes are there, and a user applies what the scenario says."""
        self.watch.count_nodes()
        self.workers.raise_fence(self.control.claim())
        self.control.begin()
        for node in self.nodes.values():
            self._join(node)
        self._list_nodes()
        self.control.apply(applications_of(tuple(self.entries.values())))
        self.callers.begin()

    # -- what the controller commands

    def obey(self, command: object) -> None:
        """A command about a worker, or about a replica that one is."""
        self.workers.obey(command)  # type: ignore[arg-type]

    def publish(self, deployment: DeploymentId, routes: PublishRoutes) -> None:
        """Callers are to send their requests elsewhere."""
        self.wire.to_callers(self.queues[deployment].publish, routes)

    def say_how_it_stands(self, command: PublishAvailability) -> None:
        """Callers are told whether anybody serves, or is about to."""
        self.wire.to_callers(self.callers.follow, command.deployment, command.availability)

    def noted(self, note: ClusterNote) -> None:
        """The machine decided something."""
        if note.deployment in self.tallies:
            self.notebook.count(note, self.tallies[note.deployment])
            if note.kind is ClusterNoteKind.DEPLOYMENT_GONE:
                self.queues[note.deployment].close()
        whose = shown(note.deployment) if note.deployment is not None else None
        self.notebook.write(self.loop.now, note, whose)

    # -- what it hears

    def tell(self, event: ClusterEvent) -> None:
        """News has reached the controller."""
        self.control.tell(event)

    def _send_load(self, replica_id: ReplicaId | None, report: LoadReported) -> None:
        worker = next((each for each in self.workers.live.values() if each.tenure == replica_id), None)
        if replica_id is None:
            self.wire.from_callers(self.tell, report)
        elif worker is not None:
            self.wire.to_controller(worker.node, self.tell, report)

    def ended(self, replica_id: ReplicaId) -> None:
        """A replica is no more."""
        self.callers.forget(replica_id)

    def broken(self, rule: str, text: str) -> None:
        """A promise is."""
        self.story.fail(Failure(self.loop.now, CLUSTER_NAME, "what the nodes hold", rule, text))

    def _join(self, node: GpuNode) -> None:
        shape = node.shape
        node.told = shape.gpu_bytes
        self.tell(
            NodeJoined(
                node_id=shape.node_id,
                resources={},
                gpu_bytes=shape.gpu_bytes,
                cpu_bytes=shape.cpu_bytes,
                labels=dict(shape.labels),
                at=self.loop.now,
            )
        )

    def _list_nodes(self) -> None:
        up = tuple(node_id for node_id, node in self.nodes.items() if node.up)
        expected = tuple(
            ExpectedShape(gpu_bytes=shape.gpu_bytes, labels=shape.labels) for shape in shapes_of(self.scenario.expected_shapes)
        )
        self.tell(NodesListed(node_ids=up, expected_shapes=expected, at=self.loop.now))

    # -- what happens

    def lose_node(self, node_id: str) -> None:
        """A node goes down, with all that is on it; it may have several faults at a time."""
        node = self.nodes[node_id]
        node.faults += 1
        if node.faults > 1:
            return
        node.life += 1
        node.memory.clear()
        ended = self.workers.end_with(node)
        self._tell_story("fault", f"node {node_id} lost, with {_listed([shown(each.worker_id) for each in ended])}", node_id)
        self.watch.begin_outage(node_id)
        self.watch.count_nodes()
        self.wire.to_controller(node, self.tell, NodeLost(node_id=node_id, at=self.loop.now))

    def bring_node_back(self, node_id: str) -> None:
        """One fault of a node is over; without any it is up, empty."""
        node = self.nodes[node_id]
        node.faults -= 1
        if node.up:
            self._tell_story("fault", f"node {node_id} is back, empty", node_id)
            self.watch.end_outage(node_id)
            self.watch.count_nodes()
            self.wire.to_controller(node, self._joined, node, node.life)

    def _joined(self, node: GpuNode, life: int) -> None:
        self.wire.meet(node, life)
        self._join(node)

    def crash(self, deployment: DeploymentId) -> None:
        """The process of the oldest worker of a deployment dies."""
        worker, name = self.workers.oldest(deployment), shown(deployment)
        if worker is None:
            self._tell_story("fault", f"a replica of {name} was to crash, but none is on a GPU")
            return
        self._tell_story("fault", f"{shown(worker.worker_id)} crashed on {worker.node.node_id}", worker.node.node_id)
        self.workers.die(worker, "its process died")

    def keep_from_requests(self, deployment: DeploymentId, for_s: float | None) -> None:
        """The oldest worker of a deployment that takes requests, or is to, takes none for a while, or for ever."""
        worker, name = self.workers.oldest(deployment, ready=True), shown(deployment)
        if worker is None:
            self._tell_story("fault", f"a replica of {name} was to take no requests, but none is on a GPU")
            return
        lasts = f" for {for_s:g} s" if for_s is not None else ""
        self._tell_story("fault", f"{shown(worker.worker_id)} takes no requests{lasts}", worker.node.node_id)
        self.workers.become_unready(worker)
        if for_s is not None:
            self.loop.after(for_s, self.workers.become_ready, worker)

    def fail_loads(self, deployment: DeploymentId, count: int) -> None:
        """The next loads of a deployment fail."""
        name = shown(deployment)
        self._tell_story("fault", f"the next {count} loads of {name} fail" if count > 1 else f"the next load of {name} fails")
        self.workers.fail_loads(deployment, count)

    def shrink(self, node_id: str, gpu_gb: float) -> None:
        """Somebody else takes memory of a node's GPUs."""
        self._tell_story("fault", f"{gpu_gb:g} GB are left of each GPU of {node_id}", node_id)
        self.workers.shrink(self.nodes[node_id], round(gpu_gb * GB))
        self.watch.count_nodes()

    def crash_controller(self, restart_after_s: float) -> None:
        """The controller is gone, with all that it knew."""
        now = self.loop.now
        if self.control.machine is None:
            self._tell_story("controller", "the controller was to crash, but is down already")
            return
        self.control.end()
        self._outage = self.story.tell(now, "controller", None, "the controller crashed")
        self.watch.outages.begin(now, CONTROLLER, CONTROLLER_DOWN)
        self.loop.after(restart_after_s, self.restart_controller)

    def restart_controller(self) -> None:
        """It is back: it asks the workers that it finds, and is told of the nodes."""
        now = self.loop.now
        self.watch.outages.end(now, CONTROLLER, CONTROLLER_DOWN)
        self.workers.raise_fence(self.control.claim())
        found = [(each.worker_id, each.node.node_id) for each in self.workers.live.values()]
        self.control.begin(found)
        if self._outage is not None:
            self.story.over(now, self._outage)
            self._outage = None
        text = f"the controller is back in epoch {self.control.epoch} and found {len(found)} workers"
        self._tell_story("controller", text)
        for node in self.nodes.values():
            if node.up:
                self._joined(node, node.life)
        self._list_nodes()
        self.callers.begin()
        postponed, self._postponed = self._postponed, []
        for change in postponed:
            self.change(change)

    def change(self, change: Change) -> None:
        """Somebody asks for something. While no controller is up, they try again until one is."""
        if self.control.machine is None:
            self._postponed.append(change)
            return
        try:
            self.tell(self._asked(change, id_of(change.deployment)))
        except RankcoreError as error:
            self._tell_story("change", f"that was refused: {error}")

    def _asked(self, change: Change, deployment: DeploymentId) -> ClusterEvent:
        name, now = change.deployment, self.loop.now
        if change.evict is not None:
            self._tell_story("change", f"{name} is to leave the GPUs, and be {change.evict} if it can")
            return EvictRequested(model=deployment, keep=Level(change.evict), at=now)
        if change.delete:
            self._tell_story("change", f"{name} is to be deleted")
            return DeletionRequested(deployments=(deployment,), at=now)
        wanted = ", ".join(f"{key} = {value}" for key, value in change.fields.items())
        self._tell_story("change", f"{name}: {wanted}")
        if change.fields.keys() == {"target_replicas"}:
            replicas = change.fields["target_replicas"]
            stop_first = tuple(f"{deployment}#{each.rpartition('#')[2]}" for each in change.stop_first)
            return ScaleRequested(deployment=deployment, target_replicas=replicas, stop_first=stop_first, at=now)
        entry = self.entries[deployment]
        self.entries[deployment] = changed(entry, change.apply(entry.ranks))
        return ChangeRequested(spec=self.entries[deployment], at=now)

    # -- what is checked

    def check(self) -> None:
        """Look at all books, and whether those serve that ought to."""
        self.control.check()
        for node in self.nodes.values():
            self.check_held(node)
        state = self.control.state
        if state is None or state.weights.recovering or not self.wire.is_quiet_everywhere:
            return  # the routes follow what is still under way
        for deployment, queue in self.queues.items():
            hot = {each.tenure for each in self.workers.live.values() if each.deployment == deployment and each.is_hot}
            ready = {each for each in hot if each is not None}
            if not set(queue.routed) <= ready:
                self.broken("P5", f"{deployment}: {sorted(ready)} are HOT, requests go to {sorted(queue.routed)}")

    def check_held(self, node: GpuNode) -> None:
        """T8: what is held on the GPUs of a node is reserved for somebody in the book, once that has all its news.

        What takes more than there is room for leaves, and takes that until it has left.
        """
        state = self.control.state
        if state is None or not self.wire.is_quiet(node):
            return
        book = state.weights.planner.nodes.get(node.node_id)
        if book is None or not node.says_the_truth:
            return
        beyond = self._held_beyond(node, state.weights.planner.replicas)
        for number, (gpu, used) in enumerate(zip(book.gpus, node.memory.used, strict=True)):
            reserved = gpu.capacity_bytes - gpu.free_bytes
            if used > reserved + beyond[number]:
                self.broken("T8", f"GPU {number} of {node.node_id} holds {used} bytes, and {reserved} are reserved")

    @staticmethod
    def _held_beyond(node: GpuNode, records: Mapping[WorkerId, Resident]) -> Counter[int]:
        """By GPU, what those that leave take beyond what is reserved for them."""
        beyond: Counter[int] = Counter()
        for worker_id in node.memory.on_gpu:
            record = records.get(worker_id)
            if record is not None and record.phase is Phase.LEAVING:
                reserved = dict(zip(record.gpus, record.gpu_bytes, strict=True))
                beyond.update({gpu: max(0, held - reserved.get(gpu, 0)) for gpu, held in node.memory.held(worker_id).items()})
        return beyond

    def _tell_story(self, kind: str, text: str, node_id: str | None = None) -> None:
        self.story.tell(self.loop.now, kind, None, text, node=node_id)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "nothing on it"
