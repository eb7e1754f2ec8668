"""Answers that come item by item, and how much of them may be under way. Replica processes import this."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any

from executors.ray_gpu.requests.pieces import Body
from executors.ray_gpu.requests.threads import SyncThreads

WINDOW_BYTES = 1024 * 1024
"""So much of a stream may be on its way, or wait at the caller's, before its generator has to wait."""
ITEM_BYTES = 64
"""Of an item besides its own."""


class Window:
    """Where the items of a call go, and how much of them may be under way. One that is larger than that goes alone.

    Args:
        say: Sends a frame of this kind to the caller.

    Attributes:
        status: Of the HTTP response that these are pieces of; None: there is none yet.
    """

    def __init__(self, say: Callable[[int, Body], None]) -> None:
        self.status: int | None = None
        self._say = say
        self._left_bytes = WINDOW_BYTES
        self._opened = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether nothing may be sent now."""
        return self._left_bytes <= 0

    async def room(self) -> None:
        """Wait until something may be sent."""
        while self._left_bytes <= 0:
            self._opened.clear()
            await self._opened.wait()

    def send(self, kind: int, body: Body) -> None:
        """Send an item."""
        self._left_bytes -= len(body) + ITEM_BYTES
        self._say(kind, body)

    def give(self, size_bytes: int) -> None:
        """The caller has consumed so much."""
        self._left_bytes += size_bytes
        self._opened.set()


def weight_bytes(item: Body) -> int:
    """What an item counts for: where it waits, a small one takes far more than its bytes."""
    return len(item) + ITEM_BYTES


def is_stream(value: Any) -> bool:
    """Whether items can be asked of it."""
    return inspect.isgenerator(value) or inspect.isasyncgen(value) or hasattr(value, "__anext__")


async def items(value: Any, threads: SyncThreads) -> AsyncGenerator[Any, None]:
    """What a generator yields; a synchronous one runs on a thread, and other calls between its items."""
    if not inspect.isgenerator(value):
        try:
            async for item in value:
                yield item
        finally:
            if inspect.isasyncgen(value):
                await value.aclose()
        return
    try:
        while (item := await threads.run(next, value, _LAST)) is not _LAST:
            yield item
    finally:
        await threads.run(value.close)


_LAST = object()
