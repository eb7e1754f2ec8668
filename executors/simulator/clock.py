"""Virtual time: a heap of what is going to happen."""

import copy
from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

FOREVER = float("inf")
SAME_INSTANT_MAX = 1_000_000
"""So many happenings at one instant are a loop that never ends, not a busy moment."""


class StuckError(RuntimeError):
    """Virtual time no longer advances: something schedules itself again and again for the same instant."""


class _Stream:
    """Times that an action is to run at, one after the other."""

    __slots__ = ("action", "index", "times")

    def __init__(self, times: Sequence[float], action: Callable[[int], object], index: int = 0) -> None:
        self.times = times
        self.action = action
        self.index = index

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Stream":
        return _Stream(self.times, copy.deepcopy(self.action, memo), self.index)


class EventLoop:
    """Runs actions in the order of their time and, where times are equal, in the order in which they were scheduled.

    Actions are bound methods with plain arguments rather than closures, so that a copy of the world forks the run.

    Attributes:
        now: Virtual seconds since the start of the run; never goes back.
        done: How many actions have run.
        patience: How many actions at one instant are a loop that never ends.
    """

    def __init__(self) -> None:
        self.patience = SAME_INSTANT_MAX
        self.now = 0.0
        self.done = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._streams: list[tuple[float, int, _Stream]] = []
        self._stream_at = FOREVER
        self._sequence = 0
        self._same_instant = 0
        self._halted = False

    def at(self, time_s: float, action: Callable[..., object], *arguments: object) -> None:
        """Run an action at a time; a time that has passed means now, after everything that is already due."""
        now = self.now
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (time_s if time_s > now else now, sequence, action, arguments))

    def after(self, delay_s: float, action: Callable[..., object], *arguments: object) -> None:
        """Run an action `delay_s` from now."""
        self.at(self.now + delay_s, action, *arguments)

    def follow(self, times: Sequence[float], action: Callable[[int], object]) -> None:
        """Run `action(index)` at each of many ascending times, none of them past, after what else is due then.

        Nobody may change `times` any more: they stay where they are, and forks share them.
        """
        if times:
            self._sequence += 1
            heappush(self._streams, (times[0], self._sequence, _Stream(times, action)))
            self._stream_at = self._streams[0][0]

    @property
    def next_at(self) -> float | None:
        """When the next action is due; None: nothing will ever happen again."""
        next_at = min(self._heap[0][0], self._stream_at) if self._heap else self._stream_at
        return next_at if next_at < FOREVER else None

    def step(self, until: float = FOREVER) -> bool:
        """Move to the next action and run it. False, and no move, when there is none, or only after `until`.

        Raises:
            StuckError: Time has not advanced for so many actions as it has patience for.
        """
        return self.run(until, 1) == 1

    def run(self, until: float, most: int) -> int:
        """Make so many moves, one after the other, or fewer if there are no more until then, or after `halt`.

        Returns:
            How many it made.

        Raises:
            StuckError: Time has not advanced for so many actions as it has patience for.
        """
        heap, made = self._heap, 0
        self._halted = False
        while made < most and not self._halted:
            if heap and heap[0][0] <= self._stream_at:
                if heap[0][0] > until:
                    break
                time_s, _, action, arguments = heappop(heap)
            else:
                time_s = self._stream_at
                if time_s > until or time_s == FOREVER:
                    break
                action, arguments = self._next_of_stream()
            if time_s > self.now:
                self.now = time_s
                self._same_instant = 0
            else:
                self._same_instant += 1
                if self._same_instant > self.patience:
                    raise StuckError(f"time stands still at {self.now:g} s: {self.patience} actions at one instant")
            self.done += 1
            made += 1
            action(*arguments)
        return made

    def halt(self) -> None:
        """End the present `run` after the action that calls this."""
        self._halted = True

    def move_to(self, time_s: float) -> None:
        """Let time pass without running anything; the caller knows that nothing is due before."""
        self.now = max(self.now, time_s)

    def _next_of_stream(self) -> tuple[Callable[[int], object], tuple[int]]:
        streams = self._streams
        _, order, stream = streams[0]
        index = stream.index
        stream.index = following = index + 1
        if following < len(stream.times):
            heapreplace(streams, (stream.times[following], order, stream))
        else:
            heappop(streams)
        self._stream_at = streams[0][0] if streams else FOREVER
        return stream.action, (index,)
