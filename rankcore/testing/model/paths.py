"""Paths through model worlds: from a beginning, by moves in words, to a broken promise; and such a path as a test to run."""

from collections.abc import Iterator, Sequence

import attrs

from rankcore.errors import RankcoreError
from rankcore.invariants import Violation
from rankcore.testing.model.bounds import Bounds
from rankcore.testing.model.moves import Move, make, moves
from rankcore.testing.model.promises import broken_by, unsettled
from rankcore.testing.model.steps import Told
from rankcore.testing.model.words import brief, describe
from rankcore.testing.model.world import World, begin
from rankcore.values import DeploymentStatus

FAIR_MOVES_MAX = 400
"""After so many moves without a fault, a world of five replicas is at rest, by far."""


class BrokenPromiseError(AssertionError):
    """A path has broken a promise; the text has the promise and the path."""


class NoSuchMoveError(RankcoreError):
    """A path cannot be gone to its end: the core, or the model, decides otherwise than when it was written down."""


@attrs.frozen
class Broken:
    """A broken promise, with a shortest path to it.

    Attributes:
        bounds: Of the world.
        moves: The path, in words.
        violations: What is broken at its end.
        settles: Whether it is broken only by going on from there without a fault (liveness).
    """

    bounds: Bounds
    moves: tuple[str, ...]
    violations: tuple[Violation, ...]
    settles: bool = False


def root(bounds: Bounds) -> World:
    """The world in which an exploration begins."""
    world, _ = begin(bounds)
    while bounds.healthy and not (world.state.status is DeploymentStatus.HEALTHY and not world.commands and not world.events):
        move = next(moves(world))
        if move.kind == "start" and not (
            world.bundles or world.rooms
        ):  # spread over the nodes: who starts is on as many as there are
            move = Move("start", move.index, len(world.replicas) % bounds.nodes)
        world, _ = make(world, move)
    return world


def tried(world: World, move: Move) -> tuple[World, tuple[Told, ...], list[Violation]]:
    """What comes of a move, and which promises it breaks. A core that raises breaks its promise never to (section 2)."""
    try:
        after, steps = make(world, move)
        return after, steps, broken_by(world, after, steps)
    except Exception as error:  # whatever a broken core may raise, the path to it is what is wanted
        return world, (), [Violation("2", f"the core raised {type(error).__name__}: {error}")]


def replay(bounds: Bounds, path: Sequence[str], *, settles: bool = False) -> World:
    """Go a path, and check every promise at each move.

    Args:
        bounds: Of the world.
        path: Moves in words, as `describe` has them.
        settles: Whether to go on without a fault afterwards, and demand that this ends well.

    Returns:
        The world at the end.

    Raises:
        BrokenPromiseError: A promise does not hold.
        NoSuchMoveError: A move is not possible where the path has it.
    """
    world = root(bounds)
    for index, words in enumerate(path):
        move = next((move for move in moves(world) if describe(world, move) == words), None)
        if move is None:
            possible = "; ".join(describe(world, each) for each in moves(world))
            raise NoSuchMoveError(f"move {index} of the path must be possible there, got {words!r}, possible: {possible}")
        world, _, violations = tried(world, move)
        _demand(violations, path[: index + 1])
    if settles:
        world, violations, _ = settle(world)
        _demand(violations, path)
    return world


def _demand(violations: Sequence[Violation], path: Sequence[str]) -> None:
    if violations:
        raise BrokenPromiseError("\n  ".join(["; ".join(map(str, violations)), "after", *path]))


def settle(world: World) -> tuple[World, list[Violation], int]:
    """Go on without any fault until nothing is left to do. Returns where that is, what is wrong there, and how many moves."""
    for count in range(FAIR_MOVES_MAX):
        move = next(moves(world), None)
        if move is None or move.costs is not None:
            return world, unsettled(world), count
        world, _, violations = tried(world, move)
        if violations:
            return world, violations, count + 1
    return world, [Violation("liveness", f"not at rest after {FAIR_MOVES_MAX} moves without a fault")], FAIR_MOVES_MAX


def as_test(broken: Broken) -> str:
    """A test that fails as long as the promise is broken, and goes this path ever after."""
    lines = [f"    {words!r}," + comment for words, comment in _commented(broken)]
    settles = ", settles=True" if broken.settles else ""
    return "\n".join(
        [
            '"""' + "; ".join(map(str, broken.violations)).replace("\\", "\\\\").replace('"', "'") + '"""',
            "",
            "from rankcore.testing.model import Bounds, replay",
            "",
            "PATH = [",
            *lines,
            "]",
            "",
            "",
            "def test_a_path_found_by_the_checker():",
            f"    replay({broken.bounds}, PATH{settles})",
            "",
        ]
    )


def _commented(broken: Broken) -> Iterator[tuple[str, str]]:
    world = root(broken.bounds)
    for words in broken.moves:
        move = next(move for move in moves(world) if describe(world, move) == words)
        world, steps, _ = tried(world, move)
        commands = [brief(command) for told in steps for command in told.result.commands if hasattr(command, "replica_id")]
        yield words, f"  # {', '.join(commands)}" if commands else ""
