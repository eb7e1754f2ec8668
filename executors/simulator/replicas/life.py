"""The life of a deployment's replicas: placed, created, started up, working, hanging, draining, ended."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.bundles import PlacementGroups, SimulatedBundle
from executors.simulator.cluster.network import Link
from executors.simulator.cluster.nodes import Cluster, SimulatedNode
from executors.simulator.load.requests import RequestQueue
from executors.simulator.replicas.health import HealthChecks
from executors.simulator.replicas.known import KnownReplica
from executors.simulator.replicas.pauses import Pauses
from executors.simulator.replicas.processes import SimulatedProcess, Work
from executors.simulator.replicas.troubles import Troubles
from executors.simulator.replicas.watch import Watch
from executors.simulator.scenario.hardware import megabytes
from executors.simulator.scenario.model import Deployment
from executors.simulator.streams import Streams
from rankcore.commands import KillReplica, QueryReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import Event, ReplicaDied, ReplicaMissing, ReplicaReady, ReplicaStartFailed, ReplicaStopped, ReplicaUnready
from rankcore.replica.beliefs import RankChange
from rankcore.replica.messages import Message, Reaction, ReplicaChange, readiness_checked, receive, started, user_code_ended
from rankcore.replica.replica import Drain, End, Refused, ReplicaHalf, RunUserCode
from rankcore.values import NodeId, ReplicaId

RecordedTimes = dict[tuple[str, ReplicaId], list[float]]


@attrs.frozen
class Surroundings:
    """What all deployments share.

    Attributes:
        troubles: What is wrong with user code at the moment.
        recorded: How long what took which replica, in the order in which it happens to it, by field of a deployment and
            replica; what is not there is drawn.
    """

    loop: EventLoop
    cluster: Cluster
    groups: PlacementGroups
    streams: Streams
    troubles: Troubles
    recorded: RecordedTimes = attrs.Factory(dict)


class Tell(Protocol):
    """Has a process tell what has happened; `kept`: it is said until it is heard."""

    def __call__(self, process: SimulatedProcess, event: Event, *, kept: bool = False) -> None: ...  # noqa: D102


class Lives:
    """Lets replicas live, and tells what they say and how they end.

    Args:
        tell: Called with the process and what is to be told of it.
        came_up: Called when a process is up.
        health: Is shown who falls silent.

    Attributes:
        processes: All replicas that were asked for and have not ended, in the order in which they were.
        ended: Ids of those that have, or never were and were told to end.
        on_node: How many have a place on each node.
        looks: How many health checks are to come that may find that a replica takes no requests, or takes them again.
    """

    def __init__(
        self,
        deployment: Deployment,
        around: Surroundings,
        requests: RequestQueue,
        watch: Watch,
        health: HealthChecks,
        tell: Tell,
        found_room: Callable[[SimulatedProcess], None],
        came_up: Callable[[SimulatedProcess], None],
    ) -> None:
        self.processes: dict[ReplicaId, SimulatedProcess] = {}
        self.ended: set[ReplicaId] = set()
        self.on_node: Counter[NodeId] = Counter()
        self.looks = 0
        self._begun: Counter[int] = Counter()
        self._deployment = deployment
        self._loop = around.loop
        self._cluster = around.cluster
        self._groups = around.groups
        self._streams = around.streams
        self._troubles = around.troubles
        self._recorded = around.recorded
        self._requests = requests
        self._watch = watch
        self._health = health
        self._tell = tell
        self._found_room = found_room
        self._came_up = came_up

    # -- beginning

    def begin(self, command: StartReplica) -> None:
        """A process is wanted: it waits for room, is created, and comes up."""
        process = self._process(command)
        self._watch.holds(self._loop.now, process)
        if command.bundles:
            process.gpus, process.memory_mb = self._groups.gpus_of(process), 0
            self._groups.claim(process)
        else:
            self._cluster.claim(process)

    def resume(self, known: KnownReplica, node: SimulatedNode) -> None:
        """A replica that lives already as the run begins, as far as it has acknowledged what it was told.

        What it was told besides reaches it again; of a start-up or reconfiguration that is under way, only the rest is
        still to be done. One that takes no requests takes them again at its next check, unless a fault of the scenario keeps it
        from that.
        """
        process = self._process(known.start)
        process.node, process.link.node_id = node, node.node_id
        process.placed_at, process.known_in_epoch, process.had_s = known.seen_at, known.start.epoch, known.busy_s
        self._cluster.occupy(node, process)
        self.on_node[node.node_id] += 1
        replica = process.replica = started(known.start, node.node_id)
        if known.told is not None:
            replica, _ = receive(replica, known.told, self._loop.now)
            process.replica = replica
            if replica.rank is not None:
                self._watch.believes(self._loop.now, process, replica, known.told)
            if known.ready:
                process.replica, _ = user_code_ended(replica, self._loop.now)
                self._requests.accept(process.replica_id, node.node_id)
                if process.replica.ready:
                    process.ready_at = known.seen_at
                if known.unready is not None:
                    process.replica, _ = readiness_checked(process.replica, self._loop.now, known.unready)
                    self.looks += 1
                    self._loop.after(self._health.spec.health_check_period_s, self._look, process)
            else:
                self._start_up(process, known.told)
        self._watch.holds(self._loop.now, process)

    def _process(self, command: StartReplica) -> SimulatedProcess:
        deployment = self._deployment
        self._begun[command.rank] += 1
        # Named by its rank and not by its id: a fault of one rank leaves what the replicas of all others draw alone.
        purpose = (deployment.spec.name, str(command.rank), str(self._begun[command.rank]))
        memory_mb = megabytes(deployment.memory_gb_per_replica)
        process = SimulatedProcess(command, deployment.gpus_per_replica, memory_mb, self._create, Link(purpose))
        self.processes[command.replica_id] = process
        return process

    def withdraw(self, process: SimulatedProcess) -> None:
        """It still waits for room, and is not wanted any more."""
        if process.start.bundles:
            self._groups.withdraw(process)
        else:
            self._cluster.withdraw(process)
        self._forget(process)

    def _create(self, process: SimulatedProcess) -> None:
        node = process.node
        assert node is not None, "only a placed process is created"
        process.placed_at = self._loop.now
        self._watch.stands(self._loop.now, process)
        self._watch.holds(self._loop.now, process)
        self.on_node[node.node_id] += 1
        self._found_room(process)
        self._loop.after(self._start_takes("start_s", process, node), self._come_up, process, node)

    def _come_up(self, process: SimulatedProcess, node: SimulatedNode) -> None:
        if process.ended:
            return
        self._watch.tally.replica_starts += 1
        process.replica = started(process.start, node.node_id)
        self._came_up(process)
        self._receive_early(process)

    def _draw(self, what: str, process: SimulatedProcess) -> float:
        """From a stream of its own: a fault that changes one replica's life changes no other's."""
        process.draws += 1
        stream = self._streams.once(what, *process.link.purpose, str(process.draws))
        recorded = self._recorded.get((what, process.replica_id))
        drawn: float = recorded.pop(0) if recorded else getattr(self._deployment, what).sample(stream)
        had_s, process.had_s = process.had_s, 0.0
        return max(0.0, drawn - had_s)

    def _start_takes(self, what: str, process: SimulatedProcess, node: SimulatedNode) -> float:
        return self._draw(what, process) * self._troubles.factor(self._deployment.spec.name, node.node_id, self._loop.now)

    # -- messages

    def receive(self, process: SimulatedProcess, message: Message) -> None:
        """A message has reached the node of a process."""
        replica = process.replica
        if process.ended:
            # Its end has been told, or is being told; only a query has an answer of its own.
            if isinstance(message, QueryReplica):
                self._tell(process, ReplicaMissing(replica_id=process.replica_id, at=self._loop.now))
        elif replica is None:
            if isinstance(message, (StopReplica, KillReplica)):
                self.stop(process)
            else:
                process.early.append(message)
        elif process.hangs:
            self._receive_for_hanging(process, message)
        else:
            self._receive_now(process, replica, message)

    def _receive_for_hanging(self, process: SimulatedProcess, message: Message) -> None:
        """The node ends a process that does not do so itself; all else waits until it reads its messages again."""
        if isinstance(message, KillReplica):
            self.stop(process)
            return
        process.early.append(message)
        if isinstance(message, StopReplica):
            self._loop.after(message.timeout_s, self.stop, process)

    def _receive_early(self, process: SimulatedProcess) -> None:
        early, process.early = process.early, []
        for message in early:
            self.receive(process, message)

    def _receive_now(self, process: SimulatedProcess, before: ReplicaHalf, message: Message) -> None:
        replica, reactions = receive(before, message, self._loop.now)
        process.replica = replica
        if replica.rank != before.rank:
            self._watch.believes(self._loop.now, process, replica, message)
        if isinstance(message, ReconfigureReplica) and any(isinstance(what, RunUserCode) for what in reactions):
            self._watch.tally.reconfigures += 1
        self._react(process, reactions)

    def _react(self, process: SimulatedProcess, reactions: tuple[Reaction, ...]) -> None:
        for reaction in reactions:
            match reaction:
                case RunUserCode(starting=True, command=command):
                    self._start_up(process, command)
                case RunUserCode(command=command):
                    failure = self._refusal_of(process, command)
                    self._work(process, self._draw("reconfigure_s", process), self._user_code_ended, process, failure)
                case Drain(timeout_s=timeout_s):
                    self._drain(process, timeout_s)
                case End():
                    self.stop(process)
                case Refused():
                    process.refused += 1
                case ReplicaStartFailed():
                    self._watch.tally.start_failures += 1
                    self.end(process)
                    self._tell(process, reaction)
                case _:
                    self._tell(process, reaction)

    # -- work

    def _work(self, process: SimulatedProcess, takes_s: float, done: Callable[..., object], *arguments: object) -> None:
        self._loop.after(takes_s, self._worked, process, Work(self._loop.now, takes_s, done, arguments))

    def _worked(self, process: SimulatedProcess, work: Work) -> None:
        if process.ended:
            return
        if process.pauses is not None:
            if process.hangs:
                process.stuck.append(work)
                return
            left_s = process.pauses.left_s(work.began_at, work.takes_s, self._loop.now)
            if left_s:
                self._loop.after(left_s, self._worked, process, work)
                return
        work.done(*work.arguments)

    def _start_up(self, process: SimulatedProcess, command: RankChange) -> None:
        node = process.node
        assert node is not None, "a process that is up has a node"
        takes_s = self._start_takes("init_s", process, node)
        fails = self._troubles.begins_to_fail(self._deployment.spec.name, node.node_id, self._loop.now)
        failure = "the start-up code failed" if fails else self._refusal_of(process, command)
        self._work(process, takes_s, self._user_code_ended, process, failure)

    def _refusal_of(self, process: SimulatedProcess, command: RankChange) -> str | None:
        """What `reconfigure` raises for the user_config of a command; None: nothing."""
        assert process.node is not None, "a process that is up has a node"
        assert isinstance(command, ReplicaChange), f"{command} is no command of the core's"
        name, node_id = self._deployment.spec.name, process.node.node_id
        refused = self._troubles.refuses(name, node_id, command.user_config, self._loop.now)
        return "the user_config is refused" if refused else None

    def _user_code_ended(self, process: SimulatedProcess, failure: str | None = None) -> None:
        before = process.replica
        assert before is not None, "a process whose user code runs is up"
        process.replica, reactions = user_code_ended(before, self._loop.now, failure)
        if process.replica.constructed and not before.constructed and not before.draining:
            self._requests.accept(process.replica_id, before.node_id)
        if process.replica.ready and not before.ready:
            process.ready_at = self._loop.now
            if not before.draining:
                self._watch.holds(self._loop.now, process)
            lives_s = self._troubles.dies_after_s(self._deployment.spec.name, before.node_id, before.version, self._loop.now)
            if lives_s is not None:
                self._loop.after(lives_s, self._die, process)
            self._check_readiness(process)  # before it says that it is up: it is not routed for a moment
        self._react(process, reactions)

    def _die(self, process: SimulatedProcess) -> None:
        if not process.ended:
            self.crash(process)

    # -- faults

    def crash(self, process: SimulatedProcess) -> None:
        """A replica dies that nobody asked to."""
        self._watch.tally.replica_crashes += 1
        self.end(process)
        self._tell(process, ReplicaDied(replica_id=process.replica_id, reason="crashed", at=self._loop.now))

    def become_unready(self, process: SimulatedProcess) -> None:
        """A replica takes no requests any more: its next health check finds out, or the end of its start-up with a rank."""
        process.unready += 1
        self._watch.tally.replicas_unready += process.unready == 1
        self._look_soon(process)

    def become_ready(self, process: SimulatedProcess) -> None:
        """What kept it from taking requests is over."""
        process.unready -= 1
        self._look_soon(process)

    def _look_soon(self, process: SimulatedProcess) -> None:
        if process.ended:
            return
        self._watch.holds(self._loop.now, process)
        if process.ready_at is not None:  # else nobody asks it yet
            self.looks += 1
            self._loop.at(self._health.next_check(process), self._look, process)

    def _look(self, process: SimulatedProcess) -> None:
        """Its health check is there; one that hangs answers nothing, until it is itself again."""
        self.looks -= 1
        if not process.ended and not process.hangs:
            self._check_readiness(process)

    def _check_readiness(self, process: SimulatedProcess) -> None:
        assert process.replica is not None, "only a replica that was ready is checked"
        problem = "it takes no requests" if process.unready else None
        process.replica, reactions = readiness_checked(process.replica, self._loop.now, problem)
        for news in reactions:
            assert isinstance(news, (ReplicaUnready, ReplicaReady)), f"{news} says nothing of its readiness"
            self._tell(process, news, kept=True)  # the next check would say it again

    def hang(self, process: SimulatedProcess) -> None:
        """A replica does nothing any more, and what it was doing stands still."""
        if process.pauses is None:
            process.pauses = Pauses()
        process.pauses.begin(self._loop.now)
        self._requests.freeze(process.replica_id)
        self._watch.holds(self._loop.now, process)
        self._health.look(process)

    def wake(self, process: SimulatedProcess) -> None:
        """A replica is itself again: it goes on where it was, then reads its messages."""
        if process.ended or process.pauses is None:
            return
        process.pauses.end(self._loop.now)
        self._requests.thaw(process.replica_id)
        self._watch.holds(self._loop.now, process)
        self._health.look(process)
        stuck, process.stuck = process.stuck, []
        for work in stuck:
            left_s = process.pauses.left_s(work.began_at, work.takes_s, self._loop.now)
            self._loop.after(left_s, self._worked, process, work)
        self._receive_early(process)
        if process.ready_at is not None:
            self._look_soon(process)

    def end_with(self, node: SimulatedNode) -> tuple[SimulatedProcess, ...]:
        """End what is on a node, and tell nothing; returns what that was."""
        victims = self.there(node)
        for process in victims:
            self._watch.tally.replica_crashes += 1
            self.end(process)
        return victims

    def die_with(self, bundles: tuple[SimulatedBundle, ...], group: str) -> tuple[SimulatedProcess, ...]:
        """Let those die that run on a bundle; who has it beside its first one lives on. Returns who that was."""
        gone = {bundle.index for bundle in bundles}
        victims = [p for p in self.processes.values() if p.node is not None and p.start.group_id == group]
        victims = [process for process in victims if process.start.bundles[:1] and process.start.bundles[0] in gone]
        for process in victims:
            self._watch.tally.replica_crashes += 1
            self.end(process)
            reason = f"bundle {process.start.bundles[0]} was lost"
            self._tell(process, ReplicaDied(replica_id=process.replica_id, reason=reason, at=self._loop.now))
        return tuple(victims)

    def there(self, node: SimulatedNode) -> tuple[SimulatedProcess, ...]:
        """What is on a node."""
        if not self.on_node[node.node_id]:
            return ()
        return tuple(process for process in self.processes.values() if process.node is node)

    # -- the end

    def _drain(self, process: SimulatedProcess, timeout_s: float) -> None:
        self._watch.holds(self._loop.now, process)
        if process.replica is None or not process.replica.ready:
            self.stop(process)
            return
        self._loop.after(timeout_s, self.stop, process)
        self._requests.drain(process.replica_id, partial(self._drained, process, self._loop.now))

    def _drained(self, process: SimulatedProcess, began_at: float) -> None:
        """Its requests are done; what its own clean-up takes is cut off by the time-out too."""
        if not process.ended:
            if ("drain_s", process.replica_id) in self._recorded:
                process.had_s = self._loop.now - began_at  # what was recorded has its last requests in it
            self._work(process, self._draw("drain_s", process), self.stop, process)

    def stop(self, process: SimulatedProcess) -> None:
        """End a replica that was told to, and tell."""
        if process.ended:
            return
        self.end(process)
        self._tell(process, ReplicaStopped(replica_id=process.replica_id, at=self._loop.now))

    def end(self, process: SimulatedProcess) -> None:
        """End a replica, and tell nothing."""
        self._forget(process)
        self._health.look(process)
        self._requests.lose(process.replica_id)
        self._watch.ended(self._loop.now, process)
        if process.node is not None:
            self.on_node[process.node.node_id] -= 1
            if not process.start.bundles:  # those stay reserved
                self._cluster.give_back(process.node, process)

    def _forget(self, process: SimulatedProcess) -> None:
        process.ended = True
        del self.processes[process.replica_id]
        self.ended.add(process.replica_id)
        self._watch.gone(self._loop.now, process)
