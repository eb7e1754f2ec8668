"""A grid of settings, each combination run with the same seeds; what is done already is not done again."""

import csv
import io
import itertools
from collections.abc import Callable, Sequence
from contextlib import closing

import attrs

from executors.checking import Checking
from executors.simulator.load.sources import Source
from executors.simulator.questions.cellfile import CellFile, Keys
from executors.simulator.questions.cells import Cell, CellOutcome, Workers
from executors.simulator.questions.comparison import PromiseBroken
from executors.simulator.questions.settings import Setting
from executors.simulator.record.flat_figures import label, unit
from executors.simulator.report.multiples import SweepCell

Progress = Callable[[int, int], None]
"""Called with how many runs are done, and of how many."""

CELLS_MAX = 1_000_000


@attrs.frozen
class Combination:
    """One point of the grid.

    Attributes:
        settings: What was varied, and to what.
        outcomes: One a seed, in the order of the seeds.
    """

    settings: tuple[Setting, ...]
    outcomes: tuple[CellOutcome, ...]

    def values(self, deployment: str, key: str) -> tuple[float | None, ...]:
        """One figure of one deployment, a value a seed."""
        return tuple(outcome.figures.get(deployment, {}).get(key) for outcome in self.outcomes)


@attrs.frozen
class Sweep:
    """A finished grid.

    Attributes:
        deployments: All that any combination has, in the order in which they were met.
        keys: The figures, by key path, in their order.
    """

    seeds: tuple[int, ...]
    combinations: tuple[Combination, ...]
    deployments: tuple[str, ...]
    keys: tuple[str, ...]


def sources_of(source: Source, variations: Sequence[tuple[Setting, ...]]) -> tuple[list[Source], tuple[str, ...]]:
    """The grid: every combination of one value of each, the last varying fastest; and what has to be known of its traces.

    Raises:
        ScenarioError: One of them makes no scenario, or its traces cannot be used. Nothing has run.
    """
    found = [attrs.evolve(source, settings=(*source.settings, *settings)) for settings in itertools.product(*variations)]
    notes = dict.fromkeys(note for each in found for note in each.check())
    return found, tuple(notes)


def sweep(
    grid: Sequence[Source],
    fixed: int,
    seeds: Sequence[int],
    kept: CellFile,
    workers: Workers,
    progress: Progress | None = None,
    checking: Checking = Checking.END,
) -> Sweep:
    """Run what of a grid has not been run yet, and keep each outcome as soon as it is known.

    Args:
        grid: What `sources_of` made.
        fixed: How many of their settings, the first ones, were not varied.

    Raises:
        PromiseBroken: A run ended early. What was done before is kept.
    """
    cells = [Cell(source, seed, checking) for source in grid for seed in seeds]
    known = Keys()
    keys = [known.of(cell) for cell in cells]
    open_places = [place for place, key in enumerate(keys) if key not in kept.kept]
    done = len(cells) - len(open_places)
    if progress is not None:
        progress(done, len(cells))
    with closing(workers([cells[place] for place in open_places])) as found:
        for index, outcome in found:
            place = open_places[index]
            if outcome.failure is not None:
                settings = "".join(f" {setting}" for setting in cells[place].source.settings)
                raise PromiseBroken(f"{cells[place].source.name}{settings} with seed {cells[place].seed}: {outcome.failure}")
            kept.add(keys[place], cells[place], outcome)
            done += 1
            if progress is not None:
                progress(done, len(cells))
    outcomes = [kept.kept[key] for key in keys]
    width = len(seeds)
    combinations = tuple(
        Combination(source.settings[fixed:], tuple(outcomes[index * width : (index + 1) * width]))
        for index, source in enumerate(grid)
    )
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.figures)
    figures = dict.fromkeys(key for outcome in outcomes for each in outcome.figures.values() for key in each)
    return Sweep(tuple(seeds), combinations, tuple(names), tuple(figures))


def as_csv(found: Sweep) -> str:
    """One row for each combination, seed and deployment, with every figure; empty where a run has none."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    varied = [setting.key for setting in found.combinations[0].settings]
    rows.writerow([*varied, "seed", "deployment", *found.keys])
    for combination in found.combinations:
        values = [setting.text for setting in combination.settings]
        for seed, outcome in zip(found.seeds, combination.outcomes, strict=True):
            for name, figures in outcome.figures.items():
                numbers = [figures.get(key) for key in found.keys]
                rows.writerow([*values, seed, name, *map(_exact, numbers)])
    return text.getvalue()


def _exact(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:.0f}" if number.is_integer() and abs(number) < 2**53 else repr(number)


def as_multiples(found: Sweep) -> list[SweepCell]:
    """What the page of small multiples draws: the figures that are not the same in every run."""
    charted = [(name, key) for name in found.deployments for key in found.keys if not is_constant(found, name, key)]
    cells = []
    for combination in found.combinations:
        settings = {setting.key: setting.text for setting in combination.settings}
        figures = {
            _title(found, name, key): tuple(
                float("nan") if (number := outcome.figures.get(name, {}).get(key)) is None else number
                for outcome in combination.outcomes
            )
            for name, key in charted
        }
        cells.append(SweepCell(settings=settings, figures=figures))
    return cells


def is_constant(found: Sweep, deployment: str, key: str) -> bool:
    """Whether a figure is the same in every run of every combination."""
    values = {
        outcome.figures.get(deployment, {}).get(key) for combination in found.combinations for outcome in combination.outcomes
    }
    return len(values) == 1


def depends_on_settings(found: Sweep, deployment: str, key: str) -> bool:
    """Whether a figure differs between any two combinations on the same seed; what differs by seed alone does not."""
    columns = zip(*(combination.outcomes for combination in found.combinations), strict=True)
    return any(len({outcome.figures.get(deployment, {}).get(key) for outcome in column}) > 1 for column in columns)


def _title(found: Sweep, deployment: str, key: str) -> str:
    of = f"{deployment}: " if len(found.deployments) > 1 else ""
    return f"{of}{label(key)}" + (f" [{unit(key)}]" if unit(key) else "")
