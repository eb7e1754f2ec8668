"""The process of one replica of a fleet, without a cluster: what user code does, and what moves do to each other."""

import asyncio
import sys
import uuid

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

import torch
from safetensors.torch import save_file

from executors.ray_gpu.errors import CallCancelledError, RemoteError
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.host import ModelHost
from executors.ray_gpu.residency.options import FleetOptions
from executors.ray_gpu.residency.packing import pack_model
from executors.ray_gpu.residency.words import pack, unpack, unpack_error
from executors.ray_gpu.worker.places import NodeMemory, Places
from executors.torch_weights import WeightsChangedError, look_at

WAIT_S = 60.0


class Rude:
    def ends_the_process(self):
        sys.exit(3)

    def cancels_itself(self):
        raise asyncio.CancelledError

    def stops_an_iteration(self):
        raise StopIteration("no more")

    async def ends_the_process_from_a_coroutine(self):
        sys.exit(3)

    async def never_ends(self):
        await asyncio.Event().wait()

    def well(self):
        return "well"


def host(code, weights="none.safetensors", declared=""):
    places = Places(FleetOptions(device="cpu"), "test", uuid.uuid4().hex, NodeMemory((2**20,), 2**20))
    return ModelHost(pack_model(Model(name="m", code=code, weights=weights), declared), places, "m#1", 1)


@pytest.mark.parametrize(
    "method", ["ends_the_process", "cancels_itself", "stops_an_iteration", "ends_the_process_from_a_coroutine"]
)
def test_whatever_user_code_raises_is_an_answer_and_the_next_request_is_answered_too(method):
    async def asked():
        rude = host(Rude)
        rude._user, rude._accepting = Rude(), True
        return [await asyncio.wait_for(rude.answer(1, each, 1, pack((each, (), {}))), WAIT_S) for each in (method, "well")]

    raised, well = asyncio.run(asked())
    assert isinstance(unpack_error(raised.error), RemoteError)
    assert unpack(well.value) == "well"


@pytest.mark.parametrize("cancelled_by", ["the replica, which leaves", "the caller"])
def test_a_request_that_is_cut_off_when_its_replica_leaves_says_so(cancelled_by):
    async def asked():
        rude = host(Rude)
        rude._user, rude._accepting = Rude(), True
        answer = asyncio.create_task(rude.answer(1, "r", 1, pack(("never_ends", (), {}))))
        await asyncio.sleep(0)
        if cancelled_by == "the caller":
            await rude.stop_attempt("r", 1)
        else:
            await asyncio.wait_for(rude.leave(1, 1, 0.0, False), WAIT_S)
        return await asyncio.wait_for(answer, WAIT_S)

    answer = asyncio.run(asked())
    if cancelled_by == "the caller":
        assert isinstance(unpack_error(answer.error), CallCancelledError)
        assert not answer.cut_off
    else:
        assert (answer.cut_off, answer.error) == (True, None)
        assert "replica m#1 left the GPU before the request was done" in answer.reason


class Summed:
    def __init__(self):
        self.weights = None

    def __call__(self):
        return float(self.weights["w"].sum())


def test_a_warm_replica_becomes_hot_with_what_it_has_whatever_its_file_has_become(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file({"w": torch.ones(256)}, file)
    summed = host(Summed, weights=str(file), declared=look_at(file).declared())

    async def moved():
        await summed._load((0,), (2**20,))
        await summed._leave(WAIT_S, keep_copy=True)
        save_file({"w": torch.zeros(256)}, file)
        await summed._load((0,), (2**20,))
        answer = await summed.answer(1, "r", 1, pack(("__call__", (), {})))
        await summed._leave(WAIT_S, keep_copy=False)
        with pytest.raises(WeightsChangedError):
            await summed._load((0,), (2**20,))
        return unpack(answer.value)

    assert asyncio.run(moved()) == 256.0
