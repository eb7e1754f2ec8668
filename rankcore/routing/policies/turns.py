"""Policies that go by turns: the shared queue and round robin."""

from collections import OrderedDict
from heapq import heapify, heappop, heappush

from rankcore.routing.policies.choice import Choice
from rankcore.routing.records import Request, RoutedReplica
from rankcore.routing.spec import RoutingSpec

STALE_MIN = 64


class SharedQueue(Choice):
    """Replicas that have room stand in line for the next request; who has taken one and has room for more goes to the end.

    With `max_ongoing_requests=1` this is: whoever has been idle for longest takes the next.
    """

    def __init__(self, _: RoutingSpec) -> None:
        super().__init__()
        self._line: OrderedDict[int, RoutedReplica] = OrderedDict()

    def first(self, _: Request) -> RoutedReplica | None:
        """The head of the line."""
        return next(iter(self._line.values())) if self._line else None

    def given(self, replica: RoutedReplica) -> None:
        """To the end of the line, or out of it."""
        self.update(replica)
        if replica.listed >= 0:
            self._line.move_to_end(replica.birth)

    def update(self, replica: RoutedReplica) -> None:
        """Who gets room stands behind the others, who has room already stays where it is."""
        has_room = len(replica.flights) < replica.limit
        if has_room and replica.listed < 0:
            self._line[replica.birth] = replica
            replica.listed = 0
        elif not has_room and replica.listed >= 0:
            del self._line[replica.birth]
            replica.listed = -1

    def order(self) -> list[RoutedReplica]:
        """The line."""
        return list(self._line.values())


class RoundRobin(Choice):
    """The replica, among those that have room, whose last request was given to it longest ago; a new one comes first.

    Entries of the heap that are out of date are dropped when they come up, or when they are most of it: O(log N) a step.
    """

    def __init__(self, _: RoutingSpec) -> None:
        super().__init__()
        self._heap: list[tuple[int, int, RoutedReplica]] = []
        self._open = 0

    def first(self, _: Request) -> RoutedReplica | None:
        """The least recently chosen."""
        heap = self._heap
        while heap:
            turn, _birth, replica = heap[0]
            if replica.listed >= 0 and replica.turn == turn:
                return replica
            heappop(heap)
        return None

    def given(self, replica: RoutedReplica) -> None:
        """To the end."""
        self.draws = replica.turn = self.draws + 1
        self._drop(replica)
        self.update(replica)

    def update(self, replica: RoutedReplica) -> None:
        """At its place, as long as it has room."""
        has_room = len(replica.flights) < replica.limit
        if has_room and replica.listed < 0:
            replica.listed = 0
            self._open += 1
            heappush(self._heap, (replica.turn, replica.birth, replica))
            if len(self._heap) > 2 * self._open + STALE_MIN:
                self._heap = [(each.turn, each.birth, each) for each in self.order()]
                heapify(self._heap)
        elif not has_room:
            self._drop(replica)

    def _drop(self, replica: RoutedReplica) -> None:
        if replica.listed >= 0:
            replica.listed = -1
            self._open -= 1

    def order(self) -> list[RoutedReplica]:
        """The next one first."""
        has_room = {birth: replica for _, birth, replica in self._heap if replica.listed >= 0}
        return sorted(has_room.values(), key=lambda replica: (replica.turn, replica.birth))
