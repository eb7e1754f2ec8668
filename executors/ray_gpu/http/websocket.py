"""uvicorn's parser of websockets, with bounds on what a client may send before the replica has taken what is there.

What has come is parsed in slices, and only while no message waits: a few bytes may be hundreds of messages, each of which costs
more than its bytes. The rest stays as it came, and nothing more is read. So a connection holds one message, unfinished or not,
what a slice may have behind it, and one read of the socket; all connections together have the proxy's budget.
"""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from executors.ray_gpu.http.budget import Account, Budget
from executors.ray_gpu.http.takes import Takes

SLICE_BYTES = 4 * 1024
FRAGMENTS_MAX = 16 * 1024
"""Of one message: each costs more memory than its bytes."""
UNTAKEN_BYTES = 64 * 1024
"""A client that has so much to take is not read from: each of its pings is answered with a pong."""
TOO_LARGE, STALLED, NO_ROOM = 1009, 1008, 1013
"""Codes of a close, as RFC 6455 and its registry have them."""
NO_WEBSOCKET = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedWebSocket(Takes, WebSocketsSansIOProtocol):
    """A websocket. Its head comes as a whole, from the connection that it was until then."""

    _budget: Budget  # as the options, of a subclass

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._account = Account(self._budget)
        self._rest = memoryview(b"")  # what is not parsed yet
        self._fragments = 0
        self._fragment_bytes = 0
        self._queued_bytes = 0
        self._parsed_bytes = 0  # in all
        self._unfinished: asyncio.TimerHandle | None = None

    # -- what comes

    def data_received(self, data: bytes) -> None:
        """The head of the request, and then what the client sends."""
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated and not self.transport.is_closing():
                self.transport.write(NO_WEBSOCKET)  # it cannot be parsed, of which uvicorn says nothing to anybody
                self.transport.close()
            return
        self._rest = memoryview(bytes(self._rest) + data if self._rest else data)
        self._parse()

    def _parse(self) -> None:
        """Parse what may be parsed now."""
        while self._rest and not self.transport.is_closing():
            if not self.handshake_complete or self._is_stopped():
                break
            piece, self._rest = self._rest[:SLICE_BYTES], self._rest[SLICE_BYTES:]
            self._parsed_bytes += len(piece)
            super().data_received(bytes(piece))
        self._keep_account()

    def _is_stopped(self) -> bool:
        """Whether the replica, or the client itself, has to take something before more is parsed."""
        return self.read_paused or self.transport.get_write_buffer_size() > UNTAKEN_BYTES

    def _keep_account(self) -> None:
        if self.transport.is_closing():
            self._rest = memoryview(b"")
            return
        if self._rest:
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()
        begun = len(self.conn.reader.buffer) + self._fragment_bytes
        if not self._account.hold(len(self._rest) + begun + self._queued_bytes):
            self._give_up(NO_ROOM, "the proxy holds too much already")
        elif begun and self._unfinished is None:
            self._look_later()

    def _look_later(self) -> None:
        timeout_s = self._options.stall_timeout_s
        self._unfinished = self.loop.call_later(timeout_s, self._look_whether_more_came, self._parsed_bytes)

    def _look_whether_more_came(self, parsed_bytes: int) -> None:
        """End a connection that has stopped in the middle of a message, or goes on too slowly."""
        self._unfinished = None
        waits = self._rest or self.read_paused  # for the replica
        begun = len(self.conn.reader.buffer) + self._fragment_bytes
        if self.transport.is_closing() or not begun:
            return
        least_bytes = self._options.min_body_bytes_per_s * self._options.stall_timeout_s
        if not waits and self._parsed_bytes - parsed_bytes <= least_bytes:
            return self._give_up(STALLED, "the message comes too slowly")
        self._look_later()

    def keepalive_timeout(self) -> None:
        """No pong has come. It may lie behind messages that wait for the replica, and whoever sends those is there."""
        if (self._rest or self._is_stopped()) and not self.transport.is_closing():
            self.pong_timer = self.loop.call_later(self.ping_timeout or 0.0, self.keepalive_timeout)
        else:
            super().keepalive_timeout()

    def _give_up(self, code: int, reason: str) -> None:
        self._rest = memoryview(b"")
        if not self.handshake_complete:
            self.transport.close()
        elif not self.close_sent and not self.transport.is_closing():
            self.conn.fail(code, reason)
            self.handle_parser_exception()
        self.frames, self._fragment_bytes = [], 0
        self._account.hold(self._queued_bytes)  # not at the end of the connection alone: others need the room now

    # -- what is parsed

    def handle_cont(self, event: Any) -> None:
        """A message goes on."""
        self._fragments += 1
        self._fragment_bytes += len(event.data)
        if self._fragments > FRAGMENTS_MAX:
            self.frames = []
            self._give_up(TOO_LARGE, f"a message of more than {FRAGMENTS_MAX} frames")
        else:
            super().handle_cont(event)

    def handle_text(self, event: Any) -> None:
        """A message begins."""
        self._fragments, self._fragment_bytes = 1, len(event.data)
        super().handle_text(event)

    def handle_bytes(self, event: Any) -> None:
        """Likewise."""
        self._fragments, self._fragment_bytes = 1, len(event.data)
        super().handle_bytes(event)

    def send_receive_event_to_app(self) -> None:
        """A message is complete."""
        self._queued_bytes += self._fragment_bytes
        self._fragments = self._fragment_bytes = 0
        super().send_receive_event_to_app()

    # -- what lets it go on

    def resume_writing(self) -> None:
        """The client has taken all."""
        super().resume_writing()
        self._parse()

    async def send(self, message: Any) -> None:
        """What the application says; once it has accepted, the client is heard."""
        was_complete = self.handshake_complete
        await super().send(message)
        if not was_complete or self.close_sent:
            self._parse()

    async def receive(self) -> Any:
        """The next message; when there is none that waits, more may come."""
        message = await super().receive()
        if self.queue.empty():
            self._queued_bytes = 0
            self._parse()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing comes any more."""
        if self._unfinished is not None:
            self._unfinished.cancel()
        self._rest = memoryview(b"")
        self._account.hold(0)
        super().connection_lost(exc)
