"""What a controller's state says of a replica that lives already as a run begins."""

from typing import Self

import attrs

from rankcore import DeploymentState, Replica
from rankcore.commands import InitializeReplica, PrepareReplica, ReconfigureReplica, StartReplica
from rankcore.values import ReplicaRank, ReplicaState

BEFORE_ALL = 0
"""A revision below all that a controller gives: whatever it says next is newer."""


@attrs.frozen
class KnownReplica:
    """A replica with a place, as far as it has acknowledged what it was told.

    Attributes:
        start: What asked for it.
        told: Its ranks, if it has any, and configuration, as one message; None: it has none yet.
        ready: Whether its start-up is over, or its preparation.
        seen_at: When it was placed, or reported that it is.
        busy_s: How long it has been doing what it does.
        unready: Why it takes no requests, though it is ready; None: it takes them.
    """

    start: StartReplica
    told: PrepareReplica | InitializeReplica | None
    ready: bool
    seen_at: float
    busy_s: float
    unready: str | None = None

    @classmethod
    def of(cls, state: DeploymentState, replica: Replica, now: float) -> Self:
        """What the state says of one of its replicas."""
        rank = acknowledged(replica)
        slot = replica.slot if replica.slot is not None else rank.rank if rank is not None else 0
        version, token = replica.generation
        start = StartReplica(replica.replica_id, slot, version, replica.node_id, (), state.epoch, restart_token=token)
        told: PrepareReplica | InitializeReplica | None = None
        adopts = replica.routed and replica.state is ReplicaState.STARTING
        if replica.state is ReplicaState.PREPARED or adopts:
            told = PrepareReplica(replica.replica_id, state.world_size, None, replica.config_id, BEFORE_ALL, state.epoch)
        if rank is not None:
            told = InitializeReplica(
                replica.replica_id, rank, state.world_size, None, replica.config_id, BEFORE_ALL, state.epoch
            )
        begun_at = replica.sent_at if isinstance(replica.pending, ReconfigureReplica) else replica.since
        busy = replica.state in (ReplicaState.PREPARING, ReplicaState.STARTING, ReplicaState.RECONFIGURING)
        return cls(
            start=start,
            told=told,
            ready=replica.state is not ReplicaState.STARTING or adopts,
            seen_at=replica.seen_at,
            busy_s=max(0.0, now - begun_at) if busy else 0.0,
            unready=replica.unready.reason if replica.unready is not None else None,
        )


def acknowledged(replica: Replica) -> ReplicaRank | None:
    """The ranks that it is known to have believed, and may believe still."""
    if isinstance(replica.pending, InitializeReplica):
        return None
    return replica.believed[0] if replica.believed else replica.told
