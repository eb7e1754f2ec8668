"""How a call's deployment stands while it waits: put on the routers' thread, taken on any other."""

import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future

from executors.ray_gpu.messages import CallStatus, Version
from executors.ray_gpu.requests.arrivals import until_done
from executors.ray_gpu.requests.call import Call
from executors.ray_gpu.requests.loops import refuse_to_block


class CallStatuses:
    """Iterate, with `for` or `async for`: each news once, in order, until the answer is there, or its first item."""

    def __init__(self) -> None:
        from rankcore.routing import statuses

        self._core = statuses
        self._lock = threading.Lock()
        self._shown = statuses.StatusesShown()
        self._next: deque[CallStatus] = deque()
        self._news: Future[None] | None = None

    # -- on the routers' thread

    def put(self, version: Version, status: CallStatus) -> None:
        """It stands so."""
        with self._lock:
            self._shown, is_shown = self._core.show(self._shown, version, status)
            if is_shown:
                self._next.append(status)
        if is_shown:
            self._wake()

    def end(self) -> None:
        """There is no more to be said."""
        with self._lock:
            self._shown = self._core.end(self._shown)
            self._next.clear()
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            news, self._news = self._news, None
        if news is not None:
            news.set_result(None)

    # -- on the consumer's

    def _take(self) -> "CallStatus | Future[None] | None":
        """The next one; what becomes done when it is worth to ask again; None: there are no more."""
        with self._lock:
            if self._next:
                return self._next.popleft()
            if self._shown.is_over:
                return None
            self._news = self._news or Future()
            return self._news

    def __iter__(self) -> Iterator[CallStatus]:
        return self

    def __next__(self) -> CallStatus:
        refuse_to_block("`for` over statuses", "`async for`")
        while isinstance(found := self._take(), Future):
            found.result()
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> AsyncIterator[CallStatus]:
        return self

    async def __anext__(self) -> CallStatus:
        while isinstance(found := self._take(), Future):
            await until_done(found)
        if found is None:
            raise StopAsyncIteration
        return found


def statuses_of(call: Call) -> CallStatuses:
    """Those of a call: the same for all who ask."""
    if not isinstance(call.statuses, CallStatuses):
        call.show(CallStatuses())
    assert isinstance(call.statuses, CallStatuses), "it was put there"
    return call.statuses
