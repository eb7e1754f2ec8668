"""The executor in docs/executors.md runs as it stands there, and prints what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "executors.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, block in zip(("replica.py", "local_executor.py", "run.py"), BLOCKS, strict=True):
        (tmp_path / name).write_text(block, encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_the_guide_s_executor_replaces_a_killed_process_under_its_rank(folder):
    done = run(folder, "run.py")
    assert (done.stdout, done.returncode) == (PRINTED, 0), done.stderr


CONTRACT = """
import time
from local_executor import LocalExecutor
from rankcore import ReplicaRank
from rankcore.commands import *
from rankcore.events import *

executor = LocalExecutor()

def next_of(kind):
    while not isinstance(event := executor.poll(), kind):
        time.sleep(0.005)
    return event

def rank(number):
    return {"rank": ReplicaRank(number, 0, number), "world_size": 2, "user_config": None, "config_id": "c", "epoch": 2}

executor.execute(StopReplica("x#1.7", 1.0, 2))
executor.execute(KillReplica("x#1.8", 2))
executor.execute(QueryReplica("x#1.9", 2))
assert next_of(ReplicaStopped).replica_id == "x#1.7"
assert next_of(ReplicaStopped).replica_id == "x#1.8"
assert next_of(ReplicaMissing).replica_id == "x#1.9"

executor.execute(StartReplica("x#1.0", 0, "1", None, (), 1))  # of an older epoch
assert executor.poll() is None and not executor.processes
executor.execute(AnnounceWorldSize(2, 9, 2))
executor.execute(StartReplica("x#2.0", 0, "1", None, (), 2))
executor.execute(StartReplica("x#2.0", 0, "1", None, (), 2))  # repeated: placed once more, started once
assert next_of(ReplicaPlaced) and next_of(ReplicaPlaced) and len(executor.processes) == 1

executor.execute(InitializeReplica("x#2.0", **rank(0), revision=10))
executor.execute(InitializeReplica("x#2.0", **rank(0), revision=10))
assert next_of(ReplicaReady) and next_of(ReplicaReady)  # acknowledged again
executor.execute(ReconfigureReplica("x#2.0", **rank(1), revision=12))
executor.execute(ReconfigureReplica("x#2.0", **rank(0), revision=11))  # overtaken: never back
assert next_of(ReplicaReconfigured).revision == 12
executor.execute(QueryReplica("x#2.0", 3))
report = next_of(ReplicaReported)
assert (report.rank.rank, report.epoch, report.ready, report.config_id) == (1, 3, True, "c")

executor.execute(WakeAt(time.monotonic(), 3))
assert next_of(ClockAdvanced)
executor.execute(StopReplica("x#2.0", 30.0, 3))
assert next_of(ReplicaStopped).replica_id == "x#2.0"
executor.execute(StartReplica("x#2.0", 0, "1", None, (), 3))  # of one that has ended: its end
assert next_of(ReplicaDied).replica_id == "x#2.0"
executor.execute(StartReplica("x#2.1", 0, "1", None, (), 3))
executor.execute(KillReplica("x#2.1", 3))
assert next_of(ReplicaStopped).replica_id == "x#2.1"
print("kept")
"""


def test_the_guide_s_executor_keeps_its_half_of_the_contract(folder):
    (folder / "contract.py").write_text(CONTRACT, encoding="utf-8")
    done = run(folder, "contract.py")
    assert (done.stdout, done.returncode) == ("kept\n", 0), done.stderr


def test_the_guide_s_executor_is_short():
    lengths = [len([line for line in block.splitlines() if line and "import" not in line]) for block in BLOCKS]
    assert lengths[0] <= 30
    assert lengths[1] <= 75
