"""Virtual time: a heap of what is going to happen."""

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

FOREVER = float("inf")
LAST = sys.float_info.max
"""Before `FOREVER`, which never comes."""
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


Happening = tuple[float, int, Callable[[Any], object], Any]
"""(when, its place among those of one time, what to call, with what)."""


class EventLoop:
    """Runs actions in the order of their time and, where times are equal, in the order in which they were scheduled.

    Actions are bound methods with plain arguments rather than closures, so that a copy of the world forks the run.

    Attributes:
        now: Virtual seconds since the start of the run; never goes back.
        done: How many actions have run, up to the present `run`.
        patience: How many actions at one instant are a loop that never ends.
    """

    def __init__(self) -> None:
        self.patience = SAME_INSTANT_MAX
        self.now = 0.0
        self.done = 0
        # The last one, which never happens, so that there always is a next one.
        self._heap: list[Happening] = [(FOREVER, 0, _call, ())]
        # A heap, but that the first one may have gone on since, as long as it is the only one.
        self._streams: list[tuple[float, int, _Stream]] = []
        self._stream_at = FOREVER
        self._sequence = 0
        self._same_instant = 0
        self._halted = False

    def at(self, time_s: float, action: Callable[..., object], *arguments: object) -> None:
        """Run an action at a time; a time that has passed means now, after everything that is already due."""
        self.at_with(time_s, _call, (action, arguments))

    def at_with(self, time_s: float, action: Callable[[Any], object], argument: object) -> None:
        """The same with exactly one argument, which is cheaper."""
        self._sequence = sequence = self._sequence + 1
        now = self.now
        heappush(self._heap, (time_s if time_s > now else now, sequence, action, argument))

    def after(self, delay_s: float, action: Callable[..., object], *arguments: object) -> None:
        """Run an action `delay_s` from now."""
        self.at_with(self.now + delay_s, _call, (action, arguments))

    def follow(self, times: Sequence[float], action: Callable[[int], object]) -> None:
        """Run `action(index)` at each of many ascending times, none of them past, after what else is due then.

        Nobody may change `times` any more: they stay where they are, and forks share them.
        """
        if times:
            self._sequence += 1
            self._sort_stream()
            heappush(self._streams, (times[0], self._sequence, _Stream(times, action)))
            self._stream_at = self._streams[0][0]

    def arguments_of(self, action: Callable[[Any], object]) -> Iterator[Any]:
        """What an action is going to be run with, in any order."""
        return (argument for _, _, each, argument in self._heap if each == action)

    @property
    def is_done_for_now(self) -> bool:
        """Whether nothing more is due at this instant."""
        return self._heap[0][0] > self.now and self._stream_at > self.now

    @property
    def next_at(self) -> float | None:
        """When the next action is due; None: nothing will ever happen again."""
        next_at = min(self._heap[0][0], self._stream_at)
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
        heap, streams, made = self._heap, self._streams, 0
        until = min(until, LAST)
        self._halted = False
        try:
            while made < most and not self._halted:
                time_s, stream_at = heap[0][0], self._stream_at
                if time_s <= stream_at:
                    if time_s > until:
                        break
                    _, _, action, argument = heappop(heap)
                    if time_s > self.now:
                        self.now = time_s
                        self._same_instant = 0
                    else:
                        self._wait()
                    made += 1
                    action(argument)
                else:
                    if stream_at > until:
                        break
                    stream = streams[0][2]
                    index = stream.index
                    stream.index = following = index + 1
                    if len(streams) == 1 and following < len(stream.times):
                        self._stream_at = stream.times[following]
                    else:
                        self._sort_stream()
                    if stream_at > self.now:
                        self.now = stream_at
                        self._same_instant = 0
                    else:
                        self._wait()
                    made += 1
                    stream.action(index)
        finally:
            self.done += made
        return made

    def halt(self) -> None:
        """End the present `run` after the action that calls this."""
        self._halted = True

    def move_to(self, time_s: float) -> None:
        """Let time pass without running anything; the caller knows that nothing is due before."""
        self.now = max(self.now, time_s)

    def _wait(self) -> None:
        """Time has not advanced."""
        self._same_instant += 1
        if self._same_instant > self.patience:
            raise StuckError(f"time stands still at {self.now:g} s: {self.patience} actions at one instant")

    def _sort_stream(self) -> None:
        """Put the stream that was the first to its place by the time that is its next now, or away at its end."""
        streams = self._streams
        if streams:
            _, order, stream = streams[0]
            if stream.index < len(stream.times):
                heapreplace(streams, (stream.times[stream.index], order, stream))
            else:
                heappop(streams)
        self._stream_at = streams[0][0] if streams else FOREVER


def _call(what: tuple[Callable[..., object], tuple[object, ...]]) -> None:
    action, arguments = what
    action(*arguments)
