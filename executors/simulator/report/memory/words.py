"""Figures of deployments with residency in words, the same on the screen and in the report."""

from collections.abc import Sequence

from executors.simulator.report.words import duration, of_finished, percentiles
from executors.simulator.report.words import share as share_of
from executors.simulator.residency.figures import Moves, ResidencyFigures
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.times import moment


def rows(result: ResidencyResult) -> Sequence[tuple[str, str]]:
    """Name and value of each figure of all deployments together."""
    return tuple(row for _, part in groups(result) for row in part)


def groups(result: ResidencyResult) -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    """The same under headings; a name that begins with spaces is a part of the one before."""
    memory, requests, misses, moves = (
        result.all_deployments.memory,
        result.all_deployments.requests,
        result.all_deployments.misses,
        result.all_deployments.moves,
    )
    held = (
        ("GPU memory", f"{gigabytes(memory.gpu_gb)} on {counted(sum(len(node.gpu_bytes) for node in result.nodes), 'GPU')}"),
        ("  used", f"{memory.gpu_used:.0%} on average, {memory.gpu_used_most:.0%} at most"),
        ("  fragmented", f"{memory.gpu_fragmented:.0%} on average, {memory.gpu_fragmented_most:.0%} at most"),
        ("CPU cache", gigabytes(memory.cpu_gb)),
        ("  used", f"{memory.cpu_used:.0%} on average"),
    )
    served = (
        ("answered", f"{requests.done:,} of {requests.arrived:,}"),
        ("  expired (deadline)", f"{requests.expired:,}{share_of(requests.expired, requests.arrived)}"),
        ("  turned away", f"{requests.failed:,}"),
        ("  lost", f"{requests.lost:,}"),
        ("  unfinished at the end", f"{requests.unfinished:,}"),
        ("latency p50 / p95 / p99 of all", percentiles(requests.latency_s)),
        *((("  of finished", of_finished(requests.latency_s)),) if requests.latency_s.finished else ()),
        ("misses", f"{misses.count:,} ({misses.answered:,} answered)"),
        ("  to the first answer, of answered", percentiles(misses.first_answer_s)),
    )
    return (("Memory", held), ("Requests", served), ("Moves", _moves(moves)))


def _moves(moves: Moves) -> Sequence[tuple[str, str]]:
    return (
        ("moved", gigabytes(moves.moved_gb)),
        ("  from disk", f"{gigabytes(moves.from_disk_gb)}, {moves.loads_from_disk:,} loads"),
        ("  from CPU cache", f"{gigabytes(moves.from_cpu_gb)}, {moves.loads_from_cpu:,} loads"),
        ("  to CPU cache", gigabytes(moves.to_cpu_gb)),
        ("failed loads", f"{moves.load_failures:,}"),
        ("displaced by another deployment", f"{moves.displaced:,}"),
        ("evicted, or left when idle", f"{moves.evicted:,}"),
        ("can't accommodate", f"{moves.cant_accommodate:,}"),
    )


COLUMNS = (
    ("deployment", "its name"),
    ("GB", "of its weights"),
    ("HOT", "share of the run in which a replica of it was on GPUs"),
    ("WARM", "share in which none was, but its weights were in CPU memory"),
    ("COLD", "the rest"),
    ("answered", "requests answered"),
    ("of", "requests that came"),
    ("misses", "times when somebody waited and no replica was HOT"),
    ("first answer", "median time from a miss to the first answer, of those that were answered"),
    ("p95", "the same, of 95 of 100 of those"),
    ("displaced", "times that another one took its place"),
    ("GB moved", "from disk, from and to CPU memory"),
)


def deployment_columns() -> Sequence[str]:
    """Names of the columns of the table of deployments."""
    return tuple(name for name, _ in COLUMNS)


def deployment_row(figures: ResidencyFigures, ended_at: float) -> Sequence[str]:
    """One deployment's cells."""
    answers = figures.misses.first_answer_s
    return (
        figures.name,
        f"{figures.weight_gb:,.1f}",
        *(f"{seconds / ended_at:.0%}" if ended_at else "-" for seconds in (figures.hot_s, figures.warm_s, figures.cold_s)),
        f"{figures.requests.done:,}",
        f"{figures.requests.arrived:,}",
        f"{figures.misses.count:,}",
        "-" if answers.p50 is None else duration(answers.p50),
        "-" if answers.p95 is None else duration(answers.p95),
        f"{figures.moves.displaced:,}",
        f"{figures.moves.moved_gb:,.0f}",
    )


def gigabytes(size: float) -> str:
    """An amount of memory: `1.3 TB`, `42 GB`."""
    return f"{size / 1000:,.1f} TB" if size >= 1000 else f"{size:,.0f} GB" if size >= 10 else f"{size:,.2f} GB"


def counted(count: int, what: str) -> str:
    """`1 node`, `8 nodes`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def summary(result: ResidencyResult) -> str:
    """One line about the whole run."""
    busiest = "" if result.busiest_minute_at is None else f", busiest minute from {moment(result.busiest_minute_at)}"
    size = f"{counted(len(result.deployments), 'deployment')} on {counted(len(result.nodes), 'node')}"
    return f"{size}, {duration(result.ended_at)} simulated{busiest}, {result.happened:,} events, seed {result.seed}"
