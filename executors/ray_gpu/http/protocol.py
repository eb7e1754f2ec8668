"""uvicorn's parser of HTTP, with bounds on what a client may send, and how slowly it may send."""

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from executors.ray_gpu.http.budget import Account, Budget
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.http.takes import Takes
from executors.ray_gpu.http.websocket import BoundedWebSocket
from executors.ray_gpu.requests.pieces import Body, bytes_of, gathered

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
PIPELINED_MAX = 16
"""So many requests may wait behind the one that is being answered: each costs far more memory than its bytes."""
IS_GONE = "rankcore.is_gone"
"""In a request's scope: asks whether its connection is."""


WRITE_CHUNKS = "rankcore.write_chunks"
"""In a request's scope: writes pieces of the body together, each a chunk; whether it could. To be taken out of the scope,
which else would hold itself."""
HAS_COME = "rankcore.has_come"
"""In a request's scope: asks whether there is something of its body that was not read, or its end."""
ACCOUNT = "rankcore.account"
"""In the scope of a request with a body: what it holds of the proxy's memory."""


def write_chunks(cycle: RequestResponseCycle, pieces: list[Body]) -> bool:
    """Write pieces of a response's body, each as a chunk of its own, at once.

    Returns:
        Whether it did: not if the response has not begun, is not sent in chunks, or has to wait for its client.
    """
    if not cycle.chunked_encoding or cycle.response_complete or cycle.disconnected or cycle.flow.write_paused:
        return False
    if cycle.scope["method"] == "HEAD":
        return False
    parts: list[bytes] = []
    for piece in pieces:
        if piece:
            parts += (b"%x\r\n" % len(piece), *bytes_of(piece), b"\r\n")
    for part in gathered(parts):
        cycle.transport.write(part)
    return True


class BoundedHttp(Takes, HttpToolsProtocol):
    """HTTP, with bounds on headers, on what waits to be answered, and on how long a request may take to come."""

    _budget: Budget  # as the options, of a subclass
    _in_header = True
    _fruitless_bytes = 0  # since a header has begun, or since the last piece of a body
    _too_late: asyncio.TimerHandle | None = None
    _upgraded = False

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected, and is to ask for something."""
        super().connection_made(transport)
        if len(self.connections) > self._options.max_connections:
            transport.write(TOO_MANY)
            transport.close()
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, but no more than a header may have without an end."""
        if self._in_header and self._too_late is None and not self._is_answering():
            self._expect()  # else a line break behind a body would count as a header that does not end
        while data and not self._upgraded and not self.transport.is_closing():
            room = self._options.max_header_bytes - self._fruitless_bytes
            if room <= 0:
                return self._hang_up(TOO_LARGE)
            piece, data = data[:room], data[room:]
            self._fruitless_bytes += len(piece)
            super().data_received(piece)

    def handle_websocket_upgrade(self) -> None:
        """What comes from now on is the websocket's."""
        self._upgraded = True
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong, unless that would stand in the middle of a response, or be taken for that of another request."""
        if self._is_answering() and not self._is_of_unanswered_body():
            self.transport.close()
        else:
            super().send_400_response(msg)

    # -- what the parser finds

    def on_message_begin(self) -> None:
        """A request begins."""
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests in a row")
        if self._too_late is None:
            self._expect()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers, or a trailer."""
        if self._in_header:  # else it is a trailer, which has no place in a request that is on its way
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """What comes now is a body, which has bounds of its own, or the next request."""
        self._in_header = False
        self._fruitless_bytes = 0
        self._forget()
        super().on_headers_complete()
        self.scope[IS_GONE] = self.transport.is_closing  # type: ignore[literal-required]
        if self.cycle is not None and self.cycle.scope is self.scope:  # else it is a websocket
            self.scope[HAS_COME] = self.cycle.message_event.is_set  # type: ignore[literal-required]
            self.scope[WRITE_CHUNKS] = partial(write_chunks, self.cycle)  # type: ignore[literal-required]
        else:
            self._check_upgrade()

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self._fruitless_bytes = 0
        if self.cycle.response_complete or self._has_room_for(len(body)):
            super().on_body(body)
        else:
            self.flow.pause_reading()
            self.cycle.message_event.set()  # the application sees it there

    def on_message_complete(self) -> None:
        """A request has come as a whole: the next may begin, whenever the client likes."""
        super().on_message_complete()
        self._in_header = True
        self._fruitless_bytes = 0
        self._forget()
        if self.cycle is not None and self.cycle.response_complete:
            self._unset_keepalive_if_required()  # what has come has unset it
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        """A response is written, perhaps before its request has come as a whole."""
        super().on_response_complete()
        if not self._in_header and self.cycle.response_complete:
            self._expect()  # the rest of a body that nobody wants

    # -- what takes too long, or is too much

    def _check_upgrade(self) -> None:
        """Websockets begin with a GET that has no body; nobody would ever answer others, nor wait for the end of them.

        One that comes while another request is being answered would be accepted in the middle of that response.
        """
        with_body = any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in self.headers)
        if self.scope["method"] != "GET" or self.scope["http_version"] != "1.1" or with_body or self._is_answering():
            raise ValueError("a websocket begins with a GET of HTTP/1.1 that has no body, behind no other request")

    def _has_room_for(self, size_bytes: int) -> bool:
        account: Account | None = self.scope.get(ACCOUNT)  # type: ignore[assignment]
        if account is None:
            account = self.scope[ACCOUNT] = Account(self._budget)  # type: ignore[literal-required]
        return not account.overdrawn and account.hold(account.held_bytes + size_bytes)

    def _is_answering(self) -> bool:
        """Whether what is written now would stand in the middle of a response."""
        return self.cycle is not None and not self.cycle.response_complete

    def _is_of_unanswered_body(self) -> bool:
        """Whether what comes in is the body of a request that nothing was said of yet, and that is the next to be answered."""
        is_its_own = self.cycle.scope is self.scope  # else that of a request that is refused, behind one that is answered
        return is_its_own and not self._in_header and not self.cycle.response_started and not self.pipeline

    def _expect(self) -> None:
        self._too_late = self.loop.call_later(self._options.header_timeout_s, self._hang_up, TOO_SLOW)

    def _forget(self) -> None:
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None

    def _hang_up(self, why: bytes) -> None:
        self._forget()
        if not self.transport.is_closing():
            if self._in_header and not self._is_answering():
                self.transport.write(why)
            self.transport.close()


def bounded(options: HttpOptions) -> tuple[type[BoundedHttp], type[BoundedWebSocket]]:
    """The protocol classes for uvicorn, which makes an object of a class for each connection: of HTTP, and of websockets.

    All of them have one budget of memory.
    """
    budget = Budget(options.max_buffered_bytes)

    class Http(BoundedHttp):
        _options = options
        _budget = budget

    class WebSocket(BoundedWebSocket):
        _options = options
        _budget = budget

    return Http, WebSocket
