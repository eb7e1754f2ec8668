"""Where calls go: one router per deployment and process knows the running replicas and takes them in turn.

All routers of a process share one thread with an event loop. Replicas on this node are reached over Unix sockets, others
by actor calls; the choice is made per replica and invisible to callers.
"""

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import ray

from executors.ray_gpu import names
from executors.ray_gpu.channel import ActorChannel, SocketChannel
from executors.ray_gpu.errors import CallError, NotRunningError, UnknownNameError
from executors.ray_gpu.messages import Endpoint

LOG = logging.getLogger(__name__)

RETRY_S = 0.1
MISSING_MAX = 10
"""A controller that Ray has not known for so many tries was shut down."""


class Call:
    """One call: what is asked, and the answer that will come."""

    __slots__ = ("answer", "request")

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answer: Future[tuple[int, bytes]] = Future()

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.answer.cancelled()

    def finish(self, kind: int, body: bytes) -> None:
        """The answer has come; whoever waited may have given up at this very moment."""
        with suppress(InvalidStateError):
            self.answer.set_result((kind, body))

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        with suppress(InvalidStateError):
            self.answer.set_exception(error)


class Channel(Protocol):
    """A way to one replica."""

    open: bool

    def send(self, call: Call) -> None:
        """Begin a call."""

    def close(self) -> None:
        """Send nothing more; answers that are due still come."""


class Router:
    """Sends the calls of one deployment. `submit` may be called from any thread; all else runs on the routers' thread."""

    def __init__(self, namespace: str, deployment: str, loop: asyncio.AbstractEventLoop) -> None:
        self._namespace = namespace
        self._deployment = deployment
        self._loop = loop
        self._node_id: str = ray.get_runtime_context().get_node_id()
        self._submitted: deque[Call] = deque()
        self._waiting: deque[Call] = deque()  # for a replica that takes calls
        self._awake = False
        self._channels: dict[str, Channel] = {}
        self._turn: deque[Channel] = deque()
        self._connecting: set[str] = set()
        self._gone = False
        self._poll = asyncio.run_coroutine_threadsafe(self._follow_routes(), loop)

    def submit(self, call: Call) -> None:
        """Begin a call."""
        self._submitted.append(call)
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._send_submitted)

    def retry(self, call: Call) -> None:
        """A replica did not take this call: another one may."""
        self._waiting.append(call)
        self._loop.call_soon(self._send_waiting)

    def left(self, channel: Channel) -> None:
        """A replica takes no more calls, or is gone."""
        if channel in self._turn:
            self._turn.remove(channel)

    @property
    def gone(self) -> bool:
        """Whether the deployment is deleted."""
        return self._gone

    # -- on the routers' thread

    def _send_submitted(self) -> None:
        self._awake = False  # before the queue is looked at: whoever adds to it later wakes us again
        submitted = self._submitted
        while submitted:
            self._send(submitted.popleft())

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            self._send(call)

    def _send(self, call: Call) -> None:
        turn = self._turn
        if call.given_up:
            return
        if turn:
            turn[0].send(call)
            turn.rotate(-1)
        elif self._gone:
            call.fail(UnknownNameError(f"deployment {self._deployment} does not exist (any more)"))
        else:
            self._waiting.append(call)

    async def _follow_routes(self) -> None:
        """Ask the controller for the routes, again and again; it answers when they have changed, or after a while."""
        seen, missing = (0, 0), 0
        while not self._gone:
            try:
                answer = await self._ask(seen)
            except Exception as error:  # the controller is down, or Ray is
                if not ray.is_initialized():
                    return self._give_up(CallError("Ray was shut down"))
                # Ray knows the name of a controller as long as it restarts it.
                missing = missing + 1 if isinstance(error, ValueError) else 0
                if missing > MISSING_MAX:
                    return self._give_up(NotRunningError(f"nothing runs in namespace {self._namespace!r} any more"))
                LOG.debug("%s: no routes: %s", self._deployment, error)
                await asyncio.sleep(RETRY_S)
                continue
            missing = 0
            if answer is None:
                return self._give_up(UnknownNameError(f"deployment {self._deployment} does not exist (any more)"))
            seen, endpoints = answer
            if endpoints is not None:
                self._adopt(endpoints)

    async def _ask(self, seen: tuple[int, int]) -> tuple[tuple[int, int], tuple[Endpoint, ...] | None] | None:
        if not ray.is_initialized():
            raise NotRunningError("Ray was shut down")  # asking it would start another cluster
        controller = await asyncio.to_thread(ray.get_actor, names.CONTROLLER, namespace=self._namespace)
        # Not repeated by Ray, which says so aloud: we ask again ourselves.
        future = controller.routes.options(max_task_retries=0).remote(self._deployment, seen).future()
        answer: tuple[tuple[int, int], tuple[Endpoint, ...] | None] | None = await asyncio.wrap_future(future)
        return answer

    def _adopt(self, endpoints: tuple[Endpoint, ...]) -> None:
        wanted = {endpoint.replica_id: endpoint for endpoint in endpoints}
        for replica_id in self._channels.keys() - wanted.keys():
            channel = self._channels.pop(replica_id)
            self.left(channel)
            channel.close()
        for replica_id, endpoint in wanted.items():
            known = self._channels.get(replica_id)
            if (known is None or not known.open) and replica_id not in self._connecting:
                self._connecting.add(replica_id)
                self._loop.create_task(self._connect(endpoint))

    async def _connect(self, endpoint: Endpoint) -> None:
        try:
            channel = await self._channel(endpoint)
        except (OSError, ValueError) as error:
            LOG.info("%s cannot be reached: %s", endpoint.replica_id, error)
            return
        finally:
            self._connecting.discard(endpoint.replica_id)
        self._channels[endpoint.replica_id] = channel
        self._turn.append(channel)
        self._send_waiting()

    async def _channel(self, endpoint: Endpoint) -> Channel:
        if endpoint.node_id == self._node_id and endpoint.socket_path:
            make = partial(SocketChannel, endpoint.replica_id, self)
            with suppress(PermissionError):  # it is another user's, who lets us use the cluster
                _, channel = await self._loop.create_unix_connection(make, endpoint.socket_path)
                return channel
        actor = await asyncio.to_thread(ray.get_actor, endpoint.actor_name, namespace=self._namespace)
        return ActorChannel(endpoint.replica_id, self, actor, self._loop)

    def _give_up(self, error: Exception) -> None:
        self._gone = True
        if _routers.get((self._namespace, self._deployment)) is self:
            del _routers[self._namespace, self._deployment]
        for channel in self._turn:
            channel.close()
        self._turn.clear()
        self._send_submitted()
        for call in self._waiting:
            call.fail(error)
        self._waiting.clear()


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_routers: dict[tuple[str, str], Router] = {}
_cluster: Any = None  # which connection to Ray the routers belong to


def _connection() -> Any:
    """What stands for this process's connection to Ray; None: it has none."""
    return getattr(ray._private.worker.global_worker, "core_worker", None) if ray.is_initialized() else None


def router_of(namespace: str, deployment: str) -> Router:
    """The router of a deployment; the first one of a process starts the thread."""
    global _loop, _cluster
    router = _routers.get((namespace, deployment))
    if router is not None and not router.gone and _cluster is _connection():
        return router
    with _lock:
        cluster = _connection()
        if cluster is None:
            raise NotRunningError("Ray is not running (any more): a handle needs the cluster that its deployment runs in")
        if cluster is not _cluster:
            _routers.clear()
            _cluster = cluster
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="calls", daemon=True).start()
        router = _routers.get((namespace, deployment))
        if router is None or router.gone:
            _routers[namespace, deployment] = router = Router(namespace, deployment, _loop)
        return router
