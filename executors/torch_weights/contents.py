"""Contents of weights: a digest that says whether two copies of a model on disk are the same, wherever they are.

Inode and time of change say so on one host, and each node of a cluster has files of its own. A hash of every byte says so
everywhere, and takes minutes for the models that matter. So the header and the size of each file count, and of each tensor
bytes from its beginning to its end, at a bounded number of places: a tensor that was trained, merged or quantized anew differs
nearly everywhere. What is small is read whole. A change that leaves all these places as they were is not seen here; the time
of the last change counts for what is declared (`declared`), so that it is seen where the model is deployed again.

    weights:1048664-5f0c2a91e3d84b67a0d1c2f3@9b1d04ce
            size    digest of the contents   digest of the times of change
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from executors.torch_weights.files import TensorSpec

WHOLE_BYTES = 16 * 2**20
"""A file of no more is read whole."""
SAMPLE_BYTES = 4096
SAMPLES_MAX = 8
"""Of one tensor: the first, the last, and those in between at equal distances."""
SAMPLES_OF_FILE = 4096
"""About so many in all, where a file has many tensors; one of each at least."""
_DECLARED = re.compile(r"weights:(\d+-[0-9a-f]{24})@[0-9a-f]{8}\Z")

Read = Callable[[int, int, memoryview], None]
"""Fills a buffer from an offset of a file, by its number."""


def contents(read: Read, tensors: Sequence["TensorSpec"], sizes: Sequence[int]) -> str:
    """The same for the same contents, on any host: size in all, and a digest.

    Args:
        read: Of the files.
        tensors: In the order of the files, then of the offsets.
        sizes: Of the files, in bytes.
    """
    digest = hashlib.sha256()
    for file, size in enumerate(sizes):
        digest.update(f"{size} ".encode())
        for begin, nbytes in _places(size, [each for each in tensors if each.file == file]):
            found = bytearray(nbytes)
            read(file, begin, memoryview(found))
            digest.update(found)
    return f"{sum(sizes)}-{digest.hexdigest()[:24]}"


def declared(found: str, mtimes_ns: Sequence[int]) -> str:
    """What a model's version says of its weights: their contents, and when the deployer's files were last changed."""
    return f"weights:{found}@{hashlib.sha256(repr(tuple(mtimes_ns)).encode()).hexdigest()[:8]}"


def declared_in(version: str) -> str | None:
    """The contents that a version ends with; None: it says nothing of weights, and nothing can be checked.

    >>> declared_in("code 7, weights:16-000102030405060708090a0b@0c0d0e0f")
    '16-000102030405060708090a0b'
    """
    found = _DECLARED.search(version)
    return found[1] if found is not None else None


def _places(size: int, tensors: Sequence["TensorSpec"]) -> Iterator[tuple[int, int]]:
    """Offset and length of each range that counts."""
    if size <= WHOLE_BYTES:
        yield 0, size
        return
    # What comes before the first tensor is the header.
    yield 0, min((each.offset for each in tensors), default=size)
    most = max(1, min(SAMPLES_MAX, SAMPLES_OF_FILE // max(1, len(tensors))))
    for each in tensors:
        if each.nbytes <= most * SAMPLE_BYTES:
            yield each.offset, each.nbytes
            continue
        last = each.nbytes - SAMPLE_BYTES
        for number in range(most):
            yield each.offset + last * number // max(1, most - 1), SAMPLE_BYTES
