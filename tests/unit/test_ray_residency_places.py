"""The memory of a node that fleets use: what is left of them."""

import os
import subprocess
import sys
import uuid

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.residency import places as places_module
from executors.ray_gpu.residency.options import FleetOptions
from executors.ray_gpu.residency.places import NodeMemory, Places, forget, measure
from executors.torch_weights.progress import Progress

OPTIONS = FleetOptions(device="cpu", stand_in_gpu_bytes=(2**20,), cache_bytes=2**20)
KILLED = """
import os, sys
from executors.torch_weights.leases import LeaseFolder
from pathlib import Path
leases = LeaseFolder(Path(sys.argv[1]))
with leases.locked():
    leases.take("copy", 4096)
os.kill(os.getpid(), 9)
"""


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
    assert list(memory.iterdir()) == []


@pytest.mark.parametrize("namespace", ["a/b", "../a", "a b\u00e4", "x" * 500])
def test_whatever_a_namespace_is_called_its_folder_is_one_in_the_memory_of_the_node(memory, namespace):
    here = places(namespace)
    here.device(0).memory()
    assert [each.name for each in memory.iterdir()] == [here._folder().name]
