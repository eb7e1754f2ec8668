"""The bench of `rankcore conform slurm`: jobs of the Slurm that is here, which do what files in a shared folder say.

It does what any user may: it submits, lists, signals and cancels jobs of its own, and touches nobody else's. So no node is ever
taken away; whose cluster it is may do that, and overrides `lose_node`.
"""

import itertools
import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from executors.obedient_replicas import ObedientReplicas, ask
from executors.slurm import scheduler
from executors.slurm.executor import DRAINED, SlurmExecutor
from executors.slurm.folder import AT, BORN, ENDED, listens_at, serial_of
from executors.slurm.options import SlurmError, SlurmOptions
from executors.slurm.scheduler import Job
from executors.slurm.standing import JobStanding, standing
from rankcore import DeploymentSpec
from rankcore.testing.conformance.running import NotTriedError
from rankcore.testing.conformance.system import SelfReport
from rankcore.values import NodeId, ReplicaId

NODES_MIN, ROOM_MIN = 2, 6
"""What the kit needs: nodes, and replicas that each has room for."""
END_S = 120.0
NUMBERS = itertools.count()


class SlurmBench(ObedientReplicas):
    """Each controller is a `SlurmExecutor` of this process; a crash of one takes its thread and its connections away.

    Args:
        shared: A folder of this user that login and compute nodes share. What is made there is gone at the end.
        options: As of the executor.

    Raises:
        SlurmError: The cluster is too small, or does not answer.
    """

    patience_s = 300.0
    name = "conformance"

    def __init__(self, shared: Path, options: SlurmOptions) -> None:
        self.namespace = f"conform{os.getpid()}.{next(NUMBERS)}"
        self.options, self.there_are = options, nodes_with_room(options)
        (shared / self.namespace).mkdir(mode=0o700)
        super().__init__(shared / self.namespace)
        self.folder = shared / self.namespace / self.name
        self.folder.mkdir(mode=0o700)
        self.executors: list[SlurmExecutor] = []
        self._found: Sequence[ReplicaId] = ()
        self._hanging: set[str] = set()
        self.spec = DeploymentSpec(name=self.name, target_replicas=0, health_check_period_s=0.1)

    def open(self, epoch: int) -> SlurmExecutor:
        """A controller begins."""
        executor = SlurmExecutor(self.folder, self.application, lambda: self.spec, epoch, self.options)
        self.executors.append(executor)
        self._found = executor.survivors()
        return executor

    def survivors(self) -> Sequence[ReplicaId]:
        """Those that it has found."""
        return self._found

    def crash(self, executor: SlurmExecutor) -> None:
        """Let go of what it has."""
        self.executors.remove(executor)
        executor.close()

    def now(self) -> float:
        """On the clock of all controllers, which are in this process."""
        return time.monotonic()

    def advance(self) -> None:
        """Wait a little, or for news."""
        self.executors[-1].wait(0.02) if self.executors else time.sleep(0.02)

    def nodes(self) -> tuple[NodeId, ...]:
        """Those with room, until one is lost."""
        return tuple(self.there_are)

    def replicas(self) -> list[SelfReport]:
        """Ask all where they listen, as a controller does."""
        found = []
        for serial in self.serials():
            if serial in self._hanging or (listens := listens_at(self.folder, serial)) is None:
                continue
            address, secret = listens
            try:
                connection = socket.create_connection(address, 10.0)
                connection.sendall(f"{secret}\n".encode())
            except OSError:
                continue
            if (report := ask(connection)) is not None:
                found.append(report)
        return found

    def serials(self) -> list[str]:
        """Of those that listen, or have."""
        return [path.name for path in (self.folder / AT).glob("*[0-9]")]

    def kill(self, replica_id: ReplicaId) -> None:
        """By a signal to its job, which is as sudden wherever it is."""
        self._signal(replica_id, "KILL")

    def hang(self, replica_id: ReplicaId) -> None:
        """Stop it where it is; from now on it is soon suspected."""
        self._hanging.add(serial_of(replica_id))
        self._signal(replica_id, "STOP")
        self.spec = attrs.evolve(self.spec, health_check_timeout_s=1.0)

    def lose_node(self, node_id: NodeId) -> None:
        """No user may.

        Raises:
            NotTriedError: Always.
        """
        raise NotTriedError("no node is taken away: only who runs the cluster may do that")

    def _signal(self, replica_id: ReplicaId, name: str) -> None:
        for job in self.jobs():
            if job.comment.replica == replica_id:
                scheduler.signal(job.job_id, name)

    def jobs(self) -> list[Job]:
        """Those of this bench that are not over."""
        listed = scheduler.jobs(f"rankcore/{self.namespace}/{self.name}").values()
        nodes = scheduler.nodes(self.options.partition)
        return [job for job in listed if standing(job, nodes) is not JobStanding.OVER]

    def __enter__(self) -> "SlurmBench":
        return self

    def __exit__(self, *_: object) -> None:
        for executor in self.executors:
            executor.close()
        for born in (self.folder / BORN).glob("*[0-9]"):  # an order that reaches whom Slurm has forgotten, too
            with suppress(OSError):
                (self.folder / ENDED / born.name).touch()
        end_at = time.monotonic() + END_S
        while jobs := self.jobs():
            if time.monotonic() > end_at:
                raise SlurmError(f"jobs have not ended within {END_S:g} s: {', '.join(job.job_id for job in jobs)}")
            for job in jobs:
                scheduler.end(job.job_id)
            time.sleep(0.1)
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def nodes_with_room(options: SlurmOptions) -> list[NodeId]:
    """The nodes that can hold what the kit starts there.

    Raises:
        SlurmError: There are too few.
    """
    seen = scheduler.nodes(options.partition)
    found = sorted(_with_room(seen, options))
    if len(found) < NODES_MIN:
        where = f"partition {options.partition!r}" if options.partition else "Slurm"
        raise SlurmError(
            f"the kit needs {NODES_MIN} nodes that answer, with room for {ROOM_MIN} replicas each "
            f"(with option cpus={options.cpus} {ROOM_MIN * options.cpus} processors), "
            f"found of {where} {', '.join(found) or 'none'} of {len(seen)}"
        )
    return found


def _with_room(seen: "dict[NodeId, scheduler.NodeSeen]", options: SlurmOptions) -> Iterator[NodeId]:
    for node_id, node in seen.items():
        if node.is_responding and node.state not in DRAINED and node.cpus >= ROOM_MIN * options.cpus:
            yield node_id
