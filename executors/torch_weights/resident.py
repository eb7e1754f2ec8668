"""A replica's weights: where they are, and how they get elsewhere. This is what a replica has; the rest is how it works."""

import asyncio
import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import attrs
from torch import Tensor, nn

from executors.torch_weights import moves
from executors.torch_weights.binding import BoundModule
from executors.torch_weights.device import Device, DeviceBuffer, DeviceMemory, check_bytes
from executors.torch_weights.errors import InvalidMemoryError, NotHotError, StillHeldError, WeightsChangedError
from executors.torch_weights.files import WeightsFiles, look_at
from executors.torch_weights.layout import Block, block_of, placed, split
from executors.torch_weights.progress import Listener, Progress
from executors.torch_weights.roots import Agreement, Digests
from executors.torch_weights.warm import WarmCopy, WarmStore
from rankcore.residency.levels import Level

_T = TypeVar("_T")


@attrs.frozen(kw_only=True)
class Moved:
    """What a move did.

    Attributes:
        source: Where the weights were.
        target: Where they are.
        nbytes: How much was copied; 0 where all that was needed was there.
        seconds: How long it took.
        memory_s: Of these, how long until the memory to copy to was there.
        before: What each device had free before, measured.
        after: And after.
    """

    source: Level
    target: Level
    nbytes: int
    seconds: float
    memory_s: float
    before: tuple[DeviceMemory, ...]
    after: tuple[DeviceMemory, ...]


@attrs.define
class _Held:
    """What a replica holds beside the files."""

    copy: WarmCopy | None = None
    buffers: list[DeviceBuffer] = attrs.field(factory=list)
    tensors: dict[str, Tensor] = attrs.field(factory=dict)


class ResidentWeights:
    """The weights of one replica, COLD to begin with.

    Moves of one replica are made one after the other, in a thread of its own. A move that fails or is cancelled leaves the
    weights where they were. Weights are not written: what user code changes on a device is lost when it leaves the device,
    unless `shared` is False.

    Args:
        path: A safetensors file, or a folder or an index of several.
        devices: One, or those that the tensors are split over.
        store: Warm copies of the node.
        module: Gets the tensors as its parameters whenever they are HOT, without a copy.
        placement: Index of the device of each tensor, by name; without it each device gets neighbours, of about equal bytes.
        spare_bytes: What each device must have free beside the weights, for whatever the replica computes.
        keep_warm: Keep the warm copy while the weights are HOT: they leave the device without being copied then, and the
            copy takes host memory all the time.
        shared: Replicas with the same files have one warm copy between them.
        expected: The contents that the files must have (`declared_in` of a model's version), at each load; None: any.
        agreed: On what, to the last byte, all who serve that version agree (`roots`); None: no digests are taken.

    Raises:
        WeightsChangedError: The files are not those that were declared.
        WeightsFileError: There is something wrong with the files.
        WeightsMismatchError: The module wants other tensors.
        InvalidMemoryError: A number is not what it may be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        devices: Sequence[Device],
        store: WarmStore,
        *,
        module: nn.Module | None = None,
        placement: Mapping[str, int] | None = None,
        spare_bytes: int = 0,
        keep_warm: bool = False,
        shared: bool = True,
        expected: str | None = None,
        agreed: Agreement | None = None,
    ) -> None:
        if not devices:
            raise InvalidMemoryError("the number of devices", 0, "at least 1")
        if keep_warm and not shared:
            allowed = "False where shared is: what may be written differs from the copy"
            raise InvalidMemoryError("keep_warm", True, allowed)
        if expected is not None and type(expected) is not str:
            raise InvalidMemoryError("expected", expected, "the contents that were declared, or None")
        self._expected = expected
        self._agreed = agreed
        self._root: str | None = None
        self._devices = tuple(devices)
        self._store = store
        self._placement = placement
        self._spare_bytes = check_bytes("spare_bytes", spare_bytes)
        self._keep_warm = keep_warm
        self._private = "" if shared else f"-{os.getpid()}-{id(self):x}"
        self._held = _Held()
        self._level = Level.COLD
        files = look_at(path, expected)
        self._path = Path(path)
        self._lay_out(files)
        self._module = None
        if module is not None:
            bound = BoundModule(module)
            bound.check(self._shapes())
            bound.unbind()
            self._module = bound
        self._one_at_a_time = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights")
        self._finalizer = weakref.finalize(self, _let_go, self._held, self._thread)

    def _lay_out(self, files: WeightsFiles) -> None:
        parts = len(self._devices)
        groups = split(files.tensors, parts) if self._placement is None else placed(files.tensors, parts, self._placement)
        self._files = files
        self._whole = block_of(files.tensors)
        self._blocks: list[Block] = [block_of(group) for group in groups]

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {each.name: each.shape for each in self._files.tensors}

    @property
    def level(self) -> Level:
        """Where the weights are. While they move: where they come from."""
        return self._level

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The weights on their devices, by name. Do not keep them: weights leave a device when nobody holds any.

        Raises:
            NotHotError: They are not on a device.
        """
        if self._level is not Level.HOT:
            raise NotHotError(f"the weights of {self._path} must be HOT to be used, and are {self._level}")
        return MappingProxyType(self._held.tensors)

    @property
    def device_bytes(self) -> tuple[int, ...]:
        """What they take on each device when they are HOT."""
        return tuple(block.nbytes for block in self._blocks)

    @property
    def host_bytes(self) -> int:
        """What they take in the memory of the node when they are WARM, for all replicas that share the copy."""
        return self._whole.nbytes

    async def from_cache(self, progress: Listener | None = None) -> Moved:
        """Make them HOT: from the node's memory if they are there, from disk if not.

        Args:
            progress: Is told in the event loop how many bytes are done, and of how many.

        Raises:
            OutOfDeviceMemory: No room. All is as it was.
            WeightsFileError: The files are not what they may be, or are not those that were declared. All is as it was.
            WeightsMismatchError: They are not those of the module any more. All is as it was.
            DevicePoisonedError: This process has to end.
        """
        return await self._move(self._to_hot, Level.HOT, progress)

    async def to_cache(self, progress: Listener | None = None) -> Moved:
        """Make them WARM: from the devices, which are free then, or from disk.

        Raises:
            OutOfHostMemory: No room. All is as it was.
            StillHeldError: User code keeps some of them. All is as it was.
            WeightsFileError, DevicePoisonedError: As for `from_cache`.
        """
        return await self._move(self._to_warm, Level.WARM, progress)

    async def drop(self) -> Moved:
        """Make them COLD: give up what they have in memory. The file is what is left.

        Raises:
            StillHeldError: User code keeps some of them. All is as it was.
            DevicePoisonedError: This process has to end.
        """
        return await self._move(self._to_cold, Level.COLD, None)

    async def aclose(self) -> None:
        """Drop them, and let the thread go."""
        await self.drop()
        self._thread.shutdown(wait=False)

    async def _move(self, act: Callable[[Progress], None], target: Level, listener: Listener | None) -> Moved:
        loop = asyncio.get_running_loop()

        def tell(done_bytes: int, total_bytes: int) -> None:
            if listener is not None:
                loop.call_soon_threadsafe(listener, done_bytes, total_bytes)

        progress = Progress(listener=tell)
        future = self._thread.submit(self._timed, act, target, progress)
        return await _finished(future, progress)

    def _timed(self, act: Callable[[Progress], None], target: Level, progress: Progress) -> Moved:
        with self._one_at_a_time:
            progress.check()
            source, begin = self._level, time.perf_counter()
            before = tuple(device.memory() for device in self._devices)
            if source is not target:
                act(progress)
                self._level = target
            after = tuple(device.memory() for device in self._devices)
            end = time.perf_counter()
            return Moved(
                source=source,
                target=target,
                nbytes=progress.moved_bytes,
                seconds=end - begin,
                memory_s=(progress.memory_at or begin) - begin,
                before=before,
                after=after,
            )

    def _to_hot(self, progress: Progress) -> None:
        copy = self._held.copy
        if copy is None:
            self._look_again()
            copy = self._found()
            if copy is not None:
                self._copied(copy)
        try:
            self._held.buffers = self._loaded(copy, progress)
            self._give_out()
        except BaseException:
            if copy is not self._held.copy and copy is not None:
                copy.release()
            raise
        self._held.copy = copy if self._keep_warm else None
        if copy is not None and not self._keep_warm:
            # Nobody waits for pages to be given back: after this move, and before the next one.
            copy.let_go()
            self._thread.submit(copy.unmap)

    def _loaded(self, copy: WarmCopy | None, progress: Progress) -> list[DeviceBuffer]:
        if copy is None:
            return moves.cold_to_hot(self._files, self._blocks, self._devices, progress, self._spare_bytes, self._heard())
        return moves.warm_to_hot(copy, self._whole, self._blocks, self._devices, progress, self._spare_bytes)

    def _to_warm(self, progress: Progress) -> None:
        if self._level is Level.COLD:
            self._look_again()
            made = moves.cold_to_warm(self._files, self._whole, self._store, self._key(), progress, self._heard())
            self._held.copy = self._copied(made)
            return
        kept = self._held.copy
        copy = kept or self._copied(self._saved(progress))
        try:
            self._take_back()
        except BaseException:
            if kept is None:
                copy.release()
            raise
        self._held.copy = copy

    def _saved(self, progress: Progress) -> WarmCopy:
        return moves.hot_to_warm(self._held.buffers, self._blocks, self._whole, self._store, self._key(), progress)

    def _to_cold(self, progress: Progress) -> None:
        if self._held.buffers:
            self._take_back()
        copy, self._held.copy = self._held.copy, None
        if copy is not None:
            copy.release()

    def _copied(self, copy: WarmCopy) -> WarmCopy:
        """Locked for the devices where that is possible; a copy that is not is slower and as good."""
        try:
            copy.pin(self._devices[0].pin)
        except BaseException:
            copy.release()
            raise
        return copy

    def _look_again(self) -> None:
        """The files may be others than when they were last looked at."""
        files = look_at(self._path, self._expected)
        if files.identity == self._files.identity:
            return
        before = self._files
        self._lay_out(files)
        try:
            if self._module is not None:
                self._module.check(self._shapes())
        except BaseException:
            self._lay_out(before)
            raise

    def _found(self) -> WarmCopy | None:
        if self._agreed is not None and self._agreed_root() is None:
            return None
        return self._store.find(self._key(), self._whole.nbytes)

    def _key(self) -> str:
        if self._agreed is None:
            return self._files.identity + self._private
        # What nobody has read yet is nobody else's.
        return (self._agreed_root() or f"{self._files.identity}-{os.getpid()}-{id(self):x}") + self._private

    def _agreed_root(self) -> str | None:
        if self._root is None and self._agreed is not None:
            self._root = self._agreed.root()
        return self._root

    def _heard(self) -> Callable[[Digests], None] | None:
        return self._settle if self._agreed is not None else None

    def _settle(self, digests: Digests) -> None:
        """What was read is what all agree on, or is not used."""
        assert self._agreed is not None, "nobody takes digests"
        found = digests.root(self._files.tensors, moves.CHUNK_BYTES)
        self._root = self._agreed.settle(found)
        if found != self._root:
            raise WeightsChangedError(str(self._path), f"root {self._root}", f"root {found}")

    def _give_out(self) -> None:
        """Make tensors of the blocks, and parameters of the tensors."""
        held = self._held
        try:
            for block, buffer in zip(self._blocks, held.buffers, strict=True):
                held.tensors |= block.views(buffer.data)
            if self._module is not None:
                self._module.bind(held.tensors)
        except BaseException:
            held.tensors.clear()
            if self._module is not None:
                self._module.unbind()
            buffers, held.buffers = held.buffers, []
            moves.free_all(buffers)
            raise

    def _take_back(self) -> None:
        """Free the blocks, all or none: what user code keeps is not freed by forgetting it here."""
        held = self._held
        watched = [(name, weakref.ref(each)) for name, each in self._objects()]
        # Emptied and not replaced: mappings that were given out show this one.
        held.tensors.clear()
        if self._module is not None:
            self._module.unbind()
        if any(buffer.shared for buffer in held.buffers):
            gc.collect()
        kept = next((buffer.device.name for buffer in held.buffers if buffer.shared), None)
        if kept is not None:
            names = sorted({name for name, each in watched if each() is not None})
            self._give_out()
            raise StillHeldError(kept, names)
        buffers, held.buffers = held.buffers, []
        moves.free_all(buffers)

    def _objects(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._held.tensors.items()
        if self._module is not None:
            yield from self._module.module.state_dict(keep_vars=True).items()


async def _finished(future: "Future[_T]", progress: Progress) -> _T:
    """The result of a thread. Who is cancelled meanwhile stops the thread and waits until it has undone what it did."""
    waiting = asyncio.wrap_future(future)
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
            progress.stop()
            future.cancel()
        except Exception:
            break
    if cancelled is not None:
        # Nobody else will ask what became of it.
        with contextlib.suppress(asyncio.CancelledError):
            waiting.exception()
        raise cancelled
    return waiting.result()


def _let_go(held: _Held, thread: ThreadPoolExecutor) -> None:
    """What is left when nobody has the weights any more, or the process ends."""
    held.tensors.clear()
    for buffer in held.buffers:
        with contextlib.suppress(Exception):
            buffer.free()
    if held.copy is not None:
        with contextlib.suppress(Exception):
            held.copy.release()
    thread.shutdown(wait=False)
