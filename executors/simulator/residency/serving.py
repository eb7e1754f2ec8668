"""Requests in the world of models: they arrive, replicas work on them as the fleet says, and each gets its one answer."""

from collections.abc import Callable, Mapping
from typing import Any

from executors.simulator.clock import EventLoop
from executors.simulator.residency.control import Control
from executors.simulator.residency.port import ModelPort
from rankcore.routing import FailureKind, RoutingNote, RoutingNoteKind
from rankcore.routing.commands import Complete, Dispatch, Expire, Fail, Forget, Reject, Retry

WAITS = frozenset({RoutingNoteKind.QUEUED, RoutingNoteKind.QUEUED_AGAIN})

Report = Callable[..., None]
"""Called with a replica, whom it tells something, and what."""


class Serving:
    """All requests of a run. A request has a number of its own among those of all models.

    Attributes:
        ports: Where they are counted, by model.
    """

    def __init__(self, loop: EventLoop, ports: Mapping[str, ModelPort]) -> None:
        self.ports = ports
        self._loop = loop
        self._first: dict[str, int] = {}
        self._flights: dict[str, set[tuple[int, int]]] = {}
        self._when_idle: dict[str, tuple[Callable[..., None], tuple[object, ...]]] = {}
        first = 1
        for name, port in ports.items():
            self._first[name] = first
            first += len(port.arrivals)
        self._owners = [port for port in ports.values() for _ in range(len(port.arrivals))]

    def begin(self, control: Control, report: Report) -> None:
        """Let them come; `report` brings what a replica says to the control."""
        self._control = control
        self._report = report
        for port in self.ports.values():
            self._loop.follow(port.arrivals.at_s, _Arrival(self, port))

    def arrive(self, port: ModelPort, index: int) -> None:
        """The next request of a model."""
        port.counts.arrived = index + 1
        self._control.request(port.name, self._first[port.name] + index)

    # -- what the fleet says

    def noted(self, note: RoutingNote) -> None:
        """A router did something with a request."""
        if note.kind in WAITS:
            port, index = self._find(note.request_id)
            port.queued(self._loop.now, index, self._control.is_hot(port.name))

    def dispatch(self, command: Dispatch | Retry) -> None:
        """A replica begins to work on a request."""
        port, index = self._find(command.request_id)
        now = self._loop.now
        port.begun(now, index)
        if command.attempt > 1:
            port.counts.retried += 1
        flight = (self._first[port.name] + index, command.attempt)
        self._flights.setdefault(command.replica_id, set()).add(flight)
        self._loop.at_with(now + port.arrivals.service_s[index], self._end, (command.replica_id, flight))

    def answer(self, command: Complete | Fail | Reject | Expire | Forget) -> None:
        """A request has its one final answer."""
        port, index = self._find(command.request_id)
        now, counts = self._loop.now, port.counts
        match command:
            case Complete():
                port.done(now, index)
                return
            case Fail(kind=FailureKind.LOST):
                counts.lost += 1
            case Reject():
                counts.failed += 1
                counts.rejected += 1
            case Expire():
                counts.expired += 1
            case _:
                counts.failed += 1
        port.over(now, index)

    # -- what happens to replicas

    def drain(self, replica_id: str, when_idle: Callable[..., None], *arguments: object) -> None:
        """A replica gets no more requests; `when_idle` is called once it has none in flight, perhaps right now.

        A bound method with its arguments and no closure, so that a copy of the world goes on in itself.
        """
        if self._flights.get(replica_id):
            self._when_idle[replica_id] = (when_idle, arguments)
        else:
            when_idle(*arguments)

    def lose(self, replica_id: str) -> None:
        """A replica has ended, and with it what it worked on; the fleet that hears of its end knows what to do about that."""
        self._flights.pop(replica_id, None)
        self._when_idle.pop(replica_id, None)

    def cut_off(self, replica_id: str) -> None:
        """A replica may go on no longer: what it works on is lost, and each of these is told."""
        self._when_idle.pop(replica_id, None)
        for flight in sorted(self._flights.pop(replica_id, ())):
            self._report(replica_id, self._control.request_lost, *flight, self._loop.now)

    def _end(self, work: tuple[str, tuple[int, int]]) -> None:
        replica_id, flight = work
        flights = self._flights.get(replica_id)
        if flights is None or flight not in flights:
            return
        flights.remove(flight)
        self._report(replica_id, self._control.request_done, *flight, self._loop.now)
        if not flights and replica_id in self._when_idle:
            when_idle, arguments = self._when_idle.pop(replica_id)
            when_idle(*arguments)

    def _find(self, request_id: Any) -> tuple[ModelPort, int]:
        """Whose request it is, and which of them."""
        port = self._owners[request_id - 1]
        return port, request_id - self._first[port.name]


class _Arrival:
    """What is called when a request of a model arrives."""

    def __init__(self, serving: Serving, port: ModelPort) -> None:
        self._serving = serving
        self._port = port

    def __call__(self, index: int) -> None:
        self._serving.arrive(self._port, index)
