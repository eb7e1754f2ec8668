"""Whether a proxy still answers: a question that it has under way all the time, and answers once a turn.

The question is answered on the loop that serves, by way of the actor's: both have to turn. What counts is turns of the asking
loop in a row without an answer, not time: a controller that was itself stopped finds the answers before it has counted to the
end. A process that is slow answers late, and the count begins anew; one that ends makes the question fail at once.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from executors.ray_gpu.errors import RayExecutorError
from executors.ray_gpu.patience import proxy_silence_s

T = TypeVar("T")

TURNS = 9


class ProxySilentError(RayExecutorError):
    """A proxy has not answered for too long: its process is stopped, or hangs."""


async def until_silent(actor: Any, silence_s: float | None = None) -> None:
    """Ask a proxy for ever.

    Raises:
        ProxySilentError: It has not answered for so long.
        RayError: It has ended.
    """
    whole_s = proxy_silence_s() if silence_s is None else silence_s
    turn_s, silent = whole_s / TURNS, 0
    asked = asyncio.ensure_future(actor.watch.remote(turn_s))
    try:
        while silent < TURNS:
            await asyncio.wait({asked}, timeout=turn_s)
            if asked.done():
                asked.result()
                asked, silent = asyncio.ensure_future(actor.watch.remote(turn_s)), 0
            else:
                silent += 1
    finally:
        _give_up(asked)
    raise ProxySilentError(f"it has not answered for {whole_s:g} s")


async def while_it_answers(actor: Any, work: Awaitable[T], silence_s: float | None = None) -> T:
    """What something comes to that a proxy takes long for.

    Raises:
        ProxySilentError: It has fallen silent meanwhile.
        RayError: It has ended.
    """
    doing = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(until_silent(actor, silence_s))
    try:
        await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            watching.result()
        return doing.result()
    finally:
        _give_up(doing)
        _give_up(watching)


def _give_up(asked: asyncio.Future[Any]) -> None:
    asked.cancel()
    asked.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
