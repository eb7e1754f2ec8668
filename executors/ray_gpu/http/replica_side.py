"""The replica's end of HTTP: runs the ingress application, or makes a response of what a method returns.

All of it runs on the user's event loop.
"""

import asyncio
import inspect
import logging
import math
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from executors.ray_gpu.http.held_threads import hold_threads
from executors.ray_gpu.http.ingress import app_of
from executors.ray_gpu.http.lifespan import lifespan_of
from executors.ray_gpu.requests.frames import ITEM, PIECE
from executors.ray_gpu.requests.pieces import Body, dumped, loaded
from executors.ray_gpu.requests.streams import Window, is_stream, items
from executors.ray_gpu.requests.threads import until_ended
from executors.ray_gpu.user_code import UserCode

LOG = logging.getLogger(__name__)

RAISES_WITHIN_S = 1.0

Message = dict[str, Any]
App = Callable[..., Awaitable[None]]

BODIES = ("http.response.body", "websocket.http.response.body")

_apps: dict[UserCode, App] = {}


async def answer_http(
    user: UserCode, scope: Message, body: bytes, has_more: bool, more_input: Callable[[], Awaitable[Body]], window: Window
) -> list[Message] | None:
    """Run the application for one request.

    Args:
        scope: As ASGI has it.
        body: The first piece of the body.
        has_more: Whether there is more of it.
        more_input: Asks the proxy for the next message of the client.
        window: Takes the response where it comes piece by piece.

    Returns:
        The messages of the response if it is complete at once; None: they were sent as they came.
    """
    app = _apps.get(user)
    lifespan = lifespan_of(user)
    if app is None:
        hold_threads()
        app = _apps[user] = lifespan.app if lifespan is not None else app_of(user.instance) or _Plain(user)
    if lifespan is not None:
        scope = {**scope, "state": dict(lifespan.state)}
    exchange = _Exchange(body, has_more, more_input, window, is_websocket=scope["type"] == "websocket")
    exchange.task = asyncio.get_running_loop().create_task(exchange.run(app, scope))
    return await exchange.answer()


class _Exchange:
    """What an application is called with, and what it says."""

    task: "asyncio.Task[None]"

    def __init__(
        self, body: bytes, has_more: bool, more_input: Callable[[], Awaitable[Body]], window: Window, *, is_websocket: bool
    ) -> None:
        first = {"type": "websocket.connect"} if is_websocket else _body(body, has_more)
        self._first: Message | None = first
        self._more_input = more_input
        self._window = window
        self._said: list[Message] = []  # until it is clear that something has to be sent before the end
        self._sends = False
        self._news = asyncio.Event()
        self._complete = False

    async def run(self, app: App, scope: Message) -> None:
        """Run the application. That a client has hung up is no mistake of a websocket's."""
        try:
            await app(scope, self._receive, self._send)
        except WebSocketDisconnect:
            if scope["type"] != "websocket":
                raise
            self._complete = True
        finally:
            self._news.set()

    async def answer(self) -> list[Message] | None:
        """The whole response, if the application is done with it before anything has to be sent."""
        try:
            while not self.task.done() and not self._complete and not self._has_to_go:
                self._news.clear()
                await self._news.wait()
        except asyncio.CancelledError:
            await self._give_up()
            raise
        may_raise = not self._complete
        if self._complete and self._said and self._said[0].get("status") == 500:
            # Starlette answers what its routes raise with a page that says nothing, and then raises it.
            await asyncio.wait([self.task], timeout=RAISES_WITHIN_S)
            may_raise = True
        if self.task.done() and may_raise:
            self.task.result()
        if self.task.done() or self._complete:
            self._let_go_on()
            return self._said
        await self._stream()
        return None

    async def _stream(self) -> None:
        """Send what was said, and let the application send the rest itself."""
        try:
            self._sends = True
            for message in self._said:
                self._pass_on(message)
            while not self._complete and not self.task.done():
                self._news.clear()
                await self._news.wait()
            if not self._complete:
                self.task.result()  # what it raised
        finally:
            if self._complete:
                self._let_go_on()
            else:
                await self._give_up()

    async def _give_up(self) -> None:
        """Nobody waits for the response any more; what the application does yet counts until its end."""
        self.task.cancel()
        await until_ended(self.task)

    def _let_go_on(self) -> None:
        """The application may have something to do after its response, and may fail at it."""
        _going_on.add(self.task)
        self.task.add_done_callback(_has_gone_on)

    @property
    def _has_to_go(self) -> bool:
        """Whether the client should see what was said, though there is more to come. Headers alone wait for a body."""
        return bool(self._said) and self._said[-1]["type"] != "http.response.start"

    async def _receive(self) -> Message:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        message: Message = loaded(await self._more_input())
        return message

    async def _send(self, message: Message) -> None:
        if self._complete:
            return  # it goes on after its end, which is nobody's business
        kind = message["type"]
        if kind == "http.response.start":
            self._window.status = message["status"]
        is_last = kind == "websocket.close" or (kind in BODIES and not message.get("more_body", False))
        if self._sends:
            self._pass_on(message)
        else:
            self._said.append(message)
            self._news.set()
        if is_last:
            self._complete = True
            self._news.set()
        elif self._window.is_full:
            await self._window.room()
        else:
            await asyncio.sleep(0)  # lets it be sent

    def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("more_body", False):
            body = message.get("body", b"")
            self._window.send(PIECE, body if type(body) is bytes else bytes(memoryview(body)))
        else:
            self._window.send(ITEM, dumped([message], pickle.Pickler, math.inf))


_going_on: "set[asyncio.Task[None]]" = set()


def _has_gone_on(task: "asyncio.Task[None]") -> None:
    _going_on.discard(task)
    if not task.cancelled() and task.exception() is not None:
        LOG.error("an application has failed after its response", exc_info=task.exception())


def _body(body: bytes, has_more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": has_more}


def takes_arguments(function: Callable[..., Any]) -> bool:
    """Whether a function, or an object that can be called, takes any argument; what nobody can say is taken for one."""
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


class _Plain:
    """The application of a deployment without an ingress: its `__call__` takes a Starlette request, or nothing at all."""

    def __init__(self, user: UserCode) -> None:
        self._user = user
        self._takes_request: bool | None = None  # not looked yet

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003, "reason": "this deployment has no websockets"})
            return
        function, is_async = self._user.method("__call__")
        if self._takes_request is None:
            self._takes_request = takes_arguments(function)
        request = Request(scope, receive, send)
        arguments = (request,) if self._takes_request else ()
        if not is_async and arguments:
            await request.body()  # a thread cannot wait for it
        result = function(*arguments) if is_async else await self._user.threads.run(function, *arguments)
        if inspect.isawaitable(result):
            result = await result
        await self._response(result)(scope, receive, send)

    def _response(self, result: Any) -> Response:
        """Text for text, bytes for bytes, a stream for a generator, JSON for the rest."""
        if isinstance(result, Response):
            return result
        if isinstance(result, str):
            return PlainTextResponse(result)
        if isinstance(result, bytes):
            return Response(result, media_type="application/octet-stream")
        if is_stream(result):
            return StreamingResponse(items(result, self._user.threads), media_type="text/plain")
        return JSONResponse(result)
