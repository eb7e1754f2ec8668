"""Moves of one process's weights: one after the other, each under its number, and each broken off by the next."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from executors.ray_gpu.worker.messages import MoveEnded, Progressed
from executors.torch_weights import Fate, WeightsChangedError, fate_of

LOG = logging.getLogger(__name__)


class BusyError(Exception):
    """A move that is made only where no call is under way is not made."""


NOTHING = Progressed(0)


class MoveSequence:
    """What a process was told to do with its weights.

    A controller repeats what it has no answer to: the same number is the same move, which is carried out once and has one
    answer. An older number is of a controller that has been replaced, or comes late, and is refused.

    Args:
        name: Of the process, for messages.

    Attributes:
        newest: The number of the newest move; 0: none.
        progress: Of the newest load.
    """

    def __init__(self, name: str) -> None:
        self.newest = 0
        self.progress = NOTHING
        self._name = name
        self._task: asyncio.Task[MoveEnded] | None = None
        self._news = asyncio.Event()

    @property
    def is_moving(self) -> bool:
        """Whether a move is under way."""
        return self._task is not None and not self._task.done()

    @property
    def ended(self) -> MoveEnded | None:
        """How the newest move ended; None: it has not, or there was none."""
        return self._task.result() if self._task is not None and self._task.done() else None

    def begin(self, move: int, act: Callable[[], Awaitable[tuple[int, ...]]]) -> "asyncio.Task[MoveEnded]":
        """Begin a move, unless that very one was begun before; returns what it comes to.

        Args:
            act: Carries it out, and returns what is taken on each GPU then.

        Raises:
            ValueError: It is older than what came before.
        """
        if move < self.newest:
            raise ValueError(f"move {move} is older than the newest that {self._name} was told, which is {self.newest}")
        if self._task is None or self.newest != move:
            before, self.newest, self.progress = self._task, move, NOTHING
            self._task = asyncio.get_running_loop().create_task(self._carried_out(move, before, act))
        return self._task

    async def progress_of(self, task: "asyncio.Task[MoveEnded]") -> AsyncIterator[Progressed | MoveEnded]:
        """How a load comes on, and at last its end. What comes while the last word is on its way is the next one."""
        said = NOTHING
        while not task.done():
            if self.progress != said:
                said = self.progress
                yield said
                continue
            self._news.clear()
            waiting = asyncio.ensure_future(self._news.wait())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        yield await asyncio.shield(task)

    def arrived(self, bytes_done: int, bytes_total: int) -> None:
        """So much of a load is done."""
        self.progress = Progressed(bytes_done, bytes_total)
        self._news.set()

    async def _carried_out(
        self, move: int, before: "asyncio.Task[MoveEnded] | None", act: Callable[[], Awaitable[tuple[int, ...]]]
    ) -> MoveEnded:
        if before is not None and not before.done():
            before.cancel()
            await asyncio.wait({before})
        try:
            return MoveEnded(move, gpu_bytes=await act())
        except asyncio.CancelledError:
            return MoveEnded(move, "it was broken off")
        except BusyError as error:
            return MoveEnded(move, str(error), busy=True)
        except Exception as error:
            LOG.warning("%s: move %d failed", self._name, move, exc_info=True)
            poisoned, wrong = fate_of(error) is Fate.POISONED, isinstance(error, WeightsChangedError)
            return MoveEnded(move, in_words(error), poisoned=poisoned, wrong_weights=wrong)


def in_words(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
