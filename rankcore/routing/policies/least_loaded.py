"""The replica with fewest requests in flight; of equals, the one that is so for longest."""

from collections import OrderedDict

from rankcore.routing.policies.choice import Choice
from rankcore.routing.records import Request, RoutedReplica
from rankcore.routing.spec import RoutingSpec


class LeastLoaded(Choice):
    """Replicas that have room, in lines: one for each load, in which they stand in the order in which they got there.

    A step costs O(1), whatever the number of replicas and their limits: nobody stands before the line `_least`, and
    `_levels` has a bit for every line that anybody may stand in.
    """

    def __init__(self, _: RoutingSpec) -> None:
        super().__init__()
        self._lines: list[OrderedDict[int, RoutedReplica]] = [OrderedDict()]
        self._least = 0
        self._levels = 0

    def take(self, request: Request) -> RoutedReplica | None:
        """The head of the lowest line, which goes to the end of the next one: once for each request, so written out."""
        lines = self._lines
        line = lines[self._least] or self._lowest()
        if not line:
            return None
        birth, replica = line.popitem(False)
        replica.flights[request.serial] = request
        load = self._least + 1
        if load >= replica.limit:
            replica.listed = -1
        elif load < len(lines) and (line := lines[load]):
            line[birth] = replica
            replica.listed = load
        else:
            self._open_line(load, replica)
        return replica

    def first(self, _: Request) -> RoutedReplica | None:
        """The head of the lowest line."""
        return next(iter(self._lowest().values()), None)

    def update(self, replica: RoutedReplica) -> None:
        """Put a replica into the line of its load, behind the others."""
        load, listed = len(replica.flights), replica.listed
        has_room = load < replica.limit
        if listed == load and has_room:
            return
        lines = self._lines
        if listed >= 0:
            del lines[listed][replica.birth]
        if not has_room:
            replica.listed = -1
        elif load < len(lines) and (line := lines[load]):
            line[replica.birth] = replica
            replica.listed = load
        else:
            self._open_line(load, replica)
        if load < self._least and has_room:
            self._least = load

    def _open_line(self, load: int, replica: RoutedReplica) -> None:
        """Put a replica into a line in which nobody stands."""
        self._lines += [OrderedDict() for _ in range(load + 1 - len(self._lines))]
        self._lines[load][replica.birth] = replica
        self._levels |= 1 << load
        replica.listed = load

    def _lowest(self) -> OrderedDict[int, RoutedReplica]:
        """The lowest line in which somebody stands; an empty one: nobody has room."""
        levels = self._levels
        while levels:
            self._least = (levels & -levels).bit_length() - 1
            line = self._lines[self._least]
            if line:
                break
            levels &= levels - 1
        self._levels = levels
        return self._lines[self._least]

    def order(self) -> list[RoutedReplica]:
        """Line by line."""
        return [replica for line in self._lines for replica in line.values()]
