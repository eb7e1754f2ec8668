"""Objectives: the grammar of `--slo` and `slo:`, and the figures that one may name.

    [p50|p95|p99|share] FIGURE < VALUE [@ P%] [of DEPLOYMENT]

Without `@` an objective is one for the figure of the whole run; of several runs their mean counts. With `@ P%` time is cut into
windows of equal width from the start of the run on, and it has to hold in so many of them: the figure is that of the requests
that *came* in a window, whenever and however they ended. A window without requests says nothing, good or bad, and is not among
them. With `@ P% of runs` each run holds it or does not, and so many have to.

Why by arrival: a jam is then told of the time in which somebody came and had to wait, and who never had an answer is missed in
the window in which it was asked for, and not in none.
"""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Protocol

import attrs

from executors.simulator.fields import FieldProblem

Numbers = Mapping[str, float | None]
"""Figures of a deployment by key path, as `record/flat_figures.py` has them."""
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
        by_request: Whether it is one of requests alone, and so also of those that came in a window.
    """

    name: str
    kind: FigureKind
    keys: tuple[str, ...]
    unit: str = ""
    grows: bool = False
    by_request: bool = False

    def of(self, before: str, found: Numbers) -> float:
        """Its value in a run or window; of a time that most requests never had: infinite."""
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
        *(Figure(name, FigureKind.TIMES, (f"requests.{name}",), "s", by_request=True) for name in ("latency_s", "wait_s")),
        Figure("waited_over_1_s", FigureKind.COUNT, ("requests.waited_over_1_s", *_NOT_DONE), by_request=True),
        Figure("not_done", FigureKind.COUNT, _NOT_DONE, by_request=True),
        *(
            Figure(name, FigureKind.COUNT, (f"requests.{name}",), by_request=True)
            for name in ("lost", "failed", "expired", "unfinished")
        ),
        Figure("retried", FigureKind.COUNT, ("requests.retried",)),
        Figure("gpu_hours", FigureKind.AMOUNT, ("gpu_hours",), "GPU-hours", grows=True),
        Figure("cost_usd", FigureKind.AMOUNT, (f"{COSTS}cost_usd",), "USD", grows=True),
        *(Figure(name, FigureKind.AMOUNT, (f"{COSTS}{name}",), "USD") for name in PER_MTOK),
        *(
            Figure(name, FigureKind.AMOUNT, (name,), "s")
            for name in ("longest_gap_s", "incomplete_s", "below_floor_s", "unserved_rank_s", "rank_gap_s", "update_s")
        ),
        *(
            Figure(f"{name}_s", FigureKind.TIMES, (f"{ENGINE}{name}_of_all_s",), "s", by_request=True)
            for name in ("ttft", "tpot")
        ),
        Figure("attainment", FigureKind.AMOUNT, ATTAINMENT, by_request=True),
        *(Figure(name, FigureKind.AMOUNT, (f"{ENGINE}{name}",)) for name in OF_ENGINES),
        *(Figure(name, FigureKind.AMOUNT, (name,)) for name in ("ranks_moved", "reconfigures", "replica_starts", "healthy")),
    )
}


COMPARISONS: dict[str, tuple[int, bool]] = {"<": (1, True), "<=": (1, False), ">": (-1, True), ">=": (-1, False)}
"""Of each sign: whether less is better (1) or more (-1), and whether the limit itself is a miss."""

SLO_WINDOW_S = 300.0
WINDOW_LEAST_S = 1.0
FORM = "[p50|p95|p99|share] FIGURE < VALUE [@ P%] [of DEPLOYMENT]"
SUCH_AS = "such as 'p99 latency_s < 2', 'p99 ttft_s < 2 @ 99%' or 'share not_done < 0.1% of llm'"
_OBJECTIVE = re.compile(
    r"(?:(?P<before>[a-z]\w*)\s+)?(?P<figure>[A-Za-z_]\w*)\s*(?P<sign><=|>=|<|>)\s*(?P<limit>[-+.\deE]+)\s*(?P<percent>%?)"
    r"(?:\s*@\s*(?P<share>[.\d]+)\s*%(?P<runs>\s+of\s+runs)?)?(?:\s+of\s+(?P<deployment>\S.*))?"
)


class ShareOf(StrEnum):
    """Of what an objective has to hold in a share."""

    RUNS = "runs"
    WINDOWS = "windows"


class HasFigures(Protocol):
    """What a run came to."""

    @property
    def figures(self) -> Mapping[str, Numbers]:
        """Of each deployment, by name."""


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

    def names(self, outcome: HasFigures) -> list[str]:
        """The deployments that it is of."""
        named = outcome.figures if self.deployment is None else (self.deployment,)
        needed = self.figure.needs
        return [name for name in named if needed is None or TELLING[needed] in outcome.figures[name]]

    def of(self, found: Numbers) -> float:
        """Its value for one deployment, in a run or in a window."""
        return self.figure.of(self.before, found)

    def values(self, outcome: HasFigures) -> list[float]:
        """Of each deployment that it is of."""
        return [self.of(outcome.figures[name]) for name in self.names(outcome)]


@attrs.frozen
class Goal:
    """An objective.

    Attributes:
        reading: What is looked at.
        sign: How it is compared.
        limit: With what.
        share: In how many of all runs or windows it has to hold; None: the mean of all runs has to.
        share_of: Of which of both; None: there is no share.
    """

    text: str
    reading: Reading
    sign: str
    limit: float
    share: float | None = None
    share_of: ShareOf | None = None

    @property
    def in_windows(self) -> bool:
        """Whether it is one for the windows of a run: what counts of a run is the share of them in which it held."""
        return self.share_of is ShareOf.WINDOWS

    @property
    def key(self) -> str:
        """Of the share of windows in which it held, among the figures of a deployment."""
        return f"{WINDOWS}{self.text}"

    @property
    def bar(self) -> float:
        """What a run is compared with."""
        return self.share if self.in_windows and self.share is not None else self.limit

    @property
    def compared(self) -> tuple[int, bool]:
        """How a run is: whether less is better, and whether the bar itself is a miss."""
        return COMPARISONS[">=" if self.in_windows else self.sign]

    def values(self, outcome: HasFigures) -> dict[str, float]:
        """What a run comes to in it, of each deployment: its figure, or the share of windows in which it held."""
        found = outcome.figures
        names = self.reading.names(outcome)
        if self.in_windows:
            shares = {name: found[name][self.key] for name in names}
            return {name: 1.0 if share is None else share for name, share in shares.items()}
        return {name: self.reading.of(found[name]) for name in names}

    def value(self, outcome: HasFigures) -> float:
        """The worst of a run."""
        better, _ = self.compared
        return (max if better > 0 else min)(self.values(outcome).values())

    def margin(self, outcome: HasFigures) -> float:
        """By how much a run keeps it; below 0: misses it."""
        better, _ = self.compared
        return better * (self.bar - self.value(outcome))

    def value_of(self, margin: float) -> float:
        """What the figure is, or the share of windows, at a margin."""
        better, _ = self.compared
        return self.bar - better * margin

    def is_kept(self, margin: float) -> bool:
        """Whether a margin is none too small."""
        _, is_strict = self.compared
        return margin > 0 or (margin == 0 and not is_strict)

    def holds_at(self, value: float) -> bool:
        """Whether a value of its figure is within its limit."""
        better, is_strict = COMPARISONS[self.sign]
        return better * value < better * self.limit or (value == self.limit and not is_strict)


WINDOWS = "windows."
"""What keys begin with that are shares of windows, among the figures of a deployment."""


def parse_goal(text: object) -> Goal:
    """Read an objective.

    Raises:
        FieldProblem: It is none.
    """
    match = _OBJECTIVE.fullmatch(text.strip()) if isinstance(text, str) else None
    if not isinstance(text, str) or match is None:
        raise FieldProblem((), text, f"{FORM}, {SUCH_AS}")
    try:
        limit = float(match["limit"]) / (100 if match["percent"] else 1)
        share = None if match["share"] is None else float(Decimal(match["share"]) / 100)
    except (ValueError, InvalidOperation):
        limit, share = math.inf, None
    if not math.isfinite(limit):
        raise FieldProblem((), text, f"a number as limit and as P, {SUCH_AS}")
    of = None if share is None else ShareOf.RUNS if match["runs"] else ShareOf.WINDOWS
    reading = _reading(match["before"] or "", match["figure"], match["deployment"])
    _check_share(text, share, of, reading.figure)
    if match["percent"] and reading.before != SHARE and reading.figure.keys != ATTAINMENT:
        raise FieldProblem((), text, f"% for a share, as in 'share {match['figure']} < 1%'")
    return Goal(text.strip(), reading, match["sign"], limit, share, of)


def _check_share(text: str, share: float | None, of: ShareOf | None, figure: Figure) -> None:
    if share is None:
        return
    if of is ShareOf.WINDOWS and not figure.by_request:
        known = ", ".join(each.name for each in FIGURES.values() if each.by_request)
        allowed = f"'@ P% of runs' beside {figure.name}: what windows have is of the requests that came in them, one of {known}"
        raise FieldProblem((), text, allowed)
    if of is ShareOf.WINDOWS and not 0 < share <= 1:
        raise FieldProblem((), text, "a share of the windows above 0% and up to 100%")
    if of is ShareOf.RUNS and not 0 < share < 1:
        raise FieldProblem((), text, "a share above 0% and below 100%, as no number of runs shows all")


def parse_reading(text: str) -> Reading:
    """Read `[p50|p95|p99|share] FIGURE [of DEPLOYMENT]`.

    Raises:
        FieldProblem: There is no such figure.
    """
    words, _, deployment = text.strip().partition(" of ")
    *before, name = words.split() or [""]
    return _reading(" ".join(before), name, deployment.strip() or None)


def _reading(before: str, name: str, deployment: str | None) -> Reading:
    figure = FIGURES.get(name)
    if figure is None:
        raise FieldProblem((), name, f"a figure: {', '.join(FIGURES)}")
    allowed = {FigureKind.TIMES: tuple(PERCENTILES), FigureKind.COUNT: ("", SHARE), FigureKind.AMOUNT: ("",)}[figure.kind]
    if before not in allowed:
        raise FieldProblem((), f"{before} {name}".strip(), " or ".join(f"{each} {name}".strip() for each in allowed))
    return Reading(figure, before, deployment)


def check_reading(reading: Reading, names: Sequence[str], having: Mapping[str, Sequence[str]]) -> None:
    """Raise `FieldProblem` if it is of a deployment that there is not, or that has no such figure.

    Args:
        reading: What is looked at.
        names: Of all deployments.
        having: Those with what only some have, by the keys of `NEEDED`.
    """
    if reading.deployment is not None and reading.deployment not in names:
        raise FieldProblem((), reading.deployment, f"a deployment: {', '.join(names)}")
    needed = reading.figure.needs
    if needed is not None and (reading.deployment or next(iter(having[needed]), None)) not in having[needed]:
        has = f"of {', '.join(having[needed])}" if having[needed] else f"for a deployment with {NEEDED[needed]}"
        raise FieldProblem((), str(reading), f"{reading.figure.name} {has}")
