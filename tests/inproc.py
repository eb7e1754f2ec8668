"""For tests of clusters in one process: weights in name only, and how to begin."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from executors.engine.clusters import ClusterResumed
from executors.inproc import InprocCluster, NotThereError
from rankcore import DeploymentSpec
from rankcore.cluster import ApplicationSpec, EntrySpec, recover_cluster
from rankcore.cluster.events import NodeJoined
from rankcore.cluster.invariants import check, check_step
from rankcore.cluster.residency import ResidencySpec, deployment_of
from rankcore.residency import ResidencyPolicy
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.state import open_residency
from rankcore.values import ReplicaRank

TIMEOUT_S = 60.0


class Weights:
    """Weights in name only: what is done waits for a word of the test where it says so.

    Attributes:
        hot: Workers on the GPUs.
        log: What was done, in order.
        held: What goes on only when the test says: "load s/a", "answer s/a".
        fails: What it raises in place of being done.
        broken_off: What was given up while it was held.
    """

    def __init__(self) -> None:
        self.hot: set[str] = set()
        self.log: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.fails: dict[str, Exception] = {}
        self.broken_off: list[str] = []

    def hold(self, what: str) -> asyncio.Event:
        self.held[what] = asyncio.Event()
        return self.held[what]

    async def _gate(self, what: str, worker_id: str) -> None:
        said = f"{what} {deployment_of(worker_id)}"
        if said in self.held:
            try:
                await self.held[said].wait()
            except asyncio.CancelledError:
                self.broken_off.append(said)
                raise
        if said in self.fails:
            raise self.fails[said]
        self.log.append(said)

    async def load(self, command: LoadToGpu, progress: Callable[[int], None]) -> None:
        progress(sum(command.gpu_bytes) // 2)
        await self._gate("load", command.replica_id)
        self.hot.add(command.replica_id)

    async def offload(self, worker_id: str) -> None:
        await self._gate("offload", worker_id)
        self.hot.discard(worker_id)

    async def drop(self, worker_id: str) -> None:
        await self._gate("drop", worker_id)
        self.hot.discard(worker_id)

    async def answer(self, worker_id: str, payload: Any) -> Any:
        if worker_id not in self.hot:
            raise NotThereError(worker_id)
        await self._gate("answer", worker_id)
        if isinstance(payload, Exception):
            raise payload
        return f"{deployment_of(worker_id)} says {payload}"


class Sharded(Weights):
    """Answers with the rank that it was given.

    Attributes:
        ranks: What each worker on the GPUs was told last.
        told: All that any was told.
        refuses: Ranks for which user code raises.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[str, ReplicaRank] = {}
        self.told: list[tuple[int, int, Any]] = []
        self.refuses: set[int] = set()

    async def reconfigure(self, worker_id: str, rank: ReplicaRank, world_size: int, user_config: Any) -> None:
        await asyncio.sleep(0)
        self.told.append((rank.rank, world_size, user_config))
        if rank.rank in self.refuses:
            raise RuntimeError("no such shard")
        self.ranks[worker_id] = rank

    async def offload(self, worker_id: str) -> None:
        await super().offload(worker_id)
        self.ranks.pop(worker_id, None)

    async def drop(self, worker_id: str) -> None:
        await super().drop(worker_id)
        self.ranks.pop(worker_id, None)

    async def answer(self, worker_id: str, payload: Any) -> int:
        return self.ranks[worker_id].rank


OF_WEIGHTS = ("priority", "min_hot_s", "keep", "wait_for_room_s", "failed_for_s", "gpus", "spread")


def entry(deployment: str, weight_bytes: int, replicas: int = 0, routing: Any = None, **options: Any) -> EntrySpec:
    """A deployment with weights in name only; options of its residency, and others of its ranks."""
    residency = {"min_hot_s": 0.02, **{key: options.pop(key) for key in OF_WEIGHTS if key in options}}
    ranks = DeploymentSpec(name=deployment, target_replicas=replicas, **options)
    return EntrySpec(ranks=ranks, routing=routing, residency=ResidencySpec(weight_bytes=weight_bytes, **residency))


def shop(*entries: EntrySpec) -> ApplicationSpec:
    return ApplicationSpec(name="s", deployments=entries)


def join(cluster: InprocCluster, *gpu_bytes: int, node_id: str = "n1", cpu_bytes: int = 200) -> None:
    cluster.tell(NodeJoined(node_id=node_id, resources={}, gpu_bytes=gpu_bytes, cpu_bytes=cpu_bytes, at=cluster.now))


def weighed(**policy: Any) -> ClusterResumed:
    """A new cluster whose planner weighs things otherwise."""
    state = recover_cluster((), (), at=0.0, epoch=1).state
    planner = open_residency(ResidencyPolicy(**policy), epoch=1)
    return ClusterResumed(state=replace(state, weights=replace(state.weights, planner=planner)))


class Checked(InprocCluster):
    """Sees that each state that is looked at, and each step of a test's own, keeps every promise."""

    def tell(self, event: Any) -> Any:
        before = self.state
        step = super().tell(event)
        assert check_step(before, event, step) == []
        assert check(self.state) == []
        return step


def run(main: Callable[..., Any], *entries: EntrySpec, node: Any = None, gpus: tuple[int, ...] = (80,), **options: Any) -> Any:
    """Run a scene with a cluster of one node, and see that it is sound at its end."""

    async def scene() -> Any:
        weights = node if node is not None else Weights()
        async with Checked(weights, **options) as cluster:
            join(cluster, *gpus)
            cluster.apply(shop(*entries))
            result = await asyncio.wait_for(main(cluster, weights), TIMEOUT_S)
            assert check(cluster.state) == []
            return result

    return asyncio.run(scene())


async def until(holds: Callable[[], Any]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def phases(cluster: InprocCluster) -> Counter[str]:
    """What the planner takes workers to be about."""
    return Counter(each.phase.name for _, each in cluster.state.weights.planner.replicas.items())


def tenures(cluster: InprocCluster, deployment: str) -> dict[str, str]:
    """Which worker is which replica."""
    found = cluster.state.deployments[deployment].residency
    return {} if found is None else dict(found.tenures)
