"""A small cluster as one value, and the moves that lead from it to others."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import attrs

from rankcore import events
from rankcore.cluster import ApplicationSpec, cluster_step, recover_cluster
from rankcore.cluster.commands import (
    AskPolicy,
    CarryOut,
    ForDeployment,
    GiveTenure,
    KillWorker,
    MoveWeights,
    QueryWorker,
    SaveRecord,
)
from rankcore.cluster.events import (
    ApplyRequested,
    ClusterEvent,
    DeletionRequested,
    LoadReported,
    NodeJoined,
    NodesListed,
    PolicyAnswered,
    RecordSaved,
    ReportedLoad,
    ScaleRequested,
)
from rankcore.cluster.invariants import check, check_step
from rankcore.cluster.names import application_of
from rankcore.cluster.records import Record, newest
from rankcore.cluster.residency import deployment_of
from rankcore.cluster.state import ClusterState, ClusterStep, Entry
from rankcore.commands import (
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.kernel import Violation
from rankcore.residency.commands import OffloadToCpu
from rankcore.residency.events import EvictRequested
from rankcore.residency.levels import Level, Phase
from rankcore.testing.model_cluster.bounds import BROKEN, CALLS_S, ClusterBounds
from rankcore.testing.model_cluster.workers import HeldWorker, Workers, believed_twice
from rankcore.testing.model_residency.memory import TakenMemory
from rankcore.values import ReplicaRank

Move: TypeAlias = tuple[str, int]
"""What, and which of several."""
Facts: TypeAlias = tuple[object, ...]

NODE = "n0"
BUDGETS = ("asks", "crashes", "losses", "deaths", "leaves", "reports", "failures", "hangs", "delays")
FAIR = ("is carried out", "lands", "is acknowledged", "is answered", "moves", "comes back", "time passes")
"""Moves that have to happen at some time: they lead to rest."""


@attrs.frozen
class Living:
    """A replica's process, and what it knows."""

    replica_id: str
    version: str
    rank: ReplicaRank | None = None
    config_id: str | None = None


@attrs.frozen
class Given:
    """A command that is not carried out yet, and the number of the record that it rests on."""

    command: ForDeployment | QueryWorker
    rests_on: int


@attrs.frozen
class Decided:
    """What was decided of a deployment that a successor has to know, and the number of the first record that says so."""

    facts: Facts
    number: int


@attrs.frozen
class ClusterWorld:
    """All there is.

    Attributes:
        bounds: What may happen in all.
        state: The cluster's; None: its controller has crashed.
        epoch: Of the last controller.
        now: The time.
        given: Commands that the executor has not carried out.
        questions: Of policies.
        puts: Records on their way to the store, also those of crashed controllers.
        acks: Acknowledgements on their way to the controller.
        store: What has landed, in that order.
        living: The replicas, by id.
        decided: By deployment.
        seen: By deployment, the newest record on which anything rests that was carried out.
        waiting: What the outboxes hold, and what each command there rests on.
        spent: How often each budget was used, in the order of `BUDGETS`.
        workers: Processes with weights, by id.
        memory: What they take, whatever the planner's books say.
        routed: Replicas to which calls are routed.
        calls: Processes of which calls wait for a deployment.
        seq: Of their newest report.
    """

    bounds: ClusterBounds
    state: ClusterState | None = None
    epoch: int = 0
    now: float = 0.0
    given: tuple[Given, ...] = ()
    questions: tuple[AskPolicy, ...] = ()
    puts: tuple[Record, ...] = ()
    acks: tuple[tuple[str, int], ...] = ()
    store: tuple[Record, ...] = ()
    living: tuple[Living, ...] = ()
    decided: tuple[tuple[str, Decided], ...] = ()
    seen: tuple[tuple[str, int], ...] = ()
    waiting: tuple[Given, ...] = ()
    spent: tuple[int, ...] = (0,) * len(BUDGETS)
    workers: tuple[HeldWorker, ...] = ()
    memory: TakenMemory = attrs.Factory(TakenMemory)
    routed: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    seq: int = 0


class WorldDraft:
    """A world that is being changed by one move, with the promises that it breaks."""

    def __init__(self, world: ClusterWorld) -> None:
        self.bounds, self.state, self.epoch, self.now = world.bounds, world.state, world.epoch, world.now
        self.given, self.questions = list(world.given), list(world.questions)
        self.puts, self.acks, self.store = list(world.puts), list(world.acks), list(world.store)
        self.living = {each.replica_id: each for each in world.living}
        self.decided, self.seen = dict(world.decided), dict(world.seen)
        self.waiting = list(world.waiting)
        self.spent = list(world.spent)
        self.workers = Workers({each.worker.worker_id: each for each in world.workers}, world.memory)
        self.routed = set(world.routed)
        self.calls, self.seq = set(world.calls), world.seq
        self.broken: list[Violation] = []

    def close(self) -> ClusterWorld:
        """As a value."""
        return ClusterWorld(
            self.bounds,
            self.state,
            self.epoch,
            self.now,
            tuple(self.given),
            tuple(self.questions),
            tuple(self.puts),
            tuple(self.acks),
            tuple(self.store),
            tuple(self.living[each] for each in sorted(self.living)),
            tuple(sorted(self.decided.items())),
            tuple(sorted(self.seen.items())),
            tuple(self.waiting),
            tuple(self.spent),
            tuple(self.workers.held[each] for each in sorted(self.workers.held)),
            self.workers.memory,
            tuple(sorted(self.routed)),
            tuple(sorted(self.calls)),
            self.seq,
        )

    def spend(self, budget: str) -> None:
        """Use one of a budget."""
        self.spent[BUDGETS.index(budget)] += 1

    def tell(self, event: ClusterEvent) -> None:
        """Step the machine, check the promises, and take what it commands."""
        before = self.state
        assert before is not None, "the controller has crashed"
        step = cluster_step(before, event)
        self.broken += check_step(before, event, step)
        self.take(step)

    def take(self, step: ClusterStep) -> None:
        """The machine has stepped."""
        self.state = step.state
        self.broken += check(step.state)
        for deployment, entry in sorted(step.state.deployments.items()):
            known = self.decided.get(deployment)
            facts = facts_of(entry, known)
            if known is None or known.facts != facts or known.number >> 32 != self.epoch:
                self.decided[deployment] = Decided(facts, entry.outbox.record.number)
        rests = {each.command: each.rests_on for each in self.waiting}
        for command in step.commands:
            match command:
                case SaveRecord(record):
                    if record not in self.puts:
                        self.puts.append(record)
                case CarryOut(deployment) | GiveTenure(deployment) | MoveWeights(deployment) | KillWorker(deployment):
                    known = self.decided.get(deployment)
                    newest_number = known.number if known is not None else 0
                    self.given.append(Given(command, rests.get(command, newest_number)))
                case QueryWorker():
                    self.given.append(Given(command, 0))
                case AskPolicy():
                    self.questions.append(command)
        held = [each.command for _, entry in sorted(step.state.deployments.items()) for each in entry.outbox.held]
        self.waiting = [Given(each, rests.get(each, self.decided[each.deployment].number)) for each in held]


def facts_of(entry: Entry, known: Decided | None) -> Facts:
    """What a successor has to know of a deployment, whatever the machine takes for worth saving: what a user wrote last."""
    ranks = entry.ranks
    by_user = entry.target.replicas if entry.target.cause == "user" else known and known.facts[-1]
    return ranks.spec.version, entry.spec.ranks.version, ranks.status == "DEPLOY_FAILED", entry.deleting, by_user


def root(bounds: ClusterBounds) -> ClusterWorld:
    """Every deployment is applied, saved and healthy."""
    draft = WorldDraft(ClusterWorld(bounds))
    draft.epoch = 1
    draft.take(recover_cluster((), (), at=0.0, epoch=1))
    _join(draft)
    for deployment in bounds.deployments:
        draft.tell(_applied(bounds, deployment, "1"))
    world = draft.close()
    while (move := next(moves(world), None)) is not None and move[0] in FAIR:
        world, broken = make(world, move)
        assert not broken, broken
    return world


def _join(draft: WorldDraft) -> None:
    for number, node in enumerate(draft.bounds.nodes):
        gpu_bytes, cpu_bytes = node.gpu_bytes, node.cpu_bytes
        draft.tell(NodeJoined(node_id=f"n{number}", resources={}, gpu_bytes=gpu_bytes, cpu_bytes=cpu_bytes, at=draft.now))
    if draft.bounds.listed:
        draft.tell(NodesListed(node_ids=tuple(f"n{number}" for number in range(len(draft.bounds.nodes))), at=draft.now))


def _applied(bounds: ClusterBounds, deployment: str, version: str, at: float = 0.0) -> ApplyRequested:
    spec = bounds.spec(deployment, version)
    return ApplyRequested(applications=(ApplicationSpec(name=application_of(deployment), deployments=(spec,)),), at=at)


def moves(world: ClusterWorld) -> Iterator[Move]:
    """What may happen next: what has to at some time, then what an adversary may do."""
    state, bounds = world.state, world.bounds
    if state is None:
        yield "comes back", 0
    elif world.given:
        yield "is carried out", 0
    for number in range(len(world.puts)):
        yield "lands", number
    for number in range(len(world.acks)):
        yield "is acknowledged", number
    for number in range(len(world.questions)):
        yield "is answered", number
    moving = [number for number, each in enumerate(world.workers) if each.moving is not None and not each.hangs]
    for number in moving:
        yield "moves", number
    at_work = world.given or world.puts or world.acks or world.questions or moving
    if state is not None and not at_work and _is_due(state, bounds):
        yield "time passes", 0
    left = {budget: getattr(bounds, budget) > spent for budget, spent in zip(BUDGETS, world.spent, strict=True)}
    if left["losses"]:
        for number in range(len(world.puts)):
            yield "is lost", number
    if state is None:
        return
    if left["crashes"]:
        yield "crashes", 0
    if left["asks"]:
        for number, (what, deployment, _) in enumerate(bounds.wishes):
            entry = state.deployments.get(deployment)
            if (entry is not None and not entry.deleting) or (entry is None and what == "apply"):
                yield "is wished", number
    if left["deaths"]:
        for number in range(len(world.living) + len(world.workers)):
            yield "dies", number
    if left["failures"]:
        for number in moving:
            yield "fails", number
    if left["hangs"]:
        for number, worker in enumerate(world.workers):
            if not worker.hangs:
                yield "hangs", number
    if left["delays"] and (moving or world.given) and not (world.puts or world.acks):
        yield "is late", 0
    if left["leaves"]:
        for number in range(len(world.living)):
            yield "leaves", number
    if left["reports"]:
        yield "reports", 0


def _is_due(state: ClusterState, bounds: ClusterBounds) -> bool:
    """Whether something comes of waiting; that an autoscaler looks at its load again and again is no more than that."""
    if bounds.policy:
        return any(entry.outbox.due_at is not None for entry in state.deployments.values())
    return state.wake_at is not None


def make(world: ClusterWorld, move: Move) -> tuple[ClusterWorld, tuple[Violation, ...]]:
    """The world after a move, and the promises that it has broken."""
    draft = WorldDraft(world)
    what, which = move
    _MOVES[what](draft, which)
    return draft.close(), tuple(draft.broken)


def _carried_out(draft: WorldDraft, number: int) -> None:
    given = draft.given.pop(number)
    command = given.command
    if not isinstance(command, QueryWorker):
        draft.seen[command.deployment] = max(draft.seen.get(command.deployment, 0), given.rests_on)
    if isinstance(command, CarryOut):
        if isinstance(command.command, PublishRoutes):
            draft.routed = draft.routed - set(command.command.removed) | set(command.command.added)
            for process, deployment in sorted(draft.calls):
                if deployment == command.deployment and command.command.added:
                    _call(draft, process, deployment, 0)  # those that wait are served
        if not draft.bounds.weights:
            event = _answer(draft, command)
            if event is not None:
                draft.tell(event)
            return
        draft.workers.carry_out(command, draft.now)
    else:
        there = dict(draft.workers.held)
        draft.workers.obey(command, frozenset(draft.routed), draft.now)
        if isinstance(command, KillWorker):
            draft.broken += _killed_wrongly(draft, [each for key, each in there.items() if key not in draft.workers.held])
    _hear(draft)


def _killed_wrongly(draft: WorldDraft, ended: list[HeldWorker]) -> Iterator[Violation]:
    """Who was to end with one move, and is to be loaded by the next; or is HOT without a rank, or copies, and has time yet."""
    assert draft.state is not None, "the controller has crashed"
    in_time = not any(draft.spent[BUDGETS.index(each)] for each in ("hangs", "delays"))
    for each in ended:
        if in_time and each.phase is Phase.SERVING and each.worker.rank is None:
            yield Violation("T11", f"{each.worker.worker_id} is HOT, and is killed in place of being a replica")
        record = draft.state.weights.planner.replicas.get(each.worker.worker_id)
        if record is not None and record.phase is Phase.LOADING and each.move < record.move:
            yield Violation("P4", f"{record.replica_id} is killed for move {each.move}, and was to load by move {record.move}")
        if record is not None and isinstance(each.moving, OffloadToCpu) and not each.hangs:
            spec = draft.bounds.weights[draft.bounds.deployments.index(deployment_of(record.replica_id))]
            if draft.now < record.since + CALLS_S + spec.load_timeout_s:
                yield Violation("P4", f"{record.replica_id} is killed while it copies its weights, and has time for that")


def _hear(draft: WorldDraft) -> None:
    """What workers have to say reaches the controller, if there is one."""
    workers = draft.workers
    news, workers.news = workers.news, []
    draft.broken += workers.broken
    draft.broken += workers.memory.check(draft.bounds.nodes)
    draft.broken += believed_twice(tuple(workers.held.values()))
    for each in news:
        if draft.state is not None:
            draft.tell(each)


def _moves(draft: WorldDraft, number: int) -> None:
    draft.workers.finish(sorted(draft.workers.held)[number], draft.now)
    _hear(draft)


def _fails(draft: WorldDraft, number: int) -> None:
    draft.spend("failures")
    draft.workers.fail(sorted(draft.workers.held)[number], draft.now)
    _hear(draft)


def _hangs(draft: WorldDraft, number: int) -> None:
    draft.spend("hangs")
    worker_id = sorted(draft.workers.held)[number]
    draft.workers.held[worker_id] = attrs.evolve(draft.workers.held[worker_id], hangs=True)


def _answer(draft: WorldDraft, given: CarryOut) -> Any:
    command, at = given.command, draft.now
    match command:
        case StartReplica(replica_id=replica_id) if command.version == BROKEN:
            return events.ReplicaStartFailed(replica_id=replica_id, reason="broken", at=at)
        case StartReplica(replica_id=replica_id):
            draft.living[replica_id] = Living(replica_id, command.version)
            return events.ReplicaPlaced(replica_id=replica_id, node_id=NODE, at=at)
        case InitializeReplica(replica_id=replica_id) | ReconfigureReplica(replica_id=replica_id):
            process = draft.living.get(replica_id)
            if process is None:
                return None
            draft.living[replica_id] = attrs.evolve(process, rank=command.rank, config_id=command.config_id)
            if isinstance(command, InitializeReplica):
                return events.ReplicaReady(replica_id=replica_id, at=at)
            return events.ReplicaReconfigured(replica_id=replica_id, revision=command.revision, at=at)
        case StopReplica(replica_id=replica_id) | KillReplica(replica_id=replica_id):
            draft.living.pop(replica_id, None)
            return events.ReplicaStopped(replica_id=replica_id, at=at)
        case QueryReplica(replica_id=replica_id):
            return _report(draft, replica_id, command.epoch)
        case _:
            return None


def _report(draft: WorldDraft, replica_id: str, epoch: int) -> Any:
    process = draft.living.get(replica_id)
    if process is None:
        return events.ReplicaMissing(replica_id=replica_id, at=draft.now)
    return events.ReplicaReported(
        replica_id=replica_id,
        node_id=NODE,
        rank=process.rank,
        version=process.version,
        ready=process.rank is not None,
        config_id=process.config_id,
        epoch=epoch,
        at=draft.now,
    )


def _lands(draft: WorldDraft, number: int) -> None:
    record = draft.puts.pop(number)
    # What it outdates tells nothing any more; where it lands last it stays, so that a store that prefers it is found.
    best = newest([*draft.store, record])[record.deployment]
    draft.store = [each for each in draft.store if each.deployment != record.deployment or each == best] + [record]
    if draft.state is not None and record.epoch == draft.epoch:
        draft.acks.append((record.deployment, record.number))


def _acknowledged(draft: WorldDraft, number: int) -> None:
    deployment, saved = draft.acks.pop(number)
    draft.tell(RecordSaved(deployment=deployment, number=saved, at=draft.now))


def _answered(draft: WorldDraft, number: int) -> None:
    question = draft.questions.pop(number)
    draft.tell(
        PolicyAnswered(
            deployment=question.deployment, ask=question.ask, target_number=question.target_number, wanted=3.0, at=draft.now
        )
    )


def _crashes(draft: WorldDraft, _: int) -> None:
    draft.spend("crashes")
    draft.state = None
    draft.given, draft.acks, draft.questions, draft.waiting = [], [], [], []


def _comes_back(draft: WorldDraft, _: int) -> None:
    draft.epoch += 1
    adopted = newest(draft.store)
    for deployment, number in sorted(draft.seen.items()):
        found = adopted[deployment].number if deployment in adopted else 0
        if found < number:
            draft.broken.append(Violation("P2", f"of {deployment} record {found} is adopted, and the world has seen {number}"))
    workers = {each: held.worker.node_id for each, held in sorted(draft.workers.held.items())}
    step = recover_cluster(draft.store, sorted(draft.living), at=draft.now, epoch=draft.epoch, workers=workers)
    for deployment, record in adopted.items():
        entry = step.state.deployments.get(deployment)
        if deployment in step.state.weights.recovering:
            continue
        if (entry is None) is not record.deleted or (entry is not None and not _is_copy(entry.outbox.record, record)):
            draft.broken.append(Violation("P2", f"of {deployment} another record than {record.number} is adopted"))
    draft.take(step)
    _join(draft)


def _is_copy(copied: Record, record: Record) -> bool:
    """Whether one says what the other does; what was being deleted may be gone by now."""
    return attrs.evolve(copied, number=record.number, deleted=False) == record


def _time_passes(draft: WorldDraft, _: int) -> None:
    assert draft.state is not None, "the controller has crashed"
    draft.now = max(draft.now, draft.state.wake_at or 0.0)
    draft.tell(events.ClockAdvanced(at=draft.now))


def _is_late(draft: WorldDraft, _: int) -> None:
    draft.spend("delays")
    draft.now += draft.bounds.late_s
    draft.tell(events.ClockAdvanced(at=draft.now))


def _is_lost(draft: WorldDraft, number: int) -> None:
    draft.spend("losses")
    draft.puts.pop(number)


def _is_wished(draft: WorldDraft, number: int) -> None:
    draft.spend("asks")
    what, deployment, how = draft.bounds.wishes[number]
    if what == "apply":
        draft.tell(_applied(draft.bounds, deployment, how, draft.now))
    elif what == "calls":
        process, _, count = how.partition(":")
        _call(draft, process, deployment, int(count))
    elif what == "evict":
        draft.tell(EvictRequested(model=deployment, keep=Level(how), at=draft.now))
    elif what == "scale":
        draft.tell(ScaleRequested(deployment=deployment, target_replicas=int(how), at=draft.now))
    else:
        draft.tell(DeletionRequested(deployments=(deployment,), at=draft.now))


def _call(draft: WorldDraft, process: str, deployment: str, count: int) -> None:
    """A process says how many of its calls wait."""
    draft.seq += 1
    draft.calls = {each for each in draft.calls if each != (process, deployment)} | (
        {(process, deployment)} if count else set()
    )
    entries = {deployment: ReportedLoad(waiting=count)}
    draft.tell(LoadReported(reporter=process, incarnation=1, seq=draft.seq, entries=entries, at=draft.now))


def _dies(draft: WorldDraft, number: int) -> None:
    draft.spend("deaths")
    if number >= len(draft.living):
        draft.workers.ends(sorted(draft.workers.held)[number - len(draft.living)], draft.now, "died")
        return _hear(draft)
    replica_id = sorted(draft.living)[number]
    del draft.living[replica_id]
    draft.tell(events.ReplicaDied(replica_id=replica_id, at=draft.now))


def _leaves(draft: WorldDraft, number: int) -> None:
    draft.spend("leaves")
    draft.tell(events.ReplicasLeave(replica_ids=(sorted(draft.living)[number],), at=draft.now))


def _reports(draft: WorldDraft, _: int) -> None:
    draft.spend("reports")
    for deployment in draft.bounds.deployments:
        for reporter, load in (("caller", ReportedLoad(waiting=9)), *((each, ReportedLoad()) for each in sorted(draft.living))):
            seq = draft.spent[BUDGETS.index("reports")]
            draft.tell(LoadReported(reporter=reporter, incarnation=1, seq=seq, entries={deployment: load}, at=draft.now))
    draft.now += 10.0
    draft.tell(events.ClockAdvanced(at=draft.now))


_MOVES: dict[str, Callable[[WorldDraft, int], None]] = {
    "is carried out": _carried_out,
    "lands": _lands,
    "is acknowledged": _acknowledged,
    "is answered": _answered,
    "moves": _moves,
    "fails": _fails,
    "hangs": _hangs,
    "comes back": _comes_back,
    "time passes": _time_passes,
    "is late": _is_late,
    "is lost": _is_lost,
    "crashes": _crashes,
    "is wished": _is_wished,
    "dies": _dies,
    "leaves": _leaves,
    "reports": _reports,
}
