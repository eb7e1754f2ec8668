"""Whatever happens to the bytes of a file: an error that names it, or the very tensors that the library reads from it."""

import asyncio
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load, save

from executors.torch_weights import WeightsFileError
from tests.weights_worlds import node, same

GOOD = save(
    {
        "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "b": torch.arange(5, dtype=torch.int8),
        "c": torch.tensor(2.0, dtype=torch.bfloat16),
        "d": torch.empty(0, 4),
    },
    {"format": "pt"},
)


@st.composite
def damaged(draw):
    """A good file with bytes changed, inserted, removed, repeated or cut off."""
    data = bytearray(GOOD)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(("change", "insert", "remove", "cut", "word")))
        if how == "change" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=9))
        elif how == "remove":
            del data[at : at + draw(st.integers(1, 9))]
        elif how == "cut":
            del data[at:]
        elif how == "word":
            words = (b"1e30", b"-1", b"null", b"[]", b"18446744073709551615", b'"F64"', b'"U8"', b"{", b",")
            word = draw(st.sampled_from(words))
            data[at : at + len(word)] = word
    return bytes(data)


async def loaded(path, folder):
    place = node(folder)
    weights = place.weights(path)
    await weights.from_cache()
    found = {name: tensor.clone() for name, tensor in weights.tensors.items()}
    await weights.aclose()
    assert place.free == [2**20]
    return found


def read_by_the_library(data):
    try:
        return load(data)
    except (SafetensorError, TypeError, RuntimeError, ValueError):
        return None


@given(damaged())
def test_a_damaged_file_is_refused_or_read_as_the_library_reads_it(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        path.write_bytes(data)
        try:
            found = asyncio.run(loaded(path, Path(folder)))
        except WeightsFileError as refused:
            error = refused
        else:
            assert same(found, read_by_the_library(data))
            return
    assert all(words in str(error) for words in (str(path), error.field, error.allowed))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read_as_the_library_reads_them(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        path.write_bytes(data)
        try:
            found = asyncio.run(loaded(path, Path(folder)))
        except WeightsFileError:
            return
        assert same(found, read_by_the_library(data))


@given(st.integers(0, len(GOOD) - 1))
def test_a_file_cut_anywhere_is_refused(end):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors"
        path.write_bytes(GOOD[:end])
        with pytest.raises(WeightsFileError, match=r"m\.safetensors"):
            asyncio.run(loaded(path, Path(folder)))
