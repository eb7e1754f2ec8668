"""Whoever is proposed for a request, by code that the core does not know: see `rankcore.routing.proposals`."""

from rankcore.routing.policies.choice import Choice
from rankcore.routing.records import Line, Ranked, Request, RoutedReplica
from rankcore.routing.spec import RoutingSpec
from rankcore.values import ReplicaId


class Proposed(Choice):
    """Replicas that have room, by id; and who waits for which of them.

    Attributes:
        undecided: Serials of the requests that wait for their first proposal.
        lines: What waits for a replica that was proposed for it; no line is empty.
    """

    asks = True

    def __init__(self, _: RoutingSpec) -> None:
        super().__init__()
        self._open: dict[ReplicaId, RoutedReplica] = {}
        self.undecided: set[int] = set()
        self.lines: dict[ReplicaId, Line] = {}

    def first(self, request: Request) -> RoutedReplica | None:
        """Of the first group in which anybody has room, the one with fewest in flight; of equals, the first that is named."""
        for group in request.ranked or ():
            having_room = [self._open[each] for each in group if each in self._open]
            if having_room:
                return min(having_room, key=_load)
        return None

    def update(self, replica: RoutedReplica) -> None:
        """Among them as long as it has room."""
        has_room = len(replica.flights) < replica.limit
        if has_room and replica.listed < 0:
            replica.listed = 0
            self._open[replica.replica_id] = replica
        elif not has_room and replica.listed >= 0:
            replica.listed = -1
            del self._open[replica.replica_id]

    def order(self) -> list[RoutedReplica]:
        """As they got room."""
        return list(self._open.values())

    def waits(self, request: Request) -> None:
        """It stands in the line; who may have it is not known yet, unless it says so."""
        if request.ranked is None:
            self.undecided.add(request.serial)
        else:
            for replica_id in named_by(request.ranked):
                self.lines.setdefault(replica_id, Line()).add(request)

    def waits_no_more(self, request: Request) -> None:
        """It has left the line, or is to be named for others."""
        self.undecided.discard(request.serial)
        for replica_id in named_by(request.ranked or ()):
            self.lines[replica_id].remove(request)
            if not self.lines[replica_id]:
                del self.lines[replica_id]
        request.ranked = None

    def waiting_for(self, replica_id: ReplicaId) -> int:
        """How many wait for this one."""
        return len(self.lines.get(replica_id, ()))


def named_by(ranked: Ranked) -> dict[ReplicaId, None]:
    """Everybody in these groups, once."""
    return dict.fromkeys(replica_id for group in ranked for replica_id in group)


def _load(replica: RoutedReplica) -> int:
    return len(replica.flights)
