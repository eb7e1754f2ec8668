"""Frames: what travels between a caller's process and a replica, in both directions and over any transport.

    length (8 bytes)   call id (8)   kind (1)   body

A caller numbers its calls from 1 on each connection, and those that a number names have that (`request_ids`); call id 0 is the
connection itself. Replica processes import this.

| kind | from | body |
|---|---|---|
| HELLO | caller, first | the connection's key, under which actor calls name it: the replica that is meant, and a name |
| CALL | caller | packed method, arguments and what else is known of the request |
| CANCEL | caller | nobody waits for the answer any more; after LARGE: it was fetched |
| PULL | caller | so many bytes of a stream were consumed: as many more may be sent |
| INPUT | caller | what a WANT asked for |
| NEED | caller | how many calls it could have under way here; the version of the newest grant that it has seen |
| RETURN | caller | it has no more than so many under way from now on; under the grant of this version |
| WATCH | caller | what the replica has is to be said, now and when it changes; looked at every so many ms, and for so long |
| STATS | replica | what it has: its models, what its user code counts |
| GOODBYE | caller | nothing more will come; how many calls went by actor calls on this connection (again, if fewer arrive) |
| GRANT | replica | how many calls may be under way, in all; the grant's version |
| WANT | replica | a call that is under way wants more input, such as the rest of an HTTP request's body |
| VALUE, ERROR | replica | the answer; a VALUE to a stream is its only item and its end |
| LARGE | replica | the answer is to be fetched by an actor call: it goes through the object store |
| REFUSED | replica | the call was not begun, and will not be |
| ITEM, END | replica | of a stream: the next item; there are no more. A cancelled call has come to an END too |
| PIECE | replica | of a stream that is an HTTP response: the next bytes of its body, as they are |
| GOODBYE | replica | it drains: send nothing more, and say goodbye |
"""

import asyncio
import struct
from collections.abc import Callable

from executors.ray_gpu.requests.pieces import PIECE_BYTES, Body, Pieces, bytes_of, gathered

HEADER = struct.Struct("<QQB")
NUMBER_BYTES = 8
OF_TENURE = "!"
OF_PROCESS = "."
"""Stands between the id of the replica and the rest of a connection's key."""
CONNECTION = 0
"""Stands in place of a call's id where a frame is about the connection."""

HELLO, CALL, CANCEL, PULL, INPUT, NEED, RETURN, GOODBYE, GRANT, WANT, VALUE, ERROR, LARGE, REFUSED, ITEM, PIECE, END, PARTS = (
    range(18)
)
WATCH, STATS = 18, 19
"""PARTS never travels: the answers of a broadcast, gathered in the caller's process."""


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self, on_frame: Callable[[int, int, Body], None]) -> None:
        self._on_frame = on_frame
        self._rest = b""
        self._parts: list[bytes] = []  # of a large body that is not all here
        self._missing_bytes = 0
        self._head = (CONNECTION, CANCEL)

    def feed(self, data: bytes) -> None:
        """Bytes have come in; hands over each frame that is complete."""
        if self._missing_bytes:
            data = self._complete(data)
        elif self._rest:
            data, self._rest = self._rest + data, b""
        start, end, size = 0, len(data), HEADER.size
        while end - start >= size:
            length, call_id, kind = HEADER.unpack_from(data, start)
            body = start + size
            following = body + length
            if following > end:
                if length >= PIECE_BYTES:
                    self._head, self._parts, self._missing_bytes = (call_id, kind), [data[body:]], following - end
                    return
                break
            self._on_frame(call_id, kind, data[body:following])
            start = following
        self._rest = data[start:] if start else data

    def _complete(self, data: bytes) -> bytes:
        """Keep what belongs to a large body, and hand that over if it is all here; returns what does not."""
        missing = self._missing_bytes
        self._parts.append(data if len(data) <= missing else data[:missing])
        self._missing_bytes = max(0, missing - len(data))
        if self._missing_bytes:
            return b""
        parts, self._parts = self._parts, []
        self._on_frame(*self._head, Pieces(parts))
        return data[missing:]


class Outbox:
    """Frames that become ready together leave in one write: a single one is not delayed, a backlog costs one system call."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._parts: list[bytes] = []

    def put(self, call_id: int, kind: int, body: Body = b"") -> None:
        """Send a frame before the event loop waits again."""
        parts = self._parts
        if not parts:
            asyncio.get_running_loop().call_soon(self.flush)
        parts.append(HEADER.pack(len(body), call_id, kind))
        if type(body) is not bytes:
            parts.extend(bytes_of(body))
        elif body:
            parts.append(body)

    def flush(self) -> None:
        """Send what is there now."""
        parts, self._parts = self._parts, []
        for part in gathered(parts):
            self._write(part)


def counts(*numbers: int) -> bytes:
    """Numbers as a frame's body."""
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def counted(body: Body) -> tuple[int, ...]:
    """The numbers that a frame's body has."""
    return struct.unpack(f"<{len(body) // NUMBER_BYTES}Q", bytes(body))


def key_of(replica_id: str, worker_id: str, name: str) -> str:
    """The key of a connection to a replica. All that is said on it, and all actor calls for it, are for that replica alone: a
    worker whose next replica it reaches refuses it.

    Args:
        worker_id: What Ray calls the process that calls; "": it has no name there.
        name: Of the connection, among those of that process.
    """
    return f"{replica_id}{OF_TENURE}{worker_id}{OF_PROCESS}{name}"


def caller_of(key: str) -> str:
    """What Ray calls the process that has a connection, by its key; "": that was not said."""
    return key.rpartition(OF_TENURE)[2].rpartition(OF_PROCESS)[0]


def name_in(key: str) -> str:
    """What the process that has a connection calls it."""
    return key.rpartition(OF_PROCESS)[2]


def replica_meant(key: str) -> str:
    """The replica that a connection is for, by its key; "": a caller of an earlier release, which did not say."""
    return key.rpartition(OF_TENURE)[0]
