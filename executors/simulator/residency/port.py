"""Requests of one model, as they are counted: who waits, who is worked on, what became of them, and misses."""

from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.requests import RequestCounts
from executors.simulator.residency.record import ModelTally, PartGauge, Together


class ModelPort:
    """Follows each request of a model from its arrival to its one final answer; the fleet decides, this counts.

    A miss begins when a request waits and no replica is HOT, and ends with the first answer to one that waited, or when
    nobody waits any more.

    Attributes:
        arrivals: All requests that come.
        counts: What has become of them so far.
        tally: What else is counted of the model.
        waiting: How many wait, along the run.
    """

    def __init__(self, name: str, arrivals: Arrivals, together: Together) -> None:
        self.name = name
        self.arrivals = arrivals
        self.counts = RequestCounts()
        self.tally = ModelTally()
        self.waiting = PartGauge(together.waiting)
        self._together = together
        self._waits: set[int] = set()
        self._begun_at: dict[int, float] = {}
        self._missed_at: float | None = None
        self._due: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether all requests have come and had their answers."""
        counts = self.counts
        ended = counts.done + counts.failed + counts.lost + counts.expired
        return counts.arrived == len(self.arrivals) == ended

    def queued(self, now: float, index: int, is_hot: bool) -> None:
        """A request waits; `is_hot`: for one of the replicas that are there."""
        self._waits.add(index)
        self.waiting.set(now, len(self._waits))
        if not is_hot:
            self.miss(now)

    def miss(self, now: float) -> None:
        """No replica is HOT: those who wait, if any do, wait for the model."""
        if self._waits and self._missed_at is None:
            self.tally.misses += 1
            self._missed_at = now

    def begun(self, now: float, index: int) -> None:
        """A replica works on a request."""
        self._begun_at[index] = now
        if index in self._waits:
            if self._missed_at is not None:
                self._due.add(index)
            self._leave(now, index)

    def done(self, now: float, index: int) -> None:
        """A request has its answer."""
        arrived_at, begun_at = self.arrivals.at_s[index], self._begun_at.pop(index)
        self.counts.waits_s.append(begun_at - arrived_at)
        self.counts.latencies_s.append(now - arrived_at)
        if index in self._due and self._missed_at is not None:
            self.tally.first_answers_s.append(now - self._missed_at)
            self._together.answers.add(now, now - self._missed_at)
            self._missed_at = None
            self._due.clear()

    def over(self, now: float, index: int) -> None:
        """A request has been told that there is no answer; the caller counts why."""
        self._begun_at.pop(index, None)
        self._due.discard(index)
        self._leave(now, index)

    def _leave(self, now: float, index: int) -> None:
        if index in self._waits:
            self._waits.remove(index)
            self.waiting.set(now, len(self._waits))
        if not self._waits and not self._due:
            self._missed_at = None  # whoever waited has given up
