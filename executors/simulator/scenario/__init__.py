"""Scenario files: YAML read into typed values, with errors that say where, what was found and what is allowed."""

from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.loading import load_scenario, parse_scenario
from executors.simulator.scenario.model import Scenario

__all__ = ["Scenario", "ScenarioError", "load_scenario", "parse_scenario"]
