"""Requests of one deployment: carries out what the core's router decides, on replicas that take their time.

The router is the one of `rankcore.routing`, stepped in place. Arrivals and ends, which run once for each request and are the
busiest code of a run, use its two short cuts for them; everything else is an event.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.users import UserLoop
from executors.simulator.record.series import Gauge, Marks
from executors.simulator.replicas.pauses import Pauses
from rankcore.commands import PublishRoutes
from rankcore.events import ClockAdvanced
from rankcore.routing import FailureKind, Route, Router, RoutingSpec
from rankcore.routing.commands import Command, Complete, Decline, Dispatch, Expire, Fail, Reject, Retry, WakeAt
from rankcore.routing.events import Event, ReplicaLost, RequestArrived, RouterClosed, RoutesChanged
from rankcore.values import NodeId, ReplicaId


@attrs.define(eq=False)
class Server:
    """A replica, as it works on requests.

    Attributes:
        accepting: Whether the replica takes requests: started up, not draining, alive.
        open: Whether it takes them and the router knows it.
        gone: Whether it has ended; what it worked on is lost.
        pauses: When it hung; None: it never did.
        stuck: (index, attempt, began_at) of requests that ought to be done by now, but for a hang.
        when_idle: Called once nothing is in flight any more, while it drains.
    """

    replica_id: ReplicaId
    accepting: bool = False
    open: bool = False
    gone: bool = False
    pauses: Pauses | None = None
    stuck: list[tuple[int, int, float]] = attrs.Factory(list)
    when_idle: Callable[[], None] | None = None


@attrs.define
class RequestSeries:
    """What the requests felt along the run.

    Attributes:
        waiting: How many waited for a replica.
        ended: Which of the waits and latencies belong to which stretch of time.
    """

    waiting: Gauge = attrs.Factory(Gauge)
    ended: Marks = attrs.Factory(Marks)


GIVEN_UP = ("failed", "lost", "expired")


@attrs.define
class RequestCounts:
    """What became of the requests so far. arrived = done + failed + lost + expired + unfinished, at all times.

    Attributes:
        failed: Turned away, because the queue was full or the deployment deleted.
        rejected: Of those, because the queue was full.
        lost: On a replica that ended before it was done, and not to be done again.
        expired: Not done before their deadline.
        retried: How often one was done again, after the replica that worked on it had ended.
        waits_s, latencies_s: Of the done ones, in the order in which they ended. A wait ends when the attempt begins that is
            done in the end.
        which: Which requests these are, by their number.
        given_up: Likewise which have failed, were lost or have expired, under these words.
    """

    arrived: int = 0
    failed: int = 0
    rejected: int = 0
    lost: int = 0
    expired: int = 0
    retried: int = 0
    waits_s: "array[float]" = attrs.Factory(lambda: array("d"))
    latencies_s: "array[float]" = attrs.Factory(lambda: array("d"))
    which: "array[int]" = attrs.Factory(lambda: array("I"))
    given_up: "dict[str, array[int]]" = attrs.Factory(lambda: {kind: array("I") for kind in GIVEN_UP})

    @property
    def done(self) -> int:
        """How many were served to the end."""
        return len(self.latencies_s)

    def give_up(self, kind: str, index: int) -> None:
        """A request has failed, was lost or has expired."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.given_up[kind].append(index)


@attrs.define
class SoFar:
    """Of requests that have no answer yet: how long each has waited at least, and taken at least.

    One that is worked on has waited until that began, and waits longer only if its replica ends before it is done.
    """

    waits_s: "array[float]" = attrs.Factory(lambda: array("d"))
    latencies_s: "array[float]" = attrs.Factory(lambda: array("d"))


class CallWatcher(Protocol):
    """Whoever wants to know more of requests than their counts."""

    def look(self, now: float, waiting: int, is_served: bool) -> None:
        """So many wait, and there is a replica that takes requests, or none."""

    def begun(self, now: float, index: int, replica_id: ReplicaId) -> None:
        """A replica works on a request."""

    def done(self, now: float, index: int) -> None:
        """A request has its answer."""

    def over(self, now: float, index: int, command: Command) -> None:
        """A request was told that there is no answer."""

    def used(self, replica_id: ReplicaId, in_flight: int) -> None:
        """A replica has begun or ended requests."""


class RequestQueue:
    """Hands requests over as the router says, and lets replicas work on them.

    Attributes:
        arrivals: All requests that come.
        counts: What has become of them so far.
        when_one_waits: Called when a request has to wait and none did before; None: nobody wants to know.
        watcher: None: nobody wants to know more.
    """

    def __init__(self, loop: EventLoop, arrivals: Arrivals, spec: RoutingSpec, sessions: int | None = None) -> None:
        """`sessions`: requests are of so many sessions in turn, which the policy "affinity" goes by; None: of none."""
        self.arrivals = arrivals = arrivals.of_a_run()
        self.counts = RequestCounts()
        self.series = RequestSeries()
        self._loop = loop
        self._router = Router(spec, explains=False)
        self._sessions = sessions
        self._is_plain = sessions is None and arrivals.sessions is None and arrivals.timeouts_s is None
        self._shown_waiting = 0
        self._servers: dict[ReplicaId, Server] = {}
        self._routed: dict[ReplicaId, None] = {}
        self._routes_epoch = -1
        self._wakes = 0
        self._when_done = self._end  # to make it for each request would take longer than to push it
        self.when_one_waits: Callable[[], None] | None = None
        self.watcher: CallWatcher | None = None
        self._users: UserLoop | None = None
        if arrivals.users is None:
            loop.follow(arrivals.at_s, self._arrive)
        else:
            self._users = UserLoop(loop, arrivals.users, arrivals, self._arrive)

    @property
    def waiting(self) -> int:
        """How many requests wait for a replica."""
        return self._router.waiting

    def in_flight_of(self, replica_id: ReplicaId) -> int:
        """How many requests a replica works on."""
        replica = self._router.replicas.get(replica_id)
        return len(replica.flights) if replica is not None else 0

    @property
    def routed(self) -> tuple[ReplicaId, ...]:
        """Replicas that the controller has published."""
        return tuple(self._routed)

    @property
    def unfinished(self) -> int:
        """How many have come and are neither done nor given up."""
        counts = self.counts
        return counts.arrived - counts.done - counts.failed - counts.lost - counts.expired

    @property
    def idle(self) -> bool:
        """Whether all requests have come and none waits or is in flight."""
        have_come = self.counts.arrived == len(self.arrivals) if self._users is None else self._users.has_ended
        return have_come and not self.unfinished

    @property
    def last_at(self) -> float:
        """When the last request comes, as far as is known; 0: none does."""
        if self._users is not None:
            return self._users.last_at
        return self.arrivals.at_s[-1] if self.arrivals.at_s else 0.0

    def so_far(self) -> SoFar:
        """What requests without an answer have been through by now."""
        found, now = SoFar(), self._loop.now
        waiting = [each for each in self._router.requests.values() if not each.answered]
        if not waiting:
            return found
        began_at = {(index, attempt): at for index, attempt, at in self._worked_on()}
        for request in waiting:
            index: Any = request.request_id  # ours are indices
            arrived_at = self.arrivals.at_s[index]
            is_worked_on = request.replica_id is not None
            found.waits_s.append((began_at[index, request.attempt] if is_worked_on else now) - arrived_at)
            found.latencies_s.append(now - arrived_at)
        return found

    def _worked_on(self) -> Iterator[tuple[int, int, float]]:
        """(index, attempt, began_at) of requests that replicas have."""
        for _, index, attempt, at in self._loop.arguments_of(self._when_done):
            yield index, attempt, at
        for server in self._servers.values():
            yield from server.stuck

    # -- what happens to replicas

    def publish(self, routes: PublishRoutes) -> None:
        """Which replicas take requests from now on; those of an older epoch are forgotten, news of one is refused."""
        if routes.epoch < self._routes_epoch:
            return
        removed = list(routes.removed)
        if routes.epoch > self._routes_epoch:
            self._routes_epoch = routes.epoch
            removed += [replica_id for replica_id in self._routed if replica_id not in removed]
        for replica_id in removed:
            self._routed.pop(replica_id, None)
        self._routed.update(dict.fromkeys(routes.added))
        self._change(self._shut(removed), self._open(routes.added))

    def accept(self, replica_id: ReplicaId, node_id: NodeId | None = None) -> None:
        """A replica has started up on a node: it takes requests as soon as it is routed."""
        self._servers.setdefault(replica_id, Server(replica_id)).accepting = True
        self._change((), self._open((replica_id,)))

    def drain(self, replica_id: ReplicaId, when_idle: Callable[[], None]) -> None:
        """A replica takes no further request; `when_idle` is called once it has none in flight, perhaps right now."""
        server = self._servers.get(replica_id)
        if server is not None:
            server.accepting = False
            self._change(self._shut((replica_id,)), ())
        if server is None or not self.in_flight_of(replica_id):
            when_idle()
        else:
            server.when_idle = when_idle

    def lose(self, replica_id: ReplicaId) -> int:
        """A replica has ended; returns how many requests are lost with it, those apart that are done again."""
        self._routed.pop(replica_id, None)
        server = self._servers.pop(replica_id, None)
        if server is None:
            return 0
        server.gone, server.accepting, server.open = True, False, False
        before = self.counts.lost
        self.tell(ReplicaLost(replica_id=replica_id, reason="ended", at=self._loop.now))
        return self.counts.lost - before

    def freeze(self, replica_id: ReplicaId) -> None:
        """A replica hangs: what it works on stands still, and so does what it is handed until the router knows."""
        server = self._servers.get(replica_id)
        if server is not None:
            server.pauses = server.pauses or Pauses()
            server.pauses.begin(self._loop.now)

    def thaw(self, replica_id: ReplicaId) -> None:
        """A replica goes on with its requests where it was."""
        server = self._servers.get(replica_id)
        if server is None or server.pauses is None:
            return
        server.pauses.end(self._loop.now)
        stuck, server.stuck = server.stuck, []
        for index, attempt, began_at in stuck:
            self._end((server, index, attempt, began_at))

    def slow_down(self, replica_id: ReplicaId, factor: float) -> None:
        """A replica takes so many times as long: not those that take a request's time, whatever else they do."""

    def slow_no_more(self, replica_id: ReplicaId, factor: float) -> None:
        """That is over."""

    def finish(self) -> None:
        """The run is over: nothing is left to count of replicas that take a request's time, whatever else they do."""

    def close(self) -> None:
        """The deployment is deleted: nobody will ever take what waits, or what is still to come."""
        self.tell(RouterClosed(at=self._loop.now))

    def _stands_still(self, server: Server, pauses: Pauses, index: int, attempt: int, began_at: float) -> bool:
        """Whether a request is not done yet, because its replica hangs or hung; then it is put off."""
        if pauses.since is not None:
            server.stuck.append((index, attempt, began_at))
            return True
        left_s = pauses.left_s(began_at, self.arrivals.service_s[index], self._loop.now)
        if left_s:
            self._loop.at_with(self._loop.now + left_s, self._when_done, (server, index, attempt, began_at))
        return left_s > 0.0

    def _open(self, replica_ids: Sequence[ReplicaId]) -> tuple[Route, ...]:
        servers = [self._servers[each] for each in replica_ids if each in self._servers and each in self._routed]
        opened = [server for server in servers if server.accepting and not server.open]
        for server in opened:
            server.open = True
        return tuple(Route(server.replica_id) for server in opened)

    def _shut(self, replica_ids: Sequence[ReplicaId]) -> tuple[ReplicaId, ...]:
        shut = [self._servers[each] for each in replica_ids if each in self._servers and self._servers[each].open]
        for server in shut:
            server.open = False
        return tuple(server.replica_id for server in shut)

    def _change(self, removed: tuple[ReplicaId, ...], added: tuple[Route, ...]) -> None:
        if removed or added:
            self.tell(RoutesChanged(removed=removed, added=added, at=self._loop.now))

    # -- what happens to requests

    def tell(self, event: Event) -> None:
        """Something has happened that the router is to know."""
        self._carry_out(self._router.step(event).commands)

    def _arrive(self, index: int) -> None:
        self.counts.arrived = index + 1
        loop, router = self._loop, self._router
        now = loop.now
        if not self._is_plain:
            self.tell(self._with_its_own(index, now))
            return
        replica_id = router.arrive(index, now)
        if replica_id is None:
            self._carry_out(router.commands)
            return
        self._begin(replica_id, index, 1)

    def _with_its_own(self, index: int, now: float) -> RequestArrived:
        """A request that has a session, or a deadline."""
        sessions, timeouts_s = self.arrivals.sessions, self.arrivals.timeouts_s
        session = sessions[index] if sessions is not None else None if self._sessions is None else index % self._sessions
        return RequestArrived(
            request_id=index,
            key=None if session is None else f"session {session}",
            deadline=None if timeouts_s is None else now + timeouts_s[index],
            at=now,
        )

    def _begin(self, replica_id: ReplicaId, index: int, attempt: int) -> None:
        loop, server, watcher = self._loop, self._servers[replica_id], self.watcher
        now = loop.now
        loop.at_with(now + self.arrivals.service_s[index], self._when_done, (server, index, attempt, now))
        if watcher is not None:
            watcher.begun(now, index, replica_id)
            watcher.used(replica_id, self.in_flight_of(replica_id))

    def _end(self, work: tuple[Server, int, int, float]) -> None:
        server, index, attempt, began_at = work
        if server.gone:
            return  # told when the replica ended
        if server.pauses is not None and self._stands_still(server, server.pauses, index, attempt, began_at):
            return
        now, router = self._loop.now, self._router
        was_plain = router.finish(index, attempt, now)
        if was_plain or any(type(command) is Complete for command in router.commands):
            counts, arrived_at = self.counts, self.arrivals.at_s[index]
            if now >= self.series.ended.next_at:
                self.series.ended.passed(now, counts.done)
            counts.waits_s.append(began_at - arrived_at)
            counts.latencies_s.append(now - arrived_at)
            counts.which.append(index)
            if self.watcher is not None:
                self.watcher.done(now, index)
            if self._users is not None:
                self._users.answered(index)
        if not was_plain:
            self._carry_out(router.commands)
        if self.watcher is not None:
            self.watcher.used(server.replica_id, self.in_flight_of(server.replica_id))
        if server.when_idle is not None:
            self._look_idle(server)

    def _look_idle(self, server: Server) -> None:
        """Let a replica that drains go on once it has nothing in flight."""
        if server.when_idle is not None and not self.in_flight_of(server.replica_id):
            when_idle, server.when_idle = server.when_idle, None
            when_idle()

    def _wake(self, number: int) -> None:
        if number == self._wakes:
            self.tell(ClockAdvanced(at=self._loop.now))

    # -- commands

    def _carry_out(self, commands: Sequence[Command]) -> None:
        loop = self._loop
        for command in commands:
            if type(command) is Dispatch:
                index: Any = command.request_id  # ours are indices
                self._begin(command.replica_id, index, 1)
            elif type(command) is not Complete:
                self._carry_out_rare(command)
        waiting = self._router.waiting
        if waiting != self._shown_waiting:
            none_waited, self._shown_waiting = not self._shown_waiting, waiting
            self.series.waiting.set(loop.now, waiting)
            if none_waited and self.when_one_waits is not None:
                self.when_one_waits()
        if self.watcher is not None:
            self.watcher.look(loop.now, waiting, any(server.open for server in self._servers.values()))

    def _carry_out_rare(self, command: Command) -> None:
        counts = self.counts
        if self.watcher is not None and isinstance(command, Reject | Decline | Fail | Expire):
            self.watcher.over(self._loop.now, int(command.request_id), command)
        if self._users is not None:
            self._tell_user(self._users, command)
        match command:
            case Retry():
                counts.retried += 1
                self._begin(command.replica_id, int(command.request_id), command.attempt)
            case Decline():
                counts.give_up("failed", int(command.request_id))
            case Reject():
                counts.give_up("failed", int(command.request_id))
                counts.rejected += 1
            case Fail():
                counts.give_up("lost" if command.kind is FailureKind.LOST else "failed", int(command.request_id))
            case Expire():
                counts.give_up("expired", int(command.request_id))
            case WakeAt():
                self._wakes += 1
                self._loop.at(command.at, self._wake, self._wakes)
            case _:
                pass  # nothing is streamed or cancelled here, and a replica that has begun goes on to the end

    @staticmethod
    def _tell_user(users: UserLoop, command: Command) -> None:
        """What becomes of a request for which there is no answer."""
        match command:
            case Reject() | Decline():
                users.turned_away(int(command.request_id), command.retry_after_s)
            case Fail(kind=None):
                users.turned_away(int(command.request_id), None)
            case Fail() | Expire():
                users.answered(int(command.request_id))
            case _:
                pass
