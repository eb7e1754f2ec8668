"""Checked fields of scenario classes: each validator takes type and range together and says what is allowed."""

import json
import math
from collections.abc import Callable
from typing import Any

import attrs

from rankcore.checks import NAME_LENGTH_MAX

SECONDS_MAX = 1e9
"""Thirty years: no scenario is longer, and float seconds keep their microseconds."""

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


class FieldProblem(ValueError):
    """A value that its field does not allow.

    Attributes:
        keys: Path from the object that was being built to the field: names and list indices.
        found: What was there.
        allowed: What may be there, in words.
    """

    def __init__(self, keys: tuple[str | int, ...], found: object, allowed: str) -> None:
        super().__init__(f"expected {allowed}, found {shown(found)}")
        self.keys = keys
        self.found = found
        self.allowed = allowed


class Missing:
    """Stands for what was found where there was nothing."""


def shown(found: object) -> str:
    """A found value in one short line, written as it is in YAML or JSON."""
    if isinstance(found, Missing):
        return "nothing"
    if isinstance(found, (dict, list)) and len(found) > 3:
        return f"a {'mapping' if isinstance(found, dict) else 'list'} of {len(found)}"
    try:
        text = json.dumps(found)
    except (TypeError, ValueError):
        text = ascii(found)
    return text if len(text) <= 60 else text[:57] + "..."


def integer(least: int, most: int) -> Validator:
    """An integer (true is none) from `least` to `most`."""

    def check(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if type(value) is not int or not least <= value <= most:
            raise FieldProblem((attribute.name,), value, f"an integer from {least} to {most}")

    return check


def number(*, least: float | None = None, above: float | None = None, most: float = SECONDS_MAX) -> Validator:
    """A finite number, at least `least` or greater than `above`, and at most `most`."""
    floor = f"above {above:g}" if above is not None else f"from {least or 0.0:g}"

    def check(_: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if is_number(value) and value <= most and (value > above if above is not None else value >= (least or 0.0)):
            return
        raise FieldProblem((attribute.name,), value, f"a number {floor} to {most:g}")

    return check


def flag(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """True or false, nothing that merely looks like it."""
    if type(value) is not bool:
        raise FieldProblem((attribute.name,), value, "true or false")


def name(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """A name that can go into an id, a file name and a line of a journal."""
    if isinstance(value, str) and 0 < len(value) <= NAME_LENGTH_MAX and value.isprintable() and value == value.strip():
        return
    raise FieldProblem((attribute.name,), value, "a name: 1 to 253 printable characters without surrounding blanks")


def optional(validator: Validator) -> Validator:
    """The same, or nothing at all."""

    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if value is not None:
            validator(instance, attribute, value)

    return check


def is_number(value: object) -> bool:
    """A finite int or float; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= 1e300 if isinstance(value, int) else math.isfinite(value)
