"""The simulator as an executor of one deployment: the executor's half of the contract (section 2.4 of the design)."""

from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from executors.simulator.beliefs import Beliefs
from executors.simulator.clock import EventLoop
from executors.simulator.figures import Tally
from executors.simulator.happenings import Failure, Story
from executors.simulator.network import Network
from executors.simulator.nodes import Cluster, SimulatedNode
from executors.simulator.processes import Process
from executors.simulator.replicas import Drain, End, Message, Reaction, RunUserCode, SimulatedReplica
from executors.simulator.requests import RequestQueue
from executors.simulator.scenario.model import Deployment
from executors.simulator.streams import Streams
from executors.simulator.timeline import Timeline
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import (
    ClockAdvanced,
    Event,
    NodeChanged,
    NodeLost,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReported,
    ReplicaStopped,
)
from rankcore.values import NodeId, ReplicaId

Listener = Callable[[Event], None]


class DeploymentWorld:
    """One deployment's replicas, routes and requests, and the `Executor` that a driver hands its commands to.

    Promises: commands of an epoch older than the newest it has seen are refused; every replica's end is told, unless no
    controller was there to hear it, and then `discover` does not list it any more; a Stop or Kill of something unknown
    is answered with `ReplicaStopped`, a Query with `ReplicaMissing`; the newest `AnnounceWorldSize` reaches every
    replica, also one that comes up later.

    Attributes:
        listener: Hears each event when it arrives; None: `poll` hands them over instead.
        processes: All replicas that were asked for and have not ended, in the order in which they were.
    """

    def __init__(
        self,
        deployment: Deployment,
        loop: EventLoop,
        cluster: Cluster,
        network: Network,
        requests: RequestQueue,
        streams: Streams,
        story: Story,
    ) -> None:
        self.deployment = deployment
        self.requests = requests
        self.beliefs = Beliefs()
        self.timeline = Timeline()
        self.tally = Tally()
        self.listener: Listener | None = None
        self.processes: dict[ReplicaId, Process] = {}
        self._loop = loop
        self._cluster = cluster
        self._network = network
        self._streams = streams
        self._story = story
        self._inbox: deque[Event] = deque()
        self._epoch = 0
        self._ended: set[ReplicaId] = set()
        self._announced: AnnounceWorldSize | None = None
        self._on_node: Counter[NodeId] = Counter()
        self._told_capacity: dict[NodeId, int] = {}
        self._wakes = 0

    @property
    def name(self) -> str:
        """Of the deployment."""
        return self.deployment.spec.name

    # -- the executor

    def execute(self, command: Command) -> None:
        """Begin to carry out a command, unless its controller has been replaced."""
        if command.epoch < self._epoch:
            self.tally.refused += 1
            return
        self._epoch = command.epoch
        match command:
            case StartReplica():
                self._start(command)
            case InitializeReplica() | ReconfigureReplica() | QueryReplica() | StopReplica() | KillReplica():
                self._forward(command)
            case AnnounceWorldSize():
                self._announce(command)
            case PublishRoutes():
                self._network.send_in_order(f"routes/{self.name}", self.requests.publish, command)
            case WakeAt():
                self._wakes += 1
                self._loop.at(command.at, self._wake, self._wakes)

    def poll(self) -> Event | None:
        """The next event, after letting virtual time pass up to it; None: nothing will ever happen again."""
        while not self._inbox:
            if not self._loop.step():
                return None
        return self._inbox.popleft()

    def raise_fence(self, epoch: int) -> None:
        """From now on only a controller of this epoch, or a later one, is obeyed.

        Starts that still wait for room are commands of the old controller too, and given up.
        """
        self._epoch = max(self._epoch, epoch)
        self._wakes += 1
        for process in tuple(self.processes.values()):
            if process.node is None:
                self._cluster.withdraw(process)
                self._forget(process)

    def discover(self) -> tuple[ReplicaId, ...]:
        """All replicas that exist, also those that are not up yet. Raise the fence first."""
        return tuple(sorted(self.processes))

    # -- what happens to nodes and replicas

    def tell_capacity(self, node: SimulatedNode, *, only_news: bool = False) -> None:
        """How many replicas of this deployment the node can hold: those that it has, and what fits beside them."""
        capacity = self._on_node[node.node_id] + node.free_gpus // self.deployment.gpus_per_replica
        if only_news and self._told_capacity.get(node.node_id) in (None, capacity):
            return  # nobody was told of the node yet, or nothing has changed for this deployment
        self._told_capacity[node.node_id] = capacity
        news = NodeChanged(node_id=node.node_id, capacity=capacity, at=self._loop.now)
        self._network.send_in_order(f"nodes/{self.name}", self._arrive, news)

    def lose_node(self, node: SimulatedNode) -> tuple[Process, ...]:
        """End what ran on a node, and tell; returns what that was."""
        victims = tuple(process for process in self.processes.values() if process.node is node)
        self._told_capacity.pop(node.node_id, None)
        for process in victims:
            self.tally.replica_crashes += 1
            self._end(process)
        connection = f"nodes/{self.name}"  # a node's return must not overtake its loss
        self._network.send_in_order(connection, self._arrive_node_lost, node.node_id, self._loop.now, victims)
        return victims

    def crash(self, process: Process) -> None:
        """End a replica that nobody asked to end, and tell."""
        self.tally.replica_crashes += 1
        self._end(process)
        self._tell(ReplicaDied(replica_id=process.replica_id, reason="crashed", at=self._loop.now))

    # -- commands

    def _start(self, command: StartReplica) -> None:
        known = self.processes.get(command.replica_id)
        if known is not None:
            if known.replica is not None:
                self._tell_placed(known)
            return
        if command.replica_id in self._ended:
            self._tell(ReplicaStopped(replica_id=command.replica_id, at=self._loop.now))
            return
        process = Process(command, self.deployment.gpus_per_replica, self._create)
        self.processes[command.replica_id] = process
        self._cluster.claim(process)

    def _forward(self, command: InitializeReplica | ReconfigureReplica | QueryReplica | StopReplica | KillReplica) -> None:
        process = self.processes.get(command.replica_id)
        if process is not None and (process.node is not None or not isinstance(command, (StopReplica, KillReplica))):
            self._network.send(self._reach, process, command)
            return
        if process is not None:
            self._cluster.withdraw(process)
            self._forget(process)
        if isinstance(command, QueryReplica):
            self._tell(ReplicaMissing(replica_id=command.replica_id, at=self._loop.now))
        elif isinstance(command, (StopReplica, KillReplica)):
            self._tell(ReplicaStopped(replica_id=command.replica_id, at=self._loop.now))

    def _announce(self, command: AnnounceWorldSize) -> None:
        newest = self._announced
        if newest is not None and (command.epoch, command.revision) <= (newest.epoch, newest.revision):
            return
        self._announced = command
        for process in self.processes.values():
            if process.replica is not None:
                self._network.send(self._reach, process, command)

    def _wake(self, number: int) -> None:
        if number == self._wakes:
            self._arrive(ClockAdvanced(at=self._loop.now))

    # -- the life of a process

    def _draw(self, what: str, process: Process) -> float:
        """A stream for each replica: a fault that changes one's life changes no other's."""
        process.draws += 1
        stream = self._streams.once(what, process.replica_id, str(process.draws))
        distribution = getattr(self.deployment, what)
        drawn: float = distribution.sample(stream)
        return drawn

    def _create(self, process: Process) -> None:
        assert process.node is not None, "only a placed process is created"
        process.placed_at = self._loop.now
        self._on_node[process.node.node_id] += 1
        self._loop.after(self._draw("start_s", process), self._come_up, process)

    def _come_up(self, process: Process) -> None:
        if process.ended or process.node is None:
            return
        self.tally.replica_starts += 1
        process.replica = SimulatedReplica(process.start, process.node.node_id)
        self._tell_placed(process)
        if self._announced is not None:
            self._network.send(self._reach, process, self._announced)
        early, process.early = process.early, []
        for message in early:
            self._reach(process, message)

    def _reach(self, process: Process, message: Message) -> None:
        """A message has reached the node of a process."""
        if process.ended:
            # Its end has been told, or is being told; only a query has an answer of its own.
            if isinstance(message, QueryReplica):
                self._tell(ReplicaMissing(replica_id=process.replica_id, at=self._loop.now))
            return
        replica = process.replica
        if replica is None:
            if isinstance(message, (StopReplica, KillReplica)):
                self._stop(process)
            else:
                process.early.append(message)
            return
        before = replica.rank
        reactions = replica.receive(message, self._loop.now)
        if replica.rank != before:
            self._believe(process, replica, message)
        if isinstance(message, ReconfigureReplica) and any(isinstance(what, RunUserCode) for what in reactions):
            self.tally.reconfigures += 1
        self._react(process, replica, reactions)

    def _react(self, process: Process, replica: SimulatedReplica, reactions: tuple[Reaction, ...]) -> None:
        for reaction in reactions:
            match reaction:
                case RunUserCode(starting=starting):
                    what = "init_s" if starting else "reconfigure_s"
                    self._loop.after(self._draw(what, process), self._user_code_ended, process, replica)
                case Drain(timeout_s=timeout_s):
                    self._drain(process, replica, timeout_s)
                case End():
                    self._stop(process)
                case _:
                    self._tell(reaction)

    def _user_code_ended(self, process: Process, replica: SimulatedReplica) -> None:
        if process.ended:
            return
        was_ready = replica.ready
        reactions = replica.user_code_ended(self._loop.now)
        if replica.ready and not was_ready and not replica.draining:
            self._hold(replica)
            self.requests.accept(process.replica_id)
        self._react(process, replica, reactions)

    def _drain(self, process: Process, replica: SimulatedReplica, timeout_s: float) -> None:
        self._hold(replica)
        if not replica.ready:
            self._stop(process)
            return
        self._loop.after(timeout_s, self._stop, process)
        self.requests.drain(process.replica_id, partial(self._drained, process))

    def _drained(self, process: Process) -> None:
        """Its requests are done; what its own clean-up takes is cut off by the time-out too."""
        if not process.ended:
            self._loop.after(self._draw("drain_s", process), self._stop, process)

    def _stop(self, process: Process) -> None:
        if process.ended:
            return
        self._end(process)
        self._tell(ReplicaStopped(replica_id=process.replica_id, at=self._loop.now))

    def _end(self, process: Process) -> None:
        self._forget(process)
        self.requests.lose(process.replica_id)
        self.beliefs.ended(process.replica_id)
        self.timeline.release(self._loop.now, process.replica_id)
        self._account(process)
        if process.node is not None:
            self._on_node[process.node.node_id] -= 1
            self._cluster.give_back(process.node, process.gpus)

    def _account(self, process: Process) -> None:
        if process.node is not None:
            self.tally.gpu_seconds += process.gpus * (self._loop.now - process.placed_at)
        if process.replica is not None:
            self.tally.refused += process.replica.refused

    def _forget(self, process: Process) -> None:
        process.ended = True
        del self.processes[process.replica_id]
        self._ended.add(process.replica_id)

    def finish(self) -> None:
        """The run is over: count what is still there."""
        for process in self.processes.values():
            self._account(process)
        self.timeline.finish(self._loop.now)

    # -- beliefs

    def _believe(self, process: Process, replica: SimulatedReplica, message: Message) -> None:
        rank = replica.rank
        assert rank is not None, "a replica never forgets its rank"
        before = self.beliefs.of(process.replica_id)
        if before is not None:
            if before.rank != rank.rank:
                self.tally.ranks_moved += 1
            else:
                self.tally.other_ranks_moved += 1
        for violation in self.beliefs.changed(process.replica_id, replica.node_id, rank):
            event = f"{type(message).__name__} reached {process.replica_id}"
            self._story.fail(Failure(self._loop.now, self.name, event, violation.rule, violation.detail))
        self._hold(replica)

    def _hold(self, replica: SimulatedReplica) -> None:
        if replica.rank is not None:
            running = replica.ready and not replica.draining
            self.timeline.hold(self._loop.now, replica.replica_id, replica.node_id, replica.rank.rank, running)

    # -- news

    def _tell_placed(self, process: Process) -> None:
        assert process.node is not None, "a process that is up has a node"
        self._tell(
            ReplicaPlaced(replica_id=process.replica_id, node_id=process.node.node_id, at=self._loop.now),
        )

    def _tell(self, event: Event) -> None:
        self._network.send(self._arrive, event)

    def _arrive(self, event: Event) -> None:
        """An event has reached the controller."""
        if isinstance(event, (ReplicaPlaced, ReplicaReported)):
            process = self.processes.get(event.replica_id)
            if process is not None:
                process.known_in_epoch = self._epoch
        if self.listener is not None:
            self.listener(event)
        else:
            self._inbox.append(event)

    def _arrive_node_lost(self, node_id: NodeId, lost_at: float, victims: tuple[Process, ...]) -> None:
        """`NodeLost` ends the replicas that the core knows to be there; the end of any other is told one by one."""
        epoch = self._epoch
        self._arrive(NodeLost(node_id=node_id, at=lost_at))
        for process in victims:
            if process.known_in_epoch != epoch:
                self._arrive(ReplicaDied(replica_id=process.replica_id, reason=f"node {node_id} lost", at=lost_at))
