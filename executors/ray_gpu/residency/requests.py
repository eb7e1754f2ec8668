"""Requests in the controller: taken in, sent to the process of a replica, answered."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ray.exceptions import RayError

from executors.ray_gpu.residency.hosts import Hosts, why
from executors.ray_gpu.residency.machine import Handler, Machine
from executors.ray_gpu.residency.waiting import Waiting
from executors.ray_gpu.residency.words import Answer, cut_off
from rankcore.dispatching import ModelRequested, TellCaller
from rankcore.residency import Phase
from rankcore.routing import FailureKind
from rankcore.routing.commands import Complete, Dispatch, Expire, Fail, Forget, Reject, Retry, StopAttempt
from rankcore.routing.events import RequestCancelled, RequestDone, RequestFailed
from rankcore.values import NodeId, ReplicaId

BEGUN_KEPT = 100_000
"""Requests: who asks again for one of them has lost its answer on the way."""


class Requests:
    """All requests of a fleet.

    Args:
        machine: Is told.
        hosts: The processes.
        epoch: Of the controller.
        on_poisoned: Called with the replica, its node, its process and the reason when that can use its GPU no more.
    """

    def __init__(
        self,
        machine: Machine,
        hosts: Hosts,
        epoch: int,
        on_poisoned: Callable[[ReplicaId, NodeId, Any, str], Awaitable[None]],
    ) -> None:
        self._machine = machine
        self._hosts = hosts
        self._epoch = epoch
        self._on_poisoned = on_poisoned
        self._waiting = Waiting()
        self._begun: dict[str, None] = {}
        self.handlers: dict[type[Any], Handler] = {
            Dispatch: self.send,
            Retry: self.send,
            StopAttempt: self._stop,
            TellCaller: self._tell_caller,
            **dict.fromkeys((Complete, Fail, Reject, Expire, Forget), self._waiting.close),
        }

    def had_begun(self, request_ids: Iterable[str]) -> None:
        """Processes say that earlier controllers have had them begin these."""
        self._begun = dict.fromkeys(sorted(request_ids))

    async def ask(self, request_id: str, model: str, call: bytes, timeout_s: float | None, again: bool) -> Answer:
        """Answer a request, once its model is HOT. Repeatable as long as it has not been answered.

        Args:
            again: The caller has asked before, and a controller, or the way to it, was lost since.
        """
        known = self._waiting.get(request_id)
        if known is not None:
            return await asyncio.shield(known.answer)
        entry = self._waiting.enter(request_id, call)
        now, begun = self._machine.now(), again and request_id in self._begun
        deadline = None if timeout_s is None else now + timeout_s
        self._machine.tell(ModelRequested(request_id=request_id, model=model, deadline=deadline, begun=begun, at=now))
        return await asyncio.shield(entry.answer)

    async def told(self, request_id: str, after: int) -> Any:
        """How a request stands, once that has changed; None: nothing new for long, or it is over."""
        return await self._waiting.told(request_id, after)

    def cancel(self, request_id: str) -> None:
        """Nobody waits for the answer any more."""
        if self._waiting.get(request_id) is not None:
            self._machine.tell(RequestCancelled(request_id=request_id, at=self._machine.now()))

    async def send(self, command: Dispatch | Retry) -> None:
        """Have a replica answer a request."""
        request_id, replica_id = str(command.request_id), command.replica_id
        entry, resident = self._waiting.get(request_id), self._machine.state.residency.replicas.get(replica_id)
        node_id = resident.node_id if resident is not None else None
        host = self._hosts.get(replica_id, node_id) if node_id is not None else None
        if entry is None or host is None:
            self.failed(command, FailureKind.REFUSED, "the replica is not there any more")
            return
        self._begun[request_id] = None
        if len(self._begun) > BEGUN_KEPT:
            del self._begun[next(iter(self._begun))]
        try:
            answer: Answer = await host.answer.remote(self._epoch, request_id, command.attempt, entry.call)
        except RayError as error:
            now = self._machine.state.residency.replicas.get(replica_id)
            leaving = now is not None and now.phase is Phase.LEAVING
            self.failed(command, FailureKind.LOST, cut_off(replica_id) if leaving else why(error))
            return
        entry.newest = answer
        if answer.refused:
            self.failed(command, FailureKind.REFUSED, answer.reason)
        elif answer.cut_off:
            self.failed(command, FailureKind.LOST, answer.reason)
        elif answer.error is not None:
            self.failed(command, FailureKind.RAISED, answer.reason)
        else:
            self._machine.tell(RequestDone(request_id=request_id, attempt=command.attempt, at=self._machine.now()))
        if answer.poisoned and node_id is not None:
            await self._on_poisoned(replica_id, node_id, host, answer.reason)

    def failed(self, command: Dispatch | Retry, kind: FailureKind, reason: str) -> None:
        """An attempt has come to nothing."""
        request_id, attempt, at = command.request_id, command.attempt, self._machine.now()
        self._machine.tell(RequestFailed(request_id=request_id, attempt=attempt, kind=kind, reason=reason, at=at))

    def _stop(self, command: StopAttempt) -> None:
        resident = self._machine.state.residency.replicas.get(command.replica_id)
        host = self._hosts.get(command.replica_id, resident.node_id) if resident is not None and resident.node_id else None
        if host is not None:
            host.stop_attempt.remote(str(command.request_id), command.attempt)

    def _tell_caller(self, command: TellCaller) -> None:
        self._waiting.tell(str(command.request_id), command.revision, command.status)
