"""Measurements of engines, read from CSV files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from executors.simulator.engines.fit import BenchmarkPoint, StepPoint
from executors.simulator.load.csvfile import TraceError, number_of, read_cells, refuse

POINTS_MAX = 100_000
USERS_MAX = 65_536
MS_MAX = 1e9
COUNTS = {
    "batch": (0, USERS_MAX),
    "context_tokens": (0, 10**9),
    "prompt_tokens": (0, 10**9),
    "isl": (1, 10**7),
    "osl": (2, 10**6),
    "concurrency": (1, USERS_MAX),
}
"""Columns of whole numbers, and what they may be; all others are above 0."""
STEP_COLUMNS = ("batch", "context_tokens", "prompt_tokens", "step_ms")
BENCHMARK_COLUMNS = ("isl", "osl", "concurrency", "ttft_ms", "itl_ms", "tokens_per_s")


def points_of(path: Path, where: Mapping[str, str]) -> tuple[Sequence[StepPoint], Sequence[BenchmarkPoint]]:
    """Steps or benchmark rows, whichever the header of the file names; only those with these texts in other columns.

    Raises:
        TraceError: With the file and the line.
    """
    if "step_ms" in _header(path):
        return [StepPoint(int(row[0]), int(row[1]), int(row[2]), row[3]) for row in _rows(path, STEP_COLUMNS, where)], []
    rows = _rows(path, BENCHMARK_COLUMNS, where)
    return [], [BenchmarkPoint(int(row[0]), int(row[1]), int(row[2]), *row[3:]) for row in rows]


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            return [name.strip().strip('"') for name in file.readline(1_000).split(",")]
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None


def _rows(path: Path, columns: Sequence[str], where: Mapping[str, str]) -> list[list[float]]:
    found: list[list[float]] = []
    for line, (*texts,) in read_cells(path, (*columns, *where)):
        if tuple(texts[len(columns) :]) != tuple(where.values()):
            continue
        if len(found) >= POINTS_MAX:
            refuse(path, line, f"expected at most {POINTS_MAX} rows, found more")
        row = []
        for column, text in zip(columns, texts, strict=False):
            least, most = COUNTS.get(column, (1e-9, MS_MAX))
            value = number_of(path, line, column, text, least, most)
            if column in COUNTS and value != int(value):
                refuse(path, line, f"{column}: expected a whole number, found {value:g}")
            row.append(value)
        found.append(row)
    if not found:
        raise TraceError(f"{path}: expected at least one row, found none")
    return found
