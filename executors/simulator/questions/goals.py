"""Goals of a search: objectives that runs show to be met or missed, and what is then to be as small or large as it can.

What an objective is, and which figures it may name, is in `scenario/objectives.py`; what a scenario tells before any run is a
row of `KNOWN`.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import attrs

from executors.simulator.fields import FieldProblem
from executors.simulator.questions.goal_search import GoalVerdict, Observed
from executors.simulator.questions.statistics import one_sided, share_bounds
from executors.simulator.record.flat_figures import number
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.objectives import (
    FIGURES,
    PER_MTOK,
    SHARE,
    FigureKind,
    Goal,
    HasFigures,
    Reading,
    ShareOf,
    parse_goal,
    parse_reading,
)

NEVER = "never"


def shown(goal: Goal, value: float) -> str:
    """What a run comes to in an objective, in words: a value of its figure, or the share of windows."""
    return f"{number(100 * value)} %" if goal.in_windows else _shown(goal, value)


def condition(goal: Goal) -> str:
    """`p99 ttft_s of llm < 2 s`, without the share in which that has to hold."""
    return f"{goal.reading} {goal.sign} {_shown(goal, goal.limit)}"


def told(goal: Goal, value: float) -> str:
    """`p99 ttft_s 1.2 s`, or `p99 ttft_s < 2 s in 97.2 % of the windows`."""
    if goal.in_windows:
        return f"{condition(goal)} in {shown(goal, value)} of the windows"
    return f"{goal.reading} {shown(goal, value)}"


def _shown(goal: Goal, value: float) -> str:
    if math.isinf(value):
        return NEVER
    if goal.reading.before == SHARE:
        return f"{number(100 * value)} %"
    return f"{number(value)} {goal.reading.figure.unit}".rstrip()


def judge(goal: Goal, margins: Sequence[float], error: float) -> GoalVerdict:
    """What these runs say, wrongly in no more than a share `error` of such experiments."""
    if goal.share is not None and goal.share_of is ShareOf.RUNS:
        kept = sum(map(goal.is_kept, margins))
        low, high = share_bounds(kept, len(margins), error)
        return GoalVerdict.MET if low >= goal.share else GoalVerdict.MISSED if high < goal.share else GoalVerdict.OPEN
    if -math.inf in margins:
        return GoalVerdict.MISSED  # what is never in one run is never in the mean
    if len(margins) < 2:
        return GoalVerdict.OPEN
    low, high = one_sided(margins, error)
    return GoalVerdict.MET if goal.is_kept(low) else GoalVerdict.OPEN if goal.is_kept(high) else GoalVerdict.MISSED


def judge_all(goals: Sequence[Goal], runs: Sequence[Observed], error: float, least: int) -> GoalVerdict:
    """What runs say of all objectives together: MET needs each of them, and `least` runs."""
    verdicts = {judge(goal, [run.margins[place] for run in runs], error) for place, goal in enumerate(goals)}
    if GoalVerdict.MISSED in verdicts:
        return GoalVerdict.MISSED
    return GoalVerdict.OPEN if GoalVerdict.OPEN in verdicts or len(runs) < least else GoalVerdict.MET


def objectives(asked: Sequence[str], of_scenario: Sequence[str], option: str = "--slo") -> tuple[Goal, ...]:
    """Those of the command line, each once, or, where there are none, those of the scenario.

    Raises:
        ScenarioError: One of the command line is none.
    """
    where, texts = (option, asked) if asked else ("slo", of_scenario)
    try:
        return tuple(dict.fromkeys(map(parse_goal, texts)))
    except FieldProblem as problem:
        raise ScenarioError(f"{where}: {problem}") from None


@attrs.frozen
class Known:
    """What a scenario costs, whatever happens in it: what has to be bought."""

    name: str
    unit: str
    of: Callable[[Scenario], float]


def _replicas(scenario: Scenario) -> float:
    return float(sum(each.most_replicas for each in scenario.deployments))


def _gpus(scenario: Scenario) -> float:
    return float(sum(each.most_replicas * each.gpus_per_replica for each in scenario.deployments))


def _node_gpus(scenario: Scenario) -> float:
    return float(sum(scenario.node_gpus.values()))


KNOWN = {
    each.name: each
    for each in (
        Known("replicas", "replicas", _replicas),
        Known("gpus", "GPUs", _gpus),
        Known("node_gpus", "GPUs of all nodes", _node_gpus),
    )
}
COST, RATE = "cost", "rate"


@attrs.frozen(kw_only=True)
class Aim:
    """What is to be as small as it can, or as large.

    Attributes:
        name: As it was asked for.
        unit: Of its values.
        sign: 1: as small; -1: as large.
        known: What it is, of a scenario; None: it is measured.
        reading: What is measured.
        price: What each unit of it costs.
        grows: Whether it can be taken to be larger the more replicas there are; of `rate`, the higher the rate.
    """

    name: str
    unit: str
    sign: int = 1
    known: Callable[[Scenario], float] | None = None
    reading: Reading | None = None
    price: float = 1.0
    grows: bool = False

    def value(self, outcome: HasFigures) -> float:
        """Of a run; what is measured of each deployment is added up, but for percentiles, of which the worst counts."""
        assert self.reading is not None, "what is known is not measured"
        values = self.reading.values(outcome)
        figure = self.reading.figure
        worst = figure.kind is FigureKind.TIMES or self.reading.before == SHARE or figure.name in PER_MTOK
        return self.price * (max(values) if worst else math.fsum(values))

    def shown(self, value: float) -> str:
        """A value in words."""
        return NEVER if math.isinf(value) else f"{number(value)} {self.unit}".rstrip()


def parse_aim(minimize: str | None, maximize: str | None, gpu_price: float | None, *, has_prices: bool = False) -> Aim:
    """What is asked for; without anything GPU-hours, or what they cost, are to be few.

    Args:
        minimize: What is to be small; None: what is usual.
        maximize: Or large.
        gpu_price: Of all GPUs, for an hour.
        has_prices: Whether the scenario has prices by type, which hold where there is no `gpu_price`.

    Raises:
        ScenarioError: It is no figure, or there is no price for it.
    """
    if minimize is not None and maximize is not None:
        raise ScenarioError(f"--maximize: expected one aim, found {maximize!r} beside --minimize {minimize!r}")
    if maximize == RATE:
        return Aim(name=RATE, unit="", sign=-1, grows=True)
    if maximize is not None:
        reading = _measured("--maximize", maximize)
        return Aim(name=str(reading), unit=reading.figure.unit, sign=-1, reading=reading)
    usual = "gpu_hours" if gpu_price is None and not has_prices else COST
    name = minimize if minimize is not None else usual
    if name == COST:
        if gpu_price is None and has_prices:
            return Aim(name=COST, unit="USD", reading=Reading(FIGURES["cost_usd"]), grows=True)
        if gpu_price is None:
            allowed = "--gpu-price USD beside cost, the price of a GPU for an hour, or gpu_prices_per_hour in the scenario"
            raise ScenarioError(f"--minimize: expected {allowed}, found none")
        return Aim(name=COST, unit="USD", reading=Reading(FIGURES["gpu_hours"]), price=gpu_price, grows=True)
    if name in KNOWN:
        return Aim(name=name, unit=KNOWN[name].unit, known=KNOWN[name].of, grows=True)
    try:
        reading = _measured("--minimize", name)
    except ScenarioError:
        if name.split()[-1:] and name.split(" of ")[0].split()[-1] in FIGURES:
            raise
        allowed = ", ".join((COST, *KNOWN, *FIGURES))
        raise ScenarioError(f"--minimize: expected one of {allowed}, found {name!r}") from None
    return Aim(name=str(reading), unit=reading.figure.unit, reading=reading, grows=reading.figure.grows)


def check_readings(scenario: Scenario, readings: Iterable[Reading], option: str = "--slo") -> None:
    """Raise `ScenarioError` for a figure that a scenario does not have."""
    for reading in readings:
        try:
            scenario.check_reading(reading)
        except FieldProblem as problem:
            raise ScenarioError(f"{option}: {problem}") from None


def _measured(option: str, text: str) -> Reading:
    try:
        return parse_reading(text)
    except FieldProblem as problem:
        raise ScenarioError(f"{option}: {problem}") from None
