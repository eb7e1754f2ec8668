"""Times between the tokens of sequences, counted in classes of which each is a thousandth wide.

A run has as many gaps as tokens: they are not kept, but counted. A leap adds a series of them, `first + growth i`, that is
spread over the classes by division.
"""

import math
from collections.abc import Sequence

import attrs

WIDTH = math.log1p(0.001)


def class_of(gap_ps: int) -> int:
    """The class of a gap: those of one class differ by a thousandth at most."""
    return int(math.log(gap_ps) / WIDTH) if gap_ps > 0 else -1


def middle_ps(number: int) -> float:
    """What a gap of a class comes to, within half a thousandth."""
    return math.exp((number + 0.5) * WIDTH) if number >= 0 else 0.0


@attrs.define
class TokenGaps:
    """How many gaps each class has."""

    counts: dict[int, int] = attrs.Factory(dict)

    @property
    def mean_s(self) -> float | None:
        """Of all, within half a thousandth; None: there is none."""
        count = sum(self.counts.values())
        return math.fsum(middle_ps(number) * each for number, each in self.counts.items()) / count / 1e12 if count else None

    def add(self, gap_ps: int, count: int = 1) -> None:
        """So many equal gaps."""
        number = class_of(gap_ps)
        self.counts[number] = self.counts.get(number, 0) + count

    def after_leap(
        self, since: Sequence[tuple[int, int]], begun_ps: int, first_ps: int, growth_ps: int, steps: int, late_ps: int = 0
    ) -> None:
        """The gaps of a leap, for so many sequences with their newest tokens of these times; its last iteration ends late."""
        if len(since) == 1 and since[0][0] == begun_ps and not late_ps:
            self._add_series(first_ps, growth_ps, 0, steps, since[0][1])
            return
        begin, on_time, count = 0, 0, 0
        first_late_ps = late_ps if steps == 1 else 0
        for last_ps, each in since:
            count += each
            if last_ps == begun_ps:
                on_time = each
            else:
                begin = 1
                self.add(begun_ps + first_ps + first_late_ps - last_ps, each)
        if begin:
            self._add_some(first_ps + first_late_ps, on_time)
        if late_ps and begin < steps:
            steps -= 1
            self._add_some(first_ps + growth_ps * steps + late_ps, count)
        self._add_series(first_ps, growth_ps, begin, steps, count)

    def _add_some(self, gap_ps: int, count: int) -> None:
        if count:
            self.add(gap_ps, count)

    def _add_series(self, first_ps: int, growth_ps: int, begin: int, end: int, weight: int) -> None:
        """TokenGaps `first + growth i` for i from begin to end - 1, each so many times."""
        while begin < end:
            number = class_of(first_ps + growth_ps * begin)
            until = end
            if growth_ps and end - begin > 1 and class_of(first_ps + growth_ps * (end - 1)) != number:
                until = min(end - 1, max(begin + 1, int((math.exp((number + 1) * WIDTH) - first_ps) / growth_ps)))
                while class_of(first_ps + growth_ps * (until - 1)) != number:  # exp and log need not agree to the last bit
                    until -= 1
            self.counts[number] = self.counts.get(number, 0) + weight * (until - begin)
            begin = until

    def merge(self, other: "TokenGaps") -> None:
        """Count those of another one too."""
        for number, count in other.counts.items():
            self.counts[number] = self.counts.get(number, 0) + count

    def quantile_s(self, share: float) -> float | None:
        """The gap that this share of all is not above, within a thousandth; None: there is none."""
        left = share * sum(self.counts.values())
        for number in sorted(self.counts):
            left -= self.counts[number]
            if left <= 1e-9:
                return middle_ps(number) / 1e12
        return None
