"""A dry run: what a request would bring, if it were made now and nothing failed.

The machine itself takes the request, so what is refused is refused here too. Every record that it saves is acknowledged at
once, and weights that are to leave the GPUs have left, so that it is seen where those of another version are loaded; no load
ends, and no replica starts: of an update that goes slot by slot it is the first step. What it means for the ranks of each
deployment is worked out by `rankcore.planning`, which runs their machine in a world where every command is carried out at once.
What it means for weights is what the planner of weights decides at once: who gets a place, who has to leave for it, and who
fits nowhere.
"""

from typing import TypeAlias

import attrs

from rankcore.cluster.commands import ClusterCommand, MoveWeights, SaveRecord
from rankcore.cluster.events import (
    ApplyRequested,
    ChangeRequested,
    ClusterEvent,
    DeletionRequested,
    MoveFinished,
    RecordSaved,
    ScaleRequested,
)
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNote
from rankcore.cluster.records import Cause
from rankcore.cluster.residency import WorkerId
from rankcore.cluster.state import ClusterState, Entry
from rankcore.cluster.step import cluster_step
from rankcore.events import DeleteRequested, ReplicasLeave, SpecChanged
from rankcore.planning import Plan, plan_event, plan_new
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import EvictRequested
from rankcore.residency.notes import ResidencyNote, ResidencyNoteKind
from rankcore.values import DRAINING, NodeId

Request: TypeAlias = ApplyRequested | ScaleRequested | ChangeRequested | DeletionRequested | EvictRequested
"""What a user may ask for."""

WEIGHTS = {
    ResidencyNoteKind.PLACED: "loaded",
    ResidencyNoteKind.PROMOTED: "loaded",
    ResidencyNoteKind.DISPLACED: "displaced",
    ResidencyNoteKind.EVICTED: "evicted",
    ResidencyNoteKind.CANT_ACCOMMODATE: "left waiting",
}
"""What would happen to a worker, by the note that says so."""
UNMEASURED = "once memory of GPUs has been measured, with the first deployment whose weights may be COLD"


@attrs.frozen
class PlannedChange:
    """What a request would bring for one deployment.

    Attributes:
        what: "new", "changed", "deleted", "preempted" (it would lose replicas to another one), or "recorded": its record
            would change, and no replica.
        plan: Which replicas would be started, stopped and moved; None: none would.
        routes: Under which path HTTP reaches it now, and then, where that changes (None: no HTTP); None: it does not.
    """

    deployment: DeploymentId
    what: str
    plan: Plan | None
    routes: tuple[str | None, str | None] | None = None


@attrs.frozen
class PlannedWeights:
    """What a request would bring for the weights of one worker.

    Attributes:
        what: One of `WEIGHTS`, or "placed" as long as no memory of GPUs is known.
        node_id: Where; None: nowhere.
        reasons: Where it would be left waiting: why, node by node.
    """

    deployment: DeploymentId
    worker_id: WorkerId
    what: str
    node_id: NodeId | None
    because: str
    reasons: tuple[tuple[NodeId, str], ...] = ()


@attrs.frozen
class ClusterPlan:
    """What a request would bring: the deployments that it would touch, by id, and weights. Empty: it would change nothing."""

    changes: tuple[PlannedChange, ...]
    weights: tuple[PlannedWeights, ...] = ()


def plan_cluster(state: ClusterState, event: Request) -> ClusterPlan:
    """Work out what a request would bring. Nothing changes.

    Raises:
        RankcoreError: As `cluster_step`.
    """
    after, notes = _requested(state, event)
    changes = []
    for deployment in sorted({*state.deployments, *after.deployments}):
        before, entry = state.deployments.get(deployment), after.deployments.get(deployment)
        if before is None or entry is None or entry.outbox.record.number != before.outbox.record.number:
            changes.append(_change(deployment, before, entry, event))
    measured = any(node.gpus for node in state.weights.planner.nodes.values())
    weights = [
        _weights(note.deployment, note.of, measured) for note in notes if note.deployment and isinstance(note.of, ResidencyNote)
    ]
    return ClusterPlan(tuple(changes), tuple(each for each in weights if each is not None))


def _requested(state: ClusterState, event: Request) -> tuple[ClusterState, list[ClusterNote]]:
    """The state once the request is taken and saved, and who is to leave has left; and why it is so."""
    step = cluster_step(state, event)
    notes, answers = list(step.notes), _answers(step.commands, event.at)
    while answers:
        step = cluster_step(step.state, answers.pop(0))
        notes += step.notes
        answers += _answers(step.commands, event.at)
    return step.state, notes


def _answers(commands: tuple[ClusterCommand, ...], at: float) -> list[ClusterEvent]:
    found: list[ClusterEvent] = []
    for each in commands:
        if isinstance(each, SaveRecord):
            found.append(RecordSaved(deployment=each.record.deployment, number=each.record.number, at=at))
        elif isinstance(each, MoveWeights) and not isinstance(each.command, LoadToGpu):
            found.append(MoveFinished(worker_id=each.command.replica_id, move=each.command.move, at=at))
    return found


def _change(deployment: DeploymentId, before: Entry | None, entry: Entry | None, event: Request) -> PlannedChange:
    if before is None:
        assert entry is not None, f"{deployment} is neither before nor after"
        return PlannedChange(deployment, "new", plan_new(entry.ranks.spec, at=entry.ranks.clock, epoch=entry.ranks.epoch))
    at = max(before.ranks.clock, before.ranks.tables.spec_at, event.at)
    if entry is None or (entry.deleting and not before.deleting):
        return PlannedChange(deployment, "deleted", plan_event(before.ranks, DeleteRequested(at=at)))
    spec = entry.ranks.spec
    routes = (before.route_prefix, entry.route_prefix) if before.route_prefix != entry.route_prefix else None
    if spec == before.ranks.spec:
        return PlannedChange(deployment, "recorded", None, routes)
    if entry.target.cause is Cause.LEAVE and entry.target != before.target:
        leave = ReplicasLeave(replica_ids=_leavers(before, entry), at=at)
        what = "changed" if isinstance(event, EvictRequested) else "preempted"
        return PlannedChange(deployment, what, plan_event(before.ranks, leave))
    stop_first = event.stop_first if isinstance(event, ScaleRequested) else ()
    plan = plan_event(before.ranks, SpecChanged(spec=spec, stop_first=stop_first, at=at))
    return PlannedChange(deployment, "changed", plan, routes)


def _leavers(before: Entry, entry: Entry) -> tuple[str, ...]:
    """Replicas that were to stay, and leave."""
    now, was = entry.ranks.replicas, before.ranks.replicas
    gone = [each for each in was if each not in now or now[each].state is DRAINING]
    return tuple(sorted(each for each in gone if was[each].state is not DRAINING))


def _weights(deployment: DeploymentId, note: ResidencyNote, measured: bool) -> PlannedWeights | None:
    what = WEIGHTS.get(note.kind)
    if what is None or note.replica_id is None:
        return None
    if note.cant is not None and not measured:
        return PlannedWeights(deployment, note.replica_id, "placed", None, UNMEASURED)
    reasons = () if note.cant is None else tuple((each.node_id, each.because) for each in note.cant.reasons)
    return PlannedWeights(deployment, note.replica_id, what, note.node_id, note.because, reasons)
