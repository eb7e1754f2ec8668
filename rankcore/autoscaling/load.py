"""The load as it was heard: what each source said when, put together over a window, and what of it still counts (A2, A6)."""

import math
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, TypeAlias

import attrs

from rankcore.autoscaling.reports import HandleReport, Metrics, Report
from rankcore.autoscaling.spec import Aggregation, AutoscalingSpec
from rankcore.frozen import EMPTY, PMap
from rankcore.values import ReplicaId

Source: TypeAlias = tuple[str, str]
"""What it counts, and whose: ("queued", handle id) or ("in_flight", replica id)."""

QUEUED = "queued"
IN_FLIGHT = "in_flight"


class Sample(NamedTuple):
    """A value, and since when it holds."""

    at: float
    value: float


@attrs.frozen
class Series:
    """What one source said.

    Attributes:
        samples: Ascending; the last one holds until the next.
        reported_at: The time of its newest report.
        ended: Whether it was silent for too long, or its replica takes no more requests: its last sample then is a 0.
    """

    samples: tuple[Sample, ...]
    reported_at: float
    ended: bool = False

    @property
    def value(self) -> float:
        """Its newest."""
        return self.samples[-1].value

    def add(self, sample: Sample, reported_at: float) -> "Series":
        """A newer report; it may take effect no earlier than the last sample."""
        return Series(_appended(self.samples, sample), reported_at)

    def end(self, at: float) -> "Series":
        """It counts for nothing from then on."""
        return Series(_appended(self.samples, Sample(at, 0.0)), self.reported_at, ended=True)

    def since(self, begin: float) -> "Series":
        """Without samples that no longer matter from then on."""
        first = sum(1 for sample in self.samples[1:] if sample.at <= begin)
        return attrs.evolve(self, samples=self.samples[first:]) if first else self

    def mean(self, begin: float, end: float) -> float:
        """Over time; before its first sample there was nothing. Of a window without length: its newest value."""
        if end <= begin:
            return self.value
        times = [*(sample.at for sample in self.samples[1:]), end]
        areas = [
            sample.value * max(0.0, min(until, end) - max(sample.at, begin))
            for sample, until in zip(self.samples, times, strict=True)
        ]
        return math.fsum(areas) / (end - begin)

    def steps(self, begin: float, end: float) -> Iterator[Sample]:
        """By how much it changes when, from `begin` on, where it is what it was."""
        before = 0.0
        for sample in self.samples:
            if sample.at > end:
                return
            yield Sample(max(sample.at, begin), sample.value - before)
            before = sample.value


@attrs.frozen
class Load:
    """All that was heard.

    Attributes:
        since: From when on somebody's reports have counted without a break; None: nobody's do.
    """

    series: PMap[Source, Series] = EMPTY
    since: float | None = None

    @property
    def fresh(self) -> bool:
        """Whether anybody's newest report still counts."""
        return any(not each.ended for each in self.series.values())

    def now(self, kind: str) -> float:
        """The newest values of all sources of a kind, together."""
        return math.fsum(each.value for (what, _), each in self.series.items() if what == kind)

    def mean(self, kind: str, begin: float, end: float) -> float:
        """Over time, all sources of a kind together. Exact, so that it does not depend on the order of the sources."""
        return math.fsum(each.mean(begin, end) for (what, _), each in self.series.items() if what == kind)

    def over(self, kinds: Collection[str], how: Aggregation, begin: float, end: float) -> float:
        """What of all sources of some kinds together counts over a time: the mean, or the most or least that it was."""
        if how == "mean":
            return math.fsum(self.mean(kind, begin, end) for kind in kinds)
        steps = [Sample(begin, 0.0)]
        for (kind, _), each in self.series.items():
            if kind in kinds:
                steps += each.steps(begin, end)
        total, totals = 0.0, []
        for _, at_once in groupby(sorted(steps), key=lambda step: step.at):  # sorted, so that no order of sources matters
            total += math.fsum(step.value for step in at_once)
            totals.append(total)
        return max(totals) if how == "max" else min(totals)

    def silent(self, replica_ids: Iterable[ReplicaId]) -> tuple[ReplicaId, ...]:
        """Those of which nothing is known at present, sorted."""
        found = ((each, self.series.get((IN_FLIGHT, each))) for each in replica_ids)
        return tuple(sorted(each for each, series in found if series is None or series.ended))


class Heard(NamedTuple):
    """What came of some reports.

    Attributes:
        ignored: Sources whose reports count for nothing, by reason, sorted.
    """

    load: Load
    ignored: dict[str, tuple[str, ...]]


LATE = "late or repeated"
STALE = "too old"
NOT_RUNNING = "of a replica that takes no requests"


def hear(load: Load, spec: AutoscalingSpec, metrics: Metrics, at: float) -> Heard:
    """Take in what has come, end what has fallen silent, and forget what is too old to matter."""
    ignored: dict[str, set[str]] = {}
    since = load.since
    with load.series.mutate() as series:
        for report in metrics.reports:
            kind = QUEUED if isinstance(report, HandleReport) else IN_FLIGHT
            source_id, value, said_at = report
            before = series.get((kind, source_id))
            reason = _reason_to_ignore(kind, report, before, metrics, at - spec.stale_after_s)
            if reason is not None:
                ignored.setdefault(reason, set()).add(source_id)
                continue
            sample = Sample(min(said_at, at), float(value))
            series[kind, source_id] = before.add(sample, said_at) if before is not None else Series((sample,), said_at)
            since = sample.at if since is None else min(since, sample.at)
        heard = series.finish()
    aged = Load(_aged(heard, spec, metrics, at), since)
    return Heard(
        aged if aged.fresh else attrs.evolve(aged, since=None),
        {reason: tuple(sorted(sources)) for reason, sources in sorted(ignored.items())},
    )


def _reason_to_ignore(kind: str, report: Report, before: Series | None, metrics: Metrics, stale_at: float) -> str | None:
    source_id, value, said_at = report
    if kind == IN_FLIGHT and source_id not in metrics.running:
        return NOT_RUNNING
    if said_at < stale_at:
        return STALE
    if before is None or said_at > before.reported_at:
        return None
    # Of two reports of one moment the larger counts, whichever came first.
    same_moment = said_at == before.reported_at and not before.ended
    return None if same_moment and value > before.value else LATE


def _aged(heard: PMap[Source, Series], spec: AutoscalingSpec, metrics: Metrics, at: float) -> PMap[Source, Series]:
    forgotten_at = at - max(spec.look_back_period_s, spec.stale_after_s)
    aged = heard.mutate()
    for source, each in heard.items():
        kind, source_id = source
        silent_at = each.reported_at + spec.stale_after_s
        now = each
        if not each.ended and kind == IN_FLIGHT and source_id not in metrics.running:
            # What it worked on counts until it would have said otherwise; by then others report what they took over.
            now = each.end(min(at, each.reported_at + spec.metrics_interval_s))
        elif not each.ended and silent_at < at:
            now = each.end(silent_at)
        now = now.since(at - spec.look_back_period_s)
        if now.ended and now.samples[-1].at < forgotten_at:
            del aged[source]
        elif now is not each:
            aged[source] = now
    return aged.finish()


def _appended(samples: tuple[Sample, ...], sample: Sample) -> tuple[Sample, ...]:
    last = samples[-1]
    if sample.at <= last.at:
        return (*samples[:-1], Sample(last.at, sample.value))
    return (*samples, sample)
