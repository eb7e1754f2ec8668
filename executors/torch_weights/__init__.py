"""Weights that move between disk (COLD), the memory of a node (WARM) and devices (HOT). Needs torch and safetensors, not Ray.

    store = WarmStore(Path("/dev/shm/rankcore"))
    weights = ResidentWeights("model.safetensors", [Cuda(0)], store, module=module)
    await weights.from_cache(progress=lambda done, total: ...)    # HOT: module has its parameters
    await weights.to_cache()                                      # WARM: the device is free
    await weights.drop()                                          # COLD

`resident` is what a replica has, `moves` how bytes get from one place to another, `files`, `warm` and `device` (`cuda`,
`stand_in`) the places, `contents` which weights these are, `roots` whether every byte of them is, `layout` what lies where,
`leases` how processes of a node share, `binding` how a module gets its parameters, `unsaved` where buffers that no file has
get their values, and `errors` what went wrong and what that means for the replica.
"""

from executors.torch_weights.contents import declared_in
from executors.torch_weights.cuda import Cuda
from executors.torch_weights.device import Device, DeviceMemory
from executors.torch_weights.errors import (
    DevicePoisonedError,
    Fate,
    InvalidMemoryError,
    MoreThanPlanned,
    NotHotError,
    OutOfDeviceMemory,
    OutOfHostMemory,
    OutOfMemoryError,
    StillHeldError,
    UnknownBuffersError,
    WeightsChangedError,
    WeightsError,
    WeightsFileError,
    WeightsMismatchError,
    fate_of,
)
from executors.torch_weights.files import WeightsFiles, look_at
from executors.torch_weights.resident import Moved, ResidentWeights
from executors.torch_weights.roots import Agreement, LocalAgreement
from executors.torch_weights.stand_in import StandIn
from executors.torch_weights.unsaved import meta_parameters
from executors.torch_weights.warm import WarmStore
from rankcore.residency.levels import Level

__all__ = [
    "Agreement",
    "Cuda",
    "Device",
    "DeviceMemory",
    "DevicePoisonedError",
    "Fate",
    "InvalidMemoryError",
    "Level",
    "LocalAgreement",
    "MoreThanPlanned",
    "Moved",
    "NotHotError",
    "OutOfDeviceMemory",
    "OutOfHostMemory",
    "OutOfMemoryError",
    "ResidentWeights",
    "StandIn",
    "StillHeldError",
    "UnknownBuffersError",
    "WarmStore",
    "WeightsChangedError",
    "WeightsError",
    "WeightsFileError",
    "WeightsFiles",
    "WeightsMismatchError",
    "declared_in",
    "fate_of",
    "look_at",
    "meta_parameters",
]
