"""Two scenarios on the same seeds: what differs, by how much, and how sure that is.

Both draw the same random numbers for the same purposes, so that most of what is luck is in both and cancels in the
difference of each pair.
"""

from collections.abc import Callable, Sequence
from contextlib import closing

import attrs

from executors.checking import Checking
from executors.simulator.load.sources import Source
from executors.simulator.questions.cells import Cell, CellOutcome, Workers, names_of
from executors.simulator.questions.statistics import Estimate, estimate
from executors.simulator.record.flat_figures import Numbers, is_percentile
from executors.simulator.run import RunResult
from executors.simulator.scenario.objectives import SLO_WINDOW_S, Goal

Progress = Callable[[int, int], None]
"""Called with how many runs are done, and of how many."""


class NothingInCommon(ValueError):
    """Two scenarios share no deployment."""


class PromiseBroken(Exception):
    """A run ended early, since a promise was broken in it; its figures compare with nothing."""


@attrs.frozen
class FigureComparison:
    """One figure of one deployment.

    Attributes:
        first, second: Its value in each run, in the order of the seeds; None: that run has none.
        difference: Second less first, of the pairs where both have a value; of percentiles, where all have one, or none.
    """

    key: str
    first: tuple[float | None, ...]
    second: tuple[float | None, ...]
    first_mean: float | None
    second_mean: float | None
    difference: Estimate


@attrs.frozen
class DeploymentComparison:
    """All figures of a deployment that both scenarios have."""

    name: str
    figures: tuple[FigureComparison, ...]


@attrs.frozen
class GoalComparison:
    """An objective, in the runs of both.

    Attributes:
        first, second: What each run came to, its worst deployment counting: a figure, which may be infinite (never), or the
            share of windows.
        first_held, second_held: In how many runs it held.
    """

    goal: Goal
    first: tuple[float, ...]
    second: tuple[float, ...]
    first_held: int
    second_held: int


@attrs.frozen
class Comparison:
    """What two scenarios came to.

    Attributes:
        deployments: Those of both, in the order of the first.
        only_first, only_second: Names of the deployments that the other does not have.
        notes: What has to be known of the traces.
        goals: What both came to in each objective.
        drawn: The runs with the first seed, first and second, where they are to be drawn; else empty.
    """

    seeds: tuple[int, ...]
    deployments: tuple[DeploymentComparison, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    notes: tuple[str, ...] = ()
    goals: tuple[GoalComparison, ...] = ()
    drawn: tuple[RunResult, ...] = ()


def compare_each(
    sources: Sequence[Source],
    seeds: Sequence[int],
    workers: Workers,
    progress: Progress | None = None,
    checking: Checking = Checking.END,
    goals: tuple[Goal, ...] = (),
    window_s: float = SLO_WINDOW_S,
    *,
    is_drawn: bool = False,
) -> tuple[Comparison, ...]:
    """Run all scenarios with each seed, each run once, and compare the first with each of the others, pair by pair.

    Args:
        is_drawn: The runs with the first seed are kept whole.

    Raises:
        ScenarioError: One of them cannot be used. Nothing has run.
        NothingInCommon: One shares no deployment with the first, or only some have residency. Nothing has run.
        PromiseBroken: A run ended early.
    """
    with_residency = [each.name for each in sources if each.scenario(seeds[0]).has_residency]
    if 0 < len(with_residency) < len(sources):
        whole = "both scenarios" if len(sources) == 2 else "all scenarios"
        raise NothingInCommon(f"expected residency in {whole} or in none, found it in {', '.join(with_residency)} only")
    # What is wrong with a trace is told before anything runs.
    notes = tuple(dict.fromkeys(note for source in sources for note in source.check(seeds[0])))
    names = [names_of(source, seeds[0]) for source in sources]
    for source, others in zip(sources[1:], names[1:], strict=True):
        if not set(names[0]) & set(others):
            raise NothingInCommon(
                f"expected a deployment that is in both, found {', '.join(names[0])} in {sources[0].name} "
                f"and {', '.join(others)} in {source.name}"
            )
    cells = [
        Cell(source, seed, checking, goals, window_s, is_drawn and seed == seeds[0]) for seed in seeds for source in sources
    ]
    outcomes = run_all(cells, workers, progress)
    columns = [outcomes[place :: len(sources)] for place in range(len(sources))]
    return tuple(
        _pair(tuple(seeds), (names[0], others), (columns[0], column), notes, goals)
        for others, column in zip(names[1:], columns[1:], strict=True)
    )


def _pair(
    seeds: tuple[int, ...],
    names: tuple[Sequence[str], Sequence[str]],
    outcomes: tuple[Sequence[CellOutcome], Sequence[CellOutcome]],
    notes: tuple[str, ...],
    goals: tuple[Goal, ...],
) -> Comparison:
    common = [name for name in names[0] if name in names[1]]
    return Comparison(
        seeds,
        tuple(_deployment(name, *outcomes) for name in common),
        tuple(name for name in names[0] if name not in common),
        tuple(name for name in names[1] if name not in common),
        notes,
        tuple(_goal(goal, *outcomes) for goal in goals),
        tuple(each[0].result for each in outcomes if each[0].result is not None),
    )


def _goal(goal: Goal, firsts: Sequence[CellOutcome], seconds: Sequence[CellOutcome]) -> GoalComparison:
    held = [sum(goal.is_kept(goal.margin(outcome)) for outcome in outcomes) for outcomes in (firsts, seconds)]
    return GoalComparison(goal, tuple(map(goal.value, firsts)), tuple(map(goal.value, seconds)), *held)


def run_all(cells: Sequence[Cell], workers: Workers, progress: Progress | None = None) -> list[CellOutcome]:
    """The outcomes of all cells, in their order, whoever was done first.

    Raises:
        PromiseBroken: One of them ended early.
    """
    outcomes: dict[int, CellOutcome] = {}
    with closing(workers(cells)) as found:
        for index, outcome in found:
            if outcome.failure is not None:
                cell = cells[index]
                raise PromiseBroken(f"{cell.source.name} with seed {cell.seed}: {outcome.failure}")
            outcomes[index] = outcome
            if progress is not None:
                progress(len(outcomes), len(cells))
    return [outcomes[index] for index in range(len(cells))]


def _deployment(name: str, firsts: Sequence[CellOutcome], seconds: Sequence[CellOutcome]) -> DeploymentComparison:
    ours = [outcome.figures[name] for outcome in firsts]
    theirs = [outcome.figures[name] for outcome in seconds]
    return DeploymentComparison(name, tuple(_figure(key, ours, theirs) for key in ours[0] if key in theirs[0]))


def _figure(key: str, ours: Sequence[Numbers], theirs: Sequence[Numbers]) -> FigureComparison:
    first, second = tuple(run[key] for run in ours), tuple(run[key] for run in theirs)
    if is_percentile(key) and None in first + second:
        # What is left of the pairs would be those in which all went well; `requests.not_done` compares all of them.
        return FigureComparison(key, first, second, mean_of(key, first), mean_of(key, second), estimate([]))
    return FigureComparison(
        key,
        first,
        second,
        mean_of(key, first),
        mean_of(key, second),
        estimate([b - a for a, b in zip(first, second, strict=True) if a is not None and b is not None]),
    )


def mean_of(key: str, values: Sequence[float | None]) -> float | None:
    """The mean of those that there are; None: there is none, or, of a percentile, not in every run."""
    if is_percentile(key) and None in values:
        return None
    return estimate([value for value in values if value is not None]).mean
