"""Warm copies: weights in the memory of a node, once per model, whoever of its processes has use for them.

A copy is a file in a folder that is memory (`/dev/shm`), and lives as long as a process holds it (see `leases`). Its first
page says whether it is complete and how far it is; the tensors follow as one block. One process fills it, the others wait
for it, and take over where the one that fills dies or gives up.
"""

import contextlib
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from executors.torch_weights.device import check_bytes
from executors.torch_weights.errors import OutOfHostMemory, WeightsError
from executors.torch_weights.leases import Lease, LeaseFolder
from executors.torch_weights.progress import Progress

HEAD_BYTES = 4096
_HEAD = struct.Struct("<8sQQQ")
"""Magic, 1 when complete, bytes of the block, bytes written."""
_MAGIC = b"RCWARM1\0"
LOOK_AGAIN_S = 0.02


class Write(Protocol):
    """Puts bytes into a copy that is being made."""

    def __call__(self, offset: int, data: Tensor) -> None:
        """Data: uint8 of one dimension, in memory of the host; it may be used again afterwards. Any thread may call."""


Fill = Callable[[Write], None]
"""Writes a whole block, in any order."""


class WarmCopy:
    """One holder's share in a warm copy.

    Attributes:
        data: uint8 of shape (nbytes,), which all processes see: not to be written. Gone after `release`.
    """

    def __init__(self, lease: Lease, nbytes: int) -> None:
        self._lease = lease
        self.nbytes = nbytes
        self._data: Tensor | None = _mapped(lease.descriptor, nbytes)
        self._unpin: Callable[[], None] | None = None

    @property
    def data(self) -> Tensor:
        """The bytes."""
        if self._data is None:
            raise WeightsError("a warm copy was used after its release")
        return self._data

    @property
    def pinned(self) -> bool:
        """Whether it is copied at full speed."""
        return self._unpin is not None

    def pin(self, pin: Callable[[Tensor], Callable[[], None] | None]) -> None:
        """Have a device lock it (`Device.pin`), once."""
        if self._unpin is None:
            self._unpin = pin(self.data)

    def let_go(self) -> bool:
        """Hold it no more, which takes no time; True: nobody else held it. Its memory is free once it is unmapped too."""
        return self._lease.release()

    def unmap(self) -> None:
        """Give the memory back, which takes a tenth of a second per GB."""
        try:
            if self._unpin is not None:
                self._unpin()
        finally:
            self._unpin = self._data = None

    def release(self) -> bool:
        """Let go and unmap; True: nobody else held it, and its memory is free. A second time nothing happens."""
        removed = self.let_go()
        self.unmap()
        return removed


def _mapped(descriptor: int, nbytes: int) -> Tensor:
    if not nbytes:
        return torch.empty(0, dtype=torch.uint8)
    # All pages at once: found one by one they would slow down the first move that reads them.
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    return torch.frombuffer(mmap.mmap(descriptor, HEAD_BYTES + nbytes, flags=flags), dtype=torch.uint8, offset=HEAD_BYTES)


class WarmStore:
    """The warm copies of a node.

    Args:
        folder: Memory that all processes of the node see: below `/dev/shm`, on Linux. It is made if need be.
        budget_bytes: What copies may take in all; None: what the folder has free.
    """

    def __init__(self, folder: Path, budget_bytes: int | None = None) -> None:
        self._copies = LeaseFolder(folder / "warm")
        self._place = f"memory for warm copies ({self._copies.path})"
        self._budget_bytes = None if budget_bytes is None else check_bytes("budget_bytes of warm copies", budget_bytes)

    def used_bytes(self) -> int:
        """What copies take that somebody holds. What nobody holds any more is freed."""
        with self._copies.locked():
            return sum(each.st_size for each in self._copies.held().values())

    def acquire(self, key: str, nbytes: int, fill: Fill, progress: Progress) -> WarmCopy:
        """The copy of that name: the one that is there, or a new one.

        Where another process fills it, its progress is told and `fill` is not called.

        Args:
            key: The same for the same weights only.
            nbytes: Of the block.
            fill: Called in this thread, at most once.
            progress: Is told of every byte that is written, here or elsewhere.

        Raises:
            OutOfHostMemory: There is no room. Nothing was taken.
            MoveCancelledError: It was told to stop. Nothing is held.
        """
        lease = self._take(key, check_bytes("bytes of a warm copy", nbytes))
        try:
            while not _complete(lease.descriptor, nbytes):
                with self._copies.filling(lease) as ours:
                    if ours and not _complete(lease.descriptor, nbytes):
                        self._fill(lease, nbytes, fill)
                if not ours:
                    progress.wait(LOOK_AGAIN_S)
                    progress.reach(_written(lease.descriptor))
            return WarmCopy(lease, nbytes)
        except BaseException:
            lease.release()
            raise

    def find(self, key: str, nbytes: int) -> WarmCopy | None:
        """The copy of that name, if there is one and it is complete."""
        with self._copies.locked():
            if key not in self._copies.held():
                return None
            lease = self._copies.take(key, HEAD_BYTES + nbytes)
        try:
            if _complete(lease.descriptor, nbytes):
                return WarmCopy(lease, nbytes)
        except BaseException:
            lease.release()
            raise
        lease.release()
        return None

    def _take(self, key: str, nbytes: int) -> Lease:
        with self._copies.locked():
            held = self._copies.held()
            if key not in held:
                self._check_room(nbytes + HEAD_BYTES, list(held.values()))
            # Its size counts at once, so that two who come together do not both get the last room.
            return self._copies.take(key, HEAD_BYTES + nbytes)

    def _check_room(self, asked_bytes: int, held: Sequence[os.stat_result]) -> None:
        folder = os.statvfs(self._copies.path)
        total = folder.f_blocks * folder.f_frsize
        # Copies that are being filled have their size before they have their memory (st_blocks are of 512 bytes).
        promised = sum(max(0, each.st_size - each.st_blocks * 512) for each in held)
        free = min(folder.f_bavail * folder.f_frsize, _available_bytes(total)) - promised
        if self._budget_bytes is not None:
            total = min(total, self._budget_bytes)
            free = min(free, self._budget_bytes - sum(each.st_size for each in held))
        if asked_bytes > free:
            raise OutOfHostMemory(self._place, asked_bytes, max(0, free), total)

    def _fill(self, lease: Lease, nbytes: int, fill: Fill) -> None:
        with self._full_is_out_of_memory(nbytes):
            _say(lease.descriptor, 0, nbytes, 0)
        # Mapped, since a write of the file would wait for the one of another thread to end. A file that was removed keeps its
        # memory as long as any of it is mapped.
        with contextlib.closing(mmap.mmap(lease.descriptor, HEAD_BYTES)) as head:
            self._fill_below(head, lease, nbytes, fill)

    def _fill_below(self, head: mmap.mmap, lease: Lease, nbytes: int, fill: Fill) -> None:
        written = 0
        one_at_a_time = threading.Lock()

        def write(offset: int, data: Tensor) -> None:
            nonlocal written
            # Written and not mapped: a full folder is an error of the call then, and not the end of the process.
            with self._full_is_out_of_memory(nbytes):
                _write_all(lease.descriptor, HEAD_BYTES + offset, data)
            with one_at_a_time:
                written += data.numel()
                _HEAD.pack_into(head, 0, _MAGIC, 0, nbytes, written)

        with self._full_is_out_of_memory(nbytes):
            fill(write)
            if os.fstat(lease.descriptor).st_blocks * 512 < HEAD_BYTES + nbytes:
                # A page that nobody wrote would have to be found when it is read, where there is no error to return.
                os.posix_fallocate(lease.descriptor, 0, HEAD_BYTES + nbytes)
            _say(lease.descriptor, 1, nbytes, nbytes)

    @contextlib.contextmanager
    def _full_is_out_of_memory(self, nbytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            folder = os.statvfs(self._copies.path)
            free, total = folder.f_bavail * folder.f_frsize, folder.f_blocks * folder.f_frsize
            raise OutOfHostMemory(self._place, nbytes, free, total) from error


def _write_all(descriptor: int, offset: int, data: Tensor) -> None:
    rest = data.numpy().data
    while len(rest):
        done = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[done:], offset + done


def _say(descriptor: int, complete: int, nbytes: int, written: int) -> None:
    os.pwrite(descriptor, _HEAD.pack(_MAGIC, complete, nbytes, written), 0)


def _head(descriptor: int) -> tuple[bytes, int, int, int]:
    found: tuple[bytes, int, int, int] = _HEAD.unpack(os.pread(descriptor, _HEAD.size, 0).ljust(_HEAD.size, b"\0"))
    return found


def _complete(descriptor: int, nbytes: int) -> bool:
    magic, complete, said, _ = _head(descriptor)
    return magic == _MAGIC and complete == 1 and said == nbytes


def _written(descriptor: int) -> int:
    return _head(descriptor)[3]


def _available_bytes(otherwise: int) -> int:
    """What the machine could give without taking it from anybody. Linux says; elsewhere the folder alone is asked."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return otherwise
