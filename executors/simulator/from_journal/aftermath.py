"""What users and faults did after a moment of a journal, as the faults and changes of a scenario."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

from executors.engine.deployments import Deployed, Entry, Recovered
from executors.simulator.from_journal.specs import fields_of
from executors.simulator.scenario.model import CHANGEABLE
from rankcore import DeploymentSpec, DeploymentState, Step
from rankcore.events import (
    DeleteRequested,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaReady,
    ReplicaStartFailed,
    ReplicaUnhealthy,
    ReplicaUnready,
    RetryRequested,
    SpecChanged,
    StopRequested,
)
from rankcore.values import NodeId, ReplicaId

Plain: TypeAlias = dict[str, Any]

LEFT_OUT: dict[type, str] = {
    Deployed: "deployments that were begun",
    StopRequested: "requests to stop replicas by their ids",
    ReplaceRequested: "requests to replace replicas by their ids",
    RetryRequested: "requests to try again at once",
    ReplicaStartFailed: "starts that failed",
    ReplicaUnhealthy: "replicas found unhealthy",
}
"""What a scenario could not repeat in another course of events, or what the core makes of it need not be repeated."""


SHORTEST_S = 0.001
"""What a scenario has no 0 for."""
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
        self._lost: dict[NodeId, tuple[float, Plain]] = {}
        self._cordoned: dict[NodeId, Plain] = {}
        self._noticed: dict[NodeId, Plain] = {}  # those that are to be lost, whoever wants what
        self._unready: dict[ReplicaId, Plain] = {}

    def begin(self, states: Iterable[DeploymentState], at: float) -> None:
        """The moment has come: what is cordoned, drained or unready by then goes on so."""
        for state in states:
            for replica_id, replica in state.replicas.items():
                if replica.unready is not None:
                    self._unready_from(at, state.spec.name, replica_id, {"replica_id": replica_id})
            for node_id, node in state.nodes.items():
                if node.drain is not None:
                    self._cordon(
                        NodeDrainRequested(node_id=node_id, deadline_at=node.drain.deadline_at, final=node.drain.final, at=at)
                    )
                elif node.cordoned:
                    self._cordon(NodeCordoned(node_id=node_id, at=at))

    def look(self, entry: Entry, before: DeploymentState | None, step: Step) -> None:
        """One line, and the state that it found."""
        cause = entry.cause
        match cause:
            case Recovered():
                self._crashed(cause)
            case NodeLost():
                self._lose(cause)
            case NodeChanged():
                lost_at, lost = self._lost.pop(cause.node_id, (0.0, None)) if cause.capacity else (0.0, None)
                if lost is not None and cause.at > lost_at:
                    lost["back_after_s"] = cause.at - lost_at
            case NodeCordoned() | NodeDrainRequested():
                self._cordon(cause)
            case NodeUncordoned():
                ended = self._cordoned.pop(cause.node_id, None)
                if ended is not None and cause.at > ended["at"]:
                    ended["for_s"] = cause.at - ended["at"]
            case ReplicaDied() if before is not None:
                self._died(cause, before)
            case ReplicaUnready() | ReplicaReady() if before is not None:
                self._served(cause, before, step.state)
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
            down_s = min(max(SHORTEST_S, cause.at - self.last_at), OUTAGE_MAX_S)
            self.faults.append({"kind": "controller_crash", "at": max(0.0, cause.at - down_s), "restart_after_s": down_s})

    def _lose(self, cause: NodeLost) -> None:
        """Each deployment is told. What there was a final notice of was a preemption, of which this is the end."""
        if cause.node_id in self._lost:
            return
        fault = self._noticed.pop(cause.node_id, None)
        if fault is not None:
            fault["notice_s"] = max(SHORTEST_S, cause.at - fault["at"])
        else:
            fault = {"kind": "node_loss", "at": cause.at, "node": cause.node_id}
            self.faults.append(fault)
        self._lost[cause.node_id] = cause.at, fault

    def _notice(self, cause: NodeDrainRequested, deadline_at: float) -> None:
        """A preemption: until the node is lost, it is thought to be lost at the deadline."""
        fault = self._noticed.get(cause.node_id)
        if fault is None:
            fault = self._noticed[cause.node_id] = {"kind": "node_preemption", "at": cause.at, "node": cause.node_id}
            self.faults.append(fault)
        fault["notice_s"] = max(SHORTEST_S, deadline_at - fault["at"])

    def _cordon(self, cause: NodeCordoned | NodeDrainRequested) -> None:
        """Each deployment is told, and each controller again; only another deadline is news."""
        if isinstance(cause, NodeDrainRequested) and cause.final and cause.deadline_at is not None:
            return self._notice(cause, cause.deadline_at)
        fault: Plain = {"kind": "node_cordon", "at": cause.at, "node": cause.node_id}
        if isinstance(cause, NodeDrainRequested):
            left_s = cause.deadline_at - cause.at if cause.deadline_at is not None else None
            fault |= {"kind": "node_drain"} | ({"deadline_s": max(SHORTEST_S, left_s)} if left_s is not None else {})
        known = self._cordoned.get(cause.node_id)
        if known is None or (fault["kind"] == "node_drain" and _until(fault) != _until(known)):
            self._cordoned[cause.node_id] = fault
            self.faults.append(fault)

    def _died(self, cause: ReplicaDied, before: DeploymentState) -> None:
        """What died unasked does so again, whoever has its rank then; what died with its node is gone already."""
        replica = before.replicas.get(cause.replica_id)
        if replica is not None and replica.told is not None and replica.leaving is None:
            fault = {"kind": "replica_crash", "at": cause.at, "deployment": before.spec.name, "rank": replica.told.rank}
            self.faults.append(fault)

    def _served(self, cause: ReplicaUnready | ReplicaReady, before: DeploymentState, after: DeploymentState) -> None:
        """What took no requests for a while does so again, whoever has its rank then."""
        was, now = (state.replicas.get(cause.replica_id) for state in (before, after))
        if was is None or now is None or now.told is None or (was.unready is None) is (now.unready is None):
            return
        if now.unready is not None:
            self._unready_from(cause.at, after.spec.name, cause.replica_id, {"rank": now.told.rank})
        elif (begun := self._unready.pop(cause.replica_id, None)) is not None:
            begun["for_s"] = cause.at - begun["at"]

    def _unready_from(self, at: float, deployment: str, replica_id: ReplicaId, chosen: Plain) -> None:
        fault: Plain = {"kind": "replica_unready", "at": at, "deployment": deployment, **chosen}
        self._unready[replica_id] = fault
        self.faults.append(fault)

    def _changed(self, cause: SpecChanged, before: DeploymentSpec) -> None:
        was, wanted = fields_of(before, CHANGEABLE), fields_of(cause.spec, CHANGEABLE)
        fields = {key: wanted[key] for key in CHANGEABLE if wanted[key] != was[key]}
        if fields:
            change = {"at": cause.at, "deployment": cause.spec.name, **fields}
            self.changes.append({**change, "stop_first": list(cause.stop_first)} if cause.stop_first else change)


def _until(fault: Plain) -> tuple[str, float | None]:
    """What is wanted of a node, and by when; the same however often it is told."""
    return fault["kind"], round(fault["at"] + fault["deadline_s"], 3) if "deadline_s" in fault else None
