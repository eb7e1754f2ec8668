"""Requests of one deployment: one queue, and replicas that take a request only while they have room for it.

Every request costs a constant number of moves, however many replicas there are and however long the queue is.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.record.series import Gauge, Marks
from executors.simulator.replicas.pauses import Pauses
from rankcore.commands import PublishRoutes
from rankcore.values import ReplicaId


@attrs.define(eq=False)
class Server:
    """A replica, as the router sees it.

    Attributes:
        in_flight: Requests that it works on.
        accepting: Whether the replica takes requests: started up, not draining, alive.
        open: Whether it takes them and the router knows it.
        gone: Whether it has ended; what it worked on is lost.
        pauses: When it hung; None: it never did.
        stuck: (index, began_at) of requests that ought to be done by now, but for a hang.
        when_idle: Called once nothing is in flight any more, while it drains.
    """

    replica_id: ReplicaId
    in_flight: int = 0
    accepting: bool = False
    open: bool = False
    gone: bool = False
    pauses: Pauses | None = None
    stuck: list[tuple[int, float]] = attrs.Factory(list)
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


@attrs.define
class RequestCounts:
    """What became of the requests so far. arrived = done + failed + lost + waiting + in flight, at all times.

    Attributes:
        failed: Turned away, because the queue was full or the deployment deleted.
        lost: On a replica that ended before it was done.
        waits_s, latencies_s: Of the done ones, in the order in which they ended.
    """

    arrived: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    waits_s: "array[float]" = attrs.Factory(lambda: array("d"))
    latencies_s: "array[float]" = attrs.Factory(lambda: array("d"))


class RequestQueue:
    """Hands requests, in the order of their arrival, to the routed replica that has least in flight.

    While any waits, no open server has room: `_arrive` and `_finish`, which run once for each request and are the
    busiest code of a run, rely on it and are written out rather than composed.

    Attributes:
        arrivals: All requests that come.
        counts: What has become of them so far.
        when_one_waits: Called when a request has to wait and none did before; None: nobody wants to know.
    """

    def __init__(self, loop: EventLoop, arrivals: Arrivals, max_ongoing: int, max_queued: int) -> None:
        self.arrivals = arrivals
        self.counts = RequestCounts()
        self.series = RequestSeries()
        self._loop = loop
        self._max_queued = max_queued
        self._waiting: deque[int] = deque()
        self._servers: dict[ReplicaId, Server] = {}
        self._routed: dict[ReplicaId, None] = {}
        self._routes_epoch = -1
        # Open servers by how many requests they have in flight, each in the order in which it got there.
        self._free: list[OrderedDict[ReplicaId, Server]] = [OrderedDict() for _ in range(max_ongoing)]
        self._max_ongoing = max_ongoing
        self._least = 0
        self._in_flight = 0
        self._closed = False
        self.when_one_waits: Callable[[], None] | None = None
        loop.follow(arrivals.at_s, self._arrive)

    @property
    def waiting(self) -> int:
        """How many requests wait for a replica."""
        return len(self._waiting)

    def in_flight_of(self, replica_id: ReplicaId) -> int:
        """How many requests a replica works on."""
        server = self._servers.get(replica_id)
        return server.in_flight if server is not None else 0

    @property
    def unfinished(self) -> int:
        """How many have come and are neither done nor given up."""
        return len(self._waiting) + self._in_flight

    @property
    def idle(self) -> bool:
        """Whether all requests have come and none waits or is in flight."""
        return self.counts.arrived == len(self.arrivals) and not self.unfinished

    def publish(self, routes: PublishRoutes) -> None:
        """Which replicas take requests from now on; those of an older epoch are forgotten, news of one is refused."""
        if routes.epoch < self._routes_epoch:
            return
        if routes.epoch > self._routes_epoch:
            self._routes_epoch = routes.epoch
            for replica_id in tuple(self._routed):
                self._unroute(replica_id)
        for replica_id in routes.removed:
            self._unroute(replica_id)
        for replica_id in routes.added:
            self._routed[replica_id] = None
            self._offer(replica_id)
        self._dispatch()

    def accept(self, replica_id: ReplicaId) -> None:
        """A replica has started up: it takes requests as soon as it is routed."""
        self._servers.setdefault(replica_id, Server(replica_id)).accepting = True
        self._offer(replica_id)
        self._dispatch()

    def drain(self, replica_id: ReplicaId, when_idle: Callable[[], None]) -> None:
        """A replica takes no further request; `when_idle` is called once it has none in flight, perhaps right now."""
        server = self._servers.get(replica_id)
        if server is None or not server.in_flight:
            self._close(server)
            when_idle()
            return
        self._close(server)
        server.when_idle = when_idle

    def lose(self, replica_id: ReplicaId) -> int:
        """A replica has ended; returns how many requests are lost with it."""
        self._routed.pop(replica_id, None)
        server = self._servers.pop(replica_id, None)
        if server is None:
            return 0
        self._close(server)
        server.gone = True
        self.counts.lost += server.in_flight
        self._in_flight -= server.in_flight
        return server.in_flight

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
        for index, began_at in stuck:
            self._finish(server, index, began_at)

    def _stands_still(self, server: Server, pauses: Pauses, index: int, began_at: float) -> bool:
        """Whether a request is not done yet, because its replica hangs or hung; then it is put off."""
        if pauses.since is not None:
            server.stuck.append((index, began_at))
            return True
        left_s = pauses.left_s(began_at, self.arrivals.service_s[index], self._loop.now)
        if left_s:
            self._loop.after(left_s, self._finish, server, index, began_at)
        return left_s > 0.0

    def close(self) -> None:
        """The deployment is deleted: nobody will ever take what waits, or what is still to come."""
        self._closed = True
        self.counts.failed += len(self._waiting)
        self._waiting.clear()
        self.series.waiting.set(self._loop.now, 0)

    def _close(self, server: Server | None) -> None:
        if server is not None:
            server.accepting = False
            self._shut(server)

    def _unroute(self, replica_id: ReplicaId) -> None:
        self._routed.pop(replica_id, None)
        server = self._servers.get(replica_id)
        if server is not None:
            self._shut(server)

    def _offer(self, replica_id: ReplicaId) -> None:
        server = self._servers.get(replica_id)
        if server is None or server.open or not server.accepting or replica_id not in self._routed:
            return
        server.open = True
        if server.in_flight < self._max_ongoing:
            self._free[server.in_flight][replica_id] = server
            self._least = min(self._least, server.in_flight)

    def _shut(self, server: Server) -> None:
        if server.open and server.in_flight < self._max_ongoing:
            del self._free[server.in_flight][server.replica_id]
        server.open = False

    def _take_free(self) -> Server | None:
        """An open server with least in flight, no longer among the free ones; `_serve` puts it back."""
        free, least, most = self._free, self._least, self._max_ongoing
        while least < most and not free[least]:
            least += 1
        self._least = least
        return free[least].popitem(last=False)[1] if least < most else None

    def _arrive(self, index: int) -> None:
        self.counts.arrived += 1
        server = self._take_free()
        if server is not None:
            self._serve(server, index)
        elif len(self._waiting) < self._max_queued and not self._closed:
            self._waiting.append(index)
            self.series.waiting.set(self._loop.now, len(self._waiting))
            if self.when_one_waits is not None and len(self._waiting) == 1:
                self.when_one_waits()
        else:
            self.counts.failed += 1

    def _dispatch(self) -> None:
        while self._waiting:
            server = self._take_free()
            if server is None:
                return
            self._serve(server, self._waiting.popleft())
            self.series.waiting.set(self._loop.now, len(self._waiting))

    def _serve(self, server: Server, index: int) -> None:
        server.in_flight = in_flight = server.in_flight + 1
        self._in_flight += 1
        if in_flight < self._max_ongoing:
            self._free[in_flight][server.replica_id] = server
        now = self._loop.now
        self._loop.at(now + self.arrivals.service_s[index], self._finish, server, index, now)

    def _finish(self, server: Server, index: int, began_at: float) -> None:
        if server.gone:
            return  # counted as lost when the replica ended
        if server.pauses is not None and self._stands_still(server, server.pauses, index, began_at):
            return
        counts, arrived_at, now = self.counts, self.arrivals.at_s[index], self._loop.now
        counts.done += 1
        if now >= self.series.ended.next_at:
            self.series.ended.passed(now, len(counts.waits_s))
        counts.waits_s.append(began_at - arrived_at)
        counts.latencies_s.append(now - arrived_at)
        self._in_flight -= 1
        in_flight = server.in_flight
        server.in_flight = left = in_flight - 1
        if not server.open:
            if server.when_idle is not None and not left:
                when_idle, server.when_idle = server.when_idle, None
                when_idle()
            return
        if in_flight < self._max_ongoing:
            del self._free[in_flight][server.replica_id]
        if self._waiting:
            self._serve(server, self._waiting.popleft())
            self.series.waiting.set(now, len(self._waiting))
            return
        self._free[left][server.replica_id] = server
        if left < self._least:
            self._least = left
