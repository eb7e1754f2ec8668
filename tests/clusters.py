"""A cluster under test: its machine, a store that lands what it is given when told to, and replicas that obey."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import attrs

from executors.engine.clusters import CLUSTER, ClusterRecovered
from executors.engine.journal import JournalWriter
from rankcore import DeploymentSpec
from rankcore.cluster import ApplicationSpec, ClusterState, EntrySpec, cluster_step, recover_cluster
from rankcore.cluster.commands import AskPolicy, CarryOut, GiveTenure, KillWorker, MoveWeights, QueryWorker, SaveRecord
from rankcore.cluster.events import ApplyRequested, LoadReported, NodeJoined, RecordSaved, ReportedLoad
from rankcore.cluster.invariants import check, check_step
from rankcore.cluster.records import Record
from rankcore.commands import (
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import (
    ClockAdvanced,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
)
from rankcore.testing.model_cluster.workers import Workers
from rankcore.testing.model_residency.memory import TakenMemory


def entry(name: str, replicas: int = 1, **options: Any) -> EntrySpec:
    """What a user wants of `application/deployment`; options of the cluster's, and others of the ranks' spec."""
    own = {
        key: options.pop(key) for key in ("autoscaling", "policy", "routing", "demand", "extras", "residency") if key in options
    }
    return EntrySpec(ranks=DeploymentSpec(name=name, target_replicas=replicas, **options), **own)


def application(*entries: EntrySpec, prefix: str | None = None) -> ApplicationSpec:
    """An application whose ingress is the first of its deployments."""
    name = entries[0].deployment.partition("/")[0]
    return ApplicationSpec(name=name, deployments=entries, ingress=entries[0].deployment, route_prefix=prefix)


@attrs.define
class Process:
    """A replica."""

    version: str
    node_id: str = "n0"
    rank: Any = None
    config_id: str | None = None
    ready: bool = False
    draining: bool = False


NOBODY = SimpleNamespace(residency=None)


class Cluster:
    """Runs the machine. What it commands is carried out at once, but for saves, which `land` answers.

    Attributes:
        store: Every record that has landed.
        under_way: Records that were given to the store and have not landed.
        done: What was commanded, saves included.
        broken: Versions that fail to start.
        node_id: Where replicas come up that the machine chooses no node for.
    """

    def __init__(self, *, saves_at_once: bool = True) -> None:
        self.store: list[Record] = []
        self.under_way: deque[Record] = deque()
        self.saves_at_once = saves_at_once
        self.processes: dict[str, Process] = {}
        self.routes: dict[str, set[str]] = {}
        self.done: list[Any] = []
        self.asked: list[AskPolicy] = []
        self.notes: list[Any] = []
        self.broken: set[str] = set()
        self.node_id = "n0"
        self.starts: list[str] = []
        self.now = 0.0
        self.epoch = 1
        self.reports = 0
        self.news: deque[Any] = deque()
        self.workers = Workers({}, TakenMemory())
        self.moves_end = True
        self.state: ClusterState
        self._take(recover_cluster((), (), at=0.0, epoch=1))

    def restart(self, **options: Any) -> None:
        """The controller dies, with all that was on its way, and comes back."""
        self.epoch += 1
        self.news.clear()
        self.routes = {}
        workers = {each: held.worker.node_id for each, held in sorted(self.workers.held.items())}
        found = {"workers": workers, **options}
        self._take(recover_cluster(self.store, sorted(self.processes), at=self.now, epoch=self.epoch, **found))
        self.settle()

    def apply(self, *applications: ApplicationSpec, prune: bool = False) -> None:
        self.tell(ApplyRequested(applications=applications, prune=prune, at=self.now))

    def tell(self, event: Any) -> None:
        """Something happens, and all that follows from it."""
        self.step(event)
        self.settle()

    def step(self, event: Any) -> Any:
        before = self.state
        step = cluster_step(before, event)
        assert check(step.state) == []
        assert check_step(before, event, step) == []
        self._take(step)
        return step

    def settle(self) -> None:
        while self.news or (self.moves_end and self.moving):
            if self.news:
                self.step(self.news.popleft())
            else:
                self.end_moves()

    @property
    def moving(self) -> list[str]:
        """Workers whose weights are on their way."""
        return [each for each, held in sorted(self.workers.held.items()) if held.moving is not None]

    def end_moves(self) -> None:
        """All moves that are under way end."""
        for worker_id in self.moving:
            self.workers.finish(worker_id, self.now)
        self.hear()

    def hear(self) -> None:
        """What workers have to say is on its way."""
        assert self.workers.broken == []
        self.news += self.workers.news
        self.workers.news.clear()

    def join(self, *gpu_bytes: int, cpu_bytes: int = 6, node_id: str = "n0") -> None:
        """A node joins, with memory for weights."""
        self.tell(NodeJoined(node_id=node_id, resources={}, gpu_bytes=gpu_bytes, cpu_bytes=cpu_bytes, at=self.now))

    def call(self, deployment: str, waiting: int, process: str = "p") -> None:
        """A process says how many of its calls wait."""
        self.reports += 1
        entries = {deployment: ReportedLoad(waiting=waiting)}
        self.tell(LoadReported(reporter=process, incarnation=1, seq=self.reports, entries=entries, at=self.now))

    def phases(self) -> dict[str, str]:
        """What the planner thinks that workers are about."""
        return {each: record.phase.name for each, record in sorted(self.state.weights.planner.replicas.items())}

    def land(self) -> None:
        """All that is on its way to the store lands, in order, and is acknowledged."""
        while self.under_way:
            record = self.under_way.popleft()
            self.store.append(record)
            self.tell(RecordSaved(deployment=record.deployment, number=record.number, at=self.now))

    def wait(self, seconds: float) -> None:
        """Time passes; the machine is woken when it asked for it."""
        until = self.now + seconds
        while self.state.wake_at is not None and self.state.wake_at <= until:
            self.now = max(self.now, self.state.wake_at)
            self.tell(ClockAdvanced(at=self.now))
        self.now = until

    def status(self, deployment: str) -> str:
        return self.state.deployments[deployment].ranks.status

    def target(self, deployment: str) -> int:
        return self.state.deployments[deployment].target.replicas

    def ranks(self, deployment: str) -> list[int]:
        return sorted(each.rank for each in self.state.deployments[deployment].ranks.ranks.values())

    def _take(self, step: Any) -> None:
        self.state = step.state
        self.notes.extend(step.notes)
        for command in step.commands:
            self.done.append(command)
            match command:
                case SaveRecord(record):
                    if self.saves_at_once:
                        self.store.append(record)
                        self.news.append(RecordSaved(deployment=record.deployment, number=record.number, at=self.now))
                    else:
                        self.under_way.append(record)
                case CarryOut(deployment, inner):
                    if self.state.deployments.get(deployment, NOBODY).residency is not None:
                        self.workers.carry_out(command, self.now)
                        self.hear()
                    if self.state.deployments.get(deployment, NOBODY).residency is None or isinstance(inner, PublishRoutes):
                        self._carry_out(deployment, inner)
                case GiveTenure() | MoveWeights() | KillWorker() | QueryWorker():
                    routed = frozenset().union(*self.routes.values())
                    self.workers.obey(command, routed, self.now)
                    self.hear()
                case AskPolicy():
                    self.asked.append(command)
                case WakeAt():
                    pass

    def _carry_out(self, deployment: str, command: Any) -> None:
        at = self.now
        match command:
            case StartReplica(replica_id=replica_id) if replica_id not in self.processes:
                self.starts.append(command.version)
                if command.version in self.broken:
                    self.news.append(ReplicaStartFailed(replica_id=replica_id, reason="broken", at=at))
                else:
                    process = self.processes[replica_id] = Process(command.version, command.node_id or self.node_id)
                    self.news.append(ReplicaPlaced(replica_id=replica_id, node_id=process.node_id, at=at))
            case InitializeReplica(replica_id=replica_id) if replica_id in self.processes:
                process = self.processes[replica_id]
                process.rank, process.config_id, process.ready = command.rank, command.config_id, True
                self.news.append(ReplicaReady(replica_id=replica_id, at=at))
            case ReconfigureReplica(replica_id=replica_id) if replica_id in self.processes:
                process = self.processes[replica_id]
                process.rank, process.config_id = command.rank, command.config_id
                self.news.append(ReplicaReconfigured(replica_id=replica_id, revision=command.revision, at=at))
            case QueryReplica(replica_id=replica_id):
                self.news.append(self._report(replica_id, command.epoch))
            case StopReplica(replica_id=replica_id) | KillReplica(replica_id=replica_id):
                self.processes.pop(replica_id, None)
                self.news.append(ReplicaStopped(replica_id=replica_id, at=at))
            case PublishRoutes(added, removed):
                self.routes[deployment] = (self.routes.get(deployment, set()) | set(added)) - set(removed)

    def _report(self, replica_id: str, epoch: int) -> Any:
        process = self.processes.get(replica_id)
        if process is None:
            return ReplicaMissing(replica_id=replica_id, at=self.now)
        return ReplicaReported(
            replica_id=replica_id,
            node_id=process.node_id,
            rank=process.rank,
            version=process.version,
            ready=process.ready,
            config_id=process.config_id,
            epoch=epoch,
            at=self.now,
        )


class RecordedCluster(Cluster):
    """A cluster that writes down what happens.

    Args:
        journal: Where to, or the path of a new one.
    """

    def __init__(self, journal: Any, **options: Any) -> None:
        self.journal = journal if hasattr(journal, "append") else JournalWriter.create(journal, kind=CLUSTER)
        how = ClusterRecovered()
        self.journal.begin(how, how.step())
        super().__init__(**options)

    def restart(self, **options: Any) -> None:
        found = {"workers": {each: held.worker.node_id for each, held in sorted(self.workers.held.items())}, **options}
        ids, epoch = tuple(sorted(self.processes)), self.epoch + 1
        how = ClusterRecovered(records=tuple(self.store), replica_ids=ids, at=self.now, epoch=epoch, **found)
        self.journal.begin(how, how.step())
        super().restart(**options)

    def step(self, event: Any) -> Any:
        self.journal.append(event, cluster_step(self.state, event))
        return super().step(event)
