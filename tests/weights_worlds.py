"""What tests of weights share: a node with stand-ins for GPUs, files of weights, and a module that has everything awkward."""

import contextlib
import json
import struct
from pathlib import Path

import attrs
import torch
from safetensors.torch import save_file
from torch import nn

from executors.torch_weights import Device, ResidentWeights, StandIn, WarmStore
from executors.torch_weights.device import Lane

LENGTH_BYTES = 8


@attrs.define
class Node:
    """A machine with devices and memory for warm copies, in a folder of its own."""

    folder: Path
    devices: list[Device]
    store: WarmStore

    def weights(self, path, **settings):
        return ResidentWeights(path, settings.pop("devices", self.devices[:1]), self.store, **settings)

    @property
    def free(self):
        return [device.memory().free_bytes for device in self.devices]


def node(folder, *gpu_bytes, cpu_bytes=None):
    """A node with so much on each GPU. The same folder is the same node, also in another process."""
    sizes = gpu_bytes or (2**20,)
    devices = [StandIn(size, folder / "devices", f"gpu:{index}") for index, size in enumerate(sizes)]
    return Node(folder, devices, WarmStore(folder, cpu_bytes))


def tensors(count=4, seed=0):
    """Some tensors of sizes that are no multiple of anything."""
    torch.manual_seed(seed)
    return {f"layers.{index}.weight": torch.randn(97 + index, 13) for index in range(count)}


def saved(path, content=None, **metadata):
    save_file(content if content is not None else tensors(), path, metadata or None)
    return path


def raw_file(path, header, data=b"", length=None):
    """A file with any header, also one that no library would write."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def same(found, wanted):
    """Whether tensors are the same by name, type, shape and every bit."""
    assert sorted(found) == sorted(wanted)
    for name, tensor in wanted.items():
        other = found[name].cpu()
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape), name
        assert bytes_of(other) == bytes_of(tensor), name
    return True


def bytes_of(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


class Language(nn.Module):
    """Tied weights, a buffer that is saved, one that is not, a scalar, and a parameter that is not trained."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.hidden = nn.Linear(8, 8)
        self.hidden.bias.requires_grad_(False)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("positions", torch.arange(8.0), persistent=False)

    def forward(self, tokens):
        return self.head(self.hidden(self.embedding(tokens)) * self.positions)


def untied(module):
    """What such a module saves: tied weights once."""
    return {name: value for name, value in module.state_dict().items() if name != "head.weight"}


class WatchedDevice(StandIn):
    """A stand-in that calls `on_copy(how many copies there were)` before each copy, in the thread that moves."""

    def __init__(self, total_bytes, folder, name="gpu:0"):
        super().__init__(total_bytes, folder, name)
        self.copies = 0
        self.staged = []
        self.on_copy = lambda copies: None

    @contextlib.contextmanager
    def lane(self):
        with super().lane() as lane:
            yield WatchedLane(self, lane)


class WatchedLane(Lane):
    def __init__(self, device, lane):
        self.device, self.lane = device, lane

    def staging(self, nbytes):
        self.device.staged.append(nbytes)
        return self.lane.staging(nbytes)

    def upload(self, target, source):
        self.device.on_copy(self.device.copies)
        self.device.copies += 1
        return self.lane.upload(target, source)

    def download(self, target, source):
        return self.upload(target, source)
