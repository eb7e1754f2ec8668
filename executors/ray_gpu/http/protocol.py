"""uvicorn's HTTP parser, with bounds on what a client may send, and how slowly, before it is a request."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def bounded(max_header_bytes: int, header_timeout_s: float) -> type[HttpToolsProtocol]:
    """The protocol class for uvicorn.

    Args:
        max_header_bytes: Request line and headers of one request.
        header_timeout_s: From the beginning of a connection, or of a request, to the end of its headers.
    """

    class BoundedProtocol(HttpToolsProtocol):
        _header_bytes = 0
        _in_header = True
        _too_late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._in_header:
                self._header_bytes += len(data)
                if self._header_bytes > max_header_bytes and not self._ends_in(data):
                    return self._hang_up(TOO_LARGE)
            super().data_received(data)

        def on_message_begin(self) -> None:
            if self._too_late is None:
                self._expect()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_header = False
            self._header_bytes = 0
            self._forget()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_header = True

        def _ends_in(self, data: bytes) -> bool:
            """Whether the header ends within its bounds, and the rest is a body."""
            end = data.find(b"\r\n\r\n")
            return end >= 0 and self._header_bytes - len(data) + end <= max_header_bytes

        def _expect(self) -> None:
            self._too_late = self.loop.call_later(header_timeout_s, self._hang_up, TOO_SLOW)

        def _forget(self) -> None:
            if self._too_late is not None:
                self._too_late.cancel()
                self._too_late = None

        def _hang_up(self, why: bytes) -> None:
            self._forget()
            if not self.transport.is_closing():
                self.transport.write(why)
                self.transport.close()

    return BoundedProtocol
