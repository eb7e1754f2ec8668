"""What can happen next in a model world, and what comes of it.

The first moves are those that need no fault: messages arrive, replicas get on with what they are doing, and once there is
nothing else to do, time passes. The very first one is the fair move: a world in which only those are made has to become
healthy (liveness). The others are the adversary's, each with a budget.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import attrs
from msgspec import Struct
from msgspec.structs import replace

from rankcore.commands import Command, StartReplica
from rankcore.core import step
from rankcore.draft import Step
from rankcore.events import (
    FINAL,
    ClockAdvanced,
    DeleteRequested,
    Event,
    ReplicaDied,
    ReplicaStopped,
    ReplicaUnhealthy,
    SpecChanged,
    StopRequested,
)
from rankcore.invariants.waking import due_at
from rankcore.state import DeploymentState
from rankcore.testing.model import world as worlds
from rankcore.testing.model.bounds import BUDGETS
from rankcore.testing.model.replica import ModelReplica, fail, finish
from rankcore.testing.model.world import World
from rankcore.values import ReplicaId, age_key

TOTAL = len(BUDGETS)
BUDGET_OF = {name: index for index, name in enumerate(BUDGETS)}


class Move(Struct, frozen=True, gc=False):
    """Something that can happen next.

    Attributes:
        kind: A key of `_MAKE`.
        index: Of the message or replica that it is about, or a number such as the new target.
        other: A second one, such as a node's.
        costs: The budget that it takes one from; None: it is no fault.
    """

    kind: str
    index: int = 0
    other: int = 0
    costs: str | None = None


@attrs.frozen
class Told:
    """The controller stepped: from this state, on this event (None: it has just recovered), to this step."""

    before: DeploymentState
    event: Event | None
    result: Step


Made: TypeAlias = tuple[World, tuple[Told, ...]]


def moves(world: World) -> Iterator[Move]:
    """Everything that can happen next, in an order that depends on nothing but the world."""
    calm = True
    for move in _fair(world):
        calm = False
        yield move
    if due_at(world.state) is not None:
        if calm:
            yield Move("wait")
        elif _may(world, "delays"):
            yield Move("wait", costs="delays")
    if world.left[TOTAL]:
        yield from _wishes(world)
        yield from _breakages(world)
        yield from _mishaps(world)


def _may(world: World, name: str) -> bool:
    return world.left[BUDGET_OF[name]] > 0 and world.left[TOTAL] > 0


def _fair(world: World) -> Iterator[Move]:
    for index in range(len(world.events)):
        yield Move("tell", index)
    for index, command in enumerate(world.commands):
        if isinstance(command, StartReplica):
            for node in _places(world, command):
                yield Move("start", index, node)
        else:
            yield Move("hand", index)
    for index, replica in enumerate(world.replicas):
        if replica.starting or replica.moving is not None:
            yield Move("finish", index)
        if replica.draining:
            yield Move("end", index)


def _places(world: World, command: StartReplica) -> Iterator[int]:
    """The nodes where a replica may come up: of those where nothing has ever been, one stands for all."""
    if command.replica_id in world.gone or world.find(command.replica_id) is not None:
        yield 0
        return
    used = {replica.node_id for replica in world.replicas}
    fresh = False
    for index, node_id in enumerate(world.bounds.node_ids):
        known = node_id in world.state.nodes or node_id in used
        if known or not fresh:
            yield index
        fresh = fresh or not known


def _wishes(world: World) -> Iterator[Move]:
    state = world.state
    if _may(world, "changes"):
        for target in range(world.bounds.replicas + 1):
            if target != state.world_size:
                yield Move("target", target, costs="changes")
    if _may(world, "namings"):
        for target in range(state.world_size):
            yield from (Move("target naming", target, index, costs="namings") for index in range(len(state.replicas)))
    if _may(world, "updates"):
        yield Move("update", costs="updates")
    if _may(world, "configs"):
        yield Move("configure", costs="configs")
    if _may(world, "deletes"):
        yield Move("delete", costs="deletes")
    if _may(world, "stops"):
        for index in range(len(state.replicas)):
            yield Move("stop", index, costs="stops")


def _breakages(world: World) -> Iterator[Move]:
    everybody = list(enumerate(world.replicas))
    if _may(world, "crashes"):
        yield from (Move("crash", index, costs="crashes") for index, _ in everybody)
    if _may(world, "failures"):
        yield from (Move("fail", i, costs="failures") for i, each in everybody if each.starting or each.moving is not None)
    if _may(world, "suspicions"):
        yield from (Move("suspect", index, costs="suspicions") for index, _ in everybody)
    if _may(world, "node_losses"):
        used = {replica.node_id for replica in world.replicas}
        for index, node_id in enumerate(world.bounds.node_ids):
            if node_id in used:
                yield Move("lose node", index, costs="node_losses")
    if _may(world, "restarts"):
        yield Move("restart", costs="restarts")
    if _may(world, "duplicates"):
        ranked = [index for index, each in everybody if each.rank is not None]
        still = [index for index in ranked if world.replicas[index].moving is None]
        yield from (Move("confuse", i, j, costs="duplicates") for i in still for j in ranked if i != j)


def _mishaps(world: World) -> Iterator[Move]:
    if _may(world, "losses"):
        yield from (Move("lose command", index, costs="losses") for index in range(len(world.commands)))
        for index, event in enumerate(world.events):
            if not isinstance(event, FINAL):
                yield Move("lose event", index, costs="losses")
    if _may(world, "repeats"):
        yield from (Move("tell twice", index, costs="repeats") for index in range(len(world.events)))
        for index, command in enumerate(world.commands):
            if not isinstance(command, StartReplica):
                yield Move("hand twice", index, costs="repeats")


def make(world: World, move: Move) -> Made:
    """What comes of a move: the next world, and the steps that its controller took."""
    if move.costs is not None:
        index = BUDGET_OF[move.costs]
        left = list(world.left)
        left[index] -= 1
        left[TOTAL] -= 1
        world = replace(world, left=tuple(left))
    return _MAKE[move.kind](world, move)


def _tell(world: World, event: Event) -> Made:
    after, result = worlds.told(world, event)
    return after, (Told(world.state, event, result),)


def _hand(world: World, command: Command) -> Made:
    assert isinstance(command, worlds.COMMANDS_TO_REPLICAS), f"{command} is for no replica"
    return worlds.handed(world, command), ()


def _start(world: World, move: Move) -> Made:
    command = world.commands[move.index]
    assert isinstance(command, StartReplica), f"{command} starts nothing"
    return worlds.started(worlds.without_command(world, move.index), command, world.bounds.node_ids[move.other]), ()


def _finish(world: World, replica: ModelReplica) -> Made:
    return worlds.replied(world, replica, finish(replica, world.now)), ()


def _end(world: World, replica: ModelReplica) -> Made:
    return worlds.said(worlds.ended(world, replica), ReplicaStopped(replica_id=replica.replica_id, at=world.now)), ()


def _crash(world: World, replica: ModelReplica) -> Made:
    news = ReplicaDied(replica_id=replica.replica_id, reason="gone", at=world.now)
    return worlds.said(worlds.ended(world, replica), news), ()


def _fail(world: World, replica: ModelReplica) -> Made:
    return worlds.replied(world, replica, fail(replica, world.now)), ()


def _suspect(world: World, replica: ModelReplica) -> Made:
    return worlds.said(world, ReplicaUnhealthy(replica_id=replica.replica_id, reason="silent", at=world.now)), ()


def _restart(world: World) -> Made:
    after, result = worlds.restarted(world)
    return after, (Told(world.state, None, result),)


def _confuse(world: World, move: Move) -> Made:
    return _restart(worlds.confused(world, world.replicas[move.index], world.replicas[move.other]))


def _change(world: World, *named: ReplicaId, **changes: object) -> Made:
    spec = attrs.evolve(world.state.spec, **changes)  # type: ignore[arg-type]
    return _tell(world, SpecChanged(spec=spec, stop_first=named, at=world.state.clock))


def _booked(world: World, index: int) -> ReplicaId:
    """A replica in the book, by age."""
    return sorted(world.state.replicas, key=age_key)[index]


def _used(world: World, name: str) -> int:
    index = BUDGET_OF[name]
    return world.bounds.budget[index] - world.left[index]


def _stop(world: World, move: Move) -> Made:
    return _tell(world, StopRequested(replica_ids=[_booked(world, move.index)], at=world.state.clock))


def _wait(world: World) -> Made:
    """Time passes until something falls due. The executor wakes the core when it asked for that, and never before."""
    steps: list[Told] = []
    due = due_at(world.state)
    # A core that asks for a moment that has passed is woken once: where that leads nowhere, liveness will say so.
    while _sleeps(world, due) and (not steps or steps[-1].before.clock < world.state.clock):
        before = world.state
        event = ClockAdvanced(at=max(before.wake_at or 0.0, before.clock))
        result = step(before, event)
        steps.append(Told(before, event, result))
        world = worlds.given(world, result)
    return world, tuple(steps)


def _sleeps(world: World, due: float | None) -> bool:
    return due is not None and world.state.clock < due and world.state.wake_at is not None


_MAKE: dict[str, Callable[[World, Move], Made]] = {
    "tell": lambda world, move: _tell(worlds.without_event(world, move.index), world.events[move.index]),
    "tell twice": lambda world, move: _tell(world, world.events[move.index]),
    "hand": lambda world, move: _hand(worlds.without_command(world, move.index), world.commands[move.index]),
    "hand twice": lambda world, move: _hand(world, world.commands[move.index]),
    "start": _start,
    "finish": lambda world, move: _finish(world, world.replicas[move.index]),
    "end": lambda world, move: _end(world, world.replicas[move.index]),
    "wait": lambda world, _: _wait(world),
    "target": lambda world, move: _change(world, target_replicas=move.index),
    "target naming": lambda world, move: _change(world, _booked(world, move.other), target_replicas=move.index),
    "update": lambda world, _: _change(world, version=str(_used(world, "updates") + 1)),
    "configure": lambda world, _: _change(world, user_config={"c": _used(world, "configs")}),
    "delete": lambda world, _: _tell(world, DeleteRequested(at=world.state.clock)),
    "stop": _stop,
    "crash": lambda world, move: _crash(world, world.replicas[move.index]),
    "fail": lambda world, move: _fail(world, world.replicas[move.index]),
    "suspect": lambda world, move: _suspect(world, world.replicas[move.index]),
    "lose node": lambda world, move: (worlds.node_lost(world, world.bounds.node_ids[move.index]), ()),
    "restart": lambda world, _: _restart(world),
    "confuse": _confuse,
    "lose command": lambda world, move: (worlds.without_command(world, move.index), ()),
    "lose event": lambda world, move: (worlds.without_event(world, move.index), ()),
}


def brief(message: Command | Event) -> str:
    """A message in a few words that tell it from every other one in its world."""
    name = type(message).__name__
    known = {key: getattr(message, key, None) for key in ("replica_id", "node_id", "revision", "epoch", "at")}
    about, *parts = [(key, value) for key, value in known.items() if value is not None]
    return " ".join([name, str(about[1]), *(f"{key}={value}" for key, value in parts)])


def describe(world: World, move: Move) -> str:
    """A move in words; no two moves of one world have the same."""
    kind = move.kind
    if kind in ("tell", "tell twice", "lose event"):
        return f"{kind} {brief(world.events[move.index])}"
    if kind in ("hand", "hand twice", "lose command"):
        return f"{kind} {brief(world.commands[move.index])}"
    if kind == "start":
        return f"start {world.commands[move.index].replica_id} on {world.bounds.node_ids[move.other]}"  # type: ignore[union-attr]
    if kind in ("finish", "end", "crash", "fail", "suspect"):
        return f"{kind} {world.replicas[move.index].replica_id}"
    if kind == "confuse":
        return f"confuse {world.replicas[move.index].replica_id} with {world.replicas[move.other].replica_id}"
    if kind == "stop":
        return f"stop {_booked(world, move.index)}"
    if kind == "target naming":
        return f"target {move.index} naming {_booked(world, move.other)}"
    if kind == "lose node":
        return f"lose node {world.bounds.node_ids[move.index]}"
    return f"target {move.index}" if kind == "target" else kind
