"""All workers of a version agree on which bytes its weights are, by what the cluster keeps of the first that was read."""

import asyncio
import uuid
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

import torch

from executors.ray_gpu import checkpoint, names
from executors.ray_gpu.worker import agreed_root
from executors.ray_gpu.worker.agreed_root import AgreedRoot
from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.worker.places import NodeMemory, Places
from executors.ray_gpu.worker.weights import HeldWeights
from executors.torch_weights import WeightsChangedError
from tests.weights_worlds import saved


@pytest.fixture
def kept(monkeypatch):
    """Ray's store, in memory."""
    found = {}

    def put(key, value, *, overwrite, namespace):
        was_there = key in found
        if overwrite or not was_there:
            found[key] = value
        return was_there

    kv = SimpleNamespace(
        _internal_kv_put=put,
        _internal_kv_get=lambda key, namespace: found.get(key),
        _internal_kv_list=lambda prefix, namespace: [key for key in found if key.startswith(prefix)],
        _internal_kv_del=lambda key, namespace: found.pop(key, None),
    )
    monkeypatch.setattr(agreed_root, "internal_kv", kv)
    monkeypatch.setattr(checkpoint, "internal_kv", kv)
    return found


def test_the_first_root_holds_for_all_and_for_this_version_alone(kept):
    first, second, other = AgreedRoot("ns", "a/m", "1"), AgreedRoot("ns", "a/m", "1"), AgreedRoot("ns", "a/m", "2")
    assert (first.root(), first.settle("r"), second.settle("s"), second.root()) == (None, "r", "r", "r")
    assert (other.root(), other.settle("s")) == (None, "s")


def test_it_is_forgotten_with_the_code_of_its_version(kept, monkeypatch):
    store = checkpoint.Checkpoint("ns")
    for version in "12":
        kept[names.code_key("ns", "a/m", version)] = b""
        AgreedRoot("ns", "a/m", version).settle(version)
    store.drop_code("a/m", frozenset("2"))
    assert (AgreedRoot("ns", "a/m", "1").root(), AgreedRoot("ns", "a/m", "2").root()) == (None, "2")
    monkeypatch.setattr(agreed_root.internal_kv, "_internal_kv_put", lambda key, value, *, overwrite, namespace: True)
    assert AgreedRoot("ns", "a/m", "1").settle("r") == "r", "of a version that goes nothing is kept"


def test_workers_of_a_version_never_have_two_sets_of_weights(kept, tmp_path):
    """Of a deployment whose user gives weight_bytes nobody declares what is in the file."""
    file = saved(tmp_path / "w.safetensors", {"w": torch.ones(256)})
    places = Places(MemoryOptions(device="cpu"), "test", uuid.uuid4().hex, NodeMemory((2**20,), 2**20))
    user = SimpleNamespace()

    async def loaded(version):
        held = HeldWeights(str(file), None, places, AgreedRoot("ns", "a/m", version))
        try:
            await held.load(user, (0,), (2**20,), lambda done, total: None)
            return float(user.weights["w"].sum())
        finally:
            await held.leave(user, keep_copy=False)

    assert asyncio.run(loaded("1")) == 256.0
    saved(file, {"w": torch.zeros(256)})
    with pytest.raises(WeightsChangedError):
        asyncio.run(loaded("1"))
    assert asyncio.run(loaded("2")) == 0.0
