"""What holds weights and answers requests, behind a runner."""

from collections.abc import Callable
from typing import Any, Protocol

from rankcore.residency.commands import LoadToGpu
from rankcore.values import ReplicaId


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
