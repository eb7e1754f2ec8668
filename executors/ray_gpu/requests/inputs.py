"""An argument that comes message by message: asked for in the replica, given by the caller. Replica processes import this."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from executors.ray_gpu.requests.packing import Arguments, dumps
from executors.ray_gpu.requests.pieces import Body, loaded


class InputsToCome(NamedTuple):
    """In the place of the argument, on its way."""


def message(value: Any) -> Body:
    """The next one."""
    return dumps((True, value))


def no_more(problem: str = "") -> Body:
    """There is none any more; because of a problem, which the method is told, or of the end: ""."""
    return dumps((False, problem))


class Inputs:
    """What a method gets: iterate, with `async for`. A message is asked for when it is wanted, so that one waits at most."""

    def __init__(self, ask: Callable[[], Awaitable[Body]]) -> None:
        self._ask = ask
        self._ended = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._ended:
            raise StopAsyncIteration
        has_come, value = loaded(await self._ask())
        if has_come:
            return value
        self._ended = True
        if value:
            raise ValueError(value)
        raise StopAsyncIteration


def with_inputs(arguments: Arguments, ask: Callable[[], Awaitable[Body]]) -> Arguments:
    """A call's arguments, with what comes later in its place: it is the first one, if any."""
    args, kwargs = arguments
    if args and type(args[0]) is InputsToCome:
        return (Inputs(ask), *args[1:]), kwargs
    return arguments
