"""The bench of `rankcore conform local`: real processes, which do what files in a folder say."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs

from executors.local.executor import LocalExecutor
from executors.local.places import Address, survivors
from executors.obedient_replicas import ObedientReplicas, ask
from rankcore import DeploymentSpec
from rankcore.events import NodeChanged
from rankcore.testing.conformance.system import SelfReport
from rankcore.values import NodeId, ReplicaId

ROOM = 1000


class LocalBench(ObedientReplicas):
    """Each controller is a `LocalExecutor` of this process; a crash of one takes its connections away."""

    patience_s = 300.0
    name = "conformance"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = Path(tempfile.mkdtemp(prefix="rcl-", dir="/tmp"))  # sockets have short paths
        self.there_are = ["a", "b"]
        self.executors: list[LocalExecutor] = []
        self.spec = DeploymentSpec(name=self.name, target_replicas=0, health_check_period_s=0.1)
        self.hanging: set[ReplicaId] = set()

    def open(self, epoch: int) -> LocalExecutor:
        """A controller begins."""
        executor = self.executor(self.application, lambda: self.spec, epoch)
        for node in self.there_are:
            executor.tell(NodeChanged(node_id=node, capacity=ROOM, at=self.now()))
        self.executors.append(executor)
        return executor

    def executor(self, application: str, spec: Callable[[], DeploymentSpec], epoch: int) -> LocalExecutor:
        """That of a controller. A bench of another executor that is made of this one makes another."""
        return LocalExecutor(self.folder, application, spec, epoch, self.there_are)

    def survivors(self) -> list[ReplicaId]:
        """Those that it finds."""
        return sorted(self.executors[-1].replicas)

    def crash(self, executor: LocalExecutor) -> None:
        """Let go of what it has."""
        self.executors.remove(executor)
        executor.close()

    def now(self) -> float:
        """On the clock of all processes."""
        return time.monotonic()

    def advance(self) -> None:
        """Wait a little, or for news."""
        self.executors[-1].wait(0.02) if self.executors else time.sleep(0.02)

    def nodes(self) -> tuple[NodeId, ...]:
        """Two, until one is lost."""
        return tuple(self.there_are)

    def room(self, node_id: NodeId) -> int:
        """More than any case needs."""
        return ROOM

    def replicas(self) -> list[SelfReport]:
        """Ask all at their sockets."""
        found = []
        for address, connection in survivors(self.folder, self.name):
            if address.replica_id in self.hanging:
                connection.close()
            elif (report := ask(connection)) is not None:
                found.append(report)
        return found

    def kill(self, replica_id: ReplicaId) -> None:
        """By its number."""
        (pid,) = [address.pid for address in self.addresses() if address.replica_id == replica_id]
        os.kill(pid, signal.SIGKILL)

    def hang(self, replica_id: ReplicaId) -> None:
        """Stop it where it is; from now on it is soon suspected."""
        (pid,) = [address.pid for address in self.addresses() if address.replica_id == replica_id]
        self.hanging.add(replica_id)
        os.kill(pid, signal.SIGSTOP)
        self.spec = attrs.evolve(self.spec, health_check_timeout_s=1.0)

    def lose_node(self, node_id: NodeId) -> None:
        """With all that is there."""
        self.there_are.remove(node_id)
        for address in self.addresses():
            if address.node_id == node_id:
                os.kill(address.pid, signal.SIGKILL)

    def addresses(self) -> list[Address]:
        """Of all that have a socket."""
        return [Address.of(path, self.name) for path in self.folder.glob("*@*")]

    def __enter__(self) -> "LocalBench":
        return self

    def __exit__(self, *_: object) -> None:
        for executor in self.executors:
            for process in executor.replicas.values():
                process.kill()
            while executor.replicas:
                executor.poll()
                executor.wait(0.01)
        for address in self.addresses():  # whom a case has left behind that failed
            with suppress(ProcessLookupError):
                os.kill(address.pid, signal.SIGKILL)
        shutil.rmtree(self.folder)
