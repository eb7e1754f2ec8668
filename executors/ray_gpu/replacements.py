"""Replicas that users want replaced by name: stored, then the machine is told; and once more that of the next controller.

What is stored of a replica is dropped once it is found to be gone: with the next request, or by the next controller. Ids are
never used again, so what is left until then means nobody. Of a deployment that is left alone nobody knows who is gone: the
controller that can read its record is told.
"""

from collections.abc import Callable
from functools import partial

import attrs

from executors.engine.loop import ClusterLoop
from executors.maintenance import Maintenance
from executors.ray_gpu.world import World, persist
from rankcore.cluster.events import ClusterEvent
from rankcore.cluster.names import DeploymentId
from rankcore.events import ReplaceRequested
from rankcore.values import ReplicaId


class Replacements:
    """Runs on the controller's event loop.

    Args:
        maintenance: Read by now, once this recovers.
        loop: Of the machine, once it has begun.
        why_left_alone: Why a deployment is; None: it is not.
        request: Hands an event to the machine.
    """

    def __init__(
        self,
        world: World,
        maintenance: Maintenance,
        loop: Callable[[], ClusterLoop],
        why_left_alone: Callable[[DeploymentId], str | None],
        request: Callable[[ClusterEvent], None],
    ) -> None:
        self._world = world
        self._maintenance = maintenance
        self._loop = loop
        self._why_left_alone = why_left_alone
        self._request = request

    async def recover(self) -> None:
        """Tell all again that was asked of earlier controllers, of those who are there."""
        await persist(partial(self._maintenance.forget, replicas=self._gone()))
        there = self._maintenance.replacements.keys() - self._maintenance.gone(self._loop().state)
        for request in [each for replica_id, each in self._maintenance.replacements.items() if replica_id in there]:
            self._request(attrs.evolve(request, at=self._world.now()))

    async def ask(self, event: ReplaceRequested) -> None:
        """What a user wants: stored, then told. Repeatable.

        Raises:
            RankcoreError: The machine refuses it. Nothing is stored.
        """
        self._loop().check(event)
        await self._world.call(self._maintenance.forget, replicas=self._gone())
        await self._world.call(self._maintenance.ask, event)
        self._request(event)

    def _gone(self) -> list[ReplicaId]:
        """Those of a deployment that is left alone are not known to be."""
        gone = self._maintenance.gone(self._loop().state)
        return [each for each in gone if self._why_left_alone(each.rpartition("#")[0]) is None]
