"""What all runs have in common: they go to their end, can be stopped on their way, and forked there."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, Self, TypeVar

from executors.simulator.clock import EventLoop
from executors.simulator.record.happenings import Story

Progress = Callable[[float, float], None]
"""Called now and then with the virtual time, and the time at which the run is expected to end."""

PROGRESS_EVERY = 500

J = TypeVar("J")


class Motion(ABC, Generic[J]):
    """A scenario in motion, with a journal of type J.

    Args:
        loop: Its virtual time.
        story: Whose first failure ends it.
        duration_s: How long it lasts; None: until it has come to rest after the last thing that the scenario says.
        settle_s: Without a duration: how long to wait for that.
    """

    def __init__(self, loop: EventLoop, story: Story, duration_s: float | None, settle_s: float) -> None:
        self._loop = loop
        self._story = story
        self._duration_s = duration_s
        self._settle_s = settle_s
        self._is_over = False

    @property
    def now(self) -> float:
        """Virtual seconds: when the last thing happened."""
        return self._loop.now

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, or a promise was broken."""
        return self._is_over or self._story.failure is not None

    @property
    def expected_end(self) -> float:
        """When everything that the scenario says has happened, as far as is known by now."""
        return self._duration_s if self._duration_s is not None else self._last_at

    def until(self, at: float) -> None:
        """Let everything happen that happens up to and including this time, unless the run is over before.

        Whether a run is stopped on its way changes nothing of what happens in it.
        """
        self._advance(at, None)

    def fork(self, journal: J | None = None) -> Self:
        """A second run that is where this one is, and that goes on as this one does unless something else happens in it.

        Neither is ever seen by the other. What cannot change is shared and not copied: the core's states, the requests
        that arrive, the scenario.

        Args:
            journal: Where the fork writes what happens in it; this run's journal goes on with this run.
        """
        own = self._write_to(None)
        try:
            fork = copy.deepcopy(self, {id(each): each for each in self._unchanging})
        finally:
            self._write_to(own)
        if journal is not None:
            fork._resume_in(journal)
        return fork

    # -- what a kind of run says of itself

    @abstractmethod
    def _begin(self) -> None:
        """The world begins, unless it has begun."""

    @property
    @abstractmethod
    def _at_rest(self) -> bool:
        """Whether nothing is left to do, as far as the scenario has said by now."""

    @property
    @abstractmethod
    def _last_at(self) -> float:
        """When the last thing happens that the scenario says."""

    @property
    @abstractmethod
    def _unchanging(self) -> Iterable[object]:
        """What a fork shares."""

    @abstractmethod
    def _write_to(self, journal: J | None) -> J | None:
        """Write to this journal from now on, and return the one before."""

    @abstractmethod
    def _resume_in(self, journal: J) -> None:
        """Write to this new journal from now on, beginning with how things stand."""

    # -- its way

    @property
    def _limit(self) -> float:
        return self._duration_s if self._duration_s is not None else self._last_at + self._settle_s

    def _to_the_end(self, progress: Progress | None) -> None:
        self._advance(math.inf, progress)

    def _advance(self, until: float, progress: Progress | None) -> None:
        loop, story = self._loop, self._story
        self._begin()
        told = loop.done
        while story.failure is None and not self._is_over:
            if self._comes_to_rest():
                self._is_over = True
            elif self._happen(until):
                if progress is not None and loop.done >= told + PROGRESS_EVERY:
                    told = loop.done
                    progress(loop.now, self.expected_end)
            elif until < self._limit:
                return
            else:
                loop.move_to(self._limit)
                self._is_over = True

    def _happen(self, until: float) -> bool:
        """Let the next thing happen, and some of those after it that come too early for the run to be over before them."""
        loop, story = self._loop, self._story
        until = min(until, self._limit)
        if not loop.step(until):
            return False
        if self._duration_s is None:
            until = min(until, self._last_at)
        if story.failure is None:
            loop.run(until, PROGRESS_EVERY)
        return True

    def _comes_to_rest(self) -> bool:
        """Whether everything that the scenario says has happened and come to its end."""
        loop, last_at = self._loop, self._last_at
        if self._duration_s is not None or loop.now < last_at or not self._at_rest:
            return False
        next_at = loop.next_at
        return next_at is None or next_at > last_at
