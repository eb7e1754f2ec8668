"""The moves of an adversary by name, each with one number that chooses whom it concerns; and moves written as bytes."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from rankcore.testing.schedules.specs import placement_from
from rankcore.testing.schedules.world import World

Move: TypeAlias = tuple[str, int]
LAPSES_S = (0.5, 5.0, 31.0, 700.0)
DEADLINES_S = (None, 0.0, 3.0, 40.0)
TOKENS = ("", "monday", "tuesday")


def _deliver_first(world: World, _: int) -> None:
    if world.commands:
        world.deliver_command(0)
    if world.events:
        world.deliver_event(0)


def _lose(world: World, argument: int) -> None:
    world.lose_command(argument) if argument & 1 else world.lose_event(argument)


def _update(world: World, argument: int) -> None:
    world.change(version=str(argument % 3))


def _configure(world: World, argument: int) -> None:
    world.change(user_config={"c": argument % 3})


def _restart(world: World, argument: int) -> None:
    world.change(restart_token=TOKENS[argument % 3])


def _part(world: World, argument: int) -> None:
    world.change(partition=argument % 7)


def _replace_placement(world: World, argument: int) -> None:
    world.change(placement=placement_from(argument) if argument % 8 else None)


MOVES: dict[str, Callable[[World, int], object]] = {
    "command arrives": World.deliver_command,
    "news arrives": World.deliver_event,
    "first of each arrives": _deliver_first,
    "command arrives and stays": lambda world, argument: world.deliver_command(argument, keep=True),
    "news arrives and stays": lambda world, argument: world.deliver_event(argument, keep=True),
    "replica works": World.work,
    "replica is placed": lambda world, argument: world.place(argument, argument >> 3),
    "calm moment": lambda world, _: world.pump(),
    "time passes": lambda world, argument: world.pass_time(LAPSES_S[argument % 4]),
    "message is lost": _lose,
    "replica crashes": lambda world, argument: world.crash(argument),
    "replica fails": lambda world, argument: world.work(argument, fail=True),
    "replica is suspected": lambda world, argument: world.suspect(argument),
    "replica is ready or not": lambda world, argument: world.look(argument),
    "node is lost": lambda world, argument: world.lose_node(argument),
    "node has other room": lambda world, argument: world.say_capacity(argument, argument % 5),
    "bundle is lost": lambda world, argument: world.lose_bundles(argument, everything=argument % 32 == 31),
    "bundle is back": lambda world, argument: world.restore_bundles(argument, everything=argument % 8 == 7),
    "controller restarts": lambda world, _: world.restart_controller(),
    "replicas disagree": lambda world, argument: world.corrupt(argument, argument >> 4),
    "target changes": lambda world, argument: world.change(target_replicas=argument % 6),
    "target changes with victims": lambda world, argument: world.change_naming(argument % 6, argument),
    "version changes": _update,
    "user_config changes": _configure,
    "restart token changes": _restart,
    "partition changes": _part,
    "placement changes": _replace_placement,
    "replica is stopped by name": lambda world, argument: world.stop_by_name(argument),
    "replica is to be replaced": lambda world, argument: world.replace_by_name(argument >> 2, DEADLINES_S[argument % 4]),
    "node is cordoned": lambda world, argument: world.cordon(argument),
    "node is drained": lambda world, argument: world.drain(argument >> 2, DEADLINES_S[argument % 4]),
    "node is uncordoned": lambda world, argument: world.uncordon(argument),
    "what was given up is tried again": lambda world, argument: world.retry(argument),
    "deployment is deleted": lambda world, _: world.delete(),
}

CALM = ("command arrives", "news arrives", "first of each arrives", "replica works", "replica is placed", "calm moment")
"""What happens in a world without any fault or wish, but for time, which passes as the core asks for it."""

ByteMove: TypeAlias = "str | tuple[str, Callable[[int], bool], str]"
"""What a first byte stands for: always the same, or, where the second byte says so, the rarer one instead."""

_BYTE_MOVES: tuple[ByteMove, ...] = (
    *["command arrives"] * 3,
    *["news arrives"] * 3,
    *["replica works"] * 2,
    *["replica is placed"] * 2,
    "command arrives and stays",
    "news arrives and stays",
    "message is lost",
    "replica crashes",
    "target changes",
    ("user_config changes", lambda argument: argument & 8 > 0, "version changes"),
    "time passes",
    ("replica fails", lambda argument: argument & 1 > 0, "replica is suspected"),
    ("node has other room", lambda argument: argument % 4 == 0, "node is lost"),
    ("news arrives", lambda argument: argument % 3 == 0, "controller restarts"),
    ("target changes with victims", lambda argument: argument & 1 > 0, "replica is stopped by name"),
    ("command arrives", lambda argument: argument % 64 == 0, "deployment is deleted"),
    ("command arrives", lambda argument: argument % 4 == 0, "replicas disagree"),
    ("first of each arrives", lambda argument: argument % 4 == 0, "what was given up is tried again"),
    *[("calm moment", lambda argument: argument % 16 == 0, "placement changes")] * 2,
    "bundle is lost",
    "bundle is back",
    *["calm moment"] * 4,
)
_PLACEMENT_BYTES = (24, 25)


def decode(moves: bytes, *, static: bool = False) -> list[Move]:
    """A schedule written as two bytes a move; in a static placement, placements change more often."""
    found = []
    for first, argument in zip(moves[::2], moves[1::2], strict=False):
        kind = first % len(_BYTE_MOVES)
        move = _BYTE_MOVES[kind]
        if static and kind in _PLACEMENT_BYTES:
            found.append(("placement changes", argument))
        elif isinstance(move, str):
            found.append((move, argument))
        else:
            found.append((move[2] if move[1](argument) else move[0], argument))
    return found


def play(world: World, moves: "bytes | Iterable[Move]") -> None:
    """Make these moves, given by name or as bytes.

    Raises:
        BrokenScheduleError: A promise does not hold.
    """
    if isinstance(moves, bytes):
        moves = decode(moves, static=world.state.spec.static_placement is not None)
    make = MOVES
    for number, (name, argument) in enumerate(moves, world.moves + 1):
        world.moves = number
        make[name](world, argument)
