"""The replica with fewest requests in flight; of equals, the one that is so for longest."""

from collections import OrderedDict

from rankcore.routing.records import Replica, Request
from rankcore.routing.spec import RoutingSpec


class LeastLoaded:
    """Replicas that have room, by how many requests they have in flight, each in the order in which it got there.

    A step costs O(1), whatever the number of replicas: `_levels` has one bit for each load that somebody has.
    """

    def __init__(self, _: RoutingSpec) -> None:
        self.draws = 0
        self._lines: list[OrderedDict[int, Replica]] = []
        self._levels = 0

    def first(self, _: Request) -> Replica | None:
        """The head of the lowest line."""
        levels = self._levels
        if not levels:
            return None
        return next(iter(self._lines[(levels & -levels).bit_length() - 1].values()))

    def update(self, replica: Replica) -> None:
        """Put a replica into the line of its load, behind the others."""
        load, listed = len(replica.flights), replica.listed
        has_room = load < replica.limit
        if listed >= 0:
            if listed == load and has_room:
                return
            line = self._lines[listed]
            del line[replica.birth]
            if not line:
                self._levels ^= 1 << listed
        if not has_room:
            replica.listed = -1
            return
        while len(self._lines) <= load:
            self._lines.append(OrderedDict())
        line = self._lines[load]
        if not line:
            self._levels |= 1 << load
        line[replica.birth] = replica
        replica.listed = load

    given = update

    def enter(self, replica: Replica) -> None:
        """Nothing: `update` does it."""

    def leave(self, replica: Replica) -> None:
        """Nothing: `update` did it."""

    def order(self) -> list[Replica]:
        """Line by line."""
        return [replica for line in self._lines for replica in line.values()]
