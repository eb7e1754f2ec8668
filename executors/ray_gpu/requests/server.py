"""A replica's calls: begun, counted, cancelled, and answered through the connection that they came by.

Replica processes import this. All of it runs on the user's thread.
"""

import asyncio
import contextlib
import inspect
import logging
import os
import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from executors.private_folder import bound
from executors.ray_gpu.errors import CallCancelledError, RayExecutorError, RemoteError, as_error
from executors.ray_gpu.metrics.counts import BOUNDS_S, OK, ReplicaCounts
from executors.ray_gpu.requests.actors import dead_among
from executors.ray_gpu.requests.connection import Connection, Mailbox, SocketEnd
from executors.ray_gpu.requests.frames import END, ERROR, ITEM, LARGE, REFUSED, WANT, caller_of
from executors.ray_gpu.requests.granting import Granting
from executors.ray_gpu.requests.inputs import with_inputs
from executors.ray_gpu.requests.packing import NOTHING_SAID, About, Arguments, pack_error, pack_item, pack_value
from executors.ray_gpu.requests.pieces import Body
from executors.ray_gpu.requests.request_context import enter
from executors.ray_gpu.requests.request_ids import FIRST
from executors.ray_gpu.requests.streams import Window, is_stream, items
from executors.ray_gpu.requests.tracing import Span, Tracer, tracer
from executors.ray_gpu.user_code import UserCode, traceback_of

if TYPE_CHECKING:
    from executors.ray_gpu.requests.saying import Saying

LOG = logging.getLogger(__name__)

HTTP = "(http)"
"""In place of a method's name: the arguments are an HTTP request, or the beginning of a websocket."""
CANCEL_S = 1.0
"""Calls that are cut off have so long to end, unless they are synchronous ones: those cannot be cancelled."""
LOOK_S = 0.5
"""How often a replica that drains asks which of its callers on other nodes are dead."""
CONNECT_S = 30.0
"""How long an actor call waits for the connection that it names."""


class TakesAnswers(Protocol):
    """Takes what a call comes to: a connection.

    Attributes:
        names_begin_with: What the caller begins names of calls with that end with their ids; "": it has none.
    """

    names_begin_with: str

    def name_of(self, call_id: int) -> str:
        """What the caller names a call by its id; "": nothing."""

    def answer(self, call_id: int, kind: int, body: Body = b"", large: Any = None) -> None:
        """How it has ended, and a large result."""

    def say(self, call_id: int, kind: int, body: Body = b"") -> None:
        """The next item of its stream."""


class Running:
    """A call that is under way.

    Attributes:
        unwanted: Whether its caller has given it up.
        ended_because: Why somebody else has ended it, of which its caller is told; None: nobody has.
    """

    __slots__ = ("_ask", "_input", "about", "began", "ended_because", "method", "task", "unwanted", "window")

    def __init__(self, ask: Callable[[], None], method: str = "", about: About = NOTHING_SAID) -> None:
        self._ask = ask
        self._input: asyncio.Future[Body] | None = None
        self.method = method
        self.about = about
        self.began = time.monotonic()
        self.unwanted = False
        self.ended_because: str | None = None
        self.window: Window | None = None
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Nobody waits for its answer any more."""
        if not self.unwanted and self.task is not None:
            self.unwanted = True
            self.task.cancel()

    def end(self, why: str) -> None:
        """Somebody else than its caller does not want it to go on."""
        if not self.unwanted and self.ended_because is None and self.task is not None:
            self.ended_because = why
            self.task.cancel()

    def error(self, raised: BaseException) -> BaseException:
        """What its caller is told of what was raised."""
        return raised if self.ended_because is None else CallCancelledError(self.ended_because)

    async def more_input(self) -> Body:
        """What the caller has besides the arguments, piece by piece. One piece is asked for at a time."""
        if self._input is None:
            self._input = asyncio.get_running_loop().create_future()
            self._ask()
        piece = await asyncio.shield(self._input)
        self._input = None
        return piece

    def take_input(self, piece: Body) -> None:
        """It has come."""
        if self._input is not None and not self._input.done():
            self._input.set_result(piece)


def for_a_proxy(error: BaseException) -> Exception:
    """What a proxy can read, which has none of the user's modules."""
    if isinstance(error, RayExecutorError) and type(error).__module__ == RayExecutorError.__module__:
        return error
    return RemoteError(f"user code raised {type(error).__name__}: {error}")


class CallServer:
    """Runs calls, and knows how many are under way.

    Attributes:
        accepting: Whether calls are run; they are refused before the start and once draining is over.
        under_way: How many are being run.
        on_error: Called with whatever user code raises; None: nobody wants to know.
        dead_among: Says which processes are dead; see `actors`.
        counts: Of the calls that have ended.
        max_ongoing_requests: How many are taken at once.
    """

    def __init__(self, user: UserCode, socket_path: str, max_ongoing_requests: int) -> None:
        self.accepting = False
        self.under_way = 0
        self.on_error: Callable[[BaseException], None] | None = None
        self.dead_among = dead_among
        self.counts = ReplicaCounts()
        self._user = user
        self.max_ongoing_requests = max_ongoing_requests
        self._granting: Granting | None = None
        self._socket_path = socket_path
        self._connections: dict[str, Connection] = {}
        self._mailboxes: dict[str, Mailbox] = {}
        self._server: asyncio.Server | None = None
        self._saying: Saying | None = None  # to callers that want to know what this replica has
        self._parting = False
        self._idle = asyncio.Event()
        self._joined = asyncio.Event()

    async def listen(self) -> None:
        """Open the socket, if there is to be one; only this user's processes may connect."""
        self._granting = Granting(
            self.max_ongoing_requests
        )  # which imports the core's part of it, for which the first caller would wait
        if self._socket_path:
            loop, opened = asyncio.get_running_loop(), bound(Path(self._socket_path))
            self._server = await loop.create_unix_server(lambda: SocketEnd(self), sock=opened, backlog=512)

    async def drain(self) -> None:
        """Say goodbye to all callers, and return when every call that they sent is answered and they have the answers.

        Repeatable.
        """
        self._parting = True
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._socket_path)
        for connection in tuple(self._connections.values()):
            connection.say_goodbye()
        looking = asyncio.get_running_loop().create_task(self._hang_up_on_the_dead())
        try:
            while self.under_way or any(
                not each.has_parted or each.has_results or each.has_letters for each in self._connections.values()
            ):
                self._idle.clear()
                await self._idle.wait()
        finally:
            looking.cancel()
        self.accepting = False

    async def _hang_up_on_the_dead(self) -> None:
        """Who has called from another node and is dead has no socket that would end: Ray is asked."""
        while True:
            await asyncio.sleep(LOOK_S)
            callers = {key: worker_id for key in self._mailboxes if (worker_id := caller_of(key))}
            try:
                dead = await asyncio.to_thread(self.dead_among, set(callers.values())) if callers else set()
            except Exception as error:  # Ray raises whatever its connection raises; it is asked again
                LOG.debug("Ray does not say which callers are dead: %s", error)
                continue
            for key in [key for key, worker_id in callers.items() if worker_id in dead and key in self._mailboxes]:
                self._mailboxes[key].hang_up()

    async def part_if_idle(self) -> bool:
        """Take no call any more, unless one is under way; says whether that is so."""
        if self.under_way == 0:
            self.accepting = False
        return self.under_way == 0

    async def close(self) -> bool:
        """Hang up on all callers, whose calls are cancelled if they still run; whether all have ended then."""
        self.accepting = False
        if self._saying is not None:
            self._saying.end()
        for connection in tuple(self._connections.values()):
            connection.hang_up()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                while self.under_way:
                    self._idle.clear()
                    await self._idle.wait()
        return self.under_way == 0

    # -- connections

    def joined(self, connection: Connection) -> None:
        """A caller has connected."""
        self._connections[connection.key] = connection
        self._joined.set()
        self.granting.joined(connection)
        if self._parting:
            connection.say_goodbye()

    @property
    def granting(self) -> Granting:
        """How many calls of each caller are taken at once."""
        if self._granting is None:
            self._granting = Granting(self.max_ongoing_requests)
        return self._granting

    def left(self, connection: Connection) -> None:
        """A caller is gone."""
        if self._connections.get(connection.key) is connection:
            del self._connections[connection.key]
            self.granting.lost(connection.key)
            if self._saying is not None:
                self._saying.left(connection.key)
        self.look_whether_idle()

    def watch(self, connection: Connection, period_s: float, timeout_s: float) -> None:
        """A caller wants to know what this replica has, which is to be looked at so often."""
        if self._saying is None:
            from executors.ray_gpu.requests.saying import Saying  # only who is asked needs it

            self._saying = Saying(lambda: self._user.instance)
        self._saying.listens(connection, period_s, timeout_s)

    def look_whether_idle(self) -> None:
        """Whoever waits for the last answer or goodbye is to look again."""
        self._idle.set()

    def mailbox(self, key: str) -> Mailbox:
        """The connection that a caller on another node has by actor calls."""
        mailbox = self._mailboxes.get(key)
        if mailbox is None:
            mailbox = self._mailboxes[key] = Mailbox(self, key)
        return mailbox

    def emptied(self, key: str) -> None:
        """Nobody comes to this mailbox any more."""
        self._mailboxes.pop(key, None)

    async def hear(self, key: str, heard: int) -> tuple[int, bytes]:
        """What there is for a caller on another node."""
        return await self.mailbox(key).hear(heard)

    async def call_large(self, key: str, call_id: int, method: str, arguments: Arguments, about: tuple[Any, ...]) -> None:
        """Begin a call that came by an actor call, since its arguments are large."""
        connection = await self._connection(key)
        if connection is not None:
            connection.call_large(call_id, method, arguments, About(*about))

    async def fetch(self, key: str, call_id: int) -> Any:
        """A large result.

        Raises:
            LookupError: It was given up.
        """
        connection = self._connections.get(key)
        if connection is None:
            raise LookupError("nobody is connected who could have asked for this result")
        return connection.fetch(call_id)

    async def _connection(self, key: str) -> Connection | None:
        """A connection by its key, which may be about to come; None: it has not come, or is gone."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                while key not in self._connections:
                    self._joined.clear()
                    await self._joined.wait()
        return self._connections.get(key)

    async def requests(self) -> list[dict[str, Any]]:
        """The calls that are under way, the oldest first: as plain data, for other releases."""
        now = time.monotonic()
        found = [
            {
                "key": connection.key,
                "call_id": call_id,
                "method": running.method,
                "request_id": running.about.request_id or connection.name_of(call_id),
                "model_id": running.about.model_id,
                "stream": running.about.stream,
                "age_s": now - running.began,
            }
            for connection in self._connections.values()
            for call_id, running in connection.running.items()
        ]
        return sorted(found, key=lambda each: -each["age_s"])

    async def end_request(self, key: str, call_id: int, why: str) -> bool:
        """End a call that is under way, whose caller is told why; whether there is such a call."""
        connection = self._connections.get(key)
        running = connection.running.get(call_id) if connection is not None else None
        if running is not None:
            running.end(why)
        return running is not None

    def limit(self, max_ongoing_requests: int) -> None:
        """Take so many calls at once from now on."""
        self.max_ongoing_requests = max_ongoing_requests
        if self._granting is not None:
            self._granting.limit(max_ongoing_requests)

    # -- calls

    def begin(self, connection: Connection, call_id: int, method: str, arguments: Arguments, about: About) -> Running | None:
        """Begin a call; None: it is refused, and was told so."""
        if not self.accepting or not self.granting.take(connection.key):
            connection.answer(call_id, REFUSED)
            return None
        self.under_way += 1
        running = Running(partial(connection.say, call_id, WANT), method, about)
        running.task = asyncio.get_running_loop().create_task(self.run(connection, call_id, running, method, arguments, about))
        running.task.add_done_callback(partial(self._ended, connection, call_id, running))
        return running

    async def run(
        self, connection: TakesAnswers, call_id: int, running: Running, method: str, arguments: Arguments, about: About
    ) -> None:
        """Run a call, and say there what it comes to."""
        ended, tracing = OK, tracer()
        if not about.request_id and (self._user.access_log is not None or tracing is not None):
            about = about._replace(request_id=connection.name_of(call_id))  # it is written down in any case
        span = self._span(tracing, method, about) if tracing is not None else None
        try:
            if about.request_id:
                enter(about.request_id, about.model_id)
            elif call_id >= FIRST:
                enter(connection.names_begin_with, about.model_id, call_id)
            elif about.model_id:
                enter("", about.model_id)
            if method == HTTP:
                return await self._http(connection, call_id, running, arguments)
            result = await self._call(method, with_inputs(arguments, running.more_input))
            if about.stream:
                await self._stream(connection, call_id, running, method, result, about.encoding)
            elif is_stream(result):
                raise TypeError(f"{method} returned a generator: call it with handle.options(stream=True)")
            else:
                kind, body = pack_value(result, about.encoding)
                connection.answer(call_id, kind, body, result if kind == LARGE else None)
        except BaseException as error:
            ended = type(error).__name__
            if self.on_error is not None:
                self.on_error(error)
            if not running.unwanted:
                # No name may keep it: it holds this frame, and the user's with all that is in them.
                told = running.error(error)
                kind, body = pack_error(for_a_proxy(told) if method == HTTP else as_error(told), traceback_of(error))
                del told
                connection.answer(call_id, kind, body)
        finally:
            latency_s = time.monotonic() - running.began
            if ended is OK and method != HTTP and self._user.access_log is None:
                latency = self.counts.by_handle.latency
                latency.counts[bisect_left(BOUNDS_S, latency_s)] += 1
                latency.sum += latency_s
            else:
                self._note(running, method, arguments, about, ended, latency_s)
            if span is not None:
                span.end("" if ended == OK else ended)

    def _span(self, tracing: Tracer, method: str, about: About) -> Span | None:
        deployment = self._user.code.deployment
        said = {"request_id": about.request_id, "deployment": deployment}
        return tracing.serves(f"{deployment} {method}", about.trace, said)

    def _note(self, running: Running, method: str, arguments: Arguments, about: About, ended: str, latency_s: float) -> None:
        """A call has ended: count it, and write it down where that is wanted."""
        access = self._user.access_log
        if method != HTTP:
            self.counts.ended("", ended, latency_s)
            if access is not None:
                access.note("CALL", method, ended, latency_s, about.request_id)
            return
        scope = arguments[0][0]
        self.counts.ended(scope.get("root_path") or "/", ended, latency_s)
        if access is not None:
            said = running.window.status if running.window is not None and ended == OK else None
            access.note(scope.get("method", "WS"), scope["path"], str(said or ended), latency_s, about.request_id)

    def _ended(self, connection: Connection, call_id: int, running: Running, task: "asyncio.Task[None]") -> None:
        """A task that is cancelled before it begins does not run at all: what has to be done at the end is done here."""
        self.under_way -= 1
        self.granting.ended(connection.key)
        connection.ended(call_id)
        if running.unwanted:
            connection.answer(call_id, END)
        elif running.ended_because is not None and task.cancelled():
            connection.answer(call_id, *pack_error(CallCancelledError(running.ended_because), ""))
        self.look_whether_idle()

    async def _call(self, method: str, arguments: Arguments) -> Any:
        function, is_async = self._user.method(method)
        args, kwargs = arguments
        result = function(*args, **kwargs) if is_async else await self._user.threads.run(function, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def _http(self, connection: TakesAnswers, call_id: int, running: Running, arguments: Arguments) -> None:
        from executors.ray_gpu.http.replica_side import answer_http  # where there is HTTP, there is Starlette

        (scope, body, has_more), _ = arguments
        running.window = window = Window(partial(connection.say, call_id))
        whole = await answer_http(self._user, scope, body, has_more, running.more_input, window)
        connection.answer(call_id, *(pack_item(whole) if whole is not None else (END,)))

    async def _stream(
        self, connection: TakesAnswers, call_id: int, running: Running, method: str, result: Any, encoding: str
    ) -> None:
        if not is_stream(result):
            raise TypeError(f"{method} returned {type(result).__name__}, not a generator: call it without stream=True")
        running.window = window = Window(partial(connection.say, call_id))
        async with contextlib.aclosing(items(result, self._user.threads)) as each:
            async for item in each:
                if window.is_full:
                    await window.room()
                kind, body = pack_item(item, encoding)
                if kind == ERROR:
                    return connection.answer(call_id, kind, body)
                window.send(ITEM, body)
        connection.answer(call_id, END)
