"""Virtual time: a heap of what is going to happen."""

import heapq
from collections.abc import Callable
from typing import Any

SAME_INSTANT_MAX = 1_000_000
"""So many happenings at one instant are a loop that never ends, not a busy moment."""


class StuckError(RuntimeError):
    """Virtual time no longer advances: something schedules itself again and again for the same instant."""


class EventLoop:
    """Runs actions in the order of their time and, where times are equal, in the order in which they were scheduled.

    Actions are bound methods with plain arguments rather than closures, so that a copy of the world forks the run.

    Attributes:
        now: Virtual seconds since the start of the run; never goes back.
        done: How many actions have run.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0
        self._same_instant = 0

    def at(self, time_s: float, action: Callable[..., object], *arguments: object) -> None:
        """Run an action at a time; a time that has passed means now, after everything that is already due."""
        heapq.heappush(self._heap, (max(time_s, self.now), self._sequence, action, arguments))
        self._sequence += 1

    def after(self, delay_s: float, action: Callable[..., object], *arguments: object) -> None:
        """Run an action `delay_s` from now."""
        self.at(self.now + delay_s, action, *arguments)

    @property
    def next_at(self) -> float | None:
        """When the next action is due; None: nothing will ever happen again."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Move to the next action and run it. False, and no move, when there is none.

        Raises:
            StuckError: Time has not advanced for a million actions.
        """
        if not self._heap:
            return False
        time_s, _, action, arguments = heapq.heappop(self._heap)
        if time_s > self.now:
            self.now = time_s
            self._same_instant = 0
        else:
            self._same_instant += 1
            if self._same_instant > SAME_INSTANT_MAX:
                raise StuckError(f"time stands still at {self.now:g} s: {SAME_INSTANT_MAX} actions at one instant")
        self.done += 1
        action(*arguments)
        return True

    def move_to(self, time_s: float) -> None:
        """Let time pass without running anything; the caller knows that nothing is due before."""
        self.now = max(self.now, time_s)
