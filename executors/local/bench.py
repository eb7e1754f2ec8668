"""The bench of `rankcore conform local`: real processes, which do what files in a folder say."""

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from executors.line_bench import LineBench
from executors.local.executor import LocalExecutor
from executors.local.places import Address, survivors
from rankcore import DeploymentSpec
from rankcore.events import NodeChanged
from rankcore.values import NodeId, ReplicaId

ROOM = 1000


class LocalBench(LineBench[LocalExecutor]):
    """This machine, divided into two nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ("a", "b"))
        self.folder = Path(tempfile.mkdtemp(prefix="rcl-", dir="/tmp"))  # sockets have short paths

    def open(self, epoch: int) -> LocalExecutor:
        """A controller begins, which knows what its nodes hold."""
        executor = super().open(epoch)
        for node in self.there_are:
            executor.tell(NodeChanged(node_id=node, capacity=ROOM, at=self.now()))
        return executor

    def executor(self, application: str, spec: Callable[[], DeploymentSpec], epoch: int) -> LocalExecutor:
        """That of a controller. A bench of another executor that is made of this one makes another."""
        return LocalExecutor(self.folder, application, spec, epoch, self.there_are)

    def room(self, node_id: NodeId) -> int:
        """More than any case needs."""
        return ROOM

    def connections(self) -> Iterator[tuple[ReplicaId, socket.socket]]:
        """By their sockets."""
        return ((address.replica_id, connection) for address, connection in survivors(self.folder, self.name))

    def send(self, replica_id: ReplicaId, number: signal.Signals) -> None:
        """By the number of its process."""
        (pid,) = [address.pid for address in self.addresses() if address.replica_id == replica_id]
        os.kill(pid, number)

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
