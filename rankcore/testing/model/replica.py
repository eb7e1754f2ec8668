"""A replica as a value: what one process believes, and the replica's half of the contract (section 2.4 of the design)."""

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rankcore.commands import InitializeReplica, KillReplica, QueryReplica, ReconfigureReplica, StopReplica
from rankcore.events import (
    Event,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
)
from rankcore.values import NodeId, ReplicaId, ReplicaRank

Message: TypeAlias = InitializeReplica | ReconfigureReplica | QueryReplica | StopReplica | KillReplica


class ModelReplica(Struct, frozen=True, gc=False):
    """One replica's process, at one moment.

    Promises: it adopts a new epoch before it does anything else and refuses commands of an older one; it never goes back to
    an older (epoch, revision); its belief changes when it accepts a command, before user code runs; a repeated command is
    carried out once and acknowledged again; a query is answered when no rank change is running, draining or not.

    Attributes:
        replica_id, version, node_id: Which it is, what it runs, and where.
        epoch: The newest that it has heard of.
        rank: What it believes; None: it was never initialised.
        heard: (epoch, revision) of the last command that it accepted.
        config_id: Of the user_config that it has, or is applying.
        ready: Whether its start-up is over.
        draining: Whether it was told to stop.
        moving: Revision of the reconfiguration whose user code runs, or waits for the start-up; None: there is none.
        failed: Whether the last reconfiguration that it accepted has failed.
        asked: Whether a query waits for the end of a reconfiguration.
        bundles, group_id: What it stands on, where it was started with a static placement.
        excused: Whether it took part in a duplicate that the adversary made, and has not been put right since: the exception
            in R3.
    """

    replica_id: ReplicaId
    version: str
    node_id: NodeId
    epoch: int
    rank: ReplicaRank | None = None
    heard: tuple[int, int] = (0, 0)
    config_id: str | None = None
    ready: bool = False
    draining: bool = False
    moving: int | None = None
    failed: bool = False
    asked: bool = False
    excused: bool = False
    bundles: tuple[int, ...] = ()
    group_id: str | None = None

    @property
    def starting(self) -> bool:
        """Whether its start-up runs."""
        return self.rank is not None and not self.ready


Reply: TypeAlias = tuple[ModelReplica | None, tuple[Event, ...]]
"""The replica after a message, None where it has ended, and what it says."""


def receive(replica: ModelReplica, message: Message, at: float) -> Reply:
    """A message has reached the process, at this time."""
    if message.epoch < replica.epoch:
        return replica, ()
    if message.epoch > replica.epoch:
        replica = replace(replica, epoch=message.epoch)
    return _RECEIVED[type(message)](replica, message, at)


def _kill(replica: ModelReplica, _: KillReplica, at: float) -> Reply:
    return None, (ReplicaStopped(replica_id=replica.replica_id, at=at),)


def _stop(replica: ModelReplica, _: StopReplica, _at: float) -> Reply:
    return (replica if replica.draining else replace(replica, draining=True)), ()


def _query(replica: ModelReplica, _: QueryReplica, at: float) -> Reply:
    if replica.moving is not None:
        return replace(replica, asked=True), ()
    return replica, (_report(replica, at),)


def _configure(replica: ModelReplica, message: InitializeReplica | ReconfigureReplica, at: float) -> Reply:
    order, initialize = (message.epoch, message.revision), type(message) is InitializeReplica
    if order < replica.heard or (replica.rank is None and not initialize):
        return replica, ()
    if order == replica.heard:
        if initialize and replica.ready:
            return replica, (ReplicaReady(replica_id=replica.replica_id, at=at),)
        if not initialize and replica.moving is None:
            return replica, (_outcome(replica, message.revision, at),)
        return replica, ()
    # A change that has not ended is superseded: the core waits for the newest one.
    moving = None if initialize else message.revision
    return replace(replica, heard=order, rank=message.rank, config_id=message.config_id, moving=moving, failed=False), ()


def finish(replica: ModelReplica, at: float) -> Reply:
    """What its user code is doing has ended well; ask only one that starts or is being reconfigured."""
    if replica.starting:
        return replace(replica, ready=True), (ReplicaReady(replica_id=replica.replica_id, at=at),)
    return _reconfigured(replica, at)


def fail(replica: ModelReplica, at: float) -> Reply:
    """What its user code is doing has failed. A start-up, begun or not, ends the replica; a reconfiguration does not."""
    if replica.starting or replica.rank is None:
        return None, (ReplicaStartFailed(replica_id=replica.replica_id, reason="boom", at=at),)
    return _reconfigured(replace(replica, failed=True), at)


def _reconfigured(replica: ModelReplica, at: float) -> Reply:
    assert replica.moving is not None, f"{replica.replica_id} is doing nothing that could end"
    outcome, after = _outcome(replica, replica.moving, at), replace(replica, moving=None, asked=False)
    return after, ((outcome, _report(after, at)) if replica.asked else (outcome,))


def _outcome(replica: ModelReplica, revision: int, at: float) -> ReplicaReconfigured | ReplicaReconfigureFailed:
    if replica.failed:
        return ReplicaReconfigureFailed(replica_id=replica.replica_id, revision=revision, reason="boom", at=at)
    return ReplicaReconfigured(replica_id=replica.replica_id, revision=revision, at=at)


def _report(replica: ModelReplica, at: float) -> ReplicaReported:
    return ReplicaReported(
        replica_id=replica.replica_id,
        node_id=replica.node_id,
        rank=replica.rank,
        version=replica.version,
        ready=replica.ready,
        draining=replica.draining,
        config_id=replica.config_id,
        bundles=replica.bundles,
        group_id=replica.group_id,
        epoch=replica.epoch,
        at=at,
    )


_RECEIVED: dict[type[Message], Callable[[ModelReplica, Any, float], Reply]] = {
    KillReplica: _kill,
    StopReplica: _stop,
    QueryReplica: _query,
    InitializeReplica: _configure,
    ReconfigureReplica: _configure,
}
