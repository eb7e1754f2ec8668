"""What was away when: nodes that were down or cut off, and the controller."""

import attrs

CONTROLLER = "controller"
"""The subject of an outage of the controller; nodes have names of their own, kept apart by the kind."""

DOWN = "down"
PARTITION = "partition"
CONTROLLER_DOWN = "controller down"


@attrs.frozen
class Outage:
    """Something was away, for a time.

    Attributes:
        subject: A node's id, or the controller.
        kind: "down", "partition" or "controller down".
        until: When it was back, or the end of the run.
    """

    subject: str
    kind: str
    since: float
    until: float


class Outages:
    """Collects them. Beginning what has begun, and ending what has not, changes nothing."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], float] = {}
        self._over: list[Outage] = []

    def begin(self, now: float, subject: str, kind: str) -> None:
        """It is away from now on."""
        self._open.setdefault((subject, kind), now)

    def end(self, now: float, subject: str, kind: str) -> None:
        """It is back."""
        since = self._open.pop((subject, kind), None)
        if since is not None and now > since:
            self._over.append(Outage(subject, kind, since, now))

    def until(self, end: float) -> tuple[Outage, ...]:
        """All up to the end of the run, by time."""
        unfinished = [Outage(subject, kind, since, end) for (subject, kind), since in self._open.items() if end > since]
        return tuple(sorted(self._over + unfinished, key=lambda outage: (outage.since, outage.kind, outage.subject)))
