"""Checked fields of scenario classes: each validator takes type and range together and says what is allowed.

Validators are values, so that the JSON Schema and the scenario reference are made of the very checks that run.
"""

import json
import math
from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

import attrs

from rankcore.amounts import is_share
from rankcore.checks import COUNT_MAX, NAME_LENGTH_MAX

SECONDS_MAX = 1e9
"""Thirty years: no scenario is longer, and float seconds keep their microseconds."""

PERIOD_MIN_S = 0.001
"""What is done again and again is not done more often than this: else a run of any length takes for ever."""

SHOWN_LENGTH_MAX = 60
KEYS_SHOWN_MAX = 3


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

    def within(self, path: tuple[str | int, ...]) -> "FieldProblem":
        """The same problem, with the path from further out."""
        return FieldProblem((*path, *self.keys), self.found, self.allowed)


class FileProblem(FieldProblem):
    """What a field names cannot be used, such as a file or bundles; the text says what is wrong where in it."""

    def __init__(self, keys: tuple[str | int, ...], found: object, problem: str) -> None:
        super().__init__(keys, found, problem)
        self.args = (problem,)

    def within(self, path: tuple[str | int, ...]) -> "FileProblem":
        """The same problem, with the path from further out."""
        return FileProblem((*path, *self.keys), self.found, self.allowed)


class Missing:
    """Stands for what was found where there was nothing."""


def shown(found: object) -> str:
    """A found value in one short printable line, written as it is in YAML or JSON."""
    if isinstance(found, Missing):
        return "nothing"
    if isinstance(found, (dict, list)) and len(found) > KEYS_SHOWN_MAX:
        return f"a {'mapping' if isinstance(found, dict) else 'list'} of {len(found)}"
    if isinstance(found, float) and not math.isfinite(found):
        return ".nan" if math.isnan(found) else ".inf" if found > 0 else "-.inf"
    if isinstance(found, str):
        found = found[: SHOWN_LENGTH_MAX + 1]  # a megabyte is not turned into JSON to show a line of it
    try:
        text = json.dumps(found, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = ascii(found)
    text = printable(text)
    if len(text) <= SHOWN_LENGTH_MAX:
        return text
    return text[: SHOWN_LENGTH_MAX - 4] + '..."' if text.startswith('"') else text[: SHOWN_LENGTH_MAX - 3] + "..."


def printable(text: str) -> str:
    """The text with every line break, control character and lone surrogate written as an escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class Check(ABC):
    """A validator that says what it allows."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What it takes, in words."""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Whether it takes this value."""

    def allowed_instead_of(self, _: object) -> str:
        """What it takes, in words for whoever wrote this value."""
        return self.allowed

    def __call__(self, _: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        """Raise `FieldProblem` for what is not accepted."""
        if not self.accepts(value):
            raise FieldProblem((attribute.name,), value, self.allowed_instead_of(value))


@attrs.frozen
class Integer(Check):
    """An integer (true is none) from `least` to `most`; in words, a limit that nobody comes near is left out."""

    least: int
    most: int

    @property
    def allowed(self) -> str:
        """In words."""
        return f"an integer >= {self.least}" if self.most >= COUNT_MAX else f"an integer from {self.least} to {self.most}"

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        return type(value) is int and self.least <= value <= self.most

    def allowed_instead_of(self, value: object) -> str:
        """In words for whoever wrote this value."""
        too_large = type(value) is int and value > self.most
        return f"an integer from {self.least} to {self.most}" if too_large else self.allowed


@attrs.frozen
class Amounts(Check):
    """So many replicas, at least `least`, or a share of the target such as "25%"."""

    least: int

    @property
    def allowed(self) -> str:
        """In words."""
        return f'an integer >= {self.least}, or a share such as "25%"'

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        return integer(self.least, COUNT_MAX).accepts(value) or (is_share(value) and not (self.least and value == "0%"))


@attrs.frozen
class Number(Check):
    """A finite number from `least`, or above `above`, to `most`."""

    least: float | None
    above: float | None
    most: float

    @property
    def allowed(self) -> str:
        """In words."""
        floor = f"above {self.above:g}" if self.above is not None else f"from {self.least or 0.0:g}"
        return f"a number {floor} to {self.most:g}"

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_number(value) or value > self.most:
            return False
        return value > self.above if self.above is not None else value >= (self.least or 0.0)


@attrs.frozen
class Flag(Check):
    """True or false, nothing that merely looks like it."""

    @property
    def allowed(self) -> str:
        """In words."""
        return "true or false"

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        return type(value) is bool


@attrs.frozen
class Choice(Check):
    """One of some texts."""

    options: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """In words."""
        return "one of " + ", ".join(self.options)

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        return isinstance(value, str) and value in self.options


@attrs.frozen
class TrueOr(Check):
    """True, or a word."""

    word: str

    @property
    def allowed(self) -> str:
        """In words."""
        return f"true or {self.word}"

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        return value is True or value == self.word


@attrs.frozen
class FileTime(Check):
    """A time of a file: a number of its unit, an ISO 8601 time, or one of some words."""

    words: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """In words."""
        return ", ".join((*self.words, "a number >= 0 or a time such as 2023-11-16T18:40Z"))

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        if isinstance(value, str):
            return value in self.words or _is_date(value)
        return is_number(value) and isinstance(value, (int, float)) and value >= 0


@attrs.frozen
class Text(Check):
    """A text on one line that can go into an id, a file name and a line of a journal.

    Attributes:
        what: What it is, in a word.
        without: Characters that it must not have.
        most: How many it may have.
        least: How many it has to have.
    """

    what: str = "name"
    without: str = ""
    most: int = NAME_LENGTH_MAX
    least: int = 1

    @property
    def allowed(self) -> str:
        """In words."""
        but = f" without {' '.join(self.without)}" if self.without else ""
        return f"a {self.what} ({self.least} to {self.most} printable characters{but}, no blank at either end)"

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        if not isinstance(value, str) or not self.least <= len(value) <= self.most:
            return False
        return value.isprintable() and value == value.strip() and not any(letter in value for letter in self.without)

    def allowed_instead_of(self, value: object) -> str:
        """In words for whoever wrote this value."""
        plain = isinstance(value, (bool, int, float))
        return f"{self.allowed}, in quotes where it looks like a number or a flag" if plain else self.allowed


@attrs.frozen
class Optional(Check):
    """What another check takes, or nothing at all."""

    check: Check

    @property
    def allowed(self) -> str:
        """In words."""
        return f"{self.check.allowed}, or null"

    def accepts(self, value: object) -> bool:
        """Whether it is one."""
        return value is None or self.check.accepts(value)

    def allowed_instead_of(self, value: object) -> str:
        """In words for whoever wrote this value."""
        return self.check.allowed_instead_of(value)


def integer(least: int, most: int) -> Integer:
    """An integer (true is none) from `least` to `most`."""
    return Integer(least, most)


def number(*, least: float | None = None, above: float | None = None, most: float = SECONDS_MAX) -> Number:
    """A finite number, at least `least` or greater than `above`, and at most `most`."""
    return Number(least, above, most)


def choice(*options: str) -> Choice:
    """One of these texts."""
    return Choice(options)


def optional(check: Check) -> Optional:
    """The same, or nothing at all."""
    return Optional(check)


name = Text()
flag = Flag()


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_number(value: object) -> bool:
    """A finite int or float; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= 1e300 if isinstance(value, int) else math.isfinite(value)
