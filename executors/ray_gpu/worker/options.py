"""Which memory of its node weights may use."""

from enum import StrEnum

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError

GB = 10**9


class DeviceKind(StrEnum):
    """What weights are HOT on."""

    AUTO = "auto"
    """GPUs where a node has some, else the stand-in."""
    CUDA = "cuda"
    CPU = "cpu"
    """Memory of the node with a byte budget, which stands for GPUs: everything works as with them, only slower."""


def _kind(given: object, options: "MemoryOptions") -> DeviceKind:
    try:
        return DeviceKind(str(given))
    except ValueError:
        allowed = ", ".join(f'"{each}"' for each in DeviceKind)
        raise InvalidDeploymentError(f"{type(options).__name__}.device must be one of {allowed}, got {given!r}") from None


def _sizes(given: object, options: "MemoryOptions") -> tuple[int, ...]:
    if not isinstance(given, (tuple, list)):
        field = f"{type(options).__name__}.stand_in_gpu_bytes"
        raise InvalidDeploymentError(f"{field} must be a tuple of sizes in bytes, got {given!r:.80}")
    return tuple(given)


@attrs.frozen(kw_only=True)
class MemoryOptions:
    """The same for all nodes.

    Attributes:
        device: What weights are HOT on.
        stand_in_gpu_bytes: Of each node without GPUs, or with `device` "cpu": the bytes of each GPU that is stood in for.
        cache_bytes: Of each node: what WARM copies may take in its memory; None: half of what was available at first.
        gpu_reserve_bytes: Of each GPU: what is left to CUDA itself and to other processes.

    Raises:
        InvalidDeploymentError: Names the field, what was found and what is allowed.
    """

    device: DeviceKind = attrs.field(default=DeviceKind.AUTO, converter=attrs.Converter(_kind, takes_self=True))
    stand_in_gpu_bytes: tuple[int, ...] = attrs.field(default=(2 * GB,), converter=attrs.Converter(_sizes, takes_self=True))
    cache_bytes: int | None = None
    gpu_reserve_bytes: int = GB

    def __attrs_post_init__(self) -> None:
        for field, value in (
            *(("stand_in_gpu_bytes", each) for each in self.stand_in_gpu_bytes),
            ("cache_bytes", 0 if self.cache_bytes is None else self.cache_bytes),
            ("gpu_reserve_bytes", self.gpu_reserve_bytes),
        ):
            if type(value) is not int or not 0 <= value <= 2**53:
                name = f"{type(self).__name__}.{field}"
                raise InvalidDeploymentError(f"{name} must be a whole number of bytes, got {value!r}")
