"""A small world driven by hand: a test says what happens next, and every step is checked on the way.

`Deployment` holds a state and the replicas as they are out there: where each one runs and which ranks it *may believe*,
whatever the book says. Commands reach their replica at once; it is the answers that a test gives, forgets or reorders:

    d = Deployment.running(3)              # deployed, and everything answered until nothing is outstanding
    d.die("llm#1.1")
    assert d.sent(StartReplica)[-1].rank == 1
    d.settle()                             # answer what is outstanding, until there is nothing more

Time stands still unless a test says `wait`, or `at=` in an event.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import attrs

from rankcore import (
    DeploymentSpec,
    DeploymentStatus,
    Note,
    NoteKind,
    ReplicaRank,
    Step,
    deploy,
    invariants,
    recover,
    step,
)
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import (
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    DeleteRequested,
    Event,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    ReplicaUnready,
    SpecChanged,
    StopRequested,
)
from rankcore.values import ReplicaState, age_key

C = TypeVar("C")
ENDS = (ReplicaDied, ReplicaStopped, ReplicaStartFailed, ReplicaMissing)
ROUNDS_MAX = 10_000
BELIEVES = object()
"""Stands for: whatever the replica believes."""


@attrs.frozen
class Starting:
    """Outstanding, and no command: a replica that was found while it started becomes ready by itself."""

    replica_id: str


@attrs.define
class Process:
    """A replica as it is out there.

    Attributes:
        ranks: What it may believe, the latest last: more than one while a change is not acknowledged.
    """

    version: str
    node_id: str | None = None
    ranks: list[ReplicaRank] = attrs.Factory(list)
    config_id: str | None = None
    ready: bool = False
    draining: bool = False
    prepared: bool = False
    bundles: tuple[int, ...] = ()
    group_id: str | None = None
    restart_token: str = ""
    unready: str | None = None


class Deployment:
    """One deployment and the world around it. Every method that tells an event returns the `Step` that it caused.

    Attributes:
        state: The core's.
        nodes: Where replicas are placed in turn, unless the command or the test names the node.
        bundle_nodes: Where the bundles of a placement group are, if the test cares.
        processes: The live replicas as they are out there, by id.
        outstanding: The command that each replica was given last and has not answered.
        routes: The replicas that routers send requests to.
        early: Those of them that have been published without a rank alone.
        last: The latest step.
    """

    def __init__(self, target: int | None = 3, *, nodes: Iterable[str] = ("n0",), begin: bool = True, **spec: Any) -> None:
        self.nodes = tuple(nodes)
        self.bundle_nodes: dict[int, str] = {}
        self.now = 0.0
        self.processes: dict[str, Process] = {}
        self.outstanding: dict[str, Command | Starting] = {}
        self.routes: set[str] = set()
        self.routes_epoch = 0
        self.early: set[str] = set()
        self.placements = 0
        self.commands: list[Command] = []
        self.notes: list[Note] = []
        self.disputed = False
        spec.setdefault("name", "llm")
        self.first_spec = DeploymentSpec(target_replicas=target, **spec)
        if begin:
            self._take(deploy(self.first_spec, at=self.now))

    @classmethod
    def running(cls, target: int | None = 3, **spec: Any) -> "Deployment":
        """A deployment with everything answered: HEALTHY, with replicas `llm#1.0`, `llm#1.1`, ..."""
        d = cls(target, **spec)
        d.settle()
        assert d.status is DeploymentStatus.HEALTHY
        return d

    @classmethod
    def recovered(
        cls, target: int | None, found: dict[str, tuple[int, int, int] | None], *, epoch: int = 2, **spec: Any
    ) -> "Deployment":
        """A controller that came back and found these replicas, with what each believes. None has reported yet."""
        about = {key: spec.pop(key) for key in ("previous", "deleting", "failed") if key in spec}
        d = cls(target, begin=False, **spec)
        for index, (replica_id, ranks) in enumerate(found.items()):
            process = Process(d.first_spec.version, d.nodes[index % len(d.nodes)], config_id=d.first_spec.config_id)
            if ranks is not None:
                process.ranks, process.ready = [ReplicaRank(*ranks)], True
            d.processes[replica_id] = process
        d.disputed = d._disputes()
        d._take(recover(d.first_spec, list(found), at=0.0, epoch=epoch, **about))
        return d

    # -----------------------------------------------------------------------------------------------------------------
    # what happens

    def place(self, replica_id: str, node_id: str = "n0", *, at: float | None = None) -> Step:
        return self.send(ReplicaPlaced(replica_id=replica_id, node_id=node_id, at=self._at(at)))

    def prepared(self, replica_id: str, revision: int | None = None, *, at: float | None = None) -> Step:
        """The replica's user code is up without a rank, by the latest command unless the test names a revision."""
        revision = self.state.replicas[replica_id].revision if revision is None else revision
        return self.send(ReplicaPrepared(replica_id=replica_id, revision=revision, at=self._at(at)))

    def ready(self, replica_id: str, *, at: float | None = None) -> Step:
        return self.send(ReplicaReady(replica_id=replica_id, at=self._at(at)))

    def start_fails(self, replica_id: str, reason: str = "out of memory", *, at: float | None = None) -> Step:
        return self.send(ReplicaStartFailed(replica_id=replica_id, reason=reason, at=self._at(at)))

    def die(self, replica_id: str, reason: str = "crash", *, at: float | None = None) -> Step:
        return self.send(ReplicaDied(replica_id=replica_id, reason=reason, at=self._at(at)))

    def stopped(self, replica_id: str, *, at: float | None = None) -> Step:
        return self.send(ReplicaStopped(replica_id=replica_id, at=self._at(at)))

    def missing(self, replica_id: str, *, at: float | None = None) -> Step:
        return self.send(ReplicaMissing(replica_id=replica_id, at=self._at(at)))

    def unhealthy(self, replica_id: str, reason: str = "silent", *, at: float | None = None) -> Step:
        return self.send(ReplicaUnhealthy(replica_id=replica_id, reason=reason, at=self._at(at)))

    def unready(self, replica_id: str, reason: str = "cold cache", *, at: float | None = None) -> Step:
        return self.send(ReplicaUnready(replica_id=replica_id, reason=reason, at=self._at(at)))

    def pending(
        self,
        replica_id: str,
        reason: str = "all places are taken",
        *,
        no_room: bool = True,
        accepted: bool = False,
        at: float | None = None,
    ) -> Step:
        at = self._at(at)
        return self.send(ReplicaPending(replica_id=replica_id, reason=reason, no_room=no_room, accepted=accepted, at=at))

    def find_no_room(self) -> None:
        """All that are requested hear that there is none."""
        for replica_id, told in list(self.outstanding.items()):
            if isinstance(told, StartReplica):
                self.pending(replica_id)

    def acknowledge(self, replica_id: str, revision: int | None = None, *, at: float | None = None) -> Step:
        """The replica has carried out a `ReconfigureReplica`: the latest one unless the test names a revision."""
        revision = self.state.replicas[replica_id].revision if revision is None else revision
        return self.send(ReplicaReconfigured(replica_id=replica_id, revision=revision, at=self._at(at)))

    def reconfigure_fails(self, replica_id: str, revision: int | None = None, *, at: float | None = None) -> Step:
        revision = self.state.replicas[replica_id].revision if revision is None else revision
        return self.send(ReplicaReconfigureFailed(replica_id=replica_id, revision=revision, reason="raised", at=self._at(at)))

    def report(
        self,
        replica_id: str,
        rank: Any = BELIEVES,
        *,
        node_id: str | None = None,
        ready: bool | None = None,
        draining: bool | None = None,
        version: str | None = None,
        config_id: Any = BELIEVES,
        ready_for_s: float | None = None,
        epoch: int | None = None,
        at: float | None = None,
    ) -> Step:
        """What a replica answers to a query: by default the truth. A rank given by the test is a ready replica's."""
        process = self.processes[replica_id]
        if rank is BELIEVES:
            rank = process.ranks[-1] if process.ranks else None
        elif rank is not None:
            rank, process.ready = ReplicaRank(*rank), True
        process.ranks = [rank] if rank is not None else []
        process.node_id = node_id or process.node_id or "n0"
        process.ready = process.ready if ready is None else ready
        process.draining = process.draining if draining is None else draining
        process.version = version or process.version
        process.config_id = process.config_id if config_id is BELIEVES else config_id
        self.disputed = self.disputed or self._disputes()
        return self.send(
            ReplicaReported(
                replica_id=replica_id,
                node_id=process.node_id,
                rank=rank,
                version=process.version,
                ready=process.ready,
                prepared=process.prepared,
                draining=process.draining,
                config_id=process.config_id,
                bundles=process.bundles,
                group_id=process.group_id,
                restart_token=process.restart_token,
                unready=process.unready,
                ready_for_s=ready_for_s,
                epoch=self.state.epoch if epoch is None else epoch,
                at=self._at(at),
            )
        )

    def node(self, node_id: str, capacity: int, *, at: float | None = None) -> Step:
        return self.send(NodeChanged(node_id=node_id, capacity=capacity, at=self._at(at)))

    def lose(self, node_id: str, *, at: float | None = None) -> Step:
        return self.send(NodeLost(node_id=node_id, at=self._at(at)))

    def cordon(self, node_id: str, *, at: float | None = None) -> Step:
        return self.send(NodeCordoned(node_id=node_id, at=self._at(at)))

    def uncordon(self, node_id: str, *, at: float | None = None) -> Step:
        return self.send(NodeUncordoned(node_id=node_id, at=self._at(at)))

    def drain(
        self,
        node_id: str,
        deadline_at: float | None = None,
        *,
        reason: str = "drain",
        final: bool = False,
        at: float | None = None,
    ) -> Step:
        event = NodeDrainRequested(node_id=node_id, deadline_at=deadline_at, reason=reason, final=final, at=self._at(at))
        return self.send(event)

    def replace(self, *replica_ids: str, deadline_at: float | None = None, at: float | None = None) -> Step:
        return self.send(ReplaceRequested(replica_ids=replica_ids, deadline_at=deadline_at, at=self._at(at)))

    def lose_bundles(self, *bundles: int, reason: str = "", group_id: str | None = None, at: float | None = None) -> Step:
        return self.send(BundleLost(bundles=bundles, reason=reason, group_id=group_id, at=self._at(at)))

    def restore_bundles(self, *bundles: int, group_id: str | None = None, at: float | None = None) -> Step:
        return self.send(BundleRestored(bundles=bundles, group_id=group_id, at=self._at(at)))

    def resize(self, target: int, stop_first: Iterable[str] = (), *, at: float | None = None) -> Step:
        spec = attrs.evolve(self.state.spec, target_replicas=target)
        return self.send(SpecChanged(spec=spec, stop_first=tuple(stop_first), at=self._at(at)))

    def change(self, *, at: float | None = None, **fields: Any) -> Step:
        """The user changes these fields of the spec."""
        return self.send(SpecChanged(spec=attrs.evolve(self.state.spec, **fields), at=self._at(at)))

    def send_spec(self, spec: DeploymentSpec, stop_first: Iterable[str] = ()) -> Step:
        return self.send(SpecChanged(spec=spec, stop_first=tuple(stop_first), at=self.now))

    def stop_by_name(self, *replica_ids: str, at: float | None = None) -> Step:
        return self.send(StopRequested(replica_ids=replica_ids, at=self._at(at)))

    def delete(self, *, at: float | None = None) -> Step:
        return self.send(DeleteRequested(at=self._at(at)))

    def wait(self, seconds: float) -> None:
        """Time passes; the core is woken whenever it asked to be."""
        until = self.now + seconds
        while (wake_at := self.state.wake_at) is not None and wake_at < until:
            self.send(ClockAdvanced(at=wake_at))
        self.send(ClockAdvanced(at=until))

    def restart(self, *, found: Iterable[str] | None = None, at: float | None = None) -> Step:
        """The controller crashes and comes back. Every live replica is found, and asked what it believes."""
        state, self.outstanding = self.state, {}
        found = sorted(self.processes, key=age_key) if found is None else list(found)
        deleting = state.status in (DeploymentStatus.DELETING, DeploymentStatus.DELETED)
        failed = state.status is DeploymentStatus.DEPLOY_FAILED
        about = {"previous": state.previous, "deleting": deleting, "failed": failed}
        return self._take(recover(state.spec, found, at=self._at(at), epoch=state.epoch + 1, **about))

    def settle(self, *, except_for: Iterable[str] = ()) -> None:
        """Answer what is outstanding, the oldest replica first, until there is nothing more to answer."""
        silent = set(except_for)
        for _ in range(ROUNDS_MAX):
            waiting = sorted(set(self.outstanding) - silent, key=age_key)
            if not waiting:
                return
            self.answer(waiting[0])
        raise AssertionError(f"nothing settles: {self.outstanding}")

    def answer(self, replica_id: str) -> Step:
        """Answer what this replica was told last, as it should be answered."""
        match self.outstanding[replica_id]:
            case StartReplica(node_id=node_id, bundles=bundles):
                node_id = node_id or (self.bundle_nodes.get(bundles[0]) if bundles else None)
                if node_id is None:
                    open_nodes = [each for each in self.nodes if not self._is_cordoned(each)]
                    node_id = open_nodes[self.placements % len(open_nodes)]
                    self.placements += 1
                return self.place(replica_id, node_id)
            case PrepareReplica(revision=revision):
                return self.prepared(replica_id, revision)
            case InitializeReplica() | Starting():
                return self.ready(replica_id)
            case ReconfigureReplica(revision=revision):
                return self.acknowledge(replica_id, revision)
            case QueryReplica():
                return self.report(replica_id) if replica_id in self.processes else self.missing(replica_id)
            case _:
                return self.stopped(replica_id)

    def _is_cordoned(self, node_id: str) -> bool:
        return node_id in self.state.nodes and self.state.nodes[node_id].cordoned

    # -----------------------------------------------------------------------------------------------------------------
    # what came of it

    @property
    def status(self) -> DeploymentStatus:
        return self.state.status

    @property
    def ranks(self) -> dict[str, int]:
        """Global ranks in the book, by replica id."""
        return {replica_id: self.state.ranks[replica_id].rank for replica_id in sorted(self.state.ranks, key=age_key)}

    def full(self, replica_id: str) -> tuple[int, int, int] | None:
        """All three ranks of a replica in the book."""
        rank = self.state.rank_of(replica_id)
        return None if rank is None else (rank.rank, rank.node_rank, rank.local_rank)

    def sent(self, kind: type[C], replica_id: str | None = None) -> list[C]:
        """The commands of this kind given since the beginning, or since `forget`."""
        return [
            command
            for command in self.commands
            if isinstance(command, kind) and replica_id in (None, getattr(command, "replica_id", None))
        ]

    def noted(self, kind: NoteKind, replica_id: str | None = None) -> list[Note]:
        """The notes of this kind since the beginning, or since `forget`."""
        return [note for note in self.notes if note.kind is kind and replica_id in (None, note.replica_id)]

    def forget(self) -> None:
        """Look only at what is sent and noted from now on."""
        self.commands.clear()
        self.notes.clear()

    def count(self, *states: ReplicaState) -> int:
        return sum(replica.state in states for replica in self.state.replicas.values())

    @property
    def serving(self) -> int:
        """How many replicas can take requests."""
        return self.count(ReplicaState.RUNNING, ReplicaState.RECONFIGURING)

    @property
    def draining(self) -> list[str]:
        replicas = self.state.replicas.values()
        return sorted((r.replica_id for r in replicas if r.state is ReplicaState.DRAINING), key=age_key)

    # -----------------------------------------------------------------------------------------------------------------
    # the world's side

    def send(self, event: Event) -> Step:
        """Tell the core one event, and let its commands arrive."""
        self.now = max(self.now, event.at)
        before = self.state
        self._happens(event)
        return self._take(step(before, event), before, event)

    def _at(self, at: float | None) -> float:
        return self.now if at is None else at

    def _happens(self, event: Event) -> None:
        replica_id = getattr(event, "replica_id", None)
        process = self.processes.get(replica_id) if replica_id is not None else None
        told = self.outstanding.get(replica_id) if replica_id is not None else None
        if isinstance(event, NodeLost):
            for each, other in list(self.processes.items()):
                if other.node_id == event.node_id:
                    del self.processes[each]
                    self.outstanding.pop(each, None)
        elif isinstance(event, ENDS) and replica_id is not None:
            self.processes.pop(replica_id, None)
            self.outstanding.pop(replica_id, None)
        elif isinstance(event, ReplicaPlaced) and process is not None:
            process.node_id = event.node_id
            self._answered(event.replica_id, isinstance(told, StartReplica))
        elif isinstance(event, ReplicaPrepared) and process is not None:
            process.prepared = getattr(told, "revision", None) == event.revision
            self._answered(event.replica_id, process.prepared and isinstance(told, PrepareReplica))
        elif isinstance(event, ReplicaReady) and process is not None:
            process.ready, process.unready = True, None
            self._answered(event.replica_id, isinstance(told, (InitializeReplica, Starting)))
        elif isinstance(event, ReplicaUnready) and process is not None:
            process.unready = event.reason
        elif isinstance(event, ReplicaReported):
            self._answered(event.replica_id, isinstance(told, QueryReplica))
        elif isinstance(event, (ReplicaReconfigured, ReplicaReconfigureFailed)) and process is not None:
            if getattr(told, "revision", None) == event.revision:
                self._answered(event.replica_id, isinstance(event, ReplicaReconfigured))
                if isinstance(event, ReplicaReconfigured):
                    process.ranks = process.ranks[-1:]

    def _answered(self, replica_id: str, yes: bool) -> None:
        if yes:
            self.outstanding.pop(replica_id, None)
            process = self.processes[replica_id]
            if process.ranks and not process.ready and not process.draining:
                self.outstanding[replica_id] = Starting(replica_id)

    def _take(self, result: Step, before: Any = None, event: Event | None = None) -> Step:
        self.state, self.last = result.state, result
        self.commands.extend(result.commands)
        self.notes.extend(result.notes)
        for command in result.commands:
            self._arrives(command)
        self._check(before, event)
        return result

    def _arrives(self, command: Command) -> None:
        assert command.epoch == self.state.epoch, f"of another epoch: {command}"
        assert getattr(command, "revision", command.epoch << 33) > command.epoch << 32, f"too low: {command}"
        if isinstance(command, PublishRoutes):
            if self.routes_epoch != command.epoch:
                self.routes, self.early, self.routes_epoch = set(), set(), command.epoch
            assert self.routes & set(command.added) <= self.early, f"routed twice: {command}"
            replicas, runs = self.state.replicas, (ReplicaState.RUNNING, ReplicaState.RECONFIGURING)
            early = (self.early | set(command.added)) - set(command.removed)
            self.early = {each for each in early if replicas[each].state not in runs}
            assert set(command.removed) <= self.routes, f"was not routed: {command}"
            self.routes = self.routes - set(command.removed) | set(command.added)
        if isinstance(command, (AnnounceWorldSize, PublishRoutes, WakeAt)):
            return
        replica_id = command.replica_id
        self.outstanding[replica_id] = command
        if isinstance(command, StartReplica):
            started = Process(
                command.version,
                bundles=command.bundles,
                group_id=command.group_id,
                restart_token=command.restart_token,
            )
            self.processes.setdefault(replica_id, started)
            self._check_bundles()
        process = self.processes.get(replica_id)
        if process is None:
            return
        if isinstance(command, PrepareReplica):
            process.config_id, process.prepared = command.config_id, False
        elif isinstance(command, (InitializeReplica, ReconfigureReplica)):
            if command.rank not in process.ranks[-1:]:
                process.ranks.append(command.rank)
            process.config_id = command.config_id
        elif isinstance(command, (StopReplica, KillReplica)):
            process.draining = True

    def _check(self, before: Any, event: Event | None) -> None:
        violations = invariants.check(self.state)
        if event is not None:
            violations += invariants.check_step(before, event, self.last)
        assert not violations, f"{violations} after {event}"
        # A duplicate found at recovery is the one exception to R3, and lasts until its loser has moved.
        self.disputed = self.disputed and self._disputes()
        assert self.disputed or not self._disputes(), f"R3: two replicas may believe one rank: {self.processes}"
        if self.state.status is DeploymentStatus.HEALTHY and not self.outstanding:
            self._check_contiguous()

    def _check_bundles(self) -> None:
        """S4, from where the processes are."""
        used = [(process.group_id, bundle) for process in self.processes.values() for bundle in process.bundles]
        assert len(used) == len(set(used)), f"S4: two replicas share a bundle: {self.processes}"

    def _disputes(self) -> bool:
        """Whether two replicas may believe the same rank, or local rank on a node, or two nodes one node rank (R3)."""
        seen: dict[tuple[Any, ...], str | None] = {}
        for replica_id, process in self.processes.items():
            for told in process.ranks:
                claims = {
                    ("rank", told.rank): replica_id,
                    ("local_rank", process.node_id, told.local_rank): replica_id,
                    ("node_rank", told.node_rank): process.node_id,
                }
                if any(seen.setdefault(claim, who) != who for claim, who in claims.items()):
                    return True
        return False

    def _check_contiguous(self) -> None:
        """R1, from what the replicas believe."""
        believed = [(process.node_id, process.ranks[-1]) for process in self.processes.values() if process.ranks]
        assert sorted(rank.rank for _, rank in believed) == list(range(self.state.world_size)), believed
        if self.state.spec.static_placement is not None:
            return  # S6: nobody is moved to close gaps in node and local ranks
        nodes = sorted({(rank.node_rank, node_id) for node_id, rank in believed}, key=str)
        assert sorted(node_rank for node_rank, _ in nodes) == list(range(len({node for node, _ in believed}))), nodes
        for each in {node for node, _ in believed}:
            on_node = sorted(rank.local_rank for node, rank in believed if node == each)
            assert on_node == list(range(len(on_node))), (each, on_node)
