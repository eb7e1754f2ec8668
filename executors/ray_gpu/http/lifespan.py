"""The lifespan of an ASGI application: its start-up before its replica is ready, its shutdown when that stops.

Runs on the user's event loop, and in one task from beginning to end, as applications expect. Source: the ASGI specification,
"Lifespan Protocol", version 2.0.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from executors.ray_gpu.http.ingress import app_of
from executors.ray_gpu.user_code import UserCode, finished

LOG = logging.getLogger(__name__)


class LifespanError(Exception):
    """An application has said that its start-up or shutdown has failed, without raising anything."""


class Lifespan:
    """One application's.

    Attributes:
        app: The application.
        state: What the application has put there at its start-up; each of its requests gets a copy.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app
        self.state: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def start(self) -> None:
        """Run the start-up. Nothing happens if the application knows no lifespan, which it says by raising.

        Raises:
            Exception: What the start-up raised.
            LifespanError: It has failed without raising.
        """
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        self._task = asyncio.get_running_loop().create_task(self._run(scope))
        said = await self._exchange("lifespan.startup")
        if said is None:
            error = self._task.exception()
            LOG.info("the application has no lifespan: %r", error)
        elif said["type"] == "lifespan.startup.failed":
            await self._fail("start-up", said)

    async def end(self) -> None:
        """Run the shutdown, if there was a start-up.

        Raises:
            Exception: What the shutdown raised.
            LifespanError: It has failed without raising.
        """
        if self._task is None or self._task.done():
            return
        said = await self._exchange("lifespan.shutdown")
        if said is None or said["type"] == "lifespan.shutdown.failed":
            await self._fail("shutdown", said or {})

    async def _run(self, scope: dict[str, Any]) -> None:
        await finished(self.app, scope, self._told.get, self._said.put)

    async def _exchange(self, kind: str) -> dict[str, Any] | None:
        """Tell it something; what it says to that, or None if it ends without a word."""
        assert self._task is not None, "it was started"
        self._told.put_nowait({"type": kind})
        answer = asyncio.ensure_future(self._said.get())
        await asyncio.wait([answer, self._task], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        answer.cancel()
        return self._said.get_nowait() if self._said.qsize() else None

    async def _fail(self, what: str, said: dict[str, Any]) -> None:
        assert self._task is not None, "it was started"
        await self._task  # which most raise in
        raise LifespanError(f"the application's {what} has failed: {said.get('message', '')}")


_lifespans: dict[UserCode, Lifespan] = {}


async def begin(user: UserCode) -> Lifespan:
    """Run the start-up of the application in front of a user's object, whose methods are bound to it by then.

    Raises:
        Exception: The start-up has failed.
    """
    lifespan = _lifespans[user] = Lifespan(app_of(user.instance))
    await lifespan.start()
    return lifespan


def lifespan_of(user: UserCode) -> Lifespan | None:
    """What `begin` has begun."""
    return _lifespans.get(user)
