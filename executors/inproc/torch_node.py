"""One node whose weights really move: between safetensors files, its memory and its devices. Needs torch."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

from executors.inproc.node import NotThereError
from executors.torch_weights import Device, Level, LocalAgreement, ResidentWeights, WarmStore, declared_in, look_at
from executors.torch_weights.layout import fullest_parts
from rankcore import DeploymentSpec
from rankcore.cluster import EntrySpec
from rankcore.cluster.events import NodeJoined
from rankcore.cluster.residency import ResidencySpec, WorkerId
from rankcore.residency.commands import LoadToGpu
from rankcore.values import NodeId


@attrs.frozen(kw_only=True)
class TorchModel:
    """A model that a node can serve.

    Attributes:
        path: Its safetensors file, or a folder of them.
        build: Makes the module; its parameters come from the file, so it is called with "meta" as the device.
        call: Does one request with it, in a thread; without gradients.
        check_ready: Whether it takes calls for now (`executors.inproc.node.ReadyNode`), in a thread; None: whenever it is HOT.
    """

    path: Path
    build: Callable[[], nn.Module]
    call: Callable[[nn.Module, Any], Any]
    check_ready: Callable[[nn.Module], object] | None = None

    def spec(self, deployment: str, *, version: str = "", replicas: int = 0, **options: Any) -> EntrySpec:
        """What a cluster is to know of it: the bytes of its files, and which weights they are.

        Args:
            deployment: `application/deployment`; a node knows its model by this.
            version: Of its code. That of the weights is put behind it: files that were changed since are another version,
                and a load that finds others than were declared here fails.
            replicas: How many are wanted HOT; 0: one, once it is called.
            options: Of `DeploymentSpec`, `EntrySpec` and `ResidencySpec`.

        Raises:
            WeightsFileError: The files cannot be read, or are not what they may be.
            InvalidSpecError: An option is not what it may be.
        """
        files = look_at(self.path)
        taken = sum(size for _, _, size, _ in files.stamps)
        of_entry, of_weights = (
            {each.name: options.pop(each.name) for each in attrs.fields(kind) if each.name in options}
            for kind in (EntrySpec, ResidencySpec)
        )
        ranks = DeploymentSpec(name=deployment, target_replicas=replicas, version=f"{version}{files.declared()}", **options)
        if of_weights.get("gpus") is None:
            shards = fullest_parts(files.tensors, of_weights.get("working_bytes", 0))
            of_weights = {"shard_bytes": shards, **of_weights}
        residency = ResidencySpec(weight_bytes=taken, weights=str(self.path), **of_weights)
        return EntrySpec(ranks=ranks, residency=residency, **of_entry)


@attrs.frozen
class _Loaded:
    """What has the weights of a worker on these GPUs, in this version."""

    model: TorchModel
    gpus: tuple[int, ...]
    version: str
    module: nn.Module
    weights: ResidentWeights


class TorchNode:
    """Holds the weights of the workers on one node, and answers with them.

    Args:
        node_id: As the cluster knows it.
        devices: Its GPUs, by number, or what stands for them.
        store: Its copies in CPU memory.
        models: What can be loaded, by deployment.
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
        self._loaded: dict[WorkerId, _Loaded] = {}
        self._agreed: dict[tuple[str, str], LocalAgreement] = {}

    def joined(self, at: float) -> NodeJoined:
        """What a cluster is told of this node: what its devices have in all, measured."""
        sizes = tuple(device.memory().total_bytes for device in self._devices)
        return NodeJoined(node_id=self.node_id, resources={}, gpu_bytes=sizes, cpu_bytes=self._cpu_bytes, at=at)

    def level(self, worker_id: WorkerId) -> Level:
        """Where the weights of a worker are."""
        loaded = self._loaded.get(worker_id)
        return Level.COLD if loaded is None else loaded.weights.level

    async def load(self, command: LoadToGpu, progress: Callable[[int], None]) -> None:
        """Bring a worker's weights to its GPUs, from the copy in CPU memory if there is one.

        Raises:
            WeightsChangedError: The files are not those that it was deployed with (`TorchModel.spec`).
        """
        before = self._loaded.get(command.replica_id)
        if before is not None and (before.gpus, before.version) == (command.gpus, command.version):
            await before.weights.from_cache(lambda done, _: progress(done))
            return
        # Its copy in CPU memory is found by whoever has the same files, and lives until nobody holds it.
        loaded = self._made(command)
        try:
            await loaded.weights.from_cache(lambda done, _: progress(done))
        except BaseException:
            await loaded.weights.aclose()
            raise
        self._loaded[command.replica_id] = loaded
        if before is not None:
            await before.weights.aclose()

    async def offload(self, worker_id: WorkerId) -> None:
        """Copy the weights to CPU memory and free the GPUs."""
        await self._loaded[worker_id].weights.to_cache()

    async def drop(self, worker_id: WorkerId) -> None:
        """Forget the worker: its file is what is left."""
        loaded = self._loaded.pop(worker_id, None)
        if loaded is not None:
            await loaded.weights.aclose()

    async def answer(self, worker_id: WorkerId, payload: Any) -> Any:
        """Do a request in a thread."""
        loaded = self._loaded.get(worker_id)
        if loaded is None or loaded.weights.level is not Level.HOT:
            raise NotThereError(f"{worker_id} is not on a GPU")
        return await asyncio.to_thread(_called, loaded, payload)

    async def check_ready(self, worker_id: WorkerId) -> object:
        """Ask the model in a thread; one that is not HOT takes no calls."""
        loaded = self._loaded.get(worker_id)
        if loaded is None or loaded.weights.level is not Level.HOT:
            return False
        check = loaded.model.check_ready
        return check is None or await asyncio.to_thread(check, loaded.module)

    async def aclose(self) -> None:
        """Give up all that is held."""
        for worker_id in sorted(self._loaded):
            await self.drop(worker_id)

    def _made(self, command: LoadToGpu) -> _Loaded:
        model = self._models[command.model]
        with torch.device("meta"):
            module = model.build()
        devices = [self._devices[number] for number in command.gpus]
        expected = declared_in(command.version)
        agreed = None  # any weights will do, unless some were declared
        if expected is not None:
            agreed = self._agreed.setdefault((command.model, command.version), LocalAgreement())
        weights = ResidentWeights(model.path, devices, self._store, module=module, expected=expected, agreed=agreed)
        return _Loaded(model, command.gpus, command.version, module, weights)


def _called(loaded: _Loaded, payload: Any) -> Any:
    with torch.no_grad():
        return loaded.model.call(loaded.module, payload)
