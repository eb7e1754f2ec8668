"""The bench of `rankcore conform slurm`: jobs of the Slurm that is here, which do what files in a shared folder say.

It does what any user may: it submits, lists, signals and cancels jobs of its own, and touches nobody else's. So no node is ever
taken away; whose cluster it is may do that, and overrides `lose_node`.
"""

import itertools
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from executors.line_bench import LineBench
from executors.slurm import scheduler
from executors.slurm.executor import DRAINED, SlurmExecutor
from executors.slurm.folder import AT, BORN, ENDED, listens_at, serial_of
from executors.slurm.options import SlurmError, SlurmOptions
from executors.slurm.scheduler import Job
from executors.slurm.standing import STANDINGS, JobStanding
from rankcore import DeploymentSpec
from rankcore.testing.conformance.running import NotTriedError
from rankcore.values import NodeId, ReplicaId

NODES_MIN, ROOM_MIN = 2, 6
"""What the kit needs: nodes, and replicas that each has room for."""
END_S = 120.0
NUMBERS = itertools.count()


class SlurmBench(LineBench[SlurmExecutor]):
    """Jobs of one user on a cluster.

    Args:
        shared: A folder of this user that login and compute nodes share. What is made there is gone at the end.
        options: As of the executor.

    Raises:
        SlurmError: The cluster is too small, or does not answer.
    """

    def __init__(self, shared: Path, options: SlurmOptions) -> None:
        self.namespace, self.options = f"conform{os.getpid()}.{next(NUMBERS)}", options
        nodes = nodes_with_room(options)
        (shared / self.namespace).mkdir(mode=0o700)
        super().__init__(shared / self.namespace, nodes)
        self.folder = shared / self.namespace / self.name
        self.folder.mkdir(mode=0o700)

    def executor(self, application: str, spec: Callable[[], DeploymentSpec], epoch: int) -> SlurmExecutor:
        """That of a controller."""
        return SlurmExecutor(self.folder, application, spec, epoch, self.options)

    def connections(self) -> Iterator[tuple[ReplicaId, socket.socket]]:
        """By what they have written in the folder."""
        for serial in self.serials():
            with suppress(OSError):
                if (listens := listens_at(self.folder, serial)) is not None:
                    address, secret = listens
                    connection = socket.create_connection(address, 10.0)
                    connection.sendall(f"{secret}\n".encode())
                    yield f"{self.name}#{serial}", connection

    def serials(self) -> list[str]:
        """Of those that listen, or have."""
        return [path.name for path in (self.folder / AT).glob("*[0-9]")]

    def send(self, replica_id: ReplicaId, number: signal.Signals) -> None:
        """By Slurm, which reaches it wherever it is."""
        for job in self.jobs():
            if job.comment.replica == replica_id:
                scheduler.send(job.job_id, number)

    def kill(self, replica_id: ReplicaId) -> None:
        """By a signal, which Slurm hands on by and by: until nobody listens there any more."""
        super().kill(replica_id)
        end_at = time.monotonic() + END_S
        while time.monotonic() < end_at and self._listens(serial_of(replica_id)):
            time.sleep(0.02)

    def _listens(self, serial: str) -> bool:
        if (listens := listens_at(self.folder, serial)) is None:
            return False
        try:
            socket.create_connection(listens[0], 10.0).close()
        except OSError:
            return False
        return True

    def lose_node(self, node_id: NodeId) -> None:
        """No user may.

        Raises:
            NotTriedError: Always.
        """
        raise NotTriedError("no node is taken away: only who runs the cluster may do that")

    def jobs(self) -> list[Job]:
        """Those of this bench that Slurm holds for alive; of others, whose node it has lost, the folder ends the processes."""
        listed = scheduler.jobs(f"rankcore/{self.namespace}/{self.name}").values()
        return [job for job in listed if STANDINGS.get(job.state) not in (JobStanding.OVER, JobStanding.DOUBTFUL)]

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
