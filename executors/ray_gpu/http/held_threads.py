"""The threads of synchronous routes: a task that is cancelled while a thread works for it lasts until the thread has ended.

anyio, by which Starlette and FastAPI run such routes, keeps to this where it cancels itself. A call is cancelled here by
`Task.cancel`, once and not at every `await` as anyio would, so that user code can clean up; anyio's shield does not hold
against that: the task ended, its place went to the next call, and the thread ran on.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from typing import Any

from anyio import CancelScope, to_thread

from executors.ray_gpu.requests.threads import until_ended


def hold_threads() -> None:
    """From now on, in this process. Repeatable."""
    if not hasattr(to_thread.run_sync, "__wrapped__"):
        to_thread.run_sync = holding(to_thread.run_sync)  # type: ignore[assignment]


def holding(run_sync: Callable[..., Any]) -> Callable[..., Any]:
    """Run as anyio's `to_thread.run_sync` does, and be left only when the thread has ended, but for `abandon_on_cancel`.

    What has not begun when its task is cancelled is not run at all.
    """

    @wraps(run_sync)
    async def run_and_wait(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if options.get("abandon_on_cancel") or options.get("cancellable"):
            return await run_sync(function, *args, **options)
        work = _Work(partial(function, *args), asyncio.get_running_loop().create_future())
        try:
            return await run_sync(work, **options)
        except asyncio.CancelledError:
            if work.give_up():
                with CancelScope(shield=True):
                    await until_ended(work.ended)
            raise

    return run_and_wait


class _Work:
    """A function for a thread, and its end."""

    __slots__ = ("_begun", "_function", "_given_up", "_lock", "ended")

    def __init__(self, function: Callable[[], Any], ended: "asyncio.Future[None]") -> None:
        self.ended = ended
        self._function = function
        self._lock = threading.Lock()
        self._begun = False
        self._given_up = False

    def give_up(self) -> bool:
        """Do not begin any more; whether it has begun."""
        with self._lock:
            self._given_up = True
            return self._begun

    def __call__(self) -> Any:
        with self._lock:
            if self._given_up:
                return None
            self._begun = True
        try:
            return self._function()
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.ended.get_loop().call_soon_threadsafe(self.ended.set_result, None)
