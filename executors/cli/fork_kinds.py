"""What differs between forks of runs with residency and without: words, journals, figures, pages."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

from executors.cli.simulate import as_json, end_with
from executors.engine.clusters import CLUSTER
from executors.engine.journal import JournalWriter
from executors.simulator.faults.fault_words import inject, parse_fault
from executors.simulator.faults.residency_words import inject_with_residency, parse_residency_fault
from executors.simulator.record.recording import Fork, Recording, Repeat, repeat, repeat_residency
from executors.simulator.report.fork import Pair, render_fork
from executors.simulator.report.memory.page import render_memory_page
from executors.simulator.report.memory.words import deployment_columns, deployment_row
from executors.simulator.report.memory.words import rows as memory_rows
from executors.simulator.report.together import NamedRun
from executors.simulator.report.words import beside, failure
from executors.simulator.residency.figures import ALL_DEPLOYMENTS, ResidencyFigures
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.run import RunResult


@attrs.frozen
class Forked:
    """A run to its end, and what it would have been with the faults.

    Attributes:
        basis: What the first one is: the recorded run itself, or one that goes on from a recorded moment.
        said: What there is to say of it besides.
    """

    basis: str
    original: Any
    forked: Any
    said: tuple[str, ...]


def with_faults(fork: Fork) -> str:
    """What the second run is called."""
    return "with the fault" if len(fork.faults) == 1 else "with the faults"


@attrs.frozen
class Kind:
    """One kind of run. Results and runs are those of its kind throughout.

    Attributes:
        parse: Raises `FaultWordsError` for words that say nothing.
        inject: Lets happen what words say.
        repeat: Makes a recorded run again.
        journal: Opens a new one, which says this about itself.
        as_json: A result's figures, with the command that gives them.
        page: The report, given both runs, what was done to the second, and the command that gives it again.
        pairs: Figures of two results beside each other.
        failure: Which promise a result broke, in words; None: none.
        end_with: Ends the command with the status of a result.
    """

    parse: Callable[[str, float], object]
    inject: Callable[[Any, str, float], None]
    repeat: Callable[[Path, Recording], Repeat[Any]]
    journal: Callable[[Path, dict[str, Any]], JournalWriter]
    as_json: Callable[[Any, str], dict[str, Any]]
    page: Callable[[Forked, Fork, str], str]
    pairs: Callable[[Any, Any], Iterable[Pair]]
    failure: Callable[[Any], str | None]
    end_with: Callable[[Any], None]


def _page_of_both(found: Forked, fork: Fork, rerun: str) -> str:
    runs = (NamedRun(found.basis, found.original), NamedRun(f"{with_faults(fork)}: {'; '.join(fork.faults)}", found.forked))
    return render_fork(*runs, _of_deployments(found.original, found.forked), fork.at, found.said, rerun)


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
    page=_page_of_both,
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
    page=lambda found, _, rerun: render_memory_page(found.forked, rerun),
    pairs=_with_residency,
    failure=failure,
    end_with=end_with,
)
