"""Consistent hashing with bounded loads: requests of one key go to one replica, unless it has much more than its share.

V. Mirrokni, M. Thorup, M. Zadimoghaddam, Consistent Hashing with Bounded Loads (SODA 2018). A replica stands on the ring
under its rank, so that a replacement gets the keys of the one that it replaces and nobody else's keys move.
"""

from bisect import bisect_left, insort
from hashlib import blake2b
from math import ceil

from rankcore.routing.policies.choice import Choice
from rankcore.routing.policies.least_loaded import LeastLoaded
from rankcore.routing.records import Request, RoutedReplica
from rankcore.routing.spec import RoutingSpec

POINTS = 64
"""Of each replica on the ring: its share of the keys is off by about an eighth."""
WALK_MAX = 256
"""So many points are looked at for one that may take a request; after that the least loaded takes it."""


class Affinity(LeastLoaded):
    """A ring of points for requests with a key; those without go to the least loaded."""

    def __init__(self, spec: RoutingSpec) -> None:
        super().__init__(spec)
        self._factor = spec.load_factor
        self._ring: list[tuple[int, int]] = []
        self._on_ring: dict[int, RoutedReplica] = {}
        self._load = 0
        self._loads: dict[int, int] = {}
        self._holders: dict[str, dict[int, RoutedReplica]] = {}

    take = Choice.take

    def first(self, request: Request) -> RoutedReplica | None:
        """Of those that have ready what the key is for, the least loaded that has room; else the first on the ring, from the
        key on, that has room and less than its bounded load.
        """
        if request.key is None or not self._on_ring:
            return super().first(request)
        holders = self._holders.get(request.key)
        if holders:
            having_room = [each for each in holders.values() if len(each.flights) < each.limit]
            if having_room:
                return min(having_room, key=_load)
        bound = ceil(self._factor * (self._load + 1) / len(self._on_ring))
        begin = bisect_left(self._ring, (hashed(request.key), 0))
        for step in range(min(WALK_MAX, len(self._ring))):
            replica = self._on_ring[self._ring[(begin + step) % len(self._ring)][1]]
            if len(replica.flights) < min(bound, replica.limit):
                return replica
        return super().first(request)

    def update(self, replica: RoutedReplica) -> None:
        """Its load counts as long as it is on the ring."""
        super().update(replica)
        if replica.birth in self._on_ring:
            load = len(replica.flights)
            self._load += load - self._loads[replica.birth]
            self._loads[replica.birth] = load

    def enter(self, replica: RoutedReplica) -> None:
        """Put a replica on the ring."""
        self._on_ring[replica.birth] = replica
        self._loads[replica.birth] = 0
        for point in _points(replica):
            insort(self._ring, point)
        self._hold(replica, replica.keys)

    def held(self, replica: RoutedReplica, keys: tuple[str, ...]) -> None:
        """Others than before."""
        self._let_go(replica)
        self._hold(replica, keys)

    def _hold(self, replica: RoutedReplica, keys: tuple[str, ...]) -> None:
        for key in keys:
            self._holders.setdefault(key, {})[replica.birth] = replica

    def _let_go(self, replica: RoutedReplica) -> None:
        for key in set(replica.keys):
            del self._holders[key][replica.birth]
            if not self._holders[key]:
                del self._holders[key]

    def leave(self, replica: RoutedReplica) -> None:
        """Take a replica from the ring."""
        self._let_go(replica)
        del self._on_ring[replica.birth]
        self._load -= self._loads.pop(replica.birth)
        for point in _points(replica):
            del self._ring[bisect_left(self._ring, point)]


def _load(replica: RoutedReplica) -> tuple[int, int]:
    return len(replica.flights), replica.birth


def hashed(text: str) -> int:
    """64 bits that depend on nothing but the text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _points(replica: RoutedReplica) -> list[tuple[int, int]]:
    name = replica.replica_id if replica.rank is None else f"rank {replica.rank}"
    return [(hashed(f"{name}/{number}"), replica.birth) for number in range(POINTS)]
