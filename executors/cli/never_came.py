"""What a run has ended too early for: said, since the answer is one without it."""

from executors.cli.problems import warn
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.run import RunResult
from executors.simulator.scenario import Scenario
from executors.simulator.scenario.moments import too_late


def warn_of_what_never_came(scenario: Scenario, result: RunResult | ResidencyResult) -> None:
    """A line for each fault and each change; none where the run broke off."""
    if result.failure is None:
        lists = {"faults": scenario.faults, "changes": scenario.changes}
        for text in too_late(lists, result.busiest_minute_at, result.ended_at):
            warn(text)
