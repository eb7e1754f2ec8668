"""When something of a scenario happens."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs


@attrs.frozen(kw_only=True)
class Moment:
    """When something happens.

    Attributes:
        offset_s: Seconds from the start of the run, or from the anchor.
        anchor: "busiest_minute": the start of the minute in which most requests arrive; None: the start of the run.
    """

    offset_s: float = 0.0
    anchor: str | None = None

    def seconds(self, busiest_minute_at: float | None) -> float:
        """Virtual seconds, never before the start.

        Args:
            busiest_minute_at: None: there is none, as no requests arrive; the anchor is the start of the run then.
        """
        anchor = busiest_minute_at if self.anchor is not None else None
        return max(0.0, (anchor or 0.0) + self.offset_s)


class Happens(Protocol):
    """What a scenario has happen once."""

    @property
    def at(self) -> Moment:
        """When."""


def too_late(lists: Mapping[str, Sequence[Happens]], busiest_minute_at: float | None, ended_at: float) -> list[str]:
    """What a run that has ended never came to, by its key in the scenario: the answer is that without it.

    Args:
        lists: What was to happen, by the key of the list that it stands in.
    """
    times = [
        (f"{key}[{index}]", happens.at.seconds(busiest_minute_at))
        for key, all_of_it in lists.items()
        for index, happens in enumerate(all_of_it)
    ]
    return [f"{key} is for {at:g} s, and the run ends at {ended_at:g} s: it never came" for key, at in times if at > ended_at]
