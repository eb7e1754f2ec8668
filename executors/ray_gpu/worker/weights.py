"""The weights of one process, as its user's object has them: its `module`'s parameters, or its attribute `weights`."""

import asyncio
from typing import Any

from executors.ray_gpu.worker.places import Places
from executors.torch_weights import Agreement, Level, MoreThanPlanned, ResidentWeights
from executors.torch_weights.progress import Listener


class HeldWeights:
    """COLD to begin with.

    Args:
        path: Of a safetensors file, or of a folder or index of several.
        expected: The contents that it must have; None: any.
        places: The memory of this node.
        agreed: What all who serve their version agree on.

    Attributes:
        gpus: Where they are, or were at last.
    """

    def __init__(self, path: str, expected: str | None, places: Places, agreed: Agreement | None = None) -> None:
        self.gpus: tuple[int, ...] = ()
        self._path = path
        self._expected = expected
        self._places = places
        self._agreed = agreed
        self._resident: ResidentWeights | None = None
        self._module: Any = None

    @property
    def level(self) -> Level:
        """Where they are. While they move: where they come from."""
        return Level.COLD if self._resident is None else self._resident.level

    @property
    def gpu_bytes(self) -> tuple[int, ...]:
        """What they take on each GPU when they are HOT."""
        return () if self._resident is None else self._resident.device_bytes

    @property
    def taken_bytes(self) -> tuple[int, ...]:
        """What they take on each GPU now."""
        return self.gpu_bytes if self.level is Level.HOT else ()

    @property
    def host_bytes(self) -> int:
        """What they take in the node's memory when they are WARM."""
        return 0 if self._resident is None else self._resident.host_bytes

    async def load(self, user: Any, gpus: tuple[int, ...], gpu_bytes: tuple[int, ...], listener: Listener) -> None:
        """Bring them to these GPUs, and give them to the user's object.

        Raises:
            MoreThanPlanned: They take more than is allowed on a GPU.
            OutOfDeviceMemory: They take more than it has.
            WeightsError: They cannot be had, or the object cannot have them.
        """
        module = getattr(user, "module", None)
        former, fresh = self._resident, self._resident
        if fresh is None or fresh.level is not Level.WARM or self.gpus != gpus or self._module is not module:
            fresh = await asyncio.to_thread(self._look_at, gpus, module)
        for number, taken, granted in zip(gpus, fresh.device_bytes, gpu_bytes, strict=True):
            if taken > granted:
                raise MoreThanPlanned(f"GPU {number}", taken, granted, len(gpus))
        await fresh.from_cache(listener)
        self._resident, self.gpus, self._module = fresh, gpus, module
        if former is not None and former is not fresh:
            await former.aclose()
        if module is None:
            user.weights = fresh.tensors

    async def leave(self, user: Any, *, keep_copy: bool) -> None:
        """Take them from the user's object, and free the GPUs, and the copy in the node's memory too unless it is kept.

        Raises:
            StillHeldError: User code keeps some of them.
            OutOfHostMemory: There is no room for the copy.
        """
        if self._resident is None:
            return
        if hasattr(user, "weights"):
            user.weights = None
        await (self._resident.to_cache() if keep_copy else self._resident.drop())

    def _look_at(self, gpus: tuple[int, ...], module: Any) -> ResidentWeights:
        """In their files, for these GPUs. A copy in memory is found by whoever has the same files."""
        devices = [self._places.device(number) for number in gpus]
        store = self._places.warm_store()
        return ResidentWeights(self._path, devices, store, module=module, expected=self._expected, agreed=self._agreed)
