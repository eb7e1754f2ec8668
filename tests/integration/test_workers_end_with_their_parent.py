"""Commands that work in several processes leave none of them behind, whatever ends the command itself."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executors.workers import in_processes

ROOT = Path(__file__).resolve().parents[2]
LONG = """\
nodes: [{name: n, count: 2, gpus: 2}]
deployments: [{name: llm, target_replicas: 3}]
fault_rates: [{kind: replica_crash, deployment: llm, mtbf_s: 5}]
duration_s: 1500000
"""
COMMANDS = {
    "compare": ("compare", "s.yaml", "t.yaml", "--runs", "2", "--jobs", "2"),
    "sweep": ("sweep", "s.yaml", "--vary", "target_replicas=2,3", "--jobs", "2"),
    "swarm": ("swarm", "--seeds", "1000000", "--jobs", "2"),
}


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


def stat_of(pid: int) -> tuple[str, int] | None:
    """State and parent of a process; None: there is none, or nothing of it but its exit status."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else (state, int(parent))


def offspring(pid: int) -> set[int]:
    alive = {int(path.name): stat for path in Path("/proc").glob("[0-9]*") if (stat := stat_of(int(path.name)))}
    found = {pid}
    while more := {child for child, (_, parent) in alive.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_any_at_work(pid: int) -> bool:
    """Whether a process that it started has used half a second of a processor, and so is past its own start."""
    fields = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in offspring(pid)]
    return any((int(each[11]) + int(each[12])) / os.sysconf("SC_CLK_TCK") > 0.5 for each in fields)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed in /proc")
@pytest.mark.parametrize(
    ("command", "name"), [*((command, signal.SIGKILL) for command in COMMANDS), ("compare", signal.SIGTERM)]
)
def test_workers_end_with_their_parent(tmp_path, command, name):
    (tmp_path / "s.yaml").write_text(LONG)
    (tmp_path / "t.yaml").write_text(LONG.replace("mtbf_s: 5", "mtbf_s: 6"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "executors.cli", *COMMANDS[command]],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as parent:
        eventually(lambda: parent.poll() is not None or is_any_at_work(parent.pid), "no worker is at work")
        assert parent.poll() is None, "the command has ended by itself"
        workers = eventually(lambda: len(found := offspring(parent.pid)) >= 3 and found, "fewer than two workers")
        try:
            parent.send_signal(name)
            parent.wait(60)
            eventually(lambda: not any(map(stat_of, workers)), f"still there: {list(filter(stat_of, workers))}")
        finally:
            for pid in filter(stat_of, workers):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("taken", [1, 5], ids=["left early", "to the end"])
def test_work_that_is_left_leaves_neither_a_process_nor_a_thread(taken):
    """A thread of the pool that outlives the work closes the pipe to which the interpreter writes at its exit."""
    before = set(threading.enumerate())
    work = in_processes((1, 2, 3, 4, 5), abs, jobs=2)
    assert {next(work)[1] for _ in range(taken)} <= {1, 2, 3, 4, 5}
    work.close()
    assert set(threading.enumerate()) == before
    assert multiprocessing.active_children() == []
