"""A replica's side of the connections from handles: takes calls, runs them on the user's thread, sends the answers.

Replica processes import this. All of it runs on the user's thread.
"""

import asyncio
import contextlib
import inspect
import os
import pickle
from collections.abc import Awaitable
from typing import Any, cast

from executors.ray_gpu.user_code import UserCode, as_error, traceback_of
from executors.ray_gpu.wire import ANSWER, BUSY, GOODBYE, REQUEST, Frames, pack_error, pack_value


class CallServer:
    """Runs calls, and knows how many are under way.

    Attributes:
        accepting: Whether calls are run; they are refused before the start and once draining is over.
        served_over_ray: How many calls came as actor calls, which have no goodbye of their own.
    """

    def __init__(self, user: UserCode, socket_path: str) -> None:
        self.accepting = False
        self.served_over_ray = 0
        self._user = user
        self._socket_path = socket_path
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._under_way = 0
        self._idle = asyncio.Event()

    async def listen(self) -> None:
        """Open the socket; only this user's processes may connect."""
        mask = os.umask(0o177)
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(lambda: Connection(self), self._socket_path, backlog=512)
        finally:
            os.umask(mask)

    async def drain(self) -> None:
        """Say goodbye to all callers and return when every request that they sent is answered. Repeatable."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._socket_path)
        for connection in tuple(self._connections):
            connection.say_goodbye()
        while self._under_way or any(not each.heard_goodbye for each in self._connections):
            self._idle.clear()
            await self._idle.wait()
        self.accepting = False

    def run(self, request: bytes) -> "tuple[int, bytes] | Awaitable[tuple[int, bytes]]":
        """Run one call; the answer, or what will become it."""
        if not self.accepting:
            return BUSY, b""
        try:
            method, args, kwargs = pickle.loads(request)
            result = self._user.method(method)(*args, **kwargs)
        except BaseException as error:
            return pack_error(as_error(error), traceback_of(error))
        if inspect.isawaitable(result):
            return self._finish(result)
        return pack_value(result)

    async def _finish(self, result: Awaitable[Any]) -> tuple[int, bytes]:
        try:
            return pack_value(await result)
        except BaseException as error:
            return pack_error(as_error(error), traceback_of(error))

    async def run_for_ray(self, request: bytes) -> tuple[int, bytes]:
        """Run a call that came as an actor call."""
        self.served_over_ray += 1
        self.begin()
        try:
            answer = self.run(request)
            return await answer if inspect.isawaitable(answer) else answer
        finally:
            self.end()

    def begin(self) -> None:
        """A call is under way."""
        self._under_way += 1

    def end(self) -> None:
        """A call is answered."""
        self._under_way -= 1
        self.look_whether_idle()

    def look_whether_idle(self) -> None:
        """Whoever waits for the last answer or goodbye is to look again."""
        self._idle.set()

    def joined(self, connection: "Connection") -> None:
        """A caller has connected."""
        self._connections.add(connection)

    def left(self, connection: "Connection") -> None:
        """A caller is gone."""
        self._connections.discard(connection)
        self.look_whether_idle()


class Connection(asyncio.Protocol):
    """One caller's connection. Answers that become ready together leave in one write."""

    def __init__(self, server: CallServer) -> None:
        self.heard_goodbye = False
        self._server = server
        self._frames = Frames(REQUEST, self._request)
        self._transport: asyncio.Transport | None = None
        self._answers: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._server.joined(self)

    def connection_lost(self, _: Exception | None) -> None:
        """The caller is gone; its calls run on, and nobody hears their answers."""
        self._transport = None
        self._server.left(self)

    def data_received(self, data: bytes) -> None:
        """Requests have come in."""
        self._frames.feed(data)

    def say_goodbye(self) -> None:
        """Ask the caller to send nothing more."""
        self._answer(GOODBYE, (BUSY, b""))

    def _request(self, header: tuple[Any, ...], body: bytes) -> None:
        (call_id,) = header
        if call_id == GOODBYE:
            self.heard_goodbye = True
            self._server.look_whether_idle()
            return
        self._server.begin()
        answer = self._server.run(body)
        if isinstance(answer, tuple):
            self._answer(call_id, answer)
            self._server.end()
        else:
            task = asyncio.ensure_future(answer)
            task.add_done_callback(lambda done: self._done(call_id, done))

    def _done(self, call_id: int, task: "asyncio.Future[tuple[int, bytes]]") -> None:
        if not task.cancelled():
            self._answer(call_id, task.result())
        self._server.end()

    def _answer(self, call_id: int, answer: tuple[int, bytes]) -> None:
        kind, payload = answer
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._flush)
        self._answers.append(ANSWER.pack(len(payload), call_id, kind))
        self._answers.append(payload)

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        if self._transport is not None:
            self._transport.write(b"".join(answers))
