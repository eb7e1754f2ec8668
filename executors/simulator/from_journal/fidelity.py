"""Is a simulated run like the recorded one that it is made of?

A recorded run is calibrated, and simulated: with the same calls, faults and changes at the same times, and with each replica
taking as long for each thing as it took then, so that what is left to differ is what the simulator gets wrong: who got a call,
how long it waited, what the core was told in which order. Beside it stands how two recordings of one run differ from each
other: nobody is to ask more of a simulation than a run has of itself.

An error of a percentile is relative to the recorded one; where both are below `SMALL_S`, a few messages' ways, there is none to
speak of, and it is 0. Durations that were not recorded are drawn, or all of them where that is asked for, as in a scenario that
is to say what another run will be like: `runs` seeds say how much that matters.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import count

import attrs

from executors.checking import Checking
from executors.simulator.fields import FieldProblem
from executors.simulator.from_journal.calibration import DONE, RecordedWorld, scenario_parts
from executors.simulator.from_journal.rank_history import (
    HistoryComparison,
    HistoryRecorder,
    RankChange,
    compare_histories,
)
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.questions.comparison import PromiseBroken
from executors.simulator.questions.statistics import Estimate, estimate
from executors.simulator.record.percentiles import SHARES, Percentiles, percentiles_of_all
from executors.simulator.run import Run
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.hardware import DEFAULT_LATENCY
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.structuring import structure_scenario

SMALL_S = 0.01
FIGURES = ("wait_s", "e2e_s")
Felt = dict[str, dict[str, Percentiles]]
"""Percentiles by deployment and figure."""


@attrs.frozen(kw_only=True)
class FigureError:
    """One percentile of one figure.

    Attributes:
        recorded: In seconds; None: never, or nobody came.
        found: The same of the other runs, and its interval.
        error: How far the mean of these is off, as a share of the recorded one; None: one of them is never.
    """

    deployment: str
    figure: str
    share: str
    recorded: float | None
    found: Estimate
    error: float | None


@attrs.frozen(kw_only=True)
class Fidelity:
    """A recorded run beside others that are to be like it.

    Attributes:
        history: Of the first of the others.
        figures: Of all of them.
    """

    history: HistoryComparison
    figures: tuple[FigureError, ...]

    def beyond(self, tolerance: float) -> tuple[str, ...]:
        """What is not as it should be, in words: the history, and errors above the tolerance, or half of it at p50."""
        found = [] if self.history.difference is None else [f"the rank histories differ: {self.history.difference}"]
        for each in self.figures:
            most = tolerance / 2 if each.share == "p50" else tolerance
            what = f"{each.share} {each.figure} of {each.deployment}"
            if each.error is None:
                found.append(f"{what} is known of one of them alone")
            elif each.error > most:
                found.append(f"{what} is off by {each.error:.1%}, more than {most:.1%}")
        return tuple(found)


def scenario_of_recorded(world: RecordedWorld) -> Scenario:
    """The scenario of a recording, whose calls are given to the run themselves.

    Raises:
        ScenarioError: It has what no scenario can have.
    """
    whole, deployments, _ = scenario_parts(world)
    try:
        return structure_scenario({**whole, "deployments": list(deployments.values())}, by_id=True)
    except FieldProblem as problem:
        raise ScenarioError(f"{world.path}: {path_text(problem.keys)}: {problem}") from None


def simulated(world: RecordedWorld, seed: int, *, drawn: bool = False) -> tuple[list[RankChange], Felt]:
    """One run of it: its rank history, and what its calls felt.

    Args:
        drawn: Whether durations are drawn, as in the scenario that `calibrate` writes, and not those that each replica had.

    Raises:
        ScenarioError: It has what no scenario can have.
        PromiseBroken: The core broke a promise.
    """
    scenario = attrs.evolve(scenario_of_recorded(world), seed=seed)
    names = [each.spec.name for each in scenario.deployments]
    arrivals = {name: _arrivals(world, name) for name in names}
    history = HistoryRecorder()
    run = Run(scenario, arrivals, history, Checking.END, None if drawn else world.recorded())
    failure = run.go().failure
    if failure is not None:
        raise PromiseBroken(f"{world.path} with seed {seed}: {failure}")
    felt: Felt = {}
    for name, port in run.world.deployments.items():
        counts = port.requests.counts
        never = counts.failed + counts.lost + counts.expired
        felt[name] = _felt(counts.waits_s, counts.latencies_s, never)
    return history.changes(), felt


def recorded_felt(world: RecordedWorld) -> Felt:
    """What the calls of a recording felt."""
    found: Felt = {}
    for name in sorted(world.history.states):
        calls = [call for call in world.calls if call.deployment == name]
        done = [call for call in calls if call.outcome == DONE]
        waits = [(call.at if call.sent_at is None else call.sent_at) - call.at for call in done]
        found[name] = _felt(waits, [call.ended_at - call.at for call in done], len(calls) - len(done))
    return found


def compare_with_simulated(
    world: RecordedWorld, runs: int, progress: Callable[[int], object] | None = None, *, drawn: bool = False
) -> Fidelity:
    """A recording beside simulations of it, on the seeds from 0 on."""
    histories, felt = [], []
    for seed, _ in zip(count(), range(runs), strict=False):
        changes, each = simulated(world, seed, drawn=drawn)
        histories.append(changes)
        felt.append(each)
        if progress is not None:
            progress(seed + 1)
    return _compare(world, histories, felt)


def compare_with_recorded(world: RecordedWorld, other: RecordedWorld) -> Fidelity:
    """A recording beside another one of the same run: how much a run differs from itself."""
    return _compare(world, [other.changes], [recorded_felt(other)])


def _compare(world: RecordedWorld, histories: Sequence[Sequence[RankChange]], felt: Sequence[Felt]) -> Fidelity:
    near_s = 2 * (world.clock_error_s + DEFAULT_LATENCY.value) + SMALL_S
    compared = [compare_histories(world.changes, each, near_s) for each in histories]
    history = next((each for each in compared if each.difference is not None), compared[0])
    return Fidelity(history=history, figures=tuple(_errors(recorded_felt(world), felt)))


def _errors(recorded: Felt, felt: Sequence[Felt]) -> list[FigureError]:
    found = []
    for name, figures in recorded.items():
        for figure in FIGURES:
            for share in SHARES:
                mine: float | None = getattr(figures[figure], share)
                theirs = [getattr(each[name][figure], share) for each in felt if name in each]
                known = [each for each in theirs if each is not None]
                mean = estimate(known if len(known) == len(theirs) else [])
                found.append(
                    FigureError(
                        deployment=name,
                        figure=figure,
                        share=share,
                        recorded=mine,
                        found=mean,
                        error=_error(mine, mean.mean),
                    )
                )
    return found


def _error(recorded: float | None, found: float | None) -> float | None:
    if recorded is None or found is None:
        return 0.0 if recorded is found else None
    if max(recorded, found) < SMALL_S:
        return 0.0
    return abs(found - recorded) / max(recorded, SMALL_S)


def _arrivals(world: RecordedWorld, deployment: str) -> Arrivals:
    at_s, service_s = world.arrivals(deployment)
    return Arrivals(array("d", at_s), array("d", service_s))


def _felt(waits_s: Sequence[float], latencies_s: Sequence[float], never: int) -> dict[str, Percentiles]:
    return {"wait_s": percentiles_of_all(waits_s, (), never), "e2e_s": percentiles_of_all(latencies_s, (), never)}
