"""Rates and durations that somebody measured, read from files."""

from itertools import pairwise
from pathlib import Path

import attrs

from executors.simulator.fields import SECONDS_MAX
from executors.simulator.load.arrivals import RateWindow
from executors.simulator.load.csvfile import TraceError, number_of, read_cells, refuse
from executors.simulator.load.table import Numbers, Reading, Table, read_table

WINDOWS_MAX = 1_000_000
RATE_MAX = 1e6
CV_MAX = 100.0


@attrs.frozen(kw_only=True)
class RateColumns:
    """What the columns of a file of rates are called.

    Attributes:
        cv: None: there is none.
    """

    rate: str
    cv: str | None


def read_rates(
    path: Path, reading: Reading, columns: RateColumns, window_s: float | None, cv: float
) -> tuple[list[RateWindow], Table]:
    """Windows of a file, ascending; the first one begins at 0.

    A window lasts `window_s`, or, where that is None, as long as the shortest step from one to the next; where windows
    are missing nothing arrives. `cv` is that of all windows where the file has no column for it.

    Raises:
        TraceError: With the file and the line.
    """
    wanted = {"rate": (columns.rate, Numbers(0.0, 1e12))}
    if columns.cv is not None:
        wanted["cv"] = (columns.cv, Numbers(0.01, CV_MAX))
    table = read_table(path, attrs.evolve(reading, of="window", rows_max=WINDOWS_MAX), wanted)
    starts = table.after_s
    steps = [after - before for before, after in pairwise(starts)]
    if 0.0 in steps:
        hint = "" if reading.where else "; where: {column: text} chooses rows"
        at = steps.index(0.0)
        problem = f"expected each time once, found that of line {table.lines[at]} again{hint}"
        refuse(path, table.lines[at + 1], f"{reading.time}: {problem}")
    if window_s is None:
        if not steps:
            raise TraceError(f"{path}: expected two windows or more, or window_s, found one window")
        window_s = min(steps)
    ends = [min(start + window_s, start + step) for start, step in zip(starts, [*steps, window_s], strict=True)]
    cvs = table.cells.get("cv", [cv] * len(starts))
    return [RateWindow(*each) for each in zip(starts, ends, table.cells["rate"], cvs, strict=True)], table


def read_values(path: Path, column: str, scale: float, most: int) -> tuple[float, ...]:
    """The numbers of a column, each times `scale`, for an empirical distribution.

    Raises:
        TraceError: With the file and the line.
    """
    values: list[float] = []
    for line, (text,) in read_cells(path, (column,)):
        if len(values) >= most:
            refuse(path, line, f"expected at most {most} values, found more")
        values.append(number_of(path, line, column, text, 0.0, SECONDS_MAX / scale) * scale)
    if not values:
        raise TraceError(f"{path}: expected at least one value, found none")
    return tuple(values)
