"""The executor: commands become jobs and lines to replicas; lines, and what Slurm and leases say of jobs, become events.

`folder` says when an end may be told. Times of events are those at which they were heard, on the controller's clock; a
replica's own clock decides nothing but the end of its lease.
"""

import math
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import attrs

from executors.lines import ASK_HEALTH, ASK_READY, WELL, Conversation
from executors.local.executor import now
from executors.local.fence import Fence
from executors.slurm import scheduler
from executors.slurm.errands import (
    Claim,
    Claimed,
    Connected,
    Dial,
    EndJob,
    Errands,
    Exclude,
    Listed,
    Refused,
    Submit,
    new_token,
)
from executors.slurm.folder import MARGIN_S, NOTICE, claim, forget, prepare, serial_of, unlisted
from executors.slurm.options import SlurmOptions
from executors.slurm.scheduler import Job, NodeSeen
from executors.slurm.standing import JobStanding, standing
from rankcore import DeploymentSpec
from rankcore.codec import from_json, to_json
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.errors import CodecError
from rankcore.events import (
    ClockAdvanced,
    Event,
    NodeDrainRequested,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
)
from rankcore.values import NodeId, ReplicaId

STOP_MARGIN_S = 1.0
UNLISTED_MAX = 2
"""Lists without a job that was there, before it is taken for one that Slurm has forgotten."""
NO_ROOM = ("Resources", "Priority", "ReqNodeNotAvail", "QOSMaxJobsPerUserLimit", "AssocMaxJobsLimit", "Nodes_required")
DRAINED = ("draining", "drained", "drain", "maint", "reserved")


class RemoteReplica:
    """One replica as the executor sees it: a job, and a connection once there is one.

    Attributes:
        token: Of its job.
        node_id: Where it runs; None: nowhere yet.
        lines: To it; None: it has taken no connection yet.
        unsent: What it will be told then.
        is_dialled: Whether a connection is being made.
        told_to_end, failure, end_by, is_up, asked_at, well_at: As of `executors.local.process.Process`.
        pending_since: When it was first listed as waiting; None: it was not.
        pending: The last news of that; None: it has begun.
        unlisted: How many lists in a row have not had it.
        renewed, renewed_seen_at: When it renewed its lease, by the file system's clock, and when that was first seen, by ours.
        doubted: Whether it was called unhealthy since Slurm is in doubt.
    """

    def __init__(self, replica_id: ReplicaId, token: str) -> None:
        self.replica_id, self.token = replica_id, token
        self.node_id: NodeId | None = None
        self.lines: Conversation | None = None
        self.unsent: list[str] = []
        self.is_dialled = self.told_to_end = self.is_up = self.doubted = False
        self.failure: ReplicaStartFailed | None = None
        self.end_by = math.inf
        self.asked_at = self.well_at = -math.inf
        self.pending_since: float | None = None
        self.pending: ReplicaPending | None = None
        self.unlisted = 0
        self.renewed: int | None = None
        self.renewed_seen_at = math.inf

    def send(self, line: str) -> None:
        """Say something, now or once it is there."""
        if self.lines is None:
            self.unsent.append(line)
        else:
            self.lines.send(line)


class SlurmExecutor:
    """The `Executor` of one deployment, for a controller of one epoch. To make one raises the fence, and lists the survivors.

    Args:
        folder: Of the deployment, on a file system that all nodes share; see `folder`.
        application: MODULE:APP, which each replica loads for itself.
        spec: What is wanted now: its name, and how often to check health.
        epoch: Of this controller.
        options: Of jobs, and for how long is waited.
        fence: That of this epoch, if its owner has raised it already.

    Attributes:
        fence: The right to act.
        replicas: Those that have not ended, by id; at first those that earlier controllers have left behind.

    Raises:
        FenceError: The epoch is not newer than all before it, or it cannot be raised.
        SlurmError: Slurm does not answer.
    """

    def __init__(
        self,
        folder: Path,
        application: str,
        spec: Callable[[], DeploymentSpec],
        epoch: int,
        options: SlurmOptions,
        fence: Fence | None = None,
    ) -> None:
        self.fence = Fence(folder, epoch) if fence is None else fence
        prepare(folder)
        self._folder, self._spec, self._epoch, self._options = folder, spec, epoch, options
        name = f"rankcore/{folder.parent.name}/{folder.name}"
        self._errands = Errands(folder, application, name, self.fence, self._options)
        self._inbox: deque[Event] = deque()
        self._ended: set[ReplicaId] = set()
        self._announced: AnnounceWorldSize | None = None
        self._wake_at = math.inf
        self._closed: frozenset[NodeId] = frozenset()
        self._nodes: Mapping[NodeId, NodeSeen] = {}
        self.replicas: dict[ReplicaId, RemoteReplica] = {}
        jobs = scheduler.jobs(name)
        self._see_nodes(scheduler.nodes(self._options.partition))
        self._errands.begin(jobs)
        for job in jobs.values():
            self._take_over(job)
        for replica_id, token in unlisted(folder, spec().name, jobs):
            self.replicas[replica_id] = RemoteReplica(replica_id, token)
        self._watch()

    def execute(self, command: Command) -> None:
        """Begin to carry out a command, unless its controller has been replaced."""
        if command.epoch < self._epoch:
            return
        self._epoch = command.epoch
        match command:
            case StartReplica():
                self._start(command)
            case AnnounceWorldSize():
                self._announce(command)
            case WakeAt(at=at):
                self._wake_at = at
            case PublishRoutes():
                pass  # nobody routes requests here
            case QueryReplica():
                self._query(command)
            case StopReplica() | KillReplica():
                self._end_by_command(command)
            case _:
                if (replica := self.replicas.get(command.replica_id)) is not None:
                    replica.send(to_json(command))

    def poll(self) -> Event | None:
        """The next thing that happened; None: nothing has."""
        if not self._inbox:
            for outcome in self._errands.outcomes():
                match outcome:
                    case Listed():
                        self._see(outcome)
                    case Refused(replica_id=replica_id, reason=reason, lived=lived):
                        self._no_job(replica_id, reason, lived)
                    case Claimed(replica_id=replica_id, was_born=was_born):
                        if not was_born and (replica := self.replicas.get(replica_id)) is not None:
                            self._end(replica, "its job never began", was_born=False)
                    case Connected(replica_id=replica_id, connection=connection):
                        self._connected(replica_id, connection)
            for replica in tuple(self.replicas.values()):
                self._hear_from(replica)
            if now() >= self._wake_at:
                self._wake_at = math.inf
                self._inbox.append(ClockAdvanced(at=now()))
        return self._inbox.popleft() if self._inbox else None

    def nodes(self) -> list[NodeId]:
        """Those that jobs may come to, and those where replicas still are: of one that is gone all replicas have ended."""
        return sorted({*self._nodes, *(each.node_id for each in self.replicas.values() if each.node_id is not None)})

    def close_nodes(self, nodes: frozenset[NodeId]) -> None:
        """No job that has not begun comes to these any more."""
        self._closed = nodes
        for replica in self.replicas.values():
            if replica.node_id is None:
                self._errands.ask(Exclude(replica.replica_id, replica.token, tuple(sorted(nodes))))

    def pid_of(self, replica_id: ReplicaId) -> int | None:
        """None: it is a process of another machine."""
        return None

    def survivors(self) -> list[ReplicaId]:
        """Those that earlier controllers have left behind; asked before the first command."""
        return sorted(self.replicas)

    def wait(self, timeout_s: float, files: Iterable[int] = ()) -> None:
        """Return when there may be something to tell, when one of these files can be read, or after that time."""
        if not self._inbox:
            poller = select.poll()
            lines = (each.lines.fileno() for each in self.replicas.values() if each.lines is not None)
            for file in (*files, self._errands.fileno(), *lines):
                poller.register(file, select.POLLIN)
            poller.poll(1000 * max(0.0, min(timeout_s, self._wake_at - now())))

    def close(self) -> None:
        """Let go of everything; jobs live on."""
        self._errands.close()
        for replica in self.replicas.values():
            if replica.lines is not None:
                replica.lines.hang_up()
        self.replicas.clear()

    # -- commands

    def _start(self, command: StartReplica) -> None:
        replica_id, replica = command.replica_id, self.replicas.get(command.replica_id)
        if replica_id in self._ended:
            self._inbox.append(ReplicaStopped(replica_id=replica_id, at=now()))
        elif replica is not None:
            if replica.node_id is not None:
                self._inbox.append(ReplicaPlaced(replica_id=replica_id, node_id=replica.node_id, at=now()))
            elif replica.pending is not None:
                self._inbox.append(attrs.evolve(replica.pending, at=now()))
        elif command.node_id is not None and command.node_id not in self._nodes:
            reason = f"there is no node {command.node_id!r}: there are {', '.join(sorted(self._nodes))}"
            self._inbox.append(ReplicaStartFailed(replica_id=replica_id, reason=reason, at=now()))
        else:
            replica = self.replicas[replica_id] = RemoteReplica(replica_id, new_token())
            if self._announced is not None:
                replica.send(to_json(self._announced))
            self._watch()
            self._errands.ask(Submit(command, replica.token, tuple(sorted(self._closed))))

    def _announce(self, command: AnnounceWorldSize) -> None:
        newest = self._announced
        if newest is None or (command.epoch, command.revision) > (newest.epoch, newest.revision):
            self._announced = command
            for replica in self.replicas.values():
                replica.send(to_json(command))

    def _query(self, command: QueryReplica) -> None:
        replica = self.replicas.get(command.replica_id)
        if replica is None:
            self._inbox.append(ReplicaMissing(replica_id=command.replica_id, at=now()))
        else:
            replica.send(to_json(command))

    def _end_by_command(self, command: StopReplica | KillReplica) -> None:
        replica = self.replicas.get(command.replica_id)
        if replica is None:
            self._inbox.append(ReplicaStopped(replica_id=command.replica_id, at=now()))
            return
        replica.told_to_end = True
        if isinstance(command, KillReplica) or replica.lines is None:  # who does not listen yet has nothing to finish
            self._kill(replica)
        else:
            replica.end_by = min(replica.end_by, now() + command.timeout_s + STOP_MARGIN_S)
        replica.send(to_json(command))

    def _kill(self, replica: RemoteReplica) -> None:
        replica.end_by = math.inf
        self._errands.ask(EndJob(replica.replica_id, replica.token))

    # -- what Slurm says

    def _take_over(self, job: Job) -> None:
        """A job of an earlier controller: who is not born yet never will be, since it would end at its birth anyway."""
        found, serial = standing(job, self._nodes), serial_of(job.comment.replica)
        if found is JobStanding.OVER:
            return
        if claim(self._folder, serial):
            self._errands.ask(EndJob(job.comment.replica, job.comment.token))
        else:
            replica = self.replicas[job.comment.replica] = RemoteReplica(job.comment.replica, job.comment.token)
            replica.node_id = job.node_id or None

    def _see(self, listed: Listed) -> None:
        self._see_nodes(listed.nodes)
        for replica in tuple(self.replicas.values()):
            job = listed.jobs.get(replica.token)
            found = standing(job, self._nodes)
            replica.unlisted = replica.unlisted + 1 if found is JobStanding.UNKNOWN else 0
            match found:
                case JobStanding.WAITING:
                    assert job is not None
                    self._is_waiting(replica, job)
                case JobStanding.RUNNING:
                    assert job is not None
                    self._is_running(replica, job)
                case JobStanding.CLOSING:
                    pass
                case JobStanding.OVER | JobStanding.DOUBTFUL | JobStanding.UNKNOWN:
                    if replica.replica_id not in listed.renewed or replica.token in listed.unsure:
                        continue
                    if found is JobStanding.UNKNOWN and replica.unlisted < UNLISTED_MAX:
                        continue
                    reason = f"Slurm has forgotten its job: {found}" if job is None else f"{job.state}: {job.reason}"
                    self._may_have_ended(replica, found, listed.renewed[replica.replica_id], reason)
        self._watch()

    def _is_waiting(self, replica: RemoteReplica, job: Job) -> None:
        if replica.node_id is not None:
            return  # it has been there before: its end, or its second life, is told by its birth record
        if replica.pending_since is None:
            replica.pending_since = now()
        if replica.pending is None or replica.pending.reason != job.reason:
            is_full = job.reason.startswith(NO_ROOM)
            replica.pending = ReplicaPending(replica_id=replica.replica_id, reason=job.reason, no_room=is_full, at=now())
            self._inbox.append(replica.pending)
        if now() > replica.pending_since + self._options.pending_timeout_s and replica.failure is None:
            reason = f"no room for {self._options.pending_timeout_s:g} s: {job.reason}"
            replica.failure = ReplicaStartFailed(replica_id=replica.replica_id, reason=reason, at=now())
            self._kill(replica)

    def _is_running(self, replica: RemoteReplica, job: Job) -> None:
        replica.pending, replica.doubted = None, False
        if replica.node_id is None:
            replica.node_id = job.node_id
            self._inbox.append(ReplicaPlaced(replica_id=replica.replica_id, node_id=job.node_id, at=now()))
        if replica.lines is None and not replica.is_dialled:
            replica.is_dialled = True
            self._errands.ask(Dial(replica.replica_id))

    def _may_have_ended(self, replica: RemoteReplica, found: JobStanding, renewed: int | None, reason: str) -> None:
        if found is JobStanding.OVER and renewed is not None:
            self._end(replica, reason, was_born=True)
        elif found is not JobStanding.DOUBTFUL and renewed is None:
            self._errands.ask(Claim(replica.replica_id))
        elif not replica.doubted or renewed != replica.renewed:
            replica.renewed, replica.renewed_seen_at = renewed, now()
            if not replica.doubted:
                replica.doubted = True
                self._inbox.append(ReplicaUnhealthy(replica_id=replica.replica_id, reason=reason, at=now()))
        elif now() > replica.renewed_seen_at + self._options.lease_s + MARGIN_S:
            if renewed is None:
                self._errands.ask(Claim(replica.replica_id))
            else:
                self._end(replica, f"{reason}; its lease has run out", was_born=True)

    def _no_job(self, replica_id: ReplicaId, reason: str, lived: bool) -> None:
        replica = self.replicas.get(replica_id)
        if replica is None:
            return
        if lived or replica.told_to_end:
            replica.told_to_end, replica.failure = True, None
        else:
            replica.failure = ReplicaStartFailed(replica_id=replica_id, reason=reason, at=now())
        self._end(replica, reason, was_born=lived)

    def _see_nodes(self, found: Mapping[NodeId, NodeSeen]) -> None:
        for node_id, node in found.items():
            before = self._nodes.get(node_id)
            is_drained, was = node.state in DRAINED, before is not None and before.state in DRAINED
            if is_drained and not was:
                self._inbox.append(NodeDrainRequested(node_id=node_id, reason=node.reason or "drain", at=now()))
            elif was and not is_drained and node.is_responding:
                self._inbox.append(NodeUncordoned(node_id=node_id, at=now()))
        self._nodes = found

    def _watch(self) -> None:
        self._errands.watched = {each.replica_id: each.token for each in self.replicas.values()}

    # -- what replicas say

    def _connected(self, replica_id: ReplicaId, connection: socket.socket | None) -> None:
        replica = self.replicas.get(replica_id)
        if replica is None:
            if connection is not None:
                connection.close()
            return
        replica.is_dialled = False
        if connection is not None:
            replica.lines = Conversation(connection)
            replica.asked_at = replica.well_at = -math.inf
            unsent, replica.unsent = replica.unsent, []
            for line in unsent:
                replica.lines.send(line)

    def _hear_from(self, replica: RemoteReplica) -> None:
        if now() >= replica.end_by:
            self._kill(replica)
        if replica.lines is None:
            return
        for line in replica.lines.hear():
            self._hear(replica, line)
        replica.lines.flush()
        if replica.lines.is_over:  # a suspicion: Slurm says what has become of it, or it is dialled again
            replica.lines.hang_up()
            replica.lines = None
        elif replica.is_up and not replica.told_to_end:
            self._check_health(replica, replica.lines)

    def _hear(self, replica: RemoteReplica, line: str) -> None:
        if line == WELL:
            replica.well_at = now()
            return
        if line == NOTICE:
            deadline_at = now() + self._options.notice_s
            self._inbox.append(ReplaceRequested(replica_ids=(replica.replica_id,), deadline_at=deadline_at, at=now()))
            return
        try:
            event: Event = attrs.evolve(from_json(line, Event), at=now())
        except CodecError as error:
            reason = f"it has said what is no event: {error}"
            event = ReplicaUnhealthy(replica_id=replica.replica_id, reason=reason, at=now())
        if isinstance(event, ReplicaStartFailed):
            replica.failure = event  # final: to be told when it is gone
            self._kill(replica)
            return
        if isinstance(event, ReplicaPrepared | ReplicaReady) or (
            isinstance(event, ReplicaReported) and (event.ready or event.prepared)
        ):
            replica.is_up = True
        self._inbox.append(event)

    def _check_health(self, replica: RemoteReplica, lines: Conversation) -> None:
        spec = self._spec()
        answered = replica.well_at >= replica.asked_at
        if answered and now() >= replica.asked_at + spec.health_check_period_s:
            replica.asked_at = now()
            lines.send(ASK_HEALTH)
            lines.send(f"{ASK_READY} {spec.health_check_timeout_s}")
        elif not answered and now() >= replica.asked_at + spec.health_check_timeout_s:
            replica.well_at = now()  # told once, and asked again
            reason = f"it has not answered for {spec.health_check_timeout_s:g} s"
            self._inbox.append(ReplicaUnhealthy(replica_id=replica.replica_id, reason=reason, at=now()))

    # -- ends

    def _end(self, replica: RemoteReplica, reason: str, *, was_born: bool) -> None:
        replica_id = replica.replica_id
        if replica.lines is not None:
            for line in replica.lines.hear():  # what it said before counts
                self._hear(replica, line)
            replica.lines.hang_up()
        del self.replicas[replica_id]
        self._ended.add(replica_id)
        forget(self._folder, serial_of(replica_id))
        if replica.failure is not None:
            self._inbox.append(replica.failure)
        elif replica.told_to_end:
            self._inbox.append(ReplicaStopped(replica_id=replica_id, at=now()))
        elif not was_born:
            self._inbox.append(ReplicaStartFailed(replica_id=replica_id, reason=reason, at=now()))
        else:
            self._inbox.append(ReplicaDied(replica_id=replica_id, reason=reason, at=now()))
