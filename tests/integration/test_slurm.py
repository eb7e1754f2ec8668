"""A real Slurm of three nodes: ranks that survive a drained node and a killed controller, and no end that is none."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.slurm_drained_node import Run
from rankcore.commands import KillReplica
from rankcore.events import ReplicaDied, ReplicaPlaced, ReplicaUnhealthy
from rankcore.testing.conformance.contract import Line, Seat
from tests.conformance.slurm import bench, finals, for_s, slurm, until
from tests.slurm_local import MISSING, REASON

__all__ = ["bench", "slurm"]
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=REASON), pytest.mark.night]
ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


def eventually(condition, what, timeout_s=90.0):
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


def test_ranks_survive_a_drained_node_and_a_killed_controller(tmp_path, slurm):
    command = Run(tmp_path)
    with command.begun() as controller:
        before = command.until(lambda seats: len(seats) == 4)
        assert f"what they print is in {tmp_path / 'shared'}" in command.log.read_text()
        assert eventually(lambda: command.asked("logs", "Shard"), "they have printed")[-1].endswith("of 4")
        drained = before[0][1]
        slurm.run("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=fan")
        moved = command.until(lambda seats: len(seats) == 4 and drained not in {node for _, node in seats.values()})
        slurm.run("scontrol", "update", f"NodeName={drained}", "State=RESUME")
        controller.kill()
    with command.begun() as controller:
        eventually(lambda: command.log.read_text().count("replicas are those of") == 2, "a successor has begun")
        assert command.until(lambda seats: len(seats) == 4) == moved
        controller.send_signal(signal.SIGINT)
        assert controller.wait(60) == 0
    eventually(lambda: not slurm.run("squeue", "-h").strip(), "no job is left")


def test_a_user_tries_the_kit_on_a_cluster_and_hears_what_a_user_may_not_do(tmp_path, slurm):
    options = (f"folder={tmp_path / 'shared'}", "allow_weak_proctrack=true", "poll_s=0.2", "lease_s=3")
    call = (sys.executable, "-m", "executors.cli", "conform", "slurm", *(f"--option={each}" for each in options), "--seeds=0")

    def tried(*arguments):
        return subprocess.run((*call, *arguments), capture_output=True, text=True, env={**os.environ, **ENV})

    done = tried("-k", "a replica that hangs or loss of a node or a kill is answered")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[1] for line in done.stdout.splitlines()[:-1]] == ["kept", "skipped", "kept"]
    assert "1 skipped (no node is taken away: only who runs the cluster may do that: 1)" in done.stdout.splitlines()[-1]
    assert list((tmp_path / "shared").iterdir()) == []
    eventually(lambda: not slurm.run("squeue", "-h").strip(), "no job is left")
    for option, problem in (("cpus=3", "found of Slurm none of 3"), ("time=soon", "Invalid --time specification")):
        refused = tried(f"--option={option}")
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert "executor 'slurm'" in refused.stderr
        assert problem in refused.stderr


def test_the_example_keeps_every_rank_and_moves_those_of_the_drained_node():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "slurm_drained_node.py"], capture_output=True, text=True, env=ENV
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split()[-4:] for line in done.stdout.splitlines() if line.endswith(("n0", "n1", "n2"))]
    first, moved, after = rows
    assert moved == after
    stayed = [rank for rank in range(4) if first[rank] == moved[rank]]
    assert stayed
    assert first[0] not in moved
    assert f"ranks {stayed} are the same jobs as before" in done.stdout
    assert "ranks [0, 1, 2, 3] are the same jobs as before" in done.stdout
    assert "Ctrl-C: exit status 0, jobs left: 0" in done.stdout


def test_a_node_whose_daemon_is_killed_is_a_suspicion_until_the_lease_is_over(bench, slurm):
    """SL2: no end is told while the process lives; an order to end reaches it by the folder."""
    seat = Seat(bench, Line.FINAL)
    replica_id = seat.placed(0)
    node_id = next(each.node_id for each in seat.news if isinstance(each, ReplicaPlaced))
    (pid,) = bench.processes(node_id)
    slurm.lose_node(node_id)
    bench.there_are.remove(node_id)  # whose daemon the bench starts again at its end
    until(seat, lambda: seat.told(ReplicaUnhealthy, replica_id), "Slurm is in doubt")
    for_s(seat, 12.0)  # its lease is renewed meanwhile
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
    for_s(seat, 15.0)  # a second life would begin now
    assert len(list(bench.processes())) <= 1
    assert len(finals(seat)) <= 1
