"""The ways to one replica: a Unix socket on the same node, actor calls to another one."""

import asyncio
from typing import TYPE_CHECKING, Any, cast

from ray.exceptions import ActorUnavailableError

from executors.ray_gpu.errors import ReplicaGoneError
from executors.ray_gpu.wire import ANSWER, BUSY, GOODBYE, REQUEST, Frames

if TYPE_CHECKING:
    from executors.ray_gpu.router import Call, Router


class SocketChannel(asyncio.Protocol):
    """Requests and answers over one connection; those that are ready together leave in one write."""

    def __init__(self, replica_id: str, router: "Router") -> None:
        self.open = True
        self._replica_id = replica_id
        self._router = router
        self._frames = Frames(ANSWER, self._answered)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._last_id = GOODBYE
        self._requests: list[bytes] = []
        self._closing = False

    def send(self, call: "Call") -> None:
        """Begin a call."""
        self._last_id += 1
        self._calls[self._last_id] = call
        if not self._requests:
            asyncio.get_running_loop().call_soon(self._flush)
        self._requests.append(REQUEST.pack(len(call.request), self._last_id))
        self._requests.append(call.request)

    def close(self) -> None:
        """The replica is to take no more calls; the connection ends with the last answer."""
        self._closing = True
        self._hang_up_when_done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The replica has answered."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        """The replica is gone; what it had not answered is lost."""
        self.open = False
        self._router.left(self)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(ReplicaGoneError(f"replica {self._replica_id} died while it ran this call"))

    def data_received(self, data: bytes) -> None:
        """Answers have come in."""
        self._frames.feed(data)
        self._hang_up_when_done()

    def _answered(self, header: tuple[Any, ...], body: bytes) -> None:
        call_id, kind = header
        if call_id == GOODBYE:
            return self._part()
        call = self._calls.pop(call_id)
        if kind == BUSY:
            self._router.retry(call)
        else:
            call.finish(kind, body)

    def _part(self) -> None:
        """The replica drains: send it nothing after what is on the way, and tell it so."""
        self.open = False
        self._router.left(self)
        self._flush()
        if self._transport is not None:
            self._transport.write(REQUEST.pack(0, GOODBYE))

    def _flush(self) -> None:
        requests, self._requests = self._requests, []
        if self._transport is not None and requests:
            self._transport.write(b"".join(requests))

    def _hang_up_when_done(self) -> None:
        if self._closing and not self._calls and not self._requests and self._transport is not None:
            self._transport.close()


class ActorChannel:
    """Each call is an actor call."""

    def __init__(self, replica_id: str, router: "Router", actor: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.open = True
        self._replica_id = replica_id
        self._router = router
        self._actor = actor
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, call: "Call") -> None:
        """Begin a call."""
        task = self._loop.create_task(self._send(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Calls under way still come back."""
        self.open = False

    async def _send(self, call: "Call") -> None:
        try:
            kind, body = await asyncio.wrap_future(self._actor.call.remote(call.request).future())
        except Exception as error:  # RayError, or whatever a cluster that is shut down raises
            self._lost(isinstance(error, ActorUnavailableError))
            text = f"replica {self._replica_id} died while it ran this call: {error}"
            call.fail(ReplicaGoneError(text))
            return
        if kind == BUSY:
            self._lost(False)
            self._router.retry(call)
        else:
            call.finish(kind, body)

    def _lost(self, perhaps_back: bool) -> None:
        if not perhaps_back:
            self.open = False
            self._router.left(self)
