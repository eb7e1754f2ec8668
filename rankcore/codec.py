"""Values as JSON text and back, exactly: `from_json(to_json(x), type(x)) == x`.

States, events, commands, specs, notes and whole steps have a text, which is one JSON object, such as
`{"format":[5,0],"type":"DeploymentSpec","name":"llm",...}`. A record (an attrs class, a msgspec struct, a
named tuple) is an object with one key per field; where a field may hold one of several records, "type" says which. A
persistent map is an object in key order, or a list of [key, value] pairs in key order where its keys are no strings. So
equal values have equal texts, whatever PYTHONHASHSEED is, and the fingerprint of a text can stand for its value. (1 and
1.0 are equal, but each keeps its text: what the core writes into a note may show the difference.)

Which texts outlive the release that wrote them is said by their class, with `__stored__ = True`: specs, records, and the
events that are kept until they are over: cordons, drains, replacements by name.

- Theirs have a "format", [major, minor]. A field that is missing reads as its default, so fields can be added: one that is
  declared with `metadata=since(5, n)` is not written while it is at its default, and a text without it stays as it was. That
  takes another minor. Everything else (a field less, another type, another default, a field without one) takes another major
  and a function in `rankcore.upgrade`, which makes texts of this major of those of the last. Refused are a newer minor, another
  major, and a field or class of which this version has never heard; the error names both formats and says what to do.
- All others have the "release" that wrote them, and are refused by any other one.

Reading is strict: what no version of this major would have written is refused with a `CodecError` that names the field, what
was found and what is allowed. A value that its class refuses is refused in the same way, with the class's own error as
the `__cause__`.
"""

import hashlib
import json
from types import UnionType
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from rankcore import __version__ as RELEASE
from rankcore.codec_plans import Format, Mismatch, entry_plan, since, write_tagged
from rankcore.errors import CodecError, shown

__all__ = [
    "FORMAT",
    "Format",
    "Plain",
    "check_head",
    "fingerprint",
    "from_json",
    "from_plain",
    "is_stored",
    "read_object",
    "since",
    "to_json",
    "to_plain",
    "write_object",
]

FORMAT: Format = (5, 6)
"""Of the texts that are stored, by the classes above. tests/golden/schema.json has them; a test says which change is legal."""

T = TypeVar("T")
Plain: TypeAlias = dict[str, Any]
"""What `msgspec.json` and `json` write as an object: dicts, lists, tuples, strings, numbers, booleans and None."""


def to_json(value: object) -> str:
    """Write a record as one line of JSON.

    Raises:
        CodecError: The value, or something in it, has no exact text, such as NaN or a lone surrogate.
    """
    head: Plain = {"format": FORMAT} if is_stored(type(value)) else {"release": RELEASE}
    return write_object({**head, **to_plain(value)})


def is_stored(cls: type) -> bool:
    """Whether texts of a class outlive the release that wrote them."""
    return getattr(cls, "__stored__", False)


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
    found = check_head(data)
    value = _read(data, kind, found)
    if is_stored(type(value)) != (found is not None):
        head = "format" if found is None else "release"
        raise CodecError(f"{head} is missing: a text of a {type(value).__name__} names it")
    return value


_TOO_DEEP = "{} holds data that is nested too deeply"
_NEWER = "install the rankcore that wrote it, or a newer one"


def _both(found: Format) -> str:
    return f"the text has format {found[0]}.{found[1]}, rankcore {RELEASE} reads and writes {FORMAT[0]}.{FORMAT[1]}"


def check_head(data: Plain) -> Format | None:
    """Take off what says who wrote a text: the format of one that is stored; None: it is of this release, and no other.

    Raises:
        CodecError: It is of another release, or of a format that this one does not read; says what to do.
    """
    if "release" in data and "format" not in data:
        release = data.pop("release")
        if release != RELEASE:
            raise CodecError(
                f"release must be {RELEASE!r}, got {shown(release)}: only the release that wrote this text reads it"
            )
        return None
    if "format" not in data:
        raise CodecError(f"format is missing: rankcore writes [{FORMAT[0]}, {FORMAT[1]}]")
    found = data.pop("format")
    if type(found) is int:
        found = [found, 0]  # as it was before there were minors
    elif type(found) is not list or len(found) != 2 or any(type(each) is not int for each in found):
        raise CodecError(f"format must be [major, minor], got {shown(found)}")
    major, minor = found
    if major < FORMAT[0]:
        raise CodecError(f"{_both((major, minor))}: `rankcore upgrade FILE` or rankcore.upgrade.upgraded(text) rewrites it")
    if (major, minor) > FORMAT:
        raise CodecError(f"{_both((major, minor))}: {_NEWER}")
    return major, minor


def to_plain(value: object) -> Plain:
    """What `to_json` writes, without its "format", to be put into a bigger object."""
    try:
        return write_tagged(value)
    except RecursionError:
        raise CodecError(_TOO_DEEP.format(type(value).__name__)) from None


@overload
def from_plain(data: Plain, kind: type[T]) -> T: ...
@overload
def from_plain(data: Plain, kind: UnionType) -> Any: ...
def from_plain(data: Plain, kind: Any) -> Any:
    """Read what `to_plain` wrote; raises as `from_json` does, and leaves `data` alone."""
    return _read(data, kind, None)


def _read(data: Plain, kind: Any, found: Format | None) -> Any:
    try:
        return entry_plan(kind).read(data)
    except Mismatch as mismatch:
        both = f" ({_both(found)}: {_NEWER})" if mismatch.unheard and found is not None else ""
        raise CodecError(mismatch.text(data) + both) from mismatch.__cause__
    except RecursionError:
        raise CodecError(_TOO_DEEP.format(shown(data.get("type")))) from None


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
    # The major alone: a field that is added takes another minor, and changes no value that does not use it.
    return hashlib.sha256(write_object({"format": FORMAT[0], **to_plain(value)}).encode()).hexdigest()[:16]


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise CodecError(f"{key!r} occurs twice in one object")
        seen.add(key)
