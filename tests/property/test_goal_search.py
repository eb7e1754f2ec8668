"""The goal search finds what trying everything finds, on small grids, and makes fewer runs."""

import math
import random
from collections.abc import Callable

import attrs
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.questions.goal_search import GoalVerdict, Observed, Problem, Round, next_round

RUNGS = (3, 5, 8)


@attrs.frozen
class Grid:
    """A small problem of which everything is known.

    Attributes:
        lines: Of each cell on it, what it costs and by how much it keeps the objective.
        noise: How far a run may be off its cell; the same on all cells of a seed.
    """

    lines: tuple[tuple[tuple[float, float], ...], ...]
    costs_known: bool
    noise: float = 0.0

    @property
    def cells(self) -> list[tuple[float, float]]:
        return [cell for line in self.lines for cell in line]

    def numbered(self) -> tuple[tuple[int, ...], ...]:
        found, number = [], 0
        for line in self.lines:
            found.append(tuple(range(number, number + len(line))))
            number += len(line)
        return tuple(found)

    def cheapest(self) -> float | None:
        return min((cost for cost, margin in self.cells if margin >= 0), default=None)


def by_mean(runs) -> GoalVerdict:
    """Decided from as many runs as make the mean clear of 0, by the width of noise."""
    mean = math.fsum(run.margins[0] for run in runs) / len(runs)
    if len(runs) < RUNGS[0] or (len(runs) < RUNGS[-1] and abs(mean) < 0.5 / len(runs)):
        return GoalVerdict.OPEN
    return GoalVerdict.MET if mean >= 0 else GoalVerdict.MISSED


def searched(grid: Grid, budget: int = 10_000, judge: Callable = by_mean) -> tuple[Round, dict[int, list[Observed]]]:
    problem = Problem(
        lines=grid.numbered(),
        judge=judge,
        cost_of=(lambda cell: grid.cells[cell][0]) if grid.costs_known else None,
        rungs=RUNGS,
        budget=budget,
    )
    results: dict[int, list[Observed]] = {}
    while True:
        found = next_round(problem, results)
        if not found.wanted:
            return found, results
        assert len(set(found.wanted)) == len(found.wanted)
        for cell, run in found.wanted:
            runs = results.setdefault(cell, [])
            assert run == len(runs) < RUNGS[-1]  # each seed once, in their order
            luck = random.Random(run).uniform(-grid.noise, grid.noise)
            cost, margin = grid.cells[cell]
            runs.append(Observed((margin + luck,), cost + luck))


@st.composite
def monotone_lines(draw) -> tuple[tuple[tuple[float, float], ...], ...]:
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 9))
        first, step = draw(st.integers(0, 20)), draw(st.integers(1, 3))
        needed = draw(st.integers(0, length))
        lines.append(tuple((float(first + step * place), float(place - needed) + 0.5) for place in range(length)))
    return tuple(lines)


any_cells = st.lists(
    st.tuples(st.integers(0, 30).map(float), st.sampled_from((-2.0, -0.1, 0.1, 2.0))).map(lambda cell: (cell,)),
    min_size=1,
    max_size=12,
).map(tuple)


@given(st.builds(Grid, st.one_of(monotone_lines(), any_cells), st.booleans()))
def test_it_finds_what_trying_everything_finds(grid):
    found, results = searched(grid)
    assert not found.out_of_budget
    assert not found.not_monotone
    assert (None if found.best is None else grid.cells[found.best][0]) == grid.cheapest()
    if found.best is not None:
        line = next(line for line in grid.numbered() if found.best in line)
        around = [cell for cell in line if abs(cell - found.best) <= 1]
        assert [len(results[cell]) for cell in around] == [RUNGS[-1]] * len(around)


@given(st.builds(Grid, monotone_lines(), st.booleans(), noise=st.floats(0.0, 0.3)))
def test_luck_that_all_cells_share_leaves_the_answer(grid):
    found, _ = searched(grid)
    assert (None if found.best is None else grid.cells[found.best][0]) == grid.cheapest()


@given(monotone_lines(), st.integers(0, 60))
def test_a_budget_is_never_exceeded(lines, budget):
    found, results = searched(Grid(lines, costs_known=True), budget)
    assert sum(map(len, results.values())) <= budget
    whole, everything = searched(Grid(lines, costs_known=True))
    assert found.out_of_budget == (sum(map(len, everything.values())) > budget)
    assert found.out_of_budget or found == whole


def test_a_long_line_is_bisected():
    grid = Grid((tuple((float(place), place - 40.5) for place in range(64)),), costs_known=True)
    found, results = searched(grid)
    assert found.best == 41
    assert len(results) <= 8
    assert sum(map(len, results.values())) <= 0.12 * 64 * RUNGS[-1]


def test_a_line_that_cannot_be_cheaper_is_not_run():
    cheap, dear = ((1.0, -1.0), (2.0, 1.0)), tuple((10.0 + place, 1.0) for place in range(9))
    for costs_known, dear_cells in ((True, 0), (False, 4)):
        _, results = searched(Grid((cheap, dear), costs_known))
        assert len([cell for cell in results if cell > 1]) <= dear_cells


def test_the_cheaper_half_has_its_turn_first_and_the_other_half_is_not_lost():
    grid = Grid(tuple(((float(cost), 1.0 if cost == 7 else -1.0),) for cost in range(8)), costs_known=True)
    problem = Problem(lines=grid.numbered(), judge=by_mean, cost_of=float, rungs=RUNGS)
    assert {cell for cell, _ in next_round(problem, {}).wanted} == {0, 1, 2, 3}
    assert searched(grid)[0].best == 7


def test_what_is_cheaper_by_little_is_waited_for():
    slow, quick, dear = ((1.0, 0.1),), ((1.5, 2.0),), ((9.0, 2.0),)  # the cheapest is decided last
    assert searched(Grid((slow, quick, dear, dear), costs_known=True))[0].best == 0


def test_an_undecided_cell_counts_as_missed():
    grid = Grid((((1.0, 0.0), (2.0, 1.0)),), costs_known=True)

    def never_sure_of_the_first(runs):
        return GoalVerdict.OPEN if runs[0].cost == 1.0 else by_mean(runs)

    found, results = searched(grid, judge=never_sure_of_the_first)
    assert found.best == 1
    assert len(results[0]) == RUNGS[-1]
    assert searched(grid, judge=lambda _: GoalVerdict.OPEN)[0].best is None


def test_a_line_that_is_not_monotone_is_scanned_around_the_answer_and_told():
    margins = (-1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0)
    grid = Grid((tuple((float(place), margin) for place, margin in enumerate(margins)),), costs_known=True)
    found, results = searched(grid)
    assert found.not_monotone
    assert found.best == 1
    assert {cell for cell, runs in results.items() if len(runs) == RUNGS[-1]} == set(range(8))
