"""The simulator as a system under test: three nodes, virtual time, everything that the suite asks for."""

from collections.abc import Callable, Sequence

import attrs

from executors.simulator.load.arrivals import Arrivals
from executors.simulator.load.distributions import Constant, Uniform
from executors.simulator.run import Run
from executors.simulator.scenario.faults import ControllerCrash, ReplicaCrash, SlowStart, StartFailure
from executors.simulator.scenario.hardware import NetworkModel, NodeGroup
from executors.simulator.scenario.model import Change, Deployment, Scenario
from executors.simulator.scenario.moments import Moment
from rankcore.frozen import FrozenJson
from rankcore.spec import DeploymentSpec
from rankcore.testing.conformance import Belief, SelfReport
from rankcore.values import DeploymentStatus, NodeId, ReplicaId

PATIENCE_S = 300.0
INIT_S = 1.0


class SimulatedSystem:
    """Beliefs are noted after every event, so that their history is complete."""

    def __init__(self, seed: int = 0, network: NetworkModel | None = None) -> None:
        self._seed = seed
        self._network = network or NetworkModel(latency_s=Uniform(low=0.001, high=0.02))
        self._run: Run | None = None
        self._beliefs: dict[ReplicaId, list[Belief]] = {}
        self._configs: dict[str | None, FrozenJson] = {}

    @property
    def run(self) -> Run:
        assert self._run is not None, "deploy first"
        return self._run

    def deploy(self, spec: DeploymentSpec) -> None:
        self._configs[spec.config_id] = spec.user_config
        deployment = Deployment(spec=spec, start_s=Uniform(low=0.1, high=0.5), init_s=Constant(value=INIT_S))
        scenario = Scenario(
            seed=self._seed,
            duration_s=1e6,
            network=self._network,
            nodes=(NodeGroup(name="node", gpus=6, count=3),),
            deployments=(deployment,),
        )
        self._run = Run(scenario, {spec.name: Arrivals()})
        self._run.until(0.0)
        self._note()

    def change(self, spec: DeploymentSpec) -> None:
        self._configs[spec.config_id] = spec.user_config
        fields = {
            field.name: getattr(spec, field.name)
            for field in attrs.fields(DeploymentSpec)
            if field.init and field.name != "name"
        }
        self._want(Change(at=Moment(), deployment=spec.name, fields=fields))

    def delete(self, name: str) -> None:
        self._want(Change(at=Moment(), deployment=name, delete=True))

    def _want(self, change: Change) -> None:
        self.run.controller.change(change)

    def status(self, name: str) -> DeploymentStatus | None:
        driver = self.run.controller.drivers.get(name)
        return driver.state.status if driver is not None else None

    def reports(self, name: str) -> Sequence[SelfReport]:
        port = self.run.world.deployments[name]
        return [
            SelfReport(
                replica_id=replica.replica_id,
                node_id=replica.node_id,
                at=self.run.world.loop.now,
                beliefs=tuple(self._beliefs.get(replica.replica_id, ())),
                world_size=replica.world_size,
                version=replica.version,
                user_config=self._configs.get(replica.config_id),
                ready=replica.ready,
                draining=replica.draining,
            )
            for process in port.processes.values()
            if (replica := process.replica) is not None
        ]

    def kill_replica(self, replica_id: ReplicaId) -> None:
        (name,) = self.run.world.deployments
        self.run.inject(ReplicaCrash(at=Moment(offset_s=self._now), deployment=name, replica_id=replica_id))
        self._step()

    def lose_node(self, node_id: NodeId) -> None:
        self.run.world.lose_node(node_id)

    def crash_controller(self) -> None:
        self.run.inject(ControllerCrash(at=Moment(offset_s=self._now), restart_after_s=0.5))
        self._step()

    def fail_starts(self, name: str, count: int) -> None:
        self.run.inject(StartFailure(at=Moment(offset_s=self._now), deployment=name, count=count))
        self._step()

    def slow_starts(self, name: str, by_s: float) -> None:
        factor = (INIT_S + by_s) / INIT_S
        if by_s:
            self.run.inject(SlowStart(at=Moment(offset_s=self._now), deployment=name, factor=factor, for_s=60.0))
            self._step()

    @property
    def _now(self) -> float:
        return self.run.world.loop.now

    def _step(self) -> None:
        self.run.until(self._now)
        self._note()

    def until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        loop = self.run.world.loop
        limit = loop.now + PATIENCE_S
        while not condition():
            if loop.next_at is None or loop.next_at > limit:
                raise TimeoutError(f"waited {PATIENCE_S:g} s for {waiting_for}")
            loop.step()
            self._note()

    def _note(self) -> None:
        for port in self.run.world.deployments.values():
            for process in port.processes.values():
                replica = process.replica
                if replica is None or replica.rank is None:
                    continue
                beliefs = self._beliefs.setdefault(replica.replica_id, [])
                if not beliefs or beliefs[-1].rank != replica.rank:
                    beliefs.append(Belief(self._now, replica.rank))

    def __enter__(self) -> "SimulatedSystem":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing outlives it."""
