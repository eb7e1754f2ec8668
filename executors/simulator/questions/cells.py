"""Many runs at once: one cell is one scenario with one seed, and its outcome the figures of that run."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from executors import workers
from executors.simulator.load.sources import Source
from executors.simulator.record.flat_figures import Numbers, flatten, flatten_any
from executors.simulator.record.happenings import Failure
from executors.simulator.residency.figures import ALL_MODELS
from executors.simulator.residency.run import ResidencyRun
from executors.simulator.run import Run
from executors.simulator.scenario import Scenario
from executors.simulator.times import moment
from executors.workers import Results


@attrs.frozen
class Cell:
    """One run to be made."""

    source: Source
    seed: int


@attrs.frozen
class CellOutcome:
    """What a run came to.

    Attributes:
        figures: Of each deployment, or of each model and all together, by name.
        failure: The promise that was broken, in words; None: all held.
    """

    figures: dict[str, Numbers]
    failure: str | None = None


Outcomes: TypeAlias = Results[CellOutcome]
Workers: TypeAlias = Callable[[Sequence[Cell]], Outcomes]
"""Runs cells, and hands over the place and the outcome of each as soon as it is known, in any order."""


def run_cell(cell: Cell) -> CellOutcome:
    """Make one run. It depends on nothing but the cell, whichever process does it."""
    if cell.source.of_models:
        return _run_models(cell)
    scenario = cell.source.scenario(cell.seed)
    result = Run(scenario, cell.source.arrivals(scenario)).go()
    return CellOutcome({figures.name: flatten(figures) for figures in result.deployments}, _told(result.failure))


def names_of(source: Source, seed: int) -> list[str]:
    """Who has figures: deployments, or all models together and each of them.

    Raises:
        ScenarioError: The scenario cannot be used.
    """
    scenario = source.either(seed)
    if isinstance(scenario, Scenario):
        return [deployment.spec.name for deployment in scenario.deployments]
    return [ALL_MODELS, *scenario.model_names]


def _run_models(cell: Cell) -> CellOutcome:
    scenario = cell.source.residency(cell.seed)
    result = ResidencyRun(scenario, cell.source.model_arrivals(scenario)).go()
    figures = {ALL_MODELS: flatten_any(result.all_models)}
    figures |= {each.name: flatten_any(each) for each in result.models}
    return CellOutcome(figures, _told(result.failure))


def _told(broken: Failure | None) -> str | None:
    return None if broken is None else f"promise {broken.rule} broken at {moment(broken.at, None)}: {broken.text}"


def in_this_process(cells: Sequence[Cell]) -> Outcomes:
    """One after another."""
    return workers.in_this_process(cells, run_cell)


def in_processes(jobs: int) -> Workers:
    """As many at once as there are jobs, each in a process of its own."""
    return lambda cells: workers.in_processes(cells, run_cell, jobs)
