"""A failing schedule made short: as few moves as can be found that still break the same promise."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import attrs

from rankcore.testing.schedules.promises import BrokenScheduleError
from rankcore.testing.schedules.schedule import Schedule, run
from rankcore.testing.schedules.world import World

T = TypeVar("T")
MOVES_MAX = 100_000
"""So many moves are made, or half a minute is spent, before what is found by then is short enough."""
MOVES_OF_A_TRY = 10
"""What a try costs besides."""


def shrink(schedule: Schedule) -> tuple[Schedule, BrokenScheduleError] | None:
    """The shortest schedule found that breaks the promise that this one breaks first, and how; None: this one breaks none."""
    world, broken = _broken_by(schedule)
    if broken is None:
        return None
    rule, left = broken.rule, MOVES_MAX

    def still_fails(candidate: Schedule) -> bool:
        nonlocal broken, left
        left -= len(candidate.moves) + MOVES_OF_A_TRY
        _, found = _broken_by(candidate) if left > 0 else (None, None)
        if found is None or found.rule != rule:
            return False
        broken = found
        return True

    schedule = attrs.evolve(schedule, moves=schedule.moves[: world.moves])  # what comes after the failure is not to blame
    moves = without_needless(schedule.moves, lambda some: still_fails(attrs.evolve(schedule, moves=some)))
    schedule = attrs.evolve(schedule, moves=moves)
    for simpler in (_usual, _lower_number, *(_lower_argument(index) for index in range(len(moves)))):
        schedule = next(filter(still_fails, simpler(schedule)), schedule)
    return schedule, broken


def _broken_by(schedule: Schedule) -> tuple[World, BrokenScheduleError | None]:
    world = schedule.world()
    try:
        run(schedule, world)
    except BrokenScheduleError as broken:
        return world, broken
    return world, None


def without_needless(items: tuple[T, ...], still_fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Leave items out, large pieces first, for as long as it still fails (Zeller and Hildebrandt's delta debugging)."""
    size = max(1, len(items) // 2)
    while True:
        index, before = 0, len(items)
        while index < len(items):
            candidate = items[:index] + items[index + size :]
            if still_fails(candidate):
                items = candidate
            else:
                index += size
        if size == 1 and len(items) == before:
            return items
        size = max(1, size // 2)


def _usual(schedule: Schedule) -> Iterator[Schedule]:
    for bad, timing in ((False, 0), (schedule.bad, 0), (False, schedule.timing)):
        yield attrs.evolve(schedule, bad=bad, timing=timing)


def _lower_number(schedule: Schedule) -> Iterator[Schedule]:
    number = schedule.number
    for lower in sorted({number % 5, number % 16, number % 64, number % 240} - {number}):
        yield attrs.evolve(schedule, number=lower)


def _lower_argument(index: int) -> Callable[[Schedule], Iterator[Schedule]]:
    def simpler(schedule: Schedule) -> Iterator[Schedule]:
        name, argument = schedule.moves[index]
        for lower in sorted({0, 1, 2, 3, argument % 8, argument % 64}):
            if lower < argument:
                yield attrs.evolve(schedule, moves=(*schedule.moves[:index], (name, lower), *schedule.moves[index + 1 :]))

    return simpler
