"""A tenure as the controller sees it: a replica whose process is a worker, and goes on when it has ended."""

from collections.abc import Callable
from typing import Any, Protocol

from executors.ray_gpu import socket_files
from executors.ray_gpu.conversation import Conversation
from executors.ray_gpu.messages import Change, Endpoint, Outcome, Report
from executors.ray_gpu.worker.messages import WorkerReport
from executors.ray_gpu.world import World
from rankcore import DeploymentSpec
from rankcore.events import Event, ReplicaMissing, ReplicaStartFailed
from rankcore.values import ReplicaId


class TenureListener(Protocol):
    """Who hears of a tenure: the executor of its deployment."""

    def tell(self, event: Event) -> None:
        """Something has happened."""

    def is_up(self, process: Conversation) -> None:
        """It can be talked to."""

    def has_ended(self, process: Conversation) -> None:
        """It is gone."""


class GivenTenure(Conversation):
    """What is asked of it before the worker has taken it waits for that. Its end is told by whoever knows of the worker's.

    Args:
        actor: Of the worker.
        node_id: Where the worker is.
    """

    def __init__(
        self,
        world: World,
        replica_id: ReplicaId,
        spec: Callable[[], DeploymentSpec],
        listener: TenureListener,
        actor: Any,
        node_id: str,
    ) -> None:
        super().__init__(world, replica_id, spec, listener.tell)
        self.node_id = node_id
        self._listener = listener
        self._worker = actor

    def give(self, epoch: int, version: str) -> None:
        """Have the worker take it."""
        self.version = version
        self._spawn(self._give(epoch))

    def find(self) -> None:
        """The worker has it: an earlier controller gave it."""
        self._actor.set_result(self._worker)

    def end(self) -> None:
        """The worker is another one, or gone."""
        self._asked_to_end = True
        for task in tuple(self._tasks):
            task.cancel()
        if self.endpoint is not None:
            socket_files.remove(self.endpoint.socket_path)
        self._listener.has_ended(self)

    async def _give(self, epoch: int) -> None:
        taken: Endpoint | Outcome = await self._ask_of(self._worker, "take", epoch, self.replica_id)
        if isinstance(taken, Endpoint):
            self.endpoint = taken
            self._actor.set_result(self._worker)
            self._is_up()
        elif taken.kind != "refused":  # by a newer controller
            self._start_failed(taken.detail)

    # -- how it is addressed

    def _is_up(self) -> None:
        self._listener.is_up(self)

    def _start_failed(self, reason: str) -> None:
        self._asked_to_end = True
        self._tell(ReplicaStartFailed(replica_id=self.replica_id, reason=reason, at=self._world.now()))

    async def _ask_to_change(self, change: Change) -> Outcome:
        outcome: Outcome = await self._ask("change", self.replica_id, change)
        return outcome

    async def _ask_how_it_started(self) -> Outcome:
        outcome: Outcome = await self._ask("wait_ready", self.replica_id)
        return outcome

    async def _ask_what_it_is(self, epoch: int) -> Report | None:
        report: WorkerReport | Outcome = await self._ask("query", epoch, self.replica_id)
        if isinstance(report, Outcome):
            return None  # a newer controller has been here
        if report.tenure is None or report.tenure.endpoint.replica_id != self.replica_id:
            self._tell(ReplicaMissing(replica_id=self.replica_id, at=self._world.now()))
            return None
        return report.tenure
