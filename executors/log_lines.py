"""Lines of files that somebody writes to: the last ones, and then those that come."""

import os
from pathlib import Path
from typing import BinaryIO

import attrs

TAIL_BYTES = 65_536
"""So much is looked at for the last lines at first, and more where they are not all among it."""
TAIL_BYTES_MAX = 67_108_864
AT_ONCE_BYTES = 1_048_576
"""Of what comes; a line that is longer comes in pieces."""


@attrs.frozen
class LogLine:
    """A line that a replica has printed.

    Attributes:
        replica_id: Or of the deployment, where its replicas share a file.
        rank: Of the replica; None: it had none, or is not known.
        stream: "out" or "err".
    """

    replica_id: str
    rank: int | None
    stream: str
    text: str


def tail(path: Path, lines: int, begin: int | None = None) -> tuple[list[str], int]:
    """Whole lines, and where they end.

    Args:
        lines: The last so many, where none was read before; as far as they are in the last `TAIL_BYTES_MAX`.
        begin: Where those ended that were read before; None: none was.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if begin is None:
                data = _end_of(file, size, lines)
                place = size - len(data)
            else:
                place = file.seek(min(begin, size))
                data = file.read(AT_ONCE_BYTES)
    except FileNotFoundError:
        return [], 0
    whole = data[: data.rfind(b"\n") + 1]
    if not whole and len(data) == AT_ONCE_BYTES and begin is not None:
        whole = data  # none would ever be whole
    texts = whole.decode(errors="replace").splitlines()
    if begin is None:
        texts = texts[1 if place else 0 :][-lines:] if lines else []
    return texts, place + len(whole)


def _end_of(file: BinaryIO, size: int, lines: int) -> bytes:
    """As much of a file's end as has so many lines whole, or all that may be looked at."""
    back = TAIL_BYTES
    while True:
        place = file.seek(max(0, size - back))
        data = file.read(size - place)
        if not place or back >= TAIL_BYTES_MAX or data.count(b"\n") > lines:
            return data
        back = min(4 * back, TAIL_BYTES_MAX)
