"""A cluster: applications of deployments, in one pure machine.

    state, commands, notes = recover_cluster(records, replica_ids, at=0.0, epoch=1)
    state, commands, notes = cluster_step(state, event)

`events` and `commands` hold what goes in and out, `records` what outlives a controller.
"""

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
