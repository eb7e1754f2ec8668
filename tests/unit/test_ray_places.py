"""The memory of a node that fleets use: what is left of them."""

import os
import subprocess
import sys
import uuid

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.worker import places as places_module
from executors.ray_gpu.worker.options import MemoryOptions
from executors.ray_gpu.worker.places import NodeMemory, Places, forget, measure
from executors.torch_weights.progress import Progress
from tests.second_user import NEEDS_ROOT, as_another_user, shared_tmp

__all__ = ["shared_tmp"]

OPTIONS = MemoryOptions(device="cpu", stand_in_gpu_bytes=(2**20,), cache_bytes=2**20)
KILLED = """
import os, sys
from executors.torch_weights.leases import LeaseFolder
from pathlib import Path
leases = LeaseFolder(Path(sys.argv[1]))
with leases.locked():
    leases.take("copy", 4096)
os.kill(os.getpid(), 9)
"""


def plant(memory, node_id, elsewhere):
    """In memory, under every name that a fleet may want."""
    os.mkdir(f"{memory}/rankcore-0", 0o777)
    os.mkdir(f"{memory}/rankcore-0-fleet-{node_id}", 0o777)
    os.symlink(elsewhere, f"{memory}/rankcore-0-link")


@NEEDS_ROOT
def test_another_user_neither_takes_the_place_of_a_fleet_nor_has_us_look_elsewhere(shared_tmp, monkeypatch, tmp_path):
    monkeypatch.setattr(places_module, "SHARED_MEMORY", shared_tmp)
    left_by_a_killed_process(tmp_path / "elsewhere")
    here = places("fleet")
    as_another_user(plant, str(shared_tmp), here.node_id[:16], str(tmp_path))
    measure(OPTIONS)
    assert list(tmp_path.rglob("*.lease"))
    copy = here.warm_store().acquire("copy", 64, lambda _: None, Progress())
    assert [path.parts[-5] for path in shared_tmp.rglob("*.lease")] == ["rankcore-0.1"]
    copy.release()


@pytest.fixture
def memory(monkeypatch, tmp_path):
    monkeypatch.setattr(places_module, "SHARED_MEMORY", tmp_path)
    return tmp_path


def places(namespace):
    return Places(OPTIONS, namespace, uuid.uuid4().hex, NodeMemory((2**20,), 2**20))


def left_by_a_killed_process(folder):
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)


def test_what_a_killed_fleet_has_left_is_given_back_before_a_node_is_measured(memory):
    left_by_a_killed_process(places("fleet")._folder() / "warm" / "warm")
    assert list(memory.rglob("*.lease"))
    measure(OPTIONS)
    assert list(memory.rglob("*.lease")) == []


def test_what_living_processes_hold_stays_when_a_node_is_measured(memory):
    copy = places("fleet").warm_store().acquire("copy", 64, lambda _: None, Progress())
    measure(OPTIONS)
    assert list(memory.rglob("*.lease"))
    copy.release()


def test_nothing_is_left_of_a_fleet_that_has_ended(memory):
    here = places("fleet")
    left_by_a_killed_process(here._folder() / "warm" / "warm")
    forget("fleet", here.node_id)
    assert list(memory.glob("*/*")) == []


@pytest.mark.parametrize("namespace", ["a/b", "../a", "a b\u00e4", "x" * 500])
def test_whatever_a_namespace_is_called_its_folder_is_one_in_the_memory_of_the_node(memory, namespace):
    here = places(namespace)
    here.device(0).memory()
    assert [each.name for each in memory.glob("*/*")] == [here._folder().name]
