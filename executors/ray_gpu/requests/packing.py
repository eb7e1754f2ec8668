"""Calls and answers as bytes. Replica processes import this.

A pickle travels inside a frame. What has `LARGE_BYTES` or more goes through Ray's object store, where arrays are read in
place: below that the two actor calls and the confirmation that it takes cost more than the copies that it saves.
"""

import math
import pickle
import sys
from typing import Any, NamedTuple

from executors.ray_gpu.errors import RemoteError, RemoteTraceback
from executors.ray_gpu.requests.frames import ERROR, LARGE, VALUE
from executors.ray_gpu.requests.pieces import PIECE_BYTES, Body, TooLargeError, dumped, loaded
from executors.ray_gpu.requests.task_errors import as_task_error

LARGE_BYTES = 4 * 1024 * 1024
PLAIN = frozenset({int, float, bool, type(None)})
"""Small, and the same in every process: plain pickle will do."""
SIZED = frozenset({str, bytes})


class About(NamedTuple):
    """What a call carries besides method and arguments.

    Attributes:
        request_id: For logs and errors; "": its number is its name (`request_ids`).
        model_id: The model that is asked for; "": none.
        stream: Whether the answer is to come item by item.
        trace: The `traceparent` of the call's span; "": there are no spans.
        encoding: As what results are to travel, of `encodings.ENCODINGS`; "": pickled.
    """

    request_id: str = ""
    model_id: str = ""
    stream: bool = False
    trace: str = ""
    encoding: str = ""

    @property
    def sent(self) -> tuple[Any, ...]:
        """As it travels: a replica of before knows of no spans, or of no encodings."""
        return tuple(self) if self.encoding else tuple(self[:4]) if self.trace else tuple(self[:3])


NOTHING_SAID = About()


class Reference(NamedTuple):
    """In place of an argument that is a large result of another call: it goes on without being fetched here."""

    reference: Any


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def pack_call(method: str, arguments: Arguments, about: About = NOTHING_SAID) -> Body | None:
    """A call as a frame's body; None: its arguments are large. Objects of `__main__` are pickled by value: the replica
    has another `__main__`.
    """
    args, kwargs = arguments
    if any(type(each) is Reference for each in (*args, *kwargs.values())):
        return None
    said = None if about == NOTHING_SAID else about.sent
    plain_bytes = 0
    for each in (*args, *kwargs.values()):
        size_bytes = _plain_bytes(each)
        if size_bytes is None:
            return _packed((method, args, kwargs, said), None)
        plain_bytes += size_bytes
    return _packed((method, args, kwargs, said), plain_bytes)


def pack_plain(method: str, arguments: Arguments, about: About) -> Body:
    """The same for arguments that are plain data, which are sent whatever their size."""
    return dumped((method, *arguments, about.sent), pickle.Pickler, math.inf)


def unpack_call(packed: Body) -> tuple[str, Arguments, About]:
    """Method, arguments and what was said besides."""
    method, args, kwargs, said = loaded(packed)
    return method, (args, kwargs), NOTHING_SAID if said is None else About(*said)


def pack_value(value: Any, encoding: str = "") -> tuple[int, Body]:
    """The answer of a call that returned; of kind LARGE, without a body, if the value is."""
    try:
        if encoding:
            return VALUE, _encoded(value, encoding)
        packed = _packed(value, _plain_bytes(value))
    except Exception as error:
        return pack_error(TypeError(f"the result cannot be pickled: {error}"), "")
    return (LARGE, b"") if packed is None else (VALUE, packed)


def pack_item(value: Any, encoding: str = "") -> tuple[int, Body]:
    """One item of a stream, whatever its size."""
    try:
        return VALUE, dumps(value) if not encoding else _encoded(value, encoding)
    except Exception as error:
        return pack_error(TypeError(f"an item of the stream cannot be pickled: {error}"), "")


def _encoded(value: Any, encoding: str) -> Body:
    from executors.ray_gpu.requests.encodings import encoded  # only who asks for it needs it

    return dumps(encoded(value, encoding))


def pack_error(error: BaseException, trace: str) -> tuple[int, Body]:
    """The answer of a call that raised."""
    try:
        packed = bytes(dumps(error))
        pickle.loads(packed)  # some exceptions can be pickled and not be read again
    except Exception:
        packed = pickle.dumps(RemoteError(f"{type(error).__name__} (which cannot be pickled)\n{trace}"), 5)
    return ERROR, pickle.dumps((packed, type(error).__name__, trace), 5)


def unpack(kind: int, payload: Body) -> Any:
    """The result of a call.

    Raises:
        Exception: What the user's code raised, with the remote traceback as its cause; a `RayTaskError` too.
    """
    if kind == VALUE:
        return loaded(payload)
    error, trace = unpack_error(payload)
    error = as_task_error(error, trace)
    try:
        raise error from (RemoteTraceback(trace) if trace else None)
    finally:
        del error  # which holds this frame


def unpack_error(payload: Body) -> tuple[BaseException, str]:
    """What the user's code raised, and the remote traceback; a `RemoteError` where this process lacks its class."""
    packed, name, trace = loaded(payload)
    try:
        return pickle.loads(packed), trace
    except Exception as error:
        return RemoteError(f"{name} (which cannot be read here: {error})\n{trace}"), trace


def dumps(value: Any) -> Body:
    """Pickle, with cloudpickle where plain pickle would name what the other process does not have."""
    packed = _packed(value, _plain_bytes(value), math.inf)
    assert packed is not None, "nothing is too large"
    return packed


def _packed(value: Any, plain_bytes: int | None, large_bytes: float = LARGE_BYTES) -> Body | None:
    """A value's pickle; None: it is large.

    Args:
        plain_bytes: About its size, where plain pickle will do; None: it will not.
    """
    if plain_bytes is not None and plain_bytes < PIECE_BYTES:
        return pickle.dumps(value, 5)
    try:
        return dumped(value, pickle.Pickler if plain_bytes is not None else _cloudpickler(), large_bytes - 1)
    except TooLargeError:
        return None


def _cloudpickler() -> Any:
    from ray import cloudpickle

    return cloudpickle.Pickler


def _plain_bytes(value: Any) -> int | None:
    """About the size of what plain pickle will do for; None: of nothing else is known what it names."""
    kind = type(value)
    if kind in PLAIN:
        return 0
    if kind in SIZED:
        return len(value)
    protobuf = sys.modules.get("google.protobuf.message")
    if protobuf is not None and isinstance(value, protobuf.Message) and kind.__module__ != "__main__":
        return int(value.ByteSize())  # names its class, which is generated: the other process has it too
    return None
