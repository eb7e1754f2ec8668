"""One thing that happened or was decided."""

from collections.abc import Iterable

import attrs

from rankcore.values import ReplicaId


@attrs.define(eq=False, kw_only=True)
class Fact:
    """One line of a story.

    Attributes:
        line: Of the journal.
        place: In its line; what it follows from comes before it.
        at: Seconds on the executor's clock.
        text: What happened, with its reason.
        rule: Which rule decided it; None: nobody did, it happened.
        short: What later lines call it: "the downscale to 3".
        causes: What it follows from, the main one first.
        replica_ids: Whom it is about.
        ranks: Global ranks that it is about.
        deployments: Whom it concerns.
        is_detail: Whether it is about a replica or rank of its deployment, and not about the whole, or its weights.
        is_change: Whether somebody may ask why it happened: a rank given, moved or lost, a start, a stop.
        later: What became of it: "acknowledged at 812.4 s".
        again: How often it was repeated.
    """

    line: int
    at: float
    text: str
    rule: str | None = None
    short: str = ""
    causes: "tuple[Fact, ...]" = ()
    replica_ids: tuple[ReplicaId, ...] = ()
    ranks: tuple[int, ...] = ()
    deployments: tuple[str, ...] = ()
    is_detail: bool = False
    is_change: bool = False
    later: str = ""
    again: int = 0
    place: int = 0


def with_causes(facts: Iterable[Fact]) -> list[Fact]:
    """These facts and all that led to them, each once, in the order of the journal."""
    found: dict[int, Fact] = {}
    waiting = list(facts)
    while waiting:
        fact = waiting.pop()
        if id(fact) not in found:
            found[id(fact)] = fact
            waiting.extend(fact.causes)
    return sorted(found.values(), key=lambda fact: (fact.line, fact.place))
