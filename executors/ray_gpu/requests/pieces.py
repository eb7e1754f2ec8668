"""Bytes in several pieces, so that nothing large is copied together to be sent, or to be read. Replica processes import this.

A pickler that writes to a file hands it large bytes as they are, and an unpickler that reads from one fills the value's own
memory. Fresh memory is what costs most here: the system has to find and clear each page.
"""

import itertools
import pickle
from typing import Any, TypeAlias

PIECE_BYTES = 64 * 1024
"""From so much on copying costs more than handling pieces: pickle's own limit for handing over a value as it is."""


class Pieces:
    """What they are joined together.

    Attributes:
        parts: In order.
    """

    __slots__ = ("_size_bytes", "parts")

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts
        self._size_bytes = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size_bytes

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


Body: TypeAlias = bytes | Pieces


class TooLargeError(Exception):
    """More was written than may be."""


def dumped(value: Any, pickler: Any, most_bytes: float) -> Body:
    """A value's pickle.

    Args:
        pickler: The class.
        most_bytes: Not found out by copying: what would exceed it is looked at, and left.

    Raises:
        TooLargeError: It has more.
        Exception: It cannot be pickled.
    """
    file = _Parts(most_bytes)
    pickler(file, 5).dump(value)
    return b"".join(file.parts) if file.size_bytes < PIECE_BYTES else Pieces(file.parts)


def loaded(body: Body) -> Any:
    """The value of a pickle."""
    return pickle.loads(body) if type(body) is bytes else pickle.Unpickler(_Reader(bytes_of(body))).load()


def bytes_of(body: Body) -> list[bytes]:
    """The parts of it."""
    return [body] if isinstance(body, bytes) else body.parts


def gathered(parts: list[bytes]) -> list[bytes]:
    """Small parts that are neighbours copied together, large ones as they are."""
    if max(map(len, parts), default=PIECE_BYTES) < PIECE_BYTES:
        return [b"".join(parts)]
    gathered: list[bytes] = []
    for is_large, some in itertools.groupby(parts, lambda part: len(part) >= PIECE_BYTES):
        if is_large:
            gathered.extend(some)
        else:
            gathered.append(b"".join(some))
    return gathered


class _Parts:
    """A file that keeps what is written to it. What may change later is copied."""

    __slots__ = ("most_bytes", "parts", "size_bytes")

    def __init__(self, most_bytes: float) -> None:
        self.parts: list[bytes] = []
        self.size_bytes = 0
        self.most_bytes = most_bytes

    def write(self, data: Any) -> None:
        is_buffer = type(data) is pickle.PickleBuffer
        view = data.raw() if is_buffer else data  # in the order of memory, which is what is pickled
        self.size_bytes += len(view)
        if self.size_bytes > self.most_bytes:
            raise TooLargeError
        self.parts.append(bytes(view))  # which is itself if it is bytes already


class _Reader:
    """A file of several parts."""

    __slots__ = ("_at", "_current", "_rest")

    def __init__(self, parts: list[bytes]) -> None:
        self._rest = iter(parts)
        self._current = memoryview(b"")
        self._at = 0

    def readinto(self, buffer: Any) -> int:
        filled, wanted = 0, len(buffer)
        while filled < wanted:
            piece = self._some(wanted - filled)
            if not piece:
                break
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled

    def read(self, size: int) -> bytes:
        piece = self._some(size)
        if len(piece) == size:
            return bytes(piece)
        return bytes(piece) + self.read(size - len(piece)) if piece else b""

    def readline(self) -> bytes:
        line = b""
        while not line.endswith(b"\n") and (piece := self._some(1)):
            line += piece
        return line

    def _some(self, most: int) -> memoryview:
        """The next bytes that lie together; none: there are no more."""
        while self._at == len(self._current):
            part = next(self._rest, None)
            if part is None:
                return memoryview(b"")
            self._current, self._at = memoryview(part), 0
        begin = self._at
        self._at = min(begin + most, len(self._current))
        return self._current[begin : self._at]
