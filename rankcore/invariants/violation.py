"""A broken promise."""

import attrs


@attrs.frozen
class Violation:
    """A promise that does not hold: a bug of the core, or of an executor that does not keep its half (section 2.4).

    Attributes:
        rule: The promise: R1 to R12, S1 to S8, a section of the design, or "index" for a table that disagrees with others.
        detail: What was found, in words.
    """

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"
