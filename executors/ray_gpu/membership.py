"""Who is who in a deployment's world, once every rank is held: what replicas need to meet in a process group."""

import hashlib

import attrs

from executors.ray_gpu.messages import Ranks


@attrs.frozen
class Membership:
    """A complete world: every rank from 0 to world_size - 1 has a holder.

    Attributes:
        generation: Names this membership; another holder or rank anywhere is another generation.
        members: Replica id and ranks, by global rank.
    """

    generation: str
    members: tuple[tuple[str, Ranks], ...]

    @classmethod
    def of(cls, holders: dict[int, tuple[str, Ranks]], world_size: int) -> "Membership | None":
        """The world of these holders, by global rank; None: it is not complete."""
        if sorted(holders) != list(range(world_size)):
            return None
        members = tuple(holders[rank] for rank in range(world_size))
        return cls(hashlib.sha256(repr(members).encode()).hexdigest()[:16], members)

    @property
    def world_size(self) -> int:
        """How many there are."""
        return len(self.members)

    def ranks_of(self, replica_id: str) -> Ranks | None:
        """A replica's ranks in this world; None: it is no member."""
        return next((ranks for member, ranks in self.members if member == replica_id), None)

    def local_world_size(self, node_rank: int) -> int:
        """How many of them are on a node."""
        return sum(1 for _, (_, node, _) in self.members if node == node_rank)
