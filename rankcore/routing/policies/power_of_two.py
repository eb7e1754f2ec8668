"""Power of two choices: the less loaded of two replicas that are drawn.

M. Mitzenmacher, The Power of Two Choices in Randomized Load Balancing (2001): the longest line is O(log log N) instead of
O(log N / log log N). Draws come from the state (seed and number), so that the same events make the same choices.
"""

from rankcore.routing.policies.choice import Choice
from rankcore.routing.records import Request, RoutedReplica
from rankcore.routing.spec import RoutingSpec

_WORD = (1 << 64) - 1


class PowerOfTwo(Choice):
    """Replicas that have room, in a list to draw from: O(1) a step."""

    def __init__(self, spec: RoutingSpec) -> None:
        super().__init__()
        self._seed = spec.seed
        self._open: list[RoutedReplica] = []

    def first(self, _: Request) -> RoutedReplica | None:
        """The less loaded of two; of equals the one drawn first."""
        count = len(self._open)
        if count < 2:
            return self._open[0] if count else None
        self.draws += 1
        drawn = mixed(self._seed + self.draws)
        one, other = (drawn >> 32) % count, (drawn & 0xFFFFFFFF) % (count - 1)
        first, second = self._open[one], self._open[other + (other >= one)]
        return first if len(first.flights) <= len(second.flights) else second

    def update(self, replica: RoutedReplica) -> None:
        """In the list as long as it has room; the last takes the place of one that leaves."""
        has_room = len(replica.flights) < replica.limit
        if has_room and replica.listed < 0:
            replica.listed = len(self._open)
            self._open.append(replica)
        elif not has_room and replica.listed >= 0:
            last = self._open.pop()
            if last is not replica:
                last.listed = replica.listed
                self._open[replica.listed] = last
            replica.listed = -1

    def order(self) -> list[RoutedReplica]:
        """The list."""
        return list(self._open)


def mixed(number: int) -> int:
    """A 64-bit word that looks random: the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    word = number * 0x9E3779B97F4A7C15 & _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31
