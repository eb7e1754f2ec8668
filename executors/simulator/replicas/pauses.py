"""Work that stands still for a while and then goes on where it was."""

import attrs

ROUNDING_S = 1e-9
"""Less than this is not left to do, but what adding up times has lost."""


@attrs.define
class Pauses:
    """When something stood still.

    Attributes:
        since: Since when it does now; None: it does not.
        spells: (from, until) of earlier times.
    """

    since: float | None = None
    spells: list[tuple[float, float]] = attrs.Factory(list)

    def begin(self, now: float) -> None:
        """It stands still from now on."""
        self.since = now

    def end(self, now: float) -> None:
        """It goes on."""
        if self.since is not None:
            self.spells.append((self.since, now))
            self.since = None

    def left_s(self, began_at: float, takes_s: float, now: float) -> float:
        """How much is left of work that takes so long when nothing stands still; 0 when it is done."""
        spells = self.spells if self.since is None else [*self.spells, (self.since, now)]
        still_s = sum(until - max(begin, began_at) for begin, until in spells if until > began_at)
        left_s = takes_s - (now - began_at - still_s)
        return left_s if left_s > ROUNDING_S else 0.0
