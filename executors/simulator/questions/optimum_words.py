"""What a search came to, in words that can be pasted into a purchase request, and as JSON."""

import math
import shlex
from collections.abc import Sequence
from typing import Any

from executors.simulator.questions.goal_search import GoalVerdict
from executors.simulator.questions.goals import KNOWN, RATE, condition, shown, told
from executors.simulator.questions.optimizing import ERROR, GoalQuestion, Measured, Optimum, Tried
from executors.simulator.questions.settings import Setting
from executors.simulator.record.flat_figures import number
from executors.simulator.scenario.objectives import Goal, ShareOf

CONFIDENCE = f"{100 * (1 - ERROR):.0f} %"
VERDICTS = {GoalVerdict.MET: "met", GoalVerdict.MISSED: "missed", GoalVerdict.OPEN: "~"}
"""How they stand in tables; ~ is not decided."""


def in_a_sentence(found: Optimum, gpu_price: float | None) -> str:
    """The answer."""
    question, best = found.question, found.best
    goals = listed([goal.text for goal in question.goals])
    of = f"{len(found.tried):,} of {question.cells:,} combinations were run"
    if best is None:
        gone = f"the budget of {question.budget:,} runs is gone; " if found.out_of_budget else ""
        return f"No setting is shown to meet {goals}: {gone}{of}. {_nearest(found)}"
    aim = question.aim
    what = "the highest" if aim.sign < 0 else "the least"
    parts = [
        f"{words_of(best.settings)} is the setting with {what} {aim.name} ({aim.shown(best.cost)}) that meets {goals}: "
        + listed([_told(goal, measured, best.runs) for goal, measured in zip(question.goals, best.measured, strict=True)])
        + f", over all requests of {plural(best.runs, 'run')}. {_bought(found, best, gpu_price)}"
    ]
    if found.below is not None:
        parts.append(_neighbour(question, found.below))
    if found.not_monotone:
        parts.append("Beware: it is not monotone, a setting beyond it misses an objective again.")
    if found.out_of_budget:
        parts.append(f"The budget of {question.budget:,} runs is gone, so that a better setting may have been missed ({of}).")
    return " ".join(parts)


def words_of(settings: Sequence[Setting]) -> str:
    """`target_replicas=8, compaction=immediate`."""
    return ", ".join(map(str, settings))


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def interval(goal: Goal, measured: Measured) -> str:
    """The figure and where the true mean is; or only the figure, where there are too few runs."""
    value = shown(goal, measured.value)
    if measured.low is None or measured.high is None or measured.low == measured.high:
        return value
    return f"{value} ({shown(goal, measured.low).partition(' ')[0]} to {shown(goal, measured.high).partition(' ')[0]})"


def simulate_command(question: GoalQuestion, tried: Tried) -> str:
    """The command that makes the first run of a cell."""
    settings = [*question.source.settings, *tried.settings]
    options = [word for setting in settings for word in ("--set", str(setting))]
    return shlex.join(["rankcore", "simulate", question.source.name, *options, "--seed", str(question.seed)])


def as_json(found: Optimum, gpu_price: float | None, rerun: str) -> dict[str, Any]:
    """Everything, as plain data."""
    question = found.question
    return {
        "rerun": rerun,
        "sentence": in_a_sentence(found, gpu_price),
        "found": found.best is not None and not found.out_of_budget,
        "answer": None if found.best is None else {**_as_json(question, found.best), "bought": _static(question, found.best)},
        "aim": {"name": question.aim.name, "unit": question.aim.unit, "direction": "min" if question.aim.sign > 0 else "max"},
        "slo": [goal.text for goal in question.goals],
        "slo_window_s": question.window_s if any(goal.in_windows for goal in question.goals) else None,
        "confidence": 1 - ERROR,
        "bisected": None if question.axis is None else question.variations[question.axis][0].key,
        "not_monotone": found.not_monotone,
        "out_of_budget": found.out_of_budget,
        "first_seed": question.seed,
        "runs": found.runs,
        "combinations": question.cells,
        "tried": [_as_json(question, each) for each in found.tried],
    }


def _as_json(question: GoalQuestion, tried: Tried) -> dict[str, Any]:
    return {
        "settings": {setting.key: setting.text for setting in tried.settings},
        "runs": tried.runs,
        "verdict": "undecided" if tried.verdict is GoalVerdict.OPEN else str(tried.verdict),
        "aim": _finite(tried.cost),
        "gpu_hours": tried.gpu_hours,
        "slo": [
            {
                "text": goal.text,
                "value": _finite(measured.value),
                "low": measured.low,
                "high": measured.high,
                "held_in_runs": measured.kept,
            }
            for goal, measured in zip(question.goals, tried.measured, strict=True)
        ],
        "simulate": simulate_command(question, tried),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def plural(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _told(goal: Goal, measured: Measured, runs: int) -> str:
    if goal.share_of is ShareOf.RUNS:
        return f"{condition(goal)} in {measured.kept} of {plural(runs, 'run')}"
    text, (better, _) = told(goal, measured.value), goal.compared
    bound, words = (measured.high, "at most") if better > 0 else (measured.low, "at least")
    if bound is None or bound == measured.value:
        return text
    return f"{text} ({words} {shown(goal, bound)} with {CONFIDENCE} confidence)"


def _static(question: GoalQuestion, tried: Tried) -> dict[str, float]:
    scenario = question.source_of(tried.cell).scenario()
    return {name: known.of(scenario) for name, known in KNOWN.items()}


def _bought(found: Optimum, best: Tried, gpu_price: float | None) -> str:
    known = _static(found.question, best)
    gpus = known["gpus"]
    text = f"It takes {plural(int(known['replicas']), 'replica')} on {plural(int(gpus), 'GPU')}"
    text += f", {number(best.gpu_hours)} GPU-hours a run"
    if gpu_price is not None:
        text += f"; at {number(gpu_price)} USD a GPU-hour {number(gpus * gpu_price)} USD per hour"
    return f"{text}."


def _neighbour(question: GoalQuestion, below: Tried) -> str:
    assert question.axis is not None, "who has neighbours is on an axis"
    what = "misses them" if below.verdict is GoalVerdict.MISSED else "is not shown to meet them"
    rather = "more" if question.aim.name == RATE else "less"
    values = listed([told(goal, each.value) for goal, each in zip(question.goals, below.measured, strict=True)])
    return f"One step {rather}, {below.settings[question.axis]}, {what}: {values}."


def _nearest(found: Optimum) -> str:
    if not found.tried:
        return "Nothing was run."
    near = max(
        found.tried, key=lambda each: (each.verdict is not GoalVerdict.MISSED, sum(m.kept for m in each.measured) / each.runs)
    )
    values = [f"{goal.text}: {interval(goal, m)}" for goal, m in zip(found.question.goals, near.measured, strict=True)]
    return f"Nearest is {words_of(near.settings)}: {listed(values)}."
