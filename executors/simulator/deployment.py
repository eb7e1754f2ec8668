"""The simulator as an executor of one deployment: the executor's half of the contract (section 2.4 of the design)."""

from collections import deque
from collections.abc import Callable

from executors.simulator.cluster.bundle_news import BundleNews
from executors.simulator.cluster.network import Link, Network
from executors.simulator.cluster.node_news import NodeNews
from executors.simulator.cluster.nodes import SimulatedNode
from executors.simulator.load.requests import RequestQueue
from executors.simulator.record.happenings import Story
from executors.simulator.record.timeline import Timeline
from executors.simulator.replicas.health import HealthChecks
from executors.simulator.replicas.known import KnownReplica
from executors.simulator.replicas.life import Lives, Surroundings
from executors.simulator.replicas.processes import SimulatedProcess
from executors.simulator.replicas.watch import Watch
from executors.simulator.scenario.hardware import megabytes
from executors.simulator.scenario.model import Deployment
from rankcore import DeploymentState, outstanding
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import (
    FINAL,
    ClockAdvanced,
    Event,
    NodeLost,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaReconfigured,
    ReplicaReported,
    ReplicaStopped,
    ReplicaUnready,
)
from rankcore.replica.messages import ReplicaChange
from rankcore.values import NodeId, ReplicaId

Listener = Callable[[Event], None]
NO_ROOM = "no node has room"
STARTS = "its process is starting"


class DeploymentWorld:
    """One deployment's replicas, routes and requests, and the `Executor` that a driver hands its commands to.

    Promises: commands of an epoch older than the newest it has seen are refused; every replica's end is told, however
    often that takes, unless no controller was there to hear it, and then `discover` does not list it any more; a Stop or
    Kill of something unknown is answered with `ReplicaStopped`, a Query with `ReplicaMissing`, and it is never started
    after that; the newest `AnnounceWorldSize` reaches every replica, also one that comes up later.

    Attributes:
        listener: Hears each event when it arrives; None: `poll` hands them over instead.
        lives: Its replicas.
        processes: All replicas that were asked for and have not ended, in the order in which they were.
        health: Its health checks.
        loop: Virtual time.
    """

    def __init__(
        self, deployment: Deployment, around: Surroundings, network: Network, requests: RequestQueue, story: Story
    ) -> None:
        name = deployment.spec.name
        watch = Watch(name, story)
        self.deployment = deployment
        self.requests = requests
        self.network = network
        self.beliefs, self.timeline, self.tally = watch.beliefs, watch.timeline, watch.tally
        self.standings = watch.standings
        self.listener: Listener | None = None
        self.health = HealthChecks(deployment.spec, around.loop, self._arrive)
        self.lives = Lives(deployment, around, requests, watch, self.health, self._tell_of, self._found_room, self._came_up)
        self.processes = self.lives.processes
        self.nodes = NodeNews(name, around.loop, network, self._room, self.lives.on_node, self._arrive)
        self.bundles = BundleNews(name, around.loop, network, around.groups, self._arrive)
        self._groups = around.groups
        self._watch = watch
        self.loop = self._loop = around.loop
        self._cluster = around.cluster
        self._link = Link((name,))
        self._routes = Link((name, "routes"))
        self._inbox: deque[Event] = deque()
        self._epoch = 0
        self._announced: AnnounceWorldSize | None = None
        self._wakes = 0

    @property
    def name(self) -> str:
        """Of the deployment."""
        return self.deployment.spec.name

    # -- the executor

    def execute(self, command: Command) -> None:
        """Begin to carry out a command, unless its controller has been replaced."""
        if self._is_refused(command):
            return
        self._epoch = command.epoch
        match command:
            case StartReplica():
                self.network.submit(self._link, self._start, command)
            case PrepareReplica() | InitializeReplica() | ReconfigureReplica() | QueryReplica() | StopReplica() | KillReplica():
                self._forward(command)
            case AnnounceWorldSize():
                self._announce(command)
            case PublishRoutes():
                self._watch.routed(self._loop.now, command, self.processes)
                self.network.send_in_order(self._routes, self.requests.publish, command, steady=True)
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
                self.lives.withdraw(process)
        self.nodes.forget()
        self.bundles.forget()
        self.health.start_afresh(self.processes)

    def discover(self) -> tuple[ReplicaId, ...]:
        """All replicas that exist, also those that are not up yet. Raise the fence first."""
        return tuple(sorted(self.processes))

    def follow(self, timeline: Timeline) -> None:
        """Go on with a timeline that was begun elsewhere."""
        self.timeline = self._watch.timeline = timeline

    def resume(self, state: DeploymentState) -> None:
        """Go on from a controller's state, whatever carried out its commands so far: its replicas are here now.

        Every replica that exists must have a place, or wait for one: no recovery may be waiting for reports.
        """
        self._epoch = state.epoch
        cluster, now = self._cluster, self._loop.now
        for replica in sorted(state.replicas.values(), key=lambda replica: replica.birth):
            if replica.node_id is not None:
                self.lives.resume(KnownReplica.of(state, replica, now), cluster.nodes[replica.node_id])
        self.beliefs.tolerate_present_duplicates()
        for command in outstanding(state):
            if isinstance(command, StartReplica) and not state.replicas[command.replica_id].is_repeated:
                # Nobody asks again: it cannot be lost on its way, and its place is told until it is heard.
                self._start(command)
                self.processes[command.replica_id].room.was_said = True
            else:
                self.execute(command)

    @property
    def is_quiet(self) -> bool:
        """Whether the controller knows, or will never know, all that has happened."""
        return not self.network.outstanding and not self.health.finds_out and not self.lives.looks

    # -- what happens to nodes

    def tell_node_lost(self, node_id: NodeId, lost_at: float, victims: tuple[SimulatedProcess, ...]) -> None:
        """A node is gone, and these have ended with it."""
        self.nodes.tell_lost(node_id, lost_at, victims, self._arrive_node_lost)
        if self.bundles.group is not None:
            gone = self._groups.on(node_id, self.bundles.group)
            self.bundles.tell_lost(gone, lost_at, f"node {node_id} was lost")

    def cut_off(self, node: SimulatedNode) -> None:
        """The controller no longer reaches a node, nor what is on it."""
        self.network.cut(node.node_id)
        self._look_at_all_on(node)

    def connect_again(self, node: SimulatedNode) -> None:
        """The controller reaches a node again."""
        self.network.mend(node.node_id)
        self._look_at_all_on(node)

    def _look_at_all_on(self, node: SimulatedNode) -> None:
        for process in self.lives.there(node):
            self.health.look(process)

    def _room(self, node: SimulatedNode) -> int:
        deployment = self.deployment
        return node.room_for(deployment.gpus_per_replica, megabytes(deployment.memory_gb_per_replica))

    # -- commands

    def _is_refused(self, command: Command) -> bool:
        if command.epoch >= self._epoch:
            return False
        self.tally.refused += 1
        return True

    def _start(self, command: StartReplica) -> None:
        if self._is_refused(command):
            return
        known = self.processes.get(command.replica_id)
        if known is not None:
            if known.replica is not None:
                self._tell_placed(known)
            else:
                self._tell_of_room(known)
        elif command.replica_id in self.lives.ended:
            self._tell(self._link, ReplicaStopped(replica_id=command.replica_id, at=self._loop.now))
        else:
            self.lives.begin(command)

    def _tell_of_room(self, process: SimulatedProcess) -> None:
        no_room = process.node is None
        if process.room.is_to_be_said(no_room):
            reason = NO_ROOM if no_room else STARTS
            now, kept = self._loop.now, not no_room
            news = ReplicaPending(replica_id=process.replica_id, reason=reason, no_room=no_room, accepted=True, at=now)
            self._tell(self._link, news, kept=kept)

    def _forward(self, command: ReplicaChange | QueryReplica | StopReplica | KillReplica) -> None:
        if isinstance(command, ReconfigureReplica):
            self.tally.reconfigures_sent += 1
            self.timeline.told(self._loop.now, command.replica_id, command.rank.rank, command.revision)
        process = self.processes.get(command.replica_id)
        ends = isinstance(command, (StopReplica, KillReplica))
        if process is not None and (process.node is not None or not ends):
            self.network.send(process.link, self.lives.receive, process, command)
            return
        if process is not None:
            self.lives.withdraw(process)
        self._answer_for_nobody(command)

    def _answer_for_nobody(self, command: Command) -> None:
        """What does not exist does not come to exist after that either: a start of it that is still on its way is late."""
        match command:
            case QueryReplica():
                answer: Event = ReplicaMissing(replica_id=command.replica_id, at=self._loop.now)
            case StopReplica() | KillReplica():
                answer = ReplicaStopped(replica_id=command.replica_id, at=self._loop.now)
            case _:
                return
        self.lives.ended.add(command.replica_id)
        self._tell(self._link, answer)

    def _announce(self, command: AnnounceWorldSize) -> None:
        newest = self._announced
        if newest is not None and (command.epoch, command.revision) <= (newest.epoch, newest.revision):
            return
        self._announced = command
        for process in self.processes.values():
            if process.replica is not None:
                self.network.send_kept(process.link, self.lives.receive, process, command)

    def _wake(self, number: int) -> None:
        if number == self._wakes:
            self._arrive(ClockAdvanced(at=self._loop.now))

    # -- news

    def _found_room(self, process: SimulatedProcess) -> None:
        """One of which it was said that it has none is not asked for again, so that this has to be said."""
        if process.room.was_said:
            self._tell_of_room(process)

    def _came_up(self, process: SimulatedProcess) -> None:
        self._tell_placed(process)
        if self._announced is not None:
            self.network.send_kept(process.link, self.lives.receive, process, self._announced)

    def _tell_placed(self, process: SimulatedProcess) -> None:
        assert process.node is not None, "a process that is up has a node"
        news = ReplicaPlaced(replica_id=process.replica_id, node_id=process.node.node_id, at=self._loop.now)
        self._tell(process.link, news, kept=process.room.was_said)

    def _tell_of(self, process: SimulatedProcess, event: Event, *, kept: bool = False) -> None:
        self._tell(process.link, event, kept=kept)

    def _tell(self, link: Link, event: Event, *, kept: bool = False) -> None:
        if kept or isinstance(event, (*FINAL, ReplicaUnready)):
            self.network.send_kept(link, self._arrive, event)
        else:
            self.network.send(link, self._arrive, event)

    def _arrive(self, event: Event) -> None:
        """An event has reached the controller."""
        if isinstance(event, (ReplicaPlaced, ReplicaReported)):
            self._remember_known(event)
        elif isinstance(event, ReplicaReconfigured):
            self.timeline.acknowledged(self._loop.now, event.replica_id, event.revision)
        if self.listener is not None:
            self.listener(event)
        else:
            self._inbox.append(event)

    def _remember_known(self, event: ReplicaPlaced | ReplicaReported) -> None:
        """This controller knows where a replica is, unless what it hears was meant for its predecessor."""
        process = self.processes.get(event.replica_id)
        if process is not None:
            epoch = event.epoch if isinstance(event, ReplicaReported) else process.start.epoch
            if epoch == self._epoch:
                process.known_in_epoch = epoch

    def _arrive_node_lost(self, node_id: NodeId, lost_at: float, victims: tuple[SimulatedProcess, ...]) -> None:
        """`NodeLost` ends the replicas that the core knows to be there; the end of any other is told one by one."""
        epoch = self._epoch
        self._arrive(NodeLost(node_id=node_id, at=lost_at))
        for process in victims:
            if process.known_in_epoch != epoch:
                self._arrive(ReplicaDied(replica_id=process.replica_id, reason=f"node {node_id} lost", at=lost_at))

    def finish(self) -> None:
        """The run is over: count what is still there."""
        for process in self.processes.values():
            self._watch.account(self._loop.now, process)
        self.requests.finish()
        self.timeline.finish(self._loop.now)
