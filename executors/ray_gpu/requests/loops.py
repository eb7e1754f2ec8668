"""Event loops. Replica processes import this."""

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed: it takes half as long for what goes over a socket."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
