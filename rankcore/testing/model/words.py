"""Moves and messages in words: what a path is written down in."""

from collections.abc import Callable

from rankcore.commands import Command
from rankcore.events import Event
from rankcore.testing.model.machines import group_of
from rankcore.testing.model.moves import Move, booked
from rankcore.testing.model.world import RankWorld

TOLD = ("replica_id", "node_id", "group_id", "bundles", "capacity", "revision", "epoch", "at")


def brief(message: Command | Event) -> str:
    """A message in a few words that tell it from every other one in its world."""
    name = type(message).__name__
    known = [(key, getattr(message, key, None)) for key in TOLD]
    about, *parts = [(key, value) for key, value in known if value not in (None, ())]
    return " ".join([name, str(about[1]), *(f"{key}={value}" for key, value in parts)])


def describe(world: RankWorld, move: Move) -> str:
    """A move in words; no two moves of one world have the same."""
    if move.kind == "target naming":
        return f"target {move.index} naming {booked(world, move.other)}"
    words = _ABOUT.get(move.kind)
    return f"{move.kind} {words(world, move)}" if words is not None else move.kind


def _event(world: RankWorld, move: Move) -> str:
    return brief(world.events[move.index])


def _command(world: RankWorld, move: Move) -> str:
    return brief(world.commands[move.index])


def _whom(world: RankWorld, move: Move) -> str:
    replica_id: str = getattr(world.commands[move.index], "replica_id", "")
    return replica_id


def _replica(world: RankWorld, move: Move) -> str:
    return world.replicas[move.index].replica_id


def _node(world: RankWorld, move: Move) -> str:
    return world.bounds.node_ids[move.index]


def _bundle(world: RankWorld, move: Move) -> str:
    return f"{move.index % world.bounds.bundles} of {group_of(world, move.index)}"


def _placement(world: RankWorld, move: Move) -> str:
    placement = world.bounds.placements[move.index]
    return "anywhere" if placement is None else f"on {placement.group} {list(map(list, placement.bundles))}"


_ABOUT: dict[str, Callable[[RankWorld, Move], str]] = {
    "tell": _event,
    "tell twice": _event,
    "lose event": _event,
    "hand": _command,
    "hand twice": _command,
    "lose command": _command,
    "start": lambda world, move: f"{_whom(world, move)} on {world.bounds.node_ids[move.other]}",
    "refuse": _whom,
    "find no room": _whom,
    **dict.fromkeys(("finish", "end", "crash", "exit", "vanish", "fail", "suspect", "unready", "ready again"), _replica),
    "confuse": lambda world, move: f"{_replica(world, move)} with {world.replicas[move.other].replica_id}",
    **dict.fromkeys(("stop", "replace"), lambda world, move: booked(world, move.index)),
    **dict.fromkeys(("target", "partition"), lambda _, move: str(move.index)),
    "place": _placement,
    **dict.fromkeys(("lose node", "cordon", "drain", "notice", "uncordon"), _node),
    "lose bundle": _bundle,
    "restore bundle": lambda world, move: f"{_bundle(world, move)} on {world.bounds.node_ids[move.other]}",
    "resize": lambda world, move: f"{_node(world, move)} to {move.other}",
    "make room": _node,
    "tell room": _node,
}
