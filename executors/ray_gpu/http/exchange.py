"""One request, or one websocket, on its way through a proxy. All of it runs on the routers' thread."""

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.refusals import BodyTooLargeError, Refusal, refusal_of
from executors.ray_gpu.requests.call import Call, Wishes
from executors.ray_gpu.requests.frames import ERROR
from executors.ray_gpu.requests.packing import About, pack_plain, unpack
from executors.ray_gpu.requests.server import HTTP

LOG = logging.getLogger(__name__)

WATCH_AFTER_S = 0.1
"""From then on it is looked whether the client is still there; most requests are answered before."""

Message = dict[str, Any]
SCOPE_KEYS = (
    "type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers", "client",
    "server", "subprotocols",
)  # fmt: skip
MODEL_HEADER = b"serve_multiplexed_model_id"
"""As in Ray Serve."""


class Submits(Protocol):
    """A router."""

    def submit_here(self, call: Call) -> None:
        """Begin a call."""


class Exchange:
    """Sends a request to a replica and its answer to the client, piece by piece; also a call's sink and source."""

    def __init__(self, scope: Message, receive: Any, send: Any, request_id: str, options: HttpOptions) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._options = options
        self._is_websocket = scope["type"] == "websocket"
        self._items: deque[bytes] = deque()
        self._ended = False
        self._failure: Exception | bytes | None = None
        self._news: asyncio.Future[None] | None = None
        self._pull: Callable[[int], object] = lambda _: None
        self._begun = False
        self._body_is_here = self._is_websocket
        self._body_bytes = 0
        self._reading: asyncio.Task[None] | None = None
        self._give: Callable[[bytes], None] | None = None
        self._call = Call(HTTP, About(request_id, _header(scope, MODEL_HEADER), True), self._wishes())
        self._call.stream = self
        self._call.source = self

    async def run(self, router: Submits) -> None:
        """Serve it to its end."""
        announced = _header(self._scope, b"content-length")
        if announced.isdigit() and not self._is_in_bounds(int(announced)):
            return await self._fail(self._too_large())
        self._body_bytes = 0
        first = await self._receive()
        if first["type"] == "http.disconnect":
            return
        body = first.get("body", b"")
        self._body_is_here = self._is_websocket or not first.get("more_body", False)
        if not self._is_in_bounds(len(body)):
            return await self._fail(self._too_large())
        scope = {key: self._scope[key] for key in SCOPE_KEYS if key in self._scope}
        self._call.packed = pack_plain(HTTP, ((scope, body, not self._body_is_here), {}), self._call.about)
        watch = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._watch)
        try:
            router.submit_here(self._call)
            await self._answer()
        finally:
            watch.cancel()
            self._call.cancel()
            if self._reading is not None:
                self._reading.cancel()

    # -- the answer

    async def _answer(self) -> None:
        while True:
            while self._items:
                item = self._items.popleft()
                for message in unpack_messages(item):
                    await self._say(message)
                self._pull(len(item))
            if self._ended:
                break
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._failure is not None:
            await self._fail(self._failure)

    async def _say(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._request_id.encode())]
        elif message["type"] == "websocket.accept":
            self._begun = True
        await self._send(message)

    async def _fail(self, failure: Exception | bytes) -> None:
        error, traceback = _opened(failure) if isinstance(failure, bytes) else (failure, None)
        if traceback is not None:
            LOG.error("request %s to %s failed\n%s", self._request_id, self._scope["path"], traceback)
        await self._refuse(refusal_of(error, self._request_id, traceback if self._options.debug else None))

    async def _refuse(self, refusal: Refusal) -> None:
        if self._is_websocket:
            await self._send({"type": "websocket.close", "code": 1011, "reason": refusal.text.strip()[:120]})
        elif not self._begun:  # else the connection is closed, which tells the client that the response is not complete
            await refuse(self._send, refusal, self._request_id)

    # -- as the call's sink

    def begin(self, pull: Callable[[int], object]) -> None:
        """A replica has begun to answer."""
        self._pull = pull

    def put(self, item: bytes) -> None:
        """Some messages of the response."""
        self._items.append(item)
        self._wake()

    def end(self, error: bytes | None = None) -> None:
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

    def wanted(self, give: Callable[[bytes], None]) -> None:
        """The replica wants the next message of the client."""
        self._give = give
        self._read()

    def _watch(self) -> None:
        if self._body_is_here and not self._is_websocket:
            self._read()

    def _read(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._next_message())

    async def _next_message(self) -> None:
        message = await self._receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            if message["type"] == "http.disconnect":
                self._call.cancel()
                self._ended = True
                return self._wake()
        else:
            self._body_is_here = self._is_websocket or not message.get("more_body", False)
            if not self._is_in_bounds(len(message.get("body", b""))):
                return self.fail(self._too_large())
        if self._give is not None:
            give, self._give = self._give, None
            give(pickle.dumps(message, 5))

    # -- what it asks

    def _is_in_bounds(self, more_bytes: int) -> bool:
        self._body_bytes += more_bytes
        return self._body_bytes <= self._options.max_body_bytes

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"the body has more than {self._options.max_body_bytes} bytes")

    def _wishes(self) -> Wishes:
        timeout_s = None if self._is_websocket else self._options.request_timeout_s
        return Wishes(model_id=_header(self._scope, MODEL_HEADER), timeout_s=timeout_s)


async def refuse(send: Any, refusal: Refusal, request_id: str) -> None:
    """Answer with an error."""
    body = refusal.text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def unpack_messages(item: bytes) -> list[Message]:
    """What a replica has said."""
    messages: list[Message] = pickle.loads(item)
    return messages


def _opened(packed: bytes) -> tuple[Exception, str]:
    try:
        unpack(ERROR, packed)
    except Exception as error:
        return error, str(error.__cause__).strip() or repr(error)
    raise AssertionError("an error that is none")


def _header(scope: Message, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return ""
