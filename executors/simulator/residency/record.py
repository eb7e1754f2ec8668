"""What is written down while a residency scenario runs: who held which memory when, and at which level each deployment was."""

from array import array
from enum import StrEnum

import attrs

from executors.simulator.record.series import Bucket, Gauge, Marks

CPU = -1
"""In the place of a GPU: the CPU cache of the node."""


class SpanPhase(StrEnum):
    """What held memory."""

    LOADING = "loading"
    HOT = "hot"
    LEAVING = "leaving"
    WARM = "warm"


@attrs.frozen
class Span:
    """A worker held so much of a GPU, or of a node's CPU cache, for a time.

    Attributes:
        gpu: Which one of its node; `CPU`: the cache.
    """

    node_id: str
    gpu: int
    worker_id: str
    deployment: str
    phase: SpanPhase
    size_bytes: int
    since: float
    until: float

    def __deepcopy__(self, _: object) -> "Span":
        """Itself: it never changes, so that a fork of a run shares it."""
        return self


class SpanBook:
    """Collects spans. A worker has one of each GPU at a time, and another phase or size ends it and begins the next."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, int], Span] = {}
        self._over: list[Span] = []

    def hold(
        self, now: float, node_id: str, gpu: int, worker_id: str, deployment: str, phase: SpanPhase, size_bytes: int
    ) -> None:
        """From now on it holds this."""
        key = (worker_id, node_id, gpu)
        before = self._open.get(key)
        if before is not None and (before.phase, before.size_bytes) == (phase, size_bytes):
            return
        self.leave(now, node_id, gpu, worker_id)
        self._open[key] = Span(node_id, gpu, worker_id, deployment, phase, size_bytes, now, now)

    def leave(self, now: float, node_id: str, gpu: int, worker_id: str) -> None:
        """From now on it holds nothing there; who holds nothing leaves nothing."""
        span = self._open.pop((worker_id, node_id, gpu), None)
        if span is not None and now > span.since:
            self._over.append(attrs.evolve(span, until=now))

    def until(self, end: float) -> tuple[Span, ...]:
        """All up to the end of the run, by time."""
        unfinished = [attrs.evolve(span, until=end) for span in self._open.values() if end > span.since]
        return tuple(sorted(self._over + unfinished, key=lambda span: (span.since, span.node_id, span.gpu, span.worker_id)))


class LevelClock:
    """How long a deployment was HOT, WARM and COLD: HOT while any worker is, else WARM while any copy is, else COLD."""

    def __init__(self) -> None:
        self.seconds = {"HOT": 0.0, "WARM": 0.0, "COLD": 0.0}
        self._levels: dict[str, str] = {}
        self._since = 0.0
        self._level = "COLD"

    def set(self, now: float, worker_id: str, level: str) -> None:
        """A worker is at this level from now on."""
        self._levels[worker_id] = level
        self._change(now)

    def of(self, worker_id: str) -> str:
        """Of a worker; one that was never heard of is COLD."""
        return self._levels.get(worker_id, "COLD")

    def finish(self, now: float) -> None:
        """The run ends."""
        self.seconds[self._level] += now - self._since
        self._since = now

    def _change(self, now: float) -> None:
        levels = self._levels.values()
        level = "HOT" if "HOT" in levels else "WARM" if "WARM" in levels else "COLD"
        if level != self._level:
            self.finish(now)
            self._level = level


@attrs.define
class DeploymentTally:
    """What is counted of a deployment; the meaning is that of `ResidencyFigures`."""

    misses: int = 0
    first_answers_s: list[float] = attrs.Factory(list)
    loads_from_disk: int = 0
    loads_from_cpu: int = 0
    load_failures: int = 0
    displaced: int = 0
    evicted: int = 0
    cant_accommodate: int = 0
    from_disk_bytes: int = 0
    from_cpu_bytes: int = 0
    to_cpu_bytes: int = 0
    levels: LevelClock = attrs.Factory(LevelClock)


class PartGauge(Gauge):
    """A part of a sum: what it is set to is in the other gauge too, beside all other parts."""

    def __init__(self, whole: Gauge) -> None:
        super().__init__()
        self._whole = whole

    def set(self, now: float, value: float) -> None:
        """It is this from now on; `now` never goes back."""
        if value != self.value:
            self._whole.set(now, self._whole.value + value - self.value)
        super().set(now, value)


class Answers:
    """First answers after misses, of all deployments, in the order in which they came."""

    def __init__(self) -> None:
        self._marks = Marks()
        self._after_s = array("d")

    def add(self, now: float, after_s: float) -> None:
        """One more."""
        if now >= self._marks.next_at:
            self._marks.passed(now, len(self._after_s))
        self._after_s.append(after_s)

    def buckets(self) -> tuple[Bucket, ...]:
        """By the time of the answer."""
        return self._marks.buckets(self._after_s)


@attrs.define
class Together:
    """What is measured of all deployments together.

    Attributes:
        waiting: Requests that wait for any deployment.
        answers: Times from misses to first answers.
    """

    waiting: Gauge = attrs.Factory(Gauge)
    answers: Answers = attrs.Factory(Answers)


@attrs.define
class MemoryGauges:
    """Bytes of all nodes that are up, along the run."""

    capacity: Gauge = attrs.Factory(Gauge)
    used: Gauge = attrs.Factory(Gauge)
    fragmented: Gauge = attrs.Factory(Gauge)
    cached: Gauge = attrs.Factory(Gauge)
