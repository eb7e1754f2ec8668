"""The bench of the executor on Slurm, on loopback: here a node can be taken away, and processes be counted.

`slurm` and `bench` are fixtures for all tests on it; the rest is how they wait.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from executors.slurm.bench import SlurmBench
from executors.slurm.options import SlurmOptions
from rankcore.events import FINAL
from tests.slurm_local import local_slurm

PATIENCE_S = float(os.environ.get("SLURM_PATIENCE_S", "90"))
OPTIONS = SlurmOptions(poll_s=0.2, lease_s=3.0, pending_timeout_s=60.0, allow_weak_proctrack=True)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with local_slurm(tmp_path_factory.mktemp("slurm") / "cluster") as found:
        yield found


@pytest.fixture
def bench(tmp_path, slurm):
    with LoopbackBench(tmp_path, slurm) as found:
        yield found


class LoopbackBench(SlurmBench):
    """All nodes are this machine."""

    patience_s = PATIENCE_S

    def __init__(self, folder, slurm):
        super().__init__(folder, OPTIONS)
        self.slurm = slurm

    def lose_node(self, node_id):
        self.there_are.remove(node_id)
        self.slurm.lose_node(node_id)
        for pid in self.processes(node_id):
            kill_with_step(pid)

    def processes(self, node_id=None):
        """The replicas of this bench, by what is in /proc, on one node or on all."""
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if str(self.folder).encode() in (path / "cmdline").read_bytes().split(b"\0"):
                    where = (path / "environ").read_bytes().split(b"\0")
                    if node_id is None or f"SLURMD_NODENAME={node_id}".encode() in where:
                        yield int(path.name)

    def __exit__(self, *_):
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for node in set(self.slurm.nodes) - set(self.there_are):
            self.slurm.start_node(node)
        self.slurm.run("scancel", "--quiet", f"--name=rankcore/{self.namespace}/{self.name}")  # those of other users too
        super().__exit__()
        deadline = time.monotonic() + 60.0
        while not self.are_idle():
            assert time.monotonic() < deadline, self.slurm.run("squeue") + self.slurm.run("sinfo", "-N")
            time.sleep(0.1)

    def are_idle(self):
        return len(self.slurm.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()) == len(self.slurm.nodes)


def kill_with_step(pid):
    """A job's process, and slurmstepd, its parent, which would tell of its end."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parent = int(fields[1])
        if b"slurmstepd" in Path(f"/proc/{parent}/cmdline").read_bytes():
            os.kill(parent, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def finals(seat):
    return [each for each in seat.news if isinstance(each, FINAL)]


def until(seat, condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, (what, seat.news)
        seat.bench.advance()
        seat.look()


def for_s(seat, seconds):
    end = time.monotonic() + seconds
    until(seat, lambda: time.monotonic() > end, "time passes")
