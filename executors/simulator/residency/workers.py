"""Workers' processes on nodes with real memory: the backend's half of the contract, with the shipped half of a worker.

Each command reaches its node over the wire, and each answer comes back over it. A worker's process begins with a load from
disk, and lives on while its weights are in CPU memory; a replica is its stay on the GPUs (`rankcore.replica.worker`).

**Race:** a controller dies while its commands are on their way, and the next one asks the workers that it finds. A load from
disk that arrives after that would begin a process that nobody has found, a move would change what was just reported: memory
would be held that is in nobody's book (T8), or be given out twice (T1). So, as on a real cluster:

1. The next controller raises the fence before it looks for workers (`Workers.raise_fence`). A process that begins looks at
   the fence, and one of an earlier epoch does not come up.
2. A worker adopts the epoch of a query before it answers, and refuses every older command about its ranks and its weights
   (`rankcore.replica.worker.admit`). What it was told before that, its report says.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import attrs
from msgspec.structs import replace

from executors.simulator.believers import Believers
from executors.simulator.clock import EventLoop
from executors.simulator.load.requests import RequestQueue
from executors.simulator.residency.links import DISK, TO_CPU, TO_GPU
from executors.simulator.residency.nodes import GpuNode, WorkerProcess
from executors.simulator.residency.watch import MemoryWatch
from executors.simulator.residency.wire import Wire
from executors.simulator.scenario.entries import shown
from executors.simulator.scenario.weights import Loading, Size
from executors.simulator.streams import Streams
from rankcore.cluster.commands import CarryOut, GiveTenure, KillWorker, MoveWeights, QueryWorker
from rankcore.cluster.events import ClusterEvent, MoveFailed, MoveFinished, WorkerLost, WorkerReported
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import WorkerId, deployment_of
from rankcore.commands import AnnounceWorldSize, InitializeReplica, KillReplica, QueryReplica, ReconfigureReplica, StartReplica
from rankcore.events import ReplicaMissing, ReplicaReady, ReplicaReconfigured, ReplicaReported, ReplicaUnready
from rankcore.replica.messages import WorkerMessage, readiness_checked, worker_receive, worker_user_code_ended
from rankcore.replica.replica import RunUserCode
from rankcore.replica.worker import Worker, admit, leave
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import MemoryMeasured, UsageReported
from rankcore.residency.levels import Level, Phase
from rankcore.values import ReplicaId


class Around(Protocol):
    """What workers are in."""

    nodes: dict[str, GpuNode]
    queues: dict[DeploymentId, RequestQueue]
    watch: MemoryWatch
    wire: Wire

    def tell(self, event: ClusterEvent) -> None:
        """News has reached the controller."""

    def ended(self, replica_id: ReplicaId) -> None:
        """A replica is no more."""

    def check_held(self, node: GpuNode) -> None:
        """What is held on the GPUs of a node ought to be reserved."""

    def broken(self, rule: str, text: str) -> None:
        """A promise is."""


class Workers:
    """All of a run.

    Attributes:
        live: By id, in the order in which they began.
        epoch: Of the newest controller: the fence.
    """

    def __init__(
        self, loop: EventLoop, loading: Loading, sizes: Mapping[DeploymentId, Size], streams: Streams, around: Around
    ) -> None:
        self.live: dict[WorkerId, WorkerProcess] = {}
        self.epoch = 0
        self._loop = loop
        self._loading = loading
        self._sizes = sizes
        self._streams = streams
        self._around = around
        self._believers = {deployment: Believers() for deployment in sizes}
        self._loads: dict[DeploymentId, int] = {}
        self._to_fail: dict[DeploymentId, int] = {}
        self._announced: dict[DeploymentId, AnnounceWorldSize] = {}
        self._some_lie = any(size.really_working_bytes != size.working_bytes for size in sizes.values())

    # -- commands

    def obey(self, command: CarryOut | GiveTenure | MoveWeights | KillWorker | QueryWorker) -> None:
        """A command of the controller sets out."""
        match command:
            case MoveWeights(command=LoadToGpu() as load, epoch=epoch):
                node = self._around.nodes[load.node_id]
                self._around.wire.to_node(node, self._load, load, epoch, node.told)
            case MoveWeights(command=move, epoch=epoch):
                self._around.wire.to_node(self._around.nodes[move.node_id], self._leave_memory, move, epoch)
            case GiveTenure(worker_id=worker_id, start=start):
                self._to_worker(worker_id, start)
            case KillWorker(worker_id=worker_id):
                self._to_worker_or(worker_id, self._killed, partial(self._lost, worker_id, None, "there is none"))
            case QueryWorker(worker_id=worker_id, epoch=epoch):
                gone = partial(self._lost, worker_id, None, "not to be found")
                self._to_worker_or(worker_id, self._report, gone, epoch)
            case CarryOut(deployment=deployment, command=inner):
                self._carry_out(deployment, inner)

    def _carry_out(self, deployment: DeploymentId, command: Any) -> None:
        if isinstance(command, AnnounceWorldSize):
            for worker in [each for each in self.live.values() if each.deployment == deployment]:
                self._to_worker(worker.worker_id, command)
            self._announced[deployment] = command
        elif isinstance(command, InitializeReplica | ReconfigureReplica | QueryReplica):
            holder = next((each for each in self.live.values() if each.tenure == command.replica_id), None)
            holder = holder or next((each for each in self.live.values() if each.given == command.replica_id), None)
            if holder is not None:
                self._to_worker(holder.worker_id, command)
            elif isinstance(command, QueryReplica):
                self._around.tell(ReplicaMissing(replica_id=command.replica_id, at=self._loop.now))
        elif isinstance(command, KillReplica):  # of a deployment that is gone
            holder = next((each for each in self.live.values() if each.tenure == command.replica_id), None)
            if holder is not None:
                self._around.wire.to_node(holder.node, self.die, holder, "nobody knows its deployment")
        else:
            self._around.broken("P4", f"{type(command).__name__} of a tenure goes to the backend")

    def _to_worker(self, worker_id: WorkerId, message: WorkerMessage) -> None:
        worker = self.live.get(worker_id)
        if worker is not None:
            if isinstance(message, StartReplica):
                worker.given = message.replica_id
            self._around.wire.to_node(worker.node, self._receive, worker, message)

    def _to_worker_or(
        self, worker_id: WorkerId, act: Callable[..., None], otherwise: Callable[[], None], *more: object
    ) -> None:
        worker = self.live.get(worker_id)
        if worker is None:
            otherwise()
        else:
            self._around.wire.to_node(worker.node, act, worker, *more)

    def _receive(self, worker: WorkerProcess, message: WorkerMessage) -> None:
        if not self._is_current(worker):
            return
        now, before = self._loop.now, worker.half.rank
        worker.half, reactions = worker_receive(worker.half, message, now)
        if isinstance(message, StartReplica) and worker.deployment in self._announced:
            worker.half, _ = worker_receive(worker.half, self._announced[worker.deployment], now)
        rank, tenure = worker.half.rank, worker.tenure
        if rank is not None and rank != before and tenure is not None:
            for broken in self._believers[worker.deployment].changed(tenure, worker.node.node_id, rank):
                self._around.broken(broken.rule, broken.detail)
        for reaction in reactions:
            if isinstance(reaction, RunUserCode):
                worker.half, said = worker_user_code_ended(worker.half, reaction, now)
                self._check_readiness(worker)  # before it says that it is up: it is not routed for a moment
                for each in said:
                    self._say(worker, each)
            else:
                self._say(worker, reaction)

    def _say(self, worker: WorkerProcess, said: Any) -> None:
        if isinstance(said, ReplicaReported) and worker.phase is Phase.LEAVING:
            said = attrs.evolve(said, draining=True)
        if isinstance(said, ReplicaReady) and worker.is_hot:
            self._around.queues[worker.deployment].accept(said.replica_id)
        if isinstance(said, ReplicaReady | ReplicaUnready | ReplicaReported | ReplicaReconfigured | ReplicaMissing):
            self._tell(worker.node, said)

    def _report(self, worker: WorkerProcess, epoch: int) -> None:
        if not self._is_current(worker):
            return self._lost(worker.worker_id, None, "not to be found")
        if not self._admits(worker.worker_id, epoch):
            return
        memory, on_gpus = worker.node.memory, worker.phase in (Phase.LOADING, Phase.SERVING, Phase.LEAVING)
        report = WorkerReported(
            worker_id=worker.worker_id,
            node_id=worker.node.node_id,
            phase=worker.phase,
            gpus=worker.gpus if on_gpus else (),
            gpu_bytes=worker.gpu_bytes if on_gpus else (),
            cpu_bytes=memory.cached(worker.worker_id) or (worker.keeps or 0 if worker.phase is Phase.LEAVING else 0),
            move=worker.move,
            tenure=worker.tenure if worker.half.rank is not None else None,
            epoch=epoch,
            at=self._loop.now,
        )
        self._tell(worker.node, report)

    # -- what becomes of a load

    def _load(self, load: LoadToGpu, epoch: int, believed: tuple[int, ...]) -> None:
        if not self._admits(load.replica_id, epoch):
            return
        node, now = self._around.nodes[load.node_id], self._loop.now
        worker = self.live.get(load.replica_id)
        from_cpu = load.source is Level.WARM
        if worker is None and from_cpu:
            self._tell(node, MoveFailed(worker_id=load.replica_id, move=load.move, reason="it has ended", at=now))
            return
        if worker is None:
            deployment = deployment_of(load.replica_id)
            worker = WorkerProcess(load.replica_id, deployment, node, Worker(load.replica_id, node.node_id, epoch))
            self.live[load.replica_id] = worker
        worker.phase, worker.move, worker.from_cpu, worker.keeps = Phase.LOADING, load.move, from_cpu, None
        worker.gpus, worker.gpu_bytes = load.gpus, load.gpu_bytes
        worker.short = node.memory.take(load.replica_id, load.gpus, load.gpu_bytes)
        if worker.short is not None and node.has(believed) and not (self._around.wire.takes_time and self._some_lie):
            self._around.broken("T1", f"{load.replica_id} does not fit on GPU {worker.short} of {load.node_id}")
        self._around.watch.begin_load(worker)
        deployment = worker.deployment
        self._loads[deployment] = number = self._loads.get(deployment, 0) + 1
        stream = self._streams.once("load", shown(deployment), str(number))
        start_s = (self._loading.warm_start_s if from_cpu else self._loading.cold_start_s).sample(stream)
        fails, after = stream.random() < self._loading.failure, stream.random()
        if self._to_fail.get(deployment, 0):
            self._to_fail[deployment] -= 1
            fails = True
        worker.fails_after = after if fails else None
        self._loop.after(start_s, self._move_in, worker, load.move)

    def _move_in(self, worker: WorkerProcess, move: int) -> None:
        if not self._goes_on(worker, move, Phase.LOADING):
            return
        size = self._sizes[worker.deployment].weight_bytes
        if worker.fails_after is not None:
            size = max(1, int(size * worker.fails_after))
        uses = (TO_GPU,) if worker.from_cpu else (DISK, TO_GPU)
        worker.transfer = worker.node.links.begin(uses, size, self._moved_in, worker)

    def _moved_in(self, worker: WorkerProcess) -> None:
        node, now = worker.node, self._loop.now
        self._around.watch.moved(worker)
        worker.transfer = None
        if worker.fails_after is not None:
            self._fail_load(worker, "the load failed")
            return
        really = self._really(worker)
        short = node.memory.take(worker.worker_id, worker.gpus, really)
        short = short if short is not None else worker.short
        if short is not None:
            self._fail_load(worker, f"out of memory on GPU {short} of {node.node_id}")
            self._measure(node)
            return
        worker.phase = Phase.SERVING
        if worker.from_cpu:
            node.memory.leave_cpu(worker.worker_id)
        self._around.watch.become_hot(worker, really)
        self._tell(node, MoveFinished(worker_id=worker.worker_id, move=worker.move, at=now))
        if really > worker.gpu_bytes:
            worker.gpu_bytes = really
            self._tell(node, UsageReported(replica_id=worker.worker_id, gpu_bytes=really, at=now))
        self._around.check_held(node)

    def _really(self, worker: WorkerProcess) -> tuple[int, ...]:
        """What it turns out to take on each of its GPUs."""
        size = self._sizes[worker.deployment]
        if size.really_working_bytes == size.working_bytes:
            return worker.gpu_bytes
        total = size.weight_bytes + size.really_working_bytes
        return (-(-total // len(worker.gpus)),) * len(worker.gpus)

    def _fail_load(self, worker: WorkerProcess, reason: str) -> None:
        """It is off the GPUs again; a copy that it came from is where it was."""
        self._off_the_gpus(worker)
        if worker.from_cpu:
            worker.phase = Phase.RESTING
        else:
            self._end(worker)
        self._around.watch.fail_load(worker)
        failed = MoveFailed(worker_id=worker.worker_id, move=worker.move, reason=reason, at=self._loop.now)
        self._tell(worker.node, failed)

    def _measure(self, node: GpuNode) -> None:
        """After a load for which there was no room: how much is there really?"""
        if not node.says_the_truth:
            gpu_bytes = tuple(node.memory.capacity)
            found = MemoryMeasured(node_id=node.node_id, gpu_bytes=gpu_bytes, at=self._loop.now)
            self._around.wire.to_controller(node, self._measured, node, found)

    def _measured(self, node: GpuNode, found: MemoryMeasured) -> None:
        node.told = found.gpu_bytes
        self._around.tell(found)

    # -- what leaves

    def _leave_memory(self, move: OffloadToCpu | UnloadFromGpu | DropFromCpu, epoch: int) -> None:
        if not self._admits(move.replica_id, epoch):
            return
        node = self._around.nodes[move.node_id]
        worker = self.live.get(move.replica_id)
        if worker is None:  # it ended by itself, and the controller will hear of that
            failed = MoveFailed(worker_id=move.replica_id, move=move.move, reason="it has ended", at=self._loop.now)
            self._tell(node, failed)
            return
        worker.move = move.move
        if isinstance(move, DropFromCpu):
            self._around.watch.leave_cpu(node, worker)
            self._end(worker)
            self._tell(node, MoveFinished(worker_id=worker.worker_id, move=move.move, at=self._loop.now))
            return
        if worker.phase is Phase.SERVING:
            worker.keeps = move.cpu_bytes if isinstance(move, OffloadToCpu) else None
        else:
            worker.keeps = 0 if isinstance(move, UnloadFromGpu) and move.keep_copy else None
        worker.phase = Phase.LEAVING
        self._around.watch.leaving(worker)
        self._loop.after(move.timeout_s, self._go, worker, move.move)
        if worker.tenure is None:
            self._go(worker, move.move)
        else:
            self._around.queues[worker.deployment].drain(worker.tenure, partial(self._go, worker, move.move))

    def _go(self, worker: WorkerProcess, move: int) -> None:
        """It has nothing in flight any more, or its time is over."""
        if not self._goes_on(worker, move, Phase.LEAVING) or worker.is_copying:
            return
        if worker.tenure is not None:
            self._around.queues[worker.deployment].lose(worker.tenure)
            self._around.ended(worker.tenure)
        if not worker.keeps:
            self._gone(worker)
            return
        node = worker.node
        node.memory.take_cpu(worker.worker_id, worker.keeps)
        self._around.watch.copying(worker, worker.keeps)
        worker.is_copying = True
        size = self._sizes[worker.deployment].weight_bytes
        worker.transfer = node.links.begin((TO_CPU,), size, self._copied, worker)

    def _copied(self, worker: WorkerProcess) -> None:
        self._around.watch.moved(worker)
        worker.transfer, worker.is_copying = None, False
        self._gone(worker)

    def _gone(self, worker: WorkerProcess) -> None:
        """It is off the GPUs; without a copy its process ends, untold."""
        self._off_the_gpus(worker)
        self._forget_tenure(worker)
        if worker.keeps is None:
            self._end(worker)
        else:
            worker.phase = Phase.RESTING
        self._around.watch.gone(worker)
        self._tell(worker.node, MoveFinished(worker_id=worker.worker_id, move=worker.move, at=self._loop.now))
        self._around.check_held(worker.node)

    def _off_the_gpus(self, worker: WorkerProcess) -> None:
        if worker.transfer is not None:
            worker.node.links.cancel(worker.transfer)
            self._around.watch.moved(worker)
            worker.transfer = None
        worker.node.memory.leave_gpu(worker.worker_id)

    def _forget_tenure(self, worker: WorkerProcess) -> None:
        if worker.tenure is not None:
            self._believers[worker.deployment].ended(worker.tenure)
            worker.half = leave(worker.half)
        worker.given = None

    def _end(self, worker: WorkerProcess) -> None:
        """Its process is no more, with all that it held."""
        tenure = worker.tenure
        self._off_the_gpus(worker)
        self._forget_tenure(worker)
        if tenure is not None:
            self._around.queues[worker.deployment].lose(tenure)
            self._around.ended(tenure)
        worker.node.memory.leave_cpu(worker.worker_id)
        if self._is_current(worker):
            del self.live[worker.worker_id]

    # -- what goes wrong

    def die(self, worker: WorkerProcess, reason: str) -> None:
        """Its process ends."""
        if not self._is_current(worker):
            return
        loading = worker.phase is Phase.LOADING
        self._end(worker)
        self._around.watch.leave_cpu(worker.node, worker)
        if loading:
            self._around.watch.fail_load(worker)
        else:
            self._around.watch.gone(worker)
        self._lost(worker.worker_id, worker.node, reason)

    def _killed(self, worker: WorkerProcess) -> None:
        if self._is_current(worker):
            self.die(worker, "it was killed")
        else:
            self._lost(worker.worker_id, None, "there is none")

    def _lost(self, worker_id: WorkerId, node: GpuNode | None, reason: str) -> None:
        node_id = node.node_id if node is not None else None
        news = WorkerLost(worker_id=worker_id, node_id=node_id, reason=reason, at=self._loop.now)
        if node is None:
            self._around.tell(news)
        else:
            self._tell(node, news)

    def end_with(self, node: GpuNode) -> list[WorkerProcess]:
        """A node goes down, with all that is on it; whoever is told of the node is told of them."""
        ended = [worker for worker in self.live.values() if worker.node is node]
        for worker in ended:
            self._end(worker)
            self._around.watch.leave_cpu(node, worker)
            self._around.watch.gone(worker)
        return ended

    def fail_loads(self, deployment: DeploymentId, count: int) -> None:
        """The next loads of a deployment fail."""
        self._to_fail[deployment] = self._to_fail.get(deployment, 0) + count

    def become_unready(self, worker: WorkerProcess) -> None:
        """A replica takes no requests any more, which it says at once, or at the end of its start-up."""
        worker.unready += 1
        self._check_readiness(worker)

    def become_ready(self, worker: WorkerProcess) -> None:
        """What kept it from taking requests is over."""
        worker.unready -= 1
        self._check_readiness(worker)

    def _check_readiness(self, worker: WorkerProcess) -> None:
        if self._is_current(worker) and worker.half.replica is not None:
            problem = "it takes no requests" if worker.unready else None
            replica, news = readiness_checked(worker.half.replica, self._loop.now, problem)
            worker.half = replace(worker.half, replica=replica)
            for each in news:
                self._say(worker, each)

    def shrink(self, node: GpuNode, gpu_bytes: int) -> None:
        """Somebody else takes memory of a node's GPUs, which is measured at once."""
        node.memory.capacity = [min(there, gpu_bytes) for there in node.memory.capacity]
        if node.up:
            self._measure(node)

    def oldest(self, deployment: DeploymentId, *, ready: bool = False) -> WorkerProcess | None:
        """The oldest worker of a deployment that is on GPUs, or on its way there; None: there is none.

        Args:
            ready: Only one that takes requests, or will.
        """
        phases = (Phase.LOADING, Phase.SERVING)
        there = (each for each in self.live.values() if each.deployment == deployment and each.phase in phases)
        return next((each for each in there if not (ready and each.unready)), None)

    def raise_fence(self, epoch: int) -> None:
        """A controller comes up, which is obeyed instead of all before; what it finds double is its to repair."""
        self.epoch = epoch
        for believers in self._believers.values():
            believers.tolerate_present_duplicates()

    def _tell(self, node: GpuNode, event: ClusterEvent) -> None:
        self._around.wire.to_controller(node, self._around.tell, event)

    def _admits(self, worker_id: WorkerId, epoch: int) -> bool:
        """Whether a worker obeys a controller of this epoch, or one that is to begin may."""
        worker = self.live.get(worker_id)
        if worker is None:
            return epoch >= self.epoch
        admitted = admit(worker.half, epoch)
        if admitted is not None:
            worker.half = admitted
        return admitted is not None

    def _is_current(self, worker: WorkerProcess) -> bool:
        return self.live.get(worker.worker_id) is worker

    def _goes_on(self, worker: WorkerProcess, move: int, phase: Phase) -> bool:
        return self._is_current(worker) and worker.move == move and worker.phase is phase
