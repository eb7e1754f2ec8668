"""The memory of one node: what it has, and the objects through which weights get there. Runs on that node."""

import os
import tempfile
from pathlib import Path

import attrs
import torch

from executors.ray_gpu.residency.options import DeviceKind, FleetOptions
from executors.torch_weights import Cuda, Device, StandIn, WarmStore

SHARED_MEMORY = Path("/dev/shm")


@attrs.frozen
class NodeMemory:
    """What a fleet may use of one node: the bytes of each GPU, and those for WARM copies."""

    gpu_bytes: tuple[int, ...]
    cpu_bytes: int


@attrs.frozen
class Places:
    """Where the weights of one node are, the same for all processes there."""

    options: FleetOptions
    namespace: str
    node_id: str
    memory: NodeMemory

    def device(self, number: int) -> Device:
        """A GPU, or what stands for it."""
        if _on_gpus(self.options):
            return Cuda(number)
        return StandIn(self.memory.gpu_bytes[number], self._folder() / "devices", f"stand-in:{number}")

    def warm_store(self) -> WarmStore:
        """The copies in the node's memory."""
        return WarmStore(self._folder() / "warm", self.memory.cpu_bytes)

    def _folder(self) -> Path:
        base = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
        return base / f"rankcore-{os.getuid()}-{self.namespace}-{self.node_id[:16]}"


def measure(options: FleetOptions) -> NodeMemory:
    """What this node has now."""
    gpus = options.stand_in_gpu_bytes
    if _on_gpus(options):
        sizes = [torch.cuda.mem_get_info(number)[1] for number in range(torch.cuda.device_count())]
        gpus = tuple(max(1, size - options.gpu_reserve_bytes) for size in sizes)
    cache = options.cache_bytes
    return NodeMemory(gpu_bytes=gpus, cpu_bytes=_available_bytes() // 2 if cache is None else cache)


def _on_gpus(options: FleetOptions) -> bool:
    if options.device is DeviceKind.AUTO:
        return torch.cuda.is_available()
    return options.device is DeviceKind.CUDA


def _available_bytes() -> int:
    """Of memory: what the system could give, and what fits where copies are."""
    with open("/proc/meminfo", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    available = int(lines["MemAvailable"].split()[0]) * 1024
    if SHARED_MEMORY.is_dir():
        room = os.statvfs(SHARED_MEMORY)
        available = min(available, room.f_bavail * room.f_frsize)
    return available
