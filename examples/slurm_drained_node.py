"""Four ranks on a Slurm of three nodes, on this machine: rank 0's node is drained, then the controller is killed.

    python examples/slurm_drained_node.py

From a checkout, where Slurm's programs are: it brings up a Slurm of its own on loopback, and leaves one that runs here alone.
On a cluster it is `rankcore run` and `rankcore status` all the same, with `--option partition=...`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.slurm_local import MISSING, REASON, LocalSlurm, local_slurm

PATIENCE_S = 120.0
SHARD = """
from executors.ray_gpu import deployment, get_replica_context

@deployment(num_replicas=4)
class Shard:
    def __init__(self):
        own = get_replica_context()
        print(f"rank {own.rank.rank} of {own.world_size}", flush=True)

app = Shard.bind()
"""
OPTIONS = ("allow_weak_proctrack=true", "poll_s=0.3", "lease_s=4", "cpus=4")


class Run:
    """`rankcore run --executor slurm` as a user types it, in a folder with the application."""

    def __init__(self, folder: Path) -> None:
        (folder / "shard.py").write_text(SHARD)
        self.folder, self.log = folder, folder / "run.log"
        paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
        self.env = {**os.environ, "PYTHONPATH": paths, "RANKCORE_NAMESPACE": f"slurm-{os.getpid()}"}

    @contextmanager
    def begun(self) -> Iterator["subprocess.Popen[str]"]:
        """The command, which is killed at the end if it has not ended."""
        said = [f"--option={each}" for each in (f"folder={self.folder / 'shared'}", *OPTIONS)]
        call = [sys.executable, "-m", "executors.cli", "run", "shard:app", "--executor", "slurm", *said]
        with self.log.open("a") as log:
            process = subprocess.Popen(call, cwd=self.folder, env=self.env, stdout=log, stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def asked(self, verb: str, *arguments: str) -> list[str]:
        """The lines that a command prints."""
        call = [sys.executable, "-m", "executors.cli", verb, *arguments, "--executor", "slurm"]
        done = subprocess.run(call, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60)
        return done.stdout.splitlines()

    def seats(self) -> dict[int, tuple[str, str]]:
        """Replica and node of each rank that runs, as `rankcore status` shows them."""
        rows = [line.split() for line in self.asked("status") if " RUNNING " in line]
        return {int(row[0]): (row[4], row[5]) for row in rows}

    def until(self, wanted: Callable[[Mapping[int, tuple[str, str]]], bool]) -> dict[int, tuple[str, str]]:
        """Wait for seats such as these."""
        end_s = time.monotonic() + PATIENCE_S
        while not wanted(seats := self.seats()):
            if time.monotonic() > end_s:
                raise SystemExit(f"not within {PATIENCE_S:g} s: {seats}\n{self.log.read_text()[-2_000:]}")
            time.sleep(0.1)
        return seats


def show(what: str, seats: Mapping[int, tuple[str, str]]) -> None:
    """A row."""
    print(f"{what:<38}" + "".join(f"{seats[rank][1]:>8}" for rank in sorted(seats)), flush=True)


def demo(slurm: LocalSlurm, folder: Path) -> None:
    """Drain, kill, and print which rank is where."""
    run = Run(folder)
    with run.begun() as controller:
        before = run.until(lambda seats: len(seats) == 4)
        print(f"{'node of rank':<38}" + "".join(f"{rank:>8}" for rank in range(4)))
        show("four jobs", before)
        drained = before[0][1]
        slurm.run("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=fan")
        moved = run.until(lambda seats: len(seats) == 4 and drained not in {node for _, node in seats.values()})
        show(f"{drained} is drained", moved)
        stayed = [rank for rank, seat in before.items() if moved[rank] == seat]
        print(f"  ranks {stayed} are the same jobs as before", flush=True)
        slurm.run("scontrol", "update", f"NodeName={drained}", "State=RESUME")
        controller.kill()
    with run.begun() as controller:
        end_s = time.monotonic() + PATIENCE_S
        while "RECOVERING" not in run.log.read_text() and time.monotonic() < end_s:
            time.sleep(0.1)
        after = run.until(lambda seats: len(seats) == 4)
        show("its controller is killed, and another", after)
        print(f"  ranks {[rank for rank in after if after[rank] == moved[rank]]} are the same jobs as before", flush=True)
        controller.send_signal(signal.SIGINT)
        status = controller.wait(PATIENCE_S)
    print(f"Ctrl-C: exit status {status}, jobs left: {len(slurm.run('squeue', '--noheader').split())}")


if __name__ == "__main__":
    if MISSING:
        raise SystemExit(REASON)
    with tempfile.TemporaryDirectory(prefix="rc-") as name, local_slurm(Path(name) / "cluster") as slurm:
        demo(slurm, Path(name))
