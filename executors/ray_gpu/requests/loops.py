"""Event loops. Replica processes import this."""

import asyncio

from executors.ray_gpu.errors import InvalidCallError


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed: it takes half as long for what goes over a socket."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def refuse_to_block(what: str, instead: str) -> None:
    """Say that this way of waiting is none where an event loop runs, whether what is waited for is there or not.

    The loop would do nothing meanwhile: a replica answers no other call, and one that waits for itself waits for ever.

    Raises:
        InvalidCallError: An event loop runs in this thread.
    """
    if asyncio._get_running_loop() is not None:
        raise InvalidCallError(f"{what} would block the event loop that this code runs on: use {instead}")
