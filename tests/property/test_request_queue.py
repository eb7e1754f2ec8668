"""The request queue against a naive one that looks at every server and request each time, and its conservation law."""

import copy
from array import array

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from executors.simulator.clock import EventLoop
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestQueue
from rankcore.commands import PublishRoutes
from rankcore.routing import RoutingSpec
from rankcore.routing.invariants import check_indexes

REPLICAS = ("a", "b", "c")
replicas = st.sampled_from(REPLICAS)
# Quarters of a second: no rounding, and many things at one instant.
seconds = st.integers(0, 12).map(lambda quarters: quarters / 4)


@attrs.define(eq=False)
class NaiveServer:
    name: str
    in_flight: list[tuple[float, int, float]] = attrs.Factory(list)
    accepting: bool = True
    since: int = 0  # the turn in which its number in flight, or its being open, last changed


@attrs.define(eq=False)
class NaiveQueue:
    """One list of everything; nothing is kept up to date."""

    arrivals: Arrivals
    max_ongoing: int
    max_queued: int
    now: float = 0.0
    turn: int = 0
    arrived: int = 0
    failed: int = 0
    lost: int = 0
    closed: bool = False
    waiting: list[int] = attrs.Factory(list)
    servers: dict[str, NaiveServer] = attrs.Factory(dict)
    routed: set[str] = attrs.Factory(set)
    done: list[tuple[float, float]] = attrs.Factory(list)
    drained: list[str] = attrs.Factory(list)
    draining: set[str] = attrs.Factory(set)

    def is_open(self, server: NaiveServer) -> bool:
        return server.accepting and server.name in self.routed

    def moved(self, server: NaiveServer) -> None:
        self.turn += 1
        server.since = self.turn

    def fill(self) -> None:
        while self.waiting:
            free = [each for each in self.servers.values() if self.is_open(each) and len(each.in_flight) < self.max_ongoing]
            if not free:
                return
            server = min(free, key=lambda each: (len(each.in_flight), each.since))
            index = self.waiting.pop(0)
            # The turn orders what ends at one instant.
            self.moved(server)
            server.in_flight.append((self.now + self.arrivals.service_s[index], self.turn, index, self.now))

    def next_end(self) -> tuple[float, int, NaiveServer, int, float] | None:
        ends = [(*each[:2], server, *each[2:]) for server in self.servers.values() for each in server.in_flight]
        return min(ends, key=lambda each: each[:2], default=None)

    def advance(self, until: float) -> None:
        while True:
            end = self.next_end()
            at_s = self.arrivals.at_s
            arrival = at_s[self.arrived] if self.arrived < len(at_s) else None
            if end is not None and end[0] <= until and (arrival is None or end[0] < arrival):
                self.finish(*end)
            elif arrival is not None and arrival <= until:
                self.arrive(arrival)
            else:
                break
        self.now = until

    def arrive(self, at: float) -> None:
        self.now = at
        self.waiting.append(self.arrived)
        self.arrived += 1
        self.fill()
        if self.waiting and (self.closed or len(self.waiting) > self.max_queued):
            self.waiting.pop()
            self.failed += 1

    def finish(self, at: float, turn: int, server: NaiveServer, index: int, began: float) -> None:
        self.now = at
        server.in_flight = [each for each in server.in_flight if each[1] != turn]
        self.done.append((began - self.arrivals.at_s[index], at - self.arrivals.at_s[index]))
        self.moved(server)
        if server.name in self.draining and not server.in_flight:
            self.drained.append(server.name)
            self.draining.discard(server.name)
        self.fill()


class Queues(RuleBasedStateMachine):
    """What happens to both, in any order."""

    @initialize(
        requests=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 16)), min_size=10, max_size=60),
        max_ongoing=st.integers(1, 3),
        max_queued=st.integers(0, 6),
    )
    def begin(self, requests: list[tuple[int, int]], max_ongoing: int, max_queued: int) -> None:
        at_s, service_s = array("d"), array("d")
        quarters = 0
        for index, (gap, takes) in enumerate(requests):
            # Ends fall on whole quarters and arrivals between them: nobody promises which of two at one instant is first.
            quarters += gap
            at_s.append((quarters + 0.5 + index / 1024) / 4)
            service_s.append((quarters + takes) / 4 - at_s[-1])
        arrivals = Arrivals(at_s, service_s)
        self.loop = EventLoop()
        spec = RoutingSpec(name="llm", max_ongoing_requests=max_ongoing, max_queued_requests=max_queued)
        self.queue = RequestQueue(self.loop, arrivals, spec)
        self.naive = NaiveQueue(arrivals, max_ongoing, max_queued)
        self.epoch = 1
        self.drained: list[str] = []
        for replica in REPLICAS:
            self.starts(replica)
        self.is_routed(list(REPLICAS), [], False)

    @rule(step=seconds)
    def time_passes(self, step: float) -> None:
        until = self.loop.now + step
        while self.loop.step(until):
            pass
        self.loop.move_to(until)
        self.naive.advance(until)

    @rule(replica=replicas)
    def starts(self, replica: str) -> None:
        if replica in self.naive.servers:
            return
        self.queue.accept(replica)
        server = self.naive.servers[replica] = NaiveServer(replica)
        self.naive.moved(server)
        self.naive.fill()

    @rule(added=st.lists(replicas, unique=True), removed=st.lists(replicas, unique=True), anew=st.booleans())
    def is_routed(self, added: list[str], removed: list[str], anew: bool) -> None:
        self.epoch += anew
        naive = self.naive
        command = PublishRoutes(added=tuple(added), removed=tuple(removed), revision=1, epoch=self.epoch)
        before = {each.name for each in naive.servers.values() if naive.is_open(each)}
        self.queue.publish(command)
        kept = set() if anew else naive.routed - set(removed)
        naive.routed = kept | set(added)
        for name in added:
            if name in naive.servers and (name not in before or name not in kept):
                naive.moved(naive.servers[name])
        naive.fill()

    @rule(replica=replicas)
    def is_drained(self, replica: str) -> None:
        server = self.naive.servers.get(replica)
        if server is None or not server.accepting:
            return
        self.queue.drain(replica, lambda: self.drained.append(replica))
        server.accepting = False
        if server.in_flight:
            self.naive.draining.add(replica)
        else:
            self.naive.drained.append(replica)

    @rule(replica=replicas)
    def ends(self, replica: str) -> None:
        lost = self.queue.lose(replica)
        server = self.naive.servers.pop(replica, None)
        self.naive.routed.discard(replica)
        self.naive.draining.discard(replica)
        assert lost == (len(server.in_flight) if server is not None else 0)
        self.naive.lost += lost

    @precondition(lambda self: not self.naive.closed)
    @rule(sure=st.integers(0, 5))
    def is_deleted(self, sure: int) -> None:
        if sure:
            return
        self.queue.close()
        self.naive.failed += len(self.naive.waiting)
        self.naive.waiting.clear()
        self.naive.closed = True

    @rule()
    def is_forked(self) -> None:
        """And only the fork goes on: nothing of it may hang on to the original."""
        if self.drained or any(server.when_idle for server in self.queue._servers.values()):
            return  # the test's own closures cannot be copied
        loop, queue = copy.deepcopy((self.loop, self.queue))
        assert queue.arrivals is self.queue.arrivals
        self.loop, self.queue = loop, queue

    @invariant()
    def both_say_the_same(self) -> None:
        counts, naive = self.queue.counts, self.naive
        assert counts.arrived == naive.arrived
        assert (counts.failed, counts.lost) == (naive.failed, naive.lost)
        assert sorted(zip(counts.waits_s, counts.latencies_s, strict=True)) == sorted(naive.done)
        assert self.queue.waiting == len(naive.waiting)
        assert sorted(self.drained) == sorted(naive.drained)

    @invariant()
    def no_request_appears_or_vanishes(self) -> None:
        counts = self.queue.counts
        assert counts.arrived == counts.done + counts.failed + counts.lost + self.queue.unfinished
        in_flight = sum(self.queue.in_flight_of(replica) for replica in REPLICAS)
        assert self.queue.unfinished == self.queue.waiting + in_flight

    @invariant()
    def nobody_waits_while_a_replica_has_room(self) -> None:
        router = self.queue._router
        assert check_indexes(router) == []
        servers, most = self.queue._servers.values(), self.naive.max_ongoing
        free = [each for each in servers if each.open and self.queue.in_flight_of(each.replica_id) < most]
        assert not (free and self.queue.waiting)
        assert {each.replica_id for each in free} == {each.replica_id for each in router.choice.order()}


TestRequestQueue = Queues.TestCase
TestRequestQueue.settings = settings(max_examples=150, deadline=None)
