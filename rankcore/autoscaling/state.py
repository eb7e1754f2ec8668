"""What an autoscaler knows and wants: a value that never changes."""

from enum import IntEnum

import attrs

from rankcore.autoscaling.load import Load
from rankcore.autoscaling.notes import AutoscalingNoteKind
from rankcore.autoscaling.spec import AutoscalingSpec
from rankcore.frozen import FrozenJson


class Direction(IntEnum):
    """Which way a target is to go."""

    UP = 1
    DOWN = -1


@attrs.frozen
class Wish:
    """More replicas, or fewer, have been wanted for a while without a break (A3).

    Attributes:
        far_since: Since when the need has been clearly below the experienced peak without a break (A7); None: it is near.
        blocked: Why it was not followed when it was due, as far as that has been told; None: it was not due.
    """

    direction: Direction
    since: float
    far_since: float | None = None
    blocked: AutoscalingNoteKind | None = None


NEAR = 0.8
"""A load from this share on of what one replica fewer could carry is near it: too little to try a downscale once more."""


@attrs.frozen
class Experience:
    """What earlier decisions taught, so that a steady load moves nothing for long (A7).

    Attributes:
        peak: The highest need that the target was raised for, since the load last left its neighbourhood.
        fell: Whether the target has shrunk since, to a need that is still near `peak`.
        taken_back: Whether an upscale followed such a downscale: it is not tried again before the load falls clearly below.
    """

    peak: int = 0
    fell: bool = False
    taken_back: bool = False

    @property
    def floor(self) -> int:
        """A downscale goes no lower while the load is near the peak."""
        return self.peak if self.taken_back else 0

    def raised(self, need: int) -> "Experience":
        """The target was raised for a need."""
        if not is_near(self.peak, need):
            return Experience(need)
        return Experience(max(self.peak, need), taken_back=self.taken_back or self.fell)

    def lowered(self, need: int, *, near: bool) -> "Experience":
        """The target was lowered for a need, which was near the peak a short while ago, or was not."""
        return attrs.evolve(self, fell=True) if near else Experience(need)


def is_near(wanted: float, peak: int) -> bool:
    """Whether a load, in replicas, is hardly below that which a number of them was needed for; no load is near none."""
    return wanted > 0 and wanted >= NEAR * (peak - 1)


@attrs.frozen(kw_only=True)
class AutoscalerState:
    """All that an autoscaler keeps between two calls. A controller that restarts begins anew, and listens first (A10).

    Attributes:
        at: Of the last call.
        load: What was heard.
        wish: What is wanted and waits for its delay; None: the target suits the load.
        memory: What the policy asked to remember.
        upscaled_at: When the target last went up; None: never.
        downscaled_at: When it last went down; None: never.
    """

    spec: AutoscalingSpec
    at: float = 0.0
    load: Load = attrs.Factory(Load)
    wish: Wish | None = None
    experience: Experience = attrs.Factory(Experience)
    memory: FrozenJson = None
    upscaled_at: float | None = None
    downscaled_at: float | None = None

    def with_spec(self, spec: AutoscalingSpec) -> "AutoscalerState":
        """Another configuration; what was heard is kept, and so is how long something was wanted, if the scale is the same."""
        if spec.target_ongoing_requests == self.spec.target_ongoing_requests:
            return attrs.evolve(self, spec=spec)
        return attrs.evolve(self, spec=spec, wish=None, experience=Experience())
