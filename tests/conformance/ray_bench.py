"""The bench of the executor on Ray: its replicas are actors of a real cluster, and the kit takes the controller's place."""

import asyncio
import os
import signal
import time
import uuid
from contextlib import suppress

import attrs

from rankcore import DeploymentSpec, ReplicaRank, StaticPlacement
from rankcore.testing.conformance import Belief, SelfReport
from tests.ray_local import eventually

NAME = "conformance"
"""The kit names its replicas after it: an id without an application, as deployments of before the applications have."""
VERSIONS = ("1", "2", "3")
CONFIGS = ({"temperature": 0.1}, {"temperature": 0.9})
"""What the kit gives to user code. A report on Ray has the name of a user_config, and not itself."""


async def end_all_others():
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class SeatedExecutor:
    """A `RayExecutor`, whose methods belong on an event loop, for somebody who is not on one."""

    def __init__(self, bench, epoch):
        from executors.ray_gpu.checkpoint import Checkpoint
        from executors.ray_gpu.executor import RayExecutor
        from executors.ray_gpu.waiting_line import WaitingLine
        from executors.ray_gpu.world import World

        self._bench = bench
        self.world = World(bench.namespace, epoch, Checkpoint(bench.namespace), bench.origin)
        self.world.line = WaitingLine(self.world)
        self.inner = bench.on_loop(lambda: RayExecutor(self.world, lambda: bench.spec, lambda _: {}, 0, lambda: None))

    def execute(self, command):
        self._bench.on_loop(lambda: self.inner.execute(command))

    def poll(self):
        return self.inner.poll()

    def crash(self):
        for process in self.inner.processes.values():
            for task in process._tasks:
                task.cancel()
        self._bench.on_loop(lambda: asyncio.ensure_future(self.inner.close()))
        self._bench.advance()


class RayBench:
    """A namespace of its own for each test. Nothing goes on but in `advance`, and in the replicas.

    It has no `partition`: who is on a node that Ray has given up lives on, and cannot be asked through Ray any more.
    """

    patience_s = 240.0

    def __init__(self, cluster, folder):
        self._cluster = cluster
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._executors = []
        self._hung = []
        self._group = None
        self.namespace = f"conformance-{uuid.uuid4().hex[:8]}"
        self.origin = time.time()
        self.spec = DeploymentSpec(name=NAME, target_replicas=0, health_check_period_s=0.2)

    def __enter__(self):
        from executors.ray_gpu.checkpoint import Checkpoint
        from executors.ray_gpu.packing import pack
        from tests.ray_apps import OnOrder

        self._cluster.complete()
        for version in VERSIONS:
            app = OnOrder.options(name=NAME, version=version).bind(str(self._folder))
            code = pack(app, app.args, app.kwargs, "default").code
            Checkpoint(self.namespace).put_code(attrs.evolve(code, deployment=NAME))
        return self

    def __exit__(self, *_):
        from executors.ray_gpu.discovery import find_replicas, kill_replica

        for pid in self._hung:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for executor in self._executors:
            executor.crash()
        self._loop.run_until_complete(end_all_others())
        self._loop.close()
        for replica_id in find_replicas(self.namespace).get(NAME, []):
            kill_replica(self.namespace, NAME, replica_id)
        if self._group is not None:
            from ray.util import remove_placement_group

            remove_placement_group(self._group)
        eventually(lambda: not find_replicas(self.namespace), "no replica is left")

    def on_loop(self, act):
        async def acting():
            return act()

        return self._loop.run_until_complete(acting())

    def open(self, epoch):
        from ray.experimental import internal_kv

        from executors.ray_gpu import names
        from executors.ray_gpu.discovery import find_replicas

        internal_kv._internal_kv_put(names.epoch_key(self.namespace, epoch), b"", overwrite=True, namespace=names.KV_NAMESPACE)
        executor = SeatedExecutor(self, epoch)
        self._executors.append(executor)
        found = find_replicas(self.namespace).get(NAME, [])
        self.on_loop(lambda: executor.inner.take_over(found))
        self.on_loop(lambda: executor.inner.group_news.follow(self.spec))
        return executor

    def survivors(self):
        return sorted(self._executors[-1].inner.processes)

    def crash(self, executor):
        self._executors.remove(executor)
        executor.crash()

    def now(self):
        return self._executors[-1].world.now() if self._executors else time.time() - self.origin

    def advance(self):
        self._loop.run_until_complete(asyncio.sleep(0.02))

    def nodes(self):
        return tuple(self._cluster.nodes)

    def replicas(self):
        return [
            SelfReport(
                replica_id=report.endpoint.replica_id,
                node_id=report.endpoint.node_id,
                at=report.at,
                beliefs=tuple(Belief(since, ReplicaRank(*ranks)) for since, ranks in report.history),
                world_size=report.world_size,
                version=report.version,
                user_config=self._config(report.config_id),
                ready=report.ready,
                draining=report.draining,
            )
            for report in self._observe()
        ]

    def _observe(self):
        from executors.ray_gpu.observation import observe

        return observe(NAME, namespace=self.namespace)

    @staticmethod
    def _config(config_id):
        from rankcore.frozen import freeze_json
        from rankcore.spec import config_id_of

        frozen = [freeze_json(config) for config in CONFIGS]
        return next((config for config in frozen if config_id_of(config) == config_id), None)

    def kill(self, replica_id):
        os.kill(self._pid_of(replica_id), signal.SIGKILL)

    def hang(self, replica_id):
        self._hung.append(self._pid_of(replica_id))
        os.kill(self._hung[-1], signal.SIGSTOP)

    def _pid_of(self, replica_id):
        (pid,) = (report.endpoint.pid for report in self._observe() if report.endpoint.replica_id == replica_id)
        return pid

    def lose_node(self, node_id):
        self._cluster.lose(node_id)
        self._cluster.complete()

    def fail_starts(self, count):
        for number in range(count):
            (self._folder / f"fail.{number}").touch()

    def slow(self, by_s):
        (self._folder / "slow").write_text(str(by_s))

    def take_requests(self, yes):
        closed = self._folder / "closed"
        closed.unlink(missing_ok=True) if yes else closed.touch()

    def group(self):
        """Bundle 0 is on one node and the others are on another: no other way they fit."""
        import ray
        from ray.util import placement_group

        self._group = placement_group([{"CPU": 4}, {"CPU": 3}, {"CPU": 3}])
        ray.get(self._group.ready(), timeout=self.patience_s)
        group_id = self._group.id.hex()
        placement = StaticPlacement(bundles={0: [1, 0], 1: [2]}, bundle_count=3, group_id=group_id)
        self.spec = attrs.evolve(self.spec, placement=placement, target_replicas=2)
        for executor in self._executors:
            self.on_loop(lambda of=executor: of.inner.group_news.follow(self.spec))
        return group_id, self._bundles()

    def _bundles(self):
        from executors.ray_gpu.placement_groups import look_up

        nodes = look_up(self._group.id.hex()).nodes
        return tuple(nodes[index] for index in sorted(nodes))

    def lose_bundle(self, index):
        self._cluster.lose(self._bundles()[index])

    def restore_bundle(self, index):
        self._cluster.complete()
