"""Figures in words, the same on the screen and in the report."""

from collections.abc import Sequence

from executors.simulator.figures import DeploymentFigures, Percentiles
from executors.simulator.run import RunResult


def duration(seconds: float) -> str:
    """A length of time: `18.2 s`, `10 min 28 s`, `2 h 05 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 119.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def moment(seconds: float) -> str:
    """A time of the run, as `h:mm:ss`."""
    whole = int(seconds + 0.5)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def rows(figures: DeploymentFigures) -> Sequence[tuple[str, str]]:
    """Name and value of each figure of a deployment, in the order in which people ask for them."""
    requests = figures.requests
    return (
        ("status at the end", f"{figures.status}, world size {figures.world_size}"),
        ("ranks moved", f"{figures.ranks_moved:,}"),
        ("node or local ranks moved", f"{figures.other_ranks_moved:,}"),
        ("reconfigures", f"{figures.reconfigures:,}"),
        ("time with non-contiguous ranks", duration(figures.noncontiguous_s)),
        ("longest gap of a rank", longest_gap(figures)),
        ("replica starts", f"{figures.replica_starts:,}"),
        ("replica crashes", f"{figures.replica_crashes:,}"),
        ("requests done", f"{requests.done:,} of {requests.arrived:,}"),
        ("  waited over 1 s", f"{requests.waited_over_1_s:,}{share(requests.waited_over_1_s, requests.done)}"),
        ("  failed (turned away)", f"{requests.failed:,}"),
        ("  lost (replica ended)", f"{requests.lost:,}"),
        ("  unfinished at the end", f"{requests.unfinished:,}"),
        ("wait p50 / p95 / p99", percentiles(requests.wait_s)),
        ("latency p50 / p95 / p99", percentiles(requests.latency_s)),
        ("GPU-hours", f"{figures.gpu_hours:,.1f}"),
    )


def longest_gap(figures: DeploymentFigures) -> str:
    """How long, which rank, and when."""
    gap = figures.longest_gap
    if gap is None:
        return "none"
    others = len(figures.longest_gaps) - 1
    more = f"; {others} other rank{'s' if others > 1 else ''} had one" if others else ""
    return f"{duration(gap.length_s)} (rank {gap.rank}, from {moment(gap.since)}{more})"


def percentiles(values: Percentiles) -> str:
    """Three of them, or that there were none."""
    if values.p50 is None or values.p95 is None or values.p99 is None:
        return "no request done"
    return " / ".join(f"{value:.2f}" for value in (values.p50, values.p95, values.p99)) + " s"


def share(part: int, whole: int) -> str:
    """How much of a whole, in brackets."""
    return f" ({part / whole:.1%})" if whole else ""


def summary(result: RunResult) -> str:
    """One line about the whole run."""
    busiest = "" if result.busiest_minute_at is None else f", busiest minute from {moment(result.busiest_minute_at)}"
    return f"{duration(result.ended_at)} simulated{busiest}, {result.happened:,} events, seed {result.seed}"


def failure(result: RunResult) -> str | None:
    """What broke, when, after which event; None: nothing did."""
    found = result.failure
    if found is None:
        return None
    return f"promise {found.rule} broken at t={found.at:.6f} s in {found.deployment}, after {found.event}: {found.text}"
