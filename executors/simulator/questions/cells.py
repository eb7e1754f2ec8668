"""Many runs at once: one cell is one scenario with one seed, and its outcome the figures of that run."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from executors import workers
from executors.simulator.load.sources import Source
from executors.simulator.record.flat_figures import Numbers, flatten
from executors.simulator.run import Run
from executors.workers import Results


@attrs.frozen
class Cell:
    """One run to be made."""

    source: Source
    seed: int


@attrs.frozen
class Outcome:
    """What a run came to.

    Attributes:
        figures: Of each deployment, by its name.
        failure: The promise that was broken, in words; None: all held.
    """

    figures: dict[str, Numbers]
    failure: str | None = None


Outcomes: TypeAlias = Results[Outcome]
Workers: TypeAlias = Callable[[Sequence[Cell]], Outcomes]
"""Runs cells, and hands over the place and the outcome of each as soon as it is known, in any order."""


def run_cell(cell: Cell) -> Outcome:
    """Make one run. It depends on nothing but the cell, whichever process does it."""
    scenario = cell.source.scenario(cell.seed)
    result = Run(scenario, cell.source.arrivals(scenario)).go()
    broken = result.failure
    failure = None if broken is None else f"promise {broken.rule} broken at t={broken.at:.6f} s: {broken.text}"
    return Outcome({figures.name: flatten(figures) for figures in result.deployments}, failure)


def in_this_process(cells: Sequence[Cell]) -> Outcomes:
    """One after another."""
    return workers.in_this_process(cells, run_cell)


def in_processes(jobs: int) -> Workers:
    """As many at once as there are jobs, each in a process of its own."""
    return lambda cells: workers.in_processes(cells, run_cell, jobs)
