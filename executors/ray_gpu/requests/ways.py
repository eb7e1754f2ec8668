"""A router's ways to replicas: those that calls are sent by, those that are being connected to, and those that only end.

All of it runs on the routers' thread.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from executors.private_folder import connected
from executors.ray_gpu.messages import Endpoint
from executors.ray_gpu.requests.actors import connection, find_actor
from executors.ray_gpu.requests.channel import Channel, Listener
from executors.ray_gpu.requests.transports import ActorTransport, SocketTransport

LOG = logging.getLogger(__name__)

T = TypeVar("T")

MEET_S = 1.0
"""For so long the first calls wait for replicas that are being connected to, once one of them could have them."""
RETRY_S = 0.5
"""After so long a replica that is routed, and could not be reached or was lost, is connected to again."""


class Ways:
    """Channels to the replicas that the routes name: one to each, and never two at the same time that are given calls.

    Args:
        namespace, node_id: Where actors are found, and which replicas have a socket on this machine.
        listener: Hears of all channels.
        adopt: Told of channels that calls can be sent by from now on, and once an attempt has ended without any.

    Attributes:
        current: Those that calls are sent by, by replica; one that has parted stays until it is lost.
    """

    def __init__(self, namespace: str, node_id: str, listener: Listener, adopt: Callable[[list[Channel]], None]) -> None:
        self.current: dict[str, Channel] = {}
        self._namespace = namespace
        self._node_id = node_id
        self._cluster = connection()
        self._listener = listener
        self._tell_adopted = adopt
        self._endpoints: dict[str, Endpoint] = {}
        self._connecting: dict[str, asyncio.Event] = {}  # until it is adopted; set when a grant has come
        self._ending: set[Channel] = set()
        self._retrying = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def follow(self, endpoints: Iterable[Endpoint]) -> None:
        """Connect to these, and to no others; calls that are under way with others are answered yet."""
        self._endpoints = {each.replica_id: each for each in endpoints}
        for replica_id in self.current.keys() - self._endpoints.keys():
            self._end(self.current.pop(replica_id))
        self._connect_missing()

    def close(self) -> None:
        """Connect to nobody any more; what is under way is answered yet."""
        self._endpoints = {}
        for channel in self.current.values():
            channel.close()

    def node_of(self, replica_id: str) -> str:
        """Where a replica is; "": it is gone."""
        endpoint = self._endpoints.get(replica_id)
        return endpoint.node_id if endpoint is not None else ""

    def granted(self, channel: Channel) -> bool:
        """A grant has come; whether by a channel that calls are sent by."""
        if channel.replica_id in self._connecting:
            self._connecting[channel.replica_id].set()
        return self.current.get(channel.replica_id) is channel

    def lost(self, channel: Channel) -> bool:
        """A channel is gone; whether it was one that calls are sent by."""
        self._ending.discard(channel)
        if self.current.get(channel.replica_id) is not channel:
            return False
        del self.current[channel.replica_id]
        self._retry()
        return True

    def stop(self, replica_id: str, *attempt: Any) -> None:
        """Nobody waits for an attempt any more, by whichever channel it went."""
        for channel in (self.current.get(replica_id), *self._ending):
            if channel is not None and channel.replica_id == replica_id:
                channel.stop(*attempt)

    def _end(self, channel: Channel) -> None:
        if not channel.is_lost:
            self._ending.add(channel)
            channel.close()

    # -- connecting

    def _connect_missing(self) -> None:
        missing = [each for name, each in self._endpoints.items() if name not in self.current and name not in self._connecting]
        if missing:
            self._connecting.update((each.replica_id, asyncio.Event()) for each in missing)
            self._later(self._connect(missing))

    def _retry(self) -> None:
        if not self._retrying:
            self._retrying = True
            self._later(self._connect_later())

    async def _connect_later(self) -> None:
        await asyncio.sleep(RETRY_S)
        self._retrying = False
        self._connect_missing()

    async def _connect(self, endpoints: list[Endpoint]) -> None:
        """Connect to some replicas. Those that are quick to grant something are adopted together: else all the first calls
        would go to the one that was the quickest of all.
        """
        meetings = [self._later(self._meet(each)) for each in endpoints]
        quick, slow = await asyncio.wait(meetings, timeout=MEET_S)
        self._adopt([each.result() for each in quick])
        for each in asyncio.as_completed(slow):
            self._adopt([await each])

    async def _meet(self, endpoint: Endpoint) -> tuple[str, Channel | None]:
        """Connect to a replica and hear what it grants at first, unless that takes long; None: it cannot be reached."""
        channel = Channel(endpoint.replica_id, self._listener, partial(self._find_actor, endpoint))
        try:
            await self._open(channel, endpoint)
        except Exception as error:  # OSError, or whatever Ray has for an actor that is gone
            LOG.info("%s cannot be reached: %s", endpoint.replica_id, error)
            return endpoint.replica_id, None
        with suppress(TimeoutError):
            async with asyncio.timeout(MEET_S):
                await self._connecting[endpoint.replica_id].wait()
        return endpoint.replica_id, channel

    def _adopt(self, met: list[tuple[str, Channel | None]]) -> None:
        adopted = []
        for replica_id, channel in met:
            del self._connecting[replica_id]
            if channel is not None and channel.open and replica_id in self._endpoints:
                self.current[replica_id] = channel
                adopted.append(channel)
                continue
            if channel is not None:
                self._end(channel)
            if replica_id in self._endpoints:
                self._retry()
        self._tell_adopted(adopted)

    async def _open(self, channel: Channel, endpoint: Endpoint) -> None:
        if endpoint.node_id == self._node_id and endpoint.socket_path:
            try:
                opened = connected(Path(endpoint.socket_path), timeout_s=0.0)
            except PermissionError as error:  # it is another user's, who lets us use the cluster, say
                LOG.info("calls to %s go through Ray: %s", endpoint.replica_id, error)
            else:
                await asyncio.get_running_loop().create_unix_connection(partial(SocketTransport, channel), sock=opened)
                return
        ActorTransport(channel, await self._find_actor(endpoint))

    async def _find_actor(self, endpoint: Endpoint) -> Any:
        return await find_actor(endpoint.actor_name, self._namespace, self._cluster)

    def _later(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
