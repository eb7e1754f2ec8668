"""A cluster: applications of deployments, in one pure machine.

    state, commands, notes = recover_cluster(records, replica_ids, at=0.0, epoch=1)
    state, commands, notes = cluster_step(state, event)

`events` and `commands` hold what goes in and out, `records` what outlives a controller.
"""

from typing import TYPE_CHECKING

from rankcore.homes import loading

if TYPE_CHECKING:
    from rankcore.cluster.planning import ClusterPlan, PlannedChange, PlannedWeights, plan_cluster
    from rankcore.cluster.recovery import recover_cluster
    from rankcore.cluster.spec import ApplicationSpec, EntrySpec
    from rankcore.cluster.state import ClusterState, ClusterStep, Entry
    from rankcore.cluster.step import cluster_step

__all__ = [
    "ApplicationSpec",
    "ClusterPlan",
    "ClusterState",
    "ClusterStep",
    "Entry",
    "EntrySpec",
    "PlannedChange",
    "PlannedWeights",
    "cluster_step",
    "plan_cluster",
    "recover_cluster",
]

_HOMES = {
    "ApplicationSpec": "rankcore.cluster.spec",
    "ClusterPlan": "rankcore.cluster.planning",
    "ClusterState": "rankcore.cluster.state",
    "ClusterStep": "rankcore.cluster.state",
    "Entry": "rankcore.cluster.state",
    "EntrySpec": "rankcore.cluster.spec",
    "PlannedChange": "rankcore.cluster.planning",
    "PlannedWeights": "rankcore.cluster.planning",
    "cluster_step": "rankcore.cluster.step",
    "plan_cluster": "rankcore.cluster.planning",
    "recover_cluster": "rankcore.cluster.recovery",
}

__getattr__ = loading(__name__, _HOMES)
"""A controller steps, and plans only where somebody asks for a plan."""
