"""Which field of a request a refusal is about: errors name an argument, which a request may call otherwise or not have."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

FIELDS = {"num_replicas": "target_num_replicas", "target_replicas": "target_num_replicas"}
"""Arguments that a body calls otherwise."""
_ARGUMENT = re.compile(r"(?:\w+\.)*(?P<name>\w+)(?P<index>(?:\[\d+\])?)")
"""`ScaleRequested.stop_first[1]`, or `keep`."""


def field_of(argument: str | None, said: Any, path: Mapping[str, str], *, has_body: bool) -> str:
    """The field of the body that is the argument; else what the path names last; else what the body says first.

    Args:
        argument: Which is refused; None: it is about none.
        said: The body, checked; None: there is none, or it is checked elsewhere.
        path: What the path names.
        has_body: Whether the request has one.
    """
    body: dict[str, Any] = msgspec.to_builtins(said) if isinstance(said, msgspec.Struct) else {}
    if argument is not None and (found := _ARGUMENT.fullmatch(argument)) is not None:
        field = FIELDS.get(found["name"], found["name"])
        if field in body:
            return field + found["index"]
        if found["name"] in body.get("options", ()):
            return f"options.{found['name']}"
    return (*reversed(tuple(path)), *body, "body" if has_body else "path")[0]
