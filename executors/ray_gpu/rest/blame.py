"""Which field of a request a refusal speaks of: the controller and the functions of Python, which refuse, know of no fields.

Three rules, the first that fits: the text begins with the name of a field; it quotes what a field says; else it is about what
the path names, or, where that names nothing, about what the body says first.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

FIELDS_OF_OURS = {"num_replicas": "target_num_replicas", "target_replicas": "target_num_replicas"}
"""Names that Python and the core have for what a body says otherwise."""
FIRST_WORDS = (
    (re.compile(r"the number of replicas of "), ("target_num_replicas", "options.num_replicas")),
    (re.compile(r"rank [\d, ]+ of |\S+ has no rank \d+"), ("ranks",)),
)
"""How refusals begin that name no field."""
_NAME = re.compile(r"(?:\w+\.)*(\w+)((?:\[\d+\])?)[ .:\[]")


def field_of(text: str, said: Any, path: Mapping[str, str], *, has_body: bool) -> str:
    """The field.

    Args:
        said: The body, checked; None: there is none, or it is checked elsewhere.
        path: What the path names.
        has_body: Whether the request has one.
    """
    body: dict[str, Any] = msgspec.to_builtins(said) if isinstance(said, msgspec.Struct) else {}
    if (found := next((field for field in _begun_with(text) if _is_in(field, body)), None)) is not None:
        return found
    if (found := next((field for field, value in _values(body) if repr(value) in text), None)) is not None:
        return found
    return (*reversed(tuple(path)), *body, "body" if has_body else "path")[0]


def _begun_with(text: str) -> Iterator[str]:
    if (name := _NAME.match(text)) is not None:
        yield FIELDS_OF_OURS.get(name[1], name[1]) + name[2]
        yield f"options.{name[1]}"
    for words, fields in FIRST_WORDS:
        if words.match(text):
            yield from fields


def _is_in(field: str, body: Mapping[str, Any]) -> bool:
    first, _, rest = field.partition("[")[0].partition(".")
    return first in body and (not rest or rest in body[first])


def _values(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What it says that a text could quote: the names of options, and texts, one by one."""
    for field, value in body.items():
        if isinstance(value, dict):
            yield from ((f"{field}.{name}", name) for name in value)
        elif isinstance(value, list):
            yield from ((f"{field}[{index}]", each) for index, each in enumerate(value) if isinstance(each, str))
        elif isinstance(value, str):
            yield field, value
