"""`@batch`: calls that come at about the same time are answered together. Replica processes import this."""

import asyncio
import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.requests.batches import Batches, BatchOptions
from executors.ray_gpu.user_code import mark_returns_at_once

_numbers = itertools.count()


def batch(
    function: Callable[..., Any] | None = None,
    /,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], int] | None = None,
) -> Any:
    """Let an asynchronous function, or method, that takes lists and returns one be called with single values.

    Each argument becomes a list with one value for each caller, and each caller gets the result at its place; an exception at
    its place is raised there. What the function raises is raised to all callers of the batch. An asynchronous generator
    yields lists with one item for each caller; `StopIteration` or `StopAsyncIteration` in a caller's place ends its items.

    The first call of a batch waits for others: until there are `max_batch_size`, and for `batch_wait_timeout_s` at most. What
    comes while as many batches run as may goes into the next. A batch has calls of one model only, which
    `get_multiplexed_model_id()` names inside it. `set_max_batch_size` and `set_batch_wait_timeout_s` of what is returned
    change an option for all instances.

    Args:
        function: What is called with lists, when there are no options.
        max_batch_size: The most values in one list, 1 or more; with `batch_size_fn` the most that this may return.
        batch_wait_timeout_s: How long an incomplete batch waits, in seconds, 0 or more.
        max_concurrent_batches: How many batches of an instance run at once, 1 or more.
        batch_size_fn: The size of a list of first arguments, such as the number of tokens; None: their number.

    Raises:
        InvalidDeploymentError: The function is not asynchronous, or an option is not what it may be.

    Example:
        @batch(max_batch_size=8)
        async def __call__(self, prompts): return self.model(prompts)
    """
    given = (max_batch_size, batch_wait_timeout_s, max_concurrent_batches, batch_size_fn)
    BatchOptions(*given)  # whatever is wrong with them is said where they are written

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        streams = inspect.isasyncgenfunction(function)
        if not streams and not inspect.iscoroutinefunction(function):
            raise InvalidDeploymentError(f"@batch takes an `async def` that takes lists and returns one, got {function!r:.80}")
        options = BatchOptions(*given)
        batches_of = _finder(function, options)
        arranged = _arranger(function)

        def begin(*args: Any, **kwargs: Any) -> Any:
            batches, values = batches_of(single_value, args)
            return batches.stream(*arranged(values, kwargs))

        async def single(*args: Any, **kwargs: Any) -> Any:
            batches, values = batches_of(single_value, args)
            return await batches.add(*arranged(values, kwargs))

        single_value: Any = functools.wraps(function)(mark_returns_at_once(begin) if streams else single)
        single_value.set_max_batch_size = options.set_max_batch_size
        single_value.set_batch_wait_timeout_s = options.set_batch_wait_timeout_s
        return single_value  # type: ignore[no-any-return]

    return wrap if function is None else wrap(function)


def _is_method(function: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(function).parameters), None) == "self"


def _finder(
    function: Callable[..., Any], options: BatchOptions
) -> Callable[[Callable[..., Any], tuple[Any, ...]], tuple[Batches, tuple[Any, ...]]]:
    """The batches that a call belongs to, and its arguments: those of its instance, or of the function, on this event loop."""
    # A method and the one that it overrides have batches of their own.
    own = f"_rankcore_batches_{function.__module__}.{function.__qualname__}_{next(_numbers)}"
    is_method = _is_method(function)

    def find(single_value: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Batches, tuple[Any, ...]]:
        if not is_method:
            return batches_of_function(single_value, function, options), args
        kept: dict[str, Any] = args[0].__dict__
        batches = kept.get(own)
        if batches is None or batches.loop is not asyncio.get_running_loop():
            batches = kept[own] = _begun(functools.partial(function, args[0]), options, function.__name__)
        return batches, args[1:]

    return find


_of_functions: "WeakKeyDictionary[Callable[..., Any], Batches]" = WeakKeyDictionary()


def batches_of_function(single_value: Callable[..., Any], function: Callable[..., Any], options: BatchOptions) -> Batches:
    """The batches of a function that is no method: of this process, and not of the function, which may be pickled."""
    batches = _of_functions.get(single_value)
    if batches is None or batches.loop is not asyncio.get_running_loop():
        batches = _of_functions[single_value] = _begun(function, options, function.__name__)
    return batches


def _begun(function: Callable[..., Any], options: BatchOptions, name: str) -> Batches:
    return Batches(function, options, asyncio.get_running_loop(), name)


def _arranger(
    function: Callable[..., Any],
) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], tuple[str, ...]]]:
    """The values of a call in one order however it is written, and the names of those that go by name."""
    signature = inspect.signature(function)
    if _is_method(function):
        signature = signature.replace(parameters=tuple(signature.parameters.values())[1:])
    kinds = [each.kind for each in signature.parameters.values()]
    has_one = kinds in ([inspect.Parameter.POSITIONAL_OR_KEYWORD], [inspect.Parameter.POSITIONAL_ONLY])

    def arrange(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        if has_one and len(args) == 1 and not kwargs:
            return args, ()  # nearly all calls: `bind` takes ten times as long
        bound = signature.bind(*args, **kwargs)
        names = tuple(sorted(bound.kwargs))
        return (*bound.args, *(bound.kwargs[name] for name in names)), names

    return arrange
