"""One process's way to one replica: calls out, answers in, over a Unix socket or by actor calls.

All of it runs on the routers' thread.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from ray.exceptions import RaySystemError, RayTaskError

from executors.ray_gpu.requests.actors import worker_id
from executors.ray_gpu.requests.call import Call, Fetched
from executors.ray_gpu.requests.frames import (
    CALL,
    CANCEL,
    CONNECTION,
    END,
    GOODBYE,
    GRANT,
    HELLO,
    INPUT,
    ITEM,
    LARGE,
    NEED,
    PIECE,
    PULL,
    REFUSED,
    RETURN,
    STATS,
    WANT,
    WATCH,
    Frames,
    Outbox,
    counted,
    counts,
    key_of,
)
from executors.ray_gpu.requests.packing import pack_error
from executors.ray_gpu.requests.pieces import Body, loaded
from executors.ray_gpu.requests.request_ids import named_on_connection
from rankcore.routing import RequestId

LOG = logging.getLogger(__name__)

BEGINNINGS = frozenset({ITEM, PIECE, WANT})
"""After one of these a call cannot be done again elsewhere."""


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
        """An attempt has ended: VALUE, ERROR, LARGE with what was fetched, END; or it was REFUSED and can go elsewhere."""

    def failed(self, attempt: Attempt, reason: str) -> None:
        """Nobody knows what became of an attempt, though its replica may be alive."""

    def granted(self, channel: "Channel") -> None:
        """The replica says how many calls may be under way: `channel.take_grants`."""

    def says(self, channel: "Channel", said: dict[str, Any]) -> None:
        """The replica says what it has, as `watch` wants it."""

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
        is_lost: Whether the connection is gone.
    """

    def __init__(self, replica_id: str, listener: Listener, find_actor: Callable[[], Awaitable[Any]]) -> None:
        self.replica_id = replica_id
        self.key = key_of(replica_id, worker_id(), named_on_connection(uuid.uuid4().hex))
        self.open = True
        self.is_lost = False
        self._grants: list[tuple[int, int]] = []
        self._listener = listener
        self._find_actor = find_actor
        self._frames = Frames(self._take)
        self._outbox: Outbox | None = None
        self._transport: Transport | None = None
        self._under_way: dict[int, Attempt] = {}
        self._ids: dict[tuple[RequestId, int, int | None], int] = {}
        self._last_id = CONNECTION
        self._large_sent = 0
        self._arriving: dict[int, bool] = {}  # large calls on their way, and whether nobody waits for them any more
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, transport: Transport) -> None:
        """Bytes can be sent from now on."""
        self._transport = transport
        self._outbox = Outbox(transport.write)
        self._put(CONNECTION, HELLO, self.key.encode())

    def send(self, attempt: Attempt) -> None:
        """Begin an attempt."""
        call = attempt.call
        call_id = call.number
        if not call_id or call_id in self._under_way:
            self._last_id += 1
            call_id = self._last_id
        self._under_way[call_id] = attempt
        self._ids[call.request_id, attempt.number, attempt.part] = call_id
        if call.stream is not None:
            loop = asyncio.get_running_loop()
            call.stream.begin(lambda size_bytes: loop.call_soon_threadsafe(self._pull, call_id, size_bytes))
        if call.packed is not None:
            self._put(call_id, CALL, call.packed)
        else:
            self._arriving[call_id] = False
            self._later(self._send_large(call_id, call))

    def stop(self, request_id: RequestId, number: int, part: int | None) -> None:
        """Nobody waits for this attempt any more. It counts until the replica has ended it."""
        call_id = self._ids.get((request_id, number, part))
        if call_id in self._arriving:
            self._arriving[call_id] = True
        elif call_id is not None:
            self._put(call_id, CANCEL)

    def take_grants(self) -> list[tuple[int, int]]:
        """The grants that have come since the last time, in order: how many calls may be under way, and the version."""
        grants, self._grants = self._grants, []
        return grants

    def ask_credits(self, wanted: int, version: int) -> None:
        """Say how many calls could be under way here."""
        self._put(CONNECTION, NEED, counts(wanted, version))

    def watch(self, period_s: float, timeout_s: float) -> None:
        """Have it say what it has, which it looks at so often, and for so long at most."""
        self._put(CONNECTION, WATCH, counts(int(period_s * 1000), int(timeout_s * 1000)))

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
        self.is_lost = True
        unanswered, self._under_way = list(self._under_way.values()), {}
        self._ids.clear()
        self._listener.lost(self, unanswered)

    # -- frames

    def _take(self, call_id: int, kind: int, body: Body) -> None:
        if call_id == CONNECTION:
            if kind == GRANT:
                credits, version = counted(body)
                self._grants.append((credits, version))
                self._listener.granted(self)
            elif kind == STATS:
                self._listener.says(self, loaded(body))
            elif kind == GOODBYE:
                self._part()
            return
        attempt = self._under_way.get(call_id)
        if attempt is None:
            return
        if not attempt.has_begun and kind in BEGINNINGS:
            attempt.has_begun = True
            self._listener.begun(attempt)
        if kind == PIECE:
            if attempt.call.stream is not None:
                attempt.call.stream.put_piece(body)
        elif kind == ITEM:
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
        attempt = self._landed(call_id)
        if attempt is not None:
            self._listener.answered(attempt, kind, payload)
            self._hang_up_when_done()

    def _failed(self, call_id: int, reason: str) -> None:
        attempt = self._landed(call_id)
        if attempt is not None:
            self._listener.failed(attempt, f"replica {self.replica_id}: {reason}")
            self._hang_up_when_done()

    def _landed(self, call_id: int) -> Attempt | None:
        attempt = self._under_way.pop(call_id, None)
        if attempt is not None:
            del self._ids[attempt.call.request_id, attempt.number, attempt.part]
        return attempt

    def _part(self) -> None:
        """The replica drains: send it nothing after what is on the way, and tell it so."""
        if self.open:
            self.open = False
            self._listener.parted(self)
        self._put(CONNECTION, GOODBYE, counts(self._large_sent))

    def _pull(self, call_id: int, size_bytes: int) -> None:
        if call_id in self._under_way:
            self._put(call_id, PULL, counts(size_bytes))

    def _put(self, call_id: int, kind: int, body: Body = b"") -> None:
        if self._outbox is not None and not self.is_lost:
            self._outbox.put(call_id, kind, body)

    def _hang_up_when_done(self) -> None:
        if self._closing and not self._under_way and self._transport is not None and self._outbox is not None:
            self._outbox.flush()
            self._transport.close()

    # -- what is large goes by actor calls

    async def _send_large(self, call_id: int, call: Call) -> None:
        try:
            actor = await self._find_actor()
        except Exception as error:  # whatever Ray has for an actor that is gone, or a controller of its own that is
            LOG.debug("%s cannot be found: %s", self.replica_id, error)
            actor = None
        if call_id not in self._under_way or self._arriving[call_id] or actor is None or not self.open:
            # It was not sent, and will not be: after a goodbye the replica counts on that.
            is_wanted = not self._arriving.pop(call_id)
            return self._ended(call_id, REFUSED if is_wanted else END, b"")
        self._large_sent += 1
        try:
            sent = actor.call_large.remote(self.key, call_id, call.method, call.about.sent, call.arguments)
            await asyncio.wrap_future(sent.future())
        except (RayTaskError, RaySystemError) as error:
            self._not_arrived(call_id)
            self._ended(call_id, *pack_error(TypeError(f"the arguments cannot be read by the replica: {error}"), ""))
        except Exception as error:
            self._not_arrived(call_id)
            self._failed(call_id, f"large arguments may not have arrived: {error}")
        else:
            if self._arriving.pop(call_id):
                self._put(call_id, CANCEL)

    def _not_arrived(self, call_id: int) -> None:
        """The replica waits for it in vain if it drains."""
        del self._arriving[call_id]
        self._large_sent -= 1
        if not self.open:
            self._put(CONNECTION, GOODBYE, counts(self._large_sent))

    async def _fetch(self, call_id: int) -> None:
        try:
            try:
                actor = await self._find_actor()
                reference = actor.fetch.remote(self.key, call_id)
                value = await asyncio.wrap_future(reference.future())
            finally:
                self._put(call_id, CANCEL)  # it need not be kept any longer
        except (RayTaskError, RaySystemError) as error:
            self._ended(call_id, *pack_error(TypeError(f"the result cannot be read: {error}"), ""))
        except Exception as error:  # whatever Ray has for an actor that is gone
            self._failed(call_id, f"a large result cannot be fetched: {error}")
        else:
            self._ended(call_id, LARGE, Fetched(reference, value))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
