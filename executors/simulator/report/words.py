"""Figures in words, the same on the screen and in the report."""

from collections.abc import Sequence

import attrs

from executors.checking import Checking
from executors.simulator.record.costs import CostFigures
from executors.simulator.record.figures import DeploymentFigures, RequestFigures, ScalingFigures
from executors.simulator.record.flat_figures import number
from executors.simulator.record.percentiles import SHARES, Percentiles, shown
from executors.simulator.report.engine_words import engine_rows
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.run import RunResult
from executors.simulator.times import moment

TITLES = ("Ranks", "Requests", "Replicas")


@attrs.frozen
class FigureLine:
    """A figure of one deployment in words.

    Attributes:
        label: The key by which figures of several deployments are set beside each other.
        is_told: Whether there is anything to tell; a line of which no deployment has anything is left out.
    """

    label: str
    value: str
    is_told: bool = True


def duration(seconds: float) -> str:
    """A length of time: `18.2 s`, `10 min 28 s`, `2 h 05 min`, `3 d 04 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 119.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes < 2880 else f"{minutes // 1440} d {minutes // 60 % 24:02d} h"


def rows(figures: DeploymentFigures) -> Sequence[tuple[str, str]]:
    """Name and value of each figure of a deployment, in the order in which people ask for them."""
    return tuple(row for _, part in groups(figures) for row in part)


def groups(figures: DeploymentFigures) -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    """The same under headings; a name that begins with spaces is a part of the one before."""
    found = beside((figures,))
    return tuple((title, tuple((label, value) for label, (value,) in lines)) for title, lines in found)


def beside(columns: Sequence[DeploymentFigures]) -> Sequence[tuple[str, Sequence[tuple[str, Sequence[str]]]]]:
    """The figures of several deployments, or runs, under headings: a value of each for every label that any of them has."""
    found = [_lines(figures) for figures in columns]
    return tuple((title, _aligned([lines[title] for lines in found])) for title in TITLES)


def _aligned(columns: Sequence[Sequence[FigureLine]]) -> Sequence[tuple[str, Sequence[str]]]:
    told = dict.fromkeys(line.label for lines in columns for line in lines if line.is_told)
    labels = dict.fromkeys(line.label for lines in columns for line in lines)
    values = [{line.label: line.value for line in lines} for lines in columns]
    return tuple((label, tuple(each.get(label, "-") for each in values)) for label in labels if label in told)


def _lines(figures: DeploymentFigures) -> dict[str, Sequence[FigureLine]]:
    """All lines of one deployment, by title; each has every label, whether there is anything to tell or not."""
    requests = (*_of_requests(figures.requests), *(FigureLine(*row) for row in engine_rows(figures.engine)))
    return {"Ranks": _of_ranks(figures), "Requests": requests, "Replicas": _of_replicas(figures)}


def _told(*lines: tuple[str, str]) -> tuple[FigureLine, ...]:
    return tuple(FigureLine(label, value) for label, value in lines)


def _of_ranks(figures: DeploymentFigures) -> Sequence[FigureLine]:
    without, wanted = figures.ranks_without_room, figures.world_size_most
    ranks = _told(
        ("ranks moved", f"{figures.ranks_moved:,}"),
        ("node or local ranks moved", f"{figures.other_ranks_moved:,}"),
        ("time with a gap in the ranks", duration(figures.rank_gap_s)),
        ("time with a rank missing", duration(figures.incomplete_s)),
        ("fewest running at once", "-" if figures.least_running is None else f"{figures.least_running:,}"),
        ("time below N - U", duration(figures.below_floor_s)),
        ("time of updates", duration(figures.update_s)),
        ("longest gap of a rank", longest_gap(figures)),
        ("ranks that had a gap", f"{len(figures.unserved):,}"),
        ("rank-seconds unserved", f"{figures.unserved_rank_s:,.1f}"),
        ("  and before they first ran", f"{figures.unserved_at_first_rank_s:,.1f}"),
    )
    return (FigureLine("ranks that never fitted", f"{without:,} of {wanted:,}", is_told=without > 0), *ranks)


def _of_replicas(figures: DeploymentFigures) -> Sequence[FigureLine]:
    replicas = _told(
        ("status at the end", figures.status),
        ("world size", f"{figures.world_size:,}"),
        ("replica starts", f"{figures.replica_starts:,}"),
        ("replica crashes", f"{figures.replica_crashes:,}"),
        ("replicas unready for a while", f"{figures.replicas_unready:,}"),
        ("failed starts", f"{figures.start_failures:,}"),
        ("reconfigures", reconfigures(figures)),
        ("messages of an old epoch", f"{figures.controller_messages_refused:,}"),
        ("GPU-hours", f"{figures.gpu_hours:,.1f}"),
    )
    return (*replicas, *_of_cost(figures.cost), *_of_scaling(figures.scaling))


def _of_cost(cost: CostFigures | None) -> Sequence[FigureLine]:
    """What there is where GPUs have prices; of tokens where an engine counts them."""
    values = (None,) * 4 if cost is None else attrs.astuple(cost)
    labels = ("cost", "  of a million output tokens", "  of a million tokens", "  of a million that met request_slo")
    return [
        FigureLine(label, "-" if value is None else f"{number(value)} USD", is_told=value is not None)
        for label, value in zip(labels, values, strict=True)
    ]


def _of_requests(requests: RequestFigures) -> Sequence[FigureLine]:
    return (
        *_told(
            ("requests done", f"{requests.done:,} of {requests.arrived:,}"),
            ("  waited over 1 s", f"{requests.waited_over_1_s:,}{share(requests.waited_over_1_s, requests.done)}"),
            ("  failed (turned away)", f"{requests.failed:,}"),
            ("  lost (replica ended)", f"{requests.lost:,}"),
        ),
        _where_some("  expired (deadline)", requests.expired),
        _where_some("  done again", requests.retried),
        *_told(
            ("  unfinished at the end", f"{requests.unfinished:,}"),
        ),
        *_times("wait", requests.wait_s),
        *_times("latency", requests.latency_s),
    )


def _times(what: str, values: Percentiles) -> Sequence[FigureLine]:
    """Percentiles of all and, where some are not done, of those that are."""
    return (
        FigureLine(f"{what} p50 / p95 / p99 of all", percentiles(values)),
        FigureLine(f"  {what} of finished", of_finished(values), is_told=values.finished is not None),
    )


def _where_some(label: str, count: int) -> FigureLine:
    """What most scenarios have nothing of."""
    return FigureLine(label, f"{count:,}", is_told=count > 0)


def _of_scaling(scaling: ScalingFigures | None) -> Sequence[FigureLine]:
    if scaling is None:
        return (FigureLine("replica-hours", "-", is_told=False), FigureLine("scale events", "-", is_told=False))
    return _told(("replica-hours", f"{scaling.replica_hours:,.2f}"), ("scale events", f"{scaling.scale_events:,}"))


def reconfigures(figures: DeploymentFigures) -> str:
    """How many were carried out, and, where some were lost or said twice, how many were sent."""
    sent = figures.reconfigures_sent
    return f"{figures.reconfigures:,}" + (f" ({sent:,} sent)" if sent != figures.reconfigures else "")


def longest_gap(figures: DeploymentFigures) -> str:
    """How long, which rank, and when."""
    gap = figures.longest_gap
    if gap is None:
        return "none"
    return f"{duration(gap.length_s)} (rank {gap.rank}, from {moment(gap.since)})"


def percentiles(values: Percentiles) -> str:
    """Three of them, the unit behind the last number, or that there were none."""
    if not values.n:
        return "none"
    told = [shown(values, name) for name in SHARES]
    numbers = [index for index, each in enumerate(told) if each[-1].isdigit()]
    for index in numbers[-1:]:
        told[index] += " s"
    return " / ".join(told)


def of_finished(values: Percentiles) -> str:
    """Three of those that finished, where not all did."""
    if values.finished is None:
        return "-"
    known = [value for value in (values.finished.p50, values.finished.p95, values.finished.p99) if value is not None]
    return " / ".join(f"{value:,.2f}" for value in known) + " s" if known else "none"


def share(part: int, whole: int) -> str:
    """How much of a whole, in brackets."""
    return f" ({part / whole:.1%})" if whole else ""


def summary(result: RunResult) -> str:
    """One line about the whole run."""
    busiest = "" if result.busiest_minute_at is None else f", busiest minute from {moment(result.busiest_minute_at)}"
    return f"{duration(result.ended_at)} simulated{busiest}, {result.happened:,} events, seed {result.seed}"


def promises(checking: Checking) -> str:
    """How they stand where none was found broken, at the beginning of a sentence."""
    return "Promises were not checked (--check off)" if checking is Checking.OFF else "All promises held"


def failure(result: RunResult | ResidencyResult) -> str | None:
    """What broke, when, after which event; None: nothing did."""
    found = result.failure
    if found is None:
        return None
    return f"promise {found.rule} broken at {moment(found.at, None)} in {found.deployment}, after {found.event}: {found.text}"
