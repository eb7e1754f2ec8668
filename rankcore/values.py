"""The small values that everything else speaks in: a replica's three ranks, and the states of the two life cycles."""

from enum import StrEnum
from typing import TypeAlias

import attrs

ReplicaId: TypeAlias = str
NodeId: TypeAlias = str


@attrs.frozen
class ReplicaRank:
    """Where a replica stands, at three levels, each counted from 0 (R1).

    Attributes:
        rank: Over the whole deployment, 0..N-1.
        node_rank: Of its node among the M nodes that the deployment uses, 0..M-1.
        local_rank: Among the K replicas of the deployment on its node, 0..K-1.
    """

    rank: int
    node_rank: int
    local_rank: int


class ReplicaState(StrEnum):
    """Where a replica is in its life; `lifecycle.REPLICA_ROWS` has the moves between these."""

    REQUESTED = "REQUESTED"
    PLACED = "PLACED"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    """Its user code is up, without a rank (V4)."""
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RECONFIGURING = "RECONFIGURING"
    DRAINING = "DRAINING"
    STOPPED = "STOPPED"
    RECOVERING = "RECOVERING"
    FAILED = "FAILED"
    """It has ended, and a bundle that its rank needs is lost: nothing takes its place until that is back (S5)."""


class DeploymentStatus(StrEnum):
    """How a deployment is; `lifecycle.DEPLOYMENT_ROWS` has the moves between these."""

    UPDATING = "UPDATING"
    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"
    RECOVERING = "RECOVERING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    DELETING = "DELETING"
    DELETED = "DELETED"


class Leaving(StrEnum):
    """Why a draining replica's slot does, or does not, outlive it."""

    REFILL = "refill"
    """Its slot is kept: the replacement inherits the rank (R6)."""
    RELEASE = "release"
    """Its rank goes free once it has fully stopped (R7)."""


REQUESTED, PLACED, STARTING = ReplicaState.REQUESTED, ReplicaState.PLACED, ReplicaState.STARTING
PREPARING, PREPARED = ReplicaState.PREPARING, ReplicaState.PREPARED
DRAINING, FAILED = ReplicaState.DRAINING, ReplicaState.FAILED
REFILL, RELEASE = Leaving.REFILL, Leaving.RELEASE
DELETING, DELETED, HEALTHY = DeploymentStatus.DELETING, DeploymentStatus.DELETED, DeploymentStatus.HEALTHY
UPDATING, UNHEALTHY = DeploymentStatus.UPDATING, DeploymentStatus.UNHEALTHY
DEPLOY_FAILED, RECOVERING = DeploymentStatus.DEPLOY_FAILED, DeploymentStatus.RECOVERING
"""For code that runs at every step: reading a member of an enum costs 65 ns in Python 3.11, reading a name 5."""


def age_key(replica_id: ReplicaId) -> tuple[int, int, str]:
    """Sorts replica ids by age: epoch, then serial. Ids that the core did not make count as older than all it made."""
    epoch, _, serial = replica_id.rpartition("#")[2].partition(".")
    if "#" in replica_id and epoch.isdecimal() and serial.isdecimal():
        return int(epoch), int(serial), replica_id
    return -1, 0, replica_id
