"""What `Cuda` asks of torch, with a torch whose GPU is a list of calls; on a GPU: tests/integration/test_weights_on_gpu.py."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from executors.torch_weights import Cuda, DevicePoisonedError, OutOfDeviceMemory, StillHeldError, WarmStore, cuda, moves
from executors.torch_weights.errors import MoveCancelledError
from executors.torch_weights.files import look_at
from executors.torch_weights.layout import block_of
from executors.torch_weights.progress import Progress
from tests.weights_worlds import same, saved, tensors

MIB = 2**20


class Gpu:
    """torch.cuda as far as it is used: tensors are on the CPU, copies are made when they are waited for."""

    def __init__(self):
        self.free_bytes = self.total_bytes = 100 * MIB
        self.cached_bytes = 0
        self.calls = []
        self.fails = {}
        self.pending = []
        self.OutOfMemoryError = torch.cuda.OutOfMemoryError

    def call(self, name):
        self.calls.append(name)
        if name in self.fails:
            raise self.fails[name]

    def is_available(self):
        return True

    def device_count(self):
        return 2

    def mem_get_info(self, device):
        self.call("mem_get_info")
        return self.free_bytes - self.cached_bytes, self.total_bytes

    def empty_cache(self):
        self.call("empty_cache")
        self.cached_bytes = 0

    def synchronize(self, device):
        self.call("synchronize")

    def device(self, device):
        return contextlib.nullcontext()

    def stream(self, stream):
        return contextlib.nullcontext()

    def Stream(self, device):
        self.call("Stream")
        return SimpleNamespace(synchronize=lambda: self.call("stream.synchronize"))

    def Event(self, blocking):
        return SimpleNamespace(record=lambda stream: None, synchronize=lambda: self.call("event.synchronize"))

    def cudart(self):
        def register(pointer, nbytes, flags):
            self.call("cudaHostRegister")
            return self.fails.get("register", 0)

        return SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=lambda pointer: self.call("cudaHostUnregister"))


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()

    def empty(count, *, dtype, device=None, pin_memory=False):
        gpu.call("empty")
        return torch.empty(count, dtype=dtype)

    fake = SimpleNamespace(cuda=gpu, empty=empty, device=torch.device, uint8=torch.uint8, Tensor=torch.Tensor)
    monkeypatch.setattr(cuda, "torch", fake)
    return gpu


def test_weights_come_and_go(gpu, tmp_path):
    device = Cuda(1)
    files = look_at(saved(tmp_path / "m.safetensors"))
    whole, store = block_of(files.tensors), WarmStore(tmp_path)
    buffers = moves.cold_to_hot(files, [whole], [device], Progress())
    assert same(whole.views(buffers[0].data), tensors())
    copy = moves.hot_to_warm(buffers, [whole], whole, store, "key", Progress())
    copy.pin(device.pin)
    assert copy.pinned
    buffers[0].free()
    assert gpu.calls[-2:] == ["synchronize", "empty_cache"]
    buffers = moves.warm_to_hot(copy, whole, [whole], [device], Progress())
    assert same(whole.views(buffers[0].data), tensors())
    assert copy.release()
    assert gpu.calls[-1] == "cudaHostUnregister"


def test_what_the_allocator_keeps_for_nobody_is_given_back_before_a_load_fails(gpu):
    gpu.cached_bytes = 60 * MIB
    block = Cuda(0).allocate(70 * MIB)
    assert gpu.calls == ["mem_get_info", "empty_cache", "mem_get_info", "empty"]
    block.free()


def test_no_room_is_told_before_it_is_taken(gpu):
    with pytest.raises(OutOfDeviceMemory) as caught:
        Cuda(0).allocate(90 * MIB, 20 * MIB)
    assert (caught.value.asked_bytes, caught.value.free_bytes) == (110 * MIB, 100 * MIB)
    assert "empty" not in gpu.calls


def test_room_that_another_process_took_meanwhile_is_no_room(gpu):
    gpu.fails["empty"] = torch.cuda.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(OutOfDeviceMemory, match="cuda:0 has"):
        Cuda(0).allocate(MIB)


@pytest.mark.parametrize("where", ["mem_get_info", "synchronize", "Stream", "event.synchronize", "stream.synchronize"])
def test_an_error_that_loses_the_device_is_told_as_such_wherever_it_shows(gpu, tmp_path, where):
    files = look_at(saved(tmp_path / "m.safetensors"))
    gpu.fails[where] = RuntimeError("CUDA error: device-side assert triggered")
    with pytest.raises(DevicePoisonedError, match="cuda:0 can be used no more by this process") as caught:
        moves.cold_to_hot(files, [block_of(files.tensors)], [Cuda(0)], Progress())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_another_error_is_told_as_it_is(gpu):
    gpu.fails["mem_get_info"] = RuntimeError("CUDA error: invalid argument")
    with pytest.raises(RuntimeError, match="invalid argument"):
        Cuda(0).memory()


def test_copies_are_done_when_a_move_ends_badly(gpu, tmp_path):
    files = look_at(saved(tmp_path / "m.safetensors"))
    progress = Progress()
    progress.stop()
    with pytest.raises(MoveCancelledError):
        moves.cold_to_hot(files, [block_of(files.tensors)], [Cuda(0)], progress)
    assert gpu.calls[-3:] == ["stream.synchronize", "synchronize", "empty_cache"]


def test_memory_that_cannot_be_locked_is_used_as_it_is(gpu, tmp_path):
    gpu.fails["register"] = 2
    copy = WarmStore(tmp_path).acquire("key", 4, lambda write: write(0, torch.ones(4, dtype=torch.uint8)), Progress(4))
    copy.pin(Cuda(0).pin)
    assert not copy.pinned
    assert copy.release()
    assert "cudaHostUnregister" not in gpu.calls


def test_a_tensor_that_somebody_keeps_is_not_freed(gpu):
    block = Cuda(0).allocate(MIB)
    kept = block.data[1:]
    with pytest.raises(StillHeldError, match="weights on cuda:0"):
        block.free()
    assert "empty_cache" not in gpu.calls
    del kept
    block.free()
