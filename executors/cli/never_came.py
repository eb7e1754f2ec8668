"""What a run has ended too early for, and what it was extrapolated to: said, since the answer is one without it."""

from executors.cli.problems import warn
from executors.simulator.record.happenings import NOBODY_THERE
from executors.simulator.residency.run import ResidencyResult
from executors.simulator.run import RunResult
from executors.simulator.scenario import Scenario
from executors.simulator.scenario.moments import too_late
from executors.simulator.times import moment

EXTRAPOLATED_MAX = 0.05


def warn_of_what_never_came(scenario: Scenario, result: RunResult | ResidencyResult) -> None:
    """A line for each fault and each change, and each fault that hit nothing; none where the run broke off."""
    if result.failure is not None:
        return
    lists = {"faults": scenario.faults, "changes": scenario.changes}
    for text in too_late(lists, result.busiest_minute_at, result.ended_at):
        warn(text)
    for each in result.happenings if isinstance(result, RunResult) else ():
        if each.kind == "fault" and each.text.endswith(NOBODY_THERE):
            warn(f"at {moment(each.at)} in {each.deployment}, {each.text}")


def warn_of_what_was_not_measured(result: RunResult | ResidencyResult) -> None:
    """A line for each deployment whose engines ran for long in iterations that nobody has measured."""
    for figures in result.deployments if isinstance(result, RunResult) else ():
        share = figures.engine.extrapolated if figures.engine is not None else 0.0
        if share > EXTRAPOLATED_MAX:
            what = "with more sequences or prompt tokens than any point of its table has"
            warn(f"extrapolated: {figures.name} was busy for {share:.1%} of its time in iterations {what}")
