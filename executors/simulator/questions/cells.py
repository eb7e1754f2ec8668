"""Many runs at once: one cell is one scenario with one seed, and its outcome the figures of that run."""

import shlex
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from executors import workers
from executors.checking import Checking
from executors.simulator.load.sources import Source
from executors.simulator.record.flat_figures import Numbers, flatten, flatten_any
from executors.simulator.record.happenings import Failure
from executors.simulator.record.windows import shares_of_windows
from executors.simulator.residency.figures import ALL_DEPLOYMENTS
from executors.simulator.residency.run import ResidencyRun
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario.objectives import SLO_WINDOW_S, Goal
from executors.simulator.times import moment
from executors.workers import Results


@attrs.frozen
class Cell:
    """One run to be made.

    Attributes:
        goals: Of those for windows, the share of windows in which each held is among the figures.
        window_s: How wide a window is.
        is_drawn: Its outcome is to have all that a page draws, too.
    """

    source: Source
    seed: int
    checking: Checking = Checking.END
    goals: tuple[Goal, ...] = ()
    window_s: float = SLO_WINDOW_S
    is_drawn: bool = False

    @property
    def for_windows(self) -> tuple[str, ...]:
        """What it says of windows: texts of objectives, and how wide windows are; empty: nothing."""
        texts = tuple(goal.text for goal in self.goals if goal.in_windows)
        return (*texts, f"{self.window_s:g} s") if texts else ()


@attrs.frozen
class CellOutcome:
    """What a run came to.

    Attributes:
        figures: Of each deployment, or of each model and all together, by name.
        failure: The promise that was broken, in words; None: all held.
        result: The run itself, without residency and where it is drawn; else None.
    """

    figures: dict[str, Numbers]
    failure: str | None = None
    result: RunResult | None = None


Outcomes: TypeAlias = Results[CellOutcome]
Workers: TypeAlias = Callable[[Sequence[Cell]], Outcomes]
"""Runs cells, and hands over the place and the outcome of each as soon as it is known, in any order."""


def run_cell(cell: Cell) -> CellOutcome:
    """Make one run. It depends on nothing but the cell, whichever process does it."""
    scenario = cell.source.scenario(cell.seed)
    arrivals = cell.source.arrivals(scenario)
    if not scenario.has_residency:
        result = Run(scenario, arrivals, checking=cell.checking).go()
        figures = {each.name: flatten(each) for each in result.deployments}
        for name, numbers in figures.items():
            numbers |= shares_of_windows(cell.goals, name, result.felt[name], cell.window_s, result.ended_at)
        return CellOutcome(figures, _told(result.failure, cell), result if cell.is_drawn else None)
    found = ResidencyRun(scenario, arrivals, checking=cell.checking).go()
    figures = {ALL_DEPLOYMENTS: flatten_any(found.all_deployments)}
    figures |= {each.name: flatten_any(each) for each in found.deployments}
    return CellOutcome(figures, _told(found.failure, cell))


def names_of(source: Source, seed: int) -> list[str]:
    """Who has figures: deployments; with residency, all together and each of them.

    Raises:
        ScenarioError: The scenario cannot be used.
    """
    scenario = source.scenario(seed)
    names = [deployment.spec.name for deployment in scenario.deployments]
    return [ALL_DEPLOYMENTS, *names] if scenario.has_residency else names


def _told(broken: Failure | None, cell: Cell) -> str | None:
    if broken is None:
        return None
    settings = [word for setting in cell.source.settings for word in ("--set", str(setting))]
    again = shlex.join(["rankcore", "simulate", cell.source.name, *settings, "--seed", str(cell.seed), "--check", "each"])
    return f"promise {broken.rule} broken at {moment(broken.at, None)}: {broken.text}; again: {again}"


def in_this_process(cells: Sequence[Cell]) -> Outcomes:
    """One after another."""
    return workers.in_this_process(cells, run_cell)


def in_processes(jobs: int) -> Workers:
    """As many at once as there are jobs, each in a process of its own."""
    return lambda cells: workers.in_processes(cells, run_cell, jobs)
