"""Which memory of which nodes a fleet of models may use."""

from enum import StrEnum

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from rankcore.dispatching import DispatchPolicy
from rankcore.residency import ResidencyPolicy

GB = 10**9


class DeviceKind(StrEnum):
    """What weights are HOT on."""

    AUTO = "auto"
    """GPUs where a node has some, else the stand-in."""
    CUDA = "cuda"
    CPU = "cpu"
    """Memory of the node with a byte budget, which stands for GPUs: everything works as with them, only slower."""


def _kind(given: object) -> DeviceKind:
    try:
        return DeviceKind(str(given))
    except ValueError:
        allowed = ", ".join(f'"{each}"' for each in DeviceKind)
        raise InvalidDeploymentError(f"FleetOptions.device must be one of {allowed}, got {given!r}") from None


def _sizes(given: object) -> tuple[int, ...]:
    if not isinstance(given, (tuple, list)):
        raise InvalidDeploymentError(f"FleetOptions.stand_in_gpu_bytes must be a tuple of sizes in bytes, got {given!r:.80}")
    return tuple(given)


@attrs.frozen(kw_only=True)
class FleetOptions:
    """How a fleet is started.

    Attributes:
        device: What weights are HOT on.
        stand_in_gpu_bytes: Of each node without GPUs, or with `device` "cpu": the bytes of each GPU that is stood in for.
        cache_bytes: Of each node: what WARM copies may take in its memory; None: half of what was available at first.
        gpu_reserve_bytes: Of each GPU: what is left to CUDA itself and to other processes.
        dispatch: How requests that wait are treated.
        residency: How displacement is weighed.

    Raises:
        InvalidDeploymentError: Names the field, what was found and what is allowed.
    """

    device: DeviceKind = attrs.field(default=DeviceKind.AUTO, converter=_kind)
    stand_in_gpu_bytes: tuple[int, ...] = attrs.field(default=(2 * GB,), converter=_sizes)
    cache_bytes: int | None = None
    gpu_reserve_bytes: int = GB
    dispatch: DispatchPolicy = attrs.Factory(DispatchPolicy)
    residency: ResidencyPolicy = attrs.Factory(ResidencyPolicy)

    def __attrs_post_init__(self) -> None:
        for field, value in (
            *(("stand_in_gpu_bytes", each) for each in self.stand_in_gpu_bytes),
            ("cache_bytes", 0 if self.cache_bytes is None else self.cache_bytes),
            ("gpu_reserve_bytes", self.gpu_reserve_bytes),
        ):
            if type(value) is not int or not 0 <= value <= 2**53:
                raise InvalidDeploymentError(f"FleetOptions.{field} must be a whole number of bytes, got {value!r}")
