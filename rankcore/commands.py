"""What should happen, as the core tells an executor: one frozen struct each, named in the imperative.

Every command carries the `epoch` of the controller that gave it, so that a replica or executor can refuse a controller that
has been replaced. A repeated command is identical to the first one: carry it out once, acknowledge it again.
"""

from typing import ClassVar, TypeAlias

from msgspec import Struct

from rankcore.frozen import FrozenDict, FrozenJson, known_to_attrs  # noqa: F401 - FrozenDict: for whoever evaluates FrozenJson
from rankcore.values import NodeId, ReplicaId, ReplicaRank


@known_to_attrs
class StartReplica(Struct, frozen=True, gc=False):
    """Create a replica's process on a node; answer `ReplicaPlaced`, or `ReplicaStartFailed`.

    Attributes:
        rank: Global rank of the slot that it is to fill. It may still change until `InitializeReplica`.
        version: Of the user's code.
        node_id: Where to create it; None: wherever there is room.
        bundles: Indices in an external placement group, for static placement; else empty. The process goes on the first.
        group_id: Which group that is: the identity of the `StaticPlacement`; None: it has none, or there are no bundles.
        restart_token: Of the spec that it is started with; the replica reports it (V10).
    """

    replica_id: ReplicaId
    rank: int
    version: str
    node_id: NodeId | None
    bundles: tuple[int, ...]
    epoch: int
    group_id: str | None = None
    restart_token: str = ""


@known_to_attrs
class PrepareReplica(Struct, frozen=True, gc=False):
    """Start the user's code of a placed replica without a rank; answer `ReplicaPrepared`, or `ReplicaStartFailed` (V4).

    Given again, with a higher revision, where there is another user_config. `InitializeReplica` gives it its ranks later:
    then nothing of the start-up is done once more.

    Attributes:
        rank: It has none.

    The other attributes are those of `InitializeReplica`.
    """

    initialize: ClassVar[bool] = True
    rank: ClassVar[None] = None

    replica_id: ReplicaId
    world_size: int
    user_config: FrozenJson
    config_id: str | None
    revision: int
    epoch: int


@known_to_attrs
class InitializeReplica(Struct, frozen=True, gc=False):
    """Give a placed replica its ranks and start the user's code; answer `ReplicaReady`, or `ReplicaStartFailed`.

    The user's code of a replica that was prepared is up already, and only told its ranks.

    Attributes:
        rank: All three ranks, adopted before user code runs.
        world_size: The target at this revision (R9).
        user_config: For the user's `reconfigure`, under the conditions of R12.
        config_id: Names the user_config.
        revision: Orders this against other messages to the replica and against `AnnounceWorldSize`.
    """

    initialize: ClassVar[bool] = True

    replica_id: ReplicaId
    rank: ReplicaRank
    world_size: int
    user_config: FrozenJson
    config_id: str | None
    revision: int
    epoch: int


@known_to_attrs
class ReconfigureReplica(Struct, frozen=True, gc=False):
    """Give a running replica other ranks or another user_config; answer `ReplicaReconfigured`, or `ReplicaReconfigureFailed`.

    Attributes:
        user_config: None while `config_id` is not that of None: the replica keeps the config that it has (after a recovery
            the core may know only its name).

    The other attributes are those of `InitializeReplica`.
    """

    initialize: ClassVar[bool] = False

    replica_id: ReplicaId
    rank: ReplicaRank
    world_size: int
    user_config: FrozenJson
    config_id: str | None
    revision: int
    epoch: int


@known_to_attrs
class AnnounceWorldSize(Struct, frozen=True, gc=False):
    """State rather than message: the executor keeps the newest and delivers it to every replica, now and later (R9)."""

    world_size: int
    revision: int
    epoch: int


@known_to_attrs
class StopReplica(Struct, frozen=True, gc=False):
    """Let a replica finish what it is doing, for `timeout_s` at most, then end it; answer `ReplicaStopped`."""

    replica_id: ReplicaId
    timeout_s: float
    epoch: int


@known_to_attrs
class KillReplica(Struct, frozen=True, gc=False):
    """End a replica at once; answer `ReplicaStopped`, also when there is no such replica."""

    replica_id: ReplicaId
    epoch: int


@known_to_attrs
class QueryReplica(Struct, frozen=True, gc=False):
    """Ask a replica what it believes; answer `ReplicaReported`, or `ReplicaMissing`."""

    replica_id: ReplicaId
    epoch: int


@known_to_attrs
class PublishRoutes(Struct, frozen=True, gc=False):
    """Tell the routers which replicas take requests from now on, and which no longer do.

    The first one of an epoch lists them all: a router that has routes of an older epoch forgets those. One that is added before
    it has a rank (V3) is added once more when it is ready with one.
    """

    added: tuple[ReplicaId, ...]
    removed: tuple[ReplicaId, ...]
    revision: int
    epoch: int


@known_to_attrs
class WakeAt(Struct, frozen=True, gc=False):
    """Send `ClockAdvanced` at this time, or soon after; replaces the previous one."""

    at: float
    epoch: int


Command: TypeAlias = (
    StartReplica
    | PrepareReplica
    | InitializeReplica
    | ReconfigureReplica
    | AnnounceWorldSize
    | StopReplica
    | KillReplica
    | QueryReplica
    | PublishRoutes
    | WakeAt
)
