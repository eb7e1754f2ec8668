"""Where calls go: one router per deployment and process, which carries out what the routing core decides.

All routers of a process share one thread with an event loop. Replicas on this node are reached over Unix sockets, others
by actor calls; the choice is made per replica and invisible to callers and core.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any

import attrs

from executors.ray_gpu.errors import (
    CallCancelledError,
    CallError,
    DeadlineError,
    InvalidCallError,
    OverloadedError,
    ReplicaGoneError,
    UnavailableError,
)
from executors.ray_gpu.messages import CallStatus, DeploymentNews, Routes, Seen, Version, WaitingInquiry
from executors.ray_gpu.metrics.counts import RouterCounts
from executors.ray_gpu.requests.call import Answer, Call
from executors.ray_gpu.requests.channel import Attempt, Channel
from executors.ray_gpu.requests.frames import ERROR, PARTS, REFUSED
from executors.ray_gpu.requests.packing import pack_error
from executors.ray_gpu.requests.recording import Final, recorder_of
from executors.ray_gpu.requests.replica_news import ReplicaNews
from executors.ray_gpu.requests.selection import ReservedCall
from executors.ray_gpu.requests.standing import CallStanding
from executors.ray_gpu.requests.waiting_calls import described
from executors.ray_gpu.requests.ways import Ways
from rankcore import routing
from rankcore.errors import RankcoreError
from rankcore.events import ClockAdvanced
from rankcore.routing.commands import (
    FINAL,
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
    AnswerBegun,
    CreditsGranted,
    Event,
    FailureKind,
    ReplicaLost,
    ReplicasProposed,
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
from rankcore.routing.statuses import is_lifted_by

if TYPE_CHECKING:
    from executors.ray_gpu.requests.proposer import Proposer


IDLE_LOOK_S = 0.01
_ids = itertools.count()
"""Of all routers of the process: the id of a call that was listed never names one of a router that came later."""


class Router:
    """Sends the calls of one deployment. `submit` may be called from any thread; all else runs on the routers' thread.

    Attributes:
        gone: Whether the deployment is deleted, or nothing runs any more.
        seen: What it knows, of what the controller publishes.
        report_every_s: How often the controller wants to know how many calls wait; None: only where there is no replica.
        unserved: How many calls wait while there is no replica, as far as is known.
        when_unserved: Called when that has changed; None: nobody wants to know.
        counts: Of the calls that it was given.
    """

    def __init__(self, namespace: str, deployment: str, node_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.gone = False
        self.counts = RouterCounts()
        self._loop = loop
        self._core = routing.Router(RoutingSpec(name=deployment, by_credits=True), at=loop.time(), explains=False, opened=False)
        self._submitted: deque[Call] = deque()
        self._given_up: deque[Call] = deque()
        self._shown: deque[Call] = deque()
        self._awake = False
        self._ids = _ids
        self._calls: dict[RequestId, Call] = {}
        self._ways = Ways(namespace, node_id, self, self.adopted)
        self._routes: dict[str, Route] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.report_every_s: float | None = None
        self._rejected_with = 503
        self.seen = Seen()
        self.unserved = 0
        self._is_routed: bool | None = None  # not known yet
        self.when_unserved: Callable[[], None] | None = None
        self._arrivals_total = 0
        self._arriving: Call | None = None  # in this very step
        self._standing = CallStanding()
        self._gone_because: Exception | None = None
        self._namespace, self._node_id = namespace, node_id
        self._proposer: Proposer | None = None  # a user's code says who gets a call
        self._held: dict[RequestId, tuple[str, Attempt]] = {}  # calls that have a place, and are not sent yet
        self._recorder = recorder_of(deployment)
        self._news = ReplicaNews(loop, lambda: self._ways.current, lambda: self._proposer, self._tell)

    @property
    def has_replicas(self) -> bool:
        """Whether it knows one that takes calls."""
        return bool(self._routes)

    def submit(self, call: Call) -> None:
        """Begin a call."""
        call.when_given_up(self._give_up_call)
        call.when_shown(self._show_call)
        self._submitted.append(call)
        self._wake()

    def submit_here(self, call: Call) -> None:
        """The same, from the routers' thread."""
        call.when_given_up(self._give_up_call)
        call.when_shown(self._show_call)
        self._arrived(call)

    def _give_up_call(self, call: Call) -> None:
        self._given_up.append(call)
        self._wake()

    def _show_call(self, call: Call) -> None:
        self._shown.append(call)
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
        while self._shown:
            self._show(self._shown.popleft())

    def _arrived(self, call: Call) -> None:
        if call.given_up:
            return
        if self._gone_because is not None:
            return call.fail(copy(self._gone_because))
        call.arrived_at = now = self._loop.time()
        call.request_id = next(self._ids)
        self._calls[call.request_id] = call
        wishes = call.wishes
        try:
            event = RequestArrived(
                request_id=call.request_id,
                key=wishes.model_id or wishes.key,
                rank=wishes.rank,
                broadcast=wishes.broadcast,
                keep_failures=wishes.keep_failures,
                deadline=now + wishes.timeout_s if wishes.timeout_s is not None else None,
                at=now,
            )
        except RankcoreError as error:
            del self._calls[call.request_id]
            return call.fail(InvalidCallError(str(error)))
        if wishes.model_id:
            self._news.ask_models()
        self._arrivals_total += 1
        if self._recorder is not None:
            self._recorder.arrived(call.request_id)
        self._arriving = call
        self._tell(event)
        self._arriving = None
        if call.statuses is not None:
            self._show(call)

    def _show(self, call: Call) -> None:
        """Somebody wants to know how the deployment stands."""
        if self._calls.get(call.request_id) is call:
            self._standing.show((call,))

    def learn(self, news: DeploymentNews) -> None:
        """The controller says what is new; what was overtaken by other news changes nothing."""
        if news.routes is not None and news.routes[0] > self.seen.routes:
            if is_lifted_by(self.seen.status, news.routes[0]):
                self._standing.lift()
                self.seen = attrs.evolve(self.seen, refuses=False)
            self.seen = attrs.evolve(self.seen, routes=news.routes[0])
            self.follow(news.routes[1])
        if news.status is not None and news.status[0] > self.seen.status:
            self.seen = attrs.evolve(self.seen, status=news.status[0])
            self._stand(*news.status)

    def asked(self, inquiry: WaitingInquiry) -> list[dict[str, Any]]:
        """The calls that are meant, in the order in which they wait, as plain data; ended by now, where that is asked for."""
        now, places = self._loop.time(), {each: place for place, each in enumerate(self._core.waiting_requests, 1)}
        meant = list(places) if inquiry.request is None else [inquiry.request]
        calls = [self._calls[each] for each in meant if each in self._calls]
        found = described(calls, places, None if self._routes else self._standing, now)
        if inquiry.because is not None:
            for call in calls:
                self._tell(RequestCancelled(request_id=call.request_id, at=now))
                call.fail(CallCancelledError(inquiry.because))
        return found

    def _stand(self, version: Version, status: CallStatus) -> None:
        """Nobody serves it, nor is about to: what waits fails. Else it is shown to who wants to know."""
        refuses = self._standing.learn(version, status, self._loop.time())
        self.seen = attrs.evolve(self.seen, refuses=refuses)
        self._tell_availability()
        self._standing.show(tuple(self._calls.values()))

    def _tell_availability(self) -> None:
        self._tell(self._standing.availability(self._core.spec.name, self._loop.time()))

    def follow(self, routes: Routes) -> None:
        """The controller says who takes calls, and how they are to be routed."""
        self.report_every_s = routes.report_every_s
        if routes.spec != self._core.spec:
            self._adopt_router(routes.spec)
            self._tell(RoutingSpecChanged(spec=routes.spec, at=self._loop.time()))
        self._is_routed = bool(routes.endpoints)
        self._routes = {endpoint.replica_id: Route(endpoint.replica_id, rank) for endpoint, rank in routes.endpoints}
        current = self._ways.current
        routed = tuple(route for each, route in self._routes.items() if each in current and current[each].open)
        self._tell(RoutesChanged(added=routed, complete=True, world_size=routes.world_size, at=self._loop.time()))
        self._ways.follow(endpoint for endpoint, _ in routes.endpoints)
        if self._proposer is not None:
            self._proposer.follow(endpoint for endpoint, _ in routes.endpoints)
        self._standing.routes_have(routes.problem, routes.retry_after_s)
        self._rejected_with = routes.rejected_with
        self._tell_availability()
        if not routes.endpoints:
            self._open()  # there is nobody to be met

    def _adopt_router(self, spec: RoutingSpec) -> None:
        """Another user's code is to be asked from now on, or none."""
        text = spec.router
        if text == self._core.spec.router:
            return
        if self._proposer is not None:
            self._proposer.close()
        self._proposer = None
        if text:
            from executors.ray_gpu.requests.proposer import Proposer  # only who has such a router needs it

            name = self._core.spec.name
            self._proposer = Proposer(self._namespace, name, self._node_id, text, self._core, self._propose_replicas)
            self._news.watch_all()

    def release(self, call: ReservedCall) -> None:
        """Send a call that has a place; from any thread."""
        self._loop.call_soon_threadsafe(self._release, call)

    def _release(self, call: ReservedCall) -> None:
        replica_id, attempt = self._held.pop(call.request_id, ("", None))
        if attempt is None or self._calls.get(call.request_id) is not call:
            return  # it has failed meanwhile
        channel = self._ways.current.get(replica_id)
        if channel is None or not channel.open:
            self.failed(attempt, f"replica {replica_id} has left")
        else:
            channel.send(attempt)

    def _hold(self, call: ReservedCall, replica_id: str, attempt: Attempt) -> None:
        """There is a place for a call that is to be sent later."""
        if call.place.done():  # that place is gone
            call.fail(ReplicaGoneError("the replica that was chosen has ended"))
        self._held[call.request_id] = replica_id, attempt
        with suppress(InvalidStateError):
            call.place.set_result(replica_id)

    def node_of(self, replica_id: str) -> str:
        """Where a replica is, as Ray names the node."""
        return self._ways.node_of(replica_id)

    async def metadata_of(self, replica_id: str) -> dict[str, Any]:
        """What a replica has said of itself, once; from any event loop."""
        return await self._news.metadata_of(replica_id)

    async def until_idle(self) -> None:
        """No call is under way."""
        while self._calls or self._submitted:
            await asyncio.sleep(IDLE_LOOK_S)

    def _propose_replicas(self, request_id: RequestId, ranked: tuple[tuple[str, ...], ...]) -> None:
        self._tell(ReplicasProposed(request_id=request_id, ranked=ranked, at=self._loop.time()))

    def says(self, channel: Channel, said: dict[str, Any]) -> None:
        """A replica says what it has."""
        self._news.says(channel.replica_id, said)

    def close(self, error: Exception) -> None:
        """There is nobody to call any more: calls that wait, and those to come, fail with this error."""
        self.gone = True
        self._gone_because = error
        if self._proposer is not None:
            self._proposer.close()
        self._take_in()
        self._tell(RouterClosed(reason=str(error), at=self._loop.time()))
        self._ways.close()

    def adopted(self, channels: list[Channel]) -> None:
        """Calls can be sent by these from now on; the first time it may be by none, where nobody could be reached."""
        added = tuple(self._routes[each.replica_id] for each in channels)
        self._tell(RoutesChanged(added=added, at=self._loop.time()))
        for channel in channels:
            self._tell_grants(channel)
            self._news.watch(channel)
        self._open()

    def _open(self) -> None:
        if not self._core.opened:
            self._tell(RouterOpened(at=self._loop.time()))

    def begun(self, attempt: Attempt) -> None:
        """The first item of a stream has come."""
        if attempt.call.statuses is not None:
            attempt.call.statuses.end()
        if self._recorder is not None:
            self._recorder.begun(attempt.call.request_id)
        self._tell(AnswerBegun(**self._of(attempt)))

    def answered(self, attempt: Attempt, kind: int, payload: Any) -> None:
        """An attempt has ended."""
        if self._proposer is not None:
            self._proposer.landed(attempt.call.request_id)
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
        if self._proposer is not None:
            self._proposer.lost(channel.replica_id)
        reason = f"replica {channel.replica_id} died while it ran this call"
        self._news.lost(channel.replica_id)
        held = [each for each, (replica_id, _) in self._held.items() if replica_id == channel.replica_id]
        unanswered = [*unanswered, *(self._held.pop(each)[1] for each in held)]
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
            if (self._proposer is not None or self._recorder is not None) and isinstance(command, FINAL):
                self._over(command)
        if self._is_routed is not True or self.unserved:
            self._look_at_unserved()

    def _over(self, command: Final) -> None:
        """A call has its answer, or is told that there is none."""
        if self._proposer is not None:
            self._proposer.over(command.request_id)
        if self._recorder is not None:
            self._recorder.ended(command)

    def _look_at_unserved(self) -> None:
        unserved = self._core.waiting if self._is_routed is False else 0
        if unserved != self.unserved:
            self.unserved = unserved
            if self.when_unserved is not None:
                self.when_unserved()

    @property
    def load(self) -> dict[str, float]:
        """How its calls stand: fields of `rankcore.cluster.events.ReportedLoad`."""
        core, since = self._core, self._core.waits_since
        return {
            "waiting": core.waiting,
            "oldest_age_s": max(0.0, self._loop.time() - since) if since is not None else 0.0,
            "in_flight": core.in_flight,
            "arrivals_total": self._arrivals_total,
            "answered_total": self._arrivals_total - len(self._calls),
        }

    @property
    def waiting(self) -> int:
        """How many calls wait for a replica."""
        return self._core.waiting

    # -- what is to be done about it

    def _dispatch(self, command: Dispatch) -> None:
        call = self._calls[command.request_id]
        if call is self._arriving:
            self.counts.at_once += 1
        else:
            self.counts.waits.add(self._loop.time() - call.arrived_at)
        self._send(call, command)

    def _send(self, call: Call, command: Dispatch | Retry) -> None:
        if self._proposer is not None:
            self._proposer.sent(call, command.replica_id)
        if self._recorder is not None:
            route = self._routes.get(command.replica_id)
            self._recorder.sent(call.request_id, command.replica_id, route.rank if route is not None else None)
        attempt = Attempt(call, command.attempt, command.part)
        if call.wishes.reserves and isinstance(call, ReservedCall):
            self._hold(call, command.replica_id, attempt)
        else:
            self._ways.current[command.replica_id].send(attempt)

    def _retry(self, command: Retry) -> None:
        self.counts.retried += 1
        call = self._calls[command.request_id]
        self._send(call, command)

    def _ask_whom(self, command: Propose) -> None:
        if self._proposer is not None:
            self._proposer.asked(self._calls[command.request_id])
        else:  # there is no code to be asked
            everybody = tuple(each for each in self._routes)
            self._loop.call_soon(self._propose_replicas, command.request_id, (everybody,))

    def _stop(self, command: StopAttempt) -> None:
        held = self._held.pop(command.request_id, None)
        if held is not None:  # nobody has it
            self._loop.call_soon(lambda: self._tell(RequestDone(**self._of(held[1]))))
            return
        self._ways.stop(command.replica_id, command.request_id, command.attempt, command.part)

    def _complete(self, command: Complete) -> None:
        call = self._calls.pop(command.request_id)
        if command.parts is None:
            call.finish(call.answers[None])
        else:
            found = [call.answers[part] for part in range(command.parts) if part in call.answers]
            if found:
                call.finish(Answer(PARTS, found))
            else:
                call.fail(self._gone_because or CallError("no replica was there to answer"))

    def _fail(self, command: Fail) -> None:
        call = self._calls.pop(command.request_id)
        if command.kind is FailureKind.RAISED:
            call.finish(call.answers[command.part])
        else:
            if command.kind is not None:
                self.counts.refuse("lost")
            call.fail(self._error_of(command))

    def _fail_part(self, command: FailPart) -> None:
        if command.kind not in (None, FailureKind.RAISED):  # None: nobody has the rank, who could stand in the list
            self._calls[command.request_id].answers[command.part] = Answer(*pack_error(self._error_of(command), ""))

    def _error_of(self, command: Fail | FailPart) -> Exception:
        if command.kind is None:
            return self._gone_because or CallError(command.reason)
        return ReplicaGoneError(command.reason)

    def _reject(self, command: Reject) -> None:
        self.counts.refuse("overloaded")
        self._calls.pop(command.request_id).fail(OverloadedError(command.reason, command.retry_after_s, self._rejected_with))

    def _decline(self, command: Decline) -> None:
        self.counts.refuse("unavailable")
        self._calls.pop(command.request_id).fail(UnavailableError(command.reason, command.retry_after_s))

    def _expire(self, command: Expire) -> None:
        self.counts.refuse("deadline")
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
    Retry: Router._retry,
    Propose: Router._ask_whom,
    StopAttempt: Router._stop,
    Complete: Router._complete,
    Fail: Router._fail,
    FailPart: Router._fail_part,
    Reject: Router._reject,
    Decline: Router._decline,
    Expire: Router._expire,
    Forget: Router._forget,
    AskCredits: Router._ask_credits,
    ReturnCredits: Router._return_credits,
    WakeAt: Router._wake_at,
}
