"""When something of a scenario happens."""

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
