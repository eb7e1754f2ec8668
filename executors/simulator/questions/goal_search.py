"""The one search for the cheapest cell of a grid that meets its objectives: which runs to make next, of what is known so far.

What: a cell is one combination of settings; its runs are on the same seeds as those of every other cell (common random
numbers), so that most of what is luck is in both sides of a comparison. What a cell's runs say of the objectives
(`GoalVerdict`) is for the caller to judge, with whatever confidence: MET, MISSED, or OPEN while a bound straddles a limit. One
that is OPEN with all the runs that it may have is undecided, and counts as missed.

The grid is cut into lines. Along a line costs grow and, once the objectives are met, they stay met: the values of a setting
such as the number of replicas, from the cheapest on. A line is bisected. Where no setting is known to be like that each
cell is a line of its own. Lines race in rounds: those that could still be the cheapest are put in order of what their next
cell costs, and the better half of them gets runs, at least one line. The others are put off and not dropped: they have
their turn when the half before them is decided (successive halving). A line is dropped when the cheapest cell that it may
still offer costs no less than the best one that is known to meet everything. What a cell costs is known before (GPUs) or
measured (GPU-hours); where it is measured, a cell is taken to cost no less than the next cheaper one of its line that has
run.

In the end the answer and both its neighbours on the line get all the runs that they may have. If the dearer neighbour then
misses an objective, the line is not monotone: three cells to each side get all runs too, and the answer says so.

`next_round` is a function of the results alone. Whoever replays the runs that were kept before a stop asks for the same
rounds again, and comes to the same answer, however many runs are made at once.

Why it ends: each round asks for at least one run of a cell that has not had all of them, and a cell with all of them is not
asked for again. Bisection ends since each decided cell shortens its line.

Why it is right: if verdicts are right and lines monotone, the answer costs no more than any cell that meets the objectives.
A cell that was never run is on a line between cells that tell its verdict, or costs no less than the answer, and only these
two.

What it costs: about log2(n) cells of a line of n, with few runs each where the objectives are far from their limits; and
the neighbours. A round looks at every line, and at every result once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

import attrs

SCAN = 3
"""So many cells to each side of an answer are looked at where its line is not monotone."""


@attrs.frozen
class Observed:
    """What one run came to.

    Attributes:
        margins: By how much it keeps each objective, in the objective's unit; below 0: misses it; -inf: by any amount.
        cost: What it costs; less is better.
    """

    margins: tuple[float, ...]
    cost: float


class GoalVerdict(StrEnum):
    """What the runs of a cell say of all objectives together."""

    MET = "met"
    MISSED = "missed"
    OPEN = "open"


Results: TypeAlias = Mapping[int, Sequence[Observed]]
"""Of each cell that has run: its runs, in the order of the seeds."""

Wanted: TypeAlias = tuple[int, int]
"""One run: of which cell, on which of the seeds."""


@attrs.frozen(kw_only=True)
class Problem:
    """What is searched.

    Attributes:
        lines: Cells of each, from the cheapest on; each cell is on one of them.
        judge: What the runs of a cell say; all that it may have are `rungs[-1]`.
        cost_of: What a cell costs, where that is known before any run; None: it is measured.
        rungs: How many runs a cell has after it got some, ascending.
        budget: How many runs may be made in all.
    """

    lines: Sequence[Sequence[int]]
    judge: Callable[[Sequence[Observed]], GoalVerdict]
    cost_of: Callable[[int], float] | None = None
    rungs: tuple[int, ...] = (3, 5, 8, 13, 20)
    budget: int = 500


@attrs.frozen(kw_only=True)
class Round:
    """What to do next.

    Attributes:
        wanted: Runs to be made; empty: the search is over.
        best: The cheapest cell known to meet everything; None: there is none yet.
        not_monotone: Whether a dearer cell of its line misses an objective.
        out_of_budget: Whether the search is over because the next runs would be too many.
    """

    wanted: tuple[Wanted, ...]
    best: int | None
    not_monotone: bool = False
    out_of_budget: bool = False


def next_round(problem: Problem, results: Results) -> Round:
    """Which runs to make next, and the answer so far."""
    verdicts = {cell: problem.judge(runs) for cell, runs in results.items() if runs}
    known = _Known(problem, results, verdicts)
    best = known.best()
    wanted, not_monotone = known.race(best), False
    if not wanted and best is not None:
        wanted, not_monotone = known.confirmation(best)
    if sum(map(len, results.values())) + len(wanted) > problem.budget:
        return Round(wanted=(), best=best, not_monotone=not_monotone, out_of_budget=True)
    return Round(wanted=tuple(wanted), best=best, not_monotone=not_monotone)


@attrs.frozen
class _Known:
    """A problem, and what is known of it."""

    problem: Problem
    results: Results
    verdicts: Mapping[int, GoalVerdict]

    def best(self) -> int | None:
        """The cheapest of the cells that meet everything, by the runs that all of them have."""
        met = [cell for cell, verdict in self.verdicts.items() if verdict is GoalVerdict.MET]
        common = min((len(self.results[cell]) for cell in met), default=0)
        return min(met, key=lambda cell: (self.cost(cell, common), cell), default=None)

    def cost(self, cell: int, runs: int) -> float:
        """What a cell costs, by so many of its runs."""
        if self.problem.cost_of is not None:
            return self.problem.cost_of(cell)
        first = self.results[cell][:runs]
        return math.fsum(run.cost for run in first) / len(first)

    def race(self, best: int | None) -> list[Wanted]:
        """Runs of the better half of the lines that may offer something cheaper."""
        entered = []
        for number, line in enumerate(self.problem.lines):
            low, high = self.open_part(line)
            if low < high and (best is None or self.is_cheaper(line, low, best)):
                probe = (low + high) // 2
                entered.append((self.least_cost(line, probe, None), number, line[probe]))
        entered.sort()
        return [each for _, _, cell in entered[: (len(entered) + 1) // 2] for each in self.more_of(cell)]

    def open_part(self, line: Sequence[int]) -> tuple[int, int]:
        """The places of which it is not known whether they meet everything: from the first on, up to the second."""
        ran = [(place, self.verdict(cell)) for place, cell in enumerate(line) if cell in self.verdicts]
        high = next((place for place, verdict in ran if verdict is GoalVerdict.MET), len(line))
        low = max((place + 1 for place, verdict in ran if place < high and verdict is GoalVerdict.MISSED), default=0)
        return low, high

    def verdict(self, cell: int) -> GoalVerdict:
        """What is known of a cell; one that all its runs leave open is missed."""
        verdict = self.verdicts[cell]
        is_undecided = verdict is GoalVerdict.OPEN and len(self.results[cell]) >= self.problem.rungs[-1]
        return GoalVerdict.MISSED if is_undecided else verdict

    def is_cheaper(self, line: Sequence[int], place: int, best: int) -> bool:
        """Whether a place may cost less than a cell that has run."""
        return self.least_cost(line, place, best) < self.cost(best, len(self.results[best]))

    def least_cost(self, line: Sequence[int], place: int, best: int | None) -> float:
        """What a place costs at the least; measured: what the next cheaper one does that has run, -inf where none has.

        Compared with another cell it is `best`, on as many seeds as both have.
        """
        if self.problem.cost_of is not None:
            return self.problem.cost_of(line[place])
        below = next((line[each] for each in range(place, -1, -1) if line[each] in self.verdicts), None)
        if below is None:
            return -math.inf
        runs = len(self.results[below])
        if best is None:
            return self.cost(below, runs)
        common = min(runs, len(self.results[best]))
        return self.cost(below, common) - self.cost(best, common) + self.cost(best, len(self.results[best]))

    def more_of(self, cell: int) -> list[Wanted]:
        """The runs of a cell up to its next rung."""
        runs = len(self.results.get(cell, ()))
        return [(cell, run) for run in range(runs, next(rung for rung in self.problem.rungs if rung > runs))]

    def confirmation(self, best: int) -> tuple[list[Wanted], bool]:
        """What the answer and its neighbours lack, and whether the line is not monotone."""
        line = next(each for each in self.problem.lines if best in each)
        place = line.index(best)
        wanted = self.rest_of(line[max(0, place - 1) : place + 2])
        above = line[place + 1] if place + 1 < len(line) else None
        if wanted or above is None or self.verdicts[above] is not GoalVerdict.MISSED:
            return wanted, False
        return self.rest_of(line[max(0, place - SCAN) : place + SCAN + 1]), True

    def rest_of(self, cells: Sequence[int]) -> list[Wanted]:
        """All the runs that these do not have yet."""
        most = self.problem.rungs[-1]
        return [(cell, run) for cell in cells for run in range(len(self.results.get(cell, ())), most)]
