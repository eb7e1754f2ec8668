"""The calls of one deployment: who waits, who is answered, and how it stands meanwhile. `rankcore.routing` decides."""

import asyncio
import itertools
from collections.abc import Callable
from copy import copy
from typing import Any, assert_never

import attrs

from executors.inproc.node import NotThereError, WeightsNode
from executors.inproc.workers import HeldHere, shown
from executors.ray_gpu.errors import CallError, DeadlineError, OverloadedError, ReplicaGoneError, UnavailableError
from executors.ray_gpu.messages import READY, UNAVAILABLE, CallStatus
from executors.ray_gpu.status_board import StatusBoard
from rankcore.cluster.events import ReportedLoad
from rankcore.cluster.state import Entry
from rankcore.commands import PublishRoutes
from rankcore.events import ClockAdvanced
from rankcore.routing import FailureKind, RequestId, Route, Router, RoutingSpec
from rankcore.routing.commands import (
    AskCredits,
    Command,
    Complete,
    Decline,
    Dispatch,
    Expire,
    Fail,
    FailPart,
    Forget,
    Propose,
    Reject,
    Retry,
    ReturnCredits,
    StopAttempt,
    WakeAt,
)
from rankcore.routing.events import (
    AvailabilityChanged,
    Event,
    ReplicasProposed,
    RequestArrived,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    RoutesChanged,
    RoutingSpecChanged,
)
from rankcore.values import ReplicaId

OnStatus = Callable[[CallStatus], object]


@attrs.define(eq=False)
class CallHere:
    """A call whose caller waits in this process."""

    payload: Any
    future: asyncio.Future[Any]
    on_status: OnStatus | None
    shown: CallStatus | None = None
    answer: Any = None
    error: BaseException | None = None

    def show(self, status: CallStatus) -> None:
        """It stands so; nothing is called from within a step of a machine."""
        if self.on_status is not None and status != self.shown and not self.future.done():
            self.shown = status
            asyncio.get_running_loop().call_soon(self.on_status, status)


class CallerHere:
    """Routes the calls of one deployment.

    Args:
        node: Answers them.
        serving: Who is a replica and takes calls.
        now: Seconds on the cluster's clock.
        on_change: Called when `unserved` has changed.
    """

    def __init__(
        self,
        entry: Entry,
        node: WeightsNode,
        serving: Callable[[ReplicaId], HeldHere | None],
        now: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self._node, self._serving, self._now, self._on_change = node, serving, now, on_change
        self._core = Router(_routing_of(entry), at=now(), explains=False)
        self._board = StatusBoard(itertools.count(1))
        self._calls: dict[RequestId, CallHere] = {}
        self._attempts: dict[tuple[RequestId, int], asyncio.Task[Any]] = {}
        self._arrivals_total = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._routed: set[ReplicaId] = set()
        self._unserved = 0

    @property
    def unserved(self) -> int:
        """How many calls wait while no replica takes any."""
        return 0 if self._routed else self._core.waiting

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return self._core.waiting

    @property
    def load(self) -> ReportedLoad:
        """How its calls stand."""
        core, since = self._core, self._core.waits_since
        return ReportedLoad(
            waiting=core.waiting,
            oldest_age_s=max(0.0, self._now() - since) if since is not None else 0.0,
            in_flight=core.in_flight,
            arrivals_total=self._arrivals_total,
            answered_total=self._arrivals_total - len(self._calls),
        )

    @property
    def loads_of_replicas(self) -> dict[ReplicaId, int]:
        """How many calls each replica works on that takes some."""
        return {each: len(self._core.replicas[each].flights) for each in sorted(self._routed)}

    async def call(self, payload: Any, key: str | None, timeout_s: float | None, on_status: OnStatus | None) -> Any:
        """Begin a call and wait for its answer."""
        call = CallHere(payload, asyncio.get_running_loop().create_future(), on_status)
        self._arrivals_total += 1
        request_id, now = self._arrivals_total, self._now()
        event = RequestArrived(request_id=request_id, key=key, deadline=None if timeout_s is None else now + timeout_s, at=now)
        self._calls[request_id] = call
        try:
            self._tell(event)
            self._show((call,))
            return await call.future
        except asyncio.CancelledError:
            if not self._is_closed:
                self._tell(RequestCancelled(request_id=request_id, at=self._now()))
            raise
        finally:
            self._calls.pop(request_id, None)

    # -- what the machine says

    def follow(self, entry: Entry) -> None:
        """It may be routed otherwise."""
        spec = _routing_of(entry)
        if spec != self._core.spec:
            self._tell(RoutingSpecChanged(spec=spec, at=self._now()))

    def route(self, routes: PublishRoutes) -> None:
        """These replicas take calls, and those do no longer."""
        self._routed = (self._routed | set(routes.added)) - set(routes.removed)
        added = tuple(Route(each) for each in routes.added)
        self._tell(RoutesChanged(added=added, removed=routes.removed, at=self._now()))

    def stand(self, entry: Entry) -> None:
        """It stands otherwise."""
        self._board.look(entry, self._now())
        status = self._status
        refuses = status is not None and status.state == UNAVAILABLE
        problem = f"{self._core.spec.name} is {status.state}: {status.because}" if status is not None and refuses else ""
        lasts_s = status.retry_after_s if status is not None and refuses else None
        self._tell(AvailabilityChanged(problem=problem, lasts_s=lasts_s, at=self._now()))
        worked_on = {request_id for request_id, _ in self._attempts}  # they hear of no turn that comes after theirs
        is_ready = status is not None and status.state == READY
        self._show([call for request_id, call in self._calls.items() if is_ready or request_id not in worked_on])

    def close(self, because: Exception) -> None:
        """Nobody serves it any more."""
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for call in self._calls.values():
            if not call.future.done():
                call.future.set_exception(copy(because))

    @property
    def _status(self) -> CallStatus | None:
        found = self._board.status(self._now())
        return found[1] if found is not None else None

    def _show(self, calls: Any) -> None:
        status = self._status
        if status is not None and status.state != UNAVAILABLE:
            for call in calls:
                call.show(status)

    # -- what the router says

    def _tell(self, event: Event) -> None:
        for command in self._core.step(event).commands:
            self._obey(command)
        if self.unserved != self._unserved:
            self._unserved = self.unserved
            self._on_change()

    def _obey(self, command: Command) -> None:
        match command:
            case Dispatch() | Retry():
                self._begin(command)
            case StopAttempt():
                task = self._attempts.get((command.request_id, command.attempt))
                if task is not None:
                    task.cancel()
            case Complete() | Fail() | Reject() | Decline() | Expire() | Forget():
                self._settle(command)
            case WakeAt(at=at):
                if self._alarm is not None:
                    self._alarm.cancel()
                self._alarm = asyncio.get_running_loop().call_later(max(0.0, at - self._now()), self._ring, at)
            case Propose():  # there is no code to be asked
                everybody = tuple(each.replica_id for each in self._core.replicas.values() if each.routed)
                self._tell(ReplicasProposed(request_id=command.request_id, ranked=(everybody,), at=self._now()))
            case AskCredits() | ReturnCredits() | FailPart():
                raise NotImplementedError("the only router of a deployment needs no credits, and nobody broadcasts")
            case _:
                assert_never(command)

    def _ring(self, at: float) -> None:
        self._tell(ClockAdvanced(at=max(at, self._now())))

    def _settle(self, final: Complete | Fail | Reject | Decline | Expire | Forget) -> None:
        call = self._calls.get(final.request_id)
        if call is None or call.future.done():
            return
        match final:
            case Complete():
                call.future.set_result(call.answer)
            case Fail(kind=FailureKind.RAISED) if call.error is not None:
                call.future.set_exception(call.error)
            case Fail(kind=kind):
                call.future.set_exception((CallError if kind is None else ReplicaGoneError)(final.reason))
            case Reject():
                call.future.set_exception(OverloadedError(final.reason, final.retry_after_s))
            case Decline():
                call.future.set_exception(UnavailableError(final.reason, final.retry_after_s))
            case Expire():
                call.future.set_exception(DeadlineError(final.reason))
            case Forget():
                call.future.cancel()

    # -- attempts

    def _begin(self, command: Dispatch | Retry) -> None:
        held, call = self._serving(command.replica_id), self._calls.get(command.request_id)
        task = asyncio.get_running_loop().create_task(self._answered(held, call))
        self._attempts[command.request_id, command.attempt] = task
        if held is not None:
            held.calls.add(task)
            task.add_done_callback(held.calls.discard)
        task.add_done_callback(lambda task: self._ended(command, task))

    async def _answered(self, held: HeldHere | None, call: CallHere | None) -> Any:
        if held is None or call is None:
            raise NotThereError("it has left the GPUs" if held is None else "nobody waits for it")
        return await self._node.answer(held.worker_id, call.payload)

    def _ended(self, command: Dispatch | Retry, task: asyncio.Task[Any]) -> None:
        request_id, attempt, at = command.request_id, command.attempt, self._now()
        del self._attempts[request_id, attempt]
        if self._is_closed:
            return
        call, error = self._calls.get(request_id), None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            if call is not None:
                call.answer = task.result()
            return self._tell(RequestDone(request_id=request_id, attempt=attempt, at=at))
        kind, reason = FailureKind.LOST, "it was stopped"
        if isinstance(error, NotThereError):
            kind, reason = FailureKind.REFUSED, str(error)
        elif error is not None:
            kind, reason = FailureKind.RAISED, shown(error)
            if call is not None:
                call.error = error
        self._tell(RequestFailed(request_id=request_id, kind=kind, reason=reason, attempt=attempt, at=at))


def _routing_of(entry: Entry) -> RoutingSpec:
    spec = entry.spec.routing or RoutingSpec(name=entry.spec.deployment)
    return attrs.evolve(spec, name=entry.spec.deployment, by_credits=False)
