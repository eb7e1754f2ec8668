"""`python -m bench.weights [--quick]`: how fast weights move, beside plain copies of the same bytes; see bench/README.md."""

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import attrs
import torch
from safetensors.torch import save_file

from bench.measure import print_table, save
from executors.torch_weights import Agreement, Cuda, Device, LocalAgreement, Moved, ResidentWeights, StandIn, WarmStore
from executors.torch_weights.files import OpenWeights

BYTES, QUICK_BYTES = 2**30, 2**28
REPEATS, QUICK_REPEATS = 9, 3
SHARED_MEMORY = Path("/dev/shm")
WANTED_RATIO = 0.8
SAMPLE_S = 0.002
WRITTEN_AT_ONCE = 16 * 2**20

HERE, NEW, TAKE = "copy to memory that is there", "copy to new memory", "take device memory, and no more"
SHARED = "write to new shared memory"
WARM_HOT, HOT_WARM, COLD_WARM = "WARM -> HOT", "HOT -> WARM", "COLD -> WARM"
CACHED, EVICTED = "COLD -> HOT, file cached", "COLD -> HOT, file evicted"
ONCE = ", once there is memory"
DIGESTS = ", all bytes digested"
DISK_BYTES_PER_S = 10**9
DISK = "COLD -> HOT, disk of 1 GB/s"
MOVES = (
    CACHED,
    CACHED + DIGESTS,
    DISK,
    DISK + DIGESTS,
    CACHED + ONCE,
    EVICTED,
    EVICTED + ONCE,
    HOT_WARM,
    WARM_HOT,
    WARM_HOT + ONCE,
    COLD_WARM,
)


@attrs.define
class Took:
    """One repeat of one row."""

    wall_s: float
    processor_s: float


@attrs.define
class Bench:
    """What is measured, and what it is measured with."""

    path: Path
    nbytes: int
    device: Device
    store: WarmStore
    folder: Path
    source: torch.Tensor
    target: torch.Tensor
    found: dict[str, list[Took]] = attrs.field(factory=dict)

    @property
    def plain(self) -> memoryview:
        """The source, for calls of the system."""
        return self.source.numpy().data

    @contextlib.contextmanager
    def timed(self, row: str) -> Iterator[None]:
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self._wait()
        took = Took(time.perf_counter() - wall, time.process_time() - processor)
        self.found.setdefault(row, []).append(took)

    def _wait(self) -> None:
        if self.device.torch_device.type == "cuda":
            torch.cuda.synchronize()

    def copies(self) -> None:
        """What the machine can do: the same bytes in one call."""
        with self.timed(HERE):
            self.target.copy_(self.source, non_blocking=True)
        with self.timed(NEW):
            new = torch.empty(self.nbytes, dtype=torch.uint8, device=self.device.torch_device)
            new.copy_(self.source, non_blocking=True)
        del new
        with self.timed(TAKE):
            buffer = self.device.allocate(self.nbytes)
        buffer.free()
        shared = os.open(self.folder, os.O_TMPFILE | os.O_RDWR)
        with self.timed(SHARED):
            for begin in range(0, self.nbytes, WRITTEN_AT_ONCE):
                os.pwrite(shared, self.plain[begin : begin + WRITTEN_AT_ONCE], begin)
        os.close(shared)

    async def moves(self) -> None:
        """Each move once, of a replica of its own."""
        weights = ResidentWeights(self.path, [self.device], self.store)
        in_memory(self.path)
        await self._move(CACHED, weights.from_cache)
        await self._move(HOT_WARM, weights.to_cache)
        await self._move(WARM_HOT, weights.from_cache)
        await weights.drop()
        await self._move(COLD_WARM, weights.to_cache)
        await weights.drop()
        evict(self.path)
        await self._move(EVICTED, weights.from_cache)
        await weights.aclose()
        await self._digested()

    async def _digested(self) -> None:
        """What it costs that all who serve a version agree on every byte."""
        for disk, source in ((CACHED, contextlib.nullcontext()), (DISK, paced(DISK_BYTES_PER_S))):
            in_memory(self.path)
            with source:
                if disk is DISK:
                    await self._load(disk, None)
                await self._load(disk + DIGESTS, LocalAgreement())

    async def _load(self, row: str, agreed: Agreement | None) -> None:
        weights = ResidentWeights(self.path, [self.device], self.store, agreed=agreed)
        await self._move(row, weights.from_cache)
        await weights.aclose()

    async def _move(self, row: str, move: Callable[[], Awaitable[Moved]]) -> None:
        with self.timed(row):
            moved = await move()
        if row + ONCE in MOVES:
            took = self.found[row][-1]
            part = (moved.seconds - moved.memory_s) / moved.seconds
            self.found.setdefault(row + ONCE, []).append(Took(took.wall_s * part, took.processor_s * part))


@contextlib.contextmanager
def paced(bytes_per_s: int) -> Iterator[None]:
    """Files come as from a disk that is this fast, however many threads read: whoever reads waits until its bytes are due."""
    read_into, due_at, one_at_a_time = OpenWeights.read_into, [0.0], threading.Lock()

    def read_in_its_time(reader: OpenWeights, file: int, offset: int, parts: list[memoryview]) -> None:
        nbytes = sum(part.nbytes for part in parts)
        with one_at_a_time:
            due_at[0] = max(due_at[0], time.perf_counter()) + nbytes / bytes_per_s
            wait_s = due_at[0] - time.perf_counter()
        read_into(reader, file, offset, parts)
        time.sleep(max(0.0, wait_s))

    OpenWeights.read_into = read_in_its_time  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        OpenWeights.read_into = read_into  # type: ignore[method-assign]


def make_file(path: Path, nbytes: int) -> int:
    """Tensors as a language model has them: a few large ones, many of a few KB; bf16."""
    width = 2048 if nbytes >= 2**28 else 512
    wide = (width, 4 * width)
    layer = {"norm": (width,), "bias": (width,), "attention": wide, "up": wide, "down": (4 * width, width)}
    each = 2 * sum(torch.Size(shape).numel() for shape in layer.values())
    content = {
        f"layers.{index}.{name}": torch.full(shape, index % 7 + 0.5, dtype=torch.bfloat16)
        for index in range(max(1, nbytes // each))
        for name, shape in layer.items()
    }
    save_file(content, path)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return sum(tensor.nbytes for tensor in content.values())


def evict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def in_memory(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(2**22):
            pass


def host_bytes(bench: Bench) -> int:
    """Memory of the machine that is neither a device's nor the page cache's: what the process has, and warm copies."""
    status = Path("/proc/self/status").read_text()
    anonymous = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))
    warm = 0
    for entry in os.scandir(bench.folder / "warm"):
        with contextlib.suppress(FileNotFoundError):
            warm += entry.stat().st_blocks * 512
    if isinstance(bench.device, StandIn):
        memory = bench.device.memory()
        warm -= memory.total_bytes - memory.free_bytes
    return anonymous + warm


@contextlib.contextmanager
def peak(bench: Bench, row: str, extra: dict[str, int]) -> Iterator[None]:
    """How far memory rises above what there was before or is after, whichever is more: beyond the one copy that is made."""
    seen = [before := host_bytes(bench)]
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_S):
            seen.append(host_bytes(bench))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        ended.set()
        sampler.join()
    extra[row] = max(seen) - max(before, host_bytes(bench))


async def peaks(bench: Bench) -> dict[str, int]:
    extra: dict[str, int] = {}
    weights = ResidentWeights(bench.path, [bench.device], bench.store)
    for row, move in ((CACHED, weights.from_cache), (HOT_WARM, weights.to_cache), (WARM_HOT, weights.from_cache)):
        with peak(bench, row, extra):
            await move()
    await weights.drop()
    with peak(bench, COLD_WARM, extra):
        await weights.to_cache()
    await weights.aclose()
    return extra


@contextlib.contextmanager
def prepared(nbytes: int, folder: Path) -> Iterator[Bench]:
    shared = SHARED_MEMORY if SHARED_MEMORY.is_dir() else folder
    with tempfile.TemporaryDirectory(dir=shared, prefix="rankcore-bench-") as memory:
        path = folder / "model.safetensors"
        nbytes = make_file(path, nbytes)
        on_gpu = torch.cuda.is_available()
        device: Device = Cuda(0) if on_gpu else StandIn(4 * nbytes, Path(memory))
        source = torch.ones(nbytes, dtype=torch.uint8, pin_memory=on_gpu)
        target = torch.ones(nbytes, dtype=torch.uint8, device=device.torch_device)
        yield Bench(path, nbytes, device, WarmStore(Path(memory)), Path(memory), source, target)


def run(quick: bool, nbytes: int | None = None, repeats: int | None = None) -> None:
    """Measure, print and save."""
    nbytes = nbytes or (QUICK_BYTES if quick else BYTES)
    repeats = repeats or (QUICK_REPEATS if quick else REPEATS)
    # A team of threads waits for every one of its processors: on a busy machine that is measured, and not the memory.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="rankcore-bench-") as folder, prepared(nbytes, Path(folder)) as bench:
        # First: what an earlier round has left to the allocator would be there before and after.
        extra = asyncio.run(peaks(bench))
        for turn in range(repeats + 1):
            bench.copies()
            asyncio.run(bench.moves())
            if turn == 0:
                # Code is imported and memory of the machine is touched for the first time.
                bench.found.clear()
        report(bench, extra)


def report(bench: Bench, extra: dict[str, int]) -> None:
    where = torch.cuda.get_device_name() if bench.device.torch_device.type == "cuda" else "a stand-in in host memory"
    print(f"{bench.nbytes / 1e9:.2f} GB of weights, on {where}; the ratio is to a copy in the same round")
    rows = []
    for row in (HERE, NEW, TAKE, SHARED, *MOVES):
        each = [bench.nbytes / took.wall_s / 1e9 for took in bench.found[row]]
        median = statistics.median(each)
        cells = [f"{median:.2f} GB/s", f"±{(max(each) - min(each)) / 2 / median:.0%}"]
        for copy in (HERE, NEW):
            cells += [f"{ratio(bench, row, copy, 'wall_s'):.0%}", f"{ratio(bench, row, copy, 'processor_s'):.0%}"]
        rows.append([row, *cells, f"{extra[row] / 2**20:.0f} MiB" if row in extra else "-"])
    print_table(["", "median", "", "of HERE", "(cpu)", "of NEW", "(cpu)", "beyond one copy"], rows)
    print(f"HERE: {HERE}; NEW: {NEW}; (cpu): by time of the processor instead of the clock")
    for disk in (CACHED, DISK):
        pairs = zip(bench.found[disk + DIGESTS], bench.found[disk], strict=True)
        more = statistics.median(digested.wall_s / plain.wall_s - 1.0 for digested, plain in pairs)
        print(f"{disk}: {more:+.0%} time for digests (wanted: 10 % at most)")
    print(f"wanted: WARM -> HOT at {WANTED_RATIO:.0%} of a copy; load of the machine: {os.getloadavg()[0]:.1f}")
    content = {
        "nbytes": bench.nbytes,
        "device": where,
        "rows": {row: [attrs.asdict(took) for took in each] for row, each in bench.found.items()},
        "beyond_one_copy_bytes": extra,
        "load": os.getloadavg()[0],
    }
    print(f"saved: {save('weights', content)}")


def ratio(bench: Bench, row: str, copy: str, clock: str) -> float:
    """Median over rounds of how fast a row was beside a copy in the same round."""
    pairs = zip(bench.found[row], bench.found[copy], strict=True)
    return statistics.median(getattr(plain, clock) / max(getattr(took, clock), 1e-9) for took, plain in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.weights", description="How fast weights move; see bench/README.md.")
    parser.add_argument("--quick", action="store_true", help="less and fewer, in less than a minute")
    parser.add_argument("--bytes", type=int, help="size of the model")
    parser.add_argument("--repeats", type=int, help="rounds that are measured")
    chosen = parser.parse_args()
    run(chosen.quick, chosen.bytes, chosen.repeats)


if __name__ == "__main__":
    main()
