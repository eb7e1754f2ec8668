"""What every machine of rankcore is made of: a step, notes, violations, a table of handlers, and a worklist for parts.

A machine is a pure function `(state, event) -> Step`. It looks its handler up by the class of the event, opens the state
for the time of the step, lets its rules change it, and closes it into the next state, with the commands to carry out and
the notes that say why. A machine that is composed of parts, such as `rankcore.cluster`, hands events on between them.

How parts settle (`Worklist`). A part answers an event with events for other parts, and those with further ones, so a step
is done when none is left.

1. Events are handled in the order in which they were added, whichever part they are for: who is asked first is answered
   first, and the order depends on nothing but the machine's own rules. Equal states and events so give equal steps.
2. Nothing proves that two parts ever agree: the end is enforced. A step may hand on `EVENTS_MAX` events and
   `EVENTS_MAX_PER_PART` more for each part that got any, so that news which fans out to 10,000 deployments is no error, and
   two parts that ask each other for ever are one. The error names the part that got most events: the machine sets that one
   aside and applies the event to the state before once more, so that no event is lost.
3. Whose handler runs is kept, so that an exception is charged to one part and not to the machine.

It costs O(1) an event, and one counter for each part that got any.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
from msgspec import Struct

from rankcore.errors import ClusterDivergedError, InvalidEventError

EVENTS_MAX = 10_000
EVENTS_MAX_PER_PART = 10

State = TypeVar("State")
Command = TypeVar("Command")
Why = TypeVar("Why", bound="Note")
Handler = TypeVar("Handler", bound=Callable[..., Any])
Part = TypeVar("Part")
Event = TypeVar("Event")


class Note(Struct, frozen=True, gc=False, kw_only=True):
    """One decision. Each machine's notes add whom it concerns, between `rule` and `because`.

    Attributes:
        kind: What was decided; each machine has a vocabulary of its own.
        rule: The promise, or the section of the design, that it follows.
        because: The cause, in words.
    """

    kind: StrEnum
    rule: str
    because: str = ""


class WakeAt(Struct, frozen=True, gc=False):
    """Send `ClockAdvanced` at this time, or soon after; replaces the previous one."""

    at: float


class Step(NamedTuple, Generic[State, Command, Why]):
    """What one step came to.

    Attributes:
        state: After the step.
        commands: What should happen, in this order.
        notes: Why, one for each decision.
    """

    state: State
    commands: tuple[Command, ...]
    notes: tuple[Why, ...]


@attrs.frozen
class Violation:
    """A promise that does not hold: a bug of the core, or of an executor that does not keep its half (section 2.4).

    Attributes:
        rule: The promise, a section of the design, or "index" for a table that disagrees with others.
        detail: What was found, in words.
    """

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


def handler_of(handlers: Mapping[type[Any], Handler], event: object, events: str) -> Handler:
    """Which function handles an event: the one for its class, where a subclass is another class.

    Args:
        handlers: Of a machine, one for each class of event.
        event: Anything.
        events: What the machine takes, in words.

    Raises:
        InvalidEventError: It is no event of this machine.
    """
    handler = handlers.get(type(event))
    if handler is None:
        raise InvalidEventError("event", event, events)
    return handler


class Worklist(Generic[Part, Event]):
    """The events that the parts of a machine hand to each other in one step.

    Attributes:
        running: The part whose handler runs, or raised; None: none has begun.
        counts: How many events each part got.
    """

    def __init__(self) -> None:
        self.running: Part | None = None
        self.counts: dict[Part, int] = {}
        self._events: deque[tuple[Part, Event]] = deque()

    def add(self, part: Part, event: Event) -> None:
        """Hand an event to a part, after all that were added before."""
        self._events.append((part, event))

    def settle(self, handle: Callable[[Part, Event], None]) -> None:
        """Handle events until none is left; `handle` may add more.

        Raises:
            ClusterDivergedError: The parts do not come to an agreement.
        """
        counts = self.counts
        handled = sum(counts.values())
        while self._events:
            part, event = self._events.popleft()  # 1
            handled += 1
            counts[part] = counts.get(part, 0) + 1
            if handled > EVENTS_MAX + EVENTS_MAX_PER_PART * len(counts):  # 2
                raise ClusterDivergedError(max(counts, key=counts.__getitem__), handled)
            self.running = part  # 3
            handle(part, event)
