"""Parts of a worker, without a cluster: numbers of moves, GPUs that are held, names, options."""

import asyncio
import uuid
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

import torch
from safetensors.torch import save_file

from executors.ray_gpu import names
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.requests.frames import key_of, replica_meant
from executors.ray_gpu.worker.gpu_holder import HeldGpus, misplaced, ordinals, planned_gpus
from executors.ray_gpu.worker.messages import MoveEnded, Progressed, WorkerReport
from executors.ray_gpu.worker.move_sequence import BusyError, MoveSequence
from executors.ray_gpu.worker.options import DeviceKind, MemoryOptions
from executors.ray_gpu.worker.places import NodeMemory, Places
from executors.ray_gpu.worker.weights import HeldWeights
from executors.ray_gpu.world import NodeInfo
from executors.torch_weights import Level, MoreThanPlanned, WeightsChangedError, look_at
from executors.torch_weights.contents import declared_in

WAIT_S = 60.0


def in_a_loop(main):
    return asyncio.run(asyncio.wait_for(main(), WAIT_S))


async def taken(*gpu_bytes):
    return gpu_bytes


async def raised(error):
    raise error


def test_a_repeated_move_is_carried_out_once_and_an_older_one_not_at_all():
    async def main():
        sequence, carried_out = MoveSequence("w"), []

        async def act():
            carried_out.append(1)
            return (7,)

        first, second = sequence.begin(3, act), sequence.begin(3, act)
        assert (await first, await second) == (MoveEnded(3, gpu_bytes=(7,)),) * 2
        with pytest.raises(ValueError, match=r"move 2 is older than the newest that w was told, which is 3"):
            sequence.begin(2, act)
        return carried_out, sequence.newest, sequence.is_moving, sequence.ended

    assert in_a_loop(main) == ([1], 3, False, MoveEnded(3, gpu_bytes=(7,)))


def test_the_next_move_breaks_off_the_one_that_is_under_way_and_begins_once_that_has_ended():
    async def main():
        sequence, order = MoveSequence("w"), []

        async def endless():
            try:
                await asyncio.Event().wait()
            finally:
                order.append("undone")

        async def next_one():
            order.append("begun")
            return ()

        broken = sequence.begin(1, endless)
        await asyncio.sleep(0)
        assert (sequence.is_moving, sequence.ended) == (True, None)
        end = await sequence.begin(2, next_one)
        return order, await broken, end

    assert in_a_loop(main) == (["undone", "begun"], MoveEnded(1, "it was broken off"), MoveEnded(2))


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (BusyError("3 calls"), MoveEnded(1, "3 calls", busy=True)),
        (OSError("no such file"), MoveEnded(1, "OSError: no such file")),
        (
            WeightsChangedError("m", "a", "b"),
            MoveEnded(1, f"WeightsChangedError: {WeightsChangedError('m', 'a', 'b')}", wrong_weights=True),
        ),
        (RuntimeError("CUDA error: device-side assert triggered"), "poisoned"),
    ],
)
def test_a_move_that_fails_says_why_and_whether_the_process_is_of_use(error, end):
    async def main():
        return await MoveSequence("w").begin(1, lambda: raised(error))

    found = in_a_loop(main)
    assert found.poisoned if end == "poisoned" else found == end


def test_who_follows_a_load_hears_how_far_it_is_and_then_its_end():
    async def main():
        sequence, go_on = MoveSequence("w"), asyncio.Event()

        async def act():
            sequence.arrived(25, 100)
            await go_on.wait()
            return (1,)

        words = []
        async for word in sequence.progress_of(sequence.begin(1, act)):
            words.append(word)
            go_on.set()
        return words

    first, *_, end = in_a_loop(main)
    assert (first, first.percent, end) == (Progressed(25, 100), 25, MoveEnded(1, gpu_bytes=(1,)))


def test_what_comes_while_a_word_is_on_its_way_is_told_though_nothing_comes_after_it():
    async def main():
        sequence, go_on = MoveSequence("w"), asyncio.Event()

        async def act():
            sequence.arrived(25, 100)
            await go_on.wait()
            return (1,)

        task, words = sequence.begin(1, act), []
        async with asyncio.timeout(10.0):
            async for word in sequence.progress_of(task):
                words.append(word)
                if word == Progressed(25, 100):
                    sequence.arrived(75, 100)
                else:
                    go_on.set()
        return words

    assert in_a_loop(main) == [Progressed(25, 100), Progressed(75, 100), MoveEnded(1, gpu_bytes=(1,))]


def test_a_load_begins_from_nothing_whatever_the_last_one_came_to_and_who_asks_again_hears_how_far_it_is():
    async def main():
        sequence, go_on = MoveSequence("w"), asyncio.Event()

        async def act():
            sequence.arrived(100, 100)
            return (1,)

        async def second():
            await go_on.wait()
            sequence.arrived(50, 100)
            await asyncio.Event().wait()

        await sequence.begin(1, act)
        task = sequence.begin(2, second)
        assert sequence.progress == Progressed(0)
        go_on.set()
        async with asyncio.timeout(10.0):
            for _ in range(2):
                async for word in sequence.progress_of(task):
                    assert word == Progressed(50, 100)
                    break
        task.cancel()

    in_a_loop(main)


def test_nothing_of_nothing_is_no_percent():
    assert Progressed(0).percent == 0


def test_the_key_of_a_connection_names_the_replica_that_is_meant():
    assert replica_meant(key_of("shop/m#1.0", "worker", "abc")) == "shop/m#1.0"
    assert replica_meant("a key of an earlier release") == ""


def test_a_workers_name_is_no_replicas():
    name = names.worker_name("shop/m@1.0")
    assert names.worker_of(name) == "shop/m@1.0"
    assert names.replica_of(name) is None
    assert names.worker_of(names.actor_name("m", "m#1.0")) is None


@pytest.mark.parametrize(
    ("gpu_ids", "visible", "found"),
    [([1, 0], None, (0, 1)), ([2, 5], "5,2,7", (0, 1)), (["GPU-b"], "GPU-a, GPU-b", (1,)), (["3"], None, (3,)), ([], "", ())],
)
def test_gpus_have_the_numbers_that_they_have_where_they_are_used(gpu_ids, visible, found):
    assert ordinals(gpu_ids, visible) == found


def node(free, total=4.0, **labels):
    return NodeInfo("n1", "127.0.0.1", {"GPU": total}, {"GPU": free}, labels)


def test_all_free_gpus_of_a_node_are_planned_unless_its_label_says_how_many():
    assert planned_gpus(node(3.5)) == 3
    assert planned_gpus(node(4.0, planned_gpus="1")) == 1
    assert planned_gpus(NodeInfo("n1", "127.0.0.1", {}, {})) == 0
    for said in ("5", "-1", "all"):
        with pytest.raises(InvalidDeploymentError, match=f"label planned_gpus of node n1 must be 0 to 4, got '{said}'"):
            planned_gpus(node(4.0, planned_gpus=said))


def report(worker_id, node_id, *gpus):
    return WorkerReport(
        worker_id, "a", node_id, 1, None, "v", 1, Level.HOT, 1, False, None, Progressed(0), gpus, (), 0, None, 3
    )


def test_workers_on_gpus_that_are_held_no_more_are_to_end_before_their_node_joins():
    workers = {
        each.worker_id: each
        for each in (report("here", "n1", 1, 2), report("there", "n1", 2, 3), report("cold", "n1"), report("other", "n2", 0))
    }
    assert misplaced(HeldGpus("n1", "g", (1, 2), None), "n1", workers) == ("there",)
    assert misplaced(None, "n1", workers) == ("here", "there")


def test_the_options_of_memory_name_what_is_wrong_with_them():
    assert MemoryOptions(device="cuda", stand_in_gpu_bytes=[1]).device is DeviceKind.CUDA
    for wrong, said in (
        ({"device": "tpu"}, r"MemoryOptions\.device must be one of \"auto\", \"cuda\", \"cpu\", got 'tpu'"),
        ({"stand_in_gpu_bytes": 5}, r"MemoryOptions\.stand_in_gpu_bytes must be a tuple of sizes in bytes, got 5"),
        ({"cache_bytes": -1}, r"MemoryOptions\.cache_bytes must be a whole number of bytes, got -1"),
    ):
        with pytest.raises(InvalidDeploymentError, match=said):
            MemoryOptions(**wrong)


def test_warm_weights_become_hot_with_what_they_were_whatever_their_file_has_become(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file({"w": torch.ones(256)}, file)
    places = Places(MemoryOptions(device="cpu"), "test", uuid.uuid4().hex, NodeMemory((2**20,), 2**20))
    user, held = SimpleNamespace(), HeldWeights(str(file), declared_in(look_at(file).declared()), places)

    async def moved():
        await held.load(user, (0,), (2**20,), lambda done, total: None)
        await held.leave(user, keep_copy=True)
        save_file({"w": torch.zeros(256)}, file)
        await held.load(user, (0,), (2**20,), lambda done, total: None)
        found = float(user.weights["w"].sum())
        await held.leave(user, keep_copy=False)
        with pytest.raises(WeightsChangedError):
            await held.load(user, (0,), (2**20,), lambda done, total: None)
        return found

    assert asyncio.run(moved()) == 256.0


@pytest.mark.parametrize(
    ("gpus", "planned", "remedy"),
    [
        ((0,), (1024,), "without weight_bytes, or with as many"),
        ((0, 1), (768, 768), r"without weight_bytes, or say in Residency\(shard_bytes=\.\.\.\)"),
    ],
)
def test_weights_that_take_more_than_was_planned_are_a_failed_load_that_says_how_to_plan_them(tmp_path, gpus, planned, remedy):
    file = tmp_path / "w.safetensors"
    save_file({"w.0": torch.ones(256), "w.1": torch.ones(64), "w.2": torch.ones(64)}, file)
    places = Places(MemoryOptions(device="cpu"), "test", uuid.uuid4().hex, NodeMemory((2**20, 2**20), 2**20))
    held = HeldWeights(str(file), None, places)
    with pytest.raises(MoreThanPlanned, match=remedy):
        asyncio.run(held.load(SimpleNamespace(), gpus, planned, lambda done, total: None))
    assert held.level is Level.COLD
