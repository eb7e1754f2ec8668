"""Runs a fleet in an event loop: commands become tasks, and what becomes of these becomes events."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Self

import attrs

from executors.fleet.errors import FleetClosedError, RequestError, RequestExpiredError, RequestRejectedError
from executors.fleet.journal import FleetJournal
from executors.fleet.node import NotThereError, WeightsNode
from executors.fleet.ranks import RanksHere
from rankcore.dispatching import (
    FleetState,
    FleetStep,
    LoadProgressed,
    ModelRequested,
    ReplicaSaid,
    Status,
    TellCaller,
    TellReplica,
    fleet_step,
)
from rankcore.dispatching.commands import Command
from rankcore.dispatching.events import Event
from rankcore.events import ClockAdvanced
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import LoadFailed, LoadFinished, NodeLost, OffloadFailed, OffloadFinished, ReplicaLost
from rankcore.routing import FailureKind, RequestId
from rankcore.routing.commands import (
    Complete,
    Dispatch,
    Expire,
    Fail,
    Forget,
    Reject,
    Retry,
    StopAttempt,
    WakeAt,
)
from rankcore.routing.events import RequestCancelled, RequestDone, RequestFailed
from rankcore.values import ReplicaId

OnStatus = Callable[[Status], None]
Leave = OffloadToCpu | UnloadFromGpu | DropFromCpu


@attrs.define(eq=False)
class _Call:
    """A request whose caller waits here."""

    payload: Any
    future: asyncio.Future[Any]
    on_status: OnStatus | None
    answer: Any = None
    error: BaseException | None = None


class FleetRunner:
    """One fleet, its callers, and the node that has the weights.

    Use it in one event loop, as a context manager. `tell` takes what users want (`DeployRequested`, `ScaleRequested`,
    `EvictRequested`, `ServingChanged`) and what is known of nodes; `at` is `now`.

    Args:
        state: Where to begin; a new fleet, or what a journal came to (see `begin_again`).
        node: Has the weights.
        journal: Where every step is written before its commands are carried out; None: nowhere.

    Attributes:
        state: After the last step. Only the runner sets it.
    """

    def __init__(self, state: FleetState, node: WeightsNode, *, journal: FleetJournal | None = None) -> None:
        self.state = state
        self._node = node
        self._journal = journal
        self._calls: dict[RequestId, _Call] = {}
        self._attempts: dict[tuple[RequestId, int], tuple[ReplicaId, asyncio.Task[None]]] = {}
        self._moves: dict[ReplicaId, asyncio.Task[None]] = {}
        self._ranks = RanksHere(node, self._said, self._end, lambda: self.now)
        self._timer: asyncio.TimerHandle | None = None
        self._serial = state.serial
        self._closed = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._offset_s = self.state.clock - self._loop.time()
        if self._journal is not None:
            self._journal.begin(self.state)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Whoever still waits is told that the fleet is closed; nothing goes on."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._moves.values(), *(task for _, task in self._attempts.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ranks.aclose()
        for call in self._calls.values():
            if not call.future.done():
                call.future.set_exception(FleetClosedError("the fleet was closed before there was an answer"))

    @property
    def now(self) -> float:
        """Seconds on the clock of the fleet, which goes on from its state's."""
        return max(self.state.clock, self._loop.time() + self._offset_s)

    async def request(
        self,
        model: str,
        payload: Any,
        *,
        key: str | None = None,
        timeout_s: float | None = None,
        on_status: OnStatus | None = None,
    ) -> Any:
        """Ask a model, wherever its weights are. Cancelling it withdraws the request.

        Args:
            on_status: Is told how the request stands whenever that changes while it waits.

        Raises:
            RequestError: There is no answer, and why.
            Exception: Whatever the model raised.
        """
        if self._closed:
            raise FleetClosedError("the fleet is closed")
        self._serial += 1
        request_id = self._serial
        call = self._calls[request_id] = _Call(payload, self._loop.create_future(), on_status)
        now = self.now
        deadline = None if timeout_s is None else now + timeout_s
        try:
            self.tell(ModelRequested(request_id=request_id, model=model, key=key, deadline=deadline, at=now))
            return await call.future
        except asyncio.CancelledError:
            if not self._closed:
                self.tell(RequestCancelled(request_id=request_id, at=self.now))
            raise
        finally:
            self._calls.pop(request_id, None)

    def tell(self, event: Event) -> FleetStep:
        """Take one event through the machine; its commands are begun, not awaited.

        Raises:
            InvalidEventError: The event is malformed. Nothing has changed.
        """
        step = fleet_step(self.state, event)
        if self._journal is not None:
            self._journal.append(event, step)
        self.state = step.state
        self._ranks.follow(step.state)
        for command in step.commands:
            self._obey(command)
        return step

    # -- commands

    def _obey(self, command: Command) -> None:
        match command:
            case Dispatch() | Retry():
                self._begin_attempt(command)
            case StopAttempt():
                self._stop((command.request_id, command.attempt))
            case Complete() | Fail() | Reject() | Expire() | Forget():
                self._settle(command)
            case TellCaller():
                self._say(command)
            case TellReplica():
                self._ranks.receive(command, self.state)
            case LoadToGpu():
                self._begin_move(command.replica_id, self._load(command))
            case OffloadToCpu() | UnloadFromGpu() | DropFromCpu():
                self._begin_move(command.replica_id, self._leave(command, self._moves.get(command.replica_id)))
            case WakeAt():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(command.at - self._offset_s, self._wake)

    def _wake(self) -> None:
        wanted = self.state.wake_at if self.state.wake_at is not None else self.now
        self.tell(ClockAdvanced(at=max(self.now, wanted)))

    def _begin_attempt(self, command: Dispatch | Retry) -> None:
        key = (command.request_id, command.attempt)
        task = self._loop.create_task(self._attempt(command))
        self._attempts[key] = (command.replica_id, task)
        task.add_done_callback(lambda _: self._attempts.pop(key, None))

    def _stop(self, key: tuple[RequestId, int]) -> None:
        if key in self._attempts:
            self._attempts[key][1].cancel()

    def _begin_move(self, replica_id: ReplicaId, move: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(move)
        self._moves[replica_id] = task
        task.add_done_callback(partial(self._end_move, replica_id))

    def _end_move(self, replica_id: ReplicaId, task: asyncio.Task[None]) -> None:
        if self._moves.get(replica_id) is task:
            del self._moves[replica_id]

    def _settle(self, final: Complete | Fail | Reject | Expire | Forget) -> None:
        call = self._calls.get(final.request_id)
        if call is None or call.future.done():
            return
        match final:
            case Complete():
                call.future.set_result(call.answer)
            case Fail():
                raised = call.error if final.kind is FailureKind.RAISED else None
                call.future.set_exception(raised or RequestError(final.reason))
            case Reject():
                call.future.set_exception(RequestRejectedError(final.reason, final.retry_after_s))
            case Expire():
                call.future.set_exception(RequestExpiredError(final.reason))
            case Forget():
                call.future.cancel()

    def _say(self, command: TellCaller) -> None:
        call = self._calls.get(command.request_id)
        if call is not None and call.on_status is not None:
            call.on_status(command.status)

    # -- what becomes of them

    async def _attempt(self, command: Dispatch | Retry) -> None:
        request_id, attempt = command.request_id, command.attempt

        def failed(kind: FailureKind, reason: str) -> None:
            self.tell(RequestFailed(request_id=request_id, attempt=attempt, kind=kind, reason=reason, at=self.now))

        call = self._calls.get(request_id)
        try:
            if call is None:
                raise NotThereError("nobody waits for it")
            call.answer = await self._node.answer(command.replica_id, call.payload)
        except asyncio.CancelledError:
            if not self._closed:
                failed(FailureKind.LOST, "it was stopped")
            raise
        except NotThereError as error:
            failed(FailureKind.REFUSED, str(error))
        except Exception as error:  # whatever a model raises
            assert call is not None
            call.error = error
            failed(FailureKind.RAISED, _shown(error))
        else:
            self.tell(RequestDone(request_id=request_id, attempt=attempt, at=self.now))

    async def _load(self, command: LoadToGpu) -> None:
        replica_id, move = command.replica_id, command.move

        def progress(bytes_done: int) -> None:
            if not self._closed:
                self.tell(LoadProgressed(replica_id=replica_id, move=move, bytes_done=bytes_done, at=self.now))

        try:
            await self._node.load(command, progress)
        except Exception as error:
            self.tell(LoadFailed(replica_id=replica_id, move=move, reason=_shown(error), at=self.now))
        else:
            self.tell(LoadFinished(replica_id=replica_id, move=move, at=self.now))

    async def _leave(self, command: Leave, before: asyncio.Task[None] | None) -> None:
        replica_id, move = command.replica_id, command.move
        if before is not None:
            before.cancel()
            await asyncio.wait([before])
        if not isinstance(command, DropFromCpu):
            await self._drain(replica_id, command.timeout_s)
        try:
            match command:
                case OffloadToCpu():
                    await self._node.offload(replica_id)
                case UnloadFromGpu():
                    await self._node.unload(replica_id)
                case DropFromCpu():
                    await self._node.drop(replica_id)
        except Exception as error:
            await self._node.drop(replica_id)
            self.tell(OffloadFailed(replica_id=replica_id, move=move, reason=_shown(error), at=self.now))
        else:
            self.tell(OffloadFinished(replica_id=replica_id, move=move, at=self.now))

    def _said(self, event: ReplicaSaid | ReplicaLost) -> None:
        if not self._closed:
            self.tell(event)

    async def _end(self, replica_id: ReplicaId) -> None:
        """A replica ends because of its rank: what it works on is stopped, and its weights are given up."""
        await self._drain(replica_id, 0.0)
        await self._node.drop(replica_id)

    async def _drain(self, replica_id: ReplicaId, timeout_s: float) -> None:
        """What is in flight there finishes, or is stopped when it has had its time."""
        tasks = [task for where, task in self._attempts.values() if where == replica_id]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


def _shown(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def begin_again(state: FleetState, at: float | None = None) -> tuple[Event, ...]:
    """What to tell a fleet whose process has ended and whose journal goes on in another one.

    Callers and weights were in that process: whoever had no answer has gone, and its nodes are lost. Tell it which nodes
    there are now.
    """
    now = state.clock if at is None else at
    gone = [RequestCancelled(request_id=request_id, at=now) for request_id in state.unanswered]
    lost = [NodeLost(node_id=node_id, at=now) for node_id in sorted(state.residency.nodes)]
    return (*gone, *lost)
