"""A run of the simulator that goes on from a moment of a journal."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from executors.simulator.from_journal.history import History
from executors.simulator.from_journal.scenario import ANY_NUMBER, not_measured, scenario_of
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.questions.settings import Setting
from executors.simulator.run import Run
from rankcore.values import NodeId

NO_CALLS: Mapping[str, Arrivals] = MappingProxyType({})


@attrs.frozen
class GoingOn:
    """A run that stands at the moment.

    Attributes:
        assumed: What the journal does not say, and what was taken for it, in words.
    """

    run: Run
    assumed: tuple[str, ...]


def go_on(
    path: Path,
    history: History,
    at: float,
    seed: int = 0,
    settings: tuple[Setting, ...] = (),
    *,
    room: Mapping[NodeId, int] | None = None,
    arrivals: Mapping[str, Arrivals] = NO_CALLS,
) -> GoingOn:
    """Put the recorded replicas into a simulated world, and the recorded states into a simulated controller.

    Durations are drawn from those that the journal has; what users and faults did later in the journal, they do again.

    Args:
        path, history, at: The journal, what it says, and the moment.
        seed: Of what is drawn from then on.
        settings: What is to be otherwise.
        room: How many replicas each node holds in all, where somebody knows; else as many as anybody wants.
        arrivals: Calls from that moment on, by deployment: a journal has none.

    Raises:
        ScenarioError: A setting does not fit, or no node is known yet.
    """
    scenario = scenario_of(path, history, at, seed, settings, room)
    timelines = {name: history.timelines[name] for name in history.states}
    run = Run.resumed(scenario, history.states.values(), at, timelines, arrivals)
    given = {setting.key.rpartition(".")[2] for setting in settings}
    assumed = []
    if any(group.gpus == ANY_NUMBER for group in scenario.nodes):
        assumed.append("nodes have room for any number of replicas")
    for index, deployment in enumerate(scenario.deployments):
        name = deployment.spec.name
        for field in not_measured(history).get(name, ()):
            if field not in given:
                value = getattr(deployment, field).mean
                assumed.append(f"{name}: {field} is {value:g} s (--set 'deployments[{index}].{field}=...' says better)")
    for what, count in sorted(history.aftermath.left_out.items()):
        assumed.append(f"{count} {what} later in the journal are left out")
    return GoingOn(run, tuple(assumed))
