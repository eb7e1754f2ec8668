"""The simulator's model of requests and replicas, written as people write models in SimPy: the other side of `simulator`.

Replicas start, are initialised and are routed; some crash, lose what they work on and are replaced. Requests wait in
line for the replica with least in flight. It knows no ranks, no controller, no invariants and no figures.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import attrs
import simpy


@attrs.frozen(kw_only=True)
class Setting:
    """What both sides simulate.

    Attributes:
        crashes: (at, rank): when the replica with which rank crashes.
    """

    replicas: int = 64
    max_ongoing: int = 8
    start_s: float = 1.0
    init_s: float = 10.0
    latency_s: float = 0.001
    crashes: tuple[tuple[float, int], ...] = ()


@attrs.define(eq=False)
class Replica:
    in_flight: int = 0
    alive: bool = True


class Router:
    """The same data structures as the simulator's own queue: what is compared is the way of simulating."""

    def __init__(self, max_ongoing: int) -> None:
        self.arrived = self.done = self.lost = 0
        self.waits_s = array("d")
        self.latencies_s = array("d")
        self.waiting: deque[Any] = deque()
        self.hand_over: Callable[[Any, Replica], object] = lambda request, replica: request.succeed(replica)
        self._max_ongoing = max_ongoing
        self._free: list[OrderedDict[Replica, None]] = [OrderedDict() for _ in range(max_ongoing)]
        self._least = 0

    def take(self) -> Replica | None:
        for least in range(self._least, self._max_ongoing):
            if self._free[least]:
                self._least = least
                replica = self._free[least].popitem(last=False)[0]
                self._count(replica)
                return replica
        self._least = self._max_ongoing
        return None

    def add(self, replica: Replica) -> None:
        while self.waiting and replica.in_flight < self._max_ongoing:
            replica.in_flight += 1
            self.hand_over(self.waiting.popleft(), replica)
        self._put(replica)

    def give_back(self, replica: Replica) -> None:
        if replica.in_flight < self._max_ongoing:
            del self._free[replica.in_flight][replica]
        if self.waiting:
            self.hand_over(self.waiting.popleft(), replica)
            return
        replica.in_flight -= 1
        self._put(replica)

    def crash(self, replica: Replica) -> None:
        replica.alive = False
        self.lost += replica.in_flight
        if replica.in_flight < self._max_ongoing:
            self._free[replica.in_flight].pop(replica, None)

    def finish(self, replica: Replica, wait_s: float, latency_s: float) -> None:
        self.done += 1
        self.waits_s.append(wait_s)
        self.latencies_s.append(latency_s)
        self.give_back(replica)

    def _count(self, replica: Replica) -> None:
        replica.in_flight += 1
        if replica.in_flight < self._max_ongoing:
            self._free[replica.in_flight][replica] = None

    def _put(self, replica: Replica) -> None:
        if replica.in_flight < self._max_ongoing:
            self._free[replica.in_flight][replica] = None
            self._least = min(self._least, replica.in_flight)


Steps = Generator[simpy.Event, Any, None]


class Model:
    """All of it, with a process for each request: how SimPy is meant to be used."""

    def __init__(self, setting: Setting, at_s: Sequence[float], service_s: Sequence[float]) -> None:
        self.env = simpy.Environment()
        self.router = Router(setting.max_ongoing)
        self._setting = setting
        self._at_s = at_s
        self._service_s = service_s
        self._replicas = [Replica() for _ in range(setting.replicas)]

    def run(self) -> Router:
        for rank in range(self._setting.replicas):
            self.env.process(self._come_up(rank))
        for at, rank in self._setting.crashes:
            self.env.process(self._crash(at, rank))
        self._begin_requests()
        self.env.run()
        return self.router

    def _begin_requests(self) -> None:
        self.env.process(self._arrivals())

    def _come_up(self, rank: int) -> Steps:
        setting = self._setting
        yield self.env.timeout(setting.start_s)
        yield self.env.timeout(setting.latency_s)  # placed
        yield self.env.timeout(setting.latency_s)  # told its rank
        yield self.env.timeout(setting.init_s)
        yield self.env.timeout(setting.latency_s)  # ready
        yield self.env.timeout(setting.latency_s)  # routed
        self.router.add(self._replicas[rank])

    def _crash(self, at: float, rank: int) -> Steps:
        yield self.env.timeout(at)
        self.router.crash(self._replicas[rank])
        self._replicas[rank] = Replica()
        yield self.env.timeout(self._setting.latency_s)  # the controller hears of it
        yield self.env.process(self._come_up(rank))

    def _arrivals(self) -> Steps:
        env = self.env
        for index, at in enumerate(self._at_s):
            yield env.timeout(at - env.now)
            self.router.arrived += 1
            env.process(self._request(index))

    def _request(self, index: int) -> Steps:
        env, router = self.env, self.router
        arrived_at = env.now
        replica = router.take() if not router.waiting else None
        if replica is None:
            turn = env.event()
            router.waiting.append(turn)
            replica = yield turn
        began_at = env.now
        yield env.timeout(self._service_s[index])
        if replica.alive:
            router.finish(replica, began_at - arrived_at, env.now - arrived_at)


class LeanModel(Model):
    """The same with callbacks on time-outs instead of processes: as fast as SimPy gets, and no longer how it is used."""

    def _begin_requests(self) -> None:
        self.router.hand_over = self._serve
        self._next(0)

    def _next(self, index: int) -> None:
        if index < len(self._at_s):
            self.env.timeout(self._at_s[index] - self.env.now, index).callbacks.append(self._arrive)

    def _arrive(self, event: simpy.Event) -> None:
        index = event.value
        router = self.router
        router.arrived += 1
        self._next(index + 1)
        replica = router.take() if not router.waiting else None
        if replica is None:
            router.waiting.append((index, self.env.now))
        else:
            self._serve((index, self.env.now), replica)

    def _serve(self, request: tuple[int, float], replica: Replica) -> None:
        index, arrived_at = request
        done = self.env.timeout(self._service_s[index], (replica, arrived_at, self.env.now))
        done.callbacks.append(self._finish)

    def _finish(self, event: simpy.Event) -> None:
        replica, arrived_at, began_at = event.value
        if replica.alive:
            self.router.finish(replica, began_at - arrived_at, self.env.now - arrived_at)
