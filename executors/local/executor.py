"""The executor: turns commands into processes and lines to them, and what becomes of those into events. No threads."""

import math
import select
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from executors.lines import ASK_HEALTH, ASK_READY, WELL
from executors.local.fence import Fence, FenceError
from executors.local.places import sweep
from executors.local.process import Process, found, spawn
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
from rankcore.replica.messages import ReplicaChange
from rankcore.values import NodeId, ReplicaId

ONE_NODE = ("local",)
NO_PLACE = "all nodes are cordoned"
STOP_MARGIN_S = 1.0
"""How much longer than its time-out a stopping replica may take, before it is ended from outside."""


class LocalExecutor:
    """The `Executor` of one deployment, for a controller of one epoch. To make one raises the fence.

    Once a newer controller has raised its own, this one signals nobody and removes nothing. It does not say so: who uses it
    finds out at `fence`.

    Args:
        folder: Of the deployment; see `places`.
        application: MODULE:APP, which each replica loads for itself.
        spec: What is wanted now: its name, and how often to check health.
        epoch: Of this controller.
        nodes: Names of the nodes that this machine is divided into. What they hold, their owner tells the machine.
        fence: That of this epoch, if its owner has raised it already.

    Attributes:
        fence: The right to act.
        folder, application: As given.
        processes: Those that have not ended, by id; at first those that earlier controllers have left behind.

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
        self.fence = (
            Fence(folder, epoch) if fence is None else fence
        )  # from here on nobody comes up, and nothing is ended, for an older controller
        self.folder, self.application = folder, application
        self._spec, self._epoch = spec, epoch
        self._nodes = nodes
        self._closed: Collection[NodeId] = ()
        self._waiting: dict[ReplicaId, StartReplica] = {}
        self.processes = {each.address.replica_id: each for each in found(folder, spec().name)}
        with suppress(FenceError), self.fence.upheld():  # else a newer one's replicas would lose theirs
            sweep(folder, (each.address for each in self.processes.values()))
        self._inbox: deque[Event] = deque()
        self._ended: set[ReplicaId] = set()
        self._announced: AnnounceWorldSize | None = None
        self._wake_at = math.inf

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
            case _:
                self._address(command)

    def poll(self) -> Event | None:
        """The next thing that happened; None: nothing has."""
        if not self._inbox:
            for process in tuple(self.processes.values()):
                self._look_at(process)
            if now() >= self._wake_at:
                self._wake_at = math.inf
                self._inbox.append(ClockAdvanced(at=now()))
        return self._inbox.popleft() if self._inbox else None

    def tell(self, event: Event) -> None:
        """Something has happened that its owner knows of, such as what a node holds."""
        self._inbox.append(event)

    def close_nodes(self, nodes: Collection[NodeId]) -> None:
        """Nothing new comes to these any more, and to all others it may; who has found no place until now has one there."""
        self._closed = nodes
        waiting, self._waiting = self._waiting, {}
        for command in waiting.values():
            self._start(command)

    def survivors(self) -> tuple[ReplicaId, ...]:
        """Those that have not ended; at first all that earlier controllers have left behind."""
        return tuple(self.processes)

    def nodes(self) -> tuple[NodeId, ...]:
        """The nodes that this machine is divided into."""
        return tuple(self._nodes)

    def pid_of(self, replica_id: ReplicaId) -> int | None:
        """The number of its process; None: there is none."""
        process = self.processes.get(replica_id)
        return process.address.pid if process is not None else None

    def wait(self, timeout_s: float, files: Iterable[int] = ()) -> None:
        """Return when there may be something to tell, when one of these files can be read, or after that time."""
        if not self._inbox:
            poller = select.poll()
            for file in chain(files, *(process.files() for process in self.processes.values())):
                poller.register(file, select.POLLIN)
            poller.poll(1000 * max(0.0, min(timeout_s, self._wake_at - now())))

    def kill(self, process: Process) -> bool:
        """End a process at once; False: it may be a newer controller's, and is left alone. Nothing else here signals."""
        with suppress(FenceError), self.fence.upheld():
            process.kill()
            return True
        return False

    def close(self) -> None:
        """Let go of everything; processes live on."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()

    def spawn(self, command: StartReplica, node_id: NodeId) -> Process:
        """Start a replica's process; who makes another executor of this one may start it otherwise.

        Raises:
            OSError: There can be none.
        """
        return spawn(self.folder, self.application, command, node_id)

    # -- commands

    def _start(self, command: StartReplica) -> None:
        replica_id, process = command.replica_id, self.processes.get(command.replica_id)
        if process is None and replica_id in self._ended:
            self._inbox.append(ReplicaStopped(replica_id=replica_id, at=now()))
            return
        if process is None and command.node_id not in (None, *self._nodes):
            reason = f"there is no node {command.node_id!r}: there are {', '.join(self._nodes)}"
            self._inbox.append(ReplicaStartFailed(replica_id=replica_id, reason=reason, at=now()))
            return
        if process is None:
            here = Counter(each.address.node_id for each in self.processes.values())
            there_are = [each for each in self._nodes if each not in self._closed]
            node_id = command.node_id or min(there_are, key=lambda node: here[node], default=None)
            if node_id is None:
                if replica_id not in self._waiting:  # the core asks for it again and again
                    self._inbox.append(ReplicaPending(replica_id=replica_id, reason=NO_PLACE, no_room=True, at=now()))
                self._waiting[replica_id] = command
                return
            try:
                process = self.processes[replica_id] = self.spawn(command, node_id)
            except OSError as error:
                self._inbox.append(ReplicaStartFailed(replica_id=replica_id, reason=f"no process: {error}", at=now()))
                return
            if self._announced is not None:
                process.send(to_json(self._announced))
        self._waiting.pop(replica_id, None)
        self._inbox.append(ReplicaPlaced(replica_id=replica_id, node_id=process.address.node_id, at=now()))

    def _announce(self, command: AnnounceWorldSize) -> None:
        newest = self._announced
        if newest is None or (command.epoch, command.revision) > (newest.epoch, newest.revision):
            self._announced = command
            for process in self.processes.values():
                process.send(to_json(command))

    def _address(self, command: ReplicaChange | QueryReplica | StopReplica | KillReplica) -> None:
        process = self.processes.get(command.replica_id)
        if isinstance(command, StopReplica | KillReplica):
            self._waiting.pop(command.replica_id, None)
        match command:
            case QueryReplica() if process is None:
                self._inbox.append(ReplicaMissing(replica_id=command.replica_id, at=now()))
            case StopReplica() | KillReplica() if process is None:
                self._inbox.append(ReplicaStopped(replica_id=command.replica_id, at=now()))
            case _ if process is None:
                pass  # its end has been told
            case KillReplica():
                process.told_to_end = True
                self.kill(process)
            case StopReplica():
                process.told_to_end = True
                process.end_by = min(process.end_by, now() + command.timeout_s + STOP_MARGIN_S)
                process.send(to_json(command))
            case _:
                process.send(to_json(command))

    # -- news

    def _look_at(self, process: Process) -> None:
        ended = process.has_ended()  # looked at first: what it said before is heard below
        for line in process.hear():
            self._hear(process, line)
        process.flush()
        if ended:
            self._end(process)
        elif now() >= process.end_by:
            self.kill(process)
        elif process.is_up and not process.told_to_end:
            self._check_health(process)

    def _hear(self, process: Process, line: str) -> None:
        if line == WELL:
            process.well_at = now()
            return
        try:
            event: Event = from_json(line, Event)
        except CodecError as error:
            reason = f"it has said what is no event: {error}"
            event = ReplicaUnhealthy(replica_id=process.address.replica_id, reason=reason, at=now())
        if isinstance(event, ReplicaStartFailed):
            process.failure = event  # final: to be told when it is gone
            self.kill(process)
            return
        if isinstance(event, ReplicaPrepared | ReplicaReady) or (
            isinstance(event, ReplicaReported) and (event.ready or event.prepared)
        ):
            process.is_up = True
        self._inbox.append(event)

    def _end(self, process: Process) -> None:
        replica_id = process.address.replica_id
        process.address.path(self.folder).unlink(missing_ok=True)
        reason = process.close()
        del self.processes[replica_id]
        self._ended.add(replica_id)
        if process.failure is not None:
            self._inbox.append(process.failure)
        elif process.told_to_end:
            self._inbox.append(ReplicaStopped(replica_id=replica_id, at=now()))
        else:
            self._inbox.append(ReplicaDied(replica_id=replica_id, reason=reason, at=now()))

    def _check_health(self, process: Process) -> None:
        spec = self._spec()
        answered = process.well_at >= process.asked_at
        if answered and now() >= process.asked_at + spec.health_check_period_s:
            process.asked_at = now()
            process.send(ASK_HEALTH)
            process.send(f"{ASK_READY} {spec.health_check_timeout_s}")
        elif not answered and now() >= process.asked_at + spec.health_check_timeout_s:
            process.well_at = now()  # told once, and asked again
            reason = f"it has not answered for {spec.health_check_timeout_s:g} s"
            self._inbox.append(ReplicaUnhealthy(replica_id=process.address.replica_id, reason=reason, at=now()))


def now() -> float:
    """Seconds on the clock that all processes of this machine share."""
    return time.monotonic()
