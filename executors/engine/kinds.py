"""The table of machines: what a loop, a journal and a replay know of each. A new machine is a module with its `KIND`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from rankcore import kernel

C = TypeVar("C")
M = TypeVar("M")
N = TypeVar("N")
AnyStep: TypeAlias = kernel.Step[Any, Any, Any]


@attrs.frozen(kw_only=True)
class MachineKind:
    """One machine. Its states, steps and events are its own throughout.

    Attributes:
        name: In the first line of a journal.
        describe: What its journals are about, for a message that refuses another.
        beginning, event, command, note: The types, or unions of them, that lines of its journal hold.
        begin: The first step of a beginning.
        step: The step of a state and an event.
        resume: The beginning that goes on with a state.
        image: What of a state has a text, for its fingerprint.
        whose: The deployment that a state is of; None: a journal is about one state only, and its lines name nobody.
        is_over: Whether nothing will ever come of a state.
        extent: How big a state is, in words.
        fingerprint_every: How many steps of a state of this size go from one fingerprint to the next.
    """

    name: str
    describe: str
    beginning: Any
    event: Any
    command: Any
    note: Any
    begin: Callable[[Any], AnyStep]
    step: Callable[[Any, Any], Any]
    resume: Callable[[Any], Any]
    image: Callable[[Any], object]
    whose: Callable[[Any], str] | None
    is_over: Callable[[Any], bool]
    extent: Callable[[Any], str]
    fingerprint_every: Callable[[Any], int]

    def key_of(self, state: Any) -> str:
        """The deployment that a state is of; "" where there is only one state."""
        return self.whose(state) if self.whose is not None else ""


@attrs.frozen(kw_only=True)
class JournalLine(Generic[C, M, N]):
    """One line of a journal after the first.

    Attributes:
        line: Its number in the file, from 1.
        deployment: Whom it is about; "" in a journal that is about one state.
        cause: How it began, or the event that happened.
        commands: What the core answered.
        notes: Why.
        fingerprint: Of the state after it; None: this line has none.
    """

    line: int
    deployment: str
    cause: C
    commands: tuple[M, ...]
    notes: tuple[N, ...]
    fingerprint: str | None

    @property
    def at(self) -> float:
        """When it happened, in seconds on the executor's clock; news may be of an earlier time than the line before."""
        cause: Any = self.cause
        at: float = cause.at if hasattr(cause, "at") else cause.clock
        return at


KINDS = {
    "deployments": "executors.engine.deployments",
    "cluster": "executors.engine.clusters",
}
"""The module of each machine, which is loaded when a journal of it is met."""


def kind_named(name: str) -> MachineKind:
    """A machine of the table."""
    kind: MachineKind = import_module(KINDS[name]).KIND
    return kind
