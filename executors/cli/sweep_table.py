"""The table of a sweep: a row for each combination, and as many figures as the screen has room for."""

from collections.abc import Sequence

import attrs
from rich import box
from rich.table import Table
from rich.text import Text

from executors.simulator.questions.statistics import estimate
from executors.simulator.questions.sweeping import Sweep, depends_on_settings, is_constant
from executors.simulator.record.flat_figures import is_percentile, label, number, unit
from executors.simulator.residency.figures import ALL_DEPLOYMENTS

SHOWN = (
    "requests.latency_s.p99",
    "requests.lost",
    "gpu_hours",
    "requests.waited_over_1_s",
    "rank_gap_s",
    "incomplete_s",
    "longest_gap_s",
    "unserved_rank_s",
    "ranks_without_room",
    "below_floor_s",
    "update_s",
    "ranks_moved",
    "reconfigures",
    "requests.failed",
    "requests.expired",
    "requests.not_done",
    "requests.wait_s.p99",
    "scaling.replica_hours",
    "scaling.scale_events",
    "healthy",
)
"""The figures that a table may have, first what callers feel and what it costs; the CSV and the page have all."""

SHOWN_WITH_RESIDENCY = (
    "misses.count",
    "misses.first_answer_s.p50",
    "misses.first_answer_s.p95",
    "moves.loads_from_disk",
    "moves.moved_gb",
    "moves.displaced",
    "requests.expired",
    "requests.failed",
    "memory.gpu_used",
    "memory.gpu_fragmented",
)
"""The same with residency."""

FIGURES_MAX = 8
SETTING_WIDTH_MAX = 40
PADDING, RULE = 1, 1
BETWEEN = PADDING + RULE
"""What stands behind each column."""


@attrs.frozen
class _Column:
    """One column, before it is known whether there is room for it."""

    header: str
    cells: tuple[str, ...]
    is_setting: bool = False

    @property
    def width(self) -> int:
        """Cells on one line, the header on as many as it has words."""
        if self.is_setting:
            return min(SETTING_WIDTH_MAX, max(map(len, (self.header, *self.cells))))
        return max(map(len, (*self.header.split(), *self.cells)))


@attrs.frozen
class SweepTable:
    """What to print of one deployment.

    Attributes:
        table: None: there is nothing to tell.
        left_out: Figures for which there was no room.
        never_known: Percentiles of which no run has a number: they are never, or were not known at the end.
    """

    table: Table | None
    left_out: tuple[str, ...]
    never_known: tuple[str, ...] = ()


def told_of(names: Sequence[str]) -> Sequence[str]:
    """Of whom a table is printed: with residency only all of them together, as there are many."""
    return (ALL_DEPLOYMENTS,) if ALL_DEPLOYMENTS in names else names


def table_of(found: Sweep, deployment: str, width: int) -> SweepTable:
    """The figures of a deployment that depend on the settings, as many as fit; at least one, where there is one."""
    settings = _settings(found)
    figures = _figures(found, deployment)
    if not figures:
        return SweepTable(None, ())
    room = width - RULE - sum(column.width + BETWEEN for column in settings)
    chosen: list[_Column] = []
    left_out = []
    for column in figures:
        fits = column.width + BETWEEN <= room or not chosen
        if fits and len(chosen) < FIGURES_MAX:
            room -= column.width + BETWEEN
            chosen.append(column)
        else:
            left_out.append(column.header)
    table = Table(title=Text(deployment), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, PADDING, 0, 0))
    for column in (*settings, *chosen):
        justify = "left" if column.is_setting else "right"
        table.add_column(Text(column.header), justify=justify, width=column.width, no_wrap=column.is_setting)  # type: ignore[arg-type] # one of rich's words
    for row in zip(*(column.cells for column in (*settings, *chosen)), strict=True):
        table.add_row(*map(Text, row))
    return SweepTable(table, tuple(left_out), _never_known(found, deployment))


def _settings(found: Sweep) -> list[_Column]:
    keys = [setting.key for setting in found.combinations[0].settings]
    return [
        _Column(header, tuple(combination.settings[place].text for combination in found.combinations), is_setting=True)
        for place, header in enumerate(_short(keys))
    ]


def _short(keys: Sequence[str]) -> list[str]:
    """The last parts of key paths, where they are enough to tell them apart."""
    ends = [key.rpartition(".")[2] for key in keys]
    return [end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)]


def _figures(found: Sweep, deployment: str) -> list[_Column]:
    known = [key for key in (SHOWN_WITH_RESIDENCY if deployment == ALL_DEPLOYMENTS else SHOWN) if key in found.keys]
    keys = [key for key in known if depends_on_settings(found, deployment, key)]
    keys = keys or [key for key in known if not is_constant(found, deployment, key)]
    return [
        _Column(
            label(key) + (f" [{unit(key)}]" if unit(key) else ""),
            tuple(_mean(key, combination.values(deployment, key)) for combination in found.combinations),
        )
        for key in keys
    ]


def _never_known(found: Sweep, deployment: str) -> tuple[str, ...]:
    if not any(arrived for each in found.combinations for arrived in each.values(deployment, "requests.arrived")):
        return ()  # nobody came
    shown = [key for key in SHOWN if key in found.keys and is_percentile(key)]
    return tuple(
        label(key)
        for key in shown
        if all(value is None for combination in found.combinations for value in combination.values(deployment, key))
    )


def _mean(key: str, values: tuple[float | None, ...]) -> str:
    if is_percentile(key) and None in values:
        return "-"  # of the runs in which it is known alone, it would be of those in which all went well
    found = estimate([value for value in values if value is not None])
    if found.mean is None:
        return "-"
    if found.high is None or found.high == found.mean:
        return number(found.mean)
    return f"{number(found.mean)} ± {number(found.high - found.mean)}"
