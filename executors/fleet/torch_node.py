"""One node of a fleet whose weights really move: between safetensors files, its memory and its devices. Needs torch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

from executors.fleet.node import NotThereError
from executors.torch_weights import Device, Level, ResidentWeights, WarmStore, declared_in, look_at
from rankcore.residency import ModelSpec
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import NodeJoined
from rankcore.values import NodeId, ReplicaId


@attrs.frozen(kw_only=True)
class TorchModel:
    """A model that a node can serve.

    Attributes:
        path: Its safetensors file, or a folder of them.
        build: Makes the module; its parameters come from the file, so it is called with "meta" as the device.
        call: Does one request with it, in a thread; without gradients.
    """

    path: Path
    build: Callable[[], nn.Module]
    call: Callable[[nn.Module, Any], Any]

    def spec(self, model: str, *, version: str = "", **options: Any) -> ModelSpec:
        """What the planner is to know of it: the bytes of its files, and which weights they are.

        Args:
            model: Its name.
            version: Of its code. That of the weights is put behind it: files that were changed since are another version,
                and a load that finds others than were declared here fails.
            options: Of `ModelSpec`.

        Raises:
            WeightsFileError: The files cannot be read, or are not what they may be.
            InvalidSpecError: An option is not what it may be.
        """
        files = look_at(self.path)
        taken = sum(size for _, _, size, _ in files.stamps)
        return ModelSpec(model=model, weight_bytes=taken, version=f"{version}{files.declared()}", **options)


@attrs.frozen
class _Replica:
    """What has the weights of a replica on these GPUs, in this version."""

    model: TorchModel
    gpus: tuple[int, ...]
    version: str
    module: nn.Module
    weights: ResidentWeights


class TorchNode:
    """Holds the weights of the replicas on one node, and answers with them.

    Args:
        node_id: As the planner knows it.
        devices: Its GPUs, by number, or what stands for them.
        store: Its copies in CPU memory.
        models: What can be loaded, by name.
        cpu_bytes: The budget for copies in CPU memory.
    """

    def __init__(
        self, node_id: NodeId, devices: Sequence[Device], store: WarmStore, models: Mapping[str, TorchModel], *, cpu_bytes: int
    ) -> None:
        self.node_id = node_id
        self._devices = tuple(devices)
        self._store = store
        self._models = dict(models)
        self._cpu_bytes = cpu_bytes
        self._replicas: dict[ReplicaId, _Replica] = {}

    def joined(self, at: float) -> NodeJoined:
        """What the fleet is told of this node: what its devices have in all, measured."""
        sizes = tuple(device.memory().total_bytes for device in self._devices)
        return NodeJoined(node_id=self.node_id, gpu_bytes=sizes, cpu_bytes=self._cpu_bytes, at=at)

    def level(self, replica_id: ReplicaId) -> Level:
        """Where the weights of a replica are."""
        replica = self._replicas.get(replica_id)
        return Level.COLD if replica is None else replica.weights.level

    async def load(self, command: LoadToGpu, progress: Callable[[int], None]) -> None:
        """Bring a replica's weights to its GPUs, from the copy in CPU memory if there is one.

        Raises:
            WeightsChangedError: The files are not those that the model was deployed with (`TorchModel.spec`).
        """
        before = self._replicas.get(command.replica_id)
        if before is not None and (before.gpus, before.version) == (command.gpus, command.version):
            await before.weights.from_cache(lambda done, _: progress(done))
            return
        # Its copy in CPU memory is found by whoever has the same files, and lives until nobody holds it.
        replica = self._made(command)
        try:
            await replica.weights.from_cache(lambda done, _: progress(done))
        except BaseException:
            await replica.weights.aclose()
            raise
        self._replicas[command.replica_id] = replica
        if before is not None:
            await before.weights.aclose()

    async def offload(self, replica_id: ReplicaId) -> None:
        """Copy the weights to CPU memory and free the GPUs."""
        await self._replicas[replica_id].weights.to_cache()

    async def unload(self, replica_id: ReplicaId) -> None:
        """Free the GPUs; a copy from which a load was broken off stays."""
        replica = self._replicas.get(replica_id)
        if replica is not None and replica.weights.level is not Level.WARM:
            await self.drop(replica_id)

    async def drop(self, replica_id: ReplicaId) -> None:
        """Forget the replica: its file is what is left."""
        replica = self._replicas.pop(replica_id, None)
        if replica is not None:
            await replica.weights.aclose()

    async def answer(self, replica_id: ReplicaId, payload: Any) -> Any:
        """Do a request in a thread."""
        replica = self._replicas.get(replica_id)
        if replica is None or replica.weights.level is not Level.HOT:
            raise NotThereError(f"replica {replica_id} is not on a GPU")
        return await asyncio.to_thread(_called, replica, payload)

    async def aclose(self) -> None:
        """Give up all that is held."""
        for replica_id in sorted(self._replicas):
            await self.drop(replica_id)

    def _made(self, command: LoadToGpu) -> _Replica:
        model = self._models[command.model]
        with torch.device("meta"):
            module = model.build()
        devices = [self._devices[number] for number in command.gpus]
        expected = declared_in(command.version)
        weights = ResidentWeights(model.path, devices, self._store, module=module, expected=expected)
        return _Replica(model, command.gpus, command.version, module, weights)


def _called(replica: _Replica, payload: Any) -> Any:
    with torch.no_grad():
        return replica.model.call(replica.module, payload)
