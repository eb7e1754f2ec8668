"""The Ray executor as a system under test: a head for driver and controller, two nodes for replicas, real processes."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankcore import ReplicaRank
from rankcore.frozen import FrozenJson
from rankcore.spec import DeploymentSpec
from rankcore.testing.conformance import Belief, SelfReport
from rankcore.values import DeploymentStatus, NodeId, ReplicaId
from tests.ray_local import OBJECT_STORE_BYTES, PATIENCE_S, QUICK_TO_NOTICE

LOOK_EVERY_S = 0.01
NODES = 2


class RayCluster:
    """Raylets on this machine, kept from case to case; one that is lost is made up for by a new one."""

    def __init__(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray
        from ray._private import ray_constants
        from ray.cluster_utils import Cluster

        ray_constants.ENABLE_RAY_CLUSTER = True  # Ray's nodes do not talk to each other over 127.0.0.1
        head = {
            "num_cpus": 0,
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
            "_system_config": QUICK_TO_NOTICE,
        }
        self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=self.cluster.address, logging_level="warning", log_to_driver=False)
        self.nodes: dict[NodeId, Any] = {}

    def complete(self) -> None:
        """Bring the number of nodes to what a case begins with."""
        while len(self.nodes) < NODES:
            node = self.cluster.add_node(num_cpus=6, object_store_memory=OBJECT_STORE_BYTES)
            self.nodes[node.node_id] = node

    def lose(self, node_id: NodeId) -> None:
        """End a node's raylet, and with it all that runs there."""
        self.cluster.remove_node(self.nodes.pop(node_id), allow_graceful=False)

    def shutdown(self) -> None:
        import ray

        ray.shutdown()
        self.cluster.shutdown()


class RaySystem:
    """What a file in `folder` says, user code does: so starts fail, or take long."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        from executors import ray_gpu

        self._serve: Any = ray_gpu
        self._cluster = cluster
        self._folder = folder
        self._wanted: list[Callable[[], None]] = []
        self._configs: dict[str | None, FrozenJson] = {}

    def deploy(self, spec: DeploymentSpec) -> None:
        self._cluster.complete()
        self._run(spec)

    def _run(self, spec: DeploymentSpec) -> None:
        from executors.ray_gpu.declaration import SPEC_OPTIONS
        from tests.ray_apps import Obedient

        self._configs[spec.config_id] = spec.user_config
        options = {option: getattr(spec, field) for option, field in SPEC_OPTIONS.items()}
        application = Obedient.options(name=spec.name, ray_actor_options={"num_cpus": 1}, **options).bind(str(self._folder))
        self._serve.run(application, wait=False, route_prefix=None)

    def change(self, spec: DeploymentSpec) -> None:
        self._want(lambda: self._run(spec))

    def delete(self, name: str) -> None:
        from executors.ray_gpu import connection

        self._want(lambda: connection.find_controller("rankcore").delete.remote((f"default/{name}",)))

    def _want(self, action: Callable[[], None]) -> None:
        """Somebody who wants something tries again until a controller is there."""
        self._wanted.append(action)
        self._try()

    def _try(self) -> None:
        while self._wanted:
            try:
                self._wanted[0]()
            except self._unavailable():
                return
            self._wanted.pop(0)

    def _unavailable(self) -> tuple[type[BaseException], ...]:
        from ray.exceptions import RayError

        return RayError, self._serve.RayExecutorError, TimeoutError

    def status(self, name: str) -> DeploymentStatus | None:
        try:
            found = self._serve.status().deployments.get(name)
        except self._unavailable():
            return None
        return DeploymentStatus(found.status) if found is not None else None

    def reports(self, name: str) -> Sequence[SelfReport]:
        from executors.ray_gpu.observation import observe

        return [
            SelfReport(
                replica_id=report.endpoint.replica_id,
                node_id=report.endpoint.node_id,
                at=report.at,
                beliefs=tuple(Belief(since, ReplicaRank(*ranks)) for since, ranks in report.history),
                world_size=report.world_size,
                version=report.version,
                user_config=self._configs.get(report.config_id),
                ready=report.ready,
                draining=report.draining,
            )
            for report in observe(name, timeout_s=5.0)
        ]

    def kill_replica(self, replica_id: ReplicaId) -> None:
        from executors.ray_gpu.observation import observe

        (pid,) = (
            report.endpoint.pid for report in observe(replica_id.partition("#")[0]) if report.endpoint.replica_id == replica_id
        )
        os.kill(pid, signal.SIGKILL)

    def lose_node(self, node_id: NodeId) -> None:
        self._cluster.lose(node_id)
        self._cluster.complete()

    def crash_controller(self) -> None:
        os.kill(self._serve.status().controller_pid, signal.SIGKILL)

    def fail_starts(self, name: str, count: int) -> None:
        for number in range(count):
            (self._folder / f"fail.{number}").touch()

    def slow_starts(self, name: str, by_s: float) -> None:
        (self._folder / "slow").write_text(str(by_s))

    def until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._try() or self._wanted or not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE_S:g} s for {waiting_for}")
            time.sleep(LOOK_EVERY_S)
