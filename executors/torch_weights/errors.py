"""What goes wrong with weights, and what it means for the replica.

    RankcoreError
    └── WeightsError
        ├── WeightsFileError      a file of weights is not what it may be
        │   └── WeightsChangedError  it is not the one that was deployed
        ├── WeightsMismatchError  a module and a file do not go together
        │   └── UnknownBuffersError  the file cannot have what the module has not computed
        ├── InvalidMemoryError    a size, a budget or a number of devices is not what it may be
        ├── OutOfMemoryError
        │   ├── OutOfDeviceMemory   a device has no room: the load failed, and what it took is free again
        │   │   └── MoreThanPlanned   they take more there than a planner has planned
        │   └── OutOfHostMemory     the node's memory has no room: likewise
        ├── NotHotError           tensors were asked for that are not on a device
        ├── StillHeldError        user code keeps weights that are to leave the device
        └── DevicePoisonedError   the process can use the device no more: end it, and start the replica again with its rank

A move that fails leaves what it moved from as it was. What became of the replica is what `fate_of` says of any exception,
also of one that user code raised.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from rankcore.errors import RankcoreError


class WeightsError(RankcoreError):
    """Base class of this package."""


class WeightsFileError(WeightsError):
    """A file of weights is not what it may be. Nothing was loaded.

    Attributes:
        path: The file.
        field: Which part of it: "header length", "shape of 'lm_head.weight'", ...
        found: What is there.
        allowed: What may be there.
    """

    def __init__(self, path: str, field: str, found: object, allowed: str) -> None:
        super().__init__(path, field, found, allowed)
        self.path, self.field, self.found, self.allowed = path, field, found, allowed

    def __str__(self) -> str:
        return f"{self.path}: {self.field} must be {self.allowed}, found {self.found}"


class WeightsChangedError(WeightsFileError):
    """Weights are not those that their model was deployed with. Nothing was loaded; once it is deployed again they can be.

    Attributes:
        path: The file; of several the one that was changed last.
        expected: The contents when the model was deployed: bytes in all, and their digest.
        found: What they are now.
        wrong_weights: It would fail on this node again, and perhaps not on another one.
    """

    wrong_weights = True

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(path, "contents", found, expected)
        # As an exception is unpickled.
        self.args = (path, expected, found)
        self.expected = expected

    def __str__(self) -> str:
        return (
            f"{self.path}: the weights must be those that the model was deployed with ({self.expected}), found {self.found}: "
            "deploy the model again to serve what is there now, on every node, or put the former file back. Where to deploy it "
            "changes nothing, since its time of change is that of before, delete it first"
        )


class WeightsMismatchError(WeightsError):
    """A module and a file do not go together. The module is as it was.

    Attributes:
        missing: Names that the module has and the file has not.
        unexpected: Names that the file has and the module has not.
        misshapen: Names that both have, in another shape: (name, of the module, of the file).
    """

    def __init__(
        self,
        missing: Sequence[str] = (),
        unexpected: Sequence[str] = (),
        misshapen: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (),
    ) -> None:
        super().__init__(missing, unexpected, misshapen)
        self.missing, self.unexpected, self.misshapen = tuple(missing), tuple(unexpected), tuple(misshapen)

    def __str__(self) -> str:
        shapes = [f"{name} (module {mine}, file {theirs})" for name, mine, theirs in self.misshapen]
        parts = {"missing": self.missing, "unexpected": self.unexpected, "of another shape": shapes}
        told = "; ".join(f"{what}: {_some(names)}" for what, names in parts.items() if names)
        return f"the names and shapes in the file must be those of the module; {told}"


class UnknownBuffersError(WeightsMismatchError):
    """Buffers that are not saved have no values: the module was made on the meta device, where it has computed them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(missing=names)
        self.args = (tuple(names),)

    def __str__(self) -> str:
        return (
            f"buffers that no file has (persistent=False) must have values, found none of {_some(self.missing)} on the meta "
            "device: make the module within `executors.torch_weights.meta_parameters()` in place of torch.device('meta'), "
            "where they are computed, or register them anew before its weights are loaded"
        )


def _some(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


class InvalidMemoryError(WeightsError):
    """A size, a budget or a number of devices is not what it may be."""

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(field, found, allowed)
        self.field, self.found, self.allowed = field, found, allowed

    def __str__(self) -> str:
        return f"{self.field} must be {self.allowed}, got {self.found!r}"


class OutOfMemoryError(WeightsError):
    """A place has no room for what was to be moved there.

    Attributes:
        place: The device, or the folder of warm copies.
        asked_bytes: How much was wanted.
        free_bytes: How much was free, as measured.
        total_bytes: How much there is.
    """

    def __init__(self, place: str, asked_bytes: int, free_bytes: int, total_bytes: int) -> None:
        super().__init__(place, asked_bytes, free_bytes, total_bytes)
        self.place, self.asked_bytes, self.free_bytes, self.total_bytes = place, asked_bytes, free_bytes, total_bytes

    def __str__(self) -> str:
        return (
            f"{self.place} has {self.free_bytes:,} of {self.total_bytes:,} bytes free, and {self.asked_bytes:,} were asked for"
        )


class OutOfDeviceMemory(OutOfMemoryError):
    """A device has no room."""


class MoreThanPlanned(OutOfDeviceMemory):
    """Weights take more on a device than was planned for them there. Nothing was loaded."""

    def __init__(self, place: str, asked_bytes: int, planned_bytes: int, devices: int) -> None:
        super().__init__(place, asked_bytes, planned_bytes, planned_bytes)
        self.args = (place, asked_bytes, planned_bytes, devices)
        self.devices = devices

    def __str__(self) -> str:
        told = f"weights of {self.asked_bytes:,} bytes on {self.place} must be at most the {self.free_bytes:,} planned there"
        if self.devices == 1:
            return f"{told}: deploy them without weight_bytes, or with as many as they take"
        return (
            f"{told}: tensors are not cut, and the fullest of {self.devices} GPUs has more than an equal part. Deploy them "
            f"without weight_bytes, or say in Residency(shard_bytes=...) what the fullest of so many GPUs takes"
        )


class OutOfHostMemory(OutOfMemoryError):
    """The node's memory has no room, or no more of its budget."""


class NotHotError(WeightsError):
    """Tensors were asked for that are not on a device."""


class StillHeldError(WeightsError):
    """User code keeps weights that are to leave the device, which would free nothing. They stay HOT.

    Attributes:
        names: The tensors that are known to be kept. Empty: a view of one of them is.
    """

    def __init__(self, device: str, names: Sequence[str] = ()) -> None:
        super().__init__(device, names)
        self.device, self.names = device, tuple(names)

    def __str__(self) -> str:
        what = _some(self.names) if self.names else "a view of some tensor"
        return f"weights on {self.device} must be held by nobody when they leave it; somebody keeps {what}"


class DevicePoisonedError(WeightsError):
    """An error of the device after which this process can use it no more. The cause is the error that showed it."""


class MoveCancelledError(WeightsError):
    """A move was told to stop, and has undone what it did."""


class Fate(StrEnum):
    """What an exception means for the replica in which it was raised."""

    OUT_OF_MEMORY = "out of memory"
    """A load that failed: everything is as before, and the replica may be placed elsewhere."""
    POISONED = "poisoned"
    """Every later call of the device fails too: the process has to end, and a new one takes its rank."""
    OTHER = "other"
    """Nothing of the two."""


# After each of these only a new process can use the device (CUDA Runtime API, descriptions of `cudaError`): texts of
# `cudaGetErrorString`, names, and names of the driver's own codes.
_POISON = (
    "device-side assert",
    "illegal memory access",
    "unspecified launch failure",
    "illegal instruction",
    "misaligned address",
    "invalid program counter",
    "invalid pc",
    "hardware stack error",
    "operation not supported on global/shared address space",
    "the launch timed out and was terminated",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "context is destroyed",
    "cudaerrorassert",
    "cudaerrorillegaladdress",
    "cudaerrorlaunchfailure",
    "cudaerrorillegalinstruction",
    "cudaerrormisalignedaddress",
    "cudaerrorinvalidpc",
    "cudaerrorhardwarestackerror",
    "cudaerrorinvalidaddressspace",
    "cudaerrorlaunchtimeout",
    "cudaerroreccuncorrectable",
    "cuda_error_assert",
    "cuda_error_illegal_address",
    "cuda_error_launch_failed",
)
_NO_MEMORY = ("out of memory", "cudaerrormemoryallocation", "cuda_error_out_of_memory", "can't allocate memory")
_FROM_DEVICE = ("AcceleratorError", "OutOfMemoryError", "RuntimeError")


def fate_of(error: BaseException) -> Fate:
    """What an exception means for the replica, from its type, its text, and those of its causes.

    A poisoned device outweighs missing memory: what fails while the first is handled is often the second.

    >>> fate_of(RuntimeError("CUDA error: device-side assert triggered"))
    <Fate.POISONED: 'poisoned'>
    """
    fates = {_fate_of_one(each) for each in chain(error)}
    for fate in (Fate.POISONED, Fate.OUT_OF_MEMORY):
        if fate in fates:
            return fate
    return Fate.OTHER


def _fate_of_one(error: BaseException) -> Fate:
    if isinstance(error, DevicePoisonedError):
        return Fate.POISONED
    if isinstance(error, OutOfMemoryError | MemoryError):
        return Fate.OUT_OF_MEMORY
    # By name: torch need not be there to judge an error that came from another process.
    if not any(kind.__name__ in _FROM_DEVICE for kind in type(error).__mro__):
        return Fate.OTHER
    text = str(error).lower()
    if any(words in text for words in _POISON):
        return Fate.POISONED
    return Fate.OUT_OF_MEMORY if any(words in text for words in _NO_MEMORY) else Fate.OTHER


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, what caused it, and what was being handled when it was raised, each once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, None if each.__suppress_context__ else each.__context__]
