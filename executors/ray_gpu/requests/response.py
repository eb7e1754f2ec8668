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
            answer = self.call.answer.result(timeout_s)
        except CancelledError:
            raise CallCancelledError("the call was cancelled") from None
        except TimeoutError:
            if self.call.answer.done():
                raise  # it is what the call has ended with
            raise TimeoutError(
                f"no answer to {self.call.method!r} within {timeout_s:g} s. The call goes on: it waits for a place at a "
                "replica, or runs there, as `rankcore status` shows; cancel() gives it up"
            ) from None
        finally:
            del self  # as there
        return open_answer(answer)

    def statuses(self) -> CallStatuses:
        """How the deployment stands while the call waits for it: iterate, `for` or `async for`, until the answer is there."""
        return statuses_of(self.call)

    def done(self) -> bool:
        """Whether the answer is there."""
        return self.call.answer.done()

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


class DeploymentResponseGenerator:
    """What a streaming call yields: iterate, with `for` or `async for`. Items that nobody takes keep the replica waiting."""

    def __init__(self, call: Call) -> None:
        self.call = call
        assert isinstance(call.stream, ReceivedStream), "it was called with stream=True"
        self._stream = call.stream

    def cancel(self) -> bool:
        """Give the rest up: the generator in the replica is closed. Returns whether it had not ended yet."""
        cancelled = self.call.cancel()
        if cancelled:
            self._stream.fail(CallCancelledError("the stream was cancelled"))
        return cancelled

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
