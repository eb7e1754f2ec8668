"""Whether objectives held in one run: of the whole run, or in so many of its windows, and in which they did not."""

import math
from collections.abc import Sequence
from typing import Any

import attrs

from executors.simulator.questions.goals import shown
from executors.simulator.record.flat_figures import Numbers, flatten, number
from executors.simulator.record.windows import Windows, WindowsHeld
from executors.simulator.run import RunResult
from executors.simulator.scenario.objectives import Goal
from executors.simulator.times import moment

MISSED_SHOWN = 4
MISSED_MAX = 1_000


@attrs.frozen(kw_only=True)
class ObjectiveHeld:
    """What a run says of an objective and one of the deployments that it is of.

    Attributes:
        value: Of its figure; infinite: never. Of one for windows: the share of windows in which it held.
        held: Whether that is within its limit.
        windows: None: it is one for the whole run.
    """

    goal: Goal
    deployment: str
    value: float
    held: bool
    windows: WindowsHeld | None

    @property
    def verdict(self) -> str:
        """In words: `held: 1.20 s`, or `missed: 38 of 40 windows of 300 s`, and where the others are."""
        return f"{'held' if self.held else 'missed'}: {self._found}"

    @property
    def _found(self) -> str:
        if self.windows is None:
            return shown(self.goal, self.value)
        told = self.windows
        if not told.count:
            return "no window has requests"
        windows = f"windows of {number(told.width_s)} s"
        parts = [f"it held in {told.held:,} of {told.count:,} {windows} ({100 * told.share:.4g} %)"]
        if told.missed:
            first = ", ".join(moment(each.since) for each in told.missed[:MISSED_SHOWN])
            more = len(told.missed) - MISSED_SHOWN
            parts.append(f"missed from {first}" + (f" and {more:,} more" if more > 0 else ""))
        if told.without_requests:
            parts.append(
                f"{told.without_requests:,} without requests {'counts' if told.without_requests == 1 else 'count'} as none"
            )
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        told = self.windows
        windows = None
        if told is not None:
            windows = {
                "width_s": told.width_s,
                "count": told.count,
                "held": told.held,
                "share": told.share,
                "without_requests": told.without_requests,
                "missed": [attrs.asdict(each) for each in told.missed[:MISSED_MAX]],
                "missed_left_out": max(0, len(told.missed) - MISSED_MAX),
            }
        value = None if told is not None or math.isinf(self.value) else self.value
        return {
            "text": self.goal.text,
            "deployment": self.deployment,
            "held": self.held,
            "value": value,
            "never": told is None and math.isinf(self.value),
            "windows": windows,
        }


@attrs.frozen
class _RunFigures:
    figures: dict[str, Numbers]


def held_objectives(goals: Sequence[Goal], window_s: float, result: RunResult) -> tuple[ObjectiveHeld, ...]:
    """Of each objective, and of each deployment that it is of."""
    if not goals:
        return ()
    outcome = _RunFigures({each.name: flatten(each) for each in result.deployments})
    windows: dict[str, Windows] = {}
    found = []
    for goal in goals:
        for name in goal.reading.names(outcome):
            told = None
            if goal.in_windows:
                if name not in windows:
                    windows[name] = Windows(result.felt[name], window_s, result.ended_at)
                told = windows[name].held(goal)
            value = goal.reading.of(outcome.figures[name]) if told is None else told.share
            held = goal.is_kept(goal.compared[0] * (goal.bar - value))
            found.append(ObjectiveHeld(goal=goal, deployment=name, value=value, held=held, windows=told))
    return tuple(found)


def objective_rows(held: Sequence[ObjectiveHeld]) -> tuple[tuple[str, str], ...]:
    """Text and verdict of each; with the deployment, where one is of several."""
    texts = [each.goal.text for each in held]
    return tuple(
        (each.goal.text if texts.count(each.goal.text) == 1 else f"{each.goal.text} ({each.deployment})", each.verdict)
        for each in held
    )
