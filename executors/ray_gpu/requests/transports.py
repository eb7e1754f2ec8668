"""What carries a channel's bytes: a Unix socket to a replica on this node, actor calls to any other.

All of it runs on the routers' thread.
"""

import asyncio
import logging
from typing import Any, cast

from ray.exceptions import ActorUnavailableError

from executors.ray_gpu.requests.channel import Channel

LOG = logging.getLogger(__name__)

RETRY_S = 0.1


class SocketTransport(asyncio.Protocol):
    """A Unix socket."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The replica has answered."""
        self._transport = cast(asyncio.Transport, transport)
        self._channel.connected(self)

    def connection_lost(self, _: Exception | None) -> None:
        """The replica is gone, or we have hung up."""
        self._channel.lost()

    def data_received(self, data: bytes) -> None:
        """Answers have come in."""
        self._channel.feed(data)

    def write(self, data: bytes) -> None:
        """Send."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Hang up once everything is sent."""
        if self._transport is not None:
            self._transport.close()


class ActorTransport:
    """Actor calls: what there is to say is said in one call, and one call at a time asks what there is to hear."""

    def __init__(self, channel: Channel, actor: Any) -> None:
        self._channel = channel
        self._actor = actor
        self._said = 0
        self._closed = False
        self._saying: set[asyncio.Task[None]] = set()
        self._hearing = asyncio.get_running_loop().create_task(self._hear())
        channel.connected(self)

    def write(self, data: bytes) -> None:
        """Send. Actor calls may overtake each other, so they are numbered."""
        if not self._closed:
            saying = asyncio.get_running_loop().create_task(self._say(self._said, data))
            self._saying.add(saying)
            saying.add_done_callback(self._saying.discard)
            self._said += 1

    def close(self) -> None:
        """Hang up."""
        if not self._closed:
            self._closed = True
            self._actor.hang_up.remote(self._channel.key)
            self._hearing.cancel()
            asyncio.get_running_loop().call_soon(self._channel.lost)

    async def _say(self, number: int, data: bytes) -> None:
        """Repeated until it has arrived: without it nothing that is said later would be understood."""
        while not self._channel.is_lost:
            try:
                return await asyncio.wrap_future(self._actor.say.remote(self._channel.key, number, data).future())
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)
            except Exception as error:  # it is gone: whoever listens to it learns that
                LOG.debug("%s does not take what is said: %s", self._channel.replica_id, error)
                return

    async def _hear(self) -> None:
        heard = 0
        while not self._closed:
            try:
                answer = await asyncio.wrap_future(self._actor.hear.remote(self._channel.key, heard).future())
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)  # it may be back, and has kept what it had to say
                continue
            except Exception as error:  # RayError, or whatever a cluster that is shut down raises
                LOG.debug("%s is gone: %s", self._channel.replica_id, error)
                self._closed = True
                return self._channel.lost()
            number, data = answer
            if number > heard:
                heard = number
                self._channel.feed(data)
