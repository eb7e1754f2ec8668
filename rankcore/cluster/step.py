"""The machine: `cluster_step` takes a cluster from event to event.

The order within a step: the event's own handler, which checks the event and hands it on to the deployments that it concerns;
what they hand on to each other, until nothing is left (`kernel.Worklist`); what has fallen due; then, for each deployment that
was touched, its record and what goes out (`conclude`).
"""

from typing import Any

from msgspec.structs import replace

from rankcore.autoscaling.reports import HandleReport, ReplicaReport
from rankcore.cluster import adoption, apply, demand, never, nodes, planner, ranking, refusals, room, scaling, tenures, workers
from rankcore.cluster.commands import CarryOut
from rankcore.cluster.conclude import conclude, on_record_saved
from rankcore.cluster.draft import ClusterDraft, RankStep
from rankcore.cluster.events import (
    ApplyRequested,
    ChangeRequested,
    ClusterEvent,
    DeletionRequested,
    DeploymentRetryRequested,
    LoadReported,
    MoveFailed,
    MoveFinished,
    MoveProgressed,
    NodeJoined,
    NodesListed,
    PolicyAnswered,
    RecordSaved,
    ScaleRequested,
    WorkerLost,
    WorkerReported,
)
from rankcore.cluster.isolation import isolated
from rankcore.cluster.names import DeploymentId, owner_of
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import PLANNER
from rankcore.cluster.state import ClusterState, ClusterStep
from rankcore.commands import KillReplica
from rankcore.errors import InvalidEventError
from rankcore.events import (
    FINAL,
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicasLeave,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    ReplicaUnready,
    StopRequested,
)
from rankcore.kernel import handler_of
from rankcore.residency.events import EvictRequested, MemoryMeasured, UsageReported

FINAL_NEWS = frozenset({ReplicaStartFailed, ReplicaDied, ReplicaStopped, ReplicaMissing})
PLACING = frozenset({ReplicaPlaced, ReplicaReported})


def cluster_step(state: ClusterState, event: ClusterEvent, trace: list[RankStep] | None = None) -> ClusterStep:
    """One event, applied to one cluster.

    Args:
        state: Any state that `recover_cluster` or `cluster_step` returned. It stays valid.
        event: What happened. Late, repeated and overtaken news is expected, and leaves a note.
        trace: Becomes the steps that the ranks of single deployments took.

    Returns:
        The next state, the commands to carry out, in order, and the notes that say why.

    Raises:
        InvalidEventError: The event is none, or asks for what cannot be. Nothing is changed.
        InvalidSpecError: Two applications want one route prefix. Nothing is changed.
        UnknownDeploymentError: The event speaks of a deployment that there is not. Nothing is changed.
    """
    handler = handler_of(_HANDLERS, event, "one of the classes in rankcore.cluster.events")
    if not isinstance(state, ClusterState):
        raise InvalidEventError("state", state, "a ClusterState")

    def run(draft: ClusterDraft) -> None:
        handler(draft, event)
        settle(draft)
        _expire(draft)
        settle(draft)
        finish(draft)
        if trace is not None:
            trace[:] = draft.traced

    return isolated(lambda broken: ClusterDraft(state, event.at, broken), run)


def settle(draft: ClusterDraft) -> None:
    """Handle what the parts hand to each other, until nothing is left."""
    draft.worklist.settle(lambda part, news: handle(draft, part, news))


def finish(draft: ClusterDraft) -> None:
    """Conclude what was touched, and once the planner has decided, what ranks make of whom it has no room for (`room`)."""
    _conclude_all(draft)
    while room.tell_of_room(draft):
        settle(draft)
        _conclude_all(draft)


def _conclude_all(draft: ClusterDraft) -> None:
    """What leaves the outboxes sideways goes on to the planner, and so on (`tenures`)."""
    while draft.touched or draft.unbalanced or draft.vacated:
        touched = list(draft.touched)
        draft.touched.clear()
        for deployment in touched:
            draft.worklist.running = deployment
            conclude(draft, deployment)
        draft.worklist.running = None
        if draft.sideways or draft.unbalanced or draft.vacated:
            tenures.go_on(draft)
            settle(draft)


def handle(draft: ClusterDraft, deployment: DeploymentId, news: Any) -> None:
    """An event for one deployment, or for the planner of weights."""
    if deployment == PLANNER:
        return planner.tell(draft, news)
    if type(news) is planner.WeightsPlanned:
        return planner.on_planned(draft, deployment, news)
    entry = draft.find(deployment)
    assert entry is not None, f"{deployment} gets news, and there is no such deployment"
    if entry.frozen:
        draft.note(ClusterNoteKind.FROZEN, "P6", deployment, f"{type(news).__name__} is dropped")
        return
    _PARTS.get(type(news), ranking.tell)(draft, deployment, entry, news)


def _expire(draft: ClusterDraft) -> None:
    """Do what is due by now."""
    weights = draft.weights
    if weights.planner.waking is not None and weights.planner.waking <= draft.clock:
        draft.worklist.add(PLANNER, ClockAdvanced(at=draft.clock))
    if weights.unknown_until is not None and weights.unknown_until <= draft.clock:
        draft.weights = replace(weights, unknown_until=None)
        residents = [each for each, entry in draft.state.deployments.items() if entry.residency is not None]
        draft.unbalanced.update(dict.fromkeys(sorted(residents)))
        for deployment in sorted(residents):
            draft.worklist.add(deployment, demand.LookAtDemand())
    if weights.killed_at is not None and weights.killed_at <= draft.clock:
        adoption.kill_silent(draft)
    never.look_again(draft)
    _expire_deployments(draft)


def _expire_deployments(draft: ClusterDraft) -> None:
    """Wake the deployments that asked for it, for what is due by now: this very event may have moved it."""
    for at, deployment in draft.state.alarms:
        if at > draft.clock:
            return
        entry = draft.find(deployment)
        if entry is None or deployment in draft.gone:
            continue
        draft.put(deployment, entry)  # its record may be due
        if entry.ranks.wake_at is not None and entry.ranks.wake_at <= draft.clock:
            draft.worklist.add(deployment, ClockAdvanced(at=draft.clock))
        if entry.scaler is not None and scaling.due_of(entry.scaler) <= draft.clock:
            draft.worklist.add(deployment, scaling.LookAtLoad())
        if entry.residency is not None and entry.residency.look_at is not None and entry.residency.look_at <= draft.clock:
            draft.worklist.add(deployment, demand.LookAtDemand())


def _on_replica(draft: ClusterDraft, event: Any) -> None:
    deployment = owner_of(f"{type(event).__name__}.replica_id", event.replica_id)
    entry = draft.find(deployment)
    if entry is not None:
        if type(event) in PLACING:
            nodes.tell_loss(draft, deployment, entry, event.node_id)
            nodes.tell_cordon(draft, deployment, entry, event.node_id)
        if entry.residency is not None and type(event) is ReplicaReported:
            event = tenures.reported(draft, entry.residency, event)
        draft.worklist.add(deployment, event)
        if entry.residency is not None and type(event) in FINAL_NEWS:
            tenures.on_final_news(draft, entry, entry.residency, event.replica_id)
    elif deployment in draft.state.left_alone:
        draft.note(ClusterNoteKind.LEFT_ALONE, "P2", deployment, f"{type(event).__name__} of {event.replica_id}")
    elif deployment in draft.weights.recovering:  # it is asked once its deployment is there
        draft.note(ClusterNoteKind.LATE, "T11", deployment, f"{type(event).__name__} of {event.replica_id}")
    else:
        kill_stranger(draft, deployment, event)


def kill_stranger(draft: ClusterDraft, deployment: DeploymentId, event: Any) -> None:
    """News of a replica of no deployment: it must not live on."""
    draft.note(ClusterNoteKind.UNKNOWN, "2", deployment, f"{type(event).__name__} of {event.replica_id}")
    if not isinstance(event, FINAL):
        draft.released.setdefault(deployment, []).append(CarryOut(deployment, KillReplica(event.replica_id, draft.epoch)))


def _on_answered(draft: ClusterDraft, event: PolicyAnswered) -> None:
    if draft.find(event.deployment) is None:
        draft.note(ClusterNoteKind.UNKNOWN, "A8", event.deployment, f"an answer to question {event.ask}")
    else:
        draft.worklist.add(event.deployment, event)


def _on_node_joined(draft: ClusterDraft, event: NodeJoined) -> None:
    before = nodes.memory_of(draft, event.node_id)
    nodes.on_node_joined(draft, event)
    adoption.on_node_joined(draft, event.node_id)
    if nodes.memory_of(draft, event.node_id) != before:
        refusals.forget(draft)


def _on_node_lost(draft: ClusterDraft, event: NodeLost) -> None:
    nodes.on_node_lost(draft, event)
    adoption.on_node_lost(draft, event)
    refusals.forget(draft)


def _on_memory_measured(draft: ClusterDraft, event: MemoryMeasured) -> None:
    adoption.on_memory_measured(draft, event)
    refusals.forget(draft)


def _on_load_reported(draft: ClusterDraft, event: LoadReported) -> None:
    if scaling.on_load_reported(draft, event):
        demand.on_load_reported(draft, event)


def _on_clock_advanced(_draft: ClusterDraft, _event: ClockAdvanced) -> None:
    """The clock is advanced by every event, and what is due is done after every event."""


_PARTS: dict[type[Any], Any] = {
    HandleReport: scaling.on_report,
    ReplicaReport: scaling.on_report,
    scaling.LookAtLoad: scaling.on_look,
    PolicyAnswered: scaling.on_answered,
    demand.LookAtDemand: demand.on_look,
    never.LookAtFit: demand.on_look_at_fit,
}
"""Who handles what of a deployment; all else is for its ranks."""

_NEWS = (
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaStartFailed,
    ReplicaDied,
    ReplicaStopped,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaMissing,
    ReplicaUnhealthy,
    ReplicaUnready,
    ReplicaPending,
)

_HANDLERS: dict[type[Any], Any] = {
    ApplyRequested: apply.on_apply,
    ScaleRequested: apply.on_scale,
    ChangeRequested: apply.on_change,
    DeploymentRetryRequested: apply.on_retry,
    DeletionRequested: apply.on_deletion,
    StopRequested: apply.on_named,
    ReplicasLeave: apply.on_named,
    ReplaceRequested: apply.on_named,
    **dict.fromkeys(_NEWS, _on_replica),
    NodeJoined: _on_node_joined,
    NodesListed: never.on_nodes_listed,
    NodeLost: _on_node_lost,
    NodeCordoned: nodes.on_cordon,
    NodeUncordoned: nodes.on_cordon,
    NodeDrainRequested: nodes.on_cordon,
    BundleLost: nodes.on_bundles,
    BundleRestored: nodes.on_bundles,
    LoadReported: _on_load_reported,
    PolicyAnswered: _on_answered,
    RecordSaved: on_record_saved,
    MoveProgressed: workers.on_move_progressed,
    MoveFinished: workers.on_move_finished,
    MoveFailed: workers.on_move_failed,
    WorkerLost: workers.on_worker_lost,
    WorkerReported: workers.on_worker_reported,
    EvictRequested: apply.on_evict,
    MemoryMeasured: _on_memory_measured,
    UsageReported: workers.on_usage_reported,
    ClockAdvanced: _on_clock_advanced,
}
