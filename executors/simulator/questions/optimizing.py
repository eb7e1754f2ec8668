"""A goal on a grid of settings: `goal_search` says which runs to make, and here they are made, kept and summed up."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import attrs

from executors.checking import Checking
from executors.simulator.load.sources import Source
from executors.simulator.questions.cellfile import CellFile, Keys
from executors.simulator.questions.cells import Cell, CellOutcome, Outcomes, Workers
from executors.simulator.questions.comparison import PromiseBroken
from executors.simulator.questions.goal_search import GoalVerdict, Observed, Problem, Round, next_round
from executors.simulator.questions.goals import RATE, Aim, check_readings, judge_all
from executors.simulator.questions.settings import Setting
from executors.simulator.questions.statistics import estimate, one_sided, share_bounds
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.objectives import SLO_WINDOW_S, Goal, ShareOf

Progress = Callable[[int, int], None]
"""Called with how many runs are done, and how many have been asked for so far."""

CELLS_MAX = 100_000
ERROR = 0.05
"""In so many of all searches at most a cell may be said to meet its objectives that does not."""
LEAST = 5
"""Runs without which none is said to."""
RUNGS = (3, LEAST, 8, 13, 20, 32, 50, 80, 130, 200, 320, 500, 800)

COUNTS = ("target_replicas", "max_replicas", "count")
"""Last parts of the keys along which costs grow, and what is met stays met, unless somebody says otherwise."""
RATES = ("rate_per_s", "speedup", "scale", "concurrency")
"""... of those along which what is met does not stay met, from the highest on."""
NO_AXIS = "none"


@attrs.frozen(kw_only=True)
class GoalQuestion:
    """What is asked.

    Attributes:
        source: The scenario, with the settings that all runs have.
        variations: What is varied; the values of the axis from the cheapest on.
        axis: The place of the variation that is bisected; None: none is.
        seed: Of the first run; the others follow.
        runs_max: How many runs a cell may have.
        budget: How many all together.
        window_s: How wide a window is, for objectives that have to hold in a share of them.
    """

    source: Source
    variations: tuple[tuple[Setting, ...], ...]
    axis: int | None
    goals: tuple[Goal, ...]
    aim: Aim
    seed: int
    runs_max: int
    budget: int
    checking: Checking = Checking.END
    window_s: float = SLO_WINDOW_S

    @property
    def cells(self) -> int:
        """How many combinations there are."""
        return math.prod(map(len, self.variations))

    def settings(self, cell: int) -> tuple[Setting, ...]:
        """What is varied, of a cell; the last varies fastest."""
        found = []
        for variation in reversed(self.variations):
            cell, place = divmod(cell, len(variation))
            found.append(variation[place])
        return tuple(reversed(found))

    def source_of(self, cell: int) -> Source:
        """The scenario of a cell."""
        return attrs.evolve(self.source, settings=(*self.source.settings, *self.settings(cell)))

    @cached_property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        """The cells along the axis, for each combination of all else."""
        if self.axis is None:
            return tuple((cell,) for cell in range(self.cells))
        length = len(self.variations[self.axis])
        step = math.prod(map(len, self.variations[self.axis + 1 :]))
        firsts = (cell for cell in range(self.cells) if cell // step % length == 0)
        return tuple(tuple(first + step * place for place in range(length)) for first in firsts)

    @cached_property
    def rungs(self) -> tuple[int, ...]:
        """How many runs a cell has after it got some."""
        return (*(rung for rung in RUNGS if rung < self.runs_max), self.runs_max)

    @cached_property
    def error(self) -> float:
        """In how many cases one look at one cell may be wrong, so that all looks together are in no more than `ERROR`."""
        looked_at = sum(min(len(line), len(line).bit_length() + 2) for line in self.lines)
        return ERROR / (looked_at * len(self.rungs))

    def judge(self, runs: Sequence[Observed]) -> GoalVerdict:
        """What the runs of a cell say."""
        return judge_all(self.goals, runs, self.error, LEAST)

    @cached_property
    def _known(self) -> dict[int, float]:
        return {}

    def known_cost(self, cell: int) -> float:
        """What a cell costs, where that is known."""
        if cell not in self._known:
            if self.aim.name == RATE:
                assert self.axis is not None, "a rate is looked for along its axis"
                value = float(self.settings(cell)[self.axis].value)
            else:
                assert self.aim.known is not None, "only asked for what is known"
                value = self.aim.known(self.source_of(cell).scenario())
            self._known[cell] = self.aim.sign * value
        return self._known[cell]

    @property
    def is_known(self) -> bool:
        """Whether costs are known before any run."""
        return self.aim.name == RATE or self.aim.known is not None

    def observed(self, cell: int, outcome: CellOutcome) -> Observed:
        """What the search is told of a run."""
        cost = self.known_cost(cell) if self.is_known else self.aim.sign * self.aim.value(outcome)
        return Observed(tuple(goal.margin(outcome) for goal in self.goals), cost)

    def check(self) -> None:
        """Look at all that can be looked at before anything runs.

        Raises:
            ScenarioError: Some of it cannot be used.
        """
        self.source.pinned()
        for variation in self.variations:  # each value once, and not each combination, of which there may be many
            for setting in variation:
                attrs.evolve(self.source, settings=(*self.source.settings, setting)).check()
        check_readings(self.source_of(0).scenario(), [goal.reading for goal in self.goals])
        if self.aim.reading is not None:
            check_readings(
                self.source_of(0).scenario(), [self.aim.reading], "--minimize" if self.aim.sign > 0 else "--maximize"
            )
        for goal in self.goals:
            if goal.share is None or goal.share_of is ShareOf.WINDOWS:
                continue
            if share_bounds(self.runs_max, self.runs_max, self.error)[0] < goal.share:
                needed = math.ceil(math.log(self.error) / math.log(goal.share))
                raise ScenarioError(
                    f"--slo: expected --runs-max {needed} or more, as fewer runs cannot show {goal.share:.4g} of all, "
                    f"found {self.runs_max} beside {goal.text!r}"
                )


def axis_of(variations: Sequence[tuple[Setting, ...]], aim: Aim, asked: str | None) -> int | None:
    """The variation that is bisected: the one asked for, or the first that can be taken to be monotone.

    Raises:
        ScenarioError: It is not varied, or no rate is and it is to be high.
    """
    keys = [variation[0].key for variation in variations]
    if asked is not None and asked != NO_AXIS:
        if asked not in keys:
            raise ScenarioError(f"--monotone: expected a key that is varied: {', '.join(keys)}; or {NO_AXIS}, found {asked!r}")
        return keys.index(asked)
    if aim.name == RATE:
        rates = [place for place, key in enumerate(keys) if key.rpartition(".")[2] in RATES]
        if not rates or asked == NO_AXIS:
            raise ScenarioError(
                f"--maximize: expected rate beside a --vary of a {', '.join(RATES[:-1])} or {RATES[-1]}, found none"
            )
        return rates[0]
    if asked == NO_AXIS or not aim.grows:
        return None
    return next((place for place, key in enumerate(keys) if key.rpartition(".")[2] in COUNTS), None)


def along(variation: tuple[Setting, ...], aim: Aim) -> tuple[Setting, ...]:
    """The values of an axis from the cheapest on.

    Raises:
        ScenarioError: One is no number.
    """
    for setting in variation:
        if isinstance(setting.value, bool) or not isinstance(setting.value, (int, float)):
            raise ScenarioError(f"--vary: expected numbers for {setting.key}, along which is bisected, found {setting.text!r}")
    return tuple(sorted(variation, key=lambda setting: float(setting.value), reverse=aim.name == RATE))


@attrs.frozen(kw_only=True)
class Measured:
    """What the runs of a cell say of one objective.

    Attributes:
        value: The mean of its figure; infinite where it is never in one run.
        low, high: Between which the true mean is, each with the confidence that decisions have; None: too few runs.
        kept: In how many runs it held.
    """

    value: float
    low: float | None
    high: float | None
    kept: int


@attrs.frozen(kw_only=True)
class Tried:
    """A cell that has run.

    Attributes:
        runs: How many.
        verdict: Of all objectives; OPEN: it is not decided.
        cost: The mean of what is to be small or large, as it was asked for.
    """

    cell: int
    settings: tuple[Setting, ...]
    runs: int
    verdict: GoalVerdict
    cost: float
    gpu_hours: float
    measured: tuple[Measured, ...]


@attrs.frozen(kw_only=True)
class Optimum:
    """What a search came to.

    Attributes:
        tried: Every cell that has run, in the order of the grid.
        best: The answer; None: no cell is known to meet all objectives.
        below, above: Its neighbours on its line, the cheaper and the dearer; None: it is the first, or the last.
        runs: How many were made.
    """

    question: GoalQuestion
    tried: tuple[Tried, ...]
    best: Tried | None
    below: Tried | None
    above: Tried | None
    not_monotone: bool
    out_of_budget: bool
    runs: int


def optimize(question: GoalQuestion, kept: CellFile, workers: Workers, progress: Progress | None = None) -> Optimum:
    """Search, and keep each outcome as soon as it is known; what is kept already is not run again.

    Raises:
        PromiseBroken: A run ended early. What was done before is kept.
        ScenarioError: A combination of settings makes no scenario.
    """
    problem = Problem(
        lines=question.lines,
        judge=question.judge,
        cost_of=question.known_cost if question.is_known else None,
        rungs=question.rungs,
        budget=question.budget,
    )
    outcomes: dict[int, list[CellOutcome]] = {}
    results: dict[int, list[Observed]] = {}
    made = _Making(question, kept, workers, progress)
    try:
        while (found := next_round(problem, results)).wanted:
            for (cell, _), outcome in zip(found.wanted, made.round(found), strict=True):
                outcomes.setdefault(cell, []).append(outcome)
                results.setdefault(cell, []).append(question.observed(cell, outcome))
    finally:
        made.close()
    return _summed_up(question, found, outcomes, results)


@attrs.define
class _Making:
    """Makes the runs of one round after the other, by the same workers."""

    question: GoalQuestion
    kept: CellFile
    workers: Workers
    progress: Progress | None
    keys: Keys = attrs.Factory(Keys)
    pieces: list[Cell] = attrs.Factory(list)
    feed: Outcomes | None = None
    done: int = 0
    asked: int = 0

    def round(self, found: Round) -> list[CellOutcome]:
        """The outcomes of what a round wants, in its order."""
        question = self.question
        more = (question.checking, question.goals, question.window_s)
        cells = [Cell(question.source_of(cell), question.seed + run, *more) for cell, run in found.wanted]
        keys = [self.keys.of(cell) for cell in cells]
        begun = len(self.pieces)
        key_at = {}
        for cell, key in zip(cells, keys, strict=True):
            if key not in self.kept.kept:
                key_at[len(self.pieces)] = key
                self.pieces.append(cell)
        self.asked += len(cells)
        self.done += len(cells) - len(key_at)
        self.show()
        for _ in range(begun, len(self.pieces)):
            if self.feed is None:
                self.feed = self.workers(self.pieces)
            index, outcome = next(self.feed)
            cell = self.pieces[index]
            if outcome.failure is not None:
                settings = "".join(f" {setting}" for setting in cell.source.settings)
                raise PromiseBroken(f"{cell.source.name}{settings} with seed {cell.seed}: {outcome.failure}")
            self.kept.add(key_at[index], cell, outcome)
            self.done += 1
            self.show()
        return [self.kept.kept[key] for key in keys]

    def show(self) -> None:
        if self.progress is not None:
            self.progress(self.done, self.asked)

    def close(self) -> None:
        """End the workers."""
        if self.feed is not None:
            self.feed.close()


def _summed_up(
    question: GoalQuestion, found: Round, outcomes: dict[int, list[CellOutcome]], results: dict[int, list[Observed]]
) -> Optimum:
    tried = {cell: _tried(question, cell, outcomes[cell], runs) for cell, runs in sorted(results.items())}
    below = above = None
    if found.best is not None:
        line = next(line for line in question.lines if found.best in line)
        place = line.index(found.best)
        below = tried.get(line[place - 1]) if place else None
        above = tried.get(line[place + 1]) if place + 1 < len(line) else None
    return Optimum(
        question=question,
        tried=tuple(tried.values()),
        best=None if found.best is None else tried[found.best],
        below=below,
        above=above,
        not_monotone=found.not_monotone,
        out_of_budget=found.out_of_budget,
        runs=sum(map(len, results.values())),
    )


def _tried(question: GoalQuestion, cell: int, outcomes: Sequence[CellOutcome], runs: Sequence[Observed]) -> Tried:
    hours = [math.fsum(figures["gpu_hours"] or 0.0 for figures in outcome.figures.values()) for outcome in outcomes]
    return Tried(
        cell=cell,
        settings=question.settings(cell),
        runs=len(runs),
        verdict=question.judge(runs),
        cost=question.aim.sign * (estimate([run.cost for run in runs]).mean or 0.0),
        gpu_hours=estimate(hours).mean or 0.0,
        measured=tuple(
            _measured(goal, [run.margins[place] for run in runs], question.error) for place, goal in enumerate(question.goals)
        ),
    )


def _measured(goal: Goal, margins: Sequence[float], error: float) -> Measured:
    kept = sum(map(goal.is_kept, margins))
    if any(map(math.isinf, margins)):
        return Measured(value=goal.value_of(min(margins)), low=None, high=None, kept=kept)
    value = goal.value_of(math.fsum(margins) / len(margins))
    if len(margins) < 2:
        return Measured(value=value, low=None, high=None, kept=kept)
    low, high = sorted(map(goal.value_of, one_sided(margins, error)))
    if goal.in_windows:
        high = min(1.0, high)
    return Measured(value=value, low=max(0.0, low), high=high, kept=kept)  # no figure is ever below 0
