"""What is still to be done for a state, for an executor that takes it over instead of having carried it here."""

from rankcore.book.routes import routed
from rankcore.commands import AnnounceWorldSize, Command, PublishRoutes, WakeAt
from rankcore.state import DeploymentState


def outstanding(state: DeploymentState) -> tuple[Command, ...]:
    """Everything that a state waits for: what to hand to an executor that goes on from a snapshot or a fork of it.

    Each command is one that was given before, or says no more than those did: an executor that has carried some of them
    out already is told again, which section 2.4 lets it take. A start that the one before has accepted (`ReplicaPending`) is
    among them, and is not repeated: its outcome must not be lost from then on.

    Args:
        state: Of a deployment, at any moment.

    Returns:
        The newest world size; then what each replica has not acknowledged, the oldest replica first; then all routes at
        once, unless a recovery still keeps them back; then when to wake the core.
    """
    tables, epoch = state.tables, state.epoch
    found: list[Command] = [AnnounceWorldSize(state.world_size, tables.revision, epoch)]
    replicas = sorted(tables.replicas.values(), key=lambda replica: replica.birth)
    found.extend(replica.pending for replica in replicas if replica.pending is not None)
    if tables.recovery.routes_complete:
        found.append(PublishRoutes(routed(tables.replicas), (), tables.revision, epoch))
    if state.wake_at is not None:
        found.append(WakeAt(state.wake_at, epoch))
    return tuple(found)
