"""Arguments and results as msgpack or JSON, for whoever asks for it: `request_serialization`, `response_serialization`.

What is encoded travels inside a pickle, as bytes and the name of the encoding, and is plain data at the other end: dicts,
lists, strings, numbers. Replica processes import this where it is asked for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

PICKLES = ("cloudpickle", "pickle")
"""Arguments and results are pickled, and what plain pickle has no name for by cloudpickle."""


def _bytes_alone(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"bytes are required, got {type(value).__name__}")
    return value


ENCODINGS: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "msgpack": (msgspec.msgpack.encode, msgspec.msgpack.decode),
    "orjson": (msgspec.json.encode, msgspec.json.decode),
    "noop": (_bytes_alone, _bytes_alone),
}
"""By the name that Ray Serve has for it."""
SERIALIZATIONS = (*PICKLES, *ENCODINGS)


class Encoded(NamedTuple):
    """In place of a value: it is that value again where it is unpickled."""

    encoding: str
    data: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _decoded, tuple(self)


def encoded(value: Any, encoding: str) -> Encoded:
    """A value, to be pickled.

    Raises:
        TypeError: The encoding has nothing for it.
    """
    try:
        return Encoded(encoding, ENCODINGS[encoding][0](value))
    except (TypeError, OverflowError, ValueError) as error:  # such as a class that it does not know, or too large a number
        raise TypeError(f"serialization {encoding!r} cannot take this {type(value).__name__}: {error}") from error


def _decoded(encoding: str, data: bytes) -> Any:
    return ENCODINGS[encoding][1](data)
