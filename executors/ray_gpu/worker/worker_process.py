"""One worker's actor as the controller sees it: started or found, moved, asked, watched, ended; each answer becomes an event.

Its end is told once, when the process is gone, in one of two ways. A move after which weights are on disk alone ends it, and so
does one that has failed and left memory that nobody can vouch for: then that move's answer is what is told. Otherwise it is
`WorkerLost`. Why both are told late:

1. A process is gone some milliseconds after Ray has called it dead, or is stuck; its memory is free only then (`Reaper`).
2. **Race:** a move is answered, and the machine loads that worker again, in another process of the same name; the end of the
   old one, told then, would be taken for the new one's. So nothing is told of a process between the two.
3. **Race:** a load is broken off by a leave, and both are answered. Only the newest move counts: the answer to the one before
   would end a process that is about to leave by itself.
4. **Race:** a process that a move ends is killed at the same time. `WorkerLost` answers the kill, and the move is not answered.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

import attrs
import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from executors.ray_gpu.conversation import RETRY_S, end_of, plain, short
from executors.ray_gpu.messages import Outcome
from executors.ray_gpu.reaping import Reaper, locate
from executors.ray_gpu.worker.given_tenure import GivenTenure
from executors.ray_gpu.worker.messages import Leave, Load, MoveEnded, Progressed, WorkerReport
from executors.ray_gpu.worker.reports import held_by
from executors.ray_gpu.world import World
from rankcore.cluster.commands import KillWorker
from rankcore.cluster.events import MoveFailed, MoveFinished, MoveProgressed, WorkerLost, WorkerReported
from rankcore.cluster.residency import WorkerId
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)

SILENT_S = 30.0
"""A worker that does not answer for so long, when a move should have ended, is ended."""
KILLED = "ray.kill"


@attrs.frozen
class EndedByMove:
    """Why a process ends with its newest move; None: that has done what it should."""

    failed_because: str | None
    wrong_weights: bool = False


class WorkerListener(Protocol):
    """Who hears of a worker."""

    def tell(self, event: MoveProgressed | MoveFinished | MoveFailed | WorkerLost | WorkerReported) -> None:
        """Something has happened."""

    def found_tenure(self, process: "WorkerProcess") -> None:
        """It says that it is a replica, and has a rank."""

    async def tell_losses(self, node_id: NodeId) -> None:
        """A worker there has ended unasked: what has gone with it is told first."""

    def has_ended(self, process: "WorkerProcess") -> None:
        """It is gone."""


class WorkerProcess:
    """One process.

    Attributes:
        worker_id: Whose.
        node_id: Where it is.
        tenure: The replica that it is, or was to be; None: none, or it is found only.
        tenure_found: The replica that it has said that it is.
        actor: What Ray has of it; not done before it has begun.
        gone: Set when its end has been told.
    """

    def __init__(self, world: World, reaper: Reaper, worker_id: WorkerId, node_id: NodeId, listener: WorkerListener) -> None:
        self.worker_id = worker_id
        self.node_id = node_id
        self.tenure: GivenTenure | None = None
        self.tenure_found: ReplicaId | None = None
        self.actor: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self._world = world
        self._reaper = reaper
        self._listener = listener
        self._move = 0  # the newest
        self._is_answered = False
        self._ends: EndedByMove | None = None
        self._lost_because: str | None = None
        self._is_replaced = False
        self._place: tuple[NodeId, int, int | None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- beginnings

    def start(self, make: Callable[[], Any], after: "WorkerProcess | None" = None) -> None:
        """Begin to start it, once an earlier process that has its name is gone."""
        self._spawn(self._start(make, after))

    def find(self, actor: Any) -> None:
        """It was started by an earlier controller."""
        self._meet(actor)

    # -- what the machine asks; nothing here waits

    def load(self, move: Load, *, from_disk: bool) -> None:
        """Have it HOT; `MoveFinished`, or `MoveFailed`, or `WorkerLost`."""
        self._move, self._is_answered = move.move, False
        self._spawn(self._load(move, from_disk))

    def leave(self, move: Leave) -> None:
        """Have its memory freed, some or all of it; likewise."""
        self._move, self._is_answered = move.move, False
        self._spawn(self._leave(move))

    def query(self, epoch: int) -> None:
        """Ask what it holds; `WorkerReported`, or `WorkerLost` if that is nothing."""
        self._spawn(self._query(epoch))

    async def describe(self) -> WorkerReport | None:
        """What it is at this moment; None: it does not say so soon, or is gone."""
        with suppress(RayError, TimeoutError):
            report: WorkerReport = await asyncio.wait_for((await asyncio.shield(self.actor)).describe.remote(), SILENT_S)
            return report
        return None

    def kill(self, because: str) -> None:
        """End it at once; `WorkerLost`."""
        self._lost_because = because
        self._spawn(self._kill())

    def kill_for(self, command: KillWorker) -> None:
        """The same, if it is for the move that it is about."""
        if command.concerns(self._move, self._is_answered):
            self.kill(command.because or "it was told to end")

    def replace(self) -> None:
        """End it, and tell nothing: its end is known, or of no interest, since another process takes its name."""
        self._is_replaced = True
        self.kill("another one takes its name")

    # -- the actor

    async def _start(self, make: Callable[[], Any], after: "WorkerProcess | None") -> None:
        if after is not None:
            await after.gone.wait()
        try:
            actor = await self._world.call(make)
        except Exception as error:
            self.actor.cancel()
            self._finish(f"Ray refused the actor: {plain(error)}")
        else:
            self._meet(actor)

    def _meet(self, actor: Any) -> None:
        self.actor.set_result(actor)
        self._spawn(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        error = await end_of(actor, self.worker_id)
        is_asked = self._lost_because is not None or self._ends is not None
        if self._place is not None and (is_asked or KILLED in str(error)):
            await self._reaper.gone(*self._place)  # 1
        if not is_asked:
            await self._listener.tell_losses(self.node_id)
        self._finish(plain(error) if getattr(error, "_actor_init_failed", False) else short(error))

    def _finish(self, because: str) -> None:
        if self.gone.is_set():
            return
        self.gone.set()
        current = asyncio.current_task()
        for task in tuple(self._tasks):
            if task is not current:
                task.cancel()
        self._end_tenure()
        self._listener.has_ended(self)
        if self._is_replaced:
            return
        if self._ends is not None and self._lost_because is None:  # 4
            self._answer(self._move, self._ends.failed_because, self._ends.wrong_weights)
        else:
            because = self._lost_because or because
            self._listener.tell(
                WorkerLost(worker_id=self.worker_id, node_id=self.node_id, reason=because, at=self._world.now())
            )

    def _end_tenure(self) -> None:
        self.tenure_found = None
        if self.tenure is not None:
            self.tenure.end()
            self.tenure = None

    async def _kill(self) -> None:
        actor = await self.actor
        if self._place is None and (place := await self._world.call(locate, actor)) is not None:
            self._place = (*place, None)
        await self._world.call(ray.kill, actor)

    # -- moves

    async def _load(self, move: Load, from_disk: bool) -> None:
        actor = await self.actor
        while True:
            words = actor.load_to_gpu.options(num_returns="streaming").remote(move)
            try:
                async for word in words:
                    self._hear(move, await word, from_disk)
                return
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)  # it goes on there: the same is asked again
            except RayActorError:
                return  # its end is told by who watches
            except RayError as error:
                return self._answer(move.move, short(error))

    def _hear(self, move: Load, word: Progressed | MoveEnded, from_disk: bool) -> None:
        if move.move != self._move:
            return  # 3
        if isinstance(word, Progressed):
            share = min(1.0, word.bytes_done / word.bytes_total) if word.bytes_total else 0.0
            self._listener.tell(MoveProgressed(worker_id=self.worker_id, move=move.move, share=share, at=self._world.now()))
        elif word.poisoned:
            self.kill(word.failed_because or "it can use its GPU no more")
        elif word.failed_because is not None and from_disk:
            self._end_with_move(word)
        else:
            self._answer(move.move, word.failed_because, word.wrong_weights)

    async def _leave(self, move: Leave) -> None:
        actor = await self.actor
        ended = await self._answered(actor, move)
        if move.move != self._move:
            return  # 3
        if not ended.busy and (ended.failed_because is not None or not move.keep_copy):
            self._end_with_move(ended)
        else:
            if not ended.busy:
                self._end_tenure()
            self._answer(move.move, ended.failed_because)

    async def _answered(self, actor: Any, move: Leave) -> MoveEnded:
        """How a worker leaves, however long that takes, as long as its process answers at all."""
        while True:
            leaving = asyncio.ensure_future(actor.leave.remote(move))
            try:
                while not leaving.done():
                    await asyncio.wait({leaving}, timeout=move.timeout_s + SILENT_S)
                    if not leaving.done():
                        await asyncio.wait_for(actor.describe.remote(), SILENT_S)
                ended: MoveEnded = leaving.result()
                return ended
            except TimeoutError:
                return MoveEnded(move.move, f"its process has not answered for {SILENT_S:g} s")
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)
            except RayActorError:
                raise
            except RayError as error:
                return MoveEnded(move.move, short(error), busy=True)

    def _end_with_move(self, ended: MoveEnded) -> None:
        self._ends = EndedByMove(ended.failed_because, ended.wrong_weights)
        self._spawn(self._kill())

    def _answer(self, move: int, failed_because: str | None, wrong_weights: bool = False) -> None:
        at, self._is_answered = self._world.now(), move == self._move
        if failed_because is None:
            self._listener.tell(MoveFinished(worker_id=self.worker_id, move=move, at=at))
        else:
            self._listener.tell(
                MoveFailed(worker_id=self.worker_id, move=move, reason=failed_because, wrong_weights=wrong_weights, at=at)
            )

    # -- reports

    async def _query(self, epoch: int) -> None:
        actor = await self.actor
        report: WorkerReport | Outcome
        while True:
            try:
                report = await actor.query.remote(epoch)
                break
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)
        if isinstance(report, Outcome):
            return  # a newer controller has been here
        self._place = report.node_id, report.pid, report.started
        held = held_by(report)
        if held is None:
            return self.kill("it holds nothing that is of use")
        tenure = report.tenure.endpoint.replica_id if report.tenure is not None and report.tenure.ranks is not None else None
        if tenure is not None and self.tenure is None:
            self.tenure_found = tenure
            self._listener.found_tenure(self)
        if report.moving and report.newest is not None and report.move > self._move:
            self._follow(attrs.evolve(report.newest, epoch=epoch), from_disk=held.cpu_bytes == 0)
        self._listener.tell(
            WorkerReported(
                worker_id=self.worker_id,
                node_id=report.node_id,
                phase=held.phase,
                gpus=held.gpus,
                gpu_bytes=held.gpu_bytes,
                cpu_bytes=held.cpu_bytes,
                move=report.move,
                tenure=tenure,
                epoch=epoch,
                at=self._world.now(),
            )
        )

    def _follow(self, move: Load | Leave, *, from_disk: bool) -> None:
        """A move that an earlier controller began is answered to this one."""
        if isinstance(move, Load):
            self.load(move, from_disk=from_disk)
        else:
            self.leave(move)

    # -- tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._quiet(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # which may never have begun

    async def _quiet(self, work: Coroutine[Any, Any, None]) -> None:
        """A conversation that breaks off because the process is gone is no news: its end is told by who watches."""
        try:
            await work
        except RayActorError:
            pass
        except Exception:
            LOG.exception("a conversation with %s broke off", self.worker_id)
