"""A device for machines without a GPU: memory of the host with a byte budget, which all processes of the node share."""

import contextlib
import ctypes
import mmap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from executors.torch_weights.device import Device, DeviceBuffer, DeviceMemory, Lane, check_bytes
from executors.torch_weights.errors import OutOfDeviceMemory
from executors.torch_weights.leases import LeaseFolder

POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE of Linux 5.14, which the module mmap does not name."""
POPULATED_AT_ONCE = 64 * 2**20


class StandIn(Device):
    """Stands for a GPU.

    Args:
        total_bytes: What it has. All who use it say the same.
        folder: Where processes tell each other what they took; the same for all, in memory or on disk.
        name: Of the device; stand-ins of other names share nothing.
    """

    def __init__(self, total_bytes: int, folder: Path, name: str = "stand-in:0") -> None:
        self.name = name
        self.torch_device = torch.device("cpu")
        self._total_bytes = check_bytes("total_bytes of a device", total_bytes, 1)
        self._taken = LeaseFolder(folder / name.replace(":", "-"))

    def memory(self) -> DeviceMemory:
        """What is free: all that no living process has taken."""
        with self._taken.locked():
            return DeviceMemory(self._free_bytes(), self._total_bytes)

    def allocate(self, nbytes: int, spare_bytes: int = 0) -> DeviceBuffer:
        """Take memory; see `Device.allocate`."""
        check_bytes("bytes to allocate", nbytes)
        with self._taken.locked():
            free = self._free_bytes()
            if nbytes + spare_bytes > free:
                raise OutOfDeviceMemory(self.name, nbytes + spare_bytes, free, self._total_bytes)
            # A size, without any block behind it.
            lease = self._taken.take(uuid.uuid4().hex, nbytes)
        try:
            return DeviceBuffer(self, _memory(nbytes), lambda: (lease.release(), None)[1])
        except BaseException:
            lease.release()
            raise

    def _free_bytes(self) -> int:
        return max(0, self._total_bytes - sum(each.st_size for each in self._taken.held().values()))

    @contextlib.contextmanager
    def lane(self) -> Iterator[Lane]:
        """Copies that are done when they return."""
        yield _CopyLane()

    def pin(self, data: Tensor) -> Callable[[], None] | None:
        """Nothing to do: all memory is the host's."""
        return lambda: None


def _memory(nbytes: int) -> Tensor:
    """Memory of the process that is there: a GPU's need not be found page by page when it is first written either."""
    if not nbytes:
        return torch.empty(0, dtype=torch.uint8)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    with contextlib.suppress(OSError, ValueError):
        for begin in range(0, nbytes, POPULATED_AT_ONCE):
            pages.madvise(POPULATE_WRITE, begin, min(POPULATED_AT_ONCE, nbytes - begin))
    return torch.frombuffer(pages, dtype=torch.uint8)


class _CopyLane(Lane):
    def staging(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def upload(self, target: Tensor, source: Tensor) -> Callable[[], None]:
        # As a copy engine does: without the interpreter's lock, and without a team of threads that waits for every processor.
        ctypes.memmove(target.data_ptr(), source.data_ptr(), target.numel())
        return _done

    def download(self, target: Tensor, source: Tensor) -> Callable[[], None]:
        return self.upload(target, source)


def _done() -> None:
    """Nothing to wait for."""
