"""A world of models as one value, and the moves that lead from it to others."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import attrs

from rankcore.events import ClockAdvanced
from rankcore.frozen import EMPTY, PMap
from rankcore.kernel import Violation
from rankcore.residency import Level, ResidencyState, Wanted, open_residency
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import (
    DeployRequested,
    Event,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
)
from rankcore.residency.invariants import check, check_step
from rankcore.testing.model_residency.bounds import ResidencyBounds
from rankcore.testing.model_residency.driving import DrivenPlanner, driven
from rankcore.testing.model_residency.memory import TakenMemory
from rankcore.testing.model_residency.ticks import (
    a_tick_passes,
    call,
    check_promises,
    is_replaced,
    may_be_replaced,
    moves_in_ticks,
)
from rankcore.values import ReplicaId

Given: TypeAlias = LoadToGpu | OffloadToCpu | UnloadFromGpu | DropFromCpu
Move: TypeAlias = tuple[str, int]
"""What, and which of several."""

FAIR = ("is done", "time passes", "a tick passes")
"""Moves that have to happen at some time: they lead to rest (T10)."""
BUDGETS = ("asks", "failures", "deaths", "node_losses", "repeats", "replacements")


@attrs.frozen
class ResidencyWorld:
    """All there is.

    Attributes:
        bounds: What may happen in all.
        state: The planner's.
        called_for: How many replicas of each model are called for.
        given: Commands that nobody has answered yet, the oldest first.
        memory: Whose weights really are where.
        spent: How often each budget was used, in the order of `BUDGETS`.
        ticks: For how many ticks each of `given` is under way, in a world of ticks.
        replaced: Who leaves so that another one of its model takes its place, ids ascending.
    """

    bounds: ResidencyBounds
    state: ResidencyState
    called_for: PMap[str, Wanted] = EMPTY
    given: tuple[Given, ...] = ()
    memory: TakenMemory = attrs.Factory(TakenMemory)
    spent: tuple[int, ...] = (0,) * len(BUDGETS)
    ticks: tuple[int, ...] = ()
    replaced: tuple[ReplicaId, ...] = ()


class ResidencyWorldDraft:
    """A world that is being changed by one move, with the promises that it breaks."""

    def __init__(self, world: ResidencyWorld) -> None:
        self.bounds = world.bounds
        self.state = world.state
        self.called_for = world.called_for
        self.given = list(world.given)
        self.memory = world.memory
        self.spent = list(world.spent)
        self.ticks = dict(zip((each.move for each in world.given), world.ticks, strict=False))
        self.replaced = set(world.replaced)
        self.broken: list[Violation] = []

    def close(self) -> ResidencyWorld:
        """As a value."""
        ticks = tuple(self.ticks.get(each.move, 0) for each in self.given) if self.bounds.in_ticks else ()
        given = tuple(self.given)
        replaced = tuple(sorted(self.replaced))
        return ResidencyWorld(self.bounds, self.state, self.called_for, given, self.memory, tuple(self.spent), ticks, replaced)

    def spend(self, budget: str) -> None:
        """Use one of a budget."""
        self.spent[BUDGETS.index(budget)] += 1

    def tell(self, event: Event) -> None:
        """Drive the planner, check the promises, and see what its commands do to memory."""
        planner, told = driven(DrivenPlanner(self.state, self.called_for), event)
        self.state, self.called_for = planner.state, planner.called_for
        for before, event, step in told:
            self.broken += check(step.state)
            self.broken += check_step(before, event, step)
            if self.bounds.in_ticks:
                self.broken += check_promises(before, event, step)
            for command in step.commands:
                if isinstance(command, Given):
                    self.given = [each for each in self.given if each.replica_id != command.replica_id]
                    self.given.append(command)
                    self.memory = self.memory.begun(command)
            self.broken += self.memory.check(self.bounds.nodes)


def root(bounds: ResidencyBounds) -> ResidencyWorld:
    """All nodes are there, and nobody has asked for anything."""
    draft = ResidencyWorldDraft(ResidencyWorld(bounds, open_residency(bounds.policy)))
    for number in range(len(bounds.nodes)):
        _joins(draft, number)
    assert not draft.broken, draft.broken
    return draft.close()


def until_waking(state: ResidencyState) -> float | None:
    """In how many seconds the planner is to be woken; None: nothing falls due."""
    return state.waking - state.clock if state.waking is not None and state.waking > state.clock else None


def moves(world: ResidencyWorld) -> Iterator[Move]:
    """What may happen next: what has to at some time, then what an adversary may do."""
    if world.bounds.in_ticks:
        yield from moves_in_ticks(world.state, world.given)
    else:
        for number in range(len(world.given)):
            yield "is done", number
        if until_waking(world.state) is not None:
            yield "time passes", 0
    bounds = world.bounds
    left = {budget: getattr(bounds, budget) > spent for budget, spent in zip(BUDGETS, world.spent, strict=True)}
    if left["asks"]:
        for number in range(len(bounds.wishes)):
            yield "is wished", number
    if left["failures"]:
        for number in range(len(world.given)):
            yield "fails", number
    if left["deaths"]:
        for number in range(len(_alive(world.memory))):
            yield "dies", number
    if left["replacements"]:
        yield from may_be_replaced(world.state)
    if left["repeats"]:
        for number in range(len(world.state.replicas)):
            yield "is done again", number
    for number in range(len(bounds.nodes)):
        if f"n{number}" not in world.state.nodes:
            yield "joins", number
        elif left["node_losses"]:
            yield "is lost", number


def make(world: ResidencyWorld, move: Move) -> tuple[ResidencyWorld, tuple[Violation, ...]]:
    """The world after a move, and the promises that it has broken."""
    draft = ResidencyWorldDraft(world)
    what, which = move
    _MOVES[what](draft, which)
    return draft.close(), tuple(draft.broken)


def _alive(memory: TakenMemory) -> list[str]:
    """Whoever has weights in memory has a process."""
    return sorted({replica_id for replica_id, _, _ in memory.taken})


def _is_done(draft: ResidencyWorldDraft, number: int) -> None:
    command = draft.given.pop(number)
    draft.memory = draft.memory.done(command)
    kind = LoadFinished if isinstance(command, LoadToGpu) else OffloadFinished
    draft.tell(kind(replica_id=command.replica_id, move=command.move, at=draft.state.clock))


def _fails(draft: ResidencyWorldDraft, number: int) -> None:
    draft.spend("failures")
    command = draft.given.pop(number)
    draft.memory = draft.memory.failed(command)
    kind = LoadFailed if isinstance(command, LoadToGpu) else OffloadFailed
    draft.tell(kind(replica_id=command.replica_id, move=command.move, reason="no luck", at=draft.state.clock))


def _dies(draft: ResidencyWorldDraft, number: int) -> None:
    draft.spend("deaths")
    replica_id = _alive(draft.memory)[number]
    draft.given = [each for each in draft.given if each.replica_id != replica_id]
    draft.memory = draft.memory.without(lambda who, _place: who == replica_id)
    draft.tell(ReplicaLost(replica_id=replica_id, reason="killed", at=draft.state.clock))


def _is_done_again(draft: ResidencyWorldDraft, number: int) -> None:
    """The newest answer that a replica may have given; while it is still owed, the one before."""
    draft.spend("repeats")
    resident = draft.state.replicas[sorted(draft.state.replicas)[number]]
    owed = any(each.replica_id == resident.replica_id for each in draft.given)
    for kind in (LoadFinished, OffloadFinished):
        draft.tell(kind(replica_id=resident.replica_id, move=resident.move - owed, at=draft.state.clock))


def _is_lost(draft: ResidencyWorldDraft, number: int) -> None:
    draft.spend("node_losses")
    node_id = f"n{number}"
    draft.given = [each for each in draft.given if each.node_id != node_id]
    draft.memory = draft.memory.without(lambda _who, place: place[0] == node_id)
    draft.tell(NodeLost(node_id=node_id, at=draft.state.clock))


def _joins(draft: ResidencyWorldDraft, number: int) -> None:
    node = draft.bounds.nodes[number]
    at = draft.state.clock
    draft.tell(NodeJoined(node_id=f"n{number}", gpu_bytes=node.gpu_bytes, cpu_bytes=node.cpu_bytes, at=at))


def _is_wished(draft: ResidencyWorldDraft, number: int) -> None:
    draft.spend("asks")
    what, about = draft.bounds.wishes[number]
    at = draft.state.clock
    if what == "deploy":
        wanted = tuple(Wanted(spec=draft.bounds.spec(model), replicas=replicas) for model, replicas in about)
        draft.tell(DeployRequested(wanted=wanted, at=at))
        return
    ((model, _),) = about
    if model not in draft.state.models:
        return
    draft.tell(EvictRequested(model=model, keep=Level(what), at=at))


def _time_passes(draft: ResidencyWorldDraft, _: int) -> None:
    assert draft.state.waking is not None
    draft.tell(ClockAdvanced(at=draft.state.waking))


_MOVES: dict[str, Callable[[ResidencyWorldDraft, int], None]] = {
    "is done": _is_done,
    "time passes": _time_passes,
    "is wished": _is_wished,
    "fails": _fails,
    "dies": _dies,
    "is done again": _is_done_again,
    "a tick passes": a_tick_passes,
    "is called": partial(call, 1),
    "call ends": partial(call, 0),
    "is replaced": is_replaced,
    "joins": _joins,
    "is lost": _is_lost,
}
