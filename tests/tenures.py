"""For tests of workers on Ray: what they serve, and who tells callers where they are, in a controller's place.

Replicas import this file.
"""

import asyncio
import os
import pickle
import time
from itertools import count
from pathlib import Path

import attrs
import ray
import torch
from ray.experimental import internal_kv

from executors import ray_gpu as serve
from executors.ray_gpu import names
from executors.ray_gpu.messages import Change, DeploymentNews, Ingress, Routes
from executors.ray_gpu.packing import pack
from executors.ray_gpu.requests.handle import DeploymentHandle
from executors.ray_gpu.worker.messages import Leave, Load, MoveEnded
from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.worker.places import NodeMemory, Places
from executors.ray_gpu.worker.starting import start_worker
from executors.torch_weights import moves, stand_in
from rankcore.routing.spec import RoutingSpec
from tests.fleet_models import WEIGHT_BYTES, WIDTH

ROOM_BYTES = 2 * WEIGHT_BYTES
PIECES = 4
NAMESPACE = "tenures"
APPLICATION = "shop"


@serve.deployment(max_ongoing_requests=4)
class Tenured:
    """Answers in several ways with its weights, and remembers what it was told. Loads wait while the file "hold" is there."""

    def __init__(self, folder: str) -> None:
        with torch.device("meta"):
            self.module = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.folder = Path(folder)
        self.told: list[tuple[str, int]] = []
        self.told_in: list[str] = []
        try:
            self.rank_when_built = serve.get_replica_context().rank.rank
        except serve.NotInReplicaError:
            self.rank_when_built = None
        moves.CHUNK_BYTES = WEIGHT_BYTES // PIECES
        upload, numbers = stand_in._CopyLane.upload, count(1)

        def held_upload(lane, target, source):  # type: ignore[no-untyped-def]
            last = next(numbers) % PIECES == 0
            while last and (Path(folder) / "hold").exists():
                time.sleep(0.01)
            return upload(lane, target, source)

        stand_in._CopyLane.upload = held_upload  # type: ignore[method-assign]

    def reconfigure(self, user_config, rank):  # type: ignore[no-untyped-def]
        if user_config == "fail":
            raise ValueError("this config is bad")
        self.told.append((user_config, rank.rank))
        self.told_in.append(serve.get_replica_context().replica_id)

    async def __call__(self, request):  # type: ignore[no-untyped-def]
        return self.count(int(request.query_params["upto"]))

    async def count(self, upto, gate=""):  # type: ignore[no-untyped-def]
        """The sum of the weights, so often; the second time once there is a gate."""
        for number in range(upto):
            while gate and number == 1 and not Path(gate).exists():
                await asyncio.sleep(0.01)
            yield f"{number}: {self.total():.3f}\n"

    def total(self) -> float:
        return float(self.module.weight.double().sum())

    async def for_ever(self, begun):  # type: ignore[no-untyped-def]
        Path(begun).touch()
        await asyncio.Event().wait()

    def blocks(self, begun, gate):  # type: ignore[no-untyped-def]
        Path(begun).touch()
        while not Path(gate).exists():
            time.sleep(0.01)

    @serve.batch(max_batch_size=3, batch_wait_timeout_s=100.0)
    async def together(self, values):  # type: ignore[no-untyped-def]
        return [(value, len(values), self.total()) for value in values]

    def echo(self, value):  # type: ignore[no-untyped-def]
        return value

    def standing(self):  # type: ignore[no-untyped-def]
        context = serve.get_replica_context()
        return os.getpid(), context.replica_id, context.rank.rank, context.world_size, self.told, self.told_in

    def when_built(self):  # type: ignore[no-untyped-def]
        return self.rank_when_built

    def __del__(self) -> None:
        (self.folder / "ended").touch()


class TenureController:
    """Says where calls go, as a test tells it."""

    def __init__(self, spec: RoutingSpec) -> None:
        self._routes = Routes(endpoints=(), world_size=1, spec=spec)
        self._number = 1
        self._changed = asyncio.Condition()

    async def route(self, endpoints, world_size=1):  # type: ignore[no-untyped-def]
        async with self._changed:
            self._routes = Routes(tuple(endpoints), world_size, self._routes.spec)
            self._number += 1
            self._changed.notify_all()

    async def watch(self, question):  # type: ignore[no-untyped-def]
        if question.since:
            return None  # say all
        (deployment, known), *_ = question.seen.items()
        async with self._changed:
            await self._changed.wait_for(lambda: known.routes != (1, self._number))
            return {deployment: DeploymentNews(((1, self._number), self._routes))}

    async def ingress(self, seen):  # type: ignore[no-untyped-def]
        deployment = self._routes.spec.name
        found = Ingress({"/": deployment}, {APPLICATION: deployment})
        if seen == found:
            await asyncio.Event().wait()
        return found

    async def report_load(self, report):  # type: ignore[no-untyped-def]
        pass


class TenureWorld:
    """A cluster with one deployment, a controller that knows what a test tells it, and memory that stands for one GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = pack(Tenured.bind(str(folder)), (str(folder),), {}, APPLICATION)
        code = self.package.code
        self.deployment = code.deployment
        key = names.code_key(NAMESPACE, code.deployment, code.version)
        internal_kv._internal_kv_put(key, pickle.dumps(code), namespace=names.KV_NAMESPACE)
        controller_class = ray.remote(TenureController)
        self.controller = controller_class.options(
            name=names.CONTROLLER, namespace=NAMESPACE, num_cpus=0, max_concurrency=1000
        ).remote(self.package.routing)
        options = MemoryOptions(device="cpu", stand_in_gpu_bytes=(ROOM_BYTES,))
        node_id = ray.get_runtime_context().get_node_id()
        self.places = Places(options, NAMESPACE, node_id, NodeMemory((ROOM_BYTES,), 4 * WEIGHT_BYTES))
        self.handle = DeploymentHandle(self.deployment, namespace=NAMESPACE)

    @property
    def free_bytes(self) -> int:
        return self.places.device(0).memory().free_bytes

    @property
    def warm_bytes(self) -> int:
        return self.places.warm_store().used_bytes()

    def worker(self, serial: int, weights: str) -> "DrivenWorker":
        return DrivenWorker(self, f"{self.deployment}@1.{serial}", weights)

    def route(self, *endpoints) -> None:  # type: ignore[no-untyped-def]
        ray.get(self.controller.route.remote(endpoints))


class DrivenWorker:
    """A worker that does what a test tells it, in epoch 1."""

    def __init__(self, world: TenureWorld, worker_id: str, weights: str) -> None:
        self.world = world
        code = world.package.code
        self.actor = start_worker(NAMESPACE, code.deployment, worker_id, code.version, 1, weights, None, world.places, {})
        self.moves = 0

    def tenure(self, serial: int) -> str:
        return f"{self.world.deployment}#1.{serial}"

    def begin_load(self):  # type: ignore[no-untyped-def]
        self.moves += 1
        load = Load(epoch=1, move=self.moves, gpus=(0,), gpu_bytes=(WEIGHT_BYTES,))
        return self.actor.load_to_gpu.options(num_returns="streaming").remote(load)

    def load(self) -> MoveEnded:
        *_, end = (ray.get(each) for each in self.begin_load())
        assert end == MoveEnded(self.moves, gpu_bytes=(WEIGHT_BYTES,))
        return end

    def begin_leave(self, timeout_s=60.0, **options):  # type: ignore[no-untyped-def]
        self.moves += 1
        return self.actor.leave.remote(Leave(epoch=1, move=self.moves, timeout_s=timeout_s, **options))

    def leave(self, timeout_s=60.0, **options) -> MoveEnded:  # type: ignore[no-untyped-def]
        return ray.get(self.begin_leave(timeout_s, **options))

    def take(self, serial: int):  # type: ignore[no-untyped-def]
        return ray.get(self.actor.take.remote(1, self.tenure(serial)))

    def change(self, serial: int, rank: int, **fields):  # type: ignore[no-untyped-def]
        fields = {"epoch": 1, "revision": serial, "initialize": True, "user_config": "v1", "config_id": "1", **fields}
        change = Change(ranks=(rank, 0, 0), world_size=2, **fields)
        return ray.get(self.actor.change.remote(self.tenure(serial), change))

    def open(self, serial: int, rank: int, *, has_socket: bool = True):  # type: ignore[no-untyped-def]
        """Load, give it a tenure and a rank, and route it; returns where it is. Without a socket calls are actor calls."""
        self.load()
        endpoint = self.take(serial)
        assert self.change(serial, rank).kind == "done"
        self.world.route((endpoint if has_socket else attrs.evolve(endpoint, socket_path=""), rank))
        return endpoint

    def report(self):  # type: ignore[no-untyped-def]
        return ray.get(self.actor.describe.remote())
