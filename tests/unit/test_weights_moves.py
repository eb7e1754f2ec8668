"""Weights are the same wherever they have been; what fails or is given up leaves them where they were and takes nothing."""

import asyncio
import contextlib
import errno
import gc
import os
import threading
import time
import weakref

import numpy
import pytest
import torch

from executors.torch_weights import (
    DevicePoisonedError,
    InvalidMemoryError,
    Level,
    NotHotError,
    OutOfDeviceMemory,
    OutOfHostMemory,
    StandIn,
    StillHeldError,
    WarmStore,
    WeightsChangedError,
    WeightsError,
    WeightsFileError,
    declared_in,
    look_at,
    moves,
    warm,
)
from executors.torch_weights.files import DTYPES, OpenWeights
from executors.torch_weights.layout import ALIGNMENT
from executors.torch_weights.pipeline import STAGINGS
from executors.torch_weights.progress import Progress
from tests.weights_worlds import WatchedDevice, node, same, saved, tensors

EVERYTHING = {
    **{f"of {name}": torch.arange(1, 40).to(dtype).reshape(13, 3) for name, dtype in DTYPES.items() if name != "F8_E8M0"},
    "scales": torch.full((5,), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu),
    "scalar": torch.tensor(3.25, dtype=torch.bfloat16),
    "empty": torch.empty(0, 7),
    "empty too": torch.empty(3, 0, 2, dtype=torch.int8),
    "large": torch.arange(20_000, dtype=torch.int32),
}
SIZE = 2 * 5120 + 2 * 5376
"""Of `tensors()` on a device: four, of 97 to 100 rows of 13 floats, and aligned."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(moves, "CHUNK_BYTES", 1024)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_tensors_of_all_types_and_shapes_are_the_same_after_every_move(tmp_path, devices):
    place = node(tmp_path, *[2**20] * devices)
    weights = place.weights(saved(tmp_path / "m.safetensors", EVERYTHING), devices=place.devices)

    async def everywhere():
        cold_to_hot_to_warm_to_hot = (weights.from_cache, weights.to_cache, weights.from_cache)
        for move in (*cold_to_hot_to_warm_to_hot, weights.drop, weights.to_cache, weights.from_cache):
            await move()
            if weights.level is Level.HOT:
                assert same(weights.tensors, EVERYTHING)
                assert [2**20 - free for free in place.free] == list(weights.device_bytes)
            else:
                assert place.free == [2**20] * devices
        await weights.aclose()

    asyncio.run(everywhere())
    assert place.store.used_bytes() == 0


def test_tensors_are_aligned_for_any_kernel(tmp_path):
    place = node(tmp_path)
    weights = place.weights(saved(tmp_path / "m.safetensors", EVERYTHING))
    asyncio.run(weights.from_cache())
    first = min(each.data_ptr() for each in weights.tensors.values() if each.numel())
    assert all((each.data_ptr() - first) % ALIGNMENT == 0 for each in weights.tensors.values() if each.numel())


def test_nothing_at_all_can_be_moved_too(tmp_path):
    place = node(tmp_path)
    weights = place.weights(saved(tmp_path / "m.safetensors", {}))

    async def around():
        for move in (weights.from_cache, weights.to_cache, weights.from_cache, weights.drop):
            assert (await move()).nbytes == 0

    asyncio.run(around())


def test_progress_counts_up_to_the_whole(tmp_path):
    place = node(tmp_path, 2**20, 2**20)
    weights = place.weights(saved(tmp_path / "m.safetensors"), devices=place.devices)

    async def around():
        for move in (weights.from_cache, weights.to_cache, weights.from_cache, weights.drop, weights.to_cache):
            if move == weights.drop:
                await move()
                continue
            told = []
            moved = await move(lambda done, total, told=told: told.append((done, total)))
            done = [each for each, _ in told]
            assert done == sorted(done)
            assert len(done) > 10
            assert {total for _, total in told} == {moved.nbytes} == {done[-1]}

    asyncio.run(around())


def test_a_move_says_what_devices_have_free_before_and_after(tmp_path):
    weights = node(tmp_path).weights(saved(tmp_path / "m.safetensors"))
    moved = asyncio.run(weights.from_cache())
    assert (moved.source, moved.target, moved.nbytes) == (Level.COLD, Level.HOT, SIZE)
    assert (moved.before[0].free_bytes, moved.after[0].free_bytes) == (2**20, 2**20 - SIZE)


def test_going_where_one_is_does_nothing(tmp_path):
    weights = node(tmp_path).weights(saved(tmp_path / "m.safetensors"))

    async def twice():
        await weights.from_cache()
        before = weights.tensors["layers.0.weight"]
        moved = await weights.from_cache()
        assert (moved.nbytes, moved.source) == (0, Level.HOT)
        assert weights.tensors["layers.0.weight"] is before

    asyncio.run(twice())


def test_tensors_that_are_not_hot_cannot_be_had(tmp_path):
    weights = node(tmp_path).weights(saved(tmp_path / "m.safetensors"))
    with pytest.raises(NotHotError, match="must be HOT to be used, and are COLD"):
        _ = weights.tensors


# ---- no room ----------------------------------------------------------------------------------------------------------


def test_a_device_without_room_is_a_failed_load_and_nothing_is_taken(tmp_path):
    place = node(tmp_path, 2**20, SIZE // 4)
    weights = place.weights(saved(tmp_path / "m.safetensors"), devices=place.devices)

    async def try_both():
        for source in (Level.COLD, Level.WARM):
            assert weights.level is source
            with pytest.raises(OutOfDeviceMemory) as caught:
                await weights.from_cache()
            assert (caught.value.place, caught.value.asked_bytes, caught.value.free_bytes) == ("gpu:1", 2 * 5376, SIZE // 4)
            assert (weights.level, place.free) == (source, [2**20, SIZE // 4])
            await weights.to_cache()

    asyncio.run(try_both())


def test_what_a_replica_computes_with_must_be_free_beside_its_weights(tmp_path):
    place = node(tmp_path, SIZE + 99)
    path = saved(tmp_path / "m.safetensors")
    with pytest.raises(OutOfDeviceMemory, match=f"{SIZE + 100:,} were asked for"):
        asyncio.run(place.weights(path, spare_bytes=100).from_cache())
    asyncio.run(place.weights(path, spare_bytes=99).from_cache())


@pytest.mark.parametrize("source", [Level.COLD, Level.HOT])
def test_a_node_without_room_keeps_weights_where_they_were(tmp_path, source):
    place = node(tmp_path, cpu_bytes=SIZE)
    weights = place.weights(saved(tmp_path / "m.safetensors"))

    async def fail():
        if source is Level.HOT:
            await weights.from_cache()
        with pytest.raises(OutOfHostMemory, match="memory for warm copies"):
            await weights.to_cache()

    asyncio.run(fail())
    assert (weights.level, place.store.used_bytes()) == (source, 0)
    if source is Level.HOT:
        assert same(weights.tensors, tensors())


def test_more_than_the_machine_has_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(OutOfHostMemory) as caught:
        WarmStore(tmp_path).acquire("key", 2**50, lambda write: pytest.fail("it was filled"), moves.Progress())
    assert caught.value.free_bytes < 2**50
    assert WarmStore(tmp_path).used_bytes() == 0


def test_replicas_that_load_at_once_never_take_more_than_there_is(tmp_path):
    place = node(tmp_path, 3 * SIZE + SIZE // 2)
    path = saved(tmp_path / "m.safetensors")
    replicas = [place.weights(path) for _ in range(8)]

    async def all_at_once():
        results = await asyncio.gather(*(each.from_cache() for each in replicas), return_exceptions=True)
        assert sum(isinstance(each, OutOfDeviceMemory) for each in results) == 5
        assert sum(each.level is Level.HOT for each in replicas) == 3
        assert place.free == [SIZE // 2]
        await asyncio.gather(*(each.drop() for each in replicas))

    asyncio.run(all_at_once())
    assert place.free == [3 * SIZE + SIZE // 2]


@pytest.mark.parametrize("size", [0, -1, 1e30, 2**53 + 1, float("nan"), True, "1", None])
def test_sizes_that_cannot_be_are_refused(tmp_path, size):
    with pytest.raises(InvalidMemoryError, match="total_bytes of a device must be a whole number from 1 to"):
        StandIn(size, tmp_path)
    if size not in (0, None):
        with pytest.raises(InvalidMemoryError, match="budget_bytes of warm copies"):
            WarmStore(tmp_path, size)
        with pytest.raises(InvalidMemoryError, match="bytes to allocate"):
            StandIn(1, tmp_path).allocate(size)
        with pytest.raises(InvalidMemoryError, match="spare_bytes"):
            node(tmp_path).weights(saved(tmp_path / "m.safetensors"), spare_bytes=size)


def test_weights_need_a_device(tmp_path):
    with pytest.raises(InvalidMemoryError, match="the number of devices must be at least 1"):
        node(tmp_path).weights(saved(tmp_path / "m.safetensors"), devices=[])


# ---- given up, and failed in the middle ---------------------------------------------------------------------------------

MOVES = {
    "cold to hot": (Level.COLD, "from_cache"),
    "warm to hot": (Level.WARM, "from_cache"),
    "hot to warm": (Level.HOT, "to_cache"),
}


def watched(tmp_path, level):
    device = WatchedDevice(2**20, tmp_path / "devices")
    place = node(tmp_path)
    path = saved(tmp_path / "m.safetensors")
    # Written long ago: a change is seen by its time.
    os.utime(path, (1, 1))
    weights = place.weights(path, devices=[device])

    async def go():
        if level is Level.HOT:
            await weights.from_cache()
        if level is Level.WARM:
            await weights.to_cache()

    asyncio.run(go())
    device.copies = 0
    return place, device, weights


def still_works(place, weights, level):
    """It is where it was, holds what it held, and can go on."""
    assert weights.level is level
    assert place.free == [2**20 - (SIZE if level is Level.HOT else 0)]
    assert (place.store.used_bytes() > 0) == (level is Level.WARM)

    async def go_on():
        await weights.from_cache()
        assert same(weights.tensors, tensors())
        await weights.to_cache()
        await weights.from_cache()
        assert same(weights.tensors, tensors())
        await weights.aclose()

    asyncio.run(go_on())
    assert place.free == [2**20]
    assert place.store.used_bytes() == 0


@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_is_cancelled_midway_is_undone(tmp_path, move):
    level, method = MOVES[move]
    place, device, weights = watched(tmp_path, level)
    arrived, cancelled = threading.Event(), threading.Event()

    def pause_in_the_middle(copies):
        if copies == 5:
            arrived.set()
            assert cancelled.wait(60)

    async def cancel():
        task = asyncio.ensure_future(getattr(weights, method)())
        await asyncio.to_thread(arrived.wait, 60)
        assert place.free == [2**20 - SIZE]
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    device.on_copy = pause_in_the_middle
    asyncio.run(cancel())
    device.on_copy = lambda copies: None
    still_works(place, weights, level)


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("copies", [0, 1, 12])
def test_a_move_that_fails_midway_is_undone(tmp_path, move, copies):
    level, method = MOVES[move]
    place, device, weights = watched(tmp_path, level)

    def fail(done):
        if done == copies:
            raise RuntimeError("CUDA error: out of coffee")

    device.on_copy = fail
    with pytest.raises(RuntimeError, match="coffee"):
        asyncio.run(getattr(weights, method)())
    device.on_copy = lambda done: None
    still_works(place, weights, level)


@pytest.fixture
def pieces(monkeypatch):
    """What each piece of staging memory is made of, which ends with the last that uses it; nothing is collected."""
    made = []

    def recorded(nbytes, make):
        arrays = [numpy.empty(1024, dtype=numpy.uint8) for _ in range(3)]
        made.extend(weakref.ref(each) for each in arrays)
        return [torch.from_numpy(each) for each in arrays]

    monkeypatch.setattr(moves, "_stagings", recorded)
    gc.collect()
    gc.disable()
    yield made
    gc.enable()


@pytest.mark.parametrize("how", ["is cancelled", "has no room", "fails"])
@pytest.mark.parametrize("move", ["cold to warm", "hot to warm", "cold to hot"])
def test_what_a_move_that_ends_early_took_is_free_when_its_error_arrives(tmp_path, monkeypatch, pieces, move, how):
    """Not when the collector runs next: the error is still held here. A file that was removed lives as long as it is mapped."""
    level, method = {**MOVES, "cold to warm": (Level.COLD, "to_cache")}[move]
    place, device, weights = watched(tmp_path, level)
    del pieces[:]
    reached, stopped = threading.Event(), threading.Event()
    stop = Progress.stop

    def stop_and_say_so(progress):
        stop(progress)
        stopped.set()

    def break_off(*_):
        reached.set()
        if how == "is cancelled":
            stopped.wait(60)  # one that is through by then is not cut off: it has moved
        else:
            raise OSError(errno.ENOSPC, "full") if how == "has no room" else RuntimeError("out of coffee")

    monkeypatch.setattr(Progress, "stop", stop_and_say_so)
    device.on_copy = lambda copies: break_off() if method == "from_cache" and copies == 5 else None
    write = warm._write_all

    def write_and_break_off(descriptor, offset, data):
        write(descriptor, offset, data)
        if offset > 9000:
            break_off()

    monkeypatch.setattr(warm, "_write_all", write_and_break_off)

    async def go():
        task = asyncio.ensure_future(getattr(weights, method)())
        if how == "is cancelled":
            await asyncio.to_thread(reached.wait, 60)
            task.cancel()
        await task

    with pytest.raises((asyncio.CancelledError, OutOfHostMemory, OSError, RuntimeError)) as raised:
        asyncio.run(go())
    assert len(pieces) == 3
    assert [each() is None for each in pieces] == [True] * 3
    assert held_of(tmp_path) == []
    assert place.store.used_bytes() == 0
    del raised


def held_of(folder):
    """The shared files of a folder, perhaps removed, that this process has mapped or open."""
    opened = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            opened.append(os.readlink(f"/proc/self/fd/{each}"))
    with open("/proc/self/maps", encoding="utf-8") as mapped:
        return [each for each in (*opened, *mapped) if f"{folder}/warm" in each]


def test_a_move_that_waits_for_another_one_is_cancelled_at_once(tmp_path):
    _place, device, weights = watched(tmp_path, Level.COLD)
    arrived, go_on = threading.Event(), threading.Event()

    def pause(copies):
        arrived.set()
        assert go_on.wait(60)

    async def cancel():
        first = asyncio.ensure_future(weights.from_cache())
        await asyncio.to_thread(arrived.wait, 60)
        second = asyncio.ensure_future(weights.drop())
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not first.done()
        go_on.set()
        await first

    device.on_copy = pause
    asyncio.run(cancel())
    assert weights.level is Level.HOT


@pytest.mark.parametrize("move", MOVES)
def test_a_move_has_no_second_copy_in_host_memory_but_a_few_pieces(tmp_path, move):
    level, method = MOVES[move]
    _place, device, weights = watched(tmp_path, level)
    device.staged.clear()
    asyncio.run(getattr(weights, method)())
    assert device.copies > 15
    assert sum(device.staged) <= (0 if level is Level.WARM else STAGINGS * moves.CHUNK_BYTES)


def test_a_file_that_is_cut_while_it_is_loaded_is_a_failed_load(tmp_path):
    place, device, weights = watched(tmp_path, Level.COLD)
    content = (tmp_path / "m.safetensors").read_bytes()
    device.on_copy = lambda copies: (tmp_path / "m.safetensors").write_bytes(content[:9000])
    with pytest.raises(WeightsFileError):
        asyncio.run(weights.from_cache())
    assert (weights.level, place.free) == (Level.COLD, [2**20])


def test_a_file_that_is_written_while_it_is_loaded_is_a_failed_load_and_no_mixture(tmp_path):
    place, device, weights = watched(tmp_path, Level.COLD)
    other = saved(tmp_path / "n.safetensors", tensors(seed=1)).read_bytes()

    def overwrite(copies):
        with (tmp_path / "m.safetensors").open("r+b") as file:
            file.write(other)

    device.on_copy = overwrite
    with pytest.raises(WeightsFileError, match="it changed since its header was read"):
        asyncio.run(weights.from_cache())
    assert (weights.level, place.free) == (Level.COLD, [2**20])


@pytest.mark.parametrize("move", ["from_cache", "to_cache"])
def test_weights_that_change_while_they_are_loaded_are_caught_whatever_their_time_says(tmp_path, move, monkeypatch):
    """As where they are written twice within one tick of the file system's clock."""
    path = saved(tmp_path / "m.safetensors")
    place, files = node(tmp_path), look_at(path)
    weights = place.weights(path, expected=declared_in(files.declared()))
    other = saved(tmp_path / "n.safetensors", tensors(seed=1)).read_bytes()
    read, reads = OpenWeights.read_into, []

    def overwrite_then_read(reader, file, offset, buffers):
        reads.append(offset)
        if len(reads) == 3:  # the first is that of the check before
            with path.open("r+b") as opened:
                opened.write(other)
            os.utime(path, ns=(files.stamps[0][3], files.stamps[0][3]))
        read(reader, file, offset, buffers)

    monkeypatch.setattr(OpenWeights, "read_into", overwrite_then_read)
    with pytest.raises(WeightsChangedError, match="deploy the model again"):
        asyncio.run(getattr(weights, move)())
    assert (weights.level, place.free, place.store.used_bytes()) == (Level.COLD, [2**20], 0)
    with pytest.raises(WeightsChangedError):
        asyncio.run(getattr(weights, move)())


def test_another_file_of_the_name_is_loaded_the_next_time_from_disk(tmp_path):
    place = node(tmp_path)
    weights = place.weights(saved(tmp_path / "m.safetensors"))

    async def exchange():
        await weights.from_cache()
        await weights.drop()
        saved(tmp_path / "n.safetensors", tensors(3, seed=1)).replace(tmp_path / "m.safetensors")
        await weights.from_cache()

    asyncio.run(exchange())
    assert same(weights.tensors, tensors(3, seed=1))


# ---- who holds what -----------------------------------------------------------------------------------------------------


def test_replicas_of_a_model_have_one_warm_copy_between_them(tmp_path):
    place = node(tmp_path, 2**20, cpu_bytes=SIZE + 4096)
    path = saved(tmp_path / "m.safetensors")
    one, two = place.weights(path), place.weights(path)

    async def share():
        await asyncio.gather(one.from_cache(), two.from_cache())
        first, second = await one.to_cache(), await two.to_cache()
        assert (first.nbytes > 0, second.nbytes) == (True, 0)
        assert place.store.used_bytes() == SIZE + 4096
        await one.drop()
        assert place.store.used_bytes() == SIZE + 4096
        await two.from_cache()
        assert same(two.tensors, tensors())
        assert place.store.used_bytes() == 0

    asyncio.run(share())


def test_replicas_that_go_warm_at_once_make_one_copy(tmp_path):
    place = node(tmp_path, cpu_bytes=SIZE + 4096)
    path = saved(tmp_path / "m.safetensors")
    replicas = [place.weights(path) for _ in range(4)]

    async def share():
        moved = await asyncio.gather(*(each.to_cache() for each in replicas))
        assert sorted(each.nbytes for each in moved) == [0, 0, 0, SIZE]

    asyncio.run(share())


def test_a_cold_replica_loads_from_the_warm_copy_of_another_one(tmp_path):
    place = node(tmp_path)
    path = saved(tmp_path / "m.safetensors")
    one, two = place.weights(path), place.weights(path)

    async def share():
        await one.to_cache()
        inode = path.stat().st_ino
        content = path.read_bytes()
        assert await two.from_cache()
        assert (path.stat().st_ino, path.read_bytes()) == (inode, content)
        assert same(two.tensors, tensors())
        await two.drop()
        assert place.store.used_bytes() > 0

    asyncio.run(share())


def test_replicas_split_over_other_numbers_of_devices_share_a_warm_copy(tmp_path):
    place = node(tmp_path, *[2**20] * 3)
    path = saved(tmp_path / "m.safetensors", EVERYTHING)
    one, three = place.weights(path), place.weights(path, devices=place.devices)

    async def share():
        await three.from_cache()
        await three.to_cache()
        assert (await one.to_cache()).nbytes == 0
        await three.drop()
        await one.from_cache()
        assert same(one.tensors, EVERYTHING)

    asyncio.run(share())


def test_a_warm_copy_that_is_kept_makes_leaving_the_device_free_of_copies(tmp_path):
    place = node(tmp_path)
    weights = place.weights(saved(tmp_path / "m.safetensors"), keep_warm=True)

    async def around():
        await weights.to_cache()
        await weights.from_cache()
        assert place.store.used_bytes() == SIZE + 4096
        assert (await weights.to_cache()).nbytes == 0
        await weights.from_cache()
        assert same(weights.tensors, tensors())
        await weights.aclose()

    asyncio.run(around())
    assert place.store.used_bytes() == 0


def test_weights_that_are_a_replicas_own_keep_what_it_wrote(tmp_path):
    place = node(tmp_path)
    path = saved(tmp_path / "m.safetensors")
    own, other = place.weights(path, shared=False), place.weights(path)

    async def write():
        await other.to_cache()
        await own.from_cache()
        own.tensors["layers.0.weight"].fill_(5)
        await own.to_cache()
        await own.from_cache()
        assert own.tensors["layers.0.weight"].unique().tolist() == [5]
        await other.from_cache()
        assert same(other.tensors, tensors())

    asyncio.run(write())
    with pytest.raises(InvalidMemoryError, match="keep_warm must be False where shared is"):
        place.weights(path, shared=False, keep_warm=True)


@pytest.mark.parametrize("move", ["to_cache", "drop"])
@pytest.mark.parametrize("what", ["the tensor", "a view", "an array"])
def test_weights_that_somebody_keeps_stay_hot_and_are_named(tmp_path, move, what):
    place = node(tmp_path, 2**20, 2**20)
    weights = place.weights(saved(tmp_path / "m.safetensors"), devices=place.devices)

    async def keep():
        await weights.from_cache()
        kept = weights.tensors["layers.3.weight"]
        if what != "the tensor":
            kept = kept[1:] if what == "a view" else kept.numpy()
        with pytest.raises(StillHeldError) as caught:
            await getattr(weights, move)()
        assert caught.value.device == "gpu:1"
        assert caught.value.names == (() if what == "an array" else ("layers.3.weight",))
        assert (weights.level, place.store.used_bytes()) == (Level.HOT, 0)
        assert same(weights.tensors, tensors())
        del kept
        await getattr(weights, move)()

    asyncio.run(keep())
    assert place.free == [2**20, 2**20]


def test_weights_in_a_circle_of_references_are_found_to_be_free(tmp_path):
    place = node(tmp_path)
    weights = place.weights(saved(tmp_path / "m.safetensors"))

    async def around():
        await weights.from_cache()
        circle = [weights.tensors["layers.0.weight"]]
        circle.append(circle)
        del circle
        await weights.to_cache()

    gc.disable()
    try:
        asyncio.run(around())
    finally:
        gc.enable()
    assert place.free == [2**20]


def test_a_mapping_of_tensors_that_is_kept_keeps_no_memory(tmp_path):
    weights = node(tmp_path).weights(saved(tmp_path / "m.safetensors"))

    async def around():
        await weights.from_cache()
        kept = weights.tensors
        await weights.to_cache()
        assert dict(kept) == {}

    asyncio.run(around())


@pytest.mark.parametrize("level", [Level.HOT, Level.WARM])
def test_weights_that_nobody_has_any_more_hold_nothing(tmp_path, level):
    place = node(tmp_path)
    weights = place.weights(saved(tmp_path / "m.safetensors"))
    asyncio.run(weights.from_cache() if level is Level.HOT else weights.to_cache())
    del weights
    end = time.monotonic() + 60
    # The thread that moved them may have them for a moment longer.
    while (place.free, place.store.used_bytes()) != ([2**20], 0):
        assert time.monotonic() < end
        gc.collect()


def test_a_poisoned_device_is_told_as_such_and_frees_what_can_be_freed(tmp_path):
    place, device, weights = watched(tmp_path, Level.COLD)

    def poisoned(copies):
        raise DevicePoisonedError("gpu:0 can be used no more by this process")

    device.on_copy = poisoned
    with pytest.raises(DevicePoisonedError):
        asyncio.run(weights.from_cache())
    assert (weights.level, place.free) == (Level.COLD, [2**20])


def test_a_block_is_used_until_it_is_freed_and_no_longer(tmp_path):
    device = StandIn(100, tmp_path)
    block = device.allocate(60)
    kept = block.data[1:2]
    with pytest.raises(StillHeldError):
        block.free()
    del kept
    block.free()
    block.free()
    with pytest.raises(InvalidMemoryError):
        _ = block.data
    assert device.memory().free_bytes == 100


def test_a_warm_copy_cannot_be_used_after_its_release(tmp_path):
    content = torch.arange(10, dtype=torch.uint8)
    copy = WarmStore(tmp_path).acquire("key", 10, lambda write: write(0, content), moves.Progress(10))
    assert copy.data.tolist() == [*range(10)]
    assert (copy.release(), copy.release()) == (True, False)
    with pytest.raises(WeightsError, match="used after its release"):
        _ = copy.data
