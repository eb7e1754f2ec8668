"""The root of weights: a digest of every byte of every tensor, which the threads that read them take on the way.

**What.** `contents` says before a load, from a thousandth of a large model, whether its files are those that were declared. The
root says after it whether each byte that has come is. Whoever serves a version agrees on one root with all others who do: the
first who has read it settles it, and who has read something else has a failed load. So no version is answered by two sets
of bytes, whatever is written to its files, and when.

**Races.**

1. Two replicas read for the first time, and a file is replaced in between: both settle, one is first (`Agreement.settle` is
   atomic), and the other one has its bytes freed before its module has seen them.
2. A file is overwritten while it is read, so that some pieces are old and some new. `contents` and stamps are compared again
   behind the last piece; what these miss is a root of its own, which agrees with nobody else's. If it was the first, then
   nobody loads anything else under that version: deploy under another one, or delete the deployment first.
3. A copy in CPU memory is made of what has been agreed on, and is found by its root alone: not by what its file has become.

**What it costs.** A SHA-256 of each piece, in the thread that has read it, while others read and copy: where threads are faster
than the disk, nothing that anybody waits for.

A digest is of a piece of one tensor, counted from its beginning, so that a root does not depend on how tensors are split over
devices.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from executors.torch_weights.files import TensorSpec


class Digests:
    """Of pieces, as they are read. Any thread may add one."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], bytes] = {}

    def add(self, file: int, offset: int, data: memoryview) -> None:
        """This is what a file has there."""
        self._found[file, offset] = hashlib.sha256(data).digest()

    def root(self, tensors: Sequence["TensorSpec"], most: int) -> str:
        """Of tensors in the order of their files, each of which was read in pieces of at most so many bytes."""
        digest = hashlib.sha256()
        for each in tensors:
            digest.update(repr((each.name, str(each.dtype), each.shape, most)).encode())
            for offset in range(each.offset, each.offset + each.nbytes, most):
                digest.update(self._found[each.file, offset])
        return digest.hexdigest()[:32]


Heard = Callable[[Digests], None]
"""Is told what was read, before anybody uses it; raises if it is not to be used."""


class Agreement(Protocol):
    """What all who serve a version agree on. It may be asked from any thread."""

    def root(self) -> str | None:
        """The root that was settled; None: none yet."""

    def settle(self, root: str) -> str:
        """Settle it unless there is one; returns the one that holds."""


class LocalAgreement:
    """Of one process."""

    def __init__(self) -> None:
        self._root: str | None = None
        self._one_at_a_time = threading.Lock()

    def root(self) -> str | None:
        """See `Agreement`."""
        return self._root

    def settle(self, root: str) -> str:
        """See `Agreement`."""
        with self._one_at_a_time:
            self._root = self._root or root
            return self._root
