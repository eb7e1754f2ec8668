"""A device that weights can be on: what a GPU and its stand-in have in common.

Moves know nothing else of a device. `cuda` has GPUs; `stand_in` has a byte budget in the memory of the machine, so that the
same moves run, and are tested, where there is no GPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

import attrs
import torch
from torch import Tensor

from executors.torch_weights.errors import InvalidMemoryError, StillHeldError

BYTES_MAX = 2**53
"""No more is asked for by anybody who means it."""


@attrs.frozen
class DeviceMemory:
    """What a device says of itself, now, whoever uses it."""

    free_bytes: int
    total_bytes: int


class DeviceBuffer:
    """One block of a device's memory.

    Attributes:
        device: Whose it is.
        nbytes: How much.
        data: uint8 of shape (nbytes,) on the device, until it is freed.
    """

    def __init__(self, device: "Device", data: Tensor, give_back: Callable[[], None]) -> None:
        self.device, self.nbytes = device, data.numel()
        self._data: Tensor | None = data
        self._give_back = give_back
        self._uses_alone = _uses(data)

    @property
    def data(self) -> Tensor:
        """The bytes."""
        if self._data is None:
            raise InvalidMemoryError("a block", "one that was freed", "not freed yet")
        return self._data

    @property
    def shared(self) -> bool:
        """Whether anybody else has a tensor of this memory, or an array: it would stay taken if it were freed."""
        return self._data is not None and _uses(self._data) > self._uses_alone

    def free(self) -> None:
        """Give the memory back. A second time nothing happens.

        Raises:
            StillHeldError: It is `shared`. Nothing is changed.
        """
        if self._data is None:
            return
        if self.shared:
            raise StillHeldError(self.device.name)
        self._data = None
        self._give_back()


def _uses(data: Tensor) -> int:
    # As torch's own CUDA graphs ask. Nothing public says it; weak references would tell too late, when the memory is gone.
    return int(torch._C._storage_Use_Count(data.untyped_storage()._cdata))


class Lane(ABC):
    """Copies between a device and the host that are started one after the other, and not waited for.

    Both ends stay as they are until a copy is done: `upload` and `download` return what waits for it.
    """

    @abstractmethod
    def staging(self, nbytes: int) -> Tensor:
        """Host memory that is copied from and to at full speed: uint8 of shape (nbytes,)."""

    @abstractmethod
    def upload(self, target: Tensor, source: Tensor) -> Callable[[], None]:
        """Copy from the host to the device; both uint8 of one shape."""

    @abstractmethod
    def download(self, target: Tensor, source: Tensor) -> Callable[[], None]:
        """Copy from the device to the host; both uint8 of one shape."""


class Device(ABC):
    """Where weights are HOT.

    Attributes:
        name: For people: "cuda:0".
        torch_device: Where its tensors are.
    """

    name: str
    torch_device: torch.device

    @abstractmethod
    def memory(self) -> DeviceMemory:
        """What is free, measured."""

    @abstractmethod
    def allocate(self, nbytes: int, spare_bytes: int = 0) -> DeviceBuffer:
        """Take memory, of which `spare_bytes` more are to be free beside it.

        Raises:
            OutOfDeviceMemory: There is not so much. Nothing was taken.
            InvalidMemoryError: nbytes is no number of bytes.
        """

    @abstractmethod
    def lane(self) -> AbstractContextManager[Lane]:
        """Copies beside whatever else the device does. All of them are done when the context ends, however it does.

        Work that was given to the device before is done before its memory is read. To be used in one thread.
        """

    @abstractmethod
    def pin(self, data: Tensor) -> Callable[[], None] | None:
        """Have host memory copied at full speed; returns what ends that. None: it cannot be, copies are slower then."""


def check_bytes(field: str, nbytes: object, least: int = 0) -> int:
    """A number of bytes.

    Raises:
        InvalidMemoryError: It is none.
    """
    if type(nbytes) is not int or not least <= nbytes <= BYTES_MAX:
        raise InvalidMemoryError(field, nbytes, f"a whole number from {least} to {BYTES_MAX}")
    return nbytes
