"""Answers that come item by item, and how much of them may be under way. Replica processes import this."""

import asyncio
import inspect
from collections.abc import AsyncGenerator
from typing import Any

from executors.ray_gpu.requests.threads import SyncThreads

WINDOW_BYTES = 1024 * 1024
"""So much of a stream may be on its way, or wait at the caller's, before its generator has to wait."""


class Whole:
    """The one and only item of a stream."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Window:
    """How much more of a stream may be sent. An item that is larger than the window goes alone."""

    def __init__(self) -> None:
        self._left_bytes = WINDOW_BYTES
        self._opened = asyncio.Event()

    async def room(self) -> None:
        """Wait until something may be sent."""
        while self._left_bytes <= 0:
            self._opened.clear()
            await self._opened.wait()

    def take(self, size_bytes: int) -> None:
        """So much was sent."""
        self._left_bytes -= size_bytes

    def give(self, size_bytes: int) -> None:
        """The caller has consumed so much."""
        self._left_bytes += size_bytes
        self._opened.set()


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
