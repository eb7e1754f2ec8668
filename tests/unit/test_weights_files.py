"""A file of weights is what it says, or is refused with the file, what was found and what is allowed."""

import json
import os
import pickle

import pytest
import torch

from executors.torch_weights import WeightsChangedError, WeightsFileError, contents, declared_in, look_at
from executors.torch_weights.files import DTYPES
from tests.weights_worlds import entry, raw_file, saved, tensors

TWO_FLOATS = entry("F32", [2], 0, 8)
ONE_BYTE = '{"dtype":"U8","shape":[1],"data_offsets":'
TWICE = f'{{"a":{ONE_BYTE}[0,1]}},"a":{ONE_BYTE}[1,2]}}}}'.encode()


def refused(path, *words):
    with pytest.raises(WeightsFileError) as caught:
        look_at(path)
    text = str(caught.value)
    assert all(word in text for word in (*words, caught.value.path, caught.value.allowed)), text
    return caught.value


def test_names_types_shapes_and_offsets_are_those_of_the_file(tmp_path):
    content = {"b": torch.ones(3, 2), "a": torch.ones(5, dtype=torch.int8), "scalar": torch.tensor(1.5)}
    found = look_at(saved(tmp_path / "m.safetensors", content))
    assert {each.name: (each.dtype, each.shape, each.nbytes) for each in found.tensors} == {
        "b": (torch.float32, (3, 2), 24),
        "a": (torch.int8, (5,), 5),
        "scalar": (torch.float32, (), 4),
    }
    data = (tmp_path / "m.safetensors").read_bytes()
    for each in found.tensors:
        assert data[each.offset : each.offset + each.nbytes] == content[each.name].numpy().tobytes()


def test_nothing_is_a_model_too(tmp_path):
    assert look_at(raw_file(tmp_path / "m.safetensors", {})).nbytes == 0


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"a": TWO_FLOATS}, b"1234567", ["size", "found 76 bytes", "77 bytes"]),
        ({"a": TWO_FLOATS}, b"123456789", ["size", "found 78 bytes", "77 bytes"]),
        ({"a": entry("F32", [2], 0, 4)}, b"1234", ["header", "shape, data type, or offset"]),
        ({"a": entry("F31", [2], 0, 8)}, b"12345678", ["header", "F31"]),
        ({"a": entry("F32", [-2], 0, 8)}, b"12345678", ["header", "-2"]),
        ({"a": entry("F32", [1e30], 0, 8)}, b"12345678", ["header", "1e+30"]),
        ({"a": entry("F32", [2**62, 8], 0, 8)}, b"12345678", ["header", "overflow"]),
        ({"a": entry("F32", [0, 2**63], 0, 0)}, b"", ["shape of 'a'", "9223372036854775808", "below 2**63"]),
        ({"a": entry("F32", [0, 2**62, 2**62], 0, 0)}, b"", ["shape of 'a'"]),
        ({"a": entry("F4", [2], 0, 1)}, b"1", ["dtype of 'a'", "F4", "BF16"]),
        ({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 0, 1)}, b"1", ["header", "invalid offset"]),
        ({"a": entry("U8", [1], 1, 2)}, b"12", ["header", "invalid offset"]),
        ({"a": entry("F32", [2], 0, 1e30)}, b"12345678", ["header", "1e+30"]),
        (b"nonsense", b"", ["header", "JSON"]),
        (b"[" * 100_000, b"", ["header"]),
        (b"\xff\xfe", b"", ["header"]),
        (TWICE, b"12", ["header", "invalid offset"]),
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, dict) else None,
)
def test_a_wrong_header_is_refused_and_says_why(tmp_path, header, data, words):
    refused(raw_file(tmp_path / "m.safetensors", header, data), *words)


@pytest.mark.parametrize("length", [2**64 - 1, 2**60, 100_000_001, 3])
def test_a_header_longer_than_the_file_is_not_read(tmp_path, length):
    error = refused(raw_file(tmp_path / "m.safetensors", b"{}", length=length), str(length))
    assert (error.field, error.found) == ("header length", length)


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_a_file_without_a_header_is_refused(tmp_path, content):
    (tmp_path / "m.safetensors").write_bytes(content)
    refused(tmp_path / "m.safetensors", f"found {len(content)} bytes", "at least the 8 bytes")


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    refused(tmp_path / "nothing.safetensors", "No such file")
    refused(tmp_path / "a\0b", "null")
    for path in (tmp_path / ("x" * 300), 5, None, b"bytes"):
        refused(path, "the path")
    refused("/dev/null", "a folder or a device")
    os.mkfifo(tmp_path / "pipe.safetensors")
    refused(tmp_path / "pipe.safetensors", "a regular file")

    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    refused(tmp_path / "loop.safetensors", "ymlink loop")


def test_a_folder_with_an_index_is_one_model(tmp_path):
    saved(tmp_path / "m-1.safetensors", {"a": torch.ones(2)})
    saved(tmp_path / "m-2.safetensors", {"b": torch.ones(3)})
    (tmp_path / "m.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"b": "m-2.safetensors", "a": "m-1.safetensors"}})
    )
    found = look_at(tmp_path)
    assert [(each.name, each.file) for each in found.tensors] == [("a", 0), ("b", 1)]
    assert look_at(tmp_path / "m.safetensors.index.json") == found


def test_a_folder_with_one_file_is_that_file(tmp_path):
    assert look_at(saved(tmp_path / "m.safetensors").parent) == look_at(tmp_path / "m.safetensors")


def test_a_folder_that_could_be_two_models_is_refused(tmp_path):
    saved(tmp_path / "a.safetensors")
    saved(tmp_path / "b.safetensors")
    refused(tmp_path, "2 files and 0 indexes")


def test_a_tensor_in_two_files_is_refused(tmp_path):
    for name in ("m-1", "m-2"):
        saved(tmp_path / f"{name}.safetensors", {"a": torch.ones(2)})
    weight_map = {"a": "m-1.safetensors", "b": "m-2.safetensors"}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    refused(tmp_path, "tensor 'a'", "one file only")


@pytest.mark.parametrize(
    "index",
    ["", "{", "[]", "null", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": 3}}']
    + [json.dumps({"weight_map": {"a": name}}) for name in ("../m.safetensors", "/etc/passwd", "", ".", "..")],
)
def test_a_wrong_index_is_refused_and_leads_nowhere_else(tmp_path, index):
    (tmp_path / "m.safetensors.index.json").write_text(index)
    refused(tmp_path, "weight_map")


def test_an_index_to_a_file_that_is_not_there_names_it(tmp_path):
    (tmp_path / "m.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    refused(tmp_path, "gone.safetensors", "No such file")


def test_another_file_under_the_name_is_another_identity(tmp_path):
    path = saved(tmp_path / "m.safetensors")
    before = look_at(path)
    assert look_at(path).identity == before.identity
    saved(tmp_path / "n.safetensors", tensors(seed=1))
    os.replace(tmp_path / "n.safetensors", path)
    assert look_at(path).identity != before.identity


def test_a_file_that_changed_since_it_was_looked_at_is_not_read(tmp_path):
    path = saved(tmp_path / "m.safetensors")
    before = look_at(path)
    saved(tmp_path / "n.safetensors", tensors(seed=1))
    os.replace(tmp_path / "n.safetensors", path)
    with pytest.raises(WeightsFileError, match="it changed since its header was read"):
        before.open()


def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_crash(tmp_path):
    path = saved(tmp_path / "m.safetensors")
    found = look_at(path)
    last = found.tensors[-1]
    with found.open() as reader:
        os.truncate(path, last.offset + 3)
        with pytest.raises(WeightsFileError, match=f"size must be as much as its header said, found {last.offset + 3}"):
            reader.read_into(0, last.offset, [memoryview(bytearray(last.nbytes))])
        with pytest.raises(WeightsFileError, match="it changed"):
            reader.check_unchanged()


def test_every_type_of_the_format_that_torch_has_is_known():
    known = {*DTYPES.values()}
    assert {torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2} <= known
    assert len({*DTYPES.values()}) == len(DTYPES)


def in_place(path, content):
    """Other bytes in the file that there is, of the same size and with the same time of change, as `cp -p` leaves them."""
    before = path.stat()
    other = saved(path.with_name("other"), content)
    assert other.stat().st_size == before.st_size
    with path.open("r+b") as file:
        file.write(other.read_bytes())
    other.unlink()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


@pytest.fixture
def large(monkeypatch):
    """Small files are judged as large ones are: by samples."""
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(contents, "SAMPLE_BYTES", 16)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("count", [4, 700], ids=["all places", "one place of each"])
def test_of_a_large_file_every_tensor_counts_and_the_header_does(tmp_path, count, monkeypatch):
    monkeypatch.setattr(contents, "SAMPLES_OF_FILE", 1000)
    path = saved(tmp_path / "m.safetensors", tensors(count))
    declared = declared_in(look_at(path).declared())
    assert look_at(path, declared).expected == declared
    for name in tensors(count):
        if count == 4 or name.endswith("99.weight"):
            in_place(path, {**tensors(count), name: tensors(count)[name] + 1})
            with pytest.raises(WeightsChangedError):
                look_at(path, declared)
    in_place(path, {name.replace("layers", "others"): each for name, each in tensors(count).items()})
    with pytest.raises(WeightsChangedError):
        look_at(path, declared)
    in_place(path, tensors(count))
    look_at(path, declared)


def test_one_bit_of_a_small_file_is_another_file_and_the_error_says_what_to_do(tmp_path):
    path = saved(tmp_path / "m.safetensors")
    declared = declared_in(look_at(path).declared())
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsChangedError) as caught:
        look_at(path, declared)
    found = declared_in(look_at(path).declared())
    assert (caught.value.path, caught.value.expected, caught.value.found) == (str(path), declared, found)
    for word in (str(path), declared, found, "deploy the model again"):
        assert word in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.args) == (str(caught.value), caught.value.args)


def test_contents_are_the_same_on_another_host_and_what_is_declared_follows_the_time_of_change(tmp_path):
    path = saved(tmp_path / "m.safetensors")
    declared = look_at(path).declared()
    assert look_at(path).declared() == declared
    copy = tmp_path / "elsewhere.safetensors"
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(1, 1))
    assert declared_in(look_at(copy).declared()) == declared_in(declared)
    assert look_at(copy).declared() != declared
    assert look_at(copy, declared_in(declared)).paths == (str(copy),)


def test_of_several_files_the_one_that_was_changed_is_named(tmp_path):
    for name in ("m-1", "m-2", "m-3"):
        saved(tmp_path / f"{name}.safetensors", {name: torch.ones(2)})
        os.utime(tmp_path / f"{name}.safetensors", ns=(1, 1))
    weight_map = {name: f"{name}.safetensors" for name in ("m-1", "m-2", "m-3")}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    declared = declared_in(look_at(tmp_path).declared())
    look_at(tmp_path, declared)
    saved(tmp_path / "new", {"m-2": torch.zeros(2)}).rename(tmp_path / "m-2.safetensors")
    with pytest.raises(WeightsChangedError, match=r"m-2\.safetensors: the weights must be those"):
        look_at(tmp_path, declared)


def test_what_was_not_declared_is_not_checked(tmp_path):
    assert declared_in("") is None
    assert declared_in("my version 3") is None
    declared = look_at(saved(tmp_path / "m.safetensors")).declared()
    assert declared_in(f"my version 3, {declared}") == declared_in(declared)
    assert declared_in(f"{declared}, my version 3") is None


def test_no_tensors_have_contents_too(tmp_path):
    path = raw_file(tmp_path / "m.safetensors", {})
    look_at(path, declared_in(look_at(path).declared()))
