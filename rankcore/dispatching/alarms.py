"""What a fleet is to look at, and when: one time for each subject, the next one at hand."""

from bisect import bisect_left, insort
from enum import StrEnum
from typing import NamedTuple

import attrs

from rankcore.frozen import EMPTY, PMap


class AlarmKind(StrEnum):
    """What is due."""

    PLANNER = "planner"
    ROUTER = "router"
    ROOM = "room"
    """Requests have waited for room for as long as they may."""
    AUTOSCALER = "autoscaler"
    RANKS = "ranks"
    """Of a model whose HOT replicas have them."""


class Alarm(NamedTuple):
    """A subject, and when it is due.

    Attributes:
        model: Whose; empty: the planner's own.
    """

    at: float
    kind: AlarmKind
    model: str


def _in_order(times: PMap[tuple[AlarmKind, str], float]) -> tuple[Alarm, ...]:
    return tuple(sorted(Alarm(at, *subject) for subject, at in times.items()))


@attrs.frozen
class Alarms:
    """A value: each change makes another one, at O(log N) and the copy of a tuple.

    Attributes:
        times: When each subject is due.
        order: The same, the next one first. Derived.
    """

    times: PMap[tuple[AlarmKind, str], float] = EMPTY
    order: tuple[Alarm, ...] = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "order", _in_order(self.times))

    def set(self, kind: AlarmKind, model: str, at: float | None) -> "Alarms":
        """With this subject due at another time; None: not at all."""
        before = self.times.get((kind, model))
        if before == at:
            return self
        order = list(self.order)
        if before is not None:
            del order[bisect_left(order, Alarm(before, kind, model))]
        if at is None:
            return _alarms(self.times.delete((kind, model)), order)
        insort(order, Alarm(at, kind, model))
        return _alarms(self.times.set((kind, model), at), order)

    @property
    def next_at(self) -> float | None:
        """When the next one is due; None: never."""
        return self.order[0].at if self.order else None


def _alarms(times: PMap[tuple[AlarmKind, str], float], order: list[Alarm]) -> Alarms:
    """Without sorting everything again."""
    alarms = Alarms()
    object.__setattr__(alarms, "times", times)
    object.__setattr__(alarms, "order", tuple(order))
    return alarms
