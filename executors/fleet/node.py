"""What holds weights and answers requests, behind a runner."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from rankcore.residency.commands import LoadToGpu
from rankcore.values import ReplicaId, ReplicaRank


class NotThereError(Exception):
    """A replica is not there, and has not begun the request: somebody else may do it."""


class WeightsNode(Protocol):
    """The weights of replicas on one node or several. It decides nothing; what raises has left all as it was."""

    async def load(self, command: LoadToGpu, progress: Callable[[int], None]) -> None:
        """Bring a replica's weights to its GPUs. Who is cancelled leaves them where they were.

        Args:
            progress: To be told how many bytes have arrived, in the event loop.
        """

    async def offload(self, replica_id: ReplicaId) -> None:
        """Bring them to CPU memory, and free the GPUs."""

    async def unload(self, replica_id: ReplicaId) -> None:
        """Free the GPUs; a copy in CPU memory that is there already stays."""

    async def drop(self, replica_id: ReplicaId) -> None:
        """Free the GPUs and the CPU memory."""

    async def answer(self, replica_id: ReplicaId, payload: Any) -> Any:
        """Do a request.

        Raises:
            NotThereError: The replica is not HOT.
            Exception: Whatever the model raises.
        """


@runtime_checkable
class RankedNode(Protocol):
    """What a node may have beside the methods of `WeightsNode`, for models whose replicas have ranks (D12)."""

    async def reconfigure(self, replica_id: ReplicaId, rank: ReplicaRank, world_size: int, user_config: Any) -> None:
        """A replica that is HOT has this rank from now on: its first one, before its first request, or another one.

        Args:
            user_config: `RankSpec.user_config`; None: as before, or none.

        Raises:
            Exception: Whatever the model raises. The replica is lost then, and loaded again.
        """
