"""What replicas say of themselves, where somebody wants to know: which models they have, what their user code counts.

All of it runs on the routers' thread, but for `ReplicaNews.metadata_of`.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from executors.ray_gpu.requests.channel import Channel
from rankcore.routing.events import KeysHeld

if TYPE_CHECKING:
    from executors.ray_gpu.requests.proposer import Proposer

WATCH_S = 10.0
"""How often replicas look at what they have, where it is wanted for `metadata_of` alone."""
METADATA_S = 10.0
"""How long is waited for what a replica says of itself, once."""


class ReplicaNews:
    """Has replicas say it, and keeps it.

    Args:
        channels: To the replicas, by their ids.
        proposer: A user's code that says who gets a call, and wants to know all of it; None: there is none.
        tell: Takes what the core is to know of it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channels: Callable[[], Mapping[str, Channel]],
        proposer: Callable[[], "Proposer | None"],
        tell: Callable[[KeysHeld], None],
    ) -> None:
        self._loop = loop
        self._proposer = proposer
        self._channels = channels
        self._tell = tell
        self._said: dict[str, dict[str, Any]] = {}
        self._heard = asyncio.Event()
        self._asks_models = False

    def watch(self, channel: Channel) -> None:
        """Have a replica say what it has, if anybody wants to know."""
        if (proposer := self._proposer()) is not None:
            channel.watch(proposer.source.stats_period_s, proposer.source.stats_timeout_s)
        elif self._asks_models:
            channel.watch(WATCH_S, WATCH_S)

    def ask_models(self) -> None:
        """A call is for a model: from now on it is known who has which."""
        if not self._asks_models:
            self._asks_models = True
            self.watch_all()

    def watch_all(self) -> None:
        """The same, of all replicas."""
        for channel in self._channels().values():
            self.watch(channel)

    def says(self, replica_id: str, said: dict[str, Any]) -> None:
        """A replica says what it has."""
        self._said[replica_id] = said
        self._heard.set()
        if (proposer := self._proposer()) is not None:
            proposer.says(replica_id, said)
        elif self._asks_models:
            self._tell(KeysHeld(replica_id=replica_id, keys=tuple(said.get("models", ())), at=self._loop.time()))

    def lost(self, replica_id: str) -> None:
        """It has nothing any more."""
        self._said.pop(replica_id, None)

    async def metadata_of(self, replica_id: str) -> dict[str, Any]:
        """What a replica has said of itself, once; from any event loop."""
        found: dict[str, Any] = await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._metadata_of(replica_id), self._loop)
        )
        return found

    async def _metadata_of(self, replica_id: str) -> dict[str, Any]:
        channel = self._channels().get(replica_id)
        if replica_id not in self._said and channel is not None:
            channel.watch(WATCH_S, WATCH_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(METADATA_S):
                while self._said.get(replica_id, {}).get("metadata") is None:
                    self._heard.clear()
                    await self._heard.wait()
        return self._said.get(replica_id, {}).get("metadata") or {}
