"""Workers in a small cluster: the shipped half of a worker, with weights in a memory that nobody's books decide about."""

from collections.abc import Iterator
from typing import Any

import attrs

from rankcore import events
from rankcore.cluster.commands import CarryOut, GiveTenure, KillWorker, MoveWeights, QueryWorker, WeightsMove
from rankcore.cluster.events import MoveFailed, MoveFinished, WorkerLost, WorkerReported
from rankcore.cluster.residency import deployment_of
from rankcore.commands import InitializeReplica, KillReplica, QueryReplica, ReconfigureReplica, StopReplica
from rankcore.kernel import Violation
from rankcore.replica.messages import worker_receive, worker_user_code_ended
from rankcore.replica.replica import RunUserCode
from rankcore.replica.worker import Worker, leave
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.levels import Level, Phase
from rankcore.testing.model_residency.memory import TakenMemory


@attrs.frozen
class HeldWorker:
    """A worker's process.

    Attributes:
        worker: Which tenure it has, and what that believes.
        phase: What it is about: LOADING, SERVING, LEAVING, DROPPING, or RESTING with a copy.
        gpus, gpu_bytes, cpu_bytes: What it takes.
        moving: Its newest move, if that is under way.
        move: The number of its newest move.
        hangs: Whether it answers nothing but a kill.
    """

    worker: Worker
    phase: Phase
    gpus: tuple[int, ...] = ()
    gpu_bytes: tuple[int, ...] = ()
    cpu_bytes: int = 0
    moving: WeightsMove | None = None
    move: int = 0
    hangs: bool = False


@attrs.define
class Workers:
    """Those of a world, while a move changes it.

    Attributes:
        held: By worker.
        memory: Who takes what, whatever the planner's books say.
        news: What they have to say, in this order.
        broken: What was asked of them that no order may ask.
    """

    held: dict[str, HeldWorker]
    memory: TakenMemory
    news: list[Any] = attrs.Factory(list)
    broken: list[Violation] = attrs.Factory(list)

    def obey(self, command: GiveTenure | MoveWeights | KillWorker | QueryWorker, routed: frozenset[str], at: float) -> None:
        """A command for a worker has arrived."""
        match command:
            case GiveTenure(worker_id=worker_id, start=start) if worker_id in self.held:
                self._receive(worker_id, start, at)
            case MoveWeights(tenure=tenure, command=move):
                if isinstance(move, OffloadToCpu | UnloadFromGpu) and tenure in routed:
                    self.broken.append(Violation("P5", f"{tenure} leaves the GPUs, and calls are routed to it"))
                self._begin(move, at)
            case KillWorker(worker_id=worker_id):
                held = self.held.get(worker_id)
                if command.move is None or (held is not None and command.concerns(held.move, held.moving is None)):
                    self.ends(worker_id, at, "killed")
            case QueryWorker(worker_id=worker_id):
                self._report(worker_id, command.epoch, at)

    def carry_out(self, command: CarryOut, at: float) -> None:
        """A command of ranks has arrived at whoever has its tenure; one for nobody comes to nothing, but for a query."""
        inner = command.command
        replica_id = getattr(inner, "replica_id", None)
        holder = next((each for each, held in self.held.items() if held.worker.tenure == replica_id), None)
        if isinstance(inner, StopReplica | KillReplica):
            self.broken.append(Violation("P4", f"{type(inner).__name__} of a tenure goes to the backend"))
        elif holder is not None and isinstance(inner, InitializeReplica | ReconfigureReplica | QueryReplica):
            self._receive(holder, inner, at)
        elif isinstance(inner, QueryReplica):
            self.news.append(events.ReplicaMissing(replica_id=inner.replica_id, at=at))

    def finish(self, worker_id: str, at: float) -> None:
        """Its move is over."""
        held = self.held[worker_id]
        move = held.moving
        assert move is not None, f"{worker_id} does not move"
        self.memory = self.memory.done(move)
        after = attrs.evolve(held, moving=None)
        if isinstance(move, LoadToGpu):
            self.held[worker_id] = attrs.evolve(after, phase=Phase.SERVING, cpu_bytes=0)
        elif isinstance(move, OffloadToCpu) or (isinstance(move, UnloadFromGpu) and move.keep_copy):
            gone = attrs.evolve(after, phase=Phase.RESTING, gpus=(), gpu_bytes=(), worker=leave(held.worker))
            self.held[worker_id] = gone
        else:
            del self.held[worker_id]
        self.news.append(MoveFinished(worker_id=worker_id, move=move.move, at=at))

    def fail(self, worker_id: str, at: float) -> None:
        """Its move has failed."""
        held = self.held[worker_id]
        move = held.moving
        assert move is not None, f"{worker_id} does not move"
        self.memory = self.memory.failed(move)
        if isinstance(move, LoadToGpu) and held.cpu_bytes:
            self.held[worker_id] = attrs.evolve(held, moving=None, phase=Phase.RESTING, gpus=(), gpu_bytes=())
        else:
            del self.held[worker_id]
        self.news.append(MoveFailed(worker_id=worker_id, move=move.move, reason="no luck", at=at))

    def ends(self, worker_id: str, at: float, reason: str) -> None:
        """Its process ends, with all that it holds."""
        held = self.held.pop(worker_id, None)
        self.memory = self.memory.without(lambda who, _place: who == worker_id)
        node_id = held.worker.node_id if held is not None else None
        self.news.append(WorkerLost(worker_id=worker_id, node_id=node_id, reason=reason, at=at))

    def _begin(self, move: WeightsMove, at: float) -> None:
        worker_id = move.replica_id
        held = self.held.get(worker_id)
        if held is None and isinstance(move, LoadToGpu) and move.source is Level.COLD:
            held = HeldWorker(Worker(worker_id, move.node_id), Phase.LOADING)
        if held is None:
            self.news.append(MoveFailed(worker_id=worker_id, move=move.move, reason="it has ended", at=at))
            return
        self.memory = self.memory.begun(move)
        if isinstance(move, LoadToGpu):
            held = attrs.evolve(held, phase=Phase.LOADING, gpus=move.gpus, gpu_bytes=move.gpu_bytes)
        elif isinstance(move, DropFromCpu):
            held = attrs.evolve(held, phase=Phase.DROPPING)
        else:
            cpu_bytes = move.cpu_bytes if isinstance(move, OffloadToCpu) else held.cpu_bytes
            held = attrs.evolve(held, phase=Phase.LEAVING, cpu_bytes=cpu_bytes)
        self.held[worker_id] = attrs.evolve(held, moving=move, move=move.move)

    def _receive(self, worker_id: str, message: Any, at: float) -> None:
        held = self.held[worker_id]
        worker, reactions = worker_receive(held.worker, message, at)
        for reaction in reactions:
            if isinstance(reaction, RunUserCode):
                worker, said = worker_user_code_ended(worker, reaction, at)
                self.news += said
            elif isinstance(reaction, events.ReplicaReported | events.ReplicaMissing | events.ReplicaReady):
                self.news.append(self._leaving(reaction, held))
        self.held[worker_id] = attrs.evolve(held, worker=worker)

    def _leaving(self, said: Any, held: HeldWorker) -> Any:
        """Who leaves the GPUs drains: the half of the worker does not know of weights."""
        if isinstance(said, events.ReplicaReported) and held.phase is Phase.LEAVING:
            return attrs.evolve(said, draining=True)
        return said

    def _report(self, worker_id: str, epoch: int, at: float) -> None:
        held = self.held.get(worker_id)
        if held is None:
            self.news.append(WorkerLost(worker_id=worker_id, reason="not to be found", at=at))
            return
        self.news.append(
            WorkerReported(
                worker_id=worker_id,
                node_id=held.worker.node_id,
                phase=held.phase,
                gpus=held.gpus,
                gpu_bytes=held.gpu_bytes,
                cpu_bytes=held.cpu_bytes,
                move=held.move,
                tenure=held.worker.tenure if held.worker.rank is not None else None,
                epoch=epoch,
                at=at,
            )
        )


def believed_twice(held: tuple[HeldWorker, ...]) -> Iterator[Violation]:
    """R3: no two workers of a deployment believe one rank, until the end of the offload."""
    seen: dict[tuple[str, int], str] = {}
    for each in held:
        rank = each.worker.rank
        if rank is not None:
            key = (deployment_of(each.worker.worker_id), rank.rank)
            other = seen.setdefault(key, each.worker.worker_id)
            if other != each.worker.worker_id:
                yield Violation("R3", f"{other} and {each.worker.worker_id} believe rank {rank.rank}")
