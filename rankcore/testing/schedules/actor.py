"""A replica of a world of schedules: what its process believes, and where the world has put it."""

from msgspec import Struct

from rankcore.replica.replica import ReplicaHalf
from rankcore.values import ReplicaId, ReplicaRank


class Actor(Struct, gc=False):
    """A replica of the world: its process, and where the world has put it.

    Attributes:
        replica: What the process believes and does.
        wanted_node_id: Where the core wants it; None: anywhere.
        node_id: Where it is; None: nowhere yet.
        corrupted: Whether it takes part in a duplicate that the adversary has made: the exception in R3.
    """

    replica: ReplicaHalf
    wanted_node_id: str | None = None
    node_id: str | None = None
    corrupted: bool = False

    @property
    def replica_id(self) -> ReplicaId:
        """Of the process."""
        return self.replica.replica_id

    @property
    def rank(self) -> ReplicaRank | None:
        """What it believes."""
        return self.replica.rank

    @property
    def first_bundle(self) -> tuple[str, int] | None:
        """What it stands and falls with; None: it was placed freely."""
        replica = self.replica
        return (replica.group_id, replica.bundles[0]) if replica.bundles and replica.group_id else None
