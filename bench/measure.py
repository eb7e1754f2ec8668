"""Time candidates side by side: A B A B ..., so that whatever else the machine does hits them alike.

Times are CPU time of this process, which waits for nothing: other processes cost it no more than the caches that they
spoil.
"""

import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

OUTPUT = Path("build") / "bench"


@attrs.frozen
class Candidate:
    """One way to do a piece of work.

    Attributes:
        name: Column of the table.
        prepare: Makes what `work` needs; not timed.
        work: What is timed; returns how many operations it was.
    """

    name: str
    prepare: Callable[[], Any]
    work: Callable[[Any], int]


@attrs.frozen
class Timing:
    """Microseconds per operation, one entry a repeat."""

    name: str
    each_us: list[float]

    @property
    def median_us(self) -> float:
        return statistics.median(self.each_us)

    @property
    def spread(self) -> float:
        """Half the distance from the fastest to the slowest repeat, as a part of the median."""
        return (max(self.each_us) - min(self.each_us)) / 2 / self.median_us

    def times_faster_than(self, other: "Timing") -> float:
        """Median of the ratios of repeats that ran next to each other."""
        return statistics.median(b / a for a, b in zip(self.each_us, other.each_us, strict=True))


def interleave(candidates: Sequence[Candidate], repeats: int) -> list[Timing]:
    """Run each candidate `repeats` times, taking turns. Garbage is collected before each, and as usual during each."""
    found: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for turn in range(repeats):
        # Every other round the other way round, so that nobody always runs in the wake of the same neighbour.
        for candidate in candidates if turn % 2 == 0 else reversed(candidates):
            prepared = candidate.prepare()
            gc.collect()
            begin = time.process_time()
            operations = candidate.work(prepared)
            elapsed = time.process_time() - begin
            found[candidate.name].append(elapsed / operations * 1e6)
            del prepared
    return [Timing(name, each) for name, each in found.items()]


def duration(microseconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds * 1e3:.3g} ns"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as needed, all but the first to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def save(name: str, content: dict[str, Any]) -> Path:
    """Write build/bench/<name>.json, with what it ran on."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path = OUTPUT / f"{name}.json"
    machine = {"python": sys.version.split()[0], "platform": platform.platform(), "processor": platform.machine()}
    path.write_text(json.dumps({"machine": machine, **content}, indent=2) + "\n")
    return path
