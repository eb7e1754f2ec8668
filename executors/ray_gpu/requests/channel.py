"""One process's way to one replica: calls out, answers in, over a Unix socket or by actor calls.

All of it runs on the routers' thread.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from ray.exceptions import RayError

from executors.ray_gpu.requests.call import Call
from executors.ray_gpu.requests.frames import (
    CALL,
    CANCEL,
    CONNECTION,
    GOODBYE,
    GRANT,
    HELLO,
    INPUT,
    ITEM,
    LARGE,
    NEED,
    PULL,
    RETURN,
    WANT,
    Frames,
    Outbox,
    counted,
    counts,
)
from executors.ray_gpu.requests.packing import pack_error
from rankcore.routing import RequestId

LOG = logging.getLogger(__name__)


class Attempt:
    """A call as it was sent to one replica.

    Attributes:
        call: Which.
        number: 1 for the first attempt.
        part: The rank whose part of a broadcast it is; None: it is the whole call.
        has_begun: Whether an item of its stream has come, or more of its input has gone: it cannot be done again.
    """

    __slots__ = ("call", "has_begun", "number", "part")

    def __init__(self, call: Call, number: int, part: int | None) -> None:
        self.call = call
        self.number = number
        self.part = part
        self.has_begun = False


class Listener(Protocol):
    """Who hears of a channel."""

    def begun(self, attempt: Attempt) -> None:
        """The first item of a stream has come, or more input was asked for."""

    def answered(self, attempt: Attempt, kind: int, payload: Any) -> None:
        """An attempt has ended: VALUE, ERROR, LARGE with a reference, END; or it was REFUSED and can go elsewhere."""

    def granted(self, channel: "Channel") -> None:
        """The replica says how many calls may be under way: `channel.grant`."""

    def parted(self, channel: "Channel") -> None:
        """The replica takes no more calls; what it has it will answer."""

    def lost(self, channel: "Channel", unanswered: list[Attempt]) -> None:
        """The replica cannot be reached any more. What it had not answered may or may not have had its effect."""


class Transport(Protocol):
    """Carries bytes to a replica, in order."""

    def write(self, data: bytes) -> None:
        """Send."""

    def close(self) -> None:
        """Hang up."""


class Channel:
    """Calls to one replica.

    Attributes:
        replica_id: Whose.
        key: Names this connection among those of the replica.
        open: Whether calls may be sent.
        grant: How many calls may be under way, and the grant's version; None: nothing was granted yet.
    """

    def __init__(self, replica_id: str, listener: Listener, find_actor: Callable[[], Awaitable[Any]]) -> None:
        self.replica_id = replica_id
        self.key = uuid.uuid4().hex
        self.open = True
        self.grant: tuple[int, int] | None = None
        self._listener = listener
        self._find_actor = find_actor
        self._frames = Frames(self._take)
        self._outbox: Outbox | None = None
        self._transport: Transport | None = None
        self._under_way: dict[int, Attempt] = {}
        self._ids: dict[tuple[RequestId, int, int | None], int] = {}
        self._last_id = CONNECTION
        self._large_sent = 0
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, transport: Transport) -> None:
        """Bytes can be sent from now on."""
        self._transport = transport
        self._outbox = Outbox(transport.write)
        self._put(CONNECTION, HELLO, self.key.encode())

    def send(self, attempt: Attempt) -> None:
        """Begin an attempt."""
        self._last_id += 1
        call, call_id = attempt.call, self._last_id
        self._under_way[call_id] = attempt
        self._ids[call.request_id, attempt.number, attempt.part] = call_id
        if call.stream is not None:
            loop = asyncio.get_running_loop()
            call.stream.begin(lambda size_bytes: loop.call_soon_threadsafe(self._pull, call_id, size_bytes))
        if call.packed is not None:
            self._put(call_id, CALL, call.packed)
        else:
            self._large_sent += 1
            self._later(self._send_large(call_id, call))

    def stop(self, request_id: RequestId, number: int, part: int | None) -> None:
        """Nobody waits for this attempt any more. It counts until the replica has ended it."""
        call_id = self._ids.get((request_id, number, part))
        if call_id is not None:
            self._put(call_id, CANCEL)

    def ask_credits(self, wanted: int, version: int) -> None:
        """Say how many calls could be under way here."""
        self._put(CONNECTION, NEED, counts(wanted, version))

    def return_credits(self, credits: int, version: int) -> None:
        """Say that no more than so many will be under way under this grant."""
        self._put(CONNECTION, RETURN, counts(credits, version))

    def close(self) -> None:
        """The replica is to take no more calls; the connection ends with the last answer."""
        self.open = False
        self._closing = True
        self._hang_up_when_done()

    def feed(self, data: bytes) -> None:
        """Bytes have come in."""
        self._frames.feed(data)
        self._hang_up_when_done()

    def lost(self) -> None:
        """The connection is gone."""
        self.open = False
        unanswered, self._under_way = list(self._under_way.values()), {}
        self._ids.clear()
        self._listener.lost(self, unanswered)

    # -- frames

    def _take(self, call_id: int, kind: int, body: bytes) -> None:
        if call_id == CONNECTION:
            if kind == GRANT:
                credits, version = counted(body)
                self.grant = credits, version
                self._listener.granted(self)
            elif kind == GOODBYE:
                self._part()
            return
        attempt = self._under_way.get(call_id)
        if attempt is None:
            return
        if kind in (ITEM, WANT) and not attempt.has_begun:
            attempt.has_begun = True
            self._listener.begun(attempt)
        if kind == ITEM:
            if attempt.call.stream is not None:
                attempt.call.stream.put(body)
        elif kind == WANT:
            if attempt.call.source is not None:
                attempt.call.source.wanted(partial(self._put, call_id, INPUT))
        elif kind == LARGE:
            self._later(self._fetch(call_id))
        else:
            self._ended(call_id, kind, body)

    def _ended(self, call_id: int, kind: int, payload: Any) -> None:
        attempt = self._under_way.pop(call_id, None)
        if attempt is not None:
            del self._ids[attempt.call.request_id, attempt.number, attempt.part]
            self._listener.answered(attempt, kind, payload)

    def _part(self) -> None:
        """The replica drains: send it nothing after what is on the way, and tell it so."""
        if self.open:
            self.open = False
            self._listener.parted(self)
        self._put(CONNECTION, GOODBYE, counts(self._large_sent))

    def _pull(self, call_id: int, size_bytes: int) -> None:
        if call_id in self._under_way:
            self._put(call_id, PULL, counts(size_bytes))

    def _put(self, call_id: int, kind: int, body: bytes = b"") -> None:
        if self._outbox is not None:
            self._outbox.put(call_id, kind, body)

    def _hang_up_when_done(self) -> None:
        if self._closing and not self._under_way and self._transport is not None and self._outbox is not None:
            self._outbox.flush()
            self._transport.close()

    # -- what is large goes by actor calls

    async def _send_large(self, call_id: int, call: Call) -> None:
        """A replica that is gone tells it by its connection; what is left are arguments that cannot be sent."""
        args, kwargs = call.arguments or ((), {})
        try:
            actor = await self._find_actor()
            sent = actor.call_large.remote(self.key, call_id, call.method, tuple(call.about), args, kwargs)
            await asyncio.wrap_future(sent.future())
        except RayError as error:
            LOG.debug("%s: large arguments did not arrive: %s", self.replica_id, error)
        except Exception as error:
            self._ended(call_id, *pack_error(TypeError(f"the arguments cannot be sent: {error}"), ""))

    async def _fetch(self, call_id: int) -> None:
        try:
            actor = await self._find_actor()
            self._ended(call_id, LARGE, actor.fetch.remote(self.key, call_id))
        except Exception as error:  # ValueError of Ray's, since the replica is gone: the connection will say so
            LOG.debug("%s: a large result cannot be fetched: %s", self.replica_id, error)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
