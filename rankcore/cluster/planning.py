"""A dry run: what a request would bring, if it were made now and nothing failed.

The machine itself takes the request, so what is refused is refused here too; what it means for the ranks of each deployment is
worked out by `rankcore.planning`, which runs their machine in a world where every command is carried out at once.
"""

import attrs

from rankcore.cluster.events import ApplyRequested, DeletionRequested, ScaleRequested
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.state import ClusterState, Entry
from rankcore.cluster.step import cluster_step
from rankcore.events import DeleteRequested, SpecChanged
from rankcore.planning import Plan, plan_event, plan_new


@attrs.frozen
class PlannedChange:
    """What a request would bring for one deployment.

    Attributes:
        what: "new", "changed", "deleted", or "recorded": its record would change, and no replica.
        plan: Which replicas would be started, stopped and moved; None: none would.
    """

    deployment: DeploymentId
    what: str
    plan: Plan | None


@attrs.frozen
class ClusterPlan:
    """What a request would bring: the deployments that it would touch, by id. Empty: it would change nothing."""

    changes: tuple[PlannedChange, ...]


def plan_cluster(state: ClusterState, event: ApplyRequested | ScaleRequested | DeletionRequested) -> ClusterPlan:
    """Work out what a request would bring. Nothing changes.

    Raises:
        RankcoreError: As `cluster_step`.
    """
    after = cluster_step(state, event).state
    changes = []
    for deployment, entry in sorted(after.deployments.items()):
        before = state.deployments.get(deployment)
        if before is None or entry.outbox.record.number != before.outbox.record.number:
            changes.append(_change(deployment, before, entry, event))
    return ClusterPlan(tuple(changes))


def _change(
    deployment: DeploymentId, before: Entry | None, entry: Entry, event: ApplyRequested | ScaleRequested | DeletionRequested
) -> PlannedChange:
    spec = entry.ranks.spec
    if before is None:
        return PlannedChange(deployment, "new", plan_new(spec, at=entry.ranks.clock, epoch=entry.ranks.epoch))
    at = max(before.ranks.clock, before.ranks.tables.spec_at, event.at)
    if entry.deleting and not before.deleting:
        return PlannedChange(deployment, "deleted", plan_event(before.ranks, DeleteRequested(at=at)))
    if spec == before.ranks.spec:
        return PlannedChange(deployment, "recorded", None)
    stop_first = event.stop_first if isinstance(event, ScaleRequested) else ()
    return PlannedChange(deployment, "changed", plan_event(before.ranks, SpecChanged(spec=spec, stop_first=stop_first, at=at)))
