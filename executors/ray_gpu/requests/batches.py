"""The batches of one function: the calls that wait in one line, and the batches that run.

The oldest call decides when a batch begins: once its line holds a full batch, or once it has waited for long enough, and one
more batch may run. What comes while it may not joins the line, so a batch that was held up is larger and not one of several.
A batch that is taken from the line is then parted by *kind*: the model that its calls are for, and which arguments they
have, since neither can differ within one call of the function. Each part counts as a batch that runs, in the order of its
oldest call. So `max_concurrent_batches` holds over all models, and a model that is rarely asked for waits for no more
than one wait and the batches before its own.

A call that is cancelled while it waits is left out; one that is cancelled later is not answered, and the others are. A batch
of items whose callers have all gone away is closed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from contextvars import Context
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError, as_error
from executors.ray_gpu.metrics.counts import counts_here
from executors.ray_gpu.requests.request_context import enter, get_multiplexed_model_id

_everywhere: "WeakSet[Batches]" = WeakSet()


@attrs.define
class BatchOptions:
    """What is a batch, as it may change while calls wait; a batch goes by what holds when it is taken from the line."""

    max_batch_size: int
    batch_wait_timeout_s: float
    max_concurrent_batches: int
    batch_size_fn: Callable[[list[Any]], int] | None

    def __attrs_post_init__(self) -> None:
        self.set_max_batch_size(self.max_batch_size)
        self.set_batch_wait_timeout_s(self.batch_wait_timeout_s)
        _count("max_concurrent_batches", self.max_concurrent_batches)
        if self.batch_size_fn is not None and not callable(self.batch_size_fn):
            raise InvalidDeploymentError(f"batch_size_fn must be a function or None, got {self.batch_size_fn!r:.80}")

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """So large a batch may be from now on.

        Raises:
            InvalidDeploymentError: It is not a number from 1 on; nothing has changed.
        """
        _count("max_batch_size", max_batch_size)
        self.max_batch_size = max_batch_size

    def set_batch_wait_timeout_s(self, batch_wait_timeout_s: float) -> None:
        """So long an incomplete batch waits from now on.

        Raises:
            InvalidDeploymentError: It is not a number of seconds from 0 on; nothing has changed.
        """
        if type(batch_wait_timeout_s) not in (int, float) or not 0 <= batch_wait_timeout_s < float("inf"):
            raise InvalidDeploymentError(
                f"batch_wait_timeout_s must be a number of seconds from 0 on, got {batch_wait_timeout_s!r:.80}"
            )
        self.batch_wait_timeout_s = batch_wait_timeout_s


def _count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise InvalidDeploymentError(f"{name} must be an integer from 1 on, got {value!r:.80}")


class BatchCaller(Protocol):
    """Where the results of one caller go."""

    def done(self) -> bool:
        """Whether it is to get nothing any more: it has it, or has gone away."""

    def set_exception(self, error: Exception, /) -> None:
        """There is no result, or no further one."""


class BatchEntry(NamedTuple):
    """One call: its values in the order of the parameters, the last of which go by `names`."""

    model_id: str
    names: tuple[str, ...]
    values: tuple[Any, ...]
    came_at: float
    outcome: BatchCaller

    @property
    def kind(self) -> tuple[str, int, tuple[str, ...]]:
        """What has to be the same within a batch."""
        return self.model_id, len(self.values), self.names


class BatchItems:
    """What one caller of a generator gets, item by item."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: list[Any] = []
        self._news: asyncio.Future[None] | None = None
        self._ended = False
        self._error: Exception | None = None
        self.is_abandoned = False

    def done(self) -> bool:
        """Whether no item is wanted any more."""
        return self._ended or self.is_abandoned

    def put(self, item: Any) -> None:
        """The next item."""
        self._items.append(item)
        self._wake()

    def end(self) -> None:
        """There are no more."""
        self._ended = True
        self._wake()

    def set_exception(self, error: Exception) -> None:
        """There are no more, for this reason."""
        self._error = error
        self.end()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def iterate(self) -> AsyncIterator[Any]:
        """The items as they come."""
        try:
            while True:
                items, self._items = self._items, []
                for item in items:
                    yield item
                if self._items:
                    continue
                if self._ended:
                    break
                self._news = self._loop.create_future()
                await self._news
            if self._error is not None:
                raise self._error
        finally:
            self.is_abandoned = True


def waiting_calls() -> Counter[str]:
    """How many calls wait for a batch in this process, by the name of the function."""
    waiting = Counter[str]()
    for each in tuple(_everywhere):
        waiting[each.name] += each.waiting
    return waiting


class Batches:
    """The batches of one function on one event loop.

    Args:
        function: Takes a list for each argument, and returns a list, or yields lists.
        options: As they are at the moment.
        loop: The one that all of it runs on.
        name: Of the function, as metrics have it.
    """

    def __init__(self, function: Callable[..., Any], options: BatchOptions, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self._function = function
        self._options = options
        self._line: list[BatchEntry] = []
        self._fitting = 0  # so many of the oldest were found to go into one batch
        self._full = asyncio.Event()
        self._permits = asyncio.Semaphore(options.max_concurrent_batches)
        self._taker: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        _everywhere.add(self)

    @property
    def waiting(self) -> int:
        """How many calls wait in the line."""
        return len(self._line)

    async def add(self, values: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """The result for one caller."""
        result: asyncio.Future[Any] = self.loop.create_future()
        self._put(values, names, result)
        return await result

    def stream(self, values: tuple[Any, ...], names: tuple[str, ...]) -> AsyncIterator[Any]:
        """The items for one caller."""
        items = BatchItems(self.loop)
        self._put(values, names, items)
        return items.iterate()

    def _put(self, values: tuple[Any, ...], names: tuple[str, ...], outcome: Any) -> None:
        self._line.append(BatchEntry(get_multiplexed_model_id(), names, values, self.loop.time(), outcome))
        self._measure()
        if self._taker is None:
            # In an empty context: a batch belongs to no single request.
            self._taker = Context().run(self.loop.create_task, self._take_batches())

    # -- what goes together

    def _measure(self) -> None:
        """Find how many of the oldest go into one batch, and whether that is full. A call without a size fails."""
        size_of, size_max = self._options.batch_size_fn, self._options.max_batch_size
        if size_of is None:
            self._fitting = min(len(self._line), size_max)
            if self._fitting == size_max:
                self._full.set()
            return
        while self._fitting < len(self._line) and not self._full.is_set():
            entry = self._line[self._fitting]
            try:
                size = size_of([each.values[0] for each in self._line[: self._fitting + 1]])
                if not self._fitting and size > size_max:
                    raise ValueError(f"batch_size_fn gives this call alone the size {size}, and max_batch_size is {size_max}")
            except Exception as error:
                del self._line[self._fitting]
                _fail(entry.outcome, error)
                continue
            self._fitting += size <= size_max
            if size >= size_max:
                self._full.set()

    def _take(self) -> list[list[BatchEntry]]:
        """The next batch, from the line, by kind."""
        self._fitting = 0
        self._full.clear()
        self._measure()  # once more: the options may be others now
        parts: dict[Any, list[BatchEntry]] = {}
        for entry in self._line[: self._fitting]:
            parts.setdefault(entry.kind, []).append(entry)
        del self._line[: self._fitting]
        self._fitting = 0
        self._full.clear()
        self._measure()
        return list(parts.values())

    async def _take_batches(self) -> None:
        try:
            while self._line:
                await self._fill()
                await self._permits.acquire()
                self._permits.release()  # what comes until now goes along
                for part in self._take():
                    await self._permits.acquire()
                    wanted = [each for each in part if not each.outcome.done()]
                    if wanted:
                        self._begin(wanted)
                    else:
                        self._permits.release()
        finally:
            self._taker = None

    async def _fill(self) -> None:
        left_s = self._line[0].came_at + self._options.batch_wait_timeout_s - self.loop.time()
        if self._full.is_set() or left_s <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._full.wait()

    # -- a batch that runs

    def _begin(self, batch: list[BatchEntry]) -> None:
        context = Context()
        context.run(enter, "", batch[0].model_id)
        task = context.run(self.loop.create_task, self._run(batch))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._permits.release()

    async def _run(self, batch: list[BatchEntry]) -> None:
        counts, began = counts_here().of_batches(self.name), self.loop.time()
        counts.begin(self._size(batch), self._options.max_batch_size, began - batch[0].came_at)
        try:
            await self._answer(batch)
        finally:
            counts.took.add(self.loop.time() - began)

    def _size(self, batch: list[BatchEntry]) -> int:
        if self._options.batch_size_fn is not None:
            with suppress(Exception):  # it was well with these and others
                return self._options.batch_size_fn([each.values[0] for each in batch])
        return len(batch)

    async def _answer(self, batch: list[BatchEntry]) -> None:
        outcomes = [each.outcome for each in batch]
        lists = [list(column) for column in zip(*(each.values for each in batch), strict=True)]
        names = batch[0].names
        split = len(lists) - len(names)
        try:
            results = self._function(*lists[:split], **dict(zip(names, lists[split:], strict=True)))
            if hasattr(results, "__aiter__"):
                await _hand_out(results, outcomes)
                return
            found = _one_for_each(await results, len(batch))
        except BaseException as error:
            for outcome in outcomes:
                _fail(outcome, as_error(error))
            return
        for outcome, result in zip(outcomes, found, strict=True):
            _settle(outcome, result)


async def _hand_out(results: Any, outcomes: list[Any]) -> None:
    """Give each caller its item of every list, until the generator ends or nobody is there any more."""
    async with aclosing(results):
        async for yielded in results:
            for outcome, item in zip(outcomes, _one_for_each(yielded, len(outcomes)), strict=True):
                if item is StopIteration or item is StopAsyncIteration:
                    outcome.end()
                elif isinstance(item, Exception):
                    _fail(outcome, item)
                elif not outcome.done():
                    outcome.put(item)
            if all(each.is_abandoned for each in outcomes):
                return
    for outcome in outcomes:
        outcome.end()


def _one_for_each(results: Any, count: int) -> Any:
    is_list = hasattr(results, "__len__") and hasattr(results, "__iter__") and not isinstance(results, (str, bytes, dict, set))
    if is_list and len(results) == count:
        return results
    found = f"{len(results)} results" if is_list else f"{results!r:.80}"
    raise TypeError(f"the batch function has to return a list with one result for each of the {count} values, got {found}")


def _settle(outcome: Any, result: Any) -> None:
    if isinstance(result, Exception):
        _fail(outcome, result)
    elif not outcome.done():
        outcome.set_result(result)


def _fail(outcome: BatchCaller, error: Exception) -> None:
    if outcome.done():
        return  # its caller was cancelled
    if isinstance(error, StopIteration):  # which no future can hold
        error = RuntimeError(f"the batch function gave {error!r}")
    outcome.set_exception(error)
