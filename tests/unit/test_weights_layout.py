"""Where tensors lie: no byte is lost or shared, devices get neighbours, and the fullest one as little as possible."""

from itertools import accumulate, combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from executors.torch_weights import InvalidMemoryError
from executors.torch_weights.files import TensorSpec
from executors.torch_weights.layout import ALIGNMENT, block_of, placed, runs, split, windows

SIZES = st.lists(st.integers(0, 2_000), max_size=12)


def specs(sizes, files=1):
    """Tensors of bytes, in files that have them one after the other."""
    ends = [0] * files
    found = []
    for index, size in enumerate(sizes):
        file = index % files
        name = f"layers.{index}.weight"
        spec = TensorSpec(name=name, dtype=torch.uint8, shape=(size,), file=file, offset=ends[file], nbytes=size)
        ends[file] += size
        found.append(spec)
    return found


@given(SIZES, st.integers(1, 3))
def test_tensors_of_a_block_are_aligned_and_share_no_byte(sizes, files):
    block = block_of(specs(sizes, files))
    assert all(offset % ALIGNMENT == 0 for offset in block.offsets)
    ends = [offset + each.nbytes for each, offset in zip(block.tensors, block.offsets, strict=True)]
    assert all(end <= begin for end, begin in zip(ends, block.offsets[1:], strict=False))
    assert max(ends, default=0) <= block.nbytes < sum(sizes) + ALIGNMENT * (len(sizes) + 1)


@given(SIZES, st.integers(1, 5))
def test_devices_get_neighbours_and_the_fullest_as_little_as_possible(sizes, parts):
    tensors = specs(sizes)
    groups = split(tensors, parts)
    assert len(groups) == parts
    assert [each for group in groups for each in group] == tensors
    padded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    ends = [0, *accumulate(padded)]
    cuts = combinations([*range(len(sizes) + 1)] * (parts - 1), parts - 1) if len(sizes) < 6 and parts < 4 else []
    best = min((max(ends[b] - ends[a] for a, b in pairwise([0, *sorted(cut), len(sizes)])) for cut in cuts), default=None)
    if best is not None:
        assert max(block_of(group).nbytes for group in groups) == best


def test_numbers_in_names_count_as_numbers():
    names = ["layers.10.w", "layers.2.w", "embed", "layers.1.w"]
    tensors = [TensorSpec(name=name, dtype=torch.uint8, shape=(256,), file=0, offset=0, nbytes=256) for name in names]
    assert [each.name for group in split(tensors, 2) for each in group] == ["embed", "layers.1.w", "layers.2.w", "layers.10.w"]


@given(SIZES, st.integers(1, 3), st.integers(1, 700), st.integers(1, 3))
def test_windows_bring_every_byte_of_the_files_to_its_place_once(sizes, files, most, parts):
    tensors = specs(sizes, files)
    disk = [bytearray() for _ in range(files)]
    for index, each in enumerate(tensors):
        disk[each.file] += bytes([index + 1]) * each.nbytes
    for group in split(tensors, parts):
        block = block_of(group)
        memory = bytearray(block.nbytes)
        ends = 0
        for begin, end, pieces in windows(block, most):
            assert (begin, end <= begin + most) == (ends, True)
            ends = end
            for piece in pieces:
                assert 0 <= piece.at <= piece.at + piece.nbytes <= end - begin
                to = slice(begin + piece.at, begin + piece.at + piece.nbytes)
                assert not any(memory[to])
                memory[to] = disk[piece.file][piece.offset : piece.offset + piece.nbytes]
        assert ends == block.nbytes
        for each, offset in zip(block.tensors, block.offsets, strict=True):
            assert memory[offset : offset + each.nbytes] == bytes([tensors.index(each) + 1]) * each.nbytes


@given(SIZES, st.integers(1, 3), st.integers(1, 3))
def test_runs_bring_every_tensor_from_one_block_to_another(sizes, files, parts):
    tensors = specs(sizes, files)
    whole = block_of(tensors)
    source = bytearray(whole.nbytes)
    for index, (each, offset) in enumerate(zip(whole.tensors, whole.offsets, strict=True)):
        source[offset : offset + each.nbytes] = bytes([index + 1]) * each.nbytes
    for group in split(tensors, parts):
        block = block_of(group)
        target = bytearray(block.nbytes)
        for run in runs(whole, block):
            target[run.target : run.target + run.nbytes] = source[run.source : run.source + run.nbytes]
        for each, offset in zip(block.tensors, block.offsets, strict=True):
            assert target[offset : offset + each.nbytes] == bytes([whole.tensors.index(each) + 1]) * each.nbytes


def test_a_block_copied_to_its_like_is_one_run():
    block = block_of(specs([1000, 1, 0, 256, 77]))
    assert [(run.source, run.target) for run in runs(block, block)] == [(0, 0)]


def test_users_may_say_which_tensor_goes_where():
    tensors = specs([1, 2, 3])
    names = [each.name for each in tensors]
    groups = placed(tensors, 2, {names[0]: 1, names[1]: 0, names[2]: 1})
    assert [[each.nbytes for each in group] for group in groups] == [[2], [1, 3]]


@pytest.mark.parametrize("placement", [{}, {"layers.0.weight": 2}, {"layers.0.weight": -1}])
def test_a_placement_that_leaves_a_tensor_nowhere_is_refused(placement):
    with pytest.raises(InvalidMemoryError, match=r"placement of 'layers.0.weight' must be a device from 0 to 1"):
        placed(specs([1]), 2, placement)


@pytest.mark.parametrize("placement", [5, "layers", [0], {"layers.0.weight": "0"}, {"layers.0.weight": True}])
def test_a_placement_that_is_none_is_refused(placement):
    with pytest.raises(InvalidMemoryError, match="placement"):
        placed(specs([1]), 2, placement)


def test_no_device_is_no_split():
    with pytest.raises(InvalidMemoryError, match="at least 1, got 0"):
        split(specs([1]), 0)
