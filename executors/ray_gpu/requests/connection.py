"""The replica's end of one caller's connection, over a Unix socket or by actor calls. Replica processes import this.

All of it runs on the user's thread.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from executors.private_folder import check_peer
from executors.ray_gpu.requests.frames import (
    CALL,
    CANCEL,
    CONNECTION,
    GOODBYE,
    GRANT,
    HELLO,
    INPUT,
    NEED,
    PULL,
    RETURN,
    STATS,
    WATCH,
    Frames,
    Outbox,
    counted,
    counts,
    name_in,
)
from executors.ray_gpu.requests.packing import About, Arguments, pack_error, unpack_call
from executors.ray_gpu.requests.pieces import Body
from executors.ray_gpu.requests.request_ids import FIRST, beginning_in, written
from executors.ray_gpu.user_code import traceback_of

if TYPE_CHECKING:
    from executors.ray_gpu.requests.server import CallServer, Running

LOG = logging.getLogger(__name__)

HEAR_S = 30.0
"""A question for what is new is answered after this long at the latest."""
HEAR_BYTES = 8 * 1024 * 1024
"""An answer has no more than this, or a single letter: large results are not copied together by the dozen."""
SILENCE_S = 30.0
"""A caller that has not asked for so long after an answer is gone: Ray tells nobody of it."""


class Connection:
    """One caller, whatever it speaks over.

    Attributes:
        key: Names it among the replica's connections; "" until it has said hello.
        names_begin_with: As in `TakesAnswers`.
        has_letters: Whether the caller has yet to fetch something that was said: it is lost if this process ends before.
    """

    def __init__(self, server: "CallServer", outbox: Outbox, close: Callable[[], None]) -> None:
        self.key = ""
        self.names_begin_with = ""
        self.has_letters = False
        self._close = close
        self._server = server
        self._outbox = outbox
        self._frames = Frames(self._take)
        self._running: dict[int, Running] = {}
        self._results: dict[int, Any] = {}  # large ones, until the caller has them
        self._large_calls = 0
        self._large_expected: int | None = None

    def name_of(self, call_id: int) -> str:
        """What the caller names a call; "": nothing."""
        return written(self.names_begin_with, call_id) if call_id >= FIRST else ""

    @property
    def has_parted(self) -> bool:
        """Whether everything that the caller sent is here, and nothing more will come."""
        return self._large_expected is not None and self._large_calls >= self._large_expected

    @property
    def has_results(self) -> bool:
        """Whether the caller has yet to get a result that is kept here."""
        return bool(self._results)

    @property
    def running(self) -> "Mapping[int, Running]":
        """The calls that came by it and are under way."""
        return self._running

    def feed(self, data: bytes) -> None:
        """Bytes have come in."""
        self._frames.feed(data)

    def lost(self) -> None:
        """The caller is gone: nobody waits for what runs."""
        self._results.clear()
        for running in tuple(self._running.values()):
            running.cancel()
        self._server.left(self)

    def hang_up(self) -> None:
        """Hear nothing more. What was said is delivered; what still runs is cancelled: for its caller it is lost."""
        self._outbox.flush()
        self._close()
        self.lost()

    def say_goodbye(self) -> None:
        """Ask the caller to send nothing more."""
        self._outbox.put(CONNECTION, GOODBYE)

    def grant(self, credits: int, version: int) -> None:
        """Let the caller have so many calls under way here."""
        self._outbox.put(CONNECTION, GRANT, counts(credits, version))

    def say_what_there_is(self, said: Body) -> None:
        """What the replica has, for a caller that wants to know."""
        self._outbox.put(CONNECTION, STATS, said)

    def answer(self, call_id: int, kind: int, body: Body = b"", large: Any = None) -> None:
        """How a call has ended; a large result waits here until it is fetched."""
        if large is not None:
            self._results[call_id] = large
        self._outbox.put(call_id, kind, body)

    def say(self, call_id: int, kind: int, body: Body = b"") -> None:
        """Something of a call that goes on: the next item of its stream, or that it wants more input."""
        self._outbox.put(call_id, kind, body)

    def ended(self, call_id: int) -> None:
        """A call is not under way any more."""
        self._running.pop(call_id, None)

    def call(self, call_id: int, method: str, arguments: Arguments, about: About) -> None:
        """Begin a call."""
        running = self._server.begin(self, call_id, method, arguments, about)
        if running is not None:
            self._running[call_id] = running

    def call_large(self, call_id: int, method: str, arguments: Arguments, about: About) -> None:
        """Begin a call that came by an actor call, since its arguments are large."""
        self._large_calls += 1
        self.call(call_id, method, arguments, about)
        self._server.look_whether_idle()

    def fetch(self, call_id: int) -> Any:
        """A large result, which is kept until the caller has said that it need not be.

        Raises:
            LookupError: It has.
        """
        return self._results[call_id]

    # -- frames

    def _take(self, call_id: int, kind: int, body: Body) -> None:
        if kind == CALL:
            self._call_packed(call_id, body)
        elif kind == CANCEL:
            self._cancel(call_id)
        elif kind == PULL:
            running = self._running.get(call_id)
            if running is not None and running.window is not None:
                running.window.give(*counted(body))
        elif kind == INPUT:
            running = self._running.get(call_id)
            if running is not None:
                running.take_input(body)
        elif kind == NEED:
            self._server.granting.asked(self.key, *counted(body))
        elif kind == RETURN:
            self._server.granting.returned(self.key, *counted(body))
        elif kind == WATCH:
            self._server.watch(self, *(each / 1000 for each in counted(body)))
        elif kind == GOODBYE:
            (self._large_expected,) = counted(body)
            self._server.look_whether_idle()
        elif kind == HELLO:
            self.key = bytes(body).decode()
            self.names_begin_with = beginning_in(name_in(self.key))
            self._server.joined(self)

    def _call_packed(self, call_id: int, body: Body) -> None:
        try:
            method, arguments, about = unpack_call(body)
        except Exception as error:  # it lacks a module, say: the caller's mistake, and nobody else's trouble
            self.answer(call_id, *pack_error(error, f"the replica cannot read the arguments: {traceback_of(error)}"))
            return
        self.call(call_id, method, arguments, about)

    def _cancel(self, call_id: int) -> None:
        running = self._running.get(call_id)
        if running is not None:
            running.cancel()
        if self._results.pop(call_id, None) is not None:
            self._server.look_whether_idle()


class SocketEnd(asyncio.Protocol):
    """A connection over a Unix socket."""

    def __init__(self, server: "CallServer") -> None:
        self._transport: asyncio.Transport | None = None
        self._connection = Connection(server, Outbox(self._write), self._close)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected. What another user sends is not read: it would be unpickled."""
        connected = cast(asyncio.Transport, transport)
        try:
            check_peer(transport.get_extra_info("socket"))
        except OSError as error:
            LOG.warning("a connection is refused: %s", error)
            connected.abort()
        else:
            self._transport = connected

    def connection_lost(self, _: Exception | None) -> None:
        """The caller is gone."""
        self._transport = None
        self._connection.lost()

    def data_received(self, data: bytes) -> None:
        """Frames have come in."""
        self._connection.feed(data)

    def _close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


class Mailbox:
    """A connection by actor calls: the caller says what it has, and asks again and again what there is for it."""

    def __init__(self, server: "CallServer", key: str) -> None:
        self._server = server
        self._key = key
        self._connection = Connection(server, Outbox(self._write), self._close)
        self._overtaken: dict[int, bytes] = {}
        self._said = 0
        self._letters: list[bytes] = []
        self._read: tuple[int, bytes] = (0, b"")
        self._news = asyncio.Event()
        self._is_gone = False
        self._is_closed = False
        self._silence = asyncio.get_running_loop().call_later(SILENCE_S, self.hang_up)

    def say(self, number: int, data: bytes) -> None:
        """Frames from the caller, which numbers what it says from 0: actor calls may overtake each other."""
        if self._is_closed:
            return
        if number >= self._said:  # else it has come before: its sender could not know
            self._overtaken[number] = data
        while self._said in self._overtaken:
            self._said += 1
            self._connection.feed(self._overtaken.pop(self._said - 1))

    async def hear(self, heard: int) -> tuple[int, bytes]:
        """Frames for the caller, as soon as there are any, and their number; those of the last number: there are none yet.

        Args:
            heard: The number that the caller has heard last. What it has not heard it gets again.

        Raises:
            LookupError: The connection that the caller means is gone.
        """
        if heard > self._read[0]:
            self.hang_up()
        else:
            self._silence.cancel()
        if heard == self._read[0] and not self._letters:
            self._connection.has_letters = False
            self._server.look_whether_idle()
        try:
            return await self._next(heard)
        finally:
            self._silence.cancel()
            if not self._is_gone:
                self._silence = asyncio.get_running_loop().call_later(SILENCE_S, self.hang_up)

    def hang_up(self) -> None:
        """The caller needs nothing more, or is gone."""
        if self._is_gone:
            return
        self._is_gone = True
        self._silence.cancel()
        self._connection.lost()
        self._server.emptied(self._key)
        self._news.set()

    def _close(self) -> None:
        self._is_closed = True
        self._news.set()

    async def _next(self, heard: int) -> tuple[int, bytes]:
        if heard < self._read[0]:
            return self._read
        if not self._letters and not self._is_gone and not self._is_closed:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(HEAR_S):
                    await self._news.wait()
            if not self._connection.key:
                self.hang_up()  # what it said first went to a mailbox that was given up
        if self._is_gone or (self._is_closed and not self._letters):
            raise LookupError("nobody has heard of this caller for long: it was given up")
        if not self._letters:
            return heard, b""
        size_bytes = count = 0
        while count < len(self._letters) and (not count or size_bytes + len(self._letters[count]) <= HEAR_BYTES):
            size_bytes += len(self._letters[count])
            count += 1
        self._read = (heard + 1, b"".join(self._letters[:count]))
        del self._letters[:count]
        return self._read

    def _write(self, data: bytes) -> None:
        self._letters.append(data)
        self._connection.has_letters = True
        self._news.set()
