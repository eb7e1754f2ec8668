"""Objectives as commands take them: `--slo` and `--slo-window`, or else those of the scenario."""

from collections.abc import Sequence

from executors.simulator.questions.goals import check_readings, objectives
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.objectives import WINDOW_LEAST_S, Goal
from executors.simulator.times import parse_seconds


def goals_of(slo: Sequence[str], scenario: Scenario) -> tuple[Goal, ...]:
    """Those of the command line or, where there are none, those of the scenario.

    Raises:
        ScenarioError: One is none, or is of a figure that the scenario does not have.
    """
    if slo and scenario.has_residency:
        raise ScenarioError("--slo: expected deployments without residency, found some with it")
    goals = objectives(slo, scenario.slo)
    check_readings(scenario, [goal.reading for goal in goals])
    return goals


def window_s_of(text: str | None, scenario: Scenario) -> float:
    """How wide a window is.

    Raises:
        ScenarioError: The command line says no such time.
    """
    if text is None:
        return scenario.slo_window_s
    try:
        found = parse_seconds(text)
    except ValueError as error:
        raise ScenarioError(f"--slo-window: {error}") from None
    if found < WINDOW_LEAST_S:
        raise ScenarioError(f"--slo-window: expected {WINDOW_LEAST_S:g} s or more, found {text!r}")
    return found
