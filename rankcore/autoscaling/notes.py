"""The decision log of an autoscaler: one short record for each decision, and for each reason not to decide."""

from enum import StrEnum

from rankcore import kernel


class AutoscalingNoteKind(StrEnum):
    """What a note is about."""

    UPSCALED = "upscaled"
    DOWNSCALED = "downscaled"
    FROM_ZERO = "from zero"
    BOUNDED = "bounded"
    UPSCALE_WANTED = "upscale wanted"
    DOWNSCALE_WANTED = "downscale wanted"
    SATISFIED = "satisfied"
    HELD = "held"
    CAPPED = "capped"
    UNKNOWN_LOAD = "unknown load"
    NO_REPORTS = "no reports"
    LISTENING = "listening"
    IGNORED = "ignored"


class AutoscalingNote(kernel.Note, frozen=True, gc=False):
    """One decision.

    Attributes:
        kind: What was decided.
        rule: A1 to A10.
        target: The target in force before it.
        wanted: The target that it leads to, or would; None: nobody asked how many.
    """

    kind: AutoscalingNoteKind
    rule: str
    target: int
    wanted: int | None = None
