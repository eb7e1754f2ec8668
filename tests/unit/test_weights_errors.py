"""An exception says what it means for the replica: a load that failed, a process that has to end, or neither."""

import pickle

import pytest
import torch

from executors.torch_weights import (
    Cuda,
    DevicePoisonedError,
    Fate,
    InvalidMemoryError,
    MoreThanPlanned,
    OutOfDeviceMemory,
    OutOfHostMemory,
    StillHeldError,
    WeightsFileError,
    WeightsMismatchError,
    fate_of,
)

POISON = [
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: unspecified launch failure",
    "CUDA error: an illegal instruction was encountered",
    "CUDA error: misaligned address",
    "CUDA error: the launch timed out and was terminated",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA driver error: CUDA_ERROR_ILLEGAL_ADDRESS",
]


@pytest.mark.parametrize("text", POISON)
def test_errors_after_which_the_device_is_lost_poison_the_process(text):
    assert fate_of(RuntimeError(text)) is Fate.POISONED
    assert fate_of(DevicePoisonedError(text)) is Fate.POISONED


def test_what_user_code_raises_because_of_such_an_error_means_the_same():
    poison = RuntimeError(POISON[0])
    with pytest.raises(ValueError, match="the batch") as caused:
        raise ValueError("the batch could not be computed") from poison
    assert fate_of(caused.value) is Fate.POISONED
    with pytest.raises(KeyError) as followed:
        fails_while_cleaning_up(poison)
    assert fate_of(followed.value) is Fate.POISONED


def fails_while_cleaning_up(error):
    try:
        raise error
    finally:
        raise KeyError("while cleaning up")


def test_a_poisoned_device_outweighs_missing_memory():
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    error.__cause__ = RuntimeError(POISON[1])
    assert fate_of(error) is Fate.POISONED


@pytest.mark.parametrize(
    "error",
    [
        OutOfDeviceMemory("cuda:0", 2, 1, 3),
        OutOfHostMemory("/dev/shm", 2, 1, 3),
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
        ),
    ],
)
def test_missing_memory_is_a_load_that_failed(error):
    assert fate_of(error) is Fate.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "error",
    [
        ValueError("device-side assert triggered"),
        KeyError("out of memory"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        WeightsFileError("m", "size", 3, "at least 8"),
    ],
)
def test_other_errors_are_no_reason_to_end(error):
    assert fate_of(error) is Fate.OTHER


def test_causes_in_a_circle_end():
    one, two = ValueError(), ValueError()
    one.__cause__, two.__cause__ = two, one
    assert fate_of(one) is Fate.OTHER


@pytest.mark.parametrize(
    "error",
    [
        OutOfDeviceMemory("cuda:0", 2, 1, 3),
        MoreThanPlanned("GPU 0", 2, 1, 2),
        WeightsFileError("m", "size", 3, "at least 8"),
        WeightsMismatchError(["a"], [], [("b", (1,), (2,))]),
        StillHeldError("cuda:0", ["a"]),
        InvalidMemoryError("nbytes", 1e30, "a whole number"),
        DevicePoisonedError("cuda:0"),
    ],
)
def test_errors_go_from_process_to_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_many_names_are_told_shortly():
    assert str(WeightsMismatchError([f"p{index}" for index in range(99)])).endswith("missing: p0, p1, p2, p3, p4 and 94 more")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told():
    with pytest.raises(InvalidMemoryError, match="torch sees no GPU here, got 0"):
        Cuda(0)
