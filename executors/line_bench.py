"""A bench of the conformance kit for a `LineExecutor`: whose replicas do what files in a folder say, wherever they are.

Whoever makes one of it says how a controller begins (`executor`), where replicas listen (`connections`) and how one is sent a
signal (`send`), and cleans up at the end.
"""

import json
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

from executors.line_executor import LineExecutor
from executors.local.replica import OBSERVE
from rankcore import DeploymentSpec, ReplicaRank
from rankcore.frozen import freeze_json
from rankcore.testing.conformance.system import Belief, SelfReport
from rankcore.values import NodeId, ReplicaId

Made = TypeVar("Made", bound=LineExecutor[Any])

APPLICATION = """
import tempfile
import time
from pathlib import Path
from executors.ray_gpu import deployment

FOLDER = Path({folder!r})

def wait():
    begun = time.monotonic()
    while (FOLDER / "slow").exists() and time.monotonic() < begun + float((FOLDER / "slow").read_text() or 0.0):
        time.sleep(0.01)

@deployment
class Obedient:
    def __init__(self):
        wait()
        for order in sorted(FOLDER.glob("fail.*")):
            try:
                order.unlink()
            except FileNotFoundError:
                continue  # another replica has failed for it
            raise RuntimeError("told to fail")

    def reconfigure(self, user_config, rank):
        wait()

    def check_ready(self):
        return not (FOLDER / "closed").exists()

    def __del__(self):
        wait()

app = Obedient.bind()
"""


class LineBench(ABC, Generic[Made]):
    """Each controller is an executor of this process; a crash of one takes its connections away.

    Args:
        folder: That the replicas see too.
        nodes: Those there are.

    Attributes:
        application: MODULE:APP, for the executor.
        there_are: The nodes that are not lost.
        executors: Of the controllers that have not crashed.
        spec: What the executors are told is wanted.
    """

    patience_s = 300.0
    name = "conformance"

    def __init__(self, folder: Path, nodes: Sequence[NodeId]) -> None:
        self._orders = folder / "orders"
        self._orders.mkdir()
        source = folder / "obedient.py"
        source.write_text(APPLICATION.format(folder=str(self._orders)))
        self.application = f"{source}:app"
        self.there_are = list(nodes)
        self.executors: list[Made] = []
        self.spec = DeploymentSpec(name=self.name, target_replicas=0, health_check_period_s=0.1)
        self._survivors: tuple[ReplicaId, ...] = ()
        self._hanging: set[ReplicaId] = set()

    # -- what another bench says for itself

    @abstractmethod
    def executor(self, application: str, spec: Callable[[], DeploymentSpec], epoch: int) -> Made:
        """That of a controller."""

    @abstractmethod
    def connections(self) -> Iterator[tuple[ReplicaId, socket.socket]]:
        """One to each replica that listens."""

    @abstractmethod
    def send(self, replica_id: ReplicaId, number: signal.Signals) -> None:
        """Send its process a signal."""

    # -- what all are asked

    def open(self, epoch: int) -> Made:
        """A controller begins."""
        executor = self.executor(self.application, lambda: self.spec, epoch)
        self.executors.append(executor)
        self._survivors = tuple(executor.survivors())
        return executor

    def survivors(self) -> tuple[ReplicaId, ...]:
        """Those that it has found."""
        return self._survivors

    def crash(self, executor: Made) -> None:
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
        """All, until one is lost."""
        return tuple(self.there_are)

    def replicas(self) -> list[SelfReport]:
        """Ask all where they listen, as a controller does."""
        found = []
        for replica_id, connection in self.connections():
            if replica_id in self._hanging:
                connection.close()
            elif (report := ask(connection)) is not None:
                found.append(report)
        return found

    def kill(self, replica_id: ReplicaId) -> None:
        """By a signal."""
        self.send(replica_id, signal.SIGKILL)

    def hang(self, replica_id: ReplicaId) -> None:
        """Stop it where it is; from now on it is soon suspected."""
        self._hanging.add(replica_id)
        self.send(replica_id, signal.SIGSTOP)
        self.spec = attrs.evolve(self.spec, health_check_timeout_s=1.0)

    def fail_starts(self, count: int) -> None:
        """A file for each."""
        for number in range(count):
            (self._orders / f"fail.{number}").touch()

    def slow(self, by_s: float) -> None:
        """A file that says for how long."""
        (self._orders / "slow").write_text(str(by_s))

    def take_requests(self, yes: bool) -> None:
        """A file says no."""
        closed = self._orders / "closed"
        closed.unlink(missing_ok=True) if yes else closed.touch()


def ask(connection: socket.socket) -> SelfReport | None:
    """What a replica says of itself; None: it has not come up yet, or is gone."""
    try:
        with connection, connection.makefile("rwb") as conversation:  # whose end sends what a dead replica has not taken
            connection.settimeout(60.0)
            conversation.write(OBSERVE.encode() + b"\n")
            conversation.flush()
            line = conversation.readline()
    except OSError:
        return None
    if not line:
        return None
    said: dict[str, Any] = json.loads(line)
    history = said.pop("history")
    beliefs = tuple(Belief(since, ReplicaRank(*ranks)) for since, ranks in history)
    return SelfReport(**{**said, "beliefs": beliefs, "user_config": freeze_json(said["user_config"])})
