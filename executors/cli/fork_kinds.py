"""What differs between forks of runs with residency and without: words, journals, figures, pages."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from executors.cli.simulate import as_json, end_with
from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.simulator.faults.fault_words import inject, parse_fault
from executors.simulator.faults.residency_words import inject_with_residency, parse_residency_fault
from executors.simulator.record.recording import Recording, Repeat, repeat, repeat_residency
from executors.simulator.report import render_page
from executors.simulator.report.memory.page import render_memory_page
from executors.simulator.report.memory.words import deployment_columns, deployment_row
from executors.simulator.report.memory.words import rows as memory_rows
from executors.simulator.report.words import beside, failure
from executors.simulator.residency.figures import ALL_DEPLOYMENTS, ResidencyFigures
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.run import RunResult


@attrs.frozen
class Pair:
    """The figures of one deployment, or of all, in two runs: the values of both for each label."""

    name: str
    lines: Sequence[tuple[str, Sequence[str]]]


@attrs.frozen
class Kind:
    """One kind of run. Results and runs are those of its kind throughout.

    Attributes:
        parse: Raises `FaultWordsError` for words that say nothing.
        inject: Lets happen what words say.
        repeat: Makes a recorded run again.
        journal: Opens a new one, which says this about itself.
        as_json: A result's figures, with the command that gives them.
        page: The report.
        pairs: Figures of two results beside each other.
        failure: Which promise a result broke, in words; None: none.
        end_with: Ends the command with the status of a result.
    """

    parse: Callable[[str, float], object]
    inject: Callable[[Any, str, float], None]
    repeat: Callable[[Path, Recording], Repeat[Any]]
    journal: Callable[[Path, dict[str, Any]], JournalWriter]
    as_json: Callable[[Any, str], dict[str, Any]]
    page: Callable[[Any, str], str]
    pairs: Callable[[Any, Any], Iterable[Pair]]
    failure: Callable[[Any], str | None]
    end_with: Callable[[Any], None]


def _of_deployments(before: RunResult, after: RunResult) -> Iterable[Pair]:
    later = {figures.name: figures for figures in after.deployments}
    for was in before.deployments:
        yield Pair(was.name, tuple(line for _, lines in beside((was, later[was.name])) for line in lines))


def _with_residency(before: ResidencyResult, after: ResidencyResult) -> Iterable[Pair]:
    """All together, and in a line each those that differ."""
    both = zip(memory_rows(before), memory_rows(after), strict=True)
    yield Pair(ALL_DEPLOYMENTS, tuple((label, (was, now)) for (label, was), (_, now) in both))
    later = {figures.name: figures for figures in after.deployments}
    differ = [
        (was.name, (_in_short(was, before.ended_at), _in_short(later[was.name], after.ended_at)))
        for was in before.deployments
        if was != later[was.name]
    ]
    if differ:
        yield Pair("deployments that differ", differ)


def _in_short(figures: ResidencyFigures, ended_at: float) -> str:
    cells = dict(zip(deployment_columns(), deployment_row(figures, ended_at), strict=True))
    of = f"{cells['answered']} of {cells['of']}, {cells['misses']} misses"
    return f"{cells['HOT']} HOT, {of} ({cells['first answer']}), displaced {cells['displaced']} times"


DEPLOYMENTS = Kind(
    parse=parse_fault,
    inject=inject,
    repeat=repeat,
    journal=lambda path, about: JournalWriter.create(path, about=about),
    as_json=as_json,
    page=render_page,
    pairs=_of_deployments,
    failure=failure,
    end_with=end_with,
)
RESIDENCY = Kind(
    parse=parse_residency_fault,
    inject=inject_with_residency,
    repeat=repeat_residency,
    journal=lambda path, about: JournalWriter.create(path, kind=CLUSTER, about=about),
    as_json=as_json,
    page=render_memory_page,
    pairs=_with_residency,
    failure=failure,
    end_with=end_with,
)
