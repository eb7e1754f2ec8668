"""Threads for synchronous user code, so that it blocks neither the event loop nor any stream. Replica processes import this.

There is one thread unless the deployment asks for more (`sync_threads`): synchronous calls then run one after another, and
a class needs no locks.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from executors.ray_gpu.errors import as_error


async def until_ended(future: "asyncio.Future[Any]") -> None:
    """Wait for the end of something that nobody wants any more: until then it counts, and it need not hurry."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    if not future.cancelled():
        future.exception()  # nobody else asks


class SyncThreads:
    """Runs functions on threads of its own and hands back what they come to on the event loop.

    Those that end together are handed back in one wake-up of the loop. The threads are daemons: they keep no process alive.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 1) -> None:
        self._loop = loop
        self._threads = threads
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended: deque[tuple[asyncio.Future[Any], Any, Exception | None]] = deque()
        self._lock = threading.Lock()
        self._woken = False
        self._begun = False

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function on a thread, in this context, and wait for it here.

        Whoever is cancelled while it runs waits for its end, however often it is cancelled; what has not begun by then is not
        run at all.
        """
        work = _Work(self, partial(copy_context().run, function, *args, **kwargs), self._loop.create_future())
        self._put(work)
        try:
            return await asyncio.shield(work.future)
        except asyncio.CancelledError:
            work.given_up = True
            await until_ended(work.future)
            raise

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """No function runs while this lasts. Whoever runs now is waited for."""
        release = threading.Event()
        held = [self._loop.create_future() for _ in range(self._threads)]
        try:
            for here in held:
                self._put(partial(self._hold, here, release))
            for here in held:
                await here
            yield
        finally:
            release.set()

    def hand_back(self, future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
        """A thread has come to this."""
        with self._lock:
            self._ended.append((future, result, error))
            if self._woken:
                return
            self._woken = True
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver)

    def _hold(self, here: "asyncio.Future[Any]", release: threading.Event) -> None:
        self.hand_back(here, None, None)
        release.wait()

    def _put(self, work: Callable[[], None]) -> None:
        if not self._begun:
            self._begun = True
            for number in range(self._threads):
                threading.Thread(target=self._live, name=f"sync-{number}", daemon=True).start()
        self._work.put(work)

    def end(self) -> None:
        """End the threads, each after what it runs now and what waits."""
        for _ in range(self._threads):
            self._work.put(None)

    def _live(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _deliver(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, deque()
            self._woken = False
        for future, result, error in ended:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


class _Work:
    """A function for a thread. It is not run once nobody waits for it."""

    __slots__ = ("_function", "_threads", "future", "given_up")

    def __init__(self, threads: SyncThreads, function: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        self.future = future
        self.given_up = False
        self._threads = threads
        self._function = function

    def __call__(self) -> None:
        result, error = None, None
        try:
            if not self.given_up:
                result = self._function()
        except Exception as raised:
            # A future may not hold this one, which means something to whoever awaits it.
            error = RuntimeError("user code raised StopIteration") if isinstance(raised, StopIteration) else raised
        except BaseException as raised:  # such as SystemExit, which would end the event loop
            error = as_error(raised).with_traceback(raised.__traceback__)
        self._threads.hand_back(self.future, result, error)
