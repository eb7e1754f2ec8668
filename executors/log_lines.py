"""Lines of files that somebody writes to: the last ones, and then those that come."""

import os
from pathlib import Path

import attrs

TAIL_BYTES = 65_536
"""At most so much is looked at for the last lines."""
AT_ONCE_BYTES = 1_048_576


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
        lines: The last so many, where none was read before.
        begin: Where those ended that were read before; None: none was.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            place = max(0, size - TAIL_BYTES) if begin is None else min(begin, size)
            file.seek(place)
            data = file.read(TAIL_BYTES if begin is None else AT_ONCE_BYTES)
    except FileNotFoundError:
        return [], 0
    whole = data[: data.rfind(b"\n") + 1]
    texts = whole.decode(errors="replace").splitlines()
    if begin is None:
        texts = texts[1 if place else 0 :][-lines:] if lines else []
    return texts, place + len(whole)
