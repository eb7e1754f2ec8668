"""What happened in a run, in words a person reads: the short list of the report, and why a run failed."""

import attrs


@attrs.frozen
class Happening:
    """One line of the list.

    Attributes:
        kind: What to mark in the picture: "fault", "change", "controller", "status", "rank".
        deployment: Whom it concerns; None: all.
        until: When it was over, where it lasted; None: it was a moment, or lasted to the end.
    """

    at: float
    kind: str
    deployment: str | None
    text: str
    until: float | None = None


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
    """Collects happenings, and the first failure."""

    def __init__(self) -> None:
        self.happenings: list[Happening] = []
        self.failure: Failure | None = None

    def tell(self, at: float, kind: str, deployment: str | None, text: str) -> None:
        """Add a line."""
        self.happenings.append(Happening(at, kind, deployment, text))

    def over(self, at: float, beginning: Happening) -> None:
        """What this line began is over."""
        index = self.happenings.index(beginning)
        self.happenings[index] = attrs.evolve(beginning, until=at)

    def fail(self, failure: Failure) -> None:
        """A promise is broken; the first time counts."""
        if self.failure is None:
            self.failure = failure
