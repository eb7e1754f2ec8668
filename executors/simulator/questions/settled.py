"""A deployment as it is once it has come up, before anything has happened to it."""

from typing import Any

import attrs

from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario.model import Scenario
from rankcore import DeploymentState
from rankcore.values import DeploymentStatus

PATIENCE_S = 6 * 3600.0
"""A deployment that is not healthy by then, without any fault, never will be."""

QUIET: dict[str, Any] = {"faults": (), "fault_rates": (), "fault_trace": None, "changes": (), "duration_s": PATIENCE_S}


class NeverHealthy(ValueError):
    """A deployment does not come up in this world; the text says how far it gets."""


def settled_state(scenario: Scenario, name: str) -> DeploymentState:
    """Run a scenario without its faults, changes and requests until a deployment is healthy for the first time.

    Raises:
        NeverHealthy: It never is, as when the nodes have no room for it.
    """
    quiet = attrs.evolve(scenario, **QUIET)
    run = Run(quiet, {each.spec.name: Arrivals() for each in quiet.deployments})
    run.until(0.0)
    while True:
        state = run.controller.drivers[name].state
        if state.status is DeploymentStatus.HEALTHY:
            return state
        next_at = run.world.loop.next_at
        if next_at is None or next_at > PATIENCE_S:
            break
        run.until(next_at)
    ready = sum(1 for replica in state.replicas.values() if replica.state in ("RUNNING", "RECONFIGURING"))
    raise NeverHealthy(
        f"deployment {name} is {state.status} {PATIENCE_S / 3600:g} h after it was deployed, without any fault: "
        f"{ready} of {state.world_size} replicas run"
    )
