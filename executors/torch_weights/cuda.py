"""GPUs of the process: memory as the driver measures it, and copies on a stream of their own."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from executors.torch_weights.device import Device, DeviceBuffer, DeviceMemory, Lane, check_bytes
from executors.torch_weights.errors import DevicePoisonedError, Fate, InvalidMemoryError, OutOfDeviceMemory, fate_of

PORTABLE = 1
"""cudaHostRegisterPortable: for all GPUs of the process."""


class Cuda(Device):
    """One GPU.

    Args:
        index: As torch counts, among those that the process sees (CUDA_VISIBLE_DEVICES).
    """

    def __init__(self, index: int = 0) -> None:
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if type(index) is not int or not 0 <= index < there:
            allowed = f"from 0 to {there - 1}" if there else "absent: torch sees no GPU here"
            raise InvalidMemoryError("index of a GPU", index, allowed)
        self.torch_device = torch.device("cuda", index)
        self.name = f"cuda:{index}"

    def memory(self) -> DeviceMemory:
        """What the driver says is free, of all processes."""
        with self._calls():
            free, total = torch.cuda.mem_get_info(self.torch_device)
        return DeviceMemory(free, total)

    def allocate(self, nbytes: int, spare_bytes: int = 0) -> DeviceBuffer:
        """Take memory; see `Device.allocate`. What torch's allocator keeps for nobody is given back to the driver first."""
        check_bytes("bytes to allocate", nbytes)
        with self._calls():
            free, total = torch.cuda.mem_get_info(self.torch_device)
            if nbytes + spare_bytes > free:
                torch.cuda.empty_cache()
                free, total = torch.cuda.mem_get_info(self.torch_device)
            if nbytes + spare_bytes > free:
                raise OutOfDeviceMemory(self.name, nbytes + spare_bytes, free, total)
            try:
                data = torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device)
            except torch.cuda.OutOfMemoryError as error:
                # Another process was faster.
                free, total = torch.cuda.mem_get_info(self.torch_device)
                raise OutOfDeviceMemory(self.name, nbytes + spare_bytes, free, total) from error
        return DeviceBuffer(self, data, self._give_back)

    @contextlib.contextmanager
    def lane(self) -> Iterator[Lane]:
        """Copies on a stream of their own, after what the device was given before."""
        with self._calls():
            torch.cuda.synchronize(self.torch_device)
            stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
            try:
                yield _StreamLane(stream)
            finally:
                stream.synchronize()

    def pin(self, data: Tensor) -> Callable[[], None] | None:
        """Lock host memory for the GPU's copy engine (`cudaHostRegister`)."""
        if not data.numel():
            return lambda: None
        with self._calls():
            runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            if int(runtime.cudaHostRegister(data.data_ptr(), data.numel(), PORTABLE)):
                return None

        def unpin() -> None:
            with self._calls():
                torch.cuda.synchronize(self.torch_device)
                runtime.cudaHostUnregister(data.data_ptr())

        return unpin

    def _give_back(self) -> None:
        with self._calls():
            torch.cuda.synchronize(self.torch_device)
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def _calls(self) -> Iterator[None]:
        """Errors after which the process can use the device no more are told as such; see `Fate`."""
        try:
            with torch.cuda.device(self.torch_device):
                yield
        except DevicePoisonedError:
            raise
        except Exception as error:
            if fate_of(error) is Fate.POISONED:
                raise DevicePoisonedError(f"{self.name} can be used no more by this process: {error}") from error
            raise


class _StreamLane(Lane):
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def staging(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def upload(self, target: Tensor, source: Tensor) -> Callable[[], None]:
        # Named at each copy: a move has lanes of several devices at once.
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record(self._stream)
        return done.synchronize

    def download(self, target: Tensor, source: Tensor) -> Callable[[], None]:
        return self.upload(target, source)
