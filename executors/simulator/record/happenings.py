"""What happened in a run, in words a person reads: the short list of the report, and why a run failed."""

from collections.abc import Callable

import attrs

from executors.checking import Checking
from rankcore.values import NodeId

NOBODY_THERE = "but there is none"
"""How a line ends of a fault that hit nothing."""


@attrs.frozen
class Happening:
    """One line of the list.

    Attributes:
        kind: What to mark in the picture: "fault", "change", "controller", "status", "rank".
        deployment: Whom it concerns; None: all.
        node: The node that it is about; None: none, or several.
        until: When it was over, where it lasted; None: it was a moment, or lasted to the end.
    """

    at: float
    kind: str
    deployment: str | None
    text: str
    until: float | None = None
    node: NodeId | None = None

    def __deepcopy__(self, _: object) -> "Happening":
        """Itself: it never changes, so that a fork of a run shares it."""
        return self


@attrs.frozen
class Failure:
    """A broken promise, which ended the run.

    Attributes:
        event: After which event, or message to a replica, it was seen.
        rule: Number of the promise.
    """

    at: float
    deployment: str
    event: str
    rule: str
    text: str


class Story:
    """Collects happenings, and the first failure, which `halt` is told of.

    Attributes:
        checking: When promises are checked; OFF: none fails.
    """

    def __init__(self, halt: Callable[[], None], checking: Checking = Checking.EACH) -> None:
        self._halt = halt
        self.checking = checking
        self.happenings: list[Happening] = []
        self.failure: Failure | None = None

    def tell(self, at: float, kind: str, deployment: str | None, text: str, *, node: NodeId | None = None) -> Happening:
        """Add a line, and return it."""
        self.happenings.append(Happening(at, kind, deployment, text, node=node))
        return self.happenings[-1]

    def over(self, at: float, beginning: Happening) -> None:
        """What this line began is over."""
        for index in range(len(self.happenings) - 1, -1, -1):
            if self.happenings[index] is beginning:
                self.happenings[index] = attrs.evolve(beginning, until=at)
                return

    def fail(self, failure: Failure) -> None:
        """A promise is broken; the first time counts."""
        if self.failure is None and self.checking is not Checking.OFF:
            self.failure = failure
            self._halt()
