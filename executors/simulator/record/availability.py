"""How many replicas ran, beside the N - U that the core's own choices leave, and how long updates took."""

import attrs

from executors.simulator.record.stopwatch import Stopwatch
from rankcore import DeploymentState, DeploymentStatus
from rankcore.waits import is_under_way

UNWANTED = (DeploymentStatus.DELETING, DeploymentStatus.DELETED)


@attrs.define
class _Threshold:
    """So many are to run; whether they did, since there were to be more than before."""

    count: int = 0
    _reached: bool = False

    def set(self, count: int) -> None:
        self._reached = self._reached and count <= self.count
        self.count = count

    def was_reached(self, running: int) -> bool:
        self._reached = self._reached or running >= self.count > 0
        return self._reached


class Availability:
    """Whether at least N - U of N replicas run, once so many have: who comes up first, or for a higher N, is not missed.

    A replica runs if it was started up, is well and does not drain: it counts from its first second, whatever `min_ready_s`.
    One that takes requests before it has a rank counts as well (`hand_over="overlap"`).

    Attributes:
        least: The fewest that ran at once after all N did; None: they never did.
        below: How long fewer than N - U ran after so many did.
        updating: How long another version, user_config, restart token or partition was wanted and not in place.
    """

    def __init__(self) -> None:
        self.least: int | None = None
        self.below = Stopwatch()
        self.updating = Stopwatch()
        self._wanted: tuple[object, ...] | None = None
        self._running = 0
        self._all = _Threshold()
        self._floor = _Threshold()

    def follow(self, now: float, state: DeploymentState) -> None:
        """What is wanted from now on, and whether an update has come to its end."""
        spec, before = state.spec, self._wanted
        self._wanted = (spec.build, spec.restart_token, spec.partition)
        if before is not None and before != self._wanted:
            self.updating.show(now, True)
        if not is_under_way(spec, state.status, state.tables):  # an eviction may keep it UPDATING for longer
            self.updating.show(now, False)
        world_size = 0 if state.status in UNWANTED else state.world_size
        self.want(now, world_size, max(0, world_size - spec.unavailable_max))

    def want(self, now: float, world_size: int, floor: int) -> None:
        """N and N - U are these from now on."""
        self._all.set(world_size)
        self._floor.set(floor)
        self._judge(now)

    def runs(self, now: float, running: int) -> None:
        """So many run from now on."""
        self._running = running
        self._judge(now)

    def finish(self, now: float) -> None:
        """The run is over."""
        self.below.show(now, False)
        self.updating.show(now, False)

    def _judge(self, now: float) -> None:
        if self._all.was_reached(self._running):
            self.least = self._running if self.least is None else min(self.least, self._running)
        self.below.show(now, self._floor.was_reached(self._running) and self._running < self._floor.count)
