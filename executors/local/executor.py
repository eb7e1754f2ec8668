"""The executor: how a replica begins as a process of this machine, and that its end is the end of the process. No threads."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from executors.line_executor import LineExecutor, now
from executors.local.places import sweep
from executors.local.process import Process, found, spawn
from executors.run.fence import Fence, FenceError
from rankcore import DeploymentSpec
from rankcore.commands import KillReplica, QueryReplica, StartReplica, StopReplica
from rankcore.events import ReplicaPending, ReplicaStartFailed
from rankcore.replica.messages import ReplicaChange
from rankcore.values import NodeId, ReplicaId

ONE_NODE = ("local",)
NO_PLACE = "all nodes are cordoned"


class LocalExecutor(LineExecutor[Process]):
    """The `Executor` of one deployment, for a controller of one epoch. To make one raises the fence.

    Once a newer controller has raised its own, this one signals nobody and removes nothing. It does not say so: who uses it
    finds out at `fence`.

    Args:
        folder: Of the deployment; see `places`.
        application, spec, epoch, fence: As of `LineExecutor`.
        nodes: Names of the nodes that this machine is divided into. What they hold, their owner tells the machine.

    Raises:
        FenceError: The epoch is not newer than all before it, or it cannot be raised.
    """

    def __init__(
        self,
        folder: Path,
        application: str,
        spec: Callable[[], DeploymentSpec],
        epoch: int,
        nodes: Sequence[str] = ONE_NODE,
        fence: Fence | None = None,
    ) -> None:
        super().__init__(folder, application, spec, epoch, fence)
        self._nodes = nodes
        self._closed: Collection[NodeId] = ()
        self._waiting: dict[ReplicaId, StartReplica] = {}
        self.replicas = {each.replica_id: each for each in found(folder, spec().name)}
        with suppress(FenceError), self.fence.upheld():  # else a newer one's replicas would lose theirs
            sweep(folder, (each.address for each in self.replicas.values()))

    def close_nodes(self, nodes: Collection[NodeId]) -> None:
        """Nothing new comes to these any more, and to all others it may; who has found no place until now has one there."""
        self._closed = nodes
        waiting, self._waiting = self._waiting, {}
        for command in waiting.values():
            self._start(command)

    def nodes(self) -> tuple[NodeId, ...]:
        """The nodes that this machine is divided into."""
        return tuple(self._nodes)

    def pid_of(self, replica_id: ReplicaId) -> int | None:
        """The number of its process; None: there is none."""
        process = self.replicas.get(replica_id)
        return process.address.pid if process is not None else None

    def kill(self, replica: Process) -> None:
        """End a process at once, unless it may be a newer controller's. Nothing else here signals."""
        with suppress(FenceError), self.fence.upheld():
            replica.kill()

    def close(self) -> None:
        """Let go of everything; processes live on."""
        for process in self.replicas.values():
            process.close()
        super().close()

    def spawn(self, command: StartReplica, node_id: NodeId) -> Process:
        """Start a replica's process; who makes another executor of this one may start it otherwise.

        Raises:
            OSError: There can be none.
        """
        return spawn(self.folder, self.application, command, node_id)

    def _begin(self, command: StartReplica) -> Process | None:
        replica_id = command.replica_id
        here = Counter(each.node_id for each in self.replicas.values())
        there_are = [each for each in self._nodes if each not in self._closed]
        node_id = command.node_id or min(there_are, key=lambda node: here[node], default=None)
        if node_id is None:
            if replica_id not in self._waiting:  # the core asks for it again and again
                self.tell(ReplicaPending(replica_id=replica_id, reason=NO_PLACE, no_room=True, at=now()))
            self._waiting[replica_id] = command
            return None
        self._waiting.pop(replica_id, None)
        try:
            return self.spawn(command, node_id)
        except OSError as error:
            self.tell(ReplicaStartFailed(replica_id=replica_id, reason=f"no process: {error}", at=now()))
            return None

    def _address(self, command: ReplicaChange | QueryReplica | StopReplica | KillReplica) -> None:
        if isinstance(command, StopReplica | KillReplica):
            self._waiting.pop(command.replica_id, None)
        super()._address(command)

    def _files(self) -> Iterator[int]:
        return (process.ending for process in self.replicas.values())

    def _look_at(self, replica: Process) -> None:
        has_ended = replica.has_ended()  # looked at first: what it said before is heard below
        self._converse(replica)
        if has_ended:
            replica.address.path(self.folder).unlink(missing_ok=True)
            self._end(replica, replica.close())
        else:
            self._look_after(replica)
