"""One request, or one websocket, on its way through a proxy. All of it runs on the routers' thread."""

import asyncio
import logging
import math
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from executors.ray_gpu.errors import CallError, DeadlineError, OverloadedError
from executors.ray_gpu.http.budget import Account, OpenBodies
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.protocol import ACCOUNT, HAS_COME, IS_GONE, WRITE_CHUNKS
from executors.ray_gpu.http.refusals import BodyTooLargeError, OpenBodiesError, Refusal, SlowBodyError, refusal_of, trace_of
from executors.ray_gpu.requests.call import Call, Wishes
from executors.ray_gpu.requests.frames import ERROR
from executors.ray_gpu.requests.packing import About, pack_plain, unpack
from executors.ray_gpu.requests.pieces import Body, dumped, loaded
from executors.ray_gpu.requests.received import TELL_BYTES
from executors.ray_gpu.requests.server import HTTP
from executors.ray_gpu.requests.streams import ITEM_BYTES, weight_bytes
from executors.ray_gpu.requests.tracing import TRACEPARENT, tracer

LOG = logging.getLogger(__name__)

WATCH_AFTER_S = 0.1
"""From then on it is looked whether the client is still there; most requests are answered before."""
WRITE_BYTES = 64 * 1024
"""About so much of a response is written together: its client may be slow."""
ASGI = {"version": "3.0", "spec_version": "2.4"}
"""Of applications: one whose client has left is cancelled, and so need not listen for that beside its work."""
AHEAD_BYTES = 256 * 1024
"""So much of a body may wait here for the replica to ask for it."""
REASON_BYTES = 120
"""Of a websocket's end: RFC 6455 has room for 123."""

Message = dict[str, Any]
SCOPE_KEYS = (
    "type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers", "client",
    "server", "subprotocols", "extensions",
)  # fmt: skip
SAID_STATUS = "rankcore.status"
"""In the scope of a request: what its client was answered."""
STARTS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
SWITCHED = 101
"""The status of a websocket that was accepted."""
MODEL_HEADER = b"serve_multiplexed_model_id"
"""As in Ray Serve."""


class Submits(Protocol):
    """A router."""

    def submit_here(self, call: Call) -> None:
        """Begin a call."""


class Exchange:
    """Sends a request to a replica and its answer to the client, piece by piece; also a call's sink and source."""

    def __init__(
        self, scope: Message, receive: Any, send: Any, request_id: str, options: HttpOptions, open_bodies: OpenBodies
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._options = options
        self._open_bodies = open_bodies
        self._is_open = False  # whether its body is one of them
        self._is_websocket = scope["type"] == "websocket"
        self._items: deque[tuple[bool, Body]] = deque()  # whether it is bytes of the body; else messages
        self._ended = False
        self._failure: Exception | Body | None = None
        self._news: asyncio.Future[None] | None = None
        self._pull: Callable[[int], object] = lambda _: None
        self._untold_bytes = 0
        self._begun = False
        self._left = False
        self._is_gone: Callable[[], bool] = scope.get(IS_GONE, lambda: False)
        self._write_chunks: Callable[[list[Body]], bool] = scope.pop(WRITE_CHUNKS, lambda _: False)
        self._ahead: deque[Body] = deque()
        self._ahead_bytes = 0
        self._body_is_here = self._is_websocket
        self._body_bytes = 0
        self._body_waited_s = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._give: Callable[[Body], None] | None = None
        self._call = Call(HTTP, About(request_id, _header(scope, MODEL_HEADER), True), self._wishes())
        self._call.stream = self
        self._call.source = self

    async def run(self, router: Submits) -> None:
        """Serve it to its end."""
        if (tracing := tracer()) is None:
            return await self._run(router)
        scope, parent = self._scope, _header(self._scope, TRACEPARENT.encode())
        name = f"{scope.get('method', 'WS')} {scope.get('root_path') or '/'}"
        span = tracing.serves(name, parent, {"request_id": self._request_id, "url.path": scope["path"]})
        self._call.about = self._call.about._replace(trace=span.traceparent)
        try:
            await self._run(router)
        finally:
            status = scope.get(SAID_STATUS)
            span.end("" if status is not None and status < 500 else f"status {status}")

    async def _run(self, router: Submits) -> None:
        try:
            first = await self._request()
            if first is None:
                return
            self._call.packed = first
            await self._ask(router)
        except CallError as error:
            await self._fail(error)
        finally:
            self._call.stream = self._call.source = None  # else they hold each other, for the garbage collector to find
            self._body_has_ended()
            account: Account | None = self._scope.get(ACCOUNT)
            if account is not None:
                account.hold(0)

    async def _ask(self, router: Submits) -> None:
        watch_s, on_time = WATCH_AFTER_S, self._watch
        if self._is_websocket:
            watch_s, on_time = self._options.websocket_accept_timeout_s, self._look_whether_accepted
        watch = asyncio.get_running_loop().call_later(watch_s, on_time)
        try:
            router.submit_here(self._call)
            await self._answer()
        finally:
            watch.cancel()
            self._call.cancel()
            if self._reading is not None:
                self._reading.cancel()

    # -- the request

    async def _request(self) -> Body | None:
        """What a replica is to get first: with the body, or as much of it as a replica does not have to wait for; None: the
        client has left.

        Raises:
            CallError: There will be no such request.
        """
        announced = _header(self._scope, b"content-length")
        if announced.isdigit() and not self._is_in_bounds(int(announced)):
            raise self._too_large()
        self._body_bytes = 0
        if HAS_COME in self._scope and not self._scope[HAS_COME]():
            self._enter()
        first = await self._next_message()
        if first["type"] == "http.disconnect":
            return None
        body: bytes | None = first.get("body", b"")
        if not self._is_websocket:
            self._take_note_of(first)
            if not self._body_is_here:
                body = await self._more_of(first)
        scope = {key: self._scope[key] for key in SCOPE_KEYS if key in self._scope} | {"asgi": ASGI}
        return None if body is None else pack_plain(HTTP, ((scope, body, not self._body_is_here), {}), self._call.about)

    async def _more_of(self, message: Message) -> bytes | None:
        """The whole body, of a large one a part, while no replica waits for it; None: the client has left."""
        self._enter()
        pieces = [message["body"]]
        while not self._body_is_here and self._body_bytes < self._options.hold_body_bytes:
            message = await self._next_message()
            if message["type"] == "http.disconnect":
                return None
            self._take_note_of(message)
            pieces.append(message["body"])
        return b"".join(pieces)

    def _take_note_of(self, message: Message) -> None:
        """A piece of the body has come.

        Raises:
            BodyTooLargeError: It is too much by now.
        """
        if not self._is_in_bounds(len(message.get("body", b""))):
            raise self._too_large()
        if not message.get("more_body", False):
            self._body_is_here = True
            self._body_has_ended()

    def _enter(self) -> None:
        """The body is one of those that are on their way.

        Raises:
            OpenBodiesError: Its address has too many of them.
        """
        address = self._address()
        if not self._is_open and not self._open_bodies.enter(address):
            raise OpenBodiesError(f"{self._open_bodies.limit} bodies from {address} are on their way already")
        self._is_open = True

    def _body_has_ended(self) -> None:
        """It is here, or nobody waits for it any more."""
        if self._is_open:
            self._is_open = False
            self._open_bodies.leave(self._address())

    def _address(self) -> str:
        client = self._scope.get("client")
        return client[0] if client else ""

    def _look_whether_accepted(self) -> None:
        if not self._begun:
            timeout_s = self._options.websocket_accept_timeout_s
            self.fail(DeadlineError(f"the websocket was not accepted within {timeout_s:g} s"))

    # -- the answer

    async def _answer(self) -> None:
        while True:
            while self._items:
                is_piece, item = self._items.popleft()
                if is_piece:
                    await self._say_pieces(item)
                    continue
                for message in unpack_messages(item):
                    await self._say(message)
                self._has_taken(weight_bytes(item))
            if self._ended:
                break
            self._news = asyncio.get_running_loop().create_future()
            await self._news
            self._news = None
        if self._failure is not None:
            await self._fail(self._failure)
        elif not self._begun and not self._left:
            await self._fail(CallError("the application has ended without an answer"))

    async def _say_pieces(self, first: Body) -> None:
        """Send what there is of the body: each piece is a chunk of its own, and many are one write."""
        items, pieces, size_bytes = self._items, [first], weight_bytes(first)
        while items and items[0][0] and size_bytes < WRITE_BYTES:
            piece = items.popleft()[1]
            pieces.append(piece)
            size_bytes += len(piece) + ITEM_BYTES
        if self._write_chunks(pieces):
            if self._is_gone():
                self._leave()
        else:
            for piece in pieces:
                await self._say({"type": "http.response.body", "body": bytes(piece), "more_body": True})
        self._has_taken(size_bytes)

    def _has_taken(self, size_bytes: int) -> None:
        self._untold_bytes += size_bytes
        if self._untold_bytes >= TELL_BYTES:
            self._pull(self._untold_bytes)
            self._untold_bytes = 0

    async def _say(self, message: Message) -> None:
        if message["type"] in STARTS:
            headers = [header for header in message.get("headers", ()) if header[0].lower() != b"x-request-id"]
            message["headers"] = [*headers, (b"x-request-id", self._request_id.encode())]
            self._begun = True
            self._scope[SAID_STATUS] = message.get("status", SWITCHED)
        elif message["type"] == "websocket.close":
            self._begun = True  # a refusal, if it was not accepted
        await self._send(message)
        if self._is_gone() and not self._is_complete(message):
            self._leave()  # uvicorn says it to readers alone, and sends to nobody

    async def _fail(self, failure: Exception | Body) -> None:
        error, traceback = (failure, None) if isinstance(failure, Exception) else _opened(failure)
        if traceback is not None:
            LOG.error("request %s to %r failed\n%s", self._request_id, self._scope["path"], traceback)
        debug = self._options.debug
        await self._refuse(refusal_of(error, self._request_id, traceback if debug else None, debug))

    async def _refuse(self, refusal: Refusal) -> None:
        if not self._begun:
            await refuse(self._scope, self._send, refusal, self._request_id)
        elif self._is_websocket:
            reason = refusal.text.strip().encode()[:REASON_BYTES].decode(errors="ignore")
            await self._send({"type": "websocket.close", "code": 1011, "reason": reason})
        # else the connection is closed, which tells the client that the response is not complete

    # -- as the call's sink

    def begin(self, pull: Callable[[int], object]) -> None:
        """A replica has begun to answer."""
        self._pull = pull

    def put(self, item: Body) -> None:
        """Some messages of the response."""
        self._items.append((False, item))
        self._wake()

    def put_piece(self, piece: Body) -> None:
        """Some bytes of its body."""
        self._items.append((True, piece))
        if self._news is not None:
            self._wake()

    def end(self, error: Body | None = None) -> None:
        """There are no more."""
        self._ended, self._failure = True, error
        self._wake()

    def fail(self, error: Exception) -> None:
        """There will be no more."""
        if not self._ended:
            self._ended, self._failure = True, error
            self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # -- as the call's source

    def wanted(self, give: Callable[[Body], None]) -> None:
        """The replica wants the next message of the client."""
        self._give = give
        if not self._hand_over() or not self._is_websocket:
            self._read()

    def _watch(self) -> None:
        if not self._is_websocket:
            self._read()

    def _read(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_on())

    async def _read_on(self) -> None:
        """Read a websocket's next message; of a body, as much as may wait here; then, whether the client is still there."""
        while self._ahead_bytes < AHEAD_BYTES:
            was_here = self._body_is_here
            try:
                message = await self._next_message()
                if message["type"] == "http.disconnect":
                    return self._leave()
                if was_here and not self._is_websocket:
                    continue  # nothing can follow a whole body
                if not self._is_websocket:
                    self._take_note_of(message)
            except CallError as error:
                return self.fail(error)
            self._ahead.append(dumped(message, pickle.Pickler, math.inf))
            self._ahead_bytes += len(self._ahead[-1])
            self._hand_over()
            if self._is_websocket:
                break

    def _hand_over(self) -> bool:
        """Give what is asked for, if it is here."""
        if self._give is None or not self._ahead:
            return False
        give, self._give = self._give, None
        piece = self._ahead.popleft()
        self._ahead_bytes -= len(piece)
        account: Account | None = self._scope.get(ACCOUNT)
        if account is not None:
            account.hold(max(0, account.held_bytes - len(piece)))
        give(piece)
        return True

    async def _next_message(self) -> Message:
        """What the client sends next.

        Raises:
            SlowBodyError: It is in the middle of its body, and too slow; says how.
            OverloadedError: It has sent more than the proxy has room for.
        """
        if self._body_is_here:
            message: Message = await self._receive()
            return message
        loop, stall_s, slowest = asyncio.get_running_loop(), self._options.stall_timeout_s, self._options.min_body_bytes_per_s
        left_s = stall_s + self._body_bytes / slowest - self._body_waited_s if slowest else stall_s
        began = loop.time()
        try:
            async with asyncio.timeout(min(stall_s, max(0.0, left_s))):
                message = await self._receive()
        except TimeoutError:
            too_slow = f"the body has come with less than {slowest:g} bytes a second"
            nothing = f"nothing of the body has come for {stall_s:g} s"
            raise SlowBodyError(too_slow if left_s < stall_s else nothing) from None
        self._body_waited_s += loop.time() - began
        account: Account | None = self._scope.get(ACCOUNT)
        if account is not None and account.overdrawn:
            raise OverloadedError("the proxy holds as much of other requests as it may")
        return message

    def _leave(self) -> None:
        """The client has left."""
        self._left = self._ended = True
        self._items.clear()
        self._call.cancel()
        self._wake()

    # -- what it asks

    def _is_in_bounds(self, more_bytes: int) -> bool:
        self._body_bytes += more_bytes
        return self._body_bytes <= self._options.max_body_bytes

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"the body has more than {self._options.max_body_bytes} bytes")

    def _is_complete(self, message: Message) -> bool:
        return self._is_websocket or (message["type"] == "http.response.body" and not message.get("more_body", False))

    def _wishes(self) -> Wishes:
        timeout_s = None if self._is_websocket else self._options.request_timeout_s
        return Wishes(model_id=_header(self._scope, MODEL_HEADER), timeout_s=timeout_s)


async def refuse(scope: Message, send: Any, refusal: Refusal, request_id: str) -> None:
    """Answer with an error what was not answered yet: a websocket too, instead of accepting it."""
    scope[SAID_STATUS] = refusal.status
    body = refusal.text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
        *refusal.headers,
    ]
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def unpack_messages(item: Body) -> list[Message]:
    """What a replica has said."""
    messages: list[Message] = loaded(item)
    return messages


def _opened(packed: Body) -> tuple[Exception, str]:
    try:
        unpack(ERROR, packed)
    except Exception as error:
        return error, trace_of(error)
    raise AssertionError("an error that is none")


def _header(scope: Message, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return ""
