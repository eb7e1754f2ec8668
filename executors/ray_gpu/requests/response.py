"""What a call returns at once: a response for one answer, a generator for a stream of them."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from concurrent.futures import CancelledError
from typing import Any

from executors.ray_gpu.errors import CallCancelledError
from executors.ray_gpu.requests.arrivals import until_done
from executors.ray_gpu.requests.call import Answer, Call
from executors.ray_gpu.requests.frames import LARGE, PARTS
from executors.ray_gpu.requests.loops import refuse_to_block
from executors.ray_gpu.requests.packing import unpack
from executors.ray_gpu.requests.received import Item, ReceivedStream
from executors.ray_gpu.requests.statuses import CallStatuses, statuses_of


class DeploymentResponse:
    """What a call will return: `.result()`, or `await` it; or pass it on as an argument of another call, which waits for it
    without blocking anybody.

    Attributes:
        call: Behind it; internal.
    """

    def __init__(self, call: Call) -> None:
        self.call = call

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the result. Not in asynchronous code, which awaits the response itself.

        Args:
            timeout_s: At most so long; None: for ever.

        Raises:
            TimeoutError: Not yet; the call goes on.
            CallCancelledError: It was cancelled.
            ReplicaGoneError: The replica died while it ran.
            InvalidCallError: An event loop runs in this thread, which would be blocked.
            Exception: What the user's code raised, with the remote traceback as its cause.
        """
        refuse_to_block("response.result()", "`await response`")
        try:
            return self._opened(timeout_s)
        finally:
            del self  # an error that the answer holds comes to hold this frame, and so would hold itself

    def _opened(self, timeout_s: float | None) -> Any:
        try:
            return open_answer(self.arrived(timeout_s))
        finally:
            del self  # as there

    def arrived(self, timeout_s: float | None) -> Answer:
        """Wait for the answer; it is as it came.

        Raises:
            TimeoutError, CallError: As `result`.
        """
        try:
            return self.call.answer.result(timeout_s)
        except CancelledError:
            raise CallCancelledError("the call was cancelled") from None
        except TimeoutError:
            if self.call.answer.done():
                raise  # it is what the call has ended with
            raise self.not_yet(timeout_s) from None
        finally:
            del self  # as there

    def not_yet(self, timeout_s: float | None) -> TimeoutError:
        """What is said when there was no answer for so long."""
        return TimeoutError(
            f"no answer to {self.call.method!r} within {timeout_s:g} s. The call goes on: it waits for a place at a "
            "replica, or runs there, as `rankcore status` shows; cancel() gives it up"
        )

    @property
    def by_reference(self) -> bool:
        """Whether large arguments and results travel by reference, in Ray's object store: they do."""
        return True

    @property
    def request_id(self) -> str:
        """What it is called in the replica's `get_request_context()` and in logs."""
        return self.call.name

    def statuses(self) -> CallStatuses:
        """How the deployment stands while the call waits for it: iterate, `for` or `async for`, until the answer is there."""
        return statuses_of(self.call)

    def done(self) -> bool:
        """Whether the answer is there."""
        return self.call.answer.done()

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self.call.given_up

    def cancel(self) -> bool:
        """Give the call up: it is not begun any more, or cancelled in the replica if its method is asynchronous.

        Returns:
            Whether it was not answered yet.
        """
        return self.call.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.call.answer.done():
            try:
                yield from until_done(self.call.answer).__await__()
            except asyncio.CancelledError:
                self.call.cancel()  # whoever is cancelled while waiting gives up the call too
                raise
        try:
            return self._opened(0)
        finally:
            del self  # as there

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a response can be an argument of a call, but not be inside one: await it, or pass it by itself")


class DeploymentBroadcastResponse:
    """What `handle.broadcast` returns: the results of all who run, in rank order."""

    def __init__(self, response: DeploymentResponse) -> None:
        self._response = response

    def results(self, *, timeout_s: float | None = None, return_exceptions: bool = False) -> list[Any]:
        """Wait for all of them. Not in asynchronous code, which has `results_async`.

        Args:
            timeout_s: At most so long; None: for ever. The calls go on.
            return_exceptions: Whether what a replica's code raised stands at its place; else the first one is raised.

        Raises:
            TimeoutError, CallError, Exception: As `DeploymentResponse.result`.
        """
        refuse_to_block("response.results()", "`await response.results_async()`")
        return self._opened(timeout_s, return_exceptions)

    async def results_async(self, *, timeout_s: float | None = None, return_exceptions: bool = False) -> list[Any]:
        """The same in asynchronous code. Who is cancelled meanwhile gives up no call."""
        call = self._response.call
        if not call.answer.done():
            await asyncio.wait([until_done(call.answer)], timeout=timeout_s)
        if not call.answer.done():
            raise self._response.not_yet(timeout_s)
        return self._opened(0, return_exceptions)

    def cancel(self) -> bool:
        """Give all of them up. Returns whether they were not answered yet."""
        return self._response.cancel()

    def _opened(self, timeout_s: float | None, return_exceptions: bool) -> list[Any]:
        answer = self._response.arrived(timeout_s)
        return [opened_or_raised(part) for part in answer.payload] if return_exceptions else open_answer(answer)


class DeploymentResponseGenerator:
    """What a streaming call yields: iterate, with `for` or `async for`. Items that nobody takes keep the replica waiting."""

    def __init__(self, call: Call) -> None:
        self.call = call
        assert isinstance(call.stream, ReceivedStream), "it was called with stream=True"
        self._stream = call.stream

    def cancelled(self) -> bool:
        """Whether the rest was given up."""
        return self.call.given_up

    def cancel(self) -> bool:
        """Give the rest up: the generator in the replica is closed. Returns whether it had not ended yet."""
        cancelled = self.call.cancel()
        if cancelled:
            self._stream.fail(CallCancelledError("the stream was cancelled"))
        return cancelled

    @property
    def by_reference(self) -> bool:
        """As of a response."""
        return True

    @property
    def request_id(self) -> str:
        """As of a response."""
        return self.call.name

    def result(self, timeout_s: float | None = None) -> Any:
        """A stream has no result.

        Raises:
            TypeError: Always; says what to do.
        """
        raise TypeError("a stream has items and no result: iterate over it, with `for` or `async for`")

    def statuses(self) -> CallStatuses:
        """As of a response, until the first item is there."""
        return statuses_of(self.call)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        refuse_to_block("`for` over a stream", "`async for`")
        try:
            while not isinstance(found := self._stream.take(), Item):
                found.result()
        except StopAsyncIteration:
            raise StopIteration from None
        return found.value

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while not isinstance(found := self._stream.take(), Item):
            try:
                await until_done(found)
            except asyncio.CancelledError:
                self.cancel()
                raise
        return found.value

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a stream cannot be an argument of a call, nor be inside one: pass what its items come to")

    async def aclose(self) -> None:
        """Give the rest up."""
        self.cancel()

    def __del__(self) -> None:
        self.call.cancel()


async def answered_here(call: Call) -> Any:
    """The same as awaiting a response, on the routers' thread: no other thread has to be woken when the answer comes.

    Raises:
        CallCancelledError: It was cancelled.
        Exception: As for a response.
    """
    if not call.answer.done():
        arrived = asyncio.get_running_loop().create_future()
        call.answer.add_done_callback(lambda _: None if arrived.done() else arrived.set_result(None))
        await arrived
    return DeploymentResponse(call)._opened(0)


def open_answer(answer: Answer) -> Any:
    """What an answer says.

    Raises:
        Exception: What the user's code raised, with the remote traceback as its cause.
    """
    if answer.kind == PARTS:
        return [open_answer(part) for part in answer.payload]
    return answer.payload.value if answer.kind == LARGE else unpack(*answer)


def opened_or_raised(answer: Answer) -> Any:
    """What an answer says, or what the user's code raised."""
    try:
        return open_answer(answer)
    except Exception as error:
        return error
