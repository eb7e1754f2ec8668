"""What a kind of world has to say of itself for `explore` to search it: six questions, and four about how it is told."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from rankcore.kernel import Violation

W = TypeVar("W")
"""A world: everything that there is at one moment, as a value that no move changes."""
M = TypeVar("M")
"""A move: something that can happen next in a world."""
Words = TypeVar("Words", bound=tuple[str | int, ...])
"""A move that is its words and numbers."""
S = TypeVar("S")
"""What a move made the machine do: the steps that are still to be checked and counted."""


class Explorable(Protocol[W, M, S]):
    """A small system with an adversary: where it begins, what can happen, and what has to hold. All of it deterministic.

    Attributes:
        bounds: How large it is; `str` of it is an expression that makes it again, with what `imports` brings.
        imports: The lines that a printed test begins with. They bring `replay`, which takes the bounds and a path.
        rest_rule: The promise that is broken by a world that never comes to rest.
    """

    bounds: Any
    imports: str
    rest_rule: str

    def __init__(self, bounds: Any) -> None:
        self.bounds = bounds

    def start(self) -> W:
        """The world in which every path begins."""

    def moves(self, world: W) -> Iterator[M]:
        """What can happen next. Where something has to happen at some time, the first of these is such a move: the fair one."""

    def is_fair(self, move: M) -> bool:
        """Whether it has to happen at some time, and is no fault. Of a world, only its first move is asked for."""

    def make(self, world: W, move: M) -> tuple[W, S]:
        """The world after a move, and what it made the machine do. Checks nothing yet: worlds are also made again."""

    def violations(self, before: W, after: W, steps: S) -> Sequence[Violation]:
        """Which promises this move has broken: by its steps, and in the world after it."""

    def unsettled(self, world: W) -> Sequence[Violation]:
        """What is wrong with a world if it stays as it is because nothing but faults is left: who is not healed."""

    def key(self, world: W) -> bytes:
        """Equal exactly for worlds that go on alike, whatever things are called in them: the canonical form."""

    def describe(self, world: W, move: M) -> str:
        """A move in words; no two moves of one world have the same."""

    def comment(self, steps: S) -> str:
        """What a printed test says beside a move, such as what was commanded; empty: nothing."""
        del steps
        return ""

    def count(self, steps: S, exercised: "Counter[str]") -> None:
        """Count, by name, what these steps have exercised of the machine. Called once for each move that was tried."""
        del steps, exercised


class SelfChecked(Explorable[W, Words, tuple[Violation, ...]], Protocol[W, Words]):
    """A system that finds what is broken while it moves, and whose moves are words and numbers.

    Attributes:
        fair: The first words of the moves that have to happen at some time.
    """

    fair: tuple[str, ...]

    def is_fair(self, move: Words) -> bool:
        """By its first word."""
        return move[0] in self.fair

    def violations(self, before: W, after: W, steps: tuple[Violation, ...]) -> tuple[Violation, ...]:
        """Those that were found while it moved."""
        del before, after
        return steps

    def describe(self, world: W, move: Words) -> str:
        """Its words."""
        del world
        return " ".join(map(str, move))


def expression(value: object, always: Sequence[str] = ()) -> str:
    """What makes a value again: of an attrs class its arguments, without those that are what they are by default.

    Args:
        value: Bounds, or what they are made of.
        always: Fields of it that are shown all the same.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(expression, value))}{',' * (len(value) == 1)})"
    kind = type(value)
    if not attrs.has(kind):
        return repr(value)
    default_of = {field.name: field.default for field in attrs.fields(kind)}
    shown = [name for name, default in default_of.items() if name in always or getattr(value, name) != default]
    return f"{kind.__name__}({', '.join(f'{name}={expression(getattr(value, name))}' for name in shown)})"
