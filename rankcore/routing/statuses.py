"""How a deployment stands, as calls that wait for it are told: in order, each news once, and nothing after the answer (Q12).

The controller numbers what it publishes of a deployment, and each epoch counts anew: so (epoch, number) orders all that was
ever published. It publishes state and not changes, so any may be skipped, and a process may be told anything twice or late: by
a watch that another one has overtaken, or by two controllers of which one has been replaced.

1. *Numbered*: a number for each content that differs from the one before (`numbered`). A deployment that was deleted and is
   there again goes on with the numbers: a caller that has missed both would take what is newest for old.
2. *To whom*: processes in which a call waits for the deployment, and those that were told last that nobody serves it: they
   refuse calls until they are told otherwise, so nothing waits there. At most once in `TELL_EVERY_S` to each process, with the
   newest of all its deployments; routes are never held back, and take with them what there is (`is_due`).
3. *Once*: each call shows what is newer than all that it was shown and differs from the last of it, until it ends (`show`).
4. *Replaced*: that nobody serves is the word of one controller. The first routes of the next one lift it (`is_lifted_by`): it
   says so anew where it still holds, and who refused meanwhile would have nothing that waits, and would be told of nothing.

It costs O(1) a status and call. How long a load takes yet is worked out from how far it has come since it was first seen
(`left_s`): disks that are read by several at a time are slow for all of them, so what is known beforehand would say too little.
"""

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

TELL_EVERY_S = 0.25
NEVER = float("inf")
StatusNumber: TypeAlias = tuple[int, int]
"""The epoch of the controller, and a number that grows with each status of that deployment."""
NONE_YET: StatusNumber = (-1, 0)


class Numbered(Struct, frozen=True):
    """What was published last of a deployment in this epoch; number 0: nothing."""

    number: int = 0
    content: object = None


def numbered(last: Numbered, content: object, numbers: Iterator[int]) -> Numbered:
    """The next one to publish; the same where nothing has changed (1).

    Args:
        numbers: Growing ones, which no other deployment of that name was given in this epoch.
    """
    return last if content == last.content else Numbered(next(numbers), content)


def is_due(waits: bool, refuses: bool, has_routes: bool, told_at: float, at: float) -> float:
    """When a process is to be told of a status that it does not know (2).

    Args:
        waits: Whether a call waits there, as it has reported.
        refuses: Whether it was told last that nobody serves.
        has_routes: Whether it is told of routes at this moment.
        told_at: When it was told a status last, whichever; before all times: never.

    Returns:
        At this time; infinity: not at all, as it is.
    """
    if has_routes:
        return at
    return max(at, told_at + TELL_EVERY_S) if waits or refuses else NEVER


def is_lifted_by(refusal: StatusNumber, routes: StatusNumber) -> bool:
    """Whether routes end a refusal of this number, or of before (4)."""
    return routes[0] > refusal[0]


class StatusesShown(Struct, frozen=True):
    """What one call was shown."""

    number: StatusNumber = NONE_YET
    content: object = None
    is_over: bool = False


def show(shown: StatusesShown, number: StatusNumber, content: object) -> tuple[StatusesShown, bool]:
    """A status has come; whether the call shows it (3)."""
    if shown.is_over or number <= shown.number:
        return shown, False
    return replace(shown, number=number, content=content), content != shown.content


def end(shown: StatusesShown) -> StatusesShown:
    """The answer has come."""
    return replace(shown, is_over=True)


class Pace(Struct, frozen=True):
    """When a load was first seen, and how much had come by then."""

    at: float
    percent: int


def left_s(pace: Pace, percent: int, at: float) -> float | None:
    """How long a load takes yet if it goes on as since then; None: nothing has come since."""
    if percent <= pace.percent or at <= pace.at:
        return None
    return (at - pace.at) * (100 - percent) / (percent - pace.percent)
