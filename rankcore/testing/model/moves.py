"""What can happen next in a model world, and what comes of it.

The first moves are those that need no fault: messages arrive, replicas get on with what they are doing, and once there is
nothing else to do, time passes; then what was lost comes back (before that, where nobody is told of it). The very first one is
the fair move: a world in which only those are made has to become healthy (liveness). The others are the adversary's, each with
a budget.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from math import floor
from typing import TypeAlias

import attrs
from msgspec import Struct
from msgspec.structs import replace

from rankcore.commands import Command, StartReplica
from rankcore.events import (
    NEVER_LOST,
    ClockAdvanced,
    DeleteRequested,
    Event,
    NodeCordoned,
    NodeDrainRequested,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPending,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    RetryRequested,
    SpecChanged,
    StopRequested,
    TrialRequested,
)
from rankcore.invariants.waking import due_at
from rankcore.replica.replica import ReplicaHalf
from rankcore.testing.model import machines, restarts
from rankcore.testing.model import world as worlds
from rankcore.testing.model.book import INSTANT_S
from rankcore.testing.model.bounds import BUDGETS
from rankcore.testing.model.process import fail, finish, look
from rankcore.testing.model.steps import Told, recovered
from rankcore.testing.model.world import LOST, RankWorld
from rankcore.values import DEPLOY_FAILED, REQUESTED, ReplicaId, age_key

TOTAL = len(BUDGETS)
NOTICE_S = 2.0
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


Made: TypeAlias = tuple[RankWorld, tuple[Told, ...]]


def moves(world: RankWorld) -> Iterator[Move]:
    """Everything that can happen next, in an order that depends on nothing but the world."""
    calm = True
    for move in _fair(world):
        calm = False
        yield move
    may_return = world.bundles or world.rooms or world.cordons or world.bounds.unreadies
    lost = _restorations(world) if may_return else iter(())
    if world.bounds.parking or machines.is_parked(
        world
    ):  # whoever finds no room is asked for again and again, so that time alone would pass for ever
        yield from lost
    parked = list(machines.parked(world)) if world.bounds.parking else []
    if due_at(world.state, [command.replica_id for _, command in parked]) is not None:
        if calm:
            yield Move("wait")
        elif _may(world, "delays"):
            yield Move("wait", costs="delays")
    yield from lost
    if calm or _may(world, "delays"):
        costs = None if calm else "delays"
        yield from (Move("find no room", index, costs=costs) for index, command in parked if _is_awaited(world, command))
    if world.left[TOTAL]:
        yield from _wishes(world)
        yield from _breakages(world)
        yield from _mishaps(world)


def _is_awaited(world: RankWorld, command: StartReplica) -> bool:
    """Whether it changes anything that this one finds no room: that is new, and an update or a rank waits for its place."""
    state, replica = world.state, world.state.replicas.get(command.replica_id)
    slot = replica.slot if replica is not None else None
    if replica is None or slot is None or replica.state is not REQUESTED:
        return False
    if state.tables.slots[slot].successor == command.replica_id:
        return slot not in state.tables.rollout.stoppable
    return state.spec.scarcity_after_s is not None and replica.no_room_since is None


def _is_accepted(world: RankWorld, command: Command) -> bool:
    """Whether it is a start that the executor has: it keeps it, since it is not asked for it again."""
    replica = world.state.replicas.get(command.replica_id) if isinstance(command, StartReplica) else None
    return replica is not None and replica.pending is not None and not replica.is_repeated


def _may(world: RankWorld, name: str) -> bool:
    return world.left[BUDGET_OF[name]] > 0 and world.left[TOTAL] > 0


def _fair(world: RankWorld) -> Iterator[Move]:
    for index in range(len(world.events)):
        yield Move("tell", index)
    for index, command in enumerate(world.commands):
        if isinstance(command, StartReplica):
            for node in machines.nodes_for(world, command):
                yield Move("start", index, node)
        else:
            yield Move("hand", index)
    for index, replica in enumerate(world.replicas):
        if replica.running is not None:
            yield Move("finish", index)
        if replica.draining:
            yield Move("end", index)
    if world.bounds.room_is_told and not world.events:
        yield from (Move("tell room", node) for node in machines.unknown_rooms(world))


def _restorations(world: RankWorld) -> Iterator[Move]:
    """What is lost may come back at any time, and does in the end."""
    for index, node in enumerate(world.bundles):
        if node == LOST:
            yield from (Move("restore bundle", index, there) for there in machines.any_node(world))
    for node, room in enumerate(world.rooms):
        if room < world.bounds.rooms:
            yield Move("make room", node)
    for node, cordon in enumerate(world.cordons):
        if cordon is not None:
            yield Move("uncordon", node)
    for index, replica in enumerate(world.replicas):
        if replica.unready is not None and not replica.draining:
            yield Move("ready again", index)


def _wishes(world: RankWorld) -> Iterator[Move]:
    state = world.state
    free = state.spec.static_placement is None
    if free and _may(world, "changes"):
        for target in range(world.bounds.replicas + 1):
            if target != state.world_size:
                yield Move("target", target, costs="changes")
    if free and _may(world, "namings"):
        for target in range(state.world_size):
            yield from (Move("target naming", target, index, costs="namings") for index in range(len(state.replicas)))
    if _may(world, "updates"):
        yield Move("update", costs="updates")
    if _may(world, "configs"):
        yield Move("configure", costs="configs")
    if _may(world, "renewals"):
        yield Move("renew", costs="renewals")
    if _may(world, "partitions"):
        for partition in range(world.bounds.replicas + 1):
            if partition != state.spec.partition:
                yield Move("partition", partition, costs="partitions")
    if _may(world, "mappings"):
        for index, placement in enumerate(world.bounds.placements):
            if placement != state.spec.static_placement:
                yield Move("place", index, costs="mappings")
    known = chain(state.tables.slots.items(), state.tables.former.items())
    rests = any(slot.retry_at > state.clock for _, slot in known)
    if (state.status is DEPLOY_FAILED or rests) and _may(world, "retries"):  # else it changes nothing
        yield Move("retry", costs="retries")
    if state.status is DEPLOY_FAILED and _may(world, "trials"):  # else it changes nothing
        yield Move("try", costs="trials")
    if _may(world, "deletes"):
        yield Move("delete", costs="deletes")
    if _may(world, "stops"):
        for index in range(len(state.replicas)):
            yield Move("stop", index, costs="stops")
    if _may(world, "replacements"):
        for index in range(len(state.replicas)):
            yield Move("replace", index, costs="replacements")


def _breakages(world: RankWorld) -> Iterator[Move]:
    everybody = list(enumerate(world.replicas))
    if _may(world, "crashes"):
        yield from (Move("crash", index, costs="crashes") for index, _ in everybody)
    if _may(world, "failures"):
        failing = [i for i, each in everybody if each.rank is None or each.running is not None]
        yield from (Move("fail", index, costs="failures") for index in failing)
        for index, command in enumerate(world.commands):
            if isinstance(command, StartReplica) and command.replica_id not in world.gone:
                if world.find(command.replica_id) is None:
                    yield Move("refuse", index, costs="failures")
    if _may(world, "exits"):
        yield from (Move(how, index, costs="exits") for how in ("exit", "vanish") for index, _ in everybody)
    if _may(world, "suspicions"):
        yield from (Move("suspect", index, costs="suspicions") for index, _ in everybody)
    if _may(world, "unreadies"):
        serving = [index for index, each in everybody if each.ready and not each.draining and each.unready is None]
        yield from (Move("unready", index, costs="unreadies") for index in serving)
    if _may(world, "node_losses"):
        used: set[str | None] = {replica.node_id for replica in world.replicas}
        if world.bundles:  # of an empty node it matters what the controller takes to be there
            used |= {replica.node_id for replica in world.state.replicas.values()}
        for index, node_id in enumerate(world.bounds.node_ids):
            if node_id in used or index in world.bundles or world.bounds.room_is_told:
                yield Move("lose node", index, costs="node_losses")
    if _may(world, "bundle_losses"):
        there = [index for index, node in enumerate(world.bundles) if node != LOST]
        yield from (Move("lose bundle", index, costs="bundle_losses") for index in there)
    if _may(world, "room_changes"):
        for node, room in enumerate(world.rooms):
            yield from (Move("resize", node, less, costs="room_changes") for less in range(room))
    for kind, costs in (("cordon", "cordons"), ("drain", "drains"), ("notice", "notices")):
        if _may(world, costs):
            yield from (Move(kind, node, costs=costs) for node in machines.any_node(world) if world.cordons[node] is None)
    if _may(world, "restarts"):
        yield Move("restart", costs="restarts")
    if _may(world, "duplicates"):
        ranked = [index for index, each in everybody if each.rank is not None]
        still = [index for index in ranked if not world.replicas[index].changing]
        yield from (Move("confuse", i, j, costs="duplicates") for i in still for j in ranked if i != j)


def _mishaps(world: RankWorld) -> Iterator[Move]:
    if _may(world, "losses"):
        lost = [index for index, command in enumerate(world.commands) if not _is_accepted(world, command)]
        yield from (Move("lose command", index, costs="losses") for index in lost)
        for index, event in enumerate(world.events):
            if not isinstance(event, NEVER_LOST):
                yield Move("lose event", index, costs="losses")
    if _may(world, "repeats"):
        yield from (Move("tell twice", index, costs="repeats") for index in range(len(world.events)))
        for index, command in enumerate(world.commands):
            if not isinstance(command, StartReplica):
                yield Move("hand twice", index, costs="repeats")


def make(world: RankWorld, move: Move) -> Made:
    """What comes of a move: the next world, and the steps that its controller took."""
    if move.costs is not None:
        index = BUDGET_OF[move.costs]
        left = list(world.left)
        left[index] -= 1
        left[TOTAL] -= 1
        world = replace(world, left=tuple(left))
    return _MAKE[move.kind](world, move)


def _tell(world: RankWorld, event: Event) -> Made:
    after, told = worlds.told(world, event)
    return after, (told,)


def _find_no_room(world: RankWorld, move: Move) -> Made:
    start = world.commands[move.index]
    assert isinstance(start, StartReplica), f"{start} waits for no room"
    return _tell(world, ReplicaPending(replica_id=start.replica_id, reason="no room", accepted=True, at=world.now))


def _hand(world: RankWorld, command: Command) -> Made:
    assert isinstance(command, worlds.CommandToReplica), f"{command} is for no replica"
    return worlds.handed(world, command), ()


def _start(world: RankWorld, move: Move) -> Made:
    command = world.commands[move.index]
    assert isinstance(command, StartReplica), f"{command} starts nothing"
    return worlds.started(worlds.without_command(world, move.index), command, world.bounds.node_ids[move.other]), ()


def _finish(world: RankWorld, replica: ReplicaHalf) -> Made:
    return worlds.replied(world, replica, finish(replica, world.now)), ()


def _crash(world: RankWorld, replica: ReplicaHalf) -> Made:
    news = ReplicaDied(replica_id=replica.replica_id, reason="gone", at=world.now)
    return worlds.said(worlds.ended(world, replica), news), ()


def _fail(world: RankWorld, replica: ReplicaHalf) -> Made:
    return worlds.replied(world, replica, fail(replica, world.now)), ()


def _exit(world: RankWorld, replica: ReplicaHalf) -> Made:
    return worlds.said(worlds.ended(world, replica), ReplicaStopped(replica_id=replica.replica_id, at=world.now)), ()


def _vanish(world: RankWorld, replica: ReplicaHalf) -> Made:
    return worlds.said(worlds.ended(world, replica), ReplicaMissing(replica_id=replica.replica_id, at=world.now)), ()


def _refuse(world: RankWorld, move: Move) -> Made:
    """An executor cannot carry out a start, and never will."""
    command = world.commands[move.index]
    assert isinstance(command, StartReplica), f"{command} starts nothing"
    failed = ReplicaStartFailed(replica_id=command.replica_id, reason="refused", at=world.now)
    world = worlds.without_command(world, move.index)
    return worlds.said(replace(world, gone=world.gone | {command.replica_id}), failed), ()


def _suspect(world: RankWorld, replica: ReplicaHalf) -> Made:
    return worlds.said(world, ReplicaUnhealthy(replica_id=replica.replica_id, reason="silent", at=world.now)), ()


def _look(world: RankWorld, move: Move) -> Made:
    """A replica cannot take requests, or can again; what it says is after all that has happened."""
    world, at = worlds.next_instant(world)
    replica = world.replicas[move.index]
    return worlds.replied(world, replica, look(replica, at, "cold" if move.kind == "unready" else None)), ()


def _restart(world: RankWorld) -> Made:
    after, result = restarts.restarted(world)
    return after, (recovered(world.state, result),)


def _confuse(world: RankWorld, move: Move) -> Made:
    return _restart(restarts.confused(world, world.replicas[move.index], world.replicas[move.other]))


def _change(world: RankWorld, *named: ReplicaId, **changes: object) -> Made:
    spec = attrs.evolve(world.state.spec, **changes)  # type: ignore[arg-type]
    return _tell(world, SpecChanged(spec=spec, stop_first=named, at=world.now))


def _place(world: RankWorld, move: Move) -> Made:
    placement = world.bounds.placements[move.index]
    target = world.state.world_size if placement is None else len(placement)
    # The news of its group comes after it, and what is under way of an older naming came before.
    world, at = worlds.next_instant(world)
    spec = attrs.evolve(world.state.spec, placement=placement, target_replicas=target)
    after, steps = _tell(world, SpecChanged(spec=spec, at=at))
    return machines.named(after), steps


def booked(world: RankWorld, index: int) -> ReplicaId:
    """A replica in the book, by age."""
    return sorted(world.state.replicas, key=age_key)[index]


def _used(world: RankWorld, name: str) -> int:
    index = BUDGET_OF[name]
    return world.bounds.budget[index] - world.left[index]


def _stop(world: RankWorld, move: Move) -> Made:
    return _tell(world, StopRequested(replica_ids=[booked(world, move.index)], at=world.now))


def _replace(world: RankWorld, move: Move) -> Made:
    return _tell(world, ReplaceRequested(replica_ids=[booked(world, move.index)], at=world.now))


def _cordon(world: RankWorld, move: Move) -> Made:
    """A node is cordoned, drained, or drained within `NOTICE_S`; whoever wants that tells the controller, and the executor."""
    world, at = worlds.next_instant(world)
    node_id = world.bounds.node_ids[move.index]
    if move.kind == "cordon":
        cordon: NodeCordoned | NodeDrainRequested = NodeCordoned(node_id=node_id, at=at)
    else:
        deadline_at = floor(at) + NOTICE_S if move.kind == "notice" else None
        cordon = NodeDrainRequested(node_id=node_id, deadline_at=deadline_at, at=at)
    return _tell(machines.cordoned(world, move.index, cordon), cordon)


def _uncordon(world: RankWorld, move: Move) -> Made:
    world, at = worlds.next_instant(world)
    return _tell(machines.cordoned(world, move.index, None), NodeUncordoned(node_id=world.bounds.node_ids[move.index], at=at))


def _wait(world: RankWorld) -> Made:
    """Time passes until something falls due. The executor wakes the core when it asked for that, and never before.

    Where `min_ready_s` is longer than a second, whoever is on the way there may be stopped after each second of it.
    """
    steps: list[Told] = []
    due, second = due_at(world.state), floor(world.state.clock) + 1.0
    if world.bounds.min_ready_s > 1.0 and due is not None and due > second and world.state.tables.maturing.items:
        return _tell(world, ClockAdvanced(at=second + world.instants * INSTANT_S))
    # A core that asks for a moment that has passed is woken once: where that leads nowhere, liveness will say so.
    while _sleeps(world, due) and (not steps or steps[-1].before.clock < world.state.clock):
        before = world.state
        # Awake as late in that second as all that has happened: whatever falls due in it is due.
        event = ClockAdvanced(at=max(floor(before.wake_at or 0.0) + world.instants * INSTANT_S, before.clock))
        world, told = worlds.told(world, event)
        steps.append(told)
    return world, tuple(steps)


def _sleeps(world: RankWorld, due: float | None) -> bool:
    return due is not None and world.state.clock < due and world.state.wake_at is not None


_MAKE: dict[str, Callable[[RankWorld, Move], Made]] = {
    "tell": lambda world, move: _tell(worlds.without_event(world, move.index), world.events[move.index]),
    "tell twice": lambda world, move: _tell(world, world.events[move.index]),
    "hand": lambda world, move: _hand(worlds.without_command(world, move.index), world.commands[move.index]),
    "hand twice": lambda world, move: _hand(world, world.commands[move.index]),
    "start": _start,
    "finish": lambda world, move: _finish(world, world.replicas[move.index]),
    "end": lambda world, move: _exit(world, world.replicas[move.index]),
    "wait": lambda world, _: _wait(world),
    "target": lambda world, move: _change(world, target_replicas=move.index),
    "target naming": lambda world, move: _change(world, booked(world, move.other), target_replicas=move.index),
    "update": lambda world, _: _change(world, version=str(_used(world, "updates") + 1)),
    "configure": lambda world, _: _change(world, user_config={"c": _used(world, "configs")}),
    "renew": lambda world, _: _change(world, restart_token=str(_used(world, "renewals"))),
    "partition": lambda world, move: _change(world, partition=move.index),
    "retry": lambda world, _: _tell(world, RetryRequested(at=world.now)),
    "try": lambda world, _: _tell(world, TrialRequested(at=world.now)),
    "delete": lambda world, _: _tell(world, DeleteRequested(at=world.now)),
    "stop": _stop,
    "replace": _replace,
    **dict.fromkeys(("cordon", "drain", "notice"), _cordon),
    "uncordon": _uncordon,
    "crash": lambda world, move: _crash(world, world.replicas[move.index]),
    "fail": lambda world, move: _fail(world, world.replicas[move.index]),
    "suspect": lambda world, move: _suspect(world, world.replicas[move.index]),
    **dict.fromkeys(("unready", "ready again"), _look),
    "exit": lambda world, move: _exit(world, world.replicas[move.index]),
    "vanish": lambda world, move: _vanish(world, world.replicas[move.index]),
    "refuse": _refuse,
    "place": _place,
    "lose node": lambda world, move: (machines.node_lost(world, move.index), ()),
    "lose bundle": lambda world, move: (machines.bundle_lost(world, move.index), ()),
    "restore bundle": lambda world, move: (machines.bundle_restored(world, move.index, move.other), ()),
    "resize": lambda world, move: (machines.resized(world, move.index, move.other), ()),
    "find no room": _find_no_room,
    "make room": lambda world, move: (machines.resized(world, move.index, world.bounds.rooms), ()),
    "tell room": lambda world, move: (machines.told_of_room(world, move.index), ()),
    "restart": lambda world, _: _restart(world),
    "confuse": _confuse,
    "lose command": lambda world, move: (worlds.without_command(world, move.index), ()),
    "lose event": lambda world, move: (worlds.without_event(world, move.index), ()),
}
