"""The replica with fewest requests in flight; of equals, the one that is so for longest."""

from collections import deque

from rankcore.routing.policies.choice import Choice
from rankcore.routing.records import Replica, Request
from rankcore.routing.spec import RoutingSpec

SWEEP_EVERY = 1024
"""Moves after which stale entries are looked for; a power of two."""


class LeastLoaded(Choice):
    """Replicas that have room, by how many requests they have in flight, each in the order in which it got there.

    A step costs O(1), whatever the number of replicas: `_levels` has one bit for each load that somebody may have, and an
    entry that is out of date stays in its line until it comes up, or until most entries are.
    """

    def __init__(self, _: RoutingSpec) -> None:
        super().__init__()
        self._lines: list[deque[tuple[int, Replica]]] = []
        self._levels = 0
        self._stamps = 0
        self._open = 0

    def take(self, request: Request) -> Replica | None:
        """The head of the lowest line, which goes to the end of the next one: once for each request, so written out."""
        levels = self._levels
        while levels:
            line = self._lines[(levels & -levels).bit_length() - 1]
            while line:
                stamp, replica = line.popleft()
                if replica.stamp == stamp:
                    flights = replica.flights
                    flights[request.serial] = request
                    load = len(flights)
                    if load < replica.limit:
                        self._stand_in_line(load, replica)
                    else:
                        self._open -= 1
                        replica.listed = replica.stamp = -1
                    return replica
            self._levels = levels = levels & levels - 1
        return None

    def first(self, _: Request) -> Replica | None:
        """The head of the lowest line."""
        levels = self._levels
        while levels:
            line = self._lines[(levels & -levels).bit_length() - 1]
            while line:
                stamp, replica = line[0]
                if replica.stamp == stamp:
                    return replica
                line.popleft()
            self._levels = levels = levels & levels - 1
        return None

    def update(self, replica: Replica) -> None:
        """Put a replica into the line of its load, behind the others."""
        load, listed = len(replica.flights), replica.listed
        if load >= replica.limit:
            if listed >= 0:
                self._open -= 1
                replica.listed = replica.stamp = -1
            return
        if listed == load:
            return
        if listed < 0:
            self._open += 1
        self._stand_in_line(load, replica)

    def _stand_in_line(self, load: int, replica: Replica) -> None:
        self._stamps = replica.stamp = stamp = self._stamps + 1
        replica.listed = load
        try:
            self._lines[load].append((stamp, replica))
        except IndexError:
            self._lines += [deque() for _ in range(load + 1 - len(self._lines))]
            self._lines[load].append((stamp, replica))
        self._levels |= 1 << load
        if not stamp & SWEEP_EVERY - 1 and sum(map(len, self._lines)) > 2 * self._open + SWEEP_EVERY:
            self._lines = [deque(entry for entry in line if entry[1].stamp == entry[0]) for line in self._lines]

    def order(self) -> list[Replica]:
        """Line by line."""
        return [replica for line in self._lines for stamp, replica in line if replica.stamp == stamp]
