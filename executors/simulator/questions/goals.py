"""Goals of a search: objectives to be met, `p99 latency_s < 2 of llm`, and what is then to be as small or large as it can.

Every figure that a goal may name is a row of `FIGURES`, or of `KNOWN` where a scenario tells it before any run.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import attrs

from executors.simulator.questions.cells import CellOutcome
from executors.simulator.questions.goal_search import GoalVerdict, Observed
from executors.simulator.questions.statistics import one_sided, share_bounds
from executors.simulator.record.flat_figures import Numbers, number
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.model import Scenario

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
SHARE = "share"
NEVER = "never"


class FigureKind(StrEnum):
    """What a figure is, and so what may stand before it."""

    TIMES = "times"
    """Seconds of each request: a percentile of all of them."""
    COUNT = "count"
    """Requests: as many as there are, or their share of those that came."""
    AMOUNT = "amount"
    """Anything else: as it is."""


@attrs.frozen
class Figure:
    """One figure of a run.

    Attributes:
        keys: Among the figures of a deployment; several are added up. Of times: without the percentile.
        unit: What it is counted in; empty: pieces.
        grows: Whether it can be taken to be larger the more replicas there are.
    """

    name: str
    kind: FigureKind
    keys: tuple[str, ...]
    unit: str = ""
    grows: bool = False

    def of(self, before: str, found: Numbers) -> float:
        """Its value in a run; of a time that most requests never had: infinite."""
        arrived = found["requests.arrived"] or 0.0
        if self.kind is FigureKind.TIMES:
            # Requests that were lost, turned away or not done in the end never had an answer: they are the slowest.
            value = found[f"{self.keys[0]}.{before}"]
            never = (found["requests.done"] or 0.0) < PERCENTILES[before] * arrived
            return (math.inf if arrived else 0.0) if never or value is None else value
        if self.keys == ATTAINMENT and not arrived:
            return 1.0  # nobody was disappointed
        if self.keys[0].startswith(COSTS) and found[self.keys[0]] is None:
            return math.inf  # nobody had a token for the money
        total = math.fsum(found[key] or 0.0 for key in self.keys)
        return total if before != SHARE else total / arrived if arrived else 0.0

    @property
    def needs(self) -> str | None:
        """What only some deployments have, and only they have it; None: all have it."""
        return next((each for each in NEEDED if self.keys[0].startswith(each)), None)


ENGINE, COSTS = "engine.", "cost."
NEEDED = {ENGINE: "an engine", COSTS: "GPUs with prices (gpu_prices_per_hour)"}
TELLING = {ENGINE: "engine.utilisation", COSTS: "cost.cost_usd"}
"""What those have who have what is needed."""
PER_MTOK = tuple(f"cost_per_mtok_{name}" for name in ("output", "total", "good"))
ATTAINMENT = ("engine.attainment",)
OF_ENGINES = (
    "attainment",
    "goodput_rps",
    "output_tokens_per_s",
    "preemptions",
    "kv_mean",
    "kv_peak",
    "utilisation",
    "too_long",
)
_NOT_DONE = tuple(f"requests.{name}" for name in ("failed", "lost", "expired", "unfinished"))
FIGURES = {
    figure.name: figure
    for figure in (
        Figure("latency_s", FigureKind.TIMES, ("requests.latency_s",), "s"),
        Figure("wait_s", FigureKind.TIMES, ("requests.wait_s",), "s"),
        Figure("waited_over_1_s", FigureKind.COUNT, ("requests.waited_over_1_s", *_NOT_DONE)),
        Figure("not_done", FigureKind.COUNT, _NOT_DONE),
        *(
            Figure(name, FigureKind.COUNT, (f"requests.{name}",))
            for name in ("lost", "failed", "expired", "unfinished", "retried")
        ),
        Figure("gpu_hours", FigureKind.AMOUNT, ("gpu_hours",), "GPU-hours", grows=True),
        Figure("cost_usd", FigureKind.AMOUNT, (f"{COSTS}cost_usd",), "USD", grows=True),
        *(Figure(name, FigureKind.AMOUNT, (f"{COSTS}{name}",), "USD") for name in PER_MTOK),
        *(
            Figure(name, FigureKind.AMOUNT, (name,), "s")
            for name in ("longest_gap_s", "incomplete_s", "below_floor_s", "unserved_rank_s", "rank_gap_s", "update_s")
        ),
        *(Figure(f"{name}_s", FigureKind.TIMES, (f"{ENGINE}{name}_of_all_s",), "s") for name in ("ttft", "tpot")),
        *(Figure(name, FigureKind.AMOUNT, (f"{ENGINE}{name}",)) for name in OF_ENGINES),
        *(Figure(name, FigureKind.AMOUNT, (name,)) for name in ("ranks_moved", "reconfigures", "replica_starts", "healthy")),
    )
}

Comparing = Callable[[float, float], float]
COMPARISONS: dict[str, tuple[int, bool]] = {"<": (1, True), "<=": (1, False), ">": (-1, True), ">=": (-1, False)}
"""Of each sign: whether less is better (1) or more (-1), and whether the limit itself is a miss."""

_GOAL = re.compile(
    r"(?:(?P<before>[a-z]\w*)\s+)?(?P<figure>[A-Za-z_]\w*)\s*(?P<sign><=|>=|<|>)\s*(?P<limit>[-+.\deE]+)\s*(?P<percent>%?)"
    r"(?:\s*@\s*(?P<share>[.\d]+)\s*%(?P<runs>\s+of\s+runs)?)?(?:\s+of\s+(?P<deployment>\S.*))?"
)
GOAL_FORM = "such as 'p99 latency_s < 2', 'share not_done < 0.1%' or 'lost < 1 @ 80% of runs of llm'"


@attrs.frozen
class Reading:
    """One figure of one deployment, or of all.

    Attributes:
        before: A percentile, `share`, or nothing.
        deployment: None: of each; the worst of them counts, and amounts and counts are added up where they are a cost.
    """

    figure: Figure
    before: str = ""
    deployment: str | None = None

    def __str__(self) -> str:
        of = "" if self.deployment is None else f" of {self.deployment}"
        return f"{self.before} {self.figure.name}".strip() + of

    def values(self, outcome: CellOutcome) -> list[float]:
        """Of each deployment that it is of."""
        names = outcome.figures if self.deployment is None else (self.deployment,)
        found = [outcome.figures[name] for name in names]
        if self.figure.needs is not None:
            found = [each for each in found if TELLING[self.figure.needs] in each]
        return [self.figure.of(self.before, each) for each in found]


@attrs.frozen
class Goal:
    """An objective.

    Attributes:
        reading: What is looked at in each run.
        sign: How it is compared.
        limit: With what.
        share: In how many of all runs it has to hold; None: the mean of all runs has to.
    """

    text: str
    reading: Reading
    sign: str
    limit: float
    share: float | None = None

    def value(self, outcome: CellOutcome) -> float:
        """The worst of a run."""
        better, _ = COMPARISONS[self.sign]
        return (max if better > 0 else min)(self.reading.values(outcome))

    def margin(self, outcome: CellOutcome) -> float:
        """By how much a run keeps it; below 0: misses it."""
        better, _ = COMPARISONS[self.sign]
        return better * (self.limit - self.value(outcome))

    def value_of(self, margin: float) -> float:
        """What the figure is, at a margin."""
        better, _ = COMPARISONS[self.sign]
        return self.limit - better * margin

    def shown(self, value: float) -> str:
        """A value of its figure in words."""
        if math.isinf(value):
            return NEVER
        if self.reading.before == SHARE:
            return f"{number(100 * value)} %"
        return f"{number(value)} {self.reading.figure.unit}".rstrip()

    def is_kept(self, margin: float) -> bool:
        """Whether a margin is none too small."""
        _, is_strict = COMPARISONS[self.sign]
        return margin > 0 or (margin == 0 and not is_strict)

    def judge(self, margins: Sequence[float], error: float) -> GoalVerdict:
        """What these runs say, wrongly in no more than a share `error` of such experiments."""
        if self.share is not None:
            kept = sum(map(self.is_kept, margins))
            low, high = share_bounds(kept, len(margins), error)
            return GoalVerdict.MET if low >= self.share else GoalVerdict.MISSED if high < self.share else GoalVerdict.OPEN
        if -math.inf in margins:
            return GoalVerdict.MISSED  # what is never in one run is never in the mean
        if len(margins) < 2:
            return GoalVerdict.OPEN
        low, high = one_sided(margins, error)
        return GoalVerdict.MET if self.is_kept(low) else GoalVerdict.OPEN if self.is_kept(high) else GoalVerdict.MISSED


def judge_all(goals: Sequence[Goal], runs: Sequence[Observed], error: float, least: int) -> GoalVerdict:
    """What runs say of all objectives together: MET needs each of them, and `least` runs."""
    verdicts = {goal.judge([run.margins[place] for run in runs], error) for place, goal in enumerate(goals)}
    if GoalVerdict.MISSED in verdicts:
        return GoalVerdict.MISSED
    return GoalVerdict.OPEN if GoalVerdict.OPEN in verdicts or len(runs) < least else GoalVerdict.MET


def parse_goal(text: str, option: str = "--slo") -> Goal:
    """Read an objective.

    Args:
        text: What it says.
        option: Where it stands.

    Raises:
        ScenarioError: It is none.
    """
    match = _GOAL.fullmatch(text.strip())
    if match is None:
        raise ScenarioError(
            f"{option}: expected [p50|p95|p99|share] FIGURE < VALUE [@ P% of runs] [of DEPLOYMENT], {GOAL_FORM}, found {text!r}"
        )
    try:
        limit = float(match["limit"]) / (100 if match["percent"] else 1)
        share = None if match["share"] is None else float(match["share"]) / 100
    except ValueError:
        raise ScenarioError(f"{option}: expected a number as limit, {GOAL_FORM}, found {text!r}") from None
    if share is not None and not match["runs"]:
        raise ScenarioError(
            f"{option}: expected '@ {match['share']}% of runs' (shares of runs are counted, of times not), found {text!r}"
        )
    if share is not None and not 0 < share < 1:
        raise ScenarioError(
            f"{option}: expected a share above 0% and below 100%, as no number of runs shows all, found {text!r}"
        )
    reading = _reading(option, match["before"] or "", match["figure"], match["deployment"])
    if match["percent"] and reading.before != SHARE:
        raise ScenarioError(f"{option}: expected % for a share, as in 'share {match['figure']} < 1%', found {text!r}")
    return Goal(text.strip(), reading, match["sign"], limit, share)


def parse_reading(option: str, text: str) -> Reading:
    """Read `[p50|p95|p99|share] FIGURE [of DEPLOYMENT]`.

    Raises:
        ScenarioError: There is no such figure.
    """
    words, _, deployment = text.strip().partition(" of ")
    *before, name = words.split() or [""]
    return _reading(option, " ".join(before), name, deployment.strip() or None)


def _reading(option: str, before: str, name: str, deployment: str | None) -> Reading:
    figure = FIGURES.get(name)
    if figure is None:
        raise ScenarioError(f"{option}: expected a figure: {', '.join(FIGURES)}, found {name!r}")
    allowed = {FigureKind.TIMES: tuple(PERCENTILES), FigureKind.COUNT: ("", SHARE), FigureKind.AMOUNT: ("",)}[figure.kind]
    if before not in allowed:
        forms = " or ".join(f"{each} {name}".strip() for each in allowed)
        raise ScenarioError(f"{option}: expected {forms}, found '{before} {name}'".replace("' ", "'"))
    return Reading(figure, before, deployment)


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

    def value(self, outcome: CellOutcome) -> float:
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
        reading = parse_reading("--maximize", maximize)
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
        reading = parse_reading("--minimize", name)
    except ScenarioError:
        if name.split()[-1:] and name.split(" of ")[0].split()[-1] in FIGURES:
            raise
        allowed = ", ".join((COST, *KNOWN, *FIGURES))
        raise ScenarioError(f"--minimize: expected one of {allowed}, found {name!r}") from None
    return Aim(name=str(reading), unit=reading.figure.unit, reading=reading, grows=reading.figure.grows)


def check_names(readings: Mapping[str, Reading], names: Sequence[str], having: Mapping[str, Sequence[str]]) -> None:
    """Raise `ScenarioError` if one is of a deployment that there is not, or that has no such figure.

    Args:
        readings: By the option.
        names: Of all deployments.
        having: Who has what only some have, by the keys of `NEEDED`.
    """
    for option, reading in readings.items():
        needed = reading.figure.needs
        if needed is not None and (reading.deployment or next(iter(having[needed]), None)) not in having[needed]:
            has = f"of {', '.join(having[needed])}" if having[needed] else f"for a deployment with {NEEDED[needed]}"
            raise ScenarioError(f"{option}: expected {reading.figure.name} {has}, found {str(reading)!r}")
        if reading.deployment is not None and reading.deployment not in names:
            raise ScenarioError(f"{option}: expected a deployment: {', '.join(names)}, found {reading.deployment!r}")
