"""A stream of answers as it arrives in the caller's process: filled on the routers' thread, emptied on any other."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from executors.ray_gpu.requests.frames import ERROR, VALUE
from executors.ray_gpu.requests.packing import unpack
from executors.ray_gpu.requests.pieces import Body
from executors.ray_gpu.requests.streams import WINDOW_BYTES, weight_bytes

TELL_BYTES = WINDOW_BYTES // 4
"""The replica is told of what was consumed once it is so much."""


class ReceivedStream:
    """Items in the order in which they were yielded, then the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[Body] = deque()
        self._waiting: Future[None] | None = None
        self._ended = False
        self._error: Body | Exception | None = None
        self._consumed_bytes = 0
        self._pull: Callable[[int], object] | None = None

    def begin(self, pull: Callable[[int], object]) -> None:
        """A replica has begun to answer; it is told with `pull`, from any thread, how many bytes were consumed."""
        self._pull = pull

    # -- on the routers' thread

    def put(self, item: Body) -> None:
        """The next item has come."""
        with self._lock:
            self._items.append(item)
        self._wake()

    def put_piece(self, piece: Body) -> None:
        """Handles ask for no HTTP."""
        raise AssertionError("a piece of an HTTP response for a handle")

    def end(self, error: Body | None = None) -> None:
        """There are no more items; the user's code raised if there is an error."""
        with self._lock:
            self._ended, self._error = True, error
        self._wake()

    def fail(self, error: Exception) -> None:
        """There will be no more items, and no end."""
        with self._lock:
            if not self._ended:
                self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            with suppress(InvalidStateError):
                waiting.set_result(None)

    # -- on the consumer's

    def take(self) -> "Any | Future[None]":
        """The next item; or what becomes done when it is worth to ask again.

        Raises:
            StopAsyncIteration: There are no more.
            Exception: What the user's code raised, or why there will be no more.
        """
        with self._lock:
            if self._items:
                item = self._items.popleft()
                self._consumed_bytes += weight_bytes(item)
                told, self._consumed_bytes = self._due()
            elif not self._ended:
                self._waiting = self._waiting or Future()
                return self._waiting
            else:
                self._raise()
        if told and self._pull is not None:
            self._pull(told)
        return Item(unpack(VALUE, item))

    def _due(self) -> tuple[int, int]:
        return (self._consumed_bytes, 0) if self._consumed_bytes >= TELL_BYTES else (0, self._consumed_bytes)

    def _raise(self) -> None:
        error = self._error
        if error is None:
            raise StopAsyncIteration
        if isinstance(error, Exception):
            raise error
        unpack(ERROR, error)


class Item:
    """An item, told apart from a future that says to wait."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value
