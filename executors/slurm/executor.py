"""The executor: how a replica begins and ends as a job, and what is made of what Slurm and leases say of it.

`folder` says when an end may be told. Times of events are those at which they were heard, on the controller's clock; a
replica's own clock decides nothing but the end of its lease.
"""

import math
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import attrs

from executors.line_executor import LineExecutor, LineReplica, now
from executors.run.fence import Fence, FenceError
from executors.slurm import scheduler
from executors.slurm.errands import EndJob, Errands, Exclude, Listed, Refused, Submit, new_token
from executors.slurm.folder import (
    MARGIN_S,
    NOTICE,
    claim,
    forget,
    identity,
    listens_at,
    prepare,
    serial_of,
    unlisted,
)
from executors.slurm.options import SlurmOptions
from executors.slurm.scheduler import Job, NodeSeen
from executors.slurm.standing import JobStanding, standing
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica
from rankcore.events import (
    Event,
    NodeDrainRequested,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaStartFailed,
    ReplicaUnhealthy,
)
from rankcore.values import NodeId, ReplicaId

UNLISTED_MAX = 2
"""Lists without a job that was there, before it is taken for one that Slurm has forgotten."""
UNDECIDED = "None"
"""Slurm's reason of a job that its scheduler has not looked at yet."""
COMES = ("BeginTime", "Cleaning", "Prolog")
"""Its reasons of jobs whose place is made ready; with any other, of which each release has more, there is none to be had."""
DRAINED = ("draining", "drained", "drain", "maint", "reserved")


class JobOfReplica(LineReplica):
    """One replica as the executor sees it: a job, and a connection once there is one.

    Attributes:
        token: Of its job.
        pending_since: When it was first listed as waiting; None: it was not.
        pending: The last news of that; None: it has begun.
        unlisted: How many lists in a row have not had it.
        renewed, renewed_seen_at: When it renewed its lease, by the file system's clock, and when that was first seen, by ours.
        doubted: Whether it was called unhealthy since Slurm is in doubt.
    """

    def __init__(self, replica_id: ReplicaId, token: str) -> None:
        super().__init__(replica_id)
        self.token = token
        self.doubted = False
        self.pending_since: float | None = None
        self.pending: ReplicaPending | None = None
        self.unlisted = 0
        self.renewed: int | None = None
        self.renewed_seen_at = math.inf


class SlurmExecutor(LineExecutor[JobOfReplica]):
    """The `Executor` of one deployment, for a controller of one epoch. To make one raises the fence, and lists the survivors.

    Args:
        folder: Of the deployment, on a file system that all nodes share; see `folder`.
        application, spec, epoch, fence: As of `LineExecutor`.
        options: Of jobs, and for how long is waited.

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
        super().__init__(folder, application, spec, epoch, fence)
        prepare(folder)
        self._options = options
        self._closed: frozenset[NodeId] = frozenset()
        self._nodes: Mapping[NodeId, NodeSeen] = {}
        name = f"rankcore/{folder.parent.name}/{folder.name}"
        jobs, forgotten = scheduler.jobs(name), []
        mine = identity(folder)
        self._see_nodes(scheduler.nodes(options.partition))
        self._errands = Errands(folder, application, name, self.fence, options)
        for job in jobs.values():
            if job.comment.folder == mine:  # else it is of a deployment of that name in another folder
                self._take_over(job)
        for replica_id, token in unlisted(folder, spec().name, jobs):
            self.replicas[replica_id] = JobOfReplica(replica_id, token)
            forgotten.append(token)
        self._watch()
        self._errands.begin(jobs, forgotten)

    def nodes(self) -> list[NodeId]:
        """Those that jobs may come to, and those where replicas still are: of one that is gone all replicas have ended."""
        return sorted({*self._nodes, *(each.node_id for each in self.replicas.values() if each.node_id is not None)})

    def close_nodes(self, nodes: frozenset[NodeId]) -> None:
        """No job that has not begun comes to these any more."""
        self._closed = nodes
        for replica in self.replicas.values():
            if replica.node_id is None:
                self._errands.ask(Exclude(replica.replica_id, replica.token, tuple(sorted(nodes))))

    def close(self) -> None:
        """Let go of everything; jobs live on."""
        self._errands.close()
        super().close()

    def kill(self, replica: JobOfReplica) -> None:
        """End a job and its processes."""
        replica.end_by = math.inf
        self._errands.ask(EndJob(replica.replica_id, replica.token))

    def _begin(self, command: StartReplica) -> JobOfReplica | None:
        replica = JobOfReplica(command.replica_id, new_token())
        self._errands.ask(Submit(command, replica.token, tuple(sorted(self._closed))))
        return replica

    def _tell_place(self, replica: JobOfReplica) -> None:
        super()._tell_place(replica)
        if replica.pending is not None:
            self.tell(attrs.evolve(replica.pending, at=now()))

    def _files(self) -> Iterator[int]:
        yield from super()._files()
        yield self._errands.fileno()

    def _look(self) -> None:
        for outcome in self._errands.outcomes():
            match outcome:
                case Listed():
                    self._see(outcome)
                case Refused(replica_id=replica_id, reason=reason):
                    if (replica := self.replicas.get(replica_id)) is not None:
                        self._end(replica, reason, was_born=False)
        self._watch()

    # -- what Slurm says

    def _take_over(self, job: Job) -> None:
        """A job of an earlier controller: who is not born yet never will be, since it would end at its birth anyway."""
        found, serial = standing(job, self._nodes), serial_of(job.comment.replica)
        if found is JobStanding.OVER:
            return forget(self.folder, serial)  # else it is a survivor once Slurm has forgotten it
        if claim(self.folder, serial):
            forget(self.folder, serial)
            self._errands.ask(EndJob(job.comment.replica, job.comment.token))
        else:
            replica = self.replicas[job.comment.replica] = JobOfReplica(job.comment.replica, job.comment.token)
            replica.node_id = job.node_id or None

    def _see(self, listed: Listed) -> None:
        self._see_nodes(listed.nodes)
        for replica in tuple(self.replicas.values()):
            job = listed.jobs.get(replica.token)
            found = standing(job, self._nodes)
            is_missed = found is JobStanding.UNKNOWN and replica.token not in listed.unsure
            replica.unlisted = replica.unlisted + 1 if is_missed else 0
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

    def _is_waiting(self, replica: JobOfReplica, job: Job) -> None:
        if replica.node_id is not None:
            return  # it has been there before: its end, or its second life, is told by its birth record
        if replica.pending_since is None:
            replica.pending_since = now()
        reason = f"Slurm says {job.reason}"
        if job.reason != UNDECIDED and (replica.pending is None or replica.pending.reason != reason):
            no_room = job.reason not in COMES
            replica.pending = ReplicaPending(replica_id=replica.replica_id, reason=reason, no_room=no_room, at=now())
            self.tell(replica.pending)
        if now() > replica.pending_since + self._options.pending_timeout_s and replica.failure is None:
            reason = f"no room for {self._options.pending_timeout_s:g} s: {job.reason}"
            replica.failure = ReplicaStartFailed(replica_id=replica.replica_id, reason=reason, at=now())
            self.kill(replica)

    def _is_running(self, replica: JobOfReplica, job: Job) -> None:
        replica.pending, replica.doubted = None, False
        if replica.node_id is None:
            replica.node_id = job.node_id
            self.tell(ReplicaPlaced(replica_id=replica.replica_id, node_id=job.node_id, at=now()))
        if not replica.is_connected:
            self._dial(replica)

    def _may_have_ended(self, replica: JobOfReplica, found: JobStanding, renewed: int | None, reason: str) -> None:
        if found is JobStanding.OVER and renewed is not None:
            self._end(replica, reason, was_born=True)
        elif found is not JobStanding.DOUBTFUL and renewed is None:
            self._never_born(replica)
        elif not replica.doubted or renewed != replica.renewed:
            replica.renewed, replica.renewed_seen_at = renewed, now()
            if not replica.doubted:
                replica.doubted = True
                self.tell(ReplicaUnhealthy(replica_id=replica.replica_id, reason=reason, at=now()))
        elif now() > replica.renewed_seen_at + self._options.lease_s + MARGIN_S:
            if renewed is None:
                self._never_born(replica)
            else:
                self._end(replica, f"{reason}; its lease has run out", was_born=True)

    def _never_born(self, replica: JobOfReplica) -> None:
        """Make sure of that; who was faster is listed, or listens."""
        with suppress(FenceError), self.fence.upheld():
            if claim(self.folder, serial_of(replica.replica_id)):
                self._end(replica, "its job never began", was_born=False)

    def _see_nodes(self, found: Mapping[NodeId, NodeSeen]) -> None:
        for node_id, node in found.items():
            before = self._nodes.get(node_id)
            is_drained, was = node.state in DRAINED, before is not None and before.state in DRAINED
            if is_drained and not was:
                self.tell(NodeDrainRequested(node_id=node_id, reason=node.reason or "drain", at=now()))
            elif was and not is_drained and node.is_responding:
                self.tell(NodeUncordoned(node_id=node_id, at=now()))
        self._nodes = found

    def _watch(self) -> None:
        self._errands.watched = {each.replica_id: each.token for each in self.replicas.values()}

    # -- what replicas say

    def _dial(self, replica: JobOfReplica) -> None:
        """Begin to connect to it, if it says where it listens; what comes of that is heard like all else."""
        if (found := listens_at(self.folder, serial_of(replica.replica_id))) is not None:
            address, secret = found
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(address)
            replica.connect(connection, f"{secret}\n")
            replica.asked_at = replica.well_at = -math.inf

    def _converse(self, replica: JobOfReplica) -> None:
        super()._converse(replica)
        if replica.is_over:  # a suspicion: Slurm says what has become of it, or it is dialled again
            replica.hang_up()
            self._welcome(replica)

    def _hear(self, replica: JobOfReplica, line: str) -> None:
        if line == NOTICE:
            deadline_at = now() + self._options.notice_s
            self.tell(ReplaceRequested(replica_ids=(replica.replica_id,), deadline_at=deadline_at, at=now()))
        else:
            super()._hear(replica, line)

    def _dated(self, event: Event) -> Event:
        return attrs.evolve(event, at=now())

    def _end(self, replica: JobOfReplica, reason: str, *, was_born: bool = True) -> None:
        super()._converse(replica)  # what it said before counts
        replica.hang_up()
        forget(self.folder, serial_of(replica.replica_id))
        super()._end(replica, reason, was_born=was_born)
