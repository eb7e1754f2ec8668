"""Pieces on their way between disk, host and device, of which only a few are in memory at a time.

Threads read and write, since one alone copies less than a disk or a lane does; the thread that makes the move starts copies, in
the order of the pieces, and counts what arrived.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from torch import Tensor

from executors.torch_weights.device import Lane
from executors.torch_weights.progress import Progress

THREADS = min(4, os.cpu_count() or 1)
STAGINGS = THREADS + 2
"""One for each thread, one that is copied, one in between."""
IN_FLIGHT = 4
"""Copies that are started before the first is waited for, where nothing is staged."""


class Pipeline:
    """Staging memory that goes round: filled or emptied by threads, copied from or to by a lane.

    Args:
        stagings: As many pieces as may be on their way.
    """

    def __init__(self, stagings: Sequence[Tensor]) -> None:
        self._free = deque(stagings)
        self._copies: deque[tuple[Callable[[], None], Tensor]] = deque()
        self._works: deque[tuple[Future[None], Callable[[], None]]] = deque()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="weights-piece")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Also when it failed: nobody writes to staging memory, or reads a file, that is given back.
        self._threads.shutdown(wait=True, cancel_futures=True)
        for wait, _ in self._copies:
            with contextlib.suppress(Exception):
                wait()
        # What is to follow a piece knows the pipeline: a circle, which would keep the memory of all pieces.
        self._works.clear()
        self._copies.clear()
        self._free.clear()

    def take(self) -> Tensor:
        """Staging memory that nobody uses; waits for the oldest piece if need be."""
        while not self._free:
            if self._works:
                self._finish_work()
            else:
                self._finish_copy()
        return self._free.popleft()

    def work(self, act: Callable[[], None], then: Callable[[], None]) -> None:
        """Have a thread do something; `then` follows in this thread, after that of what was given before."""
        self._works.append((self._threads.submit(act), then))
        if len(self._works) > THREADS:
            self._finish_work()

    def copied(self, staging: Tensor, wait: Callable[[], None]) -> None:
        """Staging memory is being copied from until this returns."""
        self._copies.append((wait, staging))

    def give_back(self, staging: Tensor) -> None:
        """Nobody uses it."""
        self._free.append(staging)

    def finish(self) -> None:
        """Wait for everything."""
        while self._works:
            self._finish_work()
        while self._copies:
            self._finish_copy()

    def _finish_work(self) -> None:
        future, then = self._works.popleft()
        future.result()
        then()

    def _finish_copy(self) -> None:
        wait, staging = self._copies.popleft()
        wait()
        self._free.append(staging)


class Flight:
    """Copies of one lane that were started and are not known to be done."""

    def __init__(self, lane: Lane, progress: Progress) -> None:
        self.lane, self._progress = lane, progress
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()

    def add(self, wait: Callable[[], None], nbytes: int) -> None:
        """One more was started; the oldest is waited for where there are many."""
        self._waiting.append((wait, nbytes))
        if len(self._waiting) >= IN_FLIGHT:
            self._land_one()

    def land(self) -> None:
        """Wait for all."""
        while self._waiting:
            self._land_one()

    def _land_one(self) -> None:
        wait, nbytes = self._waiting.popleft()
        wait()
        self._progress.advance(nbytes)
