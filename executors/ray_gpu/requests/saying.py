"""What a replica says of itself to callers that want to know: its models, and what its user code counts. Replica processes
import this where somebody asks. All of it runs on the user's thread.

`record_routing_stats()` of the user's class is asked every so often, the shortest that anybody wants; it may be asynchronous,
and what it returns is sent as it is. `record_replica_metadata()` is asked once. What raises, or takes too long, leaves what was
before; the log has it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from executors.ray_gpu.requests.multiplexing import loaded_model_ids, when_models_change
from executors.ray_gpu.requests.packing import dumps
from executors.ray_gpu.user_code import finished

if TYPE_CHECKING:
    from executors.ray_gpu.requests.connection import Connection

LOG = logging.getLogger(__name__)

STATS, METADATA = "record_routing_stats", "record_replica_metadata"


class Saying:
    """Tells some callers what there is, whenever it is something else."""

    def __init__(self, user: Callable[[], Any]) -> None:
        self._user = user
        self._listeners: dict[str, tuple[Connection, float, float]] = {}
        self._said: dict[str, Any] = {"models": sorted(loaded_model_ids()), "stats": {}, "metadata": None}
        self._task: asyncio.Task[None] | None = None
        self._sooner = asyncio.Event()
        when_models_change(self._look_at_models)

    def listens(self, connection: "Connection", period_s: float, timeout_s: float) -> None:
        """A caller wants to know."""
        self._listeners[connection.key] = (connection, max(0.01, period_s), max(0.01, timeout_s))
        self._say((connection,))
        self._sooner.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look())

    def left(self, key: str) -> None:
        """A caller is gone."""
        self._listeners.pop(key, None)

    def end(self) -> None:
        """Nobody is told anything more."""
        self._listeners.clear()
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        while True:
            self._sooner.clear()
            if not self._listeners:
                await self._sooner.wait()
                continue
            timeout_s = max(each for _, _, each in self._listeners.values())
            if self._said["metadata"] is None:
                self._tell(metadata=await self._asked(METADATA, timeout_s) or {})
            found = await self._asked(STATS, timeout_s)
            if found is not None:
                self._tell(stats=found)
            period_s = min((each for _, each, _ in self._listeners.values()), default=timeout_s)
            try:
                async with asyncio.timeout(period_s):
                    await self._sooner.wait()
            except TimeoutError:
                pass

    async def _asked(self, name: str, timeout_s: float) -> dict[str, Any] | None:
        function = getattr(self._user(), name, None)
        if function is None:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                found = await finished(function)
            if not isinstance(found, dict):
                raise TypeError(f"must return a dict, got {found!r:.80}")
            dumps(found)
        except Exception as error:
            LOG.warning("%s: %s: %s", name, type(error).__name__, error)
            return None
        return found

    def _look_at_models(self) -> None:
        self._tell(models=sorted(loaded_model_ids()))

    def _tell(self, **news: Any) -> None:
        said = {**self._said, **news}
        if said != self._said:
            self._said = said
            self._say(tuple(connection for connection, _, _ in self._listeners.values()))

    def _say(self, connections: "tuple[Connection, ...]") -> None:
        said = dumps(self._said)
        for connection in connections:
            connection.say_what_there_is(said)
