"""The memory of one node: what it has, and the objects through which weights get there. Runs on that node."""

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import attrs
import torch

from executors.private_folder import home_in, made, temporary
from executors.ray_gpu.worker.options import DeviceKind, MemoryOptions
from executors.torch_weights import Cuda, Device, StandIn, WarmStore
from executors.torch_weights.errors import InvalidMemoryError
from executors.torch_weights.leases import OWN, LeaseFolder

SHARED_MEMORY = Path("/dev/shm")
NAME_CHARACTERS_MAX = 100
GONE_S = 5.0
"""So long a process that was killed may take to give its memory back."""
LOOK_AGAIN_S = 0.05


@attrs.frozen
class NodeMemory:
    """What may be used of one node: the bytes of each GPU, and those for WARM copies."""

    gpu_bytes: tuple[int, ...]
    cpu_bytes: int


@attrs.frozen
class Places:
    """Where the weights of one node are, the same for all processes there."""

    options: MemoryOptions
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
        return made(_folder(self.namespace, self.node_id))


def _base() -> Path:
    """This user's folder in memory: other users can neither put anything there nor take its name."""
    return home_in(SHARED_MEMORY if SHARED_MEMORY.is_dir() else temporary())


def _folder(namespace: str, node_id: str) -> Path:
    name = quote(namespace, safe="")
    if len(name) > NAME_CHARACTERS_MAX:
        name = hashlib.sha256(namespace.encode()).hexdigest()
    return _base() / f"fleet-{name}-{node_id[:16]}"


def free_unheld(folder: Path) -> int:
    """Give back what processes that were killed have left in a folder; returns how many files living ones hold there."""
    held = 0
    for lock in folder.rglob(OWN):
        with suppress(OSError, InvalidMemoryError):
            leases = LeaseFolder(lock.parent)
            with leases.locked():
                held += len(leases.held())
    return held


def forget(namespace: str, node_id: str) -> None:
    """Leave nothing of a fleet that has ended in the memory of this node. Waits a little for processes that were killed."""
    folder, until = _folder(namespace, node_id), time.monotonic() + GONE_S
    while free_unheld(folder):
        if time.monotonic() > until:
            return
        time.sleep(LOOK_AGAIN_S)
    shutil.rmtree(folder, ignore_errors=True)


def measure(options: MemoryOptions) -> NodeMemory:
    """What this node has now, once it has back what fleets that were killed have left there."""
    for folder in _base().glob("fleet-*"):
        free_unheld(folder)
    gpus = options.stand_in_gpu_bytes
    if _on_gpus(options):
        sizes = [torch.cuda.mem_get_info(number)[1] for number in range(torch.cuda.device_count())]
        gpus = tuple(max(1, size - options.gpu_reserve_bytes) for size in sizes)
    cache = options.cache_bytes
    return NodeMemory(gpu_bytes=gpus, cpu_bytes=_available_bytes() // 2 if cache is None else cache)


def _on_gpus(options: MemoryOptions) -> bool:
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
