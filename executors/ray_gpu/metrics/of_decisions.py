"""What the controller publishes: how its state stands, and what was decided, as an observer of the loop hears it.

The core knows nothing of it. A step costs the observer what the step has changed, and another target at most `RANKS_MAX`; the
state is immutable, so that the thread that publishes reads one while the loop makes the next.

**What a gap is.** Rank r has one while no replica that takes requests has it, for each r below the world size. It begins to be
counted with the first routes of this controller: what a successor has not heard of yet goes on serving. Each rank is a series
of its own, for as long as the controller lives, so that only the first `RANKS_MAX` are counted: one wrong target would fill a
Prometheus.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from executors.deployment_ids import split
from executors.ray_gpu.metrics.counts import CheckCounts, Latency
from executors.ray_gpu.metrics.lifetimes import Lifetimes
from executors.ray_gpu.metrics.publisher import Sample
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.serve_statuses import (
    APPLICATION_NUMBERS,
    DEPLOYMENT_NUMBERS,
    DEPLOYMENTS,
    PROXY_NUMBERS,
    application_status,
)
from rankcore import DeploymentStatus
from rankcore.autoscaling.core import ongoing_now
from rankcore.cluster.commands import CarryOut
from rankcore.cluster.names import DeploymentId, application_of
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.residency import deployment_of
from rankcore.cluster.state import ClusterState, Entry
from rankcore.commands import PublishRoutes
from rankcore.notes import NoteKind
from rankcore.residency.levels import Phase
from rankcore.routing.demand import demand_for
from rankcore.values import NodeId, ReplicaId, ReplicaState

LOG = logging.getLogger(__name__)

MOVES = (NoteKind.RANK_MOVED, NoteKind.MOVE_ACKNOWLEDGED, NoteKind.RANK_GIVEN)
"""After these a replica on the routes may have another rank."""
RANKS_MAX = 1000
"""Of a deployment so many ranks have their gaps counted."""
RANKS, PLANNER = ClusterNoteKind.RANKS, ClusterNoteKind.PLANNER


class Gaps:
    """Of the ranks of one deployment: since when each has nobody, and for how long it had nobody before."""

    def __init__(self) -> None:
        self._rank_of: dict[ReplicaId, int | None] = {}  # of those on the routes
        self._holders: Counter[int] = Counter()
        self._world_size = 0
        self._since: dict[int, float] = {}
        self._before_s: dict[int, float] = {}

    def publish(self, entry: Entry, command: PublishRoutes, at: float) -> None:
        """Requests go to others from now on."""
        for replica_id in command.removed:
            self._has(replica_id, None, at, gone=True)
        for replica_id in command.added:
            self.look(entry, replica_id, at, added=True)

    def look(self, entry: Entry, replica_id: ReplicaId, at: float, *, added: bool = False) -> None:
        """A replica may have another rank than before."""
        if added or replica_id in self._rank_of:
            replica = entry.ranks.replicas.get(replica_id)
            rank = replica.rank.rank if replica is not None and replica.rank is not None else None
            self._has(replica_id, rank, at)

    def resize(self, world_size: int, at: float) -> None:
        """There are so many ranks from now on."""
        world_size = min(world_size, RANKS_MAX)
        for rank in range(self._world_size, world_size):
            if not self._holders[rank]:
                self._since[rank] = at
        for rank in range(world_size, self._world_size):
            self._close(rank, at)
        self._world_size = world_size

    def seconds(self, at: float) -> dict[int, float]:
        """For how long each rank has had nobody, all gaps together."""
        found = dict(self._before_s)
        for rank, since in list(self._since.items()):
            found[rank] = found.get(rank, 0.0) + at - since
        return found

    def _has(self, replica_id: ReplicaId, rank: int | None, at: float, *, gone: bool = False) -> None:
        before = self._rank_of.pop(replica_id, None)
        if before is not None:
            self._holders[before] -= 1
            if not self._holders[before] and before < self._world_size and before != rank:
                self._since[before] = at
        if not gone:
            self._rank_of[replica_id] = rank
            if rank is not None:
                self._holders[rank] += 1
                self._close(rank, at)

    def _close(self, rank: int, at: float) -> None:
        since = self._since.pop(rank, None)
        if since is not None:
            self._before_s[rank] = self._before_s.get(rank, 0.0) + at - since


class Decisions:
    """Hears of each step of the controller's loop, and says what there is to publish.

    Args:
        state: As the loop has it.
        now: The controller's clock, on which the times in the state are.
        checks: Of the health of replicas, by deployment.
    """

    def __init__(
        self, state: Callable[[], ClusterState], now: Callable[[], float], checks: dict[DeploymentId, CheckCounts]
    ) -> None:
        self._checks = checks
        self._lifetimes = Lifetimes()
        self._state = state
        self._now = now
        self._steps: Counter[str] = Counter()
        self._step_time = Latency()
        self._decided: dict[DeploymentId, Counter[str]] = {}
        self._planned: Counter[str] = Counter()
        self._gaps: dict[DeploymentId, Gaps] = {}

    def observe(self, event: object, step: Any, took_s: float) -> None:
        """A step has been taken."""
        try:
            self._steps[type(event).__name__] += 1
            self._step_time.add(took_s)
            at = time.monotonic()
            self._lifetimes.event(event, at)
            if step.notes or step.commands:
                self._hear(step.state, step.notes, step.commands, at)
        except Exception:  # nobody decides less for want of a number
            LOG.exception("a step was not counted")

    def _hear(self, state: ClusterState, notes: Any, commands: Any, at: float) -> None:
        moved: list[tuple[DeploymentId, ReplicaId]] = []
        touched: set[DeploymentId] = set()
        for note in notes:
            if note.kind is RANKS:
                self._decided.setdefault(note.deployment, Counter())[str(note.of.kind)] += 1
                touched.add(note.deployment)
                if note.of.kind in MOVES and note.of.replica_id is not None:
                    moved.append((note.deployment, note.of.replica_id))
            elif note.kind is PLANNER:
                self._planned[str(note.of.kind)] += 1
        for each in commands:
            if type(each) is not CarryOut:
                continue
            self._lifetimes.command(each.command, at)
            if type(each.command) is PublishRoutes and each.deployment in state.deployments:
                gaps = self._gaps.setdefault(each.deployment, Gaps())
                gaps.publish(state.deployments[each.deployment], each.command, at)
                touched.add(each.deployment)
        for deployment, replica_id in moved:
            if deployment in self._gaps and deployment in state.deployments:
                self._gaps[deployment].look(state.deployments[deployment], replica_id, at)
        for deployment in touched:
            if deployment in self._gaps and deployment in state.deployments:
                self._gaps[deployment].resize(state.deployments[deployment].ranks.world_size, at)
        if len(self._lifetimes.took) > len(state.deployments):
            self._lifetimes.keep(state.deployments)
        for known in (self._decided, self._gaps, self._checks):
            if len(known) > len(state.deployments):  # some of them are gone
                for deployment in known.keys() - state.deployments.keys():
                    del known[deployment]

    # -- what is published; on another thread

    def samples(self) -> Iterator[Sample]:
        """How everything stands."""
        state, at, now = self._state(), time.monotonic(), self._now()
        yield Sample("rankcore_controller_epoch", (), state.epoch)
        yield Sample("rankcore_step_time_ms", (), self._step_time)
        for event, count in list(self._steps.items()):
            yield Sample("rankcore_steps", (event,), count)
        for kind, count in list(self._planned.items()):
            yield Sample("rankcore_planner_decisions", (kind,), count)
        for deployment, kinds in list(self._decided.items()):
            for kind, count in list(kinds.items()):
                yield Sample("rankcore_decisions", (*_named(deployment), kind), count)
                if kind == NoteKind.RANK_MOVED:
                    yield Sample("rankcore_rank_moves", _named(deployment), count)
        for deployment, all_took in list(self._lifetimes.took.items()):
            for name, took in all_took.items():
                yield Sample(name, _named(deployment), took)
        for deployment, checks in list(self._checks.items()):
            yield Sample("serve_health_check_latency_ms", _named(deployment), checks.took)
            yield Sample("serve_health_check_failures_total", _named(deployment), checks.failures)
        owed = [now - each.outbox.unsaved_since for each in state.deployments.values() if each.outbox.unsaved_since is not None]
        yield Sample("rankcore_journal_lag_seconds", (), max(owed, default=0.0))
        yield Sample("rankcore_records_unsaved", (), len(owed))
        statuses: dict[str, set[DeploymentStatus]] = {}
        for deployment, entry in state.deployments.items():
            yield from self._of_deployment(deployment, entry, at)
            statuses.setdefault(application_of(deployment), set()).add(entry.ranks.status)
        for application, each in statuses.items():
            yield Sample("serve_application_status", (application,), APPLICATION_NUMBERS[application_status(each)])
        yield from _of_weights(state, now)

    def _of_deployment(self, deployment: DeploymentId, entry: Entry, at: float) -> Iterator[Sample]:
        ranks, own = entry.ranks, _named(deployment)
        replicas = list(ranks.replicas.values())
        held = {each.rank.rank for each in replicas if each.routed and each.rank is not None}
        believed = {each.rank for replica in replicas for each in (replica.told, *replica.believed) if each is not None}
        yield Sample("serve_deployment_status", own, DEPLOYMENT_NUMBERS[DEPLOYMENTS[ranks.status][0]])
        yield Sample("serve_autoscaling_target_replicas", own, ranks.world_size)
        yield Sample("serve_deployment_replica_healthy", own, sum(each.routed for each in replicas))
        yield Sample("rankcore_ranks", (*own, "held"), len(held))
        yield Sample("rankcore_ranks", (*own, "believed"), len(believed))
        yield Sample("rankcore_ranks", (*own, "vacant"), ranks.world_size - sum(rank < ranks.world_size for rank in held))
        states = Counter(each.state for each in replicas)
        for each in ReplicaState:
            yield Sample("rankcore_replicas", (*own, str(each)), states[each])
        if entry.scaler is not None:
            core = entry.scaler.core
            yield Sample("serve_autoscaling_target_ongoing_requests", own, core.spec.target_ongoing_requests)
            yield Sample("serve_autoscaling_total_requests", own, ongoing_now(core))
        gaps = self._gaps.get(deployment)
        for rank, seconds in gaps.seconds(at).items() if gaps is not None else ():
            yield Sample("rankcore_rank_gap_seconds", (*own, str(rank)), seconds)


def _of_weights(state: ClusterState, now: float) -> Iterator[Sample]:
    levels: Counter[tuple[DeploymentId, str]] = Counter()
    for worker_id, record in state.weights.planner.replicas.items():
        level = str(Phase.LOADING if record.phase is Phase.LOADING else record.level)
        levels[deployment_of(worker_id), level] += 1
    for (deployment, level), count in levels.items():
        yield Sample("rankcore_residents", (*_named(deployment), level), count)
    for deployment, entry in state.deployments.items():
        if entry.residency is not None:
            waiting = demand_for(state.weights.demands, deployment, now)
            yield Sample("rankcore_calls_waiting", _named(deployment), waiting)
    for node_id, node in state.weights.planner.nodes.items():
        yield Sample("rankcore_weights_free_bytes", (node_id, "gpus"), sum(gpu.free_bytes for gpu in node.gpus))
        yield Sample("rankcore_weights_free_bytes", (node_id, "host"), node.cpu_free_bytes)


class Keeps(Protocol):
    """Who keeps proxies."""

    addresses: dict[NodeId, str]
    ends: dict[NodeId, Latency]

    @property
    def infos(self) -> tuple[ProxyInfo, ...]:
        """Those that there should be."""


def of_proxies(keeper: Keeps) -> Iterator[Sample]:
    """How the proxies stand, and how long their ends have taken."""
    for each in keeper.infos:
        yield Sample("serve_proxy_status", (each.node_id, keeper.addresses.get(each.node_id, "")), PROXY_NUMBERS[each.status])
    for node_id, took in list(keeper.ends.items()):
        yield Sample("serve_proxy_shutdown_duration_ms", (node_id, keeper.addresses.get(node_id, "")), took)


def _named(deployment: DeploymentId) -> tuple[str, str]:
    application, name = split(deployment)
    return name, application
