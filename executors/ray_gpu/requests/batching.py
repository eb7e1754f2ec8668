"""`@batch`: calls that come at about the same time are answered together. Replica processes import this."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple

from executors.ray_gpu.errors import InvalidDeploymentError

LOST = "the batch function has to return a list with one result for each of the"


def batch(
    function: Callable[..., Any] | None = None, /, *, max_batch_size: int = 10, batch_wait_timeout_s: float = 0.01
) -> Any:
    """Let an asynchronous function, or method, that takes a list and returns a list be called with single values.

    The first caller of a batch waits for others: until there are `max_batch_size`, and for `batch_wait_timeout_s` at most.
    Batches run one after another, so that what comes while one runs goes into the next. Each caller gets its own result,
    or its own exception where the list has one; what the function raises, all callers of the batch get.

    Args:
        function: What is called with lists, when there are no options.
        max_batch_size: The most values in one list, 1 or more.
        batch_wait_timeout_s: How long an incomplete batch waits, in seconds, 0 or more.

    Raises:
        InvalidDeploymentError: The function is not asynchronous, or an option is not what it may be.

    Example:
        @batch(max_batch_size=8)
        async def __call__(self, prompts): return self.model(prompts)
    """
    if type(max_batch_size) is not int or max_batch_size < 1:
        raise InvalidDeploymentError(f"max_batch_size must be an integer from 1 on, got {max_batch_size!r:.80}")
    if type(batch_wait_timeout_s) not in (int, float) or not 0 <= batch_wait_timeout_s < float("inf"):
        raise InvalidDeploymentError(
            f"batch_wait_timeout_s must be a number of seconds from 0 on, got {batch_wait_timeout_s!r:.80}"
        )

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(function):
            raise InvalidDeploymentError(f"@batch takes an `async def` that takes a list and returns one, got {function!r:.80}")
        own = f"_rankcore_batches_{function.__name__}"
        is_method = next(iter(inspect.signature(function).parameters), None) == "self"

        @functools.wraps(function)
        async def single(*args: Any) -> Any:
            here, values = (args[0], args[1:]) if is_method else (single, args)
            if len(values) != 1:
                raise TypeError(f"{function.__name__} is batched and takes one value, got {len(values)}")
            batches = here.__dict__.get(own)
            if batches is None:
                bound = functools.partial(function, here) if is_method else function
                batches = here.__dict__[own] = Batches(bound, max_batch_size, batch_wait_timeout_s)
            return await batches.add(values[0])

        return single

    return wrap if function is None else wrap(function)


class _Waiting(NamedTuple):
    value: Any
    result: "asyncio.Future[Any]"


class Batches:
    """The batches of one function: those that wait, and the one that runs."""

    def __init__(self, function: Callable[[list[Any]], Any], size_max: int, wait_s: float) -> None:
        self._function = function
        self._size_max = size_max
        self._wait_s = wait_s
        self._waiting: list[_Waiting] = []
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def add(self, value: Any) -> Any:
        """The result for one value."""
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(value, result))
        if len(self._waiting) >= self._size_max:
            self._full.set()
        if self._task is None:
            # In an empty context: a batch belongs to no single request.
            self._task = Context().run(asyncio.get_running_loop().create_task, self._run())
        return await result

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._fill()
                batch = [each for each in self._waiting[: self._size_max] if not each.result.done()]
                self._waiting = self._waiting[self._size_max :]
                if len(self._waiting) < self._size_max:
                    self._full.clear()
                if batch:
                    await self._answer(batch)
        finally:
            self._task = None

    async def _fill(self) -> None:
        if self._full.is_set() or not self._wait_s:
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._full.wait()
        except TimeoutError:
            return

    async def _answer(self, batch: list[_Waiting]) -> None:
        try:
            results = await self._function([each.value for each in batch])
            if not isinstance(results, (list, tuple)) or len(results) != len(batch):
                found = f"{len(results)} results" if isinstance(results, (list, tuple)) else repr(results)[:80]
                raise TypeError(f"{LOST} {len(batch)} values, got {found}")
        except BaseException as error:
            for each in batch:
                _settle(each.result, error if isinstance(error, Exception) else RuntimeError(f"the batch ended: {error!r}"))
            return
        for each, result in zip(batch, results, strict=True):
            _settle(each.result, result)


def _settle(future: "asyncio.Future[Any]", result: Any) -> None:
    if future.done():
        return  # its caller was cancelled
    if isinstance(result, StopIteration):  # which no future can hold
        result = RuntimeError(f"the batch function returned {result!r}")
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
