"""How a fleet of models is started."""

import attrs

from executors.ray_gpu.worker.options import GB, DeviceKind, MemoryOptions
from rankcore.dispatching import DispatchPolicy
from rankcore.residency import ResidencyPolicy

__all__ = ["GB", "DeviceKind", "FleetOptions"]


@attrs.frozen(kw_only=True)
class FleetOptions(MemoryOptions):
    """Which memory of which nodes a fleet may use, and how it decides.

    Attributes:
        dispatch: How requests that wait are treated.
        residency: How displacement is weighed.
    """

    dispatch: DispatchPolicy = attrs.Factory(DispatchPolicy)
    residency: ResidencyPolicy = attrs.Factory(ResidencyPolicy)
