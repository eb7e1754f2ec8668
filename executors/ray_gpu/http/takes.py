"""How slowly a client may take what is written to it."""

import asyncio
from typing import Any

from executors.ray_gpu.http.options import HttpOptions


class Takes:
    """A connection whose client has to take what is written: where it takes nothing for too long, the connection is cut.

    Closing it would wait for the client.
    """

    transport: Any
    loop: Any
    _options: HttpOptions  # of a subclass: see `bounded`
    _untaken_bytes = 0
    _look_again: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Be told of every byte that waits to be taken."""
        super().connection_made(transport)  # type: ignore[misc]
        # After a TLS handshake something waits already, which is said at once; asyncio's TLS takes 0 for "always".
        transport.set_write_buffer_limits(high=1, low=0)

    def pause_writing(self) -> None:
        """Something waits."""
        self._watch()
        super().pause_writing()  # type: ignore[misc]

    def resume_writing(self) -> None:
        """All is taken."""
        self._unwatch()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing will be."""
        self._unwatch()
        super().connection_lost(exc)  # type: ignore[misc]

    def _watch(self) -> None:
        self._untaken_bytes = self.transport.get_write_buffer_size()
        self._look_again = self.loop.call_later(self._options.stall_timeout_s, self._look)

    def _unwatch(self) -> None:
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None

    def _look(self) -> None:
        if self.transport.get_write_buffer_size() >= self._untaken_bytes:
            self.transport.abort()
        else:
            self._watch()
