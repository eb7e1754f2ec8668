"""Where calls go: one router per deployment and process, which carries out what the routing core decides.

All routers of a process share one thread with an event loop. Replicas on this node are reached over Unix sockets, others
by actor calls; the choice is made per replica and invisible to callers and core.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import ray

from executors.ray_gpu.errors import CallError, DeadlineError, OverloadedError, ReplicaGoneError
from executors.ray_gpu.messages import Endpoint, Routes
from executors.ray_gpu.requests.call import Answer, Call
from executors.ray_gpu.requests.channel import Attempt, Channel
from executors.ray_gpu.requests.frames import ERROR, PARTS, REFUSED
from executors.ray_gpu.requests.transports import ActorTransport, SocketTransport
from rankcore import routing
from rankcore.events import ClockAdvanced
from rankcore.routing.commands import (
    AskCredits,
    Command,
    Complete,
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
    RoutesChanged,
    RoutingSpecChanged,
)
from rankcore.routing.spec import RoutingSpec

LOG = logging.getLogger(__name__)

T = TypeVar("T")

MEET_S = 1.0
"""For so long the first calls wait for replicas that are being connected to, once one of them could have them."""


class Router:
    """Sends the calls of one deployment. `submit` may be called from any thread; all else runs on the routers' thread.

    Attributes:
        gone: Whether the deployment is deleted, or nothing runs any more.
    """

    def __init__(self, namespace: str, deployment: str, node_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.gone = False
        self._namespace = namespace
        self._deployment = deployment
        self._loop = loop
        self._node_id = node_id
        self._core = routing.Router(RoutingSpec(name=deployment, by_credits=True), at=loop.time(), explains=False)
        self._submitted: deque[Call] = deque()
        self._given_up: deque[Call] = deque()
        self._awake = False
        self._ids = itertools.count()
        self._calls: dict[RequestId, Call] = {}
        self._channels: dict[str, Channel] = {}
        self._routes: dict[str, Route] = {}
        self._connecting: dict[str, asyncio.Event] = {}  # set when a grant has come
        self._tasks: set[asyncio.Task[Any]] = set()
        self._alarm: asyncio.TimerHandle | None = None
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
            return call.fail(self._gone_because)
        now = self._loop.time()
        call.request_id = next(self._ids)
        self._calls[call.request_id] = call
        wishes = call.wishes
        self._tell(
            RequestArrived(
                request_id=call.request_id,
                key=wishes.model_id or wishes.key,
                rank=wishes.rank,
                broadcast=wishes.broadcast,
                deadline=now + wishes.timeout_s if wishes.timeout_s is not None else None,
                at=now,
            )
        )

    def follow(self, routes: Routes) -> None:
        """The controller says who takes calls, and how they are to be routed."""
        if routes.spec != self._core.spec:
            self._tell(RoutingSpecChanged(spec=routes.spec, at=self._loop.time()))
        self._routes = {endpoint.replica_id: Route(endpoint.replica_id, rank) for endpoint, rank in routes.endpoints}
        gone = self._channels.keys() - self._routes.keys()
        routed = tuple(self._routes[each] for each, channel in self._channels.items() if each not in gone and channel.open)
        self._tell(RoutesChanged(added=routed, complete=True, world_size=routes.world_size, at=self._loop.time()))
        for replica_id in gone:
            self._channels.pop(replica_id).close()
        new = [endpoint for endpoint, _ in routes.endpoints if self._is_new(endpoint)]
        if new:
            self._later(self._connect(new))

    def close(self, error: Exception) -> None:
        """There is nobody to call any more: calls that wait, and those to come, fail with this error."""
        self.gone = True
        self._gone_because = error
        self._take_in()
        self._tell(RouterClosed(reason=str(error), at=self._loop.time()))
        for channel in self._channels.values():
            channel.close()

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
        if self._channels.get(channel.replica_id) is channel:
            self._tell_grant(channel)
        elif channel.replica_id in self._connecting:
            self._connecting[channel.replica_id].set()

    def parted(self, channel: Channel) -> None:
        """A replica takes no more calls."""
        self._tell(RoutesChanged(removed=(channel.replica_id,), at=self._loop.time()))

    def lost(self, channel: Channel, unanswered: list[Attempt]) -> None:
        """A replica cannot be reached any more."""
        if self._channels.get(channel.replica_id) is channel:
            del self._channels[channel.replica_id]
            reason = f"replica {channel.replica_id} died while it ran this call"
            self._tell(ReplicaLost(replica_id=channel.replica_id, reason=reason, at=self._loop.time()))

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

    # -- what is to be done about it

    def _dispatch(self, command: Dispatch | Retry) -> None:
        call = self._calls[command.request_id]
        self._channels[command.replica_id].send(Attempt(call, command.attempt, command.part))

    def _stop(self, command: StopAttempt) -> None:
        channel = self._channels.get(command.replica_id)
        if channel is not None:
            channel.stop(command.request_id, command.attempt, command.part)

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

    def _expire(self, command: Expire) -> None:
        self._calls.pop(command.request_id).fail(DeadlineError(command.reason))

    def _forget(self, command: Forget) -> None:
        del self._calls[command.request_id]

    def _ask_credits(self, command: AskCredits) -> None:
        channel = self._channels.get(command.replica_id)
        if channel is not None:
            channel.ask_credits(command.wanted, command.version)

    def _return_credits(self, command: ReturnCredits) -> None:
        channel = self._channels.get(command.replica_id)
        if channel is not None:
            channel.return_credits(command.credits, command.version)

    def _wake_at(self, command: WakeAt) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(command.at, self._ring, command.at)

    def _ring(self, at: float) -> None:
        self._tell(ClockAdvanced(at=max(at, self._loop.time())))

    # -- ways to replicas

    def _is_new(self, endpoint: Endpoint) -> bool:
        known = self._channels.get(endpoint.replica_id)
        return (known is None or not known.open) and endpoint.replica_id not in self._connecting

    async def _connect(self, endpoints: list[Endpoint]) -> None:
        """Connect to some replicas. Those that are quick to grant something are told to the core together: else all the
        first calls would go to the one that was the quickest of all.
        """
        meetings = []
        for endpoint in endpoints:
            self._connecting[endpoint.replica_id] = asyncio.Event()
            meetings.append(self._later(self._meet(endpoint)))
        quick, slow = await asyncio.wait(meetings, timeout=MEET_S)
        self._adopt([each.result() for each in quick])
        for each in slow:
            self._adopt([await each])

    async def _meet(self, endpoint: Endpoint) -> Channel | None:
        """Connect to a replica and hear what it grants at first, unless that takes long; None: it cannot be reached."""
        channel = Channel(endpoint.replica_id, self, partial(self._find_actor, endpoint))
        try:
            await self._open(channel, endpoint)
            with suppress(TimeoutError):
                async with asyncio.timeout(MEET_S):
                    await self._connecting[endpoint.replica_id].wait()
        except (OSError, ValueError) as error:
            LOG.info("%s cannot be reached: %s", endpoint.replica_id, error)
            return None
        finally:
            del self._connecting[endpoint.replica_id]
        return channel

    def _adopt(self, channels: list[Channel | None]) -> None:
        wanted = []
        for channel in channels:
            if channel is None:
                continue
            if channel.replica_id in self._routes and channel.open and not self.gone:
                self._channels[channel.replica_id] = channel
                wanted.append(channel)
            else:
                channel.close()
        if wanted:
            self._tell(RoutesChanged(added=tuple(self._routes[each.replica_id] for each in wanted), at=self._loop.time()))
        for channel in wanted:
            if channel.grant is not None and self._channels.get(channel.replica_id) is channel:
                self._tell_grant(channel)

    def _tell_grant(self, channel: Channel) -> None:
        assert channel.grant is not None, "a grant has come"
        credits, version = channel.grant
        self._tell(CreditsGranted(replica_id=channel.replica_id, credits=credits, version=version, at=self._loop.time()))

    def _later(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self, channel: Channel, endpoint: Endpoint) -> None:
        if endpoint.node_id == self._node_id and endpoint.socket_path:
            with suppress(PermissionError):  # it is another user's, who lets us use the cluster
                await self._loop.create_unix_connection(partial(SocketTransport, channel), endpoint.socket_path)
                return
        ActorTransport(channel, await self._find_actor(endpoint))

    async def _find_actor(self, endpoint: Endpoint) -> Any:
        return await asyncio.to_thread(ray.get_actor, endpoint.actor_name, namespace=self._namespace)


_CARRY_OUT: dict[type[Command], Callable[[Router, Any], None]] = {
    Dispatch: Router._dispatch,
    Retry: Router._dispatch,
    StopAttempt: Router._stop,
    Complete: Router._complete,
    Fail: Router._fail,
    Reject: Router._reject,
    Expire: Router._expire,
    Forget: Router._forget,
    AskCredits: Router._ask_credits,
    ReturnCredits: Router._return_credits,
    WakeAt: Router._wake_at,
}
