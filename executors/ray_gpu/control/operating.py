"""What operators ask of deployments and replicas that there are."""

from typing import TYPE_CHECKING, Any

import attrs

from executors import operations
from executors.deployment_ids import split
from executors.ray_gpu import traces
from executors.ray_gpu.control.named import NamesKnown
from executors.ray_gpu.errors import InvalidDeploymentError, UnknownNameError, refused
from executors.ray_gpu.ids_on_ray import renamed_id
from executors.ray_gpu.routing_table import routing_of
from executors.ray_gpu.worker.options import MemoryOptions
from rankcore.errors import InvalidEventError
from rankcore.events import ReplaceRequested, StopRequested
from rankcore.residency.events import EvictRequested
from rankcore.residency.levels import Level
from rankcore.values import ReplicaId

if TYPE_CHECKING:
    from rankcore.residency.defragmentation import Proposal


class Operates(NamesKnown):
    """Changes what runs."""

    async def evict(self, name: str, keep: str) -> None:
        """Take the replicas of a deployment off the GPUs, or the one replica that has the name. Does not wait for them.

        Args:
            keep: WARM: a copy stays in the node's memory if there is room; COLD: none does.

        Raises:
            UnknownNameError: There is no such deployment or replica.
            InvalidDeploymentError: Its weights are not such that may be COLD, or it is being deleted.
        """
        found = self._host(await self.require(name.partition("#")[0]))
        replica_id = f"{found.deployment}#{name.partition('#')[2]}" if "#" in name else None
        if replica_id is not None and replica_id not in found.entry.ranks.replicas:
            raise UnknownNameError(f"there is no replica {replica_id!r}: status() shows those that there are")
        if found.entry.residency is None:
            raise InvalidDeploymentError(f"{found.deployment} has no residency: its replicas have their weights for life")
        model = found.deployment if replica_id is None else None
        event = EvictRequested(model=model, replica_id=replica_id, keep=Level(keep), at=self._world.now())
        try:
            self._cluster.request(event)
        except InvalidEventError as error:
            raise refused(error) from None
        await self._cluster.until_saved((found.deployment,))

    async def propose_defragmentation(self, name: str | None) -> "Proposal":
        """Moves that would let weights fit; nothing is moved.

        Args:
            name: Of the deployment; None: the largest that waits.

        Raises:
            UnknownNameError: There is no such deployment.
            InvalidDeploymentError: Its weights are not such that may be COLD.
        """
        from rankcore.residency.defragmentation import propose_defragmentation

        model = None if name is None else await self.require(name)
        if model is not None and self._cluster.deployments[model].entry.residency is None:
            raise InvalidDeploymentError(f"{model} has no residency: its replicas have their weights for life")
        return propose_defragmentation(self._cluster.state.weights.planner, model)

    async def use_tracing(self, config: dict[str, Any]) -> None:
        """Have replicas and proxies that begin from now on leave these spans. Repeatable."""
        await self._world.call(traces.keep, self._world.namespace, traces.tracing_config_of(config))

    async def use_memory(self, options: MemoryOptions) -> None:
        """Have weights that may be COLD use this memory of nodes. Repeatable.

        Raises:
            InvalidDeploymentError: There are such weights, and they use other memory.
        """
        if options == await self._world.call(self._world.checkpoint.memory):
            return
        users = sorted(name for name, found in self._cluster.deployments.items() if found.entry.residency is not None)
        if users or self._cluster.workers.processes:
            first = f"delete {', '.join(users)}" if users else "wait until workers have ended"
            raise InvalidDeploymentError(f"memory can be chosen where nobody uses it: {first}")
        await self._world.call(self._world.checkpoint.put_memory, options)

    async def change(
        self,
        name: str,
        fields: dict[str, Any],
        stop_first: tuple[ReplicaId, ...],
        routing_fields: dict[str, Any] | None = None,
    ) -> None:
        """Change some fields of a deployment's spec, and of how its calls are routed. Repeatable. Waits until that is stored.

        Raises:
            InvalidDeploymentError: It asks for a number of replicas, which follows the load; or it is being deleted.
        """
        found = self._host(await self.require(name))
        bare = split(found.deployment)[1]
        renamed = (renamed_id(each, found.id_on_ray, found.deployment) for each in stop_first)
        first = tuple(renamed_id(each, bare, found.deployment) for each in renamed)
        routing = attrs.evolve(routing_of(found.entry), **routing_fields) if routing_fields else None
        try:
            for event in operations.changed(found.entry, fields, self._world.now(), stop_first=first, routing=routing):
                self._cluster.request(event)
        except InvalidEventError as error:
            raise refused(error) from None
        await self._cluster.until_saved((found.deployment,))

    async def rollback(self, name: str) -> None:
        """Want what was healthy last again: its code, user_config and restart token, in all ranks. Waits until that is stored.

        Raises:
            InvalidDeploymentError: Nothing else was healthy; or it is being deleted.
        """
        found = self._host(await self.require(name))
        await self.change(found.deployment, operations.rolled_back(found.entry), ())

    async def retry(self, name: str, ranks: tuple[int, ...]) -> None:
        """End the back-off of these ranks, or of all, and try again what was given up. Waits until that is stored.

        Raises:
            InvalidDeploymentError: There is no such rank, or none that waits; or it is being deleted.
        """
        found = self._host(await self.require(name))
        event = operations.retried(found.entry, ranks, self._world.now())
        try:
            self._cluster.request(event)
        except InvalidEventError as error:
            raise refused(error) from None
        await self._cluster.until_saved((found.deployment,))

    async def stop_replicas(self, replica_ids: tuple[ReplicaId, ...]) -> None:
        """Stop some replicas; each is replaced, with its own rank.

        Raises:
            UnknownNameError: There is no such replica, or there are several of that name. None is stopped.
        """
        self._cluster.request(StopRequested(replica_ids=self._replicas_meant(replica_ids), at=self._world.now()))

    async def replace_replicas(self, replica_ids: tuple[ReplicaId, ...], deadline_s: float | None) -> None:
        """Replace some replicas within the budget, each by a successor with its rank that has a place before it goes.

        Repeatable. Waits until that is stored.

        Raises:
            UnknownNameError: There is no such replica, or there are several of that name. None is replaced.
            InvalidDeploymentError: The weights of one of them may be COLD. Likewise.
        """
        now = self._world.now()
        deadline_at = now + deadline_s if deadline_s is not None else None
        event = ReplaceRequested(replica_ids=self._replicas_meant(replica_ids), deadline_at=deadline_at, at=now)
        try:
            await self._cluster.replacements.ask(event)
        except InvalidEventError as error:
            raise refused(error) from None

    def _replicas_meant(self, replica_ids: tuple[ReplicaId, ...]) -> tuple[ReplicaId, ...]:
        known = {
            found.replica_on_ray(replica_id): replica_id
            for found in self._cluster.deployments.values()
            for replica_id in found.entry.ranks.replicas
        }
        return operations.replicas_meant(replica_ids, known)
