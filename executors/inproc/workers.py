"""The workers of a cluster in this process: weights move in tasks, ranks go to the worker's half of the contract.

Each move of a worker breaks off the one before it and waits for that, so a node is never asked for two things about one
worker at once. A worker that leaves the GPUs finishes its calls first, and what its user code was told of ranks; what is late
is cancelled. It believes its rank until its weights are off the GPUs (R7): only then is the move told as finished.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, assert_never

import attrs
from msgspec.structs import replace

from executors.inproc.node import RankedNode, ReadyNode, WeightsNode
from executors.ray_gpu.user_code import FIRST_CHECK_S
from rankcore.cluster import ClusterState
from rankcore.cluster.commands import GiveTenure, KillWorker, MoveWeights, PublishAvailability, QueryWorker, WeightsMove
from rankcore.cluster.events import ClusterEvent, MoveFailed, MoveFinished, MoveProgressed, WorkerLost
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import WorkerId, deployment_of, version_of
from rankcore.commands import (
    AnnounceWorldSize,
    Command,
    InitializeReplica,
    KillReplica,
    PublishRoutes,
    QueryReplica,
    ReconfigureReplica,
    StopReplica,
)
from rankcore.events import NodeLost, ReplicaMissing, ReplicaStopped
from rankcore.frozen import thaw_json
from rankcore.replica.messages import Reaction, ReplicaChange, readiness_checked, worker_receive, worker_user_code_ended
from rankcore.replica.replica import Drain, End, Refused, RunUserCode
from rankcore.replica.worker import Worker, leave
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.levels import Level
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)


@attrs.define(eq=False)
class HeldHere:
    """One worker.

    Attributes:
        worker: Which replica it is, and what that believes.
        is_leaving: Whether they are to leave, so that it begins no call.
        newest: The number of its newest move.
        move: Carries that out, or ends the worker.
        calls, code: What it works on: calls, and user code that is told of ranks.
        looks: Looks whether it takes calls, from the end of a tenure's start-up to the end of that tenure.
    """

    worker: Worker
    is_leaving: bool = False
    newest: int = 0
    move: asyncio.Task[None] | None = None
    calls: set[asyncio.Task[Any]] = attrs.Factory(set)
    code: set[asyncio.Task[Any]] = attrs.Factory(set)
    looks: asyncio.Task[None] | None = None

    @property
    def worker_id(self) -> WorkerId:
        """Which one."""
        return self.worker.worker_id

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Break off all that it works on; what is to be waited for."""
        tasks = [*self.calls, *self.code, *(each for each in (self.move, self.looks) if each is not None)]
        for task in tasks:
            task.cancel()
        return tasks


class WorkersHere:
    """All of one cluster.

    Args:
        node: Has their weights, and perhaps a `reconfigure`, and a `check_ready`.
        state: The cluster's.
        tell: What has happened.
        publish: How a deployment stands for those who call it.
        now: Seconds on the cluster's clock.
    """

    def __init__(
        self,
        node: WeightsNode,
        state: Callable[[], ClusterState],
        tell: Callable[[ClusterEvent], None],
        publish: Callable[[PublishAvailability], None],
        now: Callable[[], float],
    ) -> None:
        self._node = node
        self._reconfigure = node.reconfigure if isinstance(node, RankedNode) else None
        self._check_ready = node.check_ready if isinstance(node, ReadyNode) else None
        self._state, self._tell, self._publish, self._now = state, tell, publish, now
        self._held: dict[WorkerId, HeldHere] = {}
        self._tenures: dict[ReplicaId, HeldHere] = {}

    def serving(self, replica_id: ReplicaId) -> HeldHere | None:
        """Who is this replica and takes calls; None: nobody (any more)."""
        held = self._tenures.get(replica_id)
        return held if held is not None and not held.is_leaving else None

    def execute(self, command: GiveTenure | MoveWeights | KillWorker | QueryWorker | PublishAvailability) -> None:
        """Begin to carry out a command."""
        match command:
            case MoveWeights(command=move):
                self._move(move)
            case GiveTenure(worker_id=worker_id, start=start):
                held = self._held.get(worker_id)
                if held is not None:
                    self._receive(held, start)
                    if held.worker.tenure is not None:
                        self._tenures[held.worker.tenure] = held
            case KillWorker(worker_id=worker_id):
                held = self._held.get(worker_id)
                if held is not None and command.concerns(held.newest, held.move is None or held.move.done()):
                    self._begin(held, self._kill(held, command.because or "it was told to end", held.move))
                elif held is None and command.move is None:
                    self._tell(WorkerLost(worker_id=worker_id, reason="there is no such worker", at=self._now()))
            case QueryWorker(worker_id=worker_id):
                self._tell(WorkerLost(worker_id=worker_id, reason="it ended with an earlier process", at=self._now()))
            case PublishAvailability():
                self._publish(command)
            case _:
                assert_never(command)

    def command(self, deployment: DeploymentId, command: Command) -> None:
        """Begin to carry out a command about ranks."""
        match command:
            case AnnounceWorldSize():  # those to come are initialised with it
                for held in [each for each in self._held.values() if deployment_of(each.worker_id) == deployment]:
                    self._receive(held, command)
            case InitializeReplica() | ReconfigureReplica() | QueryReplica():
                found = self._tenures.get(command.replica_id)
                if found is not None:
                    self._receive(found, command)
                elif isinstance(command, QueryReplica):
                    self._tell(ReplicaMissing(replica_id=command.replica_id, at=self._now()))
            case StopReplica() | KillReplica():  # of a deployment that there is not: its weights' commands are about workers
                self._tell(ReplicaStopped(replica_id=command.replica_id, at=self._now()))
            case _:
                raise NotImplementedError(
                    f"{type(command).__name__} of {deployment}: replicas here have weights that may be COLD"
                )

    def lost(self, event: NodeLost | WorkerLost) -> None:
        """A node, or a worker, is gone with all that it held, as the machine knows already."""
        for held in tuple(self._held.values()):
            if held.worker.node_id == event.node_id if isinstance(event, NodeLost) else held.worker_id == event.worker_id:
                self._forget(held)
                held.cancel()

    async def aclose(self) -> None:
        """Nothing goes on."""
        await asyncio.gather(*(task for held in self._held.values() for task in held.cancel()), return_exceptions=True)

    # -- moves

    def _move(self, move: WeightsMove) -> None:
        held = self._held.get(move.replica_id)
        before = held.move if held is not None else None
        if isinstance(move, LoadToGpu) and move.source is Level.COLD:
            held = self._held[move.replica_id] = HeldHere(Worker(move.replica_id, move.node_id))
        if held is None:
            return self._failed(move, "there is no such worker")
        held.newest = move.move
        moving = self._load(held, move, before) if isinstance(move, LoadToGpu) else self._leave(held, move, before)
        self._begin(held, moving)

    def _begin(self, held: HeldHere, move: Coroutine[Any, Any, None]) -> None:
        held.move = asyncio.get_running_loop().create_task(move)

    async def _load(self, held: HeldHere, load: LoadToGpu, before: asyncio.Task[None] | None) -> None:
        await _broken_off(before)
        deployment = deployment_of(held.worker_id)
        entry = self._state().deployments.get(deployment)
        spec = entry.spec.residency if entry is not None else None
        whole_bytes = spec.weight_bytes if spec is not None else sum(load.gpu_bytes)

        def progress(bytes_done: int) -> None:
            share = min(1.0, bytes_done / whole_bytes)
            self._tell(MoveProgressed(worker_id=held.worker_id, move=load.move, share=share, at=self._now()))

        try:
            await self._node.load(replace(load, model=deployment, version=version_of(load.model)), progress)
        except Exception as error:  # whatever a node raises
            if load.source is Level.COLD:
                self._forget(held)
            self._failed(load, shown(error), wrong_weights=getattr(error, "wrong_weights", False) is True)
        else:
            held.is_leaving = False
            self._tell(MoveFinished(worker_id=held.worker_id, move=load.move, at=self._now()))

    async def _leave(
        self, held: HeldHere, move: OffloadToCpu | UnloadFromGpu | DropFromCpu, before: asyncio.Task[None] | None
    ) -> None:
        held.is_leaving = True
        await _broken_off(before)
        if not isinstance(move, DropFromCpu):
            await _drained(held, move.timeout_s)
        problem, keeps = "", isinstance(move, OffloadToCpu) or (isinstance(move, UnloadFromGpu) and move.keep_copy)
        try:
            if not keeps:
                await self._node.drop(held.worker_id)
            else:  # of a load that was broken off the copy may be where it was
                await self._node.offload(held.worker_id)
        except Exception as error:  # whatever a node raises
            problem = shown(error)
            await self._dropped(held)
        self._end_tenure(held)
        if problem or not keeps:
            self._forget(held)
        if problem:
            self._failed(move, problem)
        else:
            self._tell(MoveFinished(worker_id=held.worker_id, move=move.move, at=self._now()))

    async def _kill(self, held: HeldHere, because: str, before: asyncio.Task[None] | None) -> None:
        held.is_leaving = True
        await _broken_off(before)
        await _drained(held, 0.0)
        await self._dropped(held)
        self._forget(held)
        node_id: NodeId = held.worker.node_id
        self._tell(WorkerLost(worker_id=held.worker_id, node_id=node_id, reason=because, at=self._now()))

    async def _dropped(self, held: HeldHere) -> None:
        try:
            await self._node.drop(held.worker_id)
        except Exception:  # whatever a node raises: what it holds still, nobody can say
            LOG.exception("the weights of %s were not dropped", held.worker_id)

    def _failed(self, move: WeightsMove, reason: str, *, wrong_weights: bool = False) -> None:
        at = self._now()
        self._tell(MoveFailed(worker_id=move.replica_id, move=move.move, reason=reason, wrong_weights=wrong_weights, at=at))

    def _end_tenure(self, held: HeldHere) -> None:
        if held.worker.tenure is not None:
            self._tenures.pop(held.worker.tenure, None)
        if held.looks is not None:
            held.looks.cancel()
            held.looks = None
        held.worker = leave(held.worker)

    def _forget(self, held: HeldHere) -> None:
        held.is_leaving = True
        self._end_tenure(held)
        if self._held.get(held.worker_id) is held:
            del self._held[held.worker_id]

    # -- ranks

    def _receive(self, held: HeldHere, message: Any) -> None:
        held.worker, reactions = worker_receive(held.worker, message, self._now())
        self._react(held, reactions)

    def _react(self, held: HeldHere, reactions: tuple[Reaction, ...]) -> None:
        for each in reactions:
            match each:
                case RunUserCode():
                    task = asyncio.get_running_loop().create_task(self._run(held, each))
                    held.code.add(task)
                    task.add_done_callback(held.code.discard)
                case Drain() | End() | Refused():
                    pass  # the planner says who leaves the GPUs
                case _:
                    self._tell(each)

    async def _run(self, held: HeldHere, code: RunUserCode) -> None:
        failure: str | None = None
        command = code.command
        assert isinstance(command, ReplicaChange), f"{command} is no command of the core's"
        if self._reconfigure is not None:
            assert command.rank is not None, "a tenure has a rank"
            try:
                await self._reconfigure(held.worker_id, command.rank, command.world_size, thaw_json(command.user_config))
            except Exception as error:  # whatever a user's code raises
                failure = shown(error)
        starts = failure is None and not (held.worker.replica is not None and held.worker.replica.ready)
        problem = await self._problem(held, FIRST_CHECK_S) if starts else None
        held.worker, reactions = worker_user_code_ended(held.worker, code, self._now(), failure)
        if starts and reactions and self._check_ready is not None:
            tenure = command.replica_id
            reactions = (*self._looked(held, tenure, problem), *reactions)  # in this order it is not routed for a moment
            held.looks = asyncio.get_running_loop().create_task(self._look(held, tenure))
        self._react(held, reactions)

    # -- readiness

    async def _look(self, held: HeldHere, tenure: ReplicaId) -> None:
        """Ask now and then whether a tenure takes calls; ends with the tenure."""
        while (entry := self._state().deployments.get(deployment_of(held.worker_id))) is not None:
            spec = entry.ranks.spec
            await asyncio.sleep(spec.health_check_period_s)
            problem = await self._problem(held, spec.health_check_timeout_s)
            self._react(held, self._looked(held, tenure, problem))

    async def _problem(self, held: HeldHere, timeout_s: float) -> str | None:
        """Why it takes no calls for now; None: it does, or its model cannot say."""
        if self._check_ready is None:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._check_ready(held.worker_id)
        except TimeoutError:
            return f"check_ready has not answered for {timeout_s:g} s"
        except Exception as error:  # whatever a model raises
            return shown(error)
        return None if answer is None or answer else f"check_ready returned {answer!r}"

    def _looked(self, held: HeldHere, tenure: ReplicaId, problem: str | None) -> tuple[Reaction, ...]:
        """What is to be told of it, by whoever has this tenure still."""
        replica = held.worker.replica
        if replica is None or replica.replica_id != tenure:
            return ()
        replica, reactions = readiness_checked(replica, self._now(), problem)
        held.worker = replace(held.worker, replica=replica)
        return reactions


class RanksHere:
    """The executor of one deployment: its commands go to the workers and the router, and they tell what comes of it."""

    def __init__(
        self, deployment: DeploymentId, workers: WorkersHere, route: Callable[[DeploymentId, PublishRoutes], None]
    ) -> None:
        self._deployment, self._workers, self._route = deployment, workers, route

    def execute(self, command: Command) -> None:
        """Begin to carry out a command."""
        if isinstance(command, PublishRoutes):
            self._route(self._deployment, command)
        else:
            self._workers.command(self._deployment, command)

    def poll(self) -> None:
        """Nothing: it is told as it happens."""


def shown(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _broken_off(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])


async def _drained(held: HeldHere, timeout_s: float) -> None:
    """What it works on ends, or is cancelled when it has had its time."""
    working = {*held.calls, *held.code}
    late = (await asyncio.wait(working, timeout=timeout_s))[1] if working else ()
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)
