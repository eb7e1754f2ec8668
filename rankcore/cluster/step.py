"""The machine: `cluster_step` takes a cluster from event to event."""

from rankcore.cluster.events import ClusterEvent
from rankcore.cluster.state import ClusterState, ClusterStep


def cluster_step(state: ClusterState, event: ClusterEvent) -> ClusterStep:
    """One event, applied to one cluster.

    Args:
        state: Any state that `recover_cluster` or `cluster_step` returned. It stays valid.
        event: What happened. Late, repeated and overtaken news is expected, and leaves a note.

    Returns:
        The next state, the commands to carry out, in order, and the notes that say why.

    Raises:
        InvalidEventError: The event is none, or asks for what cannot be. Nothing is changed.
        InvalidSpecError: Two applications want one route prefix. Nothing is changed.
        UnknownDeploymentError: The event speaks of a deployment that there is not. Nothing is changed.
    """
    raise NotImplementedError
