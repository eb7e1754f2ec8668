"""The processes of a fleet's replicas: there is one wherever a replica's weights are in memory, and none elsewhere."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executors.ray_gpu.residency.host import ModelHost
from executors.ray_gpu.worker.messages import MoveEnded
from executors.ray_gpu.worker.options import environment_of
from executors.ray_gpu.worker.places import Places
from rankcore.residency import Level, Phase, Resident
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.2
PREFIX = "rankcore-model:"
SEPARATOR = "@"


def why(error: RayError) -> str:
    """In one line: of an actor's end the first, which names it; of anything else the last, which is what was raised."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0 if isinstance(error, (RayActorError, ActorUnschedulableError)) else -1]


class Hosts:
    """By replica and node: a replica that is loaded elsewhere is for a moment on two nodes.

    Args:
        namespace: Of the actors.
        epoch: Of the controller.
        on_lost: Told of a process that has ended without being asked to.
    """

    def __init__(self, namespace: str, epoch: int, on_lost: Callable[[ReplicaId, NodeId, str], None]) -> None:
        self._namespace = namespace
        self._epoch = epoch
        self._on_lost = on_lost
        self._handles: dict[ReplicaId, dict[NodeId, Any]] = {}
        self._ends: dict[tuple[ReplicaId, NodeId], asyncio.Task[None]] = {}
        self._leaving: set[tuple[ReplicaId, NodeId]] = set()

    def __iter__(self) -> Iterator[tuple[ReplicaId, NodeId]]:
        return iter(sorted((replica_id, node_id) for replica_id, nodes in self._handles.items() for node_id in nodes))

    def get(self, replica_id: ReplicaId, node_id: NodeId) -> Any:
        """The actor; None: there is none, or it is being ended."""
        key = (replica_id, node_id)
        return None if key in self._leaving else self._nodes_of(replica_id).get(node_id)

    def start(self, replica_id: ReplicaId, model: bytes, places: Places, runtime_env: Mapping[str, Any]) -> Any:
        """The actor, which is started on its node, in the environment of its model, if there is none."""
        node_id = places.node_id
        if node_id not in self._nodes_of(replica_id):
            actor_class: Any = ray.remote(ModelHost)
            handle = actor_class.options(
                name=f"{PREFIX}{replica_id}{SEPARATOR}{node_id}",
                namespace=self._namespace,
                lifetime="detached",
                max_restarts=0,
                max_concurrency=10_000,
                num_cpus=0,
                runtime_env=environment_of(places.options, runtime_env),
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            ).remote(model, places, replica_id, self._epoch)
            self._keep((replica_id, node_id), handle)
        return self._handles[replica_id][node_id]

    async def find(self) -> None:
        """Take over what an earlier controller has started, and learn of its end."""
        for key, handle in sorted((await asyncio.to_thread(self._found)).items()):
            self._keep(key, handle)

    def _found(self) -> dict[tuple[ReplicaId, NodeId], Any]:
        """Blocks for some round trips."""
        found = {}
        for each in ray.util.list_named_actors(all_namespaces=True):
            if each["namespace"] != self._namespace or not each["name"].startswith(PREFIX):
                continue
            replica_id, _, node_id = each["name"].removeprefix(PREFIX).rpartition(SEPARATOR)
            try:
                found[replica_id, node_id] = ray.get_actor(each["name"], namespace=self._namespace)
            except ValueError:
                LOG.info("replica %s ended while it was looked for", replica_id)
        return found

    def _keep(self, key: tuple[ReplicaId, NodeId], handle: Any) -> None:
        self._handles.setdefault(key[0], {})[key[1]] = handle
        self._ends[key] = asyncio.get_running_loop().create_task(self._seen_to_end(key, handle))

    async def _seen_to_end(self, key: tuple[ReplicaId, NodeId], handle: Any) -> None:
        reason = "its process has ended"
        while True:
            try:
                await handle.stay.remote()
            except ActorUnavailableError as error:
                LOG.info("replica %s does not answer now: %s", key[0], error)
                await asyncio.sleep(LOOK_AGAIN_S)
            except (RayActorError, ActorUnschedulableError) as error:  # the second: its node was lost before it began
                reason = why(error) or reason
                break
            except RayError as error:
                LOG.warning("replica %s cannot be watched now: %s", key[0], error)
                await asyncio.sleep(LOOK_AGAIN_S)
        self._forget(*key)
        self._ends.pop(key, None)
        if key in self._leaving:
            self._leaving.discard(key)
        else:
            self._on_lost(*key, reason)

    def _forget(self, replica_id: ReplicaId, node_id: NodeId) -> None:
        nodes = self._handles[replica_id]
        del nodes[node_id]
        if not nodes:
            del self._handles[replica_id]

    async def end(self, replica_id: ReplicaId, node_id: NodeId, handle: Any = None) -> bool:
        """End a process, and return once it has ended; whatever it held in memory is free then.

        Args:
            replica_id: Whose.
            node_id: Where.
            handle: Of the process that is meant: one that has come after it lives on. None: the one that there is.

        Returns:
            Whether it was ended by this: False: it had ended by itself, which `on_lost` was told, or somebody else ends it.
        """
        key = (replica_id, node_id)
        there, ended = self._nodes_of(replica_id).get(node_id), self._ends.get(key)
        if there is None or ended is None or (handle is not None and there is not handle):
            return False
        ours = key not in self._leaving
        self._leaving.add(key)
        ray.kill(there, no_restart=True)
        await asyncio.shield(ended)
        return ours

    async def ended(self, replica_id: ReplicaId, node_id: NodeId) -> None:
        """Return once there is no process that is being ended: a new one may be started."""
        key = (replica_id, node_id)
        while key in self._leaving:
            await asyncio.shield(self._ends[key])

    def unneeded(
        self, replica_ids: Iterable[ReplicaId], residents: Callable[[ReplicaId], Resident | None]
    ) -> list[tuple[ReplicaId, NodeId]]:
        """The processes of these replicas that no record has a use for."""
        keys = [(replica_id, node_id) for replica_id in sorted(replica_ids) for node_id in sorted(self._nodes_of(replica_id))]
        return [key for key in keys if key not in self._leaving and not is_needed(residents(key[0]), key[1])]

    def _nodes_of(self, replica_id: ReplicaId) -> Mapping[NodeId, Any]:
        return self._handles.get(replica_id, {})


def is_needed(resident: Resident | None, node_id: NodeId) -> bool:
    """Whether a replica has weights in the memory of a node, or is about to."""
    if resident is None:
        return False
    if resident.node_id == node_id and resident.phase in (Phase.LOADING, Phase.SERVING, Phase.LEAVING):
        return True
    return resident.copy_node_id == node_id and (resident.level is Level.WARM or resident.phase is Phase.DROPPING)


async def unless_blocked(host: Any, asked: Awaitable[MoveEnded], timeout_s: float, patience_s: float) -> MoveEnded:
    """What a process says of a move, however long that takes; TimeoutError: user code blocks its loop."""
    doing = asyncio.ensure_future(asked)
    while not doing.done():
        await asyncio.wait({doing}, timeout=timeout_s + patience_s)
        if not doing.done():
            await asyncio.wait_for(host.process_id.remote(), patience_s)
    return doing.result()
