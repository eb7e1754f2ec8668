"""What holds weights and answers calls with them, behind a cluster in one process."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from rankcore.cluster.residency import WorkerId
from rankcore.residency.commands import LoadToGpu
from rankcore.values import ReplicaRank


class NotThereError(Exception):
    """A worker is not HOT, and has not begun the call: another one may do it."""


class WeightsNode(Protocol):
    """The weights of workers on one node or several. It decides nothing; what raises has left all as it was."""

    async def load(self, command: LoadToGpu, progress: Callable[[int], None]) -> None:
        """Bring a worker's weights to its GPUs, from the copy in CPU memory if there is one.

        If it is cancelled, they are where they were, or HOT. What it raises may have an attribute `wrong_weights`, which is
        True where what is on the node are not the weights of that version: they are looked for on another node then.

        Args:
            command: `replica_id` is the worker, `model` its deployment, `version` that of the deployment.
            progress: To be called with how many bytes have arrived, in the event loop.
        """

    async def offload(self, worker_id: WorkerId) -> None:
        """Copy them to CPU memory, and free the GPUs; nothing, where only a copy is there."""

    async def drop(self, worker_id: WorkerId) -> None:
        """Free the GPUs and the CPU memory. There may be nothing to free."""

    async def answer(self, worker_id: WorkerId, payload: Any) -> Any:
        """Do a call.

        Raises:
            NotThereError: The worker is not HOT.
            Exception: Whatever the model raises.
        """


@runtime_checkable
class RankedNode(Protocol):
    """What a node may have beside the methods of `WeightsNode`, for models whose replicas make use of their ranks."""

    async def reconfigure(self, worker_id: WorkerId, rank: ReplicaRank, world_size: int, user_config: Any) -> None:
        """A worker that is HOT is a replica of this rank from now on: its first one, before its first call, or another one.

        Args:
            user_config: `DeploymentSpec.user_config`; None: as before, or none.

        Raises:
            Exception: Whatever the model raises. The replica leaves the GPUs then, and is started again.
        """


@runtime_checkable
class ReadyNode(Protocol):
    """What a node may have beside the methods of `WeightsNode`, for models that can say whether they take calls (V16)."""

    async def check_ready(self, worker_id: WorkerId) -> object:
        """Whether a worker that is HOT, and has its rank, takes calls for now: asked as its start-up ends, and every
        `health_check_period_s` from then on. False, or what it raises: it does not; new calls wait, or go to others.
        """
