"""The process of one replica: it has the user's object and the weights, moves them, and answers requests while they are HOT."""

import asyncio
import inspect
import logging
import os
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from executors.ray_gpu.errors import CallCancelledError, RemoteError, as_error
from executors.ray_gpu.requests.threads import SyncThreads
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.packing import opened, unpack_model
from executors.ray_gpu.residency.ranked import Ranked
from executors.ray_gpu.residency.words import Answer, SaidOfRank, Told, cut_off, pack, pack_error, unpack
from executors.ray_gpu.worker.messages import MoveEnded, Progressed
from executors.ray_gpu.worker.move_sequence import MoveSequence, in_words
from executors.ray_gpu.worker.places import Places
from executors.ray_gpu.worker.weights import HeldWeights
from executors.torch_weights import Fate, fate_of
from rankcore.dispatching.commands import RankCommand

LOG = logging.getLogger(__name__)

CANCEL_S = 1.0
"""What was cancelled has this long to end, before its process is ended."""
REMEMBERED = 10_000
THREADS_MAX = 64


class ModelHost:
    """A Ray actor. Whatever it is told carries the epoch of its controller; what an older one says is refused."""

    def __init__(self, model: bytes, places: Places, replica_id: str, epoch: int) -> None:
        self._model: Model = unpack_model(model)
        self._replica_id = replica_id
        self._epoch = epoch
        self._user: Any = None
        self._weights = HeldWeights(self._model.weights, opened(model).expected, places)
        self._moves = MoveSequence(replica_id)
        self._accepting = False
        self._running: dict[tuple[str, int], asyncio.Task[Any]] = {}
        self._cut_off: set[tuple[str, int]] = set()
        self._begun: dict[str, None] = {}
        self._threads: SyncThreads | None = None
        self._ranked = Ranked(self._model.name, replica_id, places, lambda: self._user, self._sync_threads)
        self._idle = asyncio.Event()
        self._idle.set()

    async def stay(self) -> None:
        """Return never: whoever waits for it learns when this process ends."""
        await asyncio.Event().wait()

    def _sync_threads(self) -> SyncThreads:
        if self._threads is None:
            number = max(1, min(THREADS_MAX, self._model.max_ongoing_requests))
            self._threads = SyncThreads(asyncio.get_running_loop(), number)
        return self._threads

    # -- moves

    async def load(
        self, epoch: int, move: int, gpus: tuple[int, ...], gpu_bytes: tuple[int, ...]
    ) -> AsyncIterator[Progressed | MoveEnded]:
        """Become HOT on these GPUs, from the node's memory if the weights are there, else from disk.

        Yields how it comes on, and at last its end. Repeatable: it goes on where it is.
        """
        async for word in self._moves.progress_of(self._begin(epoch, move, lambda: self._load(gpus, gpu_bytes))):
            yield word

    async def leave(self, epoch: int, move: int, timeout_s: float, keep_copy: bool) -> MoveEnded:
        """Finish what runs, then free the GPUs; what runs longer is cancelled.

        Returns:
            Its end; failed if user code neither ends nor lets go of the weights: this process has to end then.
        """
        return await asyncio.shield(self._begin(epoch, move, lambda: self._leave(timeout_s, keep_copy)))

    async def drop(self, epoch: int, move: int) -> MoveEnded:
        """Free the copy in the node's memory."""
        return await asyncio.shield(self._begin(epoch, move, lambda: self._leave(0.0, keep_copy=False)))

    def _begin(self, epoch: int, move: int, act: Callable[[], Awaitable[None]]) -> "asyncio.Task[MoveEnded]":
        async def taken() -> tuple[int, ...]:
            await act()
            return self._weights.taken_bytes

        if epoch < self._epoch:
            raise ValueError(f"epoch {epoch} is older than what replica {self._replica_id} was told")
        task = self._moves.begin(move, taken)
        self._epoch = epoch
        return task

    async def _load(self, gpus: tuple[int, ...], gpu_bytes: tuple[int, ...]) -> None:
        self._moves.arrived(0, 0)
        if self._user is None:
            make = partial(self._model.code, *self._model.args, **self._model.kwargs)
            self._user = await asyncio.to_thread(_by_user, make)
        await self._weights.load(self._user, gpus, gpu_bytes, self._moves.arrived)
        self._accepting = True

    async def _leave(self, timeout_s: float, keep_copy: bool) -> None:
        self._accepting = False
        if not await _within(timeout_s, self._idle):
            self._cut_off.update(self._running)
            for task in self._running.values():
                task.cancel()
            if not await _within(CANCEL_S, self._idle):
                raise RuntimeError(f"{len(self._running)} requests still run {timeout_s:g} s after it was told to leave")
        await self._weights.leave(self._user, keep_copy=keep_copy)
        self._ranked.leave()

    async def tell_rank(self, epoch: int, command: RankCommand) -> SaidOfRank:
        """What it is told of its rank; answered when user code knows."""
        if epoch < self._epoch:
            return SaidOfRank()
        self._epoch = epoch
        return await self._ranked.tell(command)

    # -- requests

    async def answer(self, epoch: int, request_id: str, attempt: int, call: bytes) -> Answer:
        """Answer one request."""
        if epoch < self._epoch or not self._accepting:
            return Answer(refused=True, reason=f"replica {self._replica_id} takes no requests now")
        self._epoch = epoch
        key = (request_id, attempt)
        self._begun[request_id] = None
        if len(self._begun) > REMEMBERED:
            del self._begun[next(iter(self._begun))]
        self._running[key] = task = asyncio.get_running_loop().create_task(self._called(call))
        self._idle.clear()
        try:
            return Answer(value=pack(await task))
        except asyncio.CancelledError:
            if key in self._cut_off:
                return Answer(cut_off=True, reason=cut_off(self._replica_id))
            return Answer(error=pack_error(CallCancelledError("the request was given up"), ""), reason="cancelled")
        except BaseException as raised:
            error = as_error(raised)
            words = "".join(traceback.format_exception(raised))
            poisoned = fate_of(error) is Fate.POISONED
            return Answer(error=pack_error(error, words), reason=in_words(error), poisoned=poisoned)
        finally:
            del self._running[key]
            self._cut_off.discard(key)
            if not self._running:
                self._idle.set()

    async def _called(self, call: bytes) -> Any:
        method, args, kwargs = unpack(call)
        function = getattr(self._user, method)
        if inspect.iscoroutinefunction(function):
            try:
                return await function(*args, **kwargs)
            except (SystemExit, KeyboardInterrupt) as raised:
                raise as_error(raised) from raised
        act = partial(function, *args, **kwargs)
        running = asyncio.ensure_future(self._sync_threads().run(_by_user, act))
        while not running.done():
            # A thread cannot be cancelled: the request runs, and has its place, until it returns.
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        return running.result()

    async def told(self, epoch: int) -> Told:
        """What it was told so far. From now on controllers of older epochs are refused, so there will be no more of them."""
        self._epoch = max(epoch, self._epoch)
        return Told(frozenset(self._begun), self._moves.newest, self._ranked.seat)

    async def stop_attempt(self, request_id: str, attempt: int) -> None:
        """Cancel a request, if it still runs."""
        task = self._running.get((request_id, attempt))
        if task is not None:
            task.cancel()

    async def process_id(self) -> int:
        """Of this process."""
        return os.getpid()


def _by_user(act: Callable[[], Any]) -> Any:
    """What user code returns. What would end a loop of asyncio, or get lost on its way there, becomes an ordinary error."""
    try:
        return act()
    except BaseException as raised:
        if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
            raise
        raise RemoteError(f"user code raised {type(raised).__name__}: {raised}") from raised


async def _within(timeout_s: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)
    return event.is_set()
