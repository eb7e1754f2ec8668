"""Processes of a node share warm copies and the memory of devices, and a killed one leaves nothing taken."""

import asyncio
import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from executors.torch_weights import InvalidMemoryError, WarmStore
from executors.torch_weights.errors import MoveCancelledError
from executors.torch_weights.leases import LeaseFolder
from executors.torch_weights.pipeline import Pipeline
from executors.torch_weights.progress import Progress
from tests.weights_worlds import node, same, saved, tensors

ROOT = Path(__file__).parents[2]
CONTENT = torch.arange(1000, dtype=torch.int32).view(torch.uint8)
PATIENCE_S = 60

WARM_AND_HOT = """
import asyncio
from pathlib import Path
from tests.weights_worlds import node
place = node(Path(sys.argv[1]), 2**20)
one, two = place.weights(sys.argv[2]), place.weights(sys.argv[2])
asyncio.run(one.to_cache())
asyncio.run(two.from_cache())
"""
FILLS_HALF = """
from pathlib import Path
import torch
from executors.torch_weights import WarmStore
from executors.torch_weights.progress import Progress
def fill(write):
    write(0, torch.zeros(2000, dtype=torch.uint8))
    ready()
WarmStore(Path(sys.argv[1])).acquire("key", 4000, fill, Progress())
"""


@pytest.fixture
def start():
    """Starts Python in another process, which goes on until it is killed once it has said that it is ready."""
    processes = []

    def run(program, *arguments):
        start = "import sys, time\ndef ready():\n    print('ready', flush=True)\n    time.sleep(600)\n"
        command = [sys.executable, "-c", f"{start}{program}\nready()", *map(str, arguments)]
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
        processes.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield run
    for process in processes:
        kill(process)
        process.stdout.close()


def kill(process):
    process.kill()
    process.wait()


def fill(write):
    write(0, CONTENT)


def eventually(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_warm_copy_outlives_a_killed_holder_and_ends_with_the_last_one(tmp_path, start):
    place = node(tmp_path)
    path = saved(tmp_path / "m.safetensors")
    other = start(WARM_AND_HOT, tmp_path, path)
    taken = place.store.used_bytes()
    assert taken > 0
    assert place.free[0] < 2**20
    ours = place.weights(path)

    async def share():
        assert (await ours.to_cache()).nbytes == 0
        kill(other)
        # What the killed one had on the device is free, and the copy that it made is ours.
        assert place.free == [2**20]
        assert place.store.used_bytes() == taken
        await ours.from_cache()
        assert same(ours.tensors, tensors())

    asyncio.run(share())
    assert place.store.used_bytes() == 0
    assert [each.name for each in (tmp_path / "warm").iterdir()] == [".lock"]


def test_what_only_a_killed_process_held_is_free_for_the_next_one_that_looks(tmp_path, start):
    path = saved(tmp_path / "m.safetensors")
    kill(start(WARM_AND_HOT, tmp_path, path))
    assert len([*(tmp_path / "warm").iterdir()]) > 1
    place = node(tmp_path, cpu_bytes=21_000 + 4096)
    assert asyncio.run(place.weights(path).to_cache()).nbytes > 0
    assert place.free == [2**20]


def test_a_copy_whose_maker_is_killed_is_made_by_who_waits_for_it(tmp_path, start):
    maker = start(FILLS_HALF, tmp_path)
    store, told, found = WarmStore(tmp_path), [], []
    progress = Progress(listener=lambda done, total: told.append(done))
    progress.begin(4000)
    waiter = threading.Thread(target=lambda: found.append(store.acquire("key", 4000, fill, progress)))
    waiter.start()
    eventually(lambda: 2000 in told)
    assert not found
    kill(maker)
    waiter.join(PATIENCE_S)
    assert torch.equal(found[0].data, CONTENT)
    assert found[0].release()


def test_who_waits_for_a_copy_can_be_told_to_stop(tmp_path, start):
    start(FILLS_HALF, tmp_path)
    store, progress, found = WarmStore(tmp_path), Progress(4000), []

    def wait():
        with pytest.raises(MoveCancelledError):
            store.acquire("key", 4000, fill, progress)
        found.append("stopped")

    waiter = threading.Thread(target=wait)
    waiter.start()
    progress.stop()
    waiter.join(PATIENCE_S)
    assert found == ["stopped"]
    assert store.used_bytes() == 8096


def test_a_copy_whose_maker_gives_up_is_made_by_who_waits_for_it(tmp_path):
    store = WarmStore(tmp_path)
    started, fail, found = threading.Event(), threading.Event(), []

    def give_up(write):
        write(0, CONTENT[:100])
        started.set()
        fail.wait(PATIENCE_S)
        raise RuntimeError("no more")

    def first():
        with pytest.raises(RuntimeError, match="no more"):
            store.acquire("key", 4000, give_up, Progress())

    threads = [threading.Thread(target=first)]
    threads[0].start()
    started.wait(PATIENCE_S)
    threads.append(threading.Thread(target=lambda: found.append(store.acquire("key", 4000, fill, Progress()))))
    threads[1].start()
    fail.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert torch.equal(found[0].data, CONTENT)
    assert found[0].release()
    assert store.used_bytes() == 0


def test_a_copy_that_is_not_complete_is_not_found(tmp_path, start):
    start(FILLS_HALF, tmp_path)
    assert WarmStore(tmp_path).find("key", 4000) is None
    assert WarmStore(tmp_path).find("other", 4000) is None


def test_many_that_take_and_let_go_at_once_leave_nothing(tmp_path):
    store = WarmStore(tmp_path)
    wrong = []

    def take_and_let_go(seed):
        for turn in range(20):
            copy = store.acquire(f"key{(seed + turn) % 3}", 4000, fill, Progress())
            if not torch.equal(copy.data, CONTENT):
                wrong.append((seed, turn))
            copy.release()

    threads = [threading.Thread(target=take_and_let_go, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert not wrong
    assert store.used_bytes() == 0


def test_one_at_a_time_looks_takes_or_lets_go(tmp_path):
    folder = LeaseFolder(tmp_path)
    with folder.locked(), (tmp_path / ".lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_copy_that_was_completed_meanwhile_is_not_made_again(tmp_path, monkeypatch):
    store, copies = WarmStore(tmp_path), []
    filling = LeaseFolder.filling

    def after_another(folder, lease):
        monkeypatch.setattr(LeaseFolder, "filling", filling)
        copies.append(WarmStore(tmp_path).acquire("key", 4000, fill, Progress()))
        return filling(folder, lease)

    monkeypatch.setattr(LeaseFolder, "filling", after_another)
    copies.append(store.acquire("key", 4000, lambda write: pytest.fail("it was made again"), Progress()))
    assert [copy.release() for copy in copies] == [False, True]


def test_nobody_uses_staging_memory_when_a_move_has_ended_badly():
    began, gate, ended = threading.Event(), threading.Event(), []

    def piece():
        began.set()
        gate.wait(PATIENCE_S)
        ended.append("piece")

    def fail():
        with Pipeline([]) as pipeline:
            pipeline.work(piece, lambda: None)
            began.wait(PATIENCE_S)
            threading.Timer(0.1, gate.set).start()
            raise RuntimeError("it fails")

    with pytest.raises(RuntimeError, match="it fails"):
        fail()
    assert ended == ["piece"]


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    open_to_all = tmp_path / "warm"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(InvalidMemoryError, match="only its owner"):
        WarmStore(tmp_path)
    open_to_all.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    open_to_all.symlink_to(elsewhere)
    with pytest.raises(InvalidMemoryError, match="only its owner"):
        WarmStore(tmp_path)


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidMemoryError, match="Not a directory"):
        WarmStore(tmp_path / "file")


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    store = WarmStore(tmp_path)
    theirs = [tmp_path / "warm" / name for name in ("model.safetensors", "key", ".lease", "key.filling.txt")]
    for path in theirs:
        path.write_text("theirs")
    assert store.acquire("key", 4000, fill, Progress()).release()
    assert store.used_bytes() == 0
    assert [path.read_text() for path in theirs] == ["theirs"] * 4


def test_what_is_shared_is_for_its_user_alone(tmp_path):
    copy = WarmStore(tmp_path / "new").acquire("key", 4000, fill, Progress())
    assert stat.S_IMODE((tmp_path / "new" / "warm").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new" / "warm" / "key.lease").stat().st_mode) == 0o600
    copy.release()


@pytest.mark.parametrize("name", ["", "../key", "a/b", ".lock", "x" * 300])
def test_names_that_would_lead_elsewhere_are_refused(tmp_path, name):
    folder = LeaseFolder(tmp_path)
    with folder.locked(), pytest.raises(InvalidMemoryError, match="name of a shared file"):
        folder.take(name, 1)


def test_a_copy_that_is_there_in_another_size_is_left_alone(tmp_path):
    store = WarmStore(tmp_path)
    copy = store.acquire("key", 4000, fill, Progress())
    with pytest.raises(InvalidMemoryError, match=r"size of .*key\.lease must be 8192"):
        store.acquire("key", 4096, fill, Progress())
    with pytest.raises(InvalidMemoryError, match="size of"):
        store.find("key", 4096)
    assert torch.equal(copy.data, CONTENT)
    assert copy.release()
