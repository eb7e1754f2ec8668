"""The controller's steps, each taken, checked and read once: worlds that differ in what is under way share most of them."""

import attrs

from rankcore.core import step
from rankcore.draft import Step
from rankcore.events import Event
from rankcore.invariants import Violation, check, check_step
from rankcore.state import DeploymentState
from rankcore.testing.model.book import Book

KEPT_MAX = 20_000
"""So many steps and states are remembered, some kilobytes each; then it begins anew."""


@attrs.frozen
class Told:
    """The controller stepped: from this state, on this event (None: it has just recovered), to this step.

    Attributes:
        broken: The promises that this step, or the state it leads to, has broken.
    """

    before: DeploymentState
    event: Event | None
    result: Step
    broken: tuple[Violation, ...]


class Steps:
    """The steps of one exploration. It holds on to the states that they begin with, so that no identity is used twice."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Event], Told] = {}
        self._books: dict[int, Book] = {}

    def take(self, state: DeploymentState, event: Event) -> Told:
        """What comes of an event."""
        key = id(state), event
        told = self._known.get(key)
        if told is None:
            if len(self._known) >= KEPT_MAX:
                self._known.clear()
            result = step(state, event)
            told = Told(state, event, result, (*check_step(state, event, result), *check(result.state)))
            self._known[key] = told
        return told

    def book(self, state: DeploymentState) -> Book:
        """What a state mentions, and how it reads."""
        book = self._books.get(id(state))
        if book is None:
            if len(self._books) >= KEPT_MAX:
                self._books.clear()
            book = self._books[id(state)] = Book(state)
        return book


def recovered(before: DeploymentState, result: Step) -> Told:
    """A controller has begun."""
    return Told(before, None, result, tuple(check(result.state)))
