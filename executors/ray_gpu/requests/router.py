"""Where calls go: one router per deployment and process, which carries out what the routing core decides.

All routers of a process share one thread with an event loop. Replicas on this node are reached over Unix sockets, others
by actor calls; the choice is made per replica and invisible to callers and core.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from executors.ray_gpu.errors import (
    CallError,
    DeadlineError,
    InvalidCallError,
    OverloadedError,
    ReplicaGoneError,
    UnavailableError,
)
from executors.ray_gpu.messages import Routes
from executors.ray_gpu.requests.call import Answer, Call
from executors.ray_gpu.requests.channel import Attempt, Channel
from executors.ray_gpu.requests.frames import ERROR, PARTS, REFUSED
from executors.ray_gpu.requests.ways import Ways
from rankcore import routing
from rankcore.errors import RankcoreError
from rankcore.events import ClockAdvanced
from rankcore.routing.commands import (
    AskCredits,
    Command,
    Complete,
    Decline,
    Dispatch,
    Expire,
    Fail,
    Forget,
    Reject,
    Retry,
    ReturnCredits,
    StopAttempt,
    WakeAt,
)
from rankcore.routing.events import (
    AnswerBegun,
    AvailabilityChanged,
    CreditsGranted,
    Event,
    FailureKind,
    ReplicaLost,
    RequestArrived,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    RequestId,
    Route,
    RouterClosed,
    RouterOpened,
    RoutesChanged,
    RoutingSpecChanged,
)
from rankcore.routing.spec import RoutingSpec


class Router:
    """Sends the calls of one deployment. `submit` may be called from any thread; all else runs on the routers' thread.

    Attributes:
        gone: Whether the deployment is deleted, or nothing runs any more.
        report_every_s: How often the controller wants to know how many calls wait; None: not at all.
        when_one_waits: Called when a call waits and there is no replica to take it; None: nobody wants to know.
    """

    def __init__(self, namespace: str, deployment: str, node_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.gone = False
        self._loop = loop
        self._core = routing.Router(RoutingSpec(name=deployment, by_credits=True), at=loop.time(), explains=False, opened=False)
        self._submitted: deque[Call] = deque()
        self._given_up: deque[Call] = deque()
        self._awake = False
        self._ids = itertools.count()
        self._calls: dict[RequestId, Call] = {}
        self._ways = Ways(namespace, node_id, self, self.adopted)
        self._routes: dict[str, Route] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.report_every_s: float | None = None
        self.when_one_waits: Callable[[], None] | None = None
        self._gone_because: Exception | None = None

    def submit(self, call: Call) -> None:
        """Begin a call."""
        call.when_given_up(self._give_up_call)
        self._submitted.append(call)
        self._wake()

    def submit_here(self, call: Call) -> None:
        """The same, from the routers' thread."""
        call.when_given_up(self._give_up_call)
        self._arrived(call)

    def _give_up_call(self, call: Call) -> None:
        self._given_up.append(call)
        self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            with suppress(RuntimeError):  # the process ends
                self._loop.call_soon_threadsafe(self._take_in)

    # -- what happens; all of this on the routers' thread

    def _take_in(self) -> None:
        self._awake = False  # before the queues are looked at: whoever adds to them later wakes us again
        while self._submitted:
            self._arrived(self._submitted.popleft())
        while self._given_up:
            call = self._given_up.popleft()
            if call.request_id in self._calls:
                self._tell(RequestCancelled(request_id=call.request_id, at=self._loop.time()))

    def _arrived(self, call: Call) -> None:
        if call.given_up:
            return
        if self._gone_because is not None:
            return call.fail(copy(self._gone_because))
        now = self._loop.time()
        call.request_id = next(self._ids)
        self._calls[call.request_id] = call
        wishes = call.wishes
        try:
            event = RequestArrived(
                request_id=call.request_id,
                key=wishes.model_id or wishes.key,
                rank=wishes.rank,
                broadcast=wishes.broadcast,
                deadline=now + wishes.timeout_s if wishes.timeout_s is not None else None,
                at=now,
            )
        except RankcoreError as error:
            del self._calls[call.request_id]
            return call.fail(InvalidCallError(str(error)))
        self._tell(event)
        if not self._routes and self._core.waiting and self.when_one_waits is not None:
            self.when_one_waits()

    def follow(self, routes: Routes) -> None:
        """The controller says who takes calls, and how they are to be routed."""
        begins_to_report = self.report_every_s is None and routes.report_every_s is not None
        self.report_every_s = routes.report_every_s
        if routes.spec != self._core.spec:
            self._tell(RoutingSpecChanged(spec=routes.spec, at=self._loop.time()))
        self._routes = {endpoint.replica_id: Route(endpoint.replica_id, rank) for endpoint, rank in routes.endpoints}
        current = self._ways.current
        routed = tuple(route for each, route in self._routes.items() if each in current and current[each].open)
        self._tell(RoutesChanged(added=routed, complete=True, world_size=routes.world_size, at=self._loop.time()))
        self._ways.follow(endpoint for endpoint, _ in routes.endpoints)
        self._tell(AvailabilityChanged(problem=routes.problem, retry_after_s=routes.retry_after_s, at=self._loop.time()))
        if not routes.endpoints:
            self._open()  # there is nobody to be met
        if begins_to_report and self._core.waiting and not self._routes and self.when_one_waits is not None:
            self.when_one_waits()  # they came before it was known that anybody wants to know

    def close(self, error: Exception) -> None:
        """There is nobody to call any more: calls that wait, and those to come, fail with this error."""
        self.gone = True
        self._gone_because = error
        self._take_in()
        self._tell(RouterClosed(reason=str(error), at=self._loop.time()))
        self._ways.close()

    def adopted(self, channels: list[Channel]) -> None:
        """Calls can be sent by these from now on; the first time it may be by none, where nobody could be reached."""
        added = tuple(self._routes[each.replica_id] for each in channels)
        self._tell(RoutesChanged(added=added, at=self._loop.time()))
        for channel in channels:
            self._tell_grants(channel)
        self._open()

    def _open(self) -> None:
        if not self._core.opened:
            self._tell(RouterOpened(at=self._loop.time()))

    def begun(self, attempt: Attempt) -> None:
        """The first item of a stream has come."""
        self._tell(AnswerBegun(**self._of(attempt)))

    def answered(self, attempt: Attempt, kind: int, payload: Any) -> None:
        """An attempt has ended."""
        if kind == REFUSED:
            self._tell(RequestFailed(kind=FailureKind.REFUSED, reason="the replica did not take it", **self._of(attempt)))
            return
        attempt.call.answers[attempt.part] = Answer(kind, payload)
        if kind == ERROR:
            self._tell(RequestFailed(kind=FailureKind.RAISED, reason="the user's code raised", **self._of(attempt)))
        else:
            self._tell(RequestDone(**self._of(attempt)))

    def granted(self, channel: Channel) -> None:
        """A replica says how many calls may be under way there."""
        if self._ways.granted(channel):
            self._tell_grants(channel)

    def parted(self, channel: Channel) -> None:
        """A replica takes no more calls."""
        self._tell(RoutesChanged(removed=(channel.replica_id,), at=self._loop.time()))

    def lost(self, channel: Channel, unanswered: list[Attempt]) -> None:
        """A replica cannot be reached any more."""
        reason = f"replica {channel.replica_id} died while it ran this call"
        if self._ways.lost(channel):
            self._tell(ReplicaLost(replica_id=channel.replica_id, reason=reason, at=self._loop.time()))
            return
        # The replica was routed no more, or there is another way to it since.
        for attempt in unanswered:
            self.failed(attempt, reason)

    def failed(self, attempt: Attempt, reason: str) -> None:
        """Nobody knows what became of an attempt."""
        self._tell(RequestFailed(kind=FailureKind.LOST, reason=reason, **self._of(attempt)))

    def _tell_grants(self, channel: Channel) -> None:
        # One after another: what was recalled meanwhile has to be returned.
        for credits, version in channel.take_grants():
            at = self._loop.time()
            self._tell(CreditsGranted(replica_id=channel.replica_id, credits=credits, version=version, at=at))

    def _of(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "request_id": attempt.call.request_id,
            "attempt": attempt.number,
            "part": attempt.part,
            "at": self._loop.time(),
        }

    def _tell(self, event: Event) -> None:
        for command in self._core.step(event).commands:
            _CARRY_OUT[type(command)](self, command)

    @property
    def waiting(self) -> int:
        """How many calls wait for a replica."""
        return self._core.waiting

    # -- what is to be done about it

    def _dispatch(self, command: Dispatch | Retry) -> None:
        call = self._calls[command.request_id]
        self._ways.current[command.replica_id].send(Attempt(call, command.attempt, command.part))

    def _stop(self, command: StopAttempt) -> None:
        self._ways.stop(command.replica_id, command.request_id, command.attempt, command.part)

    def _complete(self, command: Complete) -> None:
        call = self._calls.pop(command.request_id)
        if command.parts is None:
            call.finish(call.answers[None])
        else:
            call.finish(Answer(PARTS, [call.answers[part] for part in range(command.parts)]))

    def _fail(self, command: Fail) -> None:
        call = self._calls.pop(command.request_id)
        if command.kind is FailureKind.RAISED:
            call.finish(call.answers[command.part])
        elif command.kind is None:
            call.fail(self._gone_because or CallError(command.reason))
        else:
            call.fail(ReplicaGoneError(command.reason))

    def _reject(self, command: Reject) -> None:
        self._calls.pop(command.request_id).fail(OverloadedError(command.reason, command.retry_after_s))

    def _decline(self, command: Decline) -> None:
        self._calls.pop(command.request_id).fail(UnavailableError(command.reason, command.retry_after_s))

    def _expire(self, command: Expire) -> None:
        self._calls.pop(command.request_id).fail(DeadlineError(command.reason))

    def _forget(self, command: Forget) -> None:
        del self._calls[command.request_id]

    def _ask_credits(self, command: AskCredits) -> None:
        channel = self._ways.current.get(command.replica_id)
        if channel is not None:
            channel.ask_credits(command.wanted, command.version)

    def _return_credits(self, command: ReturnCredits) -> None:
        channel = self._ways.current.get(command.replica_id)
        if channel is not None:
            channel.return_credits(command.credits, command.version)

    def _wake_at(self, command: WakeAt) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(command.at, self._ring, command.at)

    def _ring(self, at: float) -> None:
        self._tell(ClockAdvanced(at=max(at, self._loop.time())))


_CARRY_OUT: dict[type[Command], Callable[[Router, Any], None]] = {
    Dispatch: Router._dispatch,
    Retry: Router._dispatch,
    StopAttempt: Router._stop,
    Complete: Router._complete,
    Fail: Router._fail,
    Reject: Router._reject,
    Decline: Router._decline,
    Expire: Router._expire,
    Forget: Router._forget,
    AskCredits: Router._ask_credits,
    ReturnCredits: Router._return_credits,
    WakeAt: Router._wake_at,
}
