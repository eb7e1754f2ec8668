"""Paths through worlds: from the first one, by moves in words, to a broken promise; and such a path as a test to run."""

from collections.abc import Iterator, Sequence

import attrs

from rankcore.errors import RankcoreError
from rankcore.kernel import Violation
from rankcore.testing.explorable import Explorable, M, S, W

FAIR_MOVES_MAX = 400
"""After so many moves without a fault, a world of a few replicas is at rest, by far."""


class BrokenPromiseError(AssertionError):
    """A path has broken a promise; the text has the promise and the path."""


class NoSuchMoveError(RankcoreError):
    """A path cannot be gone to its end: the machine, or the model, decides otherwise than when it was written down."""


@attrs.frozen
class Broken:
    """A broken promise, with a shortest path to it.

    Attributes:
        moves: The path, in words.
        violations: What is broken at its end.
        settles: Whether it is broken only by going on from there without a fault (liveness).
    """

    moves: tuple[str, ...]
    violations: tuple[Violation, ...]
    settles: bool = False


def tried(system: Explorable[W, M, S], world: W, move: M) -> tuple[tuple[W, S] | None, Sequence[Violation]]:
    """What `make` makes of a move (None: it raised), and which promises it breaks; never to raise is one (section 2)."""
    try:
        made = system.make(world, move)
        return made, system.violations(world, *made)
    except Exception as error:  # whatever a broken machine may raise, the path to it is what is wanted
        return None, [Violation("2", f"the core raised {type(error).__name__}: {error}")]


def settle(system: Explorable[W, M, S], world: W) -> tuple[W, Sequence[Violation], int]:
    """Go on without any fault until nothing is left to do. Returns where that is, what is wrong there, and how many moves."""
    for count in range(FAIR_MOVES_MAX):
        move = next(system.moves(world), None)
        if move is None or not system.is_fair(move):
            return world, system.unsettled(world), count
        made, violations = tried(system, world, move)
        if made is None or violations:
            return world, violations, count + 1
        world = made[0]
    endless = Violation(system.rest_rule, f"not at rest after {FAIR_MOVES_MAX} moves without a fault")
    return world, [endless], FAIR_MOVES_MAX


def replayed(system: Explorable[W, M, S], path: Sequence[str], *, settles: bool = False) -> W:
    """Go a path, and check every promise at each move.

    Args:
        system: Whose worlds these are.
        path: Moves in words, as `describe` has them.
        settles: Whether to go on without a fault afterwards, and demand that this ends well.

    Returns:
        The world at the end.

    Raises:
        BrokenPromiseError: A promise does not hold.
        NoSuchMoveError: A move is not possible where the path has it.
    """
    world = system.start()
    for index, words in enumerate(path):
        move = next((move for move in system.moves(world) if system.describe(world, move) == words), None)
        if move is None:
            possible = "; ".join(system.describe(world, each) for each in system.moves(world))
            raise NoSuchMoveError(f"move {index} of the path must be possible there, got {words!r}, possible: {possible}")
        made, violations = tried(system, world, move)
        if made is None or violations:
            raise _broken(violations, path[: index + 1])
        world = made[0]
    if settles:
        world, violations, _ = settle(system, world)
        if violations:
            raise _broken(violations, path)
    return world


def _broken(violations: Sequence[Violation], path: Sequence[str]) -> BrokenPromiseError:
    return BrokenPromiseError("\n  ".join(["; ".join(map(str, violations)), "after", *path]))


def as_test(system: Explorable[W, M, S], broken: Broken) -> str:
    """A test that fails as long as the promise is broken, and goes this path ever after."""
    lines = [f"    {words!r}," + comment for words, comment in _commented(system, broken)]
    settles = ", settles=True" if broken.settles else ""
    return "\n".join(
        [
            '"""' + "; ".join(map(str, broken.violations)).replace("\\", "\\\\").replace('"', "'") + '"""',
            "",
            system.imports,
            "",
            "PATH = [",
            *lines,
            "]",
            "",
            "",
            "def test_a_path_found_by_the_checker():",
            f"    replay({system.bounds}, PATH{settles})",
            "",
        ]
    )


def _commented(system: Explorable[W, M, S], broken: Broken) -> Iterator[tuple[str, str]]:
    if not broken.moves:
        return
    world = system.start()
    for words in broken.moves:
        move = next(move for move in system.moves(world) if system.describe(world, move) == words)
        made, _ = tried(system, world, move)
        comment = ""
        if made is not None:
            world, comment = made[0], system.comment(made[1])
        yield words, f"  # {comment}" if comment else ""
