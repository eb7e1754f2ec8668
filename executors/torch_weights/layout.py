"""Where each tensor lies in memory: one block of bytes a device, and one block for the warm copy.

One allocation a device is copied at full speed and is given back whole; thousands of small ones would share segments with
whatever else the process has there. Within a block tensors stand in the order of the file, so that disks are read forwards.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import attrs
import torch
from torch import Tensor

from executors.torch_weights.errors import InvalidMemoryError
from executors.torch_weights.files import TensorSpec

ALIGNMENT = 256
"""Bytes. What cudaMalloc promises at least, so that a tensor within a block is as well placed as one of its own."""
PARTS_MAX = 16
"""Up to so many devices a planner is told what the fullest takes."""


@attrs.frozen
class Run:
    """Bytes that lie one after the other in two blocks."""

    source: int
    target: int
    nbytes: int


@attrs.frozen(kw_only=True)
class Block:
    """Tensors that lie in one piece of memory.

    Attributes:
        tensors: In the order of the file.
        offsets: Of each, in bytes, multiples of ALIGNMENT.
        nbytes: Of the whole; 0 where there is nothing in it.
    """

    tensors: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    nbytes: int

    def views(self, data: Tensor) -> dict[str, Tensor]:
        """The tensors in a block of bytes: uint8 of shape (nbytes,), anywhere. Nothing is copied."""
        storage = data.untyped_storage()
        found = {}
        for spec, offset in zip(self.tensors, self.offsets, strict=True):
            # No views of `data`, which autograd would tie to each other: an in-place change of one would mark them all.
            empty = torch.empty(0, dtype=spec.dtype, device=data.device)
            begin = data.storage_offset() + offset if spec.nbytes else 0
            found[spec.name] = empty.set_(storage, begin // spec.dtype.itemsize, spec.shape, _contiguous(spec.shape))
        return found


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(1, length)
    return tuple(reversed(strides))


def block_of(tensors: Sequence[TensorSpec]) -> Block:
    """Tensors packed into one block, whatever order they come in."""
    ordered = sorted(tensors, key=lambda each: (each.file, each.offset, each.name))
    offsets, end = [], 0
    for each in ordered:
        offsets.append(end)
        end += -(-each.nbytes // ALIGNMENT) * ALIGNMENT
    return Block(tensors=tuple(ordered), offsets=tuple(offsets), nbytes=end)


def split(tensors: Sequence[TensorSpec], parts: int) -> list[list[TensorSpec]]:
    """Tensors over so many devices: each gets neighbours, and the fullest one as little as is possible then.

    Neighbours are by name, with numbers counted as numbers ("layers.2" before "layers.10"), so that a layer is rarely cut.
    Some parts are empty where there are fewer tensors than devices.

    Raises:
        InvalidMemoryError: parts is not a positive number.
    """
    if parts < 1:
        raise InvalidMemoryError("the number of devices", parts, "at least 1")
    ordered = sorted(tensors, key=lambda each: _natural(each.name))
    sizes = [-(-each.nbytes // ALIGNMENT) * ALIGNMENT for each in ordered]
    low, high = max(sizes, default=0), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if len(_ends(sizes, middle)) <= parts:
            high = middle
        else:
            low = middle + 1
    ends = _ends(sizes, low)
    ends += [len(ordered)] * (parts - len(ends))
    return [ordered[begin:end] for begin, end in pairwise([0, *ends])]


def fullest_parts(tensors: Sequence[TensorSpec], beside_bytes: int = 0) -> tuple[tuple[int, int], ...]:
    """What the fullest of so many devices takes, by their number, the fewest first; `ModelSpec.shard_bytes` of a planner.

    Left out are numbers of devices on which it takes no less than on fewer.

    Args:
        beside_bytes: What is held beside the weights, in equal parts.
    """
    found: list[tuple[int, int]] = []
    for parts in range(1, PARTS_MAX + 1):
        fullest = max((block_of(group).nbytes for group in split(tensors, parts)), default=0)
        taken = fullest - (-beside_bytes // parts)
        if taken and (not found or taken < found[-1][1]):
            found.append((parts, taken))
    return tuple(found)


def _ends(sizes: Sequence[int], most: int) -> list[int]:
    """Where parts end that are each as full as `most` allows."""
    ends, filled = [], 0
    for index, size in enumerate(sizes):
        if filled + size > most:
            ends.append(index)
            filled = 0
        filled += size
    return [*ends, len(sizes)]


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def placed(tensors: Sequence[TensorSpec], parts: int, placement: Mapping[str, int]) -> list[list[TensorSpec]]:
    """Tensors over devices as their user says: name to index of the device.

    Raises:
        InvalidMemoryError: A tensor has no device, or one that there is not.
    """
    if not isinstance(placement, Mapping):
        raise InvalidMemoryError("placement", placement, "a mapping of names of tensors to numbers of devices")
    found: list[list[TensorSpec]] = [[] for _ in range(parts)]
    for each in tensors:
        index = placement.get(each.name)
        if type(index) is not int or not 0 <= index < parts:
            raise InvalidMemoryError(f"placement of {each.name!r}", index, f"a device from 0 to {parts - 1}")
        found[index].append(each)
    return found


def runs(source: Block, target: Block) -> list[Run]:
    """What to copy so that the target's tensors, all of which the source has, come from the source. Neighbours are one run."""
    at = dict(zip((each.name for each in source.tensors), source.offsets, strict=True))
    found: list[Run] = []
    for each, offset in zip(target.tensors, target.offsets, strict=True):
        begin, last = at[each.name], found[-1] if found else None
        if not each.nbytes:
            continue
        gap = offset - (last.target + last.nbytes) if last else 0
        if last and gap < ALIGNMENT and begin - (last.source + last.nbytes) == gap:
            found[-1] = Run(last.source, last.target, last.nbytes + gap + each.nbytes)
        else:
            found.append(Run(begin, offset, each.nbytes))
    return found


@attrs.frozen
class Piece:
    """Bytes of a file that belong to a place in a window of a block."""

    file: int
    offset: int
    at: int
    nbytes: int


def windows(block: Block, most: int) -> Iterator[tuple[int, int, list[Piece]]]:
    """A block in windows of at most so many bytes: begin, end, and what of the files belongs there, in the order of reading.

    A tensor is cut at multiples of `most` from its own beginning, whatever lies beside it: a digest of a piece is the same in
    every block.
    """
    begin, inside = 0, list[Piece]()
    for spec, at in zip(block.tensors, block.offsets, strict=True):
        for done in range(0, spec.nbytes, most):
            start, nbytes = at + done, min(most, spec.nbytes - done)
            if start + nbytes > begin + most:
                yield from _filled(begin, start, most, inside)
                begin, inside = start, []
            inside.append(Piece(spec.file, spec.offset + done, start - begin, nbytes))
    yield from _filled(begin, block.nbytes, most, inside)


def _filled(begin: int, end: int, most: int, inside: list[Piece]) -> Iterator[tuple[int, int, list[Piece]]]:
    """One window, and what is too much for it of the room behind its last piece, where there is nothing."""
    for start in range(begin, end, most):
        yield start, min(end, start + most), inside if start == begin else []
