"""A cluster in one process as a system under test: two nodes, an event loop of its own, weights in name only."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from executors.inproc import InprocCluster
from rankcore.cluster import ApplicationSpec, EntrySpec
from rankcore.cluster.events import ChangeRequested, DeletionRequested, NodeJoined, WorkerLost
from rankcore.cluster.residency import ResidencySpec
from rankcore.events import NodeLost
from rankcore.frozen import freeze_json
from rankcore.spec import DeploymentSpec
from rankcore.testing.conformance import Belief, SelfReport
from rankcore.values import DeploymentStatus, NodeId, ReplicaId, ReplicaRank

PATIENCE_S = 60.0
GPU_BYTES = 8


class Obedient:
    """A node whose models start slowly, or fail to, where they are told."""

    def __init__(self) -> None:
        self.configs: dict[str, Any] = {}
        self.slow_s, self.failures = 0.0, 0

    async def load(self, command: Any, progress: Any) -> None:
        await asyncio.sleep(0)

    async def offload(self, worker_id: str) -> None:
        self.configs.pop(worker_id, None)

    drop = offload

    async def reconfigure(self, worker_id: str, rank: ReplicaRank, world_size: int, user_config: Any) -> None:
        while self.slow_s:
            await asyncio.sleep(0.005)
        if worker_id not in self.configs and self.failures:
            self.failures -= 1
            raise RuntimeError("told to fail")
        if user_config is not None or worker_id not in self.configs:
            self.configs[worker_id] = freeze_json(user_config)

    async def answer(self, worker_id: str, payload: Any) -> None:
        raise NotImplementedError("nobody calls")


class InprocSystem:
    """Beliefs are noted with every message, so that their history is complete."""

    def __init__(self) -> None:
        self._events = asyncio.new_event_loop()
        self._node = Obedient()
        self._cluster = InprocCluster(self._node)
        self._beliefs: dict[ReplicaId, list[Belief]] = defaultdict(list)
        self._spec: EntrySpec | None = None

    def deploy(self, spec: DeploymentSpec) -> None:
        self._run(self._deploy(spec))

    async def _deploy(self, spec: DeploymentSpec) -> None:
        cluster = await self._cluster.__aenter__()
        receive = cluster._workers._receive

        def received(held: Any, message: Any) -> None:
            receive(held, message)
            replica = held.worker.replica
            if replica is not None and replica.rank is not None:
                beliefs = self._beliefs[replica.replica_id]
                if not beliefs or beliefs[-1].rank != replica.rank:
                    beliefs.append(Belief(cluster.now, replica.rank))

        cluster._workers._receive = received
        for node_id in ("n1", "n2"):
            gpus = (GPU_BYTES,) * 6
            cluster.tell(NodeJoined(node_id=node_id, resources={}, gpu_bytes=gpus, cpu_bytes=100, at=cluster.now))
        cluster.apply(ApplicationSpec(name="s", deployments=(self._entry(spec),)))

    def _entry(self, spec: DeploymentSpec) -> EntrySpec:
        residency = ResidencySpec(weight_bytes=GPU_BYTES, min_hot_s=0.0)
        return EntrySpec(ranks=attrs.evolve(spec, name=f"s/{spec.name}"), residency=residency)

    def change(self, spec: DeploymentSpec) -> None:
        self._tell(ChangeRequested, spec=self._entry(spec))

    def delete(self, name: str) -> None:
        self._tell(DeletionRequested, deployments=(f"s/{name}",))

    def status(self, name: str) -> DeploymentStatus | None:
        entry = self._cluster.state.deployments.get(f"s/{name}")
        return entry.ranks.status if entry is not None else None

    def reports(self, name: str) -> Sequence[SelfReport]:
        return [
            SelfReport(
                replica_id=replica.replica_id,
                node_id=replica.node_id,
                at=self._cluster.now,
                beliefs=tuple(self._beliefs[replica.replica_id]),
                world_size=replica.world_size,
                version=replica.version,
                user_config=self._node.configs.get(held.worker_id),
                ready=replica.ready,
                draining=held.is_leaving,
            )
            for held in self._cluster._workers._held.values()
            if (replica := held.worker.replica) is not None
        ]

    def kill_replica(self, replica_id: ReplicaId) -> None:
        held = self._cluster._workers._tenures[replica_id]
        self._node.configs.pop(held.worker_id, None)
        self._tell(WorkerLost, worker_id=held.worker_id, node_id=held.worker.node_id, reason="killed")

    def lose_node(self, node_id: NodeId) -> None:
        self._tell(NodeLost, node_id=node_id)

    def crash_controller(self) -> None:
        raise NotImplementedError("it ends with its replicas")

    def fail_starts(self, name: str, count: int) -> None:
        self._node.failures = count

    def slow_starts(self, name: str, by_s: float) -> None:
        self._node.slow_s = by_s

    def until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > limit:
                raise TimeoutError(f"waited {PATIENCE_S:g} s for {waiting_for}")
            self._run(asyncio.sleep(0.002))

    def _tell(self, kind: Any, **fields: Any) -> None:
        async def told() -> None:
            self._cluster.tell(kind(**fields, at=self._cluster.now))

        self._run(told())

    def _run(self, work: Any) -> Any:
        return self._events.run_until_complete(work)

    def __enter__(self) -> "InprocSystem":
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._cluster.__aexit__())
        self._events.close()
