"""Which memory of its node weights may use."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from executors.ray_gpu.environment import merged
from executors.ray_gpu.errors import InvalidDeploymentError
from rankcore.errors import InvalidSpecError
from rankcore.residency.spec import ExpectedShape

GB = 10**9
ALL_GPUS = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
"""Ray hides GPUs that it has not given; here a planner gives them, by number."""


class DeviceKind(StrEnum):
    """What weights are HOT on."""

    AUTO = "auto"
    """GPUs where a node has some, else the stand-in."""
    CUDA = "cuda"
    CPU = "cpu"
    """Memory of the node with a byte budget, which stands for GPUs: everything works as with them, only slower."""


@attrs.frozen(kw_only=True)
class MemoryOptions:
    """The same for all nodes.

    Attributes:
        device: What weights are HOT on.
        stand_in_gpu_bytes: Of each node without GPUs, or with `device` "cpu": the bytes of each GPU that is stood in for.
        cache_bytes: Of each node: what WARM copies may take in its memory; None: half of what was available at first.
        gpu_reserve_bytes: Of each GPU: what is left to CUDA itself and to other processes.
        expected_shapes: Nodes that may be added once somebody waits for them, as `ExpectedShape` or a dict of its fields: what
            no node could hold is refused at once, but for what one of these could.

    Raises:
        InvalidDeploymentError: Names the field, what was found and what is allowed.
    """

    device: DeviceKind = DeviceKind.AUTO
    stand_in_gpu_bytes: tuple[int, ...] = (2 * GB,)
    cache_bytes: int | None = None
    gpu_reserve_bytes: int = GB
    expected_shapes: tuple[ExpectedShape, ...] = ()

    def __attrs_post_init__(self) -> None:
        sizes: object = self.stand_in_gpu_bytes
        if self.device not in tuple(DeviceKind):
            raise self._wrong("device", "one of " + ", ".join(f'"{each}"' for each in DeviceKind), self.device)
        if not isinstance(sizes, (tuple, list)):
            raise self._wrong("stand_in_gpu_bytes", "a tuple of sizes in bytes", sizes)
        object.__setattr__(self, "device", DeviceKind(self.device))
        object.__setattr__(self, "stand_in_gpu_bytes", tuple(sizes))
        for field, value in (
            *(("stand_in_gpu_bytes", each) for each in sizes),
            ("cache_bytes", 0 if self.cache_bytes is None else self.cache_bytes),
            ("gpu_reserve_bytes", self.gpu_reserve_bytes),
        ):
            if type(value) is not int or not 0 <= value <= 2**53:
                raise self._wrong(field, "a whole number of bytes", value)
        object.__setattr__(self, "expected_shapes", self._shapes(self.expected_shapes))

    def _shapes(self, found: object) -> tuple[ExpectedShape, ...]:
        if not isinstance(found, (tuple, list)):
            raise self._wrong("expected_shapes", "a tuple of ExpectedShape", found)
        try:
            return tuple(each if isinstance(each, ExpectedShape) else ExpectedShape(**each) for each in found)
        except (InvalidSpecError, TypeError) as error:
            allowed = f"a tuple of ExpectedShape, or of mappings of its fields ({error})"
            raise self._wrong("expected_shapes", allowed, found) from None

    def _wrong(self, field: str, allowed: str, found: object) -> InvalidDeploymentError:
        return InvalidDeploymentError(f"{type(self).__name__}.{field} must be {allowed}, got {found!r:.80}")


def environment_of(options: MemoryOptions, runtime_env: Mapping[str, Any]) -> dict[str, Any] | None:
    """The runtime environment of a process whose GPUs are planned; None: there need be none."""
    return merged(runtime_env, {} if options.device is DeviceKind.CPU else ALL_GPUS) or None
