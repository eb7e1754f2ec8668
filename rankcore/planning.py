"""A dry run: what would happen if a spec were applied now and nothing failed.

The machine itself is run, in a world where every command is carried out at once and acknowledged; so the plan cannot
disagree with the rules. The state that is asked about stays as it is.
"""

from collections import deque
from collections.abc import Iterable

import attrs

from rankcore.commands import (
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.core import deploy, step
from rankcore.errors import InvalidEventError
from rankcore.events import (
    ClockAdvanced,
    Event,
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaStopped,
    SpecChanged,
)
from rankcore.notes import NoteKind
from rankcore.placement import Bundles
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Replica
from rankcore.values import DeploymentStatus, NodeId, ReplicaId, ReplicaState, age_key

ANY_NODE = "(any)"
IDLE_WAKE_UPS_MAX = 100
"""Wake-ups in a row that bring no command, after which nothing more is expected. Each one that a queue of time-outs asks for
in vain drops what it was asked for, so there are few."""


@attrs.frozen
class PlannedStart:
    """A replica that would be started.

    Attributes:
        rank: Global rank that it comes up with.
        version: Of its code.
        node_id: Where the core would want it; None: the executor chooses.
        bundles: What it would be started on, in a static placement; else empty.
    """

    rank: int
    version: str
    node_id: NodeId | None
    bundles: Bundles = ()


@attrs.frozen
class PlannedStop:
    """A live replica that would be stopped; `rank` is the one it has now, None if it has none."""

    replica_id: ReplicaId
    rank: int | None


@attrs.frozen
class PlannedMove:
    """A live replica that would get another global rank."""

    replica_id: ReplicaId
    before: int
    after: int


@attrs.frozen
class Plan:
    """What applying a spec would bring, if nothing failed.

    Attributes:
        world_size_before, world_size_after: The target (R9).
        starts: By rank, in the order in which they would be started.
        stops: The oldest first.
        moves: Changes of global ranks of the replicas that stay, the oldest first.
        reconfigured: Replicas that would get another user_config in place, the oldest first.
        status: How the deployment would end up. HEALTHY, unless something is missing that only the world can supply: room on
            nodes, lost bundles, reports after a recovery, or a version that works.
    """

    world_size_before: int
    world_size_after: int
    starts: tuple[PlannedStart, ...]
    stops: tuple[PlannedStop, ...]
    moves: tuple[PlannedMove, ...]
    reconfigured: tuple[ReplicaId, ...]
    status: DeploymentStatus


def plan(state: DeploymentState, spec: DeploymentSpec, *, stop_first: tuple[ReplicaId, ...] = ()) -> Plan:
    """Work out what applying a spec now would bring.

    Args:
        state: The deployment as it is.
        spec: What might be asked of it.
        stop_first: Replicas that a downscale should stop before any other, as in `SpecChanged`.

    Returns:
        The plan. Starts, stops and global ranks are those that `step` would decide; node and local ranks depend on where
        the executor places what is started.

    Raises:
        InvalidEventError: An argument is not what it may be.
        UnknownDeploymentError: The spec is of another deployment.
    """
    if not isinstance(state, DeploymentState):
        raise InvalidEventError("plan.state", state, "a DeploymentState")
    return plan_event(state, SpecChanged(spec=spec, stop_first=stop_first, at=max(state.clock, state.tables.spec_at)))


def plan_event(state: DeploymentState, event: Event) -> Plan:
    """Work out what an event would bring, such as a deletion; raises as `step` does."""
    run = _DryRun(state)
    run.deliver(event)
    run.finish()
    return run.plan()


def plan_new(spec: DeploymentSpec, *, at: float, epoch: int) -> Plan:
    """Work out what deploying this would bring."""
    first = deploy(spec, at=at, epoch=epoch)
    run = _DryRun(first.state)
    run.note_starts(first.commands)
    run.finish()
    return run.plan()


class _DryRun:
    """The perfect world. It lives only while a plan is made."""

    def __init__(self, state: DeploymentState) -> None:
        self.before = state
        self.state = state
        self.starts: dict[ReplicaId, PlannedStart] = {}
        self.started: set[ReplicaId] = set(state.replicas)
        self.configured: dict[ReplicaId, None] = {}
        replicas = sorted(state.replicas.values(), key=lambda replica: replica.birth)
        self.queue: deque[Command] = deque(r.pending for r in replicas if r.pending is not None)

    def deliver(self, event: Event) -> None:
        result = step(self.state, event)
        self.state = result.state
        self.queue.extend(result.commands)
        self.configured.update((n.replica_id, None) for n in result.notes if n.kind is NoteKind.CONFIG_SENT and n.replica_id)
        self.note_starts([each for each in result.commands if getattr(each, "replica_id", None) not in self.started])

    def note_starts(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, StartReplica):
                self.started.add(command.replica_id)
                started = PlannedStart(command.rank, command.version, command.node_id, command.bundles)
                self.starts[command.replica_id] = started

    def finish(self) -> None:
        """Carry everything out; when nothing is left to do, let time pass until something falls due."""
        idle = 0
        while True:
            while self.queue:
                event = self._answer(self.queue.popleft())
                if event is not None:
                    self.deliver(event)
            failed = self.state.status is DeploymentStatus.DEPLOY_FAILED and not self.state.tables.retries
            if failed or self.state.status is DeploymentStatus.HEALTHY or self.state.unreported or self.state.wake_at is None:
                return
            self.deliver(ClockAdvanced(at=self.state.wake_at))
            idle = 0 if self.queue else idle + 1
            assert idle < IDLE_WAKE_UPS_MAX, f"nothing is left to do, and the deployment is {self.state.status}"

    def _answer(self, command: Command) -> Event | None:
        at = self.state.clock
        match command:
            case StartReplica():
                return ReplicaPlaced(replica_id=command.replica_id, node_id=command.node_id or ANY_NODE, at=at)
            case PrepareReplica():
                return ReplicaPrepared(replica_id=command.replica_id, revision=command.revision, at=at)
            case InitializeReplica():
                started = self.starts.get(command.replica_id)
                if started is not None:  # for another rank, maybe, which is vacant by now (V2)
                    self.starts[command.replica_id] = attrs.evolve(started, rank=command.rank.rank)
                return ReplicaReady(replica_id=command.replica_id, at=at)
            case ReconfigureReplica():
                return ReplicaReconfigured(replica_id=command.replica_id, revision=command.revision, at=at)
            case StopReplica() | KillReplica():
                return ReplicaStopped(replica_id=command.replica_id, at=at)
            case QueryReplica():
                # After a recovery, a starting replica is asked until it is ready; one that has not reported stays silent.
                known = self.state.replicas.get(command.replica_id)
                silent = known is None or command.replica_id in self.state.unreported
                return None if silent else ReplicaReady(replica_id=command.replica_id, at=at)
            case _:
                return None

    def plan(self) -> Plan:
        stops, moves = [], []
        for replica_id in sorted(self.before.replicas, key=age_key):
            old, new = self.before.replicas[replica_id], self.state.replicas.get(replica_id)
            if new is None and old.leaving is None and old.state is not ReplicaState.FAILED:
                stops.append(PlannedStop(replica_id, old.slot))
            elif new is not None and (was := self._rank_before(old)) is not None and (now := _rank_of(new)) not in (None, was):
                moves.append(PlannedMove(replica_id, was, now))
        return Plan(
            self.before.world_size,
            self.state.world_size,
            tuple(self.starts.values()),
            tuple(stops),
            tuple(moves),
            tuple(replica_id for replica_id in sorted(self.configured, key=age_key) if replica_id in self.before.replicas),
            self.state.status,
        )

    def _rank_before(self, replica: Replica) -> int | None:
        """The same as the plan began; None: it may get any rank, like a successor that was started early (V2)."""
        is_early = (
            replica.told is None and replica.slot is not None and self.before.holder_of(replica.slot) != replica.replica_id
        )
        return None if is_early else _rank_of(replica)


def _rank_of(replica: Replica) -> int | None:
    """The global rank that it was told last, or will be."""
    return replica.told.rank if replica.told is not None else replica.slot
