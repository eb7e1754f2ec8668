"""Futures of other threads, awaited on an event loop: those that are done together wake the loop once.

`asyncio.wrap_future` wakes it for each, and leaves functions that hold each other, which only the garbage collector frees: at
ten thousand calls a second it then stops the caller's process for a tenth of a second, several times.
"""

import asyncio
import concurrent.futures
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

_here = threading.local()


class _Arrivals:
    """What is done by now, for one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._done: deque[asyncio.Future[None]] = deque()
        self._woken = False

    def put(self, waiting: "asyncio.Future[None]", _: object) -> None:
        """Wake who waits, from whatever thread."""
        self._done.append(waiting)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._woken = False  # before the queue is looked at: whoever adds to it later wakes the loop again
        while self._done:
            waiting = self._done.popleft()
            if not waiting.done():
                waiting.set_result(None)


def until_done(future: "concurrent.futures.Future[Any]") -> "asyncio.Future[None]":
    """To be awaited until `future` is done, whatever it comes to; not to await it any more leaves it as it is."""
    loop = asyncio.get_running_loop()
    arrivals: _Arrivals | None = getattr(_here, "arrivals", None)
    if arrivals is None or arrivals.loop is not loop:
        arrivals = _here.arrivals = _Arrivals(loop)
    waiting: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(partial(arrivals.put, waiting))
    return waiting
