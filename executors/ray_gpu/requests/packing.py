"""Calls and answers as bytes. Replica processes import this.

What is small travels as a pickle inside a frame. What has `LARGE_BYTES` or more goes through Ray's object store, where
arrays are read in place.
"""

import pickle
from typing import Any, NamedTuple

from executors.ray_gpu.errors import RemoteError, RemoteTraceback
from executors.ray_gpu.requests.frames import ERROR, LARGE, VALUE

LARGE_BYTES = 100 * 1024
PLAIN = frozenset({int, float, bool, type(None)})
"""Small, and the same in every process: plain pickle will do."""
SIZED = frozenset({str, bytes})


class About(NamedTuple):
    """What a call carries besides method and arguments.

    Attributes:
        request_id: For logs and errors; "": nobody gave it one.
        model_id: The model that is asked for; "": none.
        stream: Whether the answer is to come item by item.
    """

    request_id: str = ""
    model_id: str = ""
    stream: bool = False


NOTHING_SAID = About()


class Reference(NamedTuple):
    """In place of an argument that is a large result of another call: it goes on without being fetched here."""

    reference: Any


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def pack_call(method: str, arguments: Arguments, about: About = NOTHING_SAID) -> bytes | None:
    """A call as a frame's body; None: its arguments are large. Objects of `__main__` are pickled by value: the replica
    has another `__main__`.
    """
    args, kwargs = arguments
    if any(type(each) is Reference for each in (*args, *kwargs.values())):
        return None
    said = None if about == NOTHING_SAID else tuple(about)
    if not kwargs and all(_is_plain(each) for each in args):
        packed = pickle.dumps((method, args, kwargs, said), 5)
        return packed if len(packed) < LARGE_BYTES else None
    return _pack_small((method, args, kwargs, said))


def pack_plain(method: str, arguments: Arguments, about: About) -> bytes:
    """The same for arguments that are plain data, which are sent whatever their size."""
    return pickle.dumps((method, *arguments, tuple(about)), 5)


def unpack_call(packed: bytes) -> tuple[str, Arguments, About]:
    """Method, arguments and what was said besides."""
    method, args, kwargs, said = pickle.loads(packed)
    return method, (args, kwargs), NOTHING_SAID if said is None else About(*said)


def pack_value(value: Any) -> tuple[int, bytes]:
    """The answer of a call that returned; of kind LARGE, without a body, if the value is."""
    try:
        packed = pickle.dumps(value, 5) if _is_plain(value) else _pack_small(value)
    except Exception as error:
        return pack_error(TypeError(f"the result cannot be pickled: {error}"), "")
    return (LARGE, b"") if packed is None or len(packed) >= LARGE_BYTES else (VALUE, packed)


def pack_item(value: Any) -> tuple[int, bytes]:
    """One item of a stream, whatever its size."""
    try:
        return VALUE, dumps(value)
    except Exception as error:
        return pack_error(TypeError(f"an item of the stream cannot be pickled: {error}"), "")


def pack_error(error: BaseException, trace: str) -> tuple[int, bytes]:
    """The answer of a call that raised."""
    try:
        packed = dumps(error)
        pickle.loads(packed)  # some exceptions can be pickled and not be read again
    except Exception:
        packed = pickle.dumps(RemoteError(f"{type(error).__name__} (which cannot be pickled)\n{trace}"), 5)
    return ERROR, pickle.dumps((packed, type(error).__name__, trace), 5)


def unpack(kind: int, payload: bytes) -> Any:
    """The result of a call.

    Raises:
        Exception: What the user's code raised, with the remote traceback as its cause.
    """
    if kind == VALUE:
        return pickle.loads(payload)
    error, trace = unpack_error(payload)
    raise error from RemoteTraceback(trace)


def unpack_error(payload: bytes) -> tuple[BaseException, str]:
    """What the user's code raised, and the remote traceback; a `RemoteError` where this process lacks its class."""
    packed, name, trace = pickle.loads(payload)
    try:
        return pickle.loads(packed), trace
    except Exception as error:
        return RemoteError(f"{name} (which cannot be read here: {error})\n{trace}"), trace


def dumps(value: Any) -> bytes:
    """Pickle, with cloudpickle where plain pickle would name what the other process does not have."""
    if _is_plain(value):
        return pickle.dumps(value, 5)
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(value, 5))


def _pack_small(value: Any) -> bytes | None:
    """None: it is large, which is found out without copying its buffers."""
    from ray import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    packed = bytes(cloudpickle.dumps(value, 5, buffer_callback=buffers.append))
    size_bytes = len(packed) + sum(buffer.raw().nbytes for buffer in buffers)
    if size_bytes >= LARGE_BYTES:
        return None
    return packed if not buffers else bytes(cloudpickle.dumps(value, 5))


def _is_plain(value: Any) -> bool:
    return type(value) in PLAIN or type(value) in SIZED
