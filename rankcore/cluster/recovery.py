"""A cluster begins, or a controller comes back."""

from collections.abc import Iterable

from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import Record
from rankcore.cluster.state import ClusterStep
from rankcore.values import ReplicaId


def recover_cluster(
    records: Iterable[Record],
    replica_ids: Iterable[ReplicaId],
    *,
    at: float,
    epoch: int,
    unreadable: Iterable[DeploymentId] = (),
) -> ClusterStep:
    """Take a cluster over after the controller was restarted; without records, begin a new one.

    Args:
        records: All that the store has, in any order, of one deployment perhaps several: the greatest number counts.
        replica_ids: Every replica that was found once the fence against the old controller was up (section 2.4).
        at: Now, in seconds on the executor's clock.
        epoch: Of this controller; above that of every earlier one.
        unreadable: Deployments whose newest record cannot be read: they and their replicas are left alone.

    Returns:
        The first step: its commands save the records under the new epoch, ask every replica what it believes, and kill
        those of unknown deployments.

    Raises:
        InvalidEventError: An argument is not what it may be, or an id occurs twice.
    """
    raise NotImplementedError
