"""An executor whose replicas speak lines, but for how one begins and ends: processes of this machine, jobs, or what you have.

Commands become lines, and lines become events; it keeps its half of the contract (docs/executors.md) where that is the same
whatever a replica is: the epoch, the newest world size, answers about whom it does not know, health, and one end of each. Times
are those of this process's clock. No threads, and nothing here waits but `wait`.

Whoever makes an executor of it says how a replica begins (`_begin`), how it is ended at once (`kill`), what there is to hear
(`_converse` once more, or something else), and calls `_end` once it is *gone*: a connection that is over is no end.
"""

import math
import select
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from socket import socket
from typing import Generic, TypeVar

from executors.lines import ASK_HEALTH, ASK_READY, WELL, Conversation
from executors.run.fence import Fence
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

STOP_MARGIN_S = 1.0
"""How much longer than its time-out a stopping replica may take, before it is ended from outside."""


class LineReplica(Conversation):
    """One replica as its executor sees it.

    Attributes:
        replica_id: Which.
        node_id: Where it is; None: nowhere yet.
        told_to_end: Whether its end is an answer.
        failure: Why its start failed, to be told when it is gone; None: it has not.
        end_by: When it is to be ended from outside, on the executor's clock.
        is_up: Whether its user code has started, with ranks or without.
        asked_at, well_at: When it was last asked for its health, and when it last said that it is well.
    """

    def __init__(self, replica_id: ReplicaId, node_id: NodeId | None = None, connection: socket | None = None) -> None:
        super().__init__(connection)
        self.replica_id, self.node_id = replica_id, node_id
        self.told_to_end = self.is_up = False
        self.failure: ReplicaStartFailed | None = None
        self.end_by = math.inf
        self.asked_at = self.well_at = -math.inf


Replica = TypeVar("Replica", bound=LineReplica)


class LineExecutor(ABC, Generic[Replica]):
    """The `Executor` of one deployment, for a controller of one epoch. To make one raises the fence.

    Args:
        folder: Of the deployment, where its fence is.
        application: MODULE:APP, which each replica loads for itself.
        spec: What is wanted now: its name, and how often to check health.
        epoch: Of this controller.
        fence: That of this epoch, if its owner has raised it already.

    Attributes:
        fence: The right to act.
        folder, application: As given.
        replicas: Those that have not ended, by id; at first those that earlier controllers have left behind.

    Raises:
        FenceError: The epoch is not newer than all before it, or it cannot be raised.
    """

    def __init__(
        self, folder: Path, application: str, spec: Callable[[], DeploymentSpec], epoch: int, fence: Fence | None = None
    ) -> None:
        # From here on nobody comes up, and nothing is ended, for an older controller.
        self.fence = Fence(folder, epoch) if fence is None else fence
        self.folder, self.application = folder, application
        self.replicas: dict[ReplicaId, Replica] = {}
        self._spec, self._epoch = spec, epoch
        self._inbox: deque[Event] = deque()
        self._ended: set[ReplicaId] = set()
        self._announced: AnnounceWorldSize | None = None
        self._wake_at = math.inf

    # -- what another executor says for itself

    @abstractmethod
    def nodes(self) -> Sequence[NodeId]:
        """Where replicas may be, or are."""

    @abstractmethod
    def kill(self, replica: Replica) -> None:
        """End a replica at once, behind the fence: it may be a newer controller's."""

    @abstractmethod
    def _begin(self, command: StartReplica) -> Replica | None:
        """Start a replica that there is none of; None: there will be none for now, and why has been told."""

    def pid_of(self, replica_id: ReplicaId) -> int | None:
        """The number of its process on this machine; None: it has none here."""
        return None

    def _look(self) -> None:
        """Hear what else there is to hear."""

    def _look_at(self, replica: Replica) -> None:
        """Hear a replica, and look after it."""
        self._converse(replica)
        self._look_after(replica)

    def _files(self) -> Iterator[int]:
        """What else becomes readable when there may be something to tell."""
        return iter(())

    def _dated(self, event: Event) -> Event:
        """What a replica has said, by this process's clock, which is the replica's too on one machine."""
        return event

    # -- what all are asked

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
            self._look()
            for replica in tuple(self.replicas.values()):
                self._look_at(replica)
            if now() >= self._wake_at:
                self._wake_at = math.inf
                self.tell(ClockAdvanced(at=now()))
        return self._inbox.popleft() if self._inbox else None

    def tell(self, event: Event) -> None:
        """Something has happened; its owner may know of more, such as what a node holds."""
        self._inbox.append(event)

    def survivors(self) -> Sequence[ReplicaId]:
        """Those that have not ended; at first all that earlier controllers have left behind."""
        return tuple(self.replicas)

    def wait(self, timeout_s: float, files: Iterable[int] = ()) -> None:
        """Return when there may be something to tell, when one of these files can be read, or after that time."""
        if not self._inbox:
            poller = select.poll()
            for file in (*files, *self._files()):
                poller.register(file, select.POLLIN)
            for replica in self.replicas.values():
                if replica.is_connected:
                    poller.register(replica, replica.awaits)
            poller.poll(1000 * max(0.0, min(timeout_s, self._wake_at - now())))

    def close(self) -> None:
        """Let go of everything; replicas live on."""
        for replica in self.replicas.values():
            replica.hang_up()
        self.replicas.clear()

    # -- commands

    def _start(self, command: StartReplica) -> None:
        replica_id, replica = command.replica_id, self.replicas.get(command.replica_id)
        if replica is not None:
            self._tell_place(replica)
        elif replica_id in self._ended:
            self.tell(ReplicaStopped(replica_id=replica_id, at=now()))
        elif command.node_id not in (None, *self.nodes()):
            reason = f"there is no node {command.node_id!r}: there are {', '.join(self.nodes())}"
            self.tell(ReplicaStartFailed(replica_id=replica_id, reason=reason, at=now()))
        elif (replica := self._begin(command)) is not None:
            self.replicas[replica_id] = replica
            self._welcome(replica)
            self._tell_place(replica)

    def _tell_place(self, replica: Replica) -> None:
        if replica.node_id is not None:
            self.tell(ReplicaPlaced(replica_id=replica.replica_id, node_id=replica.node_id, at=now()))

    def _announce(self, command: AnnounceWorldSize) -> None:
        newest = self._announced
        if newest is None or (command.epoch, command.revision) > (newest.epoch, newest.revision):
            self._announced = command
            for replica in self.replicas.values():
                replica.send(to_json(command))

    def _welcome(self, replica: Replica) -> None:
        """Who comes up, or is reached again, is told what no command repeats."""
        if self._announced is not None:
            replica.send(to_json(self._announced))

    def _address(self, command: ReplicaChange | QueryReplica | StopReplica | KillReplica) -> None:
        replica = self.replicas.get(command.replica_id)
        match command:
            case QueryReplica() if replica is None:
                self.tell(ReplicaMissing(replica_id=command.replica_id, at=now()))
            case StopReplica() | KillReplica() if replica is None:
                self.tell(ReplicaStopped(replica_id=command.replica_id, at=now()))
            case _ if replica is None:
                pass  # its end has been told
            case StopReplica() if replica.is_connected:
                replica.told_to_end = True
                replica.end_by = min(replica.end_by, now() + command.timeout_s + STOP_MARGIN_S)
                replica.send(to_json(command))
            case StopReplica() | KillReplica():  # who does not listen yet has nothing to finish
                replica.told_to_end = True
                replica.send(to_json(command))
                self.kill(replica)
            case _:
                replica.send(to_json(command))

    # -- news

    def _converse(self, replica: Replica) -> None:
        for line in replica.hear():
            self._hear(replica, line)
        replica.flush()

    def _look_after(self, replica: Replica) -> None:
        if now() >= replica.end_by:
            self.kill(replica)
        elif replica.is_up and replica.is_connected and not replica.told_to_end:
            self._check_health(replica)

    def _hear(self, replica: Replica, line: str) -> None:
        if line == WELL:
            replica.well_at = now()
            return
        try:
            event = self._dated(from_json(line, Event))
        except CodecError as error:
            reason = f"it has said what is no event: {error}"
            event = ReplicaUnhealthy(replica_id=replica.replica_id, reason=reason, at=now())
        if isinstance(event, ReplicaStartFailed):
            replica.failure = event  # final: to be told when it is gone
            self.kill(replica)
            return
        if isinstance(event, ReplicaPrepared | ReplicaReady) or (
            isinstance(event, ReplicaReported) and (event.ready or event.prepared)
        ):
            replica.is_up = True
        self.tell(event)

    def _check_health(self, replica: Replica) -> None:
        spec = self._spec()
        answered = replica.well_at >= replica.asked_at
        if answered and now() >= replica.asked_at + spec.health_check_period_s:
            replica.asked_at = now()
            replica.send(ASK_HEALTH)
            replica.send(f"{ASK_READY} {spec.health_check_timeout_s}")
        elif not answered and now() >= replica.asked_at + spec.health_check_timeout_s:
            replica.well_at = now()  # told once, and asked again
            reason = f"it has not answered for {spec.health_check_timeout_s:g} s"
            self.tell(ReplicaUnhealthy(replica_id=replica.replica_id, reason=reason, at=now()))

    def _end(self, replica: Replica, reason: str, *, was_born: bool = True) -> None:
        """A replica is gone, once and for all; or it never came, and never will."""
        replica_id = replica.replica_id
        del self.replicas[replica_id]
        self._ended.add(replica_id)
        if replica.failure is not None:
            self.tell(replica.failure)
        elif replica.told_to_end:
            self.tell(ReplicaStopped(replica_id=replica_id, at=now()))
        elif was_born:
            self.tell(ReplicaDied(replica_id=replica_id, reason=reason, at=now()))
        else:
            self.tell(ReplicaStartFailed(replica_id=replica_id, reason=reason, at=now()))


def now() -> float:
    """Seconds on the clock that all processes of this machine share."""
    return time.monotonic()
