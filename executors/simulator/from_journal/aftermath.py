"""What users and faults did after a moment of a journal, as the faults and changes of a scenario."""

from collections import Counter
from typing import Any, TypeAlias

from executors.engine.deployments import Deployed, Entry, Recovered
from executors.simulator.from_journal.specs import fields_of
from executors.simulator.scenario.model import CHANGEABLE
from rankcore import DeploymentSpec, DeploymentState, Step
from rankcore.events import (
    DeleteRequested,
    NodeChanged,
    NodeLost,
    ReplicaDied,
    ReplicaStartFailed,
    ReplicaUnhealthy,
    SpecChanged,
    StopRequested,
)
from rankcore.values import NodeId

Plain: TypeAlias = dict[str, Any]

LEFT_OUT: dict[type, str] = {
    Deployed: "deployments that were begun",
    StopRequested: "requests to stop replicas by their ids",
    ReplicaStartFailed: "starts that failed",
    ReplicaUnhealthy: "replicas found unhealthy",
}
"""What a scenario could not repeat in another course of events, or what the core makes of it need not be repeated."""


OUTAGE_MAX_S = 5.0
"""A controller with nothing to do writes nothing: that its last line is old does not say that it was away so long."""


class Aftermath:
    """Collects while the journal is read from the moment on.

    Attributes:
        faults, changes: As a scenario has them, in the order of the journal.
        left_out: What was not taken over, and how often it happened.
        last_at: When the last line before was written.
    """

    def __init__(self) -> None:
        self.faults: list[Plain] = []
        self.changes: list[Plain] = []
        self.left_out: Counter[str] = Counter()
        self.last_at = 0.0
        self._epoch = 0
        self._lost: dict[NodeId, Plain] = {}

    def look(self, entry: Entry, before: DeploymentState | None, step: Step) -> None:
        """One line, and the state that it found."""
        cause = entry.cause
        match cause:
            case Recovered():
                self._crashed(cause)
            case NodeLost():
                if cause.node_id not in self._lost:
                    self._lost[cause.node_id] = {"kind": "node_loss", "at": cause.at, "node": cause.node_id}
                    self.faults.append(self._lost[cause.node_id])
            case NodeChanged():
                lost = self._lost.pop(cause.node_id, None) if cause.capacity else None
                if lost is not None and cause.at > lost["at"]:
                    lost["back_after_s"] = cause.at - lost["at"]
            case ReplicaDied() if before is not None:
                self._died(cause, before)
            case SpecChanged() if before is not None and step.state.spec is not before.spec:
                self._changed(cause, before.spec)
            case DeleteRequested() if before is not None and step.state.status is not before.status:
                self.changes.append({"at": cause.at, "deployment": entry.deployment, "delete": True})
            case _ if type(cause) in LEFT_OUT:
                self.left_out[LEFT_OUT[type(cause)]] += 1
        self.last_at = max(self.last_at, entry.at)

    def _crashed(self, cause: Recovered) -> None:
        """Each deployment says so, and the controller crashed once."""
        if cause.epoch > self._epoch:
            self._epoch = cause.epoch
            down_s = min(max(0.001, cause.at - self.last_at), OUTAGE_MAX_S)
            self.faults.append({"kind": "controller_crash", "at": max(0.0, cause.at - down_s), "restart_after_s": down_s})

    def _died(self, cause: ReplicaDied, before: DeploymentState) -> None:
        """What died unasked does so again, whoever has its rank then; what died with its node is gone already."""
        replica = before.replicas.get(cause.replica_id)
        if replica is not None and replica.told is not None and replica.leaving is None:
            fault = {"kind": "replica_crash", "at": cause.at, "deployment": before.spec.name, "rank": replica.told.rank}
            self.faults.append(fault)

    def _changed(self, cause: SpecChanged, before: DeploymentSpec) -> None:
        was, wanted = fields_of(before, CHANGEABLE), fields_of(cause.spec, CHANGEABLE)
        fields = {key: wanted[key] for key in CHANGEABLE if wanted[key] != was[key]}
        if fields:
            change = {"at": cause.at, "deployment": cause.spec.name, **fields}
            self.changes.append({**change, "stop_first": list(cause.stop_first)} if cause.stop_first else change)
