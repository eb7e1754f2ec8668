"""The moves: COLD to HOT, COLD to WARM, WARM to HOT, HOT to WARM. Each is made in pieces, in the thread that calls it.

A move that fails or is stopped leaves what it moved from as it was, and frees all that it took. None of them needs host memory
beyond the copy that it makes, but for a few pieces on their way (`CHUNK_BYTES` each).
"""

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from executors.torch_weights.device import Device, DeviceBuffer, Lane
from executors.torch_weights.errors import chain
from executors.torch_weights.files import OpenWeights, WeightsFiles
from executors.torch_weights.layout import Block, Piece, Run, runs, windows
from executors.torch_weights.pipeline import STAGINGS, Flight, Pipeline
from executors.torch_weights.progress import Progress
from executors.torch_weights.roots import Digests, Heard
from executors.torch_weights.warm import WarmCopy, WarmStore, Write

CHUNK_BYTES = 16 * 2**20
"""At 50 GB/s a third of a millisecond: long beside what it costs to start a copy, short beside what a person waits."""


def cold_to_hot(
    files: WeightsFiles,
    blocks: Sequence[Block],
    devices: Sequence[Device],
    progress: Progress,
    spare_bytes: int = 0,
    heard: Heard | None = None,
) -> list[DeviceBuffer]:
    """Read files to devices, a block each, without a copy in the host's memory.

    Args:
        heard: Is told the digests of what was read; None: nobody takes any.

    Raises:
        WeightsFileError, OutOfDeviceMemory, DevicePoisonedError, MoveCancelledError: Nothing was taken, or it is free again.
    """
    progress.begin(sum(block.nbytes for block in blocks))
    digests = Digests() if heard is not None else None
    with _taken(blocks, devices, spare_bytes, progress) as buffers, files.open() as reader:
        reader.will_read()
        for block, buffer in zip(blocks, buffers, strict=True):
            with buffer.device.lane() as lane:
                _stream(reader, block, buffer, lane, progress, digests)
        reader.check_unchanged()
        if heard is not None and digests is not None:
            heard(digests)
    return buffers


def _stream(
    reader: OpenWeights, block: Block, buffer: DeviceBuffer, lane: Lane, progress: Progress, digests: Digests | None
) -> None:
    with Pipeline(_stagings(block.nbytes, lane.staging)) as pipeline:
        for begin, end, pieces in windows(block, CHUNK_BYTES):
            staging = pipeline.take()
            then = partial(_upload_piece, pipeline, lane, buffer, begin, staging, end - begin, progress)
            pipeline.work(partial(_read, reader, pieces, staging, digests), then)
        pipeline.finish()


# What is done with a piece is no function within a function: the frame of one that failed keeps it, with its defaults.


def _upload_piece(
    pipeline: Pipeline, lane: Lane, buffer: DeviceBuffer, begin: int, staging: Tensor, nbytes: int, progress: Progress
) -> None:
    pipeline.copied(staging, lane.upload(buffer.data[begin : begin + nbytes], staging[:nbytes]))
    progress.advance(nbytes)


def _read_and_write(
    reader: OpenWeights,
    pieces: Sequence[Piece],
    staging: Tensor,
    digests: Digests | None,
    write: Write,
    begin: int,
    nbytes: int,
) -> None:
    _read(reader, pieces, staging, digests)
    write(begin, staging[:nbytes])


def _wait_and_write(wait: Callable[[], None], staging: Tensor, write: Write, run: Run) -> None:
    wait()
    write(run.target, staging[: run.nbytes])


def _piece_is_done(pipeline: Pipeline, staging: Tensor, nbytes: int, progress: Progress) -> None:
    pipeline.give_back(staging)
    progress.advance(nbytes)


def _stagings(nbytes: int, make: Callable[[int], Tensor]) -> list[Tensor]:
    return [make(min(CHUNK_BYTES, nbytes)) for _ in range(min(STAGINGS, -(-nbytes // CHUNK_BYTES)))]


def _read(reader: OpenWeights, pieces: Sequence[Piece], staging: Tensor, digests: Digests | None) -> None:
    """Fill a window: pieces that follow each other in a file are one read."""
    memory = staging.numpy().data
    file, offset, end, parts = -1, 0, 0, list[memoryview]()
    for piece in pieces:
        if parts and (piece.file != file or piece.offset != end):
            reader.read_into(file, offset, parts)
            parts = []
        if not parts:
            file, offset = piece.file, piece.offset
        parts.append(memory[piece.at : piece.at + piece.nbytes])
        end = piece.offset + piece.nbytes
    if parts:
        reader.read_into(file, offset, parts)
    if digests is not None:
        for piece in pieces:
            digests.add(piece.file, piece.offset, memory[piece.at : piece.at + piece.nbytes])


def cold_to_warm(
    files: WeightsFiles, whole: Block, store: WarmStore, key: str, progress: Progress, heard: Heard | None = None
) -> WarmCopy:
    """Read files to the node's memory, or take the copy that is there.

    Args:
        heard: Is told the digests of what was read, if anything was; None: nobody takes any.

    Raises:
        WeightsFileError, OutOfHostMemory, MoveCancelledError: Nothing was taken, or it is free again.
    """
    progress.begin(whole.nbytes)

    def fill(write: Write) -> None:
        progress.again()
        digests = Digests() if heard is not None else None
        with files.open() as reader, Pipeline(_stagings(whole.nbytes, _plain)) as pipeline:
            reader.will_read()
            for begin, end, pieces in windows(whole, CHUNK_BYTES):
                staging = pipeline.take()
                through = partial(_read_and_write, reader, pieces, staging, digests, write, begin, end - begin)
                pipeline.work(through, partial(_piece_is_done, pipeline, staging, end - begin, progress))
            pipeline.finish()
            reader.check_unchanged()
        if heard is not None and digests is not None:
            heard(digests)

    with _forgetting():
        copy = store.acquire(key, whole.nbytes, fill, progress)
    progress.end()
    return copy


def warm_to_hot(
    copy: WarmCopy, whole: Block, blocks: Sequence[Block], devices: Sequence[Device], progress: Progress, spare_bytes: int = 0
) -> list[DeviceBuffer]:
    """Copy a warm copy to devices, a block each, all devices at once.

    Raises:
        OutOfDeviceMemory, DevicePoisonedError, MoveCancelledError: Nothing was taken, or it is free again.
    """
    plans = [[*_chunks(runs(whole, block))] for block in blocks]
    progress.begin(sum(run.nbytes for plan in plans for run in plan))
    with _taken(blocks, devices, spare_bytes, progress) as buffers, contextlib.ExitStack() as lanes:
        flights = [Flight(lanes.enter_context(buffer.device.lane()), progress) for buffer in buffers]
        for which, run in _in_turns(plans):
            _upload(flights[which], buffers[which], copy, run)
        for flight in flights:
            flight.land()
    return buffers


def _upload(flight: Flight, buffer: DeviceBuffer, copy: WarmCopy, run: Run) -> None:
    target = buffer.data[run.target : run.target + run.nbytes]
    source = copy.data[run.source : run.source + run.nbytes]
    flight.add(flight.lane.upload(target, source), run.nbytes)


def hot_to_warm(
    buffers: Sequence[DeviceBuffer], blocks: Sequence[Block], whole: Block, store: WarmStore, key: str, progress: Progress
) -> WarmCopy:
    """Copy what is on devices to the node's memory, or take the copy that is there. What is on the devices stays there.

    Raises:
        OutOfHostMemory, DevicePoisonedError, MoveCancelledError: Nothing was taken, or it is free again.
    """
    plans = [runs(block, _part_of(whole, block)) for block in blocks]
    progress.begin(sum(run.nbytes for plan in plans for run in plan))

    def fill(write: Write) -> None:
        progress.again()
        for buffer, plan in zip(buffers, plans, strict=True):
            with buffer.device.lane() as lane:
                _drain(buffer, plan, lane, write, progress)

    with _forgetting():
        copy = store.acquire(key, whole.nbytes, fill, progress)
    progress.end()
    return copy


def _part_of(whole: Block, block: Block) -> Block:
    """What of the whole is also in a block, at its place in the whole."""
    names = {each.name for each in block.tensors}
    kept = [(each, at) for each, at in zip(whole.tensors, whole.offsets, strict=True) if each.name in names]
    return Block(tensors=tuple(each for each, _ in kept), offsets=tuple(at for _, at in kept), nbytes=whole.nbytes)


def _drain(buffer: DeviceBuffer, parts: Sequence[Run], lane: Lane, write: Write, progress: Progress) -> None:
    with Pipeline(_stagings(buffer.nbytes, lane.staging)) as pipeline:
        for run in _chunks(parts):
            staging = pipeline.take()
            wait = lane.download(staging[: run.nbytes], buffer.data[run.source : run.source + run.nbytes])
            done = partial(_piece_is_done, pipeline, staging, run.nbytes, progress)
            pipeline.work(partial(_wait_and_write, wait, staging, write, run), done)
        pipeline.finish()


def _plain(nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8)


@contextlib.contextmanager
def _taken(
    blocks: Sequence[Block], devices: Sequence[Device], spare_bytes: int, progress: Progress
) -> Iterator[list[DeviceBuffer]]:
    """Memory for blocks, all or none; free again if what is done with it fails."""
    buffers: list[DeviceBuffer] = []
    try:
        for block, device in zip(blocks, devices, strict=True):
            buffers.append(device.allocate(block.nbytes, spare_bytes))
        progress.memory_taken()
        yield buffers
    except BaseException as error:
        # Variables of the functions that failed are parts of these blocks, which could not be freed while they are kept.
        _forget(error)
        free_all(buffers, error)
        raise


@contextlib.contextmanager
def _forgetting() -> Iterator[None]:
    """What fails keeps no memory: that of its pieces, and of the copy that was begun, is free when its error arrives."""
    try:
        yield
    except BaseException as error:
        _forget(error)
        raise


def _forget(error: BaseException) -> None:
    """Variables of the functions that failed, which an error keeps for as long as anybody keeps the error."""
    for each in chain(error):
        traceback.clear_frames(each.__traceback__)


def free_all(buffers: Iterable[DeviceBuffer], error: BaseException | None = None) -> None:
    """Free blocks, also when one cannot be: a poisoned device frees nothing, and what it showed first is what counts."""
    first: Exception | None = None
    for buffer in buffers:
        try:
            buffer.free()
        except Exception as failed:
            first = first or failed
    if first is not None and error is None:
        raise first
    if first is not None and error is not None:
        error.add_note(f"and its memory could not be freed: {first}")


def _chunks(parts: Iterable[Run]) -> Iterator[Run]:
    for run in parts:
        for begin in range(0, run.nbytes, CHUNK_BYTES):
            yield Run(run.source + begin, run.target + begin, min(CHUNK_BYTES, run.nbytes - begin))


def _in_turns(plans: Sequence[Sequence[Run]]) -> Iterator[tuple[int, Run]]:
    for turn in range(max(map(len, plans), default=0)):
        for which, plan in enumerate(plans):
            if turn < len(plan):
                yield which, plan[turn]
