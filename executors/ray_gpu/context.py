"""What user code can ask about the replica that it runs in. Replica processes import this: it needs nothing of the core."""

from typing import TYPE_CHECKING, Any

import attrs

from executors.ray_gpu.errors import NotInReplicaError
from executors.ray_gpu.messages import NO_RANKS, Ranks
from rankcore.errors import RankNotAssignedError

if TYPE_CHECKING:
    from rankcore import ReplicaRank


def replica_rank(ranks: Ranks) -> "ReplicaRank":
    """The three ranks as users see them. The core is imported by the first replica that asks, not by all."""
    from rankcore import ReplicaRank

    return ReplicaRank(*ranks)


@attrs.frozen
class DeploymentID:
    """Which deployment a replica is of, with the names of Ray Serve."""

    name: str
    app_name: str


class ReplicaID(str):
    """A replica's id: `application/deployment#1.0`, with the attributes of Ray Serve's."""

    __slots__ = ()

    @property
    def unique_id(self) -> str:
        """It is never used again, in this deployment or any other."""
        return str(self)

    @property
    def deployment_id(self) -> DeploymentID:
        """Of its deployment."""
        app_name, _, name = self.rpartition("#")[0].rpartition("/")
        return DeploymentID(name, app_name)

    def to_full_id_str(self) -> str:
        """As text."""
        return str(self)


@attrs.frozen
class ReplicaContext:
    """What a replica knows of its place, at the moment it was asked for.

    Attributes:
        app_name: Of the application that the deployment was run as.
        deployment: Its name in the application.
        replica_id: Of this replica; never used again once it is gone.
        ranks: rank, node_rank and local_rank as plain numbers; `NO_RANKS` while it is prepared without.
        world_size: The target number of replicas.
        node_id: Of the node it runs on, as Ray names it.
        namespace: Of the controller.
        bundle_indices: Of a static placement: its bundles in the placement group, the first of which it runs on. Else empty.
        code_version: Of what is deployed.
        gang_context: As in Ray Serve of a replica that is in no gang, which none is here.
        servable_object: The user's instance; None while its `__init__` runs, and for a function.
    """

    app_name: str
    deployment: str
    replica_id: ReplicaID = attrs.field(converter=ReplicaID)
    ranks: Ranks
    world_size: int
    node_id: str
    namespace: str
    bundle_indices: list[int] = attrs.field(factory=list)
    servable_object: Any = None
    code_version: str | None = None
    gang_context: None = attrs.field(default=None, init=False)

    @property
    def rank(self) -> "ReplicaRank":
        """rank, node_rank and local_rank.

        Raises:
            RankNotAssignedError: It has none yet: it is prepared while its predecessor has it (`hand_over`).
        """
        if self.ranks == NO_RANKS:
            raise RankNotAssignedError(self.replica_id)
        return replica_rank(self.ranks)

    @property
    def rank_or_none(self) -> "ReplicaRank | None":
        """The same; None: it has none yet."""
        return None if self.ranks == NO_RANKS else replica_rank(self.ranks)

    @property
    def deployment_id(self) -> str:
        """What the controller calls the deployment: the replica's id begins with it."""
        return self.replica_id.rpartition("#")[0]

    @property
    def replica_tag(self) -> str:
        """The replica's id, under the name that it has in Ray Serve."""
        return self.replica_id


_current: ReplicaContext | None = None  # of this process: it is one replica's at a time


def set_context(context: ReplicaContext | None) -> None:
    """Adopt new ranks or a new world size; the replica does it before user code runs. None: it is no replica any more."""
    global _current
    _current = context


def get_replica_context() -> ReplicaContext:
    """Where this replica stands now. Ask again rather than keep it: ranks and world size change.

    Raises:
        NotInReplicaError: This process is no replica, or not initialised yet.
    """
    if _current is None:
        raise NotInReplicaError(
            "get_replica_context() was called outside a replica: call it in __init__ or a method of a deployed class"
        )
    return _current
