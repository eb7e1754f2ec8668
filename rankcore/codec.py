"""Values as JSON text and back, exactly: `from_json(to_json(x), type(x)) == x`.

States, events, commands, specs, notes and whole steps have a text, which is one JSON object, such as
`{"format":4,"type":"ReplicaReady","replica_id":"llm#1.0","at":3.0}`. A record (an attrs class, a msgspec struct, a
named tuple) is an object with one key per field; where a field may hold one of several records, "type" says which. A
persistent map is an object in key order, or a list of [key, value] pairs in key order where its keys are no strings. So
equal values have equal texts, whatever PYTHONHASHSEED is, and the fingerprint of a text can stand for its value. (1 and
1.0 are equal, but each keeps its text: what the core writes into a note may show the difference.)

Reading is strict: what this version would not have written is refused with a `CodecError` that names the field, what
was found and what is allowed. A value that its class refuses is refused in the same way, with the class's own error as
the `__cause__`.
"""

import hashlib
import json
from types import UnionType
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from rankcore.codec_plans import Mismatch, entry_plan, write_tagged
from rankcore.errors import CodecError, shown

FORMAT = 4
"""Version of the text format. It changes with every change of a class that is written; others are refused."""

T = TypeVar("T")
Plain: TypeAlias = dict[str, Any]
"""What `msgspec.json` and `json` write as an object: dicts, lists, tuples, strings, numbers, booleans and None."""


def to_json(value: object) -> str:
    """Write a record as one line of JSON.

    Raises:
        CodecError: The value, or something in it, has no exact text, such as NaN or a lone surrogate.
    """
    return write_object({"format": FORMAT, **to_plain(value)})


@overload
def from_json(text: str, kind: type[T]) -> T: ...
@overload
def from_json(text: str, kind: UnionType) -> Any: ...
def from_json(text: str, kind: Any) -> Any:
    """Read what `to_json` wrote.

    Args:
        text: One JSON object.
        kind: The record class that it must hold, or a union of them such as `Event`.

    Raises:
        CodecError: The text is something else; nothing else is ever raised because of what a text holds.
    """
    data = read_object(text)
    if "format" not in data:
        raise CodecError(f"format is missing: rankcore writes {FORMAT}")
    found = data.pop("format")
    if type(found) is not int or found != FORMAT:
        raise CodecError(f"format must be {FORMAT}, got {shown(found)}: another version of rankcore wrote this")
    return from_plain(data, kind)


def to_plain(value: object) -> Plain:
    """What `to_json` writes, without its "format", to be put into a bigger object."""
    try:
        return write_tagged(value)
    except RecursionError:
        raise CodecError(f"{type(value).__name__} holds data that is nested too deeply") from None


@overload
def from_plain(data: Plain, kind: type[T]) -> T: ...
@overload
def from_plain(data: Plain, kind: UnionType) -> Any: ...
def from_plain(data: Plain, kind: Any) -> Any:
    """Read what `to_plain` wrote; raises as `from_json` does, and leaves `data` alone."""
    try:
        return entry_plan(kind).read(data)
    except Mismatch as mismatch:
        raise CodecError(mismatch.text(data)) from mismatch.__cause__
    except RecursionError:
        raise CodecError(f"{shown(data.get('type'))} holds data that is nested too deeply") from None


def write_object(data: Plain) -> str:
    """The one text of an object that holds what `to_plain` returns."""
    try:
        return msgspec.json.encode(data).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"this cannot be written as JSON: {error}") from None


def read_object(text: str) -> Plain:
    """Parse a JSON object; one that has a key twice is none."""
    if type(text) is not str:
        raise CodecError(f"the text must be a string, got {shown(text)}")
    try:
        data = msgspec.json.decode(text)
        # A repeated key is gone after parsing, so our own texts, which parse to what writes them again, have none.
        if msgspec.json.encode(data).decode() != text:
            json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except ValueError as error:
        raise CodecError(f"the text must be JSON: {error}") from None
    except RecursionError:
        raise CodecError("the text must be JSON that is less deeply nested") from None
    if type(data) is not dict:
        raise CodecError(f"the text must be a JSON object, got {shown(data)}")
    return data


def fingerprint(value: object) -> str:
    """16 hexadecimal digits that equal values share. Costs as much as writing the value: O(N) for a state."""
    return hashlib.sha256(to_json(value).encode()).hexdigest()[:16]


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise CodecError(f"{key!r} occurs twice in one object")
        seen.add(key)
