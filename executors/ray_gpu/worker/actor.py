"""The worker's actor: moves weights as it is told, and is a replica while they are HOT.

    take, change, check_health ...           of the tenure that the call names; it is none of its own before `take`
    load_to_gpu, leave                       moves, by number; both are repeatable and answer alike
    query                                    where the weights are, which move, how far, which tenure, which ranks

A load ends without a tenure: who is HOT then is given one by `take`, and a rank by `change`. A successor of the controller thus
finds a process whose load goes on, and gives it whatever tenure it needs one for.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from executors.ray_gpu import context, names
from executors.ray_gpu.messages import WATCH_S, Change, Endpoint, Outcome
from executors.ray_gpu.os_processes import started_at
from executors.ray_gpu.replica import FencedError, admitted_code
from executors.ray_gpu.requests.frames import replica_meant
from executors.ray_gpu.requests.packing import Arguments
from executors.ray_gpu.requests.server import CANCEL_S
from executors.ray_gpu.worker.agreed_root import AgreedRoot
from executors.ray_gpu.worker.messages import Leave, Load, MoveEnded, Progressed, WorkerReport
from executors.ray_gpu.worker.move_sequence import MoveSequence
from executors.ray_gpu.worker.places import Places
from executors.ray_gpu.worker.tenure import Tenure
from executors.ray_gpu.worker.weights import HeldWeights
from executors.torch_weights import Fate, Level, fate_of
from rankcore.replica import worker as workers
from rankcore.replica.worker import Worker

LOG = logging.getLogger(__name__)


class WorkerActor:
    """What the controller and callers on other nodes talk to. Every method answers while user code runs, unless it says not.

    Args:
        namespace: Of the controller.
        deployment: Its id.
        worker_id: Of this process, whatever replica it is.
        version: Of the code.
        epoch: Of the controller that starts it.
        weights: The path of a safetensors file, or of a folder or index of several.
        expected: The contents that it must have; None: any.
        places: The memory of this node.

    Raises:
        FencedError: That controller has been replaced.
        LookupError: The code is not in the cluster (any more).
    """

    def __init__(
        self,
        namespace: str,
        deployment: str,
        worker_id: str,
        version: str,
        epoch: int,
        weights: str,
        expected: str | None,
        places: Places,
    ) -> None:
        self._worker_id = worker_id  # first: Ray asks one that does not come up for its name too
        self._user = admitted_code(namespace, deployment, version, worker_id, epoch)
        self._namespace = namespace
        self._deployment = deployment
        self._version = version
        self._worker = Worker(worker_id, places.node_id, epoch)
        self._moves = MoveSequence(worker_id)
        self._weights = HeldWeights(weights, expected, places, AgreedRoot(namespace, deployment, version))
        self._tenure: Tenure | None = None
        self._former: Tenure | None = None  # callers by actor calls fetch their last answers of it
        self._limit: tuple[tuple[int, int], int] | None = None
        self._is_of_no_use = False
        self._is_poisoned = False
        self._newest: Load | Leave | None = None
        self._granted: Load | None = None

    def __repr__(self) -> str:
        """What Ray calls it until it is a replica: see `logs.shown_name`."""
        return self._worker_id

    # -- what the controller asks of the process

    async def watch(self) -> None:
        """Returns after a while: that this call fails is how the controller learns of this process's end."""
        await asyncio.sleep(WATCH_S)

    async def describe(self) -> WorkerReport:
        """What it is at this moment, whatever runs. For those who watch, not for the controller."""
        return self._report()

    async def query(self, epoch: int, tenure: str | None = None) -> WorkerReport | Outcome:
        """What it is; older controllers are refused from now on. Waits while a change of ranks runs, but not for a move.

        Args:
            tenure: Which the controller takes it to have: if it has another or none, it will never take that one.
        """
        if not self._admits(epoch):
            return self._refusal()
        if tenure is not None and tenure != self._worker.tenure:
            self._worker, _ = workers.deny(self._worker, tenure)
        if self._tenure is not None:
            await self._tenure.query(epoch)
        return self._report()

    async def load_to_gpu(self, load: Load) -> AsyncIterator[Progressed | MoveEnded]:
        """Become HOT. Yields how it comes on, and at last its end. To be called with `num_returns="streaming"`.

        Raises:
            FencedError: The controller has been replaced.
            ValueError: It was told of a newer move.
        """
        self._fence(load.epoch)
        task = self._moves.begin(load.move, lambda: self._load(load))
        self._newest = load
        async for word in self._moves.progress_of(task):
            yield word

    async def leave(self, leave: Leave) -> MoveEnded:
        """End the tenure, if there is one, and free memory; a load that is under way is broken off.

        Raises:
            FencedError, ValueError: As for `load_to_gpu`.
        """
        self._fence(leave.epoch)
        task = self._moves.begin(leave.move, lambda: self._leave(leave))
        self._newest = leave
        return await asyncio.shield(task)

    async def announce(self, epoch: int, revision: int, world_size: int) -> bool:
        """Learn a world size, also for the tenures to come; user code is not called."""
        if not self._admits(epoch):
            return False
        self._worker = workers.announce(self._present(), epoch, revision, world_size)
        if self._tenure is not None:
            await self._tenure.announce(epoch, revision, world_size)
        return True

    async def limit(self, by: tuple[int, int], max_ongoing_requests: int) -> None:
        """Take so many calls at once from now on, in the tenures to come too. `by`: epoch and number; the highest counts."""
        if self._limit is None or by > self._limit[0]:
            self._limit = by, max_ongoing_requests
            if self._tenure is not None:
                await self._tenure.limit(*self._limit)

    # -- what it asks of a tenure

    async def take(self, epoch: int, replica_id: str) -> Endpoint | Outcome:
        """Be this replica from now on; it takes calls once it is initialised. Repeatable.

        Returns:
            Where it takes calls; else "refused" by the epoch, "overtaken" by a younger tenure that it had or denied, or
            "failed": its weights are not HOT, or it has another tenure.
        """
        if not self._admits(epoch):
            return self._refusal()
        present = self._tenure
        if self._moves.is_moving or self._weights.level is not Level.HOT:
            return Outcome("failed", f"{self._worker.worker_id} is not HOT: its weights are {self._weights.level}, or move")
        if present is not None and present.replica_id == replica_id:
            return present.endpoint
        if present is not None and present.half.rank is not None:
            return Outcome("failed", f"{self._worker.worker_id} is {present.replica_id} still")
        actor_name = names.worker_name(self._worker.worker_id)
        tenure = Tenure(
            self._namespace, self._deployment, replica_id, self._version, epoch, user=self._user, actor_name=actor_name
        )
        taken = workers.take(self._worker, tenure.half)
        if taken.replica is None or taken.tenure != replica_id:
            return Outcome("overtaken", f"{self._worker.worker_id} had, or denied, a younger tenure than {replica_id}")
        self._worker, self._tenure, tenure.half = taken, tenure, taken.replica
        tenure.watch_errors(partial(self._raised, asyncio.get_running_loop()))
        if self._limit is not None:
            await tenure.limit(*self._limit)
        return tenure.endpoint

    async def change(self, replica_id: str, change: Change) -> Outcome:
        """Adopt ranks and user_config, and let user code know where R12 says so. Waits until that is done."""
        if not self._admits(change.epoch):
            return self._refusal()
        tenure = self._tenure_of(replica_id)
        return self._no_such(replica_id) if tenure is None else await tenure.change(change)

    async def wait_ready(self, replica_id: str) -> Outcome:
        """How the start-up of a tenure ended. Waits until it has."""
        tenure = self._tenure_of(replica_id)
        return self._no_such(replica_id) if tenure is None else await tenure.wait_ready()

    async def check_health(self) -> str | None:
        """None: all is well; else what is wrong. Waits for the user's `check_health`."""
        return None if self._tenure is None else await self._tenure.check_health()

    async def check_ready(self, timeout_s: float) -> tuple[bool, str | None]:
        """As `Replica.check_ready`."""
        return (False, None) if self._tenure is None else await self._tenure.check_ready(timeout_s)

    async def load(self) -> int:
        """How many calls are under way."""
        return 0 if self._tenure is None else await self._tenure.load()

    async def counted(self) -> dict[str, Any] | None:
        """As `Replica.counted`; None: it is no replica now."""
        return None if self._tenure is None else await self._tenure.counted()

    async def requests(self) -> list[dict[str, Any]]:
        """As `Replica.requests`."""
        return [] if self._tenure is None else await self._tenure.requests()

    async def end_request(self, key: str, call_id: int, why: str) -> bool:
        """As `Replica.end_request`."""
        return self._tenure is not None and await self._tenure.end_request(key, call_id, why)

    # -- what callers on other nodes ask, and all whose arguments or results are large; of the tenure that the key names

    async def say(self, key: str, number: int, data: bytes) -> None:
        """As `Replica.say`."""
        await self._meant(key).say(key, number, data)

    async def hear(self, key: str, heard: int) -> tuple[int, bytes]:
        """As `Replica.hear`."""
        return await self._meant(key).hear(key, heard)

    async def hang_up(self, key: str) -> None:
        """As `Replica.hang_up`."""
        await self._meant(key).hang_up(key)

    async def call_large(self, key: str, call_id: int, method: str, about: tuple[str, str, bool], arguments: Arguments) -> None:
        """As `Replica.call_large`."""
        await self._meant(key).call_large(key, call_id, method, about, arguments)

    async def fetch(self, key: str, call_id: int) -> Any:
        """As `Replica.fetch`."""
        return await self._meant(key).fetch(key, call_id)

    # -- moves

    async def _load(self, load: Load) -> tuple[int, ...]:
        if self._is_of_no_use:
            raise RuntimeError(f"{self._worker.worker_id} has dropped its weights: another process has to load them again")
        if self._tenure is not None:
            raise RuntimeError(f"{self._worker.worker_id} is {self._tenure.replica_id}, and has to leave first")
        self._granted = load
        try:
            user = await self._user.run(self._user.build())
            await self._weights.load(user, load.gpus, load.gpu_bytes, self._moves.arrived)
        finally:
            if self._weights.level is not Level.HOT:  # it is undone
                self._granted = None
        return self._weights.taken_bytes

    async def _leave(self, leave: Leave) -> tuple[int, ...]:
        tenure = self._tenure
        if tenure is not None:
            await tenure.end(leave)
        if not leave.keep_copy:
            self._is_of_no_use = True
            await self._end_user_code(leave.timeout_s)
        await self._weights.leave(self._user.instance, keep_copy=leave.keep_copy)
        self._granted = None
        if tenure is not None:
            self._worker, self._tenure, self._former = workers.leave(self._worker), None, tenure
            context.set_context(None)
        return self._weights.taken_bytes

    async def _end_user_code(self, timeout_s: float) -> None:
        """Let it clean up, as a pinned replica does at its end."""
        if self._user.instance is None:
            return
        try:
            async with asyncio.timeout(max(timeout_s, CANCEL_S)):
                await self._user.run(self._user.end())
        except Exception:
            LOG.warning("%s: user code has not ended well", self._worker.worker_id, exc_info=True)

    def _raised(self, loop: asyncio.AbstractEventLoop, error: BaseException) -> None:
        """User code has raised, on its thread. A process whose GPU can be used no more would fail all calls to come."""
        if not self._is_poisoned and fate_of(error) is Fate.POISONED:
            self._is_poisoned = True
            LOG.error("%s ends, since it can use its GPU no more: %s", self._worker.worker_id, error)
            asyncio.run_coroutine_threadsafe(self._end_poisoned(), loop)

    async def _end_poisoned(self) -> None:
        if self._tenure is not None:
            await self._tenure.part()
        os._exit(1)

    # -- who it is

    def _present(self) -> Worker:
        """With what its tenure believes by now."""
        return self._worker if self._tenure is None else replace(self._worker, replica=self._tenure.half)

    def _admits(self, epoch: int) -> bool:
        admitted = workers.admit(self._present(), epoch)
        if admitted is not None:
            self._worker = admitted
        return admitted is not None

    def _fence(self, epoch: int) -> None:
        if not self._admits(epoch):
            raise FencedError(f"{self._worker.worker_id} obeys epoch {self._worker.epoch}, and not epoch {epoch}")

    def _refusal(self) -> Outcome:
        return Outcome("refused", str(self._worker.epoch))

    def _no_such(self, replica_id: str) -> Outcome:
        return Outcome("refused", f"{self._worker.worker_id} is not {replica_id}")

    def _tenure_of(self, replica_id: str) -> Tenure | None:
        return self._tenure if self._tenure is not None and self._tenure.replica_id == replica_id else None

    def _meant(self, key: str) -> Tenure:
        meant = replica_meant(key)
        for tenure in (self._tenure, self._former):
            if tenure is not None and tenure.replica_id == meant:
                return tenure
        raise LookupError(f"{self._worker.worker_id} is not {meant}")

    def _report(self) -> WorkerReport:
        worker, moves, weights = self._worker, self._moves, self._weights
        return WorkerReport(
            worker_id=worker.worker_id,
            actor_name=names.worker_name(worker.worker_id),
            node_id=worker.node_id,
            pid=os.getpid(),
            started=started_at(os.getpid()),
            version=self._version,
            epoch=worker.epoch,
            level=weights.level,
            move=moves.newest,
            moving=moves.is_moving,
            ended=moves.ended,
            progress=moves.progress,
            gpus=weights.gpus,
            gpu_bytes=weights.gpu_bytes,
            host_bytes=weights.host_bytes,
            tenure=None if self._tenure is None else self._tenure.report(),
            protocol=names.PROTOCOL,
            newest=self._newest,
            granted=self._granted,
        )
