"""Which replicas users want replaced by name: told to the machine, and to that of the next controller once more.

The machine keeps none of it over a crash. A request is stored for each replica before the machine is told, and dropped once
the replica is found to be gone: with the next request, or by the next controller. Ids are never used again, so what is
left until then means nobody. Of a deployment that is left alone nobody knows who is gone: the controller that can read its
record is told.
"""

from collections.abc import Callable

import attrs

from executors.ray_gpu.world import World, persist
from rankcore.cluster.events import ClusterEvent
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.state import ClusterState
from rankcore.events import ReplaceRequested
from rankcore.values import ReplicaId


class Replacements:
    """Runs on the controller's event loop.

    Args:
        state: Of the machine.
        why_left_alone: Why a deployment is; None: it is not.
        check: Whether the machine would take an event; raises where not.
        request: Hands it to the machine.
    """

    def __init__(
        self,
        world: World,
        state: Callable[[], ClusterState],
        why_left_alone: Callable[[DeploymentId], str | None],
        check: Callable[[ClusterEvent], None],
        request: Callable[[ClusterEvent], None],
    ) -> None:
        self._world = world
        self._state = state
        self._why_left_alone = why_left_alone
        self._check = check
        self._request = request
        self._asked: dict[ReplicaId, ReplaceRequested] = {}

    async def recover(self) -> None:
        """Tell all again that was asked of earlier controllers, of those who are there."""
        found = await persist(self._world.checkpoint.replacements)
        self._asked = {each.replica_ids[0]: each for each in found}
        await self._forget_gone()
        for each in [each for replica_id, each in self._asked.items() if self._is_there(replica_id)]:
            self._request(attrs.evolve(each, at=self._world.now()))

    async def ask(self, event: ReplaceRequested) -> None:
        """What a user wants: stored, then told. Repeatable.

        Raises:
            RankcoreError: The machine refuses it. Nothing is stored.
        """
        self._check(event)
        await self._forget_gone()
        for replica_id in event.replica_ids:
            one = attrs.evolve(event, replica_ids=(replica_id,))
            await self._world.call(self._world.checkpoint.put_replacement, one)
            self._asked[replica_id] = one
        self._request(event)

    async def _forget_gone(self) -> None:
        for replica_id in [each for each in self._asked if self._is_gone(each)]:
            await self._world.call(self._world.checkpoint.drop_replacement, replica_id)
            self._asked.pop(replica_id, None)

    def _is_gone(self, replica_id: ReplicaId) -> bool:
        return not self._is_there(replica_id) and self._why_left_alone(_owner(replica_id)) is None

    def _is_there(self, replica_id: ReplicaId) -> bool:
        entry = self._state().deployments.get(_owner(replica_id))
        return entry is not None and entry.residency is None and replica_id in entry.ranks.replicas


def _owner(replica_id: ReplicaId) -> DeploymentId:
    return replica_id.rpartition("#")[0]
