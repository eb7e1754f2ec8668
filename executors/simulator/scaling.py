"""Autoscaling in the simulated world: what is reported when, and the controller's half that asks the core."""

from typing import Protocol

import attrs

from executors.simulator.deployment import DeploymentWorld
from rankcore import DeploymentState
from rankcore.autoscaling import (
    AutoscalerState,
    AutoscalingNote,
    AutoscalingSpec,
    HandleReport,
    Metrics,
    Policy,
    ReplicaReport,
    Report,
    autoscale,
)
from rankcore.autoscaling.invariants import check_decision
from rankcore.invariants import Violation

ROUTER = "router"
"""The simulator has one handle for each deployment."""


class Target(Protocol):
    """Whoever asks for another target, as a user would."""

    def look_at_load(self, name: str) -> None:
        """It is time to decide on a deployment's target."""

    def look_at_queue(self, name: str) -> None:
        """A request waits, and none did before."""


@attrs.define(eq=False)
class Clock:
    """Every `metrics_interval_s` router and replicas report, and at once when a request waits for the first replica (A5)."""

    port: DeploymentWorld
    spec: AutoscalingSpec
    target: Target

    def begin(self) -> None:
        """From now on."""
        self.port.requests.when_one_waits = self._one_waits
        self._tick()

    def _tick(self) -> None:
        self.port.loop.after(self.spec.metrics_interval_s, self._tick)
        self.target.look_at_load(self.port.name)

    def _one_waits(self) -> None:
        self.port.loop.after(0.0, self.target.look_at_queue, self.port.name)


@attrs.define(eq=False)
class Autoscaler:
    """What a controller keeps for one deployment; gone with the controller, and with it all that was heard.

    Attributes:
        policy: What a load calls for.
        notes: (at, note), the decision log.
    """

    state: AutoscalerState
    policy: Policy
    notes: list[tuple[float, AutoscalingNote]] = attrs.Factory(list)

    def decide(self, port: DeploymentWorld, deployment: DeploymentState, at: float) -> "Verdict":
        """What the core says to the newest reports."""
        metrics = Metrics.of(deployment, reports_of(port, at))
        decision = autoscale(self.state, metrics, at, self.policy)
        violations = check_decision(self.state, metrics, decision)
        self.state = decision.state
        self.notes += [(at, note) for note in decision.notes]
        return Verdict(decision.target, decision.notes[-1].because if decision.notes else "", tuple(violations))


@attrs.frozen
class Verdict:
    """A decision, as a controller needs it.

    Attributes:
        target: None: it stays.
    """

    target: int | None
    because: str
    violations: tuple[Violation, ...]


def reports_of(port: DeploymentWorld, at: float) -> tuple[Report, ...]:
    """What reaches a controller now: of the router, and of every replica that is well and not cut off."""
    requests = port.requests
    heard = [
        ReplicaReport(replica_id, requests.in_flight_of(replica_id), at)
        for replica_id, process in port.processes.items()
        if process.node is not None and process.node.reachable and not process.hangs
    ]
    return (HandleReport(ROUTER, requests.waiting, at), *heard)
