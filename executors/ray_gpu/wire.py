"""The connection between a handle and a replica on the same node: frames on a Unix socket, in both directions.

    request   length (8 bytes)  call id (8)  pickled (method, args, kwargs)
    answer    length (8 bytes)  call id (8)  kind (1)  pickled value, or (exception, traceback)

Call id 0 says goodbye: a replica that drains sends it, and the caller sends it back after its last request; the replica
ends only then, so that no request is lost between the two. Replica processes import this.
"""

import pickle
import struct
from collections.abc import Callable
from typing import Any

from executors.ray_gpu.errors import RemoteError, RemoteTraceback

REQUEST = struct.Struct("<QQ")
ANSWER = struct.Struct("<QQB")
GOODBYE = 0

VALUE = 0
ERROR = 1
BUSY = 2
"""The replica does not take requests, or no more: try another one."""


def dumps(value: Any) -> bytes:
    """Pickle; what plain pickle cannot (lambdas, classes of `__main__`), cloudpickle can."""
    try:
        return pickle.dumps(value, 5)
    except Exception:  # it raises whatever it likes: PicklingError, AttributeError, TypeError
        from ray import cloudpickle

        return bytes(cloudpickle.dumps(value, 5))


def pack_call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """A call, without its frame. Objects of `__main__` are pickled by value: the replica has another `__main__`."""
    if not kwargs and all(type(each) in PLAIN for each in args):
        return pickle.dumps((method, args, kwargs), 5)
    from ray import cloudpickle

    return bytes(cloudpickle.dumps((method, args, kwargs), 5))


PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


def pack_value(value: Any) -> tuple[int, bytes]:
    """The answer of a call that returned."""
    try:
        if type(value) in PLAIN:
            return VALUE, pickle.dumps(value, 5)
        from ray import cloudpickle

        return VALUE, bytes(cloudpickle.dumps(value, 5))
    except Exception as error:
        return pack_error(TypeError(f"the result cannot be pickled: {error}"), "")


def pack_error(error: BaseException, trace: str) -> tuple[int, bytes]:
    """The answer of a call that raised."""
    try:
        from ray import cloudpickle

        packed = bytes(cloudpickle.dumps((error, trace), 5))
        pickle.loads(packed)  # some exceptions can be pickled and not be read again
        return ERROR, packed
    except Exception:
        return ERROR, pickle.dumps((RemoteError(f"{type(error).__name__} (which cannot be pickled)\n{trace}"), trace), 5)


def unpack(kind: int, payload: bytes) -> Any:
    """The result of a call.

    Raises:
        Exception: What the user's code raised, with the remote traceback as its cause.
    """
    if kind == VALUE:
        return pickle.loads(payload)
    error, trace = pickle.loads(payload)
    raise error from RemoteTraceback(trace)


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self, header: struct.Struct, on_frame: Callable[[tuple[Any, ...], bytes], None]) -> None:
        self._header = header
        self._on_frame = on_frame
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Bytes have come in; hands over each frame that is complete."""
        buffer = self._buffer
        buffer += data
        size = self._header.size
        start, end = 0, len(buffer)
        while end - start >= size:
            length, *rest = self._header.unpack_from(buffer, start)
            if end - start < size + length:
                break
            self._on_frame(tuple(rest), bytes(buffer[start + size : start + size + length]))
            start += size + length
        if start:
            del buffer[:start]
