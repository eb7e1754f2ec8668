"""Waiting until something is so: whoever waits looks again whenever something may have changed."""

import asyncio
from collections.abc import Callable


class Changes:
    """What has changed, for those who wait. On one event loop.

    Args:
        on_wake: Called as often as they are to look again.
    """

    def __init__(self, on_wake: Callable[[], None] = lambda: None) -> None:
        self._changed = asyncio.Event()
        self._on_wake = on_wake

    def wake(self) -> None:
        """Whoever waits is to look again."""
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_wake()

    async def until(self, reached: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until something is so; False: it was not, all the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not reached():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True
