"""How one deployment stands, as its machine publishes it (`Entry.residency.availability`), for those who call it."""

from collections.abc import Iterator

from executors.ray_gpu.messages import UNAVAILABLE, CallStatus
from rankcore.cluster.commands import Availability, Standing
from rankcore.cluster.state import Entry
from rankcore.routing.statuses import Numbered, Pace, left_s, numbered


class StatusBoard:
    """The newest status, and its number in this epoch.

    Args:
        numbers: Those of this epoch.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._last = Numbered()
        self._pace: Pace | None = None
        self._left_s: float | None = None
        self._until: float | None = None

    def look(self, entry: Entry, at: float) -> None:
        """Take it from a new entry."""
        residency = entry.residency
        if residency is None or residency.availability is None:
            return
        published, before = residency.availability, self._last
        self._last = numbered(before, published, self._numbers)
        self._until = residency.failed_until if published.retry_after_s is not None else None
        if self._last is not before:
            self._look_at_pace(published, at)

    def _look_at_pace(self, published: Availability, at: float) -> None:
        self._left_s = None
        if published.standing is not Standing.LOADING:
            self._pace = None
        elif self._pace is None or published.percent < self._pace.percent:
            self._pace = Pace(at, published.percent)
        else:
            self._left_s = left_s(self._pace, published.percent, at)

    def status(self, at: float) -> tuple[int, CallStatus] | None:
        """The newest, with its number; None: there is none, or its time is over."""
        published = self._last.content
        if not isinstance(published, Availability) or (self._until is not None and self._until <= at):
            return None
        state = str(published.standing.value).upper()
        retry_after_s = self._until - at if self._until is not None and state == UNAVAILABLE else None
        status = CallStatus(state, published.because, published.behind, published.percent, self._left_s, retry_after_s)
        return self._last.number, status
