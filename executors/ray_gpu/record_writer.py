"""The store of a cluster on Ray: puts records into the checkpoint, those of one deployment one after the other."""

import asyncio
import logging
from collections.abc import Callable

from executors.ray_gpu.world import World
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import Record

LOG = logging.getLogger(__name__)


class RecordWriter:
    """Of the records that wait while one is being put, only the newest is put. The machine repeats what is not acknowledged.

    Args:
        on_saved: Called with each record that was put, after it was acknowledged.
    """

    def __init__(self, world: World, on_saved: Callable[[Record], None]) -> None:
        self._world = world
        self._on_saved = on_saved
        self._waiting: dict[DeploymentId, tuple[Record, Callable[[str], None]]] = {}
        self._writing: dict[DeploymentId, asyncio.Task[None]] = {}

    def save(self, record: Record, answer: Callable[[str], None]) -> None:
        """Begin to store a record, or have it stored once the one before is."""
        deployment = record.deployment
        self._waiting[deployment] = record, answer
        if deployment not in self._writing:
            self._writing[deployment] = asyncio.get_running_loop().create_task(self._write(deployment))

    async def _write(self, deployment: DeploymentId) -> None:
        while (found := self._waiting.pop(deployment, None)) is not None:
            record, answer = found
            try:
                await self._world.call(self._world.checkpoint.put_record, record)
            except Exception as error:  # it raises whatever its connection raises
                LOG.exception("the record of %s could not be stored; that is tried again", deployment)
                answer(f"what was decided about {deployment} cannot be stored, and is not carried out before it is: {error}")
            else:
                answer("")
                self._on_saved(record)
        del self._writing[deployment]
