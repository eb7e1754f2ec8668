"""Files of weights: what is in a safetensors file, checked against its size, and read by ranges of bytes.

The library `safetensors` judges the format. What it does not do is say which file is wrong, by how much, and where in the
file a tensor begins, which is what reading in bounded pieces needs. A file that it accepts has its tensors one after the
other, without a gap and without an overlap, from the end of the header to the end of the file: that gives the offsets.

A model may be one file, or a folder with the index file that says which tensor is in which (`*.safetensors.index.json`).
"""

import contextlib
import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import torch
from safetensors import SafetensorError, safe_open

from executors.torch_weights.contents import contents, declared
from executors.torch_weights.errors import WeightsChangedError, WeightsFileError

HEADER_BYTES_MAX = 100_000_000
"""As the library has it."""
LENGTH_BYTES = 8
INDEX_SUFFIX = ".safetensors.index.json"
INDEX_BYTES_MAX = 256 * 2**20
INT64_MAX = 2**63 - 1
BUFFERS_MAX = 512
"""Of one vectored read; POSIX guarantees 16, Linux takes 1024."""

# By the names of the format. What is left out (F4, F6_*) has elements of less than a byte.
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, ours)
    for name, ours in {
        "BOOL": "bool",
        "U8": "uint8",
        "I8": "int8",
        "U16": "uint16",
        "I16": "int16",
        "U32": "uint32",
        "I32": "int32",
        "U64": "uint64",
        "I64": "int64",
        "F16": "float16",
        "BF16": "bfloat16",
        "F32": "float32",
        "F64": "float64",
        "C64": "complex64",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E5M2": "float8_e5m2",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        "F8_E8M0": "float8_e8m0fnu",
    }.items()
    if hasattr(torch, ours)
}


@attrs.frozen(kw_only=True)
class TensorSpec:
    """Where one tensor is.

    Attributes:
        name: Unique over all files of a model.
        dtype: Of its elements.
        shape: `()` is one element.
        file: Index into `WeightsFiles.paths`.
        offset: Its first byte in that file.
        nbytes: May be 0.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    file: int
    offset: int
    nbytes: int


@attrs.frozen(kw_only=True)
class WeightsFiles:
    """A model on disk, as it was when it was looked at.

    Attributes:
        paths: Its files.
        tensors: In the order of the files, then of the offsets.
        stamps: Device, inode, size and time of the last change of each file.
        expected: The contents that were declared for it, and found; None: none were declared.
    """

    paths: tuple[str, ...]
    tensors: tuple[TensorSpec, ...]
    stamps: tuple[tuple[int, int, int, int], ...]
    expected: str | None = None

    @property
    def nbytes(self) -> int:
        """Of all tensors."""
        return sum(each.nbytes for each in self.tensors)

    @property
    def identity(self) -> str:
        """The same for all on this host who look at the same files, another one as soon as one is another or was changed."""
        tensors = [(each.name, str(each.dtype), each.shape, each.offset) for each in self.tensors]
        what = (self.paths, self.stamps, tensors, self.expected)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:32]

    def declared(self) -> str:
        """What a model's version says of these files; `contents` says what that catches.

        Raises:
            WeightsFileError: One of them is gone, or is not what was looked at.
        """
        with self.open() as reader:
            found = reader.contents()
            reader.check_stamps()
        return declared(found, [mtime_ns for *_, mtime_ns in self.stamps])

    def open(self) -> "OpenWeights":
        """The files, open for reading.

        Raises:
            WeightsFileError: One of them is gone, or is not what was looked at.
        """
        return OpenWeights(self)


def look_at(path: str | os.PathLike[str], expected: str | None = None) -> WeightsFiles:
    """What weights there are: one file, a folder with an index, or the index itself.

    Args:
        path: Of these.
        expected: The contents that were declared for them (`declared_in`); None: whatever they are.

    Raises:
        WeightsChangedError: The contents are others.
        WeightsFileError: Something is wrong with what is there.
    """
    try:
        names = _files_of(Path(path))
    except (OSError, TypeError) as error:
        raise WeightsFileError(repr(path), "the path", str(error), "one of a file or folder that can be read") from error
    tensors: list[TensorSpec] = []
    stamps = []
    home: dict[str, str] = {}
    for index, name in enumerate(names):
        with _opened(name) as descriptor:
            stamps.append(_stamp(descriptor))
            found = _tensors_in(name, descriptor, index)
        for each in found:
            if each.name in home:
                raise WeightsFileError(name, f"tensor {each.name!r}", f"it in {home[each.name]} too", "in one file only")
            home[each.name] = name
        tensors += found
    files = WeightsFiles(paths=tuple(names), tensors=tuple(tensors), stamps=tuple(stamps), expected=expected)
    if expected is not None:
        with files.open() as reader:
            reader.check_unchanged()
    return files


def _files_of(path: Path) -> list[str]:
    if path.is_dir():
        indexes = sorted(path.glob(f"*{INDEX_SUFFIX}"))
        files = sorted(path.glob("*.safetensors"))
        if len(indexes) == 1:
            return _files_in_index(indexes[0])
        if len(indexes) > 1 or len(files) != 1:
            found = f"{len(files)} files and {len(indexes)} indexes"
            raise WeightsFileError(str(path), "the folder", found, f"one with one *.safetensors file or one *{INDEX_SUFFIX}")
        return [_real(files[0])]
    if path.name.endswith(INDEX_SUFFIX):
        return _files_in_index(path)
    return [_real(path)]


def _real(path: Path) -> str:
    """Without symbolic links: the same file under two names is one file, with one warm copy."""
    try:
        return str(path.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsFileError(str(path), "the file", str(error), "one that can be read") from error


def _files_in_index(path: Path) -> list[str]:
    allowed = 'a JSON object whose "weight_map" maps names of tensors to names of files beside it'
    try:
        with _opened(str(path)) as descriptor:
            if os.fstat(descriptor).st_size > INDEX_BYTES_MAX:
                raise WeightsFileError(str(path), "size", os.fstat(descriptor).st_size, f"at most {INDEX_BYTES_MAX} bytes")
            content = json.loads(Path(path).read_bytes())
        names = content["weight_map"].values()
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise WeightsFileError(str(path), "the index", f"{type(error).__name__}: {error}", allowed) from error
    wrong = [name for name in names if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", "..")]
    if wrong or not names:
        raise WeightsFileError(str(path), "weight_map", repr(wrong[0]) if wrong else "nothing", allowed)
    return [_real(path.parent / name) for name in sorted(set(names))]


def _tensors_in(path: str, descriptor: int, file: int) -> list[TensorSpec]:
    """The tensors of one file, in the order of their offsets."""
    size = os.fstat(descriptor).st_size
    header_end = LENGTH_BYTES + _header_length(path, descriptor, size)
    try:
        # The same inode that we hold, whatever is renamed over its path meanwhile.
        with safe_open(f"/dev/fd/{descriptor}", framework="pt") as opened:
            slices = [(name, opened.get_slice(name)) for name in opened.offset_keys()]
            declared = [(name, each.get_dtype(), tuple(each.get_shape())) for name, each in slices]
    except (SafetensorError, OSError) as error:
        raise _header_error(path, descriptor, header_end, size, str(error)) from error
    tensors, offset = [], header_end
    for name, dtype_name, shape in declared:
        dtype = DTYPES.get(dtype_name)
        if dtype is None:
            raise WeightsFileError(path, f"dtype of {name!r}", dtype_name, f"one of {', '.join(DTYPES)}")
        if math.prod(max(1, length) for length in shape) * dtype.itemsize > INT64_MAX:
            raise WeightsFileError(path, f"shape of {name!r}", shape, "one that a tensor can have: below 2**63 bytes")
        nbytes = math.prod(shape) * dtype.itemsize
        tensors.append(TensorSpec(name=name, dtype=dtype, shape=shape, file=file, offset=offset, nbytes=nbytes))
        offset += nbytes
    if offset != size:
        raise WeightsFileError(path, "size", f"{size} bytes", f"{offset} bytes, where the last tensor ends")
    return tensors


def _header_length(path: str, descriptor: int, size: int) -> int:
    if size < LENGTH_BYTES:
        raise WeightsFileError(path, "size", f"{size} bytes", f"at least the {LENGTH_BYTES} bytes of the header's length")
    (length,) = struct.unpack("<Q", os.pread(descriptor, LENGTH_BYTES, 0))
    most = min(HEADER_BYTES_MAX, size - LENGTH_BYTES)
    if length > most:
        raise WeightsFileError(path, "header length", length, f"at most {most}, since the file has {size} bytes")
    return int(length)


def _header_error(path: str, descriptor: int, header_end: int, size: int, words: str) -> WeightsFileError:
    """The library's error, with figures where the header can be read at all: it says "not fully covered" to any wrong size."""
    with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError):
        header = json.loads(os.pread(descriptor, header_end - LENGTH_BYTES, LENGTH_BYTES))
        end = max(each["data_offsets"][1] for name, each in header.items() if name != "__metadata__")
        if type(end) is int and 0 <= end <= INT64_MAX and header_end + end != size:
            allowed = f"{header_end + end} bytes, where its header says that it ends"
            return WeightsFileError(path, "size", f"{size} bytes", allowed)
    return WeightsFileError(path, "header", words, "one that the safetensors format allows")


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        # Without O_NONBLOCK a named pipe would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise WeightsFileError(path, "the file", found, "one that can be read") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise WeightsFileError(path, "the file", "a folder or a device", "a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _stamp(descriptor: int) -> tuple[int, int, int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class OpenWeights:
    """The files of a model while they are read."""

    def __init__(self, files: WeightsFiles) -> None:
        self._files = files
        self._stack = contextlib.ExitStack()
        self._descriptors: list[int] = []
        with contextlib.ExitStack() as stack:
            for path in files.paths:
                self._descriptors.append(stack.enter_context(_opened(path)))
            self.check_stamps()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def check_unchanged(self) -> None:
        """Whether the files are still those that were looked at, and declared; to be asked again when all is read.

        Clocks of file systems tick some 250 times a second, so that stamps alone miss what follows at once.

        Raises:
            WeightsChangedError: They are not what was declared.
            WeightsFileError: One has another size, inode or time of change.
        """
        self.check_stamps()
        if self._files.expected is None:
            return
        found = self.contents()
        if found != self._files.expected:
            newest = max(range(len(self._files.paths)), key=lambda each: self._files.stamps[each][-1])
            raise WeightsChangedError(self._files.paths[newest], self._files.expected, found)

    def contents(self) -> str:
        """Of these files, as they are now; see `contents`.

        Raises:
            WeightsFileError: One of them has become shorter, or cannot be read.
        """
        sizes = [size for _, _, size, _ in self._files.stamps]
        return contents(lambda file, offset, buffer: self.read_into(file, offset, [buffer]), self._files.tensors, sizes)

    def check_stamps(self) -> None:
        """Whether the files are still those that were looked at, by what the system keeps of them.

        Raises:
            WeightsFileError: One has another size, inode or time of change.
        """
        for path, descriptor, stamp in zip(self._files.paths, self._descriptors, self._files.stamps, strict=True):
            if _stamp(descriptor) != stamp:
                raise WeightsFileError(path, "the file", "it changed since its header was read", "left alone while it is read")

    def will_read(self) -> None:
        """Tell the system that everything will be read, in order."""
        for descriptor in self._descriptors:
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def read_into(self, file: int, offset: int, buffers: Sequence[memoryview]) -> None:
        """Fill buffers, one after the other, with what follows an offset.

        Raises:
            WeightsFileError: The file ends before, or cannot be read.
        """
        path = self._files.paths[file]
        waiting = [each for each in buffers if len(each)]
        while waiting:
            try:
                got = os.preadv(self._descriptors[file], waiting[:BUFFERS_MAX], offset)
            except OSError as error:
                raise WeightsFileError(path, f"byte {offset}", error.strerror, "one that can be read") from error
            if not got:
                raise WeightsFileError(path, "size", f"{offset} bytes", "as much as its header said")
            offset += got
            while waiting and got >= len(waiting[0]):
                got -= len(waiting.pop(0))
            if got:
                waiting[0] = waiting[0][got:]
