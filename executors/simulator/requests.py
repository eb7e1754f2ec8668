"""Requests of one deployment: one queue, and replicas that take a request only while they have room for it.

Every request costs a constant number of moves, however many replicas there are and however long the queue is.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable

import attrs

from executors.simulator.arrivals import Arrivals
from executors.simulator.clock import EventLoop
from rankcore.commands import PublishRoutes
from rankcore.values import ReplicaId


@attrs.define(eq=False)
class Server:
    """A replica, as the router sees it.

    Attributes:
        in_flight: Requests that it works on.
        accepting: Whether the replica takes requests: started up, not draining, alive.
        gone: Whether it has ended; what it worked on is lost.
        when_idle: Called once nothing is in flight any more, while it drains.
    """

    replica_id: ReplicaId
    in_flight: int = 0
    accepting: bool = False
    gone: bool = False
    when_idle: Callable[[], None] | None = None


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
    """Hands requests, in the order of their arrival, to the routed replica that has least in flight."""

    def __init__(self, loop: EventLoop, arrivals: Arrivals, max_ongoing: int, max_queued: int) -> None:
        self.counts = RequestCounts()
        self._loop = loop
        self._arrivals = arrivals
        self._max_queued = max_queued
        self._waiting: deque[int] = deque()
        self._servers: dict[ReplicaId, Server] = {}
        self._routed: dict[ReplicaId, None] = {}
        self._routes_epoch = -1
        # Free servers by how many requests they have in flight, each in the order in which it got there.
        self._free: list[OrderedDict[ReplicaId, Server]] = [OrderedDict() for _ in range(max_ongoing)]
        self._least = 0
        self._in_flight = 0
        self._closed = False
        if arrivals.at_s:
            loop.at(arrivals.at_s[0], self._arrive, 0)

    @property
    def waiting(self) -> int:
        """How many requests wait for a replica."""
        return len(self._waiting)

    @property
    def unfinished(self) -> int:
        """How many have come and are neither done nor given up."""
        return len(self._waiting) + self._in_flight

    @property
    def idle(self) -> bool:
        """Whether all requests have come and none waits or is in flight."""
        return self.counts.arrived == len(self._arrivals) and not self.unfinished

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

    def close(self) -> None:
        """The deployment is deleted: nobody will ever take what waits, or what is still to come."""
        self._closed = True
        self.counts.failed += len(self._waiting)
        self._waiting.clear()

    def _close(self, server: Server | None) -> None:
        if server is not None:
            server.accepting = False
            self._withdraw(server)

    def _unroute(self, replica_id: ReplicaId) -> None:
        self._routed.pop(replica_id, None)
        server = self._servers.get(replica_id)
        if server is not None:
            self._withdraw(server)

    def _offer(self, replica_id: ReplicaId) -> None:
        server = self._servers.get(replica_id)
        if server is None or not server.accepting or replica_id not in self._routed:
            return
        if server.in_flight < len(self._free):
            self._free[server.in_flight][replica_id] = server
            self._least = min(self._least, server.in_flight)

    def _withdraw(self, server: Server) -> None:
        if server.in_flight < len(self._free):
            self._free[server.in_flight].pop(server.replica_id, None)

    def _take_free(self) -> Server | None:
        while self._least < len(self._free):
            level = self._free[self._least]
            if level:
                return level.popitem(last=False)[1]
            self._least += 1
        return None

    def _arrive(self, index: int) -> None:
        self.counts.arrived += 1
        if index + 1 < len(self._arrivals):
            self._loop.at(self._arrivals.at_s[index + 1], self._arrive, index + 1)
        server = self._take_free() if not self._waiting else None
        if server is not None:
            self._serve(server, index)
        elif len(self._waiting) < self._max_queued and not self._closed:
            self._waiting.append(index)
        else:
            self.counts.failed += 1

    def _dispatch(self) -> None:
        while self._waiting:
            server = self._take_free()
            if server is None:
                return
            self._serve(server, self._waiting.popleft())

    def _serve(self, server: Server, index: int) -> None:
        server.in_flight += 1
        self._in_flight += 1
        self._offer(server.replica_id)
        self._loop.after(self._arrivals.service_s[index], self._finish, server, index, self._loop.now)

    def _finish(self, server: Server, index: int, began_at: float) -> None:
        if server.gone:
            return  # counted as lost when the replica ended
        counts = self.counts
        arrived_at = self._arrivals.at_s[index]
        counts.done += 1
        counts.waits_s.append(began_at - arrived_at)
        counts.latencies_s.append(self._loop.now - arrived_at)
        self._withdraw(server)
        server.in_flight -= 1
        self._in_flight -= 1
        self._offer(server.replica_id)
        if server.when_idle is not None and not server.in_flight:
            when_idle, server.when_idle = server.when_idle, None
            when_idle()
        elif self._waiting:
            self._dispatch()
