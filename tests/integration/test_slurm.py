"""A real Slurm of three nodes: ranks that survive a drained node and a killed controller, and no end that is none."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankcore.commands import KillReplica
from rankcore.events import FINAL, ReplicaDied, ReplicaPlaced, ReplicaUnhealthy
from rankcore.testing.conformance.contract import Line, Seat
from tests.slurm_local import MISSING, REASON, local_slurm

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=REASON), pytest.mark.night]
ROOT = Path(__file__).resolve().parents[2]
APPLICATION = """
from executors.ray_gpu import deployment

@deployment(num_replicas=3)
class Shard:
    def reconfigure(self, user_config, rank):
        pass

app = Shard.bind()
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with local_slurm(tmp_path_factory.mktemp("slurm") / "cluster") as found:
        yield found


def eventually(condition, what, timeout_s=90.0):
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


class Command:
    """`rankcore run --executor slurm` as a user types it."""

    def __init__(self, folder: Path) -> None:
        (folder / "shard.py").write_text(APPLICATION)
        self.folder, self.name = folder, f"slurm-{os.getpid()}"
        self.env = {**os.environ, "PYTHONPATH": str(ROOT), "RANKCORE_NAMESPACE": self.name}

    def start(self, *options: str) -> subprocess.Popen[str]:
        said = (f"folder={self.folder / 'shared'}", "allow_weak_proctrack=true", "poll_s=0.3", "lease_s=4", *options)
        arguments = [part for each in said for part in ("--option", each)]
        call = [sys.executable, "-m", "executors.cli", "run", "shard:app", "--executor", "slurm", *arguments]
        log = (self.folder / "log").open("a")
        return subprocess.Popen(call, cwd=self.folder, env=self.env, stdout=log, stderr=log, text=True)

    def seats(self) -> dict[int, tuple[str, str]]:
        """Replica and node of each rank that runs, as `rankcore status` shows them."""
        call = [sys.executable, "-m", "executors.cli", "status", "--executor", "slurm"]
        shown = subprocess.run(call, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60).stdout
        rows = [line.split() for line in shown.splitlines() if " RUNNING " in line]
        return {int(row[0]): (row[4], row[5]) for row in rows}


def test_ranks_survive_a_drained_node_and_a_killed_controller(tmp_path, slurm):
    command = Command(tmp_path)
    controller = command.start()
    try:
        before = eventually(lambda: found if len(found := command.seats()) == 3 else None, (tmp_path / "log").read_text)
        drained = before[0][1]
        slurm.run("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=fan")
        moved = eventually(
            lambda: (
                found if len(found := command.seats()) == 3 and drained not in {node for _, node in found.values()} else None
            ),
            "the drained node is left",
        )
        slurm.run("scontrol", "update", f"NodeName={drained}", "State=RESUME")
        controller.kill()
        controller.wait()
        controller = command.start()
        eventually(lambda: "RECOVERING" in (tmp_path / "log").read_text(), "a successor begins")
        assert eventually(lambda: found if len(found := command.seats()) == 3 else None, "it has them") == moved
        controller.send_signal(signal.SIGINT)
        assert controller.wait(60) == 0
        eventually(lambda: not slurm.run("squeue", "-h").strip(), "no job is left")
    finally:
        controller.kill()
        controller.wait()


@pytest.fixture
def bench(tmp_path, slurm):
    from tests.conformance.slurm import SlurmBench

    with SlurmBench(tmp_path, slurm) as bench:
        yield bench


def finals(seat):
    return [each for each in seat.news if isinstance(each, FINAL)]


def until(seat, condition, what, timeout_s=90.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, (what, seat.news)
        seat.bench.advance()
        seat.look()


def test_a_node_whose_daemon_is_killed_is_a_suspicion_until_the_lease_is_over(bench, slurm):
    """SL2: no end is told while the process lives; an order to end reaches it by the folder."""
    seat = Seat(bench, Line.FINAL)
    replica_id = seat.placed(0)
    node_id = next(each.node_id for each in seat.news if isinstance(each, ReplicaPlaced))
    (pid,) = bench.processes(node_id)
    slurm.lose_node(node_id)
    bench.there_are.remove(node_id)  # whose daemon the bench starts again at its end
    until(seat, lambda: seat.told(ReplicaUnhealthy, replica_id), "Slurm is in doubt")
    begun = time.monotonic()
    until(seat, lambda: time.monotonic() > begun + 12.0, "its lease is renewed meanwhile")
    assert Path(f"/proc/{pid}").exists()
    assert finals(seat) == []
    seat.do(KillReplica(replica_id=replica_id, epoch=seat.epoch))
    until(seat, lambda: finals(seat), "its end is told")
    assert not Path(f"/proc/{pid}").exists()


def test_a_replica_that_slurm_has_forgotten_is_a_survivor_and_ends_only_once_it_is_gone(bench, slurm):
    seat = Seat(bench, Line.FINAL)
    replica_id = seat.placed(0)
    (pid,) = bench.processes()
    os.kill(slurm.pid("slurmctld"), signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{slurm.pid('slurmctld')}").exists(), "it has ended")
    slurm.run("slurmctld", "-c")  # with no state: it knows no job
    eventually(lambda: slurm.run("sinfo", "-h"), "it answers")
    successor = seat.successor()
    assert list(bench.survivors()) == [replica_id]
    until(successor, lambda: finals(successor), "it is told, once its lease is over")
    assert not Path(f"/proc/{pid}").exists()
    assert [type(each) for each in finals(successor)] == [ReplicaDied]


def test_a_controller_of_slurm_that_crashes_after_a_submission_brings_no_second_life(bench, slurm):
    """SL4: at most one process of a replica has ever begun, and its end is told once at most."""
    seat = Seat(bench, Line.FINAL)
    seat.do(seat.start_of(0))
    time.sleep(0.8)  # as it was measured: the job is acknowledged, and not yet in what Slurm stores
    os.kill(slurm.pid("slurmctld"), signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{slurm.pid('slurmctld')}").exists(), "it has ended")
    slurm.start_controller()
    until(seat, lambda: len(list(bench.processes())) == 1 or finals(seat), "it runs, or has ended")
    begun = time.monotonic()
    until(seat, lambda: time.monotonic() > begun + 15.0, "a second life would begin now")
    assert len(list(bench.processes())) <= 1
    assert len(finals(seat)) <= 1
