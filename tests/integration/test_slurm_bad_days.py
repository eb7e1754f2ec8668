"""A real Slurm that is stopped, full, or shared with others, and controllers that are killed around a submission."""

import json
import os
import random
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from executors.line_bench import ask
from executors.slurm.folder import BORN, START, listens_at
from rankcore.commands import KillReplica, StartReplica
from rankcore.events import (
    ReplicaDied,
    ReplicaPending,
    ReplicaPlaced,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
)
from rankcore.testing.conformance.contract import Line, Seat
from tests.conformance.slurm import LoopbackBench, bench, finals, for_s, slurm, until
from tests.slurm_local import MISSING, REASON

__all__ = ["bench", "slurm"]
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=REASON), pytest.mark.night]
TRIALS = int(os.environ.get("SLURM_TRIALS", "20"))


def end_all(seat, *replica_ids):
    for replica_id in replica_ids:
        seat.do(KillReplica(replica_id=replica_id, epoch=seat.epoch))
    until(seat, lambda: {each.replica_id for each in finals(seat)} >= set(replica_ids), "they have ended")


def test_another_users_job_of_the_same_name_and_token_is_none_of_ours(bench, slurm):
    """A token is no secret: all users of a cluster see the comments of jobs. What opens a replica is in the folder alone."""
    seat = Seat(bench, Line.TRUE)
    replica_id = seat.placed(0)
    (serial,) = bench.serials()
    token = json.loads((bench.folder / START / serial).read_text())["token"]
    name, comment = f"rankcore/{bench.namespace}/{bench.name}", {"replica": replica_id, "epoch": seat.epoch, "token": token}
    assert token in slurm.run("squeue", "-h", f"--name={name}", "--format=%k")
    (address, secret) = listens_at(bench.folder, serial)
    answers = []
    for said in (token, secret):
        connection = socket.create_connection(address, 10.0)
        connection.sendall(f"{said}\n".encode())
        answers.append(ask(connection))
    assert answers[0] is None
    assert answers[1].replica_id == replica_id
    theirs = ("--uid=65534", "--chdir=/", "--output=/dev/null", "--hold", f"--job-name={name}", "--wrap=true")
    forged = {**comment, "replica": f"{bench.name}#1.7", "token": "forged"}
    for each in (comment, forged):
        slurm.run("sbatch", f"--comment={json.dumps(each)}", *theirs)
    for_s(seat, 2.0)
    assert finals(seat) == []
    successor = seat.successor()
    assert list(bench.survivors()) == [replica_id]
    for_s(successor, 2.0)
    assert finals(successor) == []
    assert not (bench.folder / BORN / "1.7").exists()
    assert len(slurm.run("squeue", "-h", "--user=65534", f"--name={name}").splitlines()) == 2, "theirs are left alone"


def test_two_deployments_at_once_know_nothing_of_each_other(tmp_path, slurm):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with LoopbackBench(tmp_path / "a", slurm) as one, LoopbackBench(tmp_path / "b", slurm) as other:
        seats = [Seat(each, Line.TRUE) for each in (one, other)]
        (mine, theirs) = [each.placed(0) for each in seats]
        assert mine == theirs, "the same id in each"
        successor = seats[0].successor()
        assert list(one.survivors()) == [mine]
        end_all(successor, mine)
        for_s(seats[1], 2.0)
        assert finals(seats[1]) == []
        assert len(list(other.processes())) == 1
        end_all(seats[1], theirs)


def test_a_job_that_waits_too_long_for_room_is_a_failed_start_and_leaves_none_behind(bench, slurm):
    filler = slurm.run("sbatch", "--parsable", "--exclusive", "--nodes=3", "--output=/dev/null", "--wrap=sleep 600").strip()
    bench.options = replace(bench.options, pending_timeout_s=2.0)
    seat = Seat(bench, Line.FINAL)
    until(seat, lambda: "RUNNING" in slurm.run("squeue", "-h", f"--jobs={filler}", "-o", "%T"), "the cluster is full")
    start = seat.start_of(0)
    seat.do(start)
    until(seat, lambda: finals(seat), "it has failed")
    (failed,) = finals(seat)
    assert isinstance(failed, ReplicaStartFailed)
    assert failed.reason.startswith("no room for 2 s: ")
    assert any(isinstance(each, ReplicaPending) and each.no_room for each in seat.news)
    slurm.run("scancel", filler)
    seat.do(start)
    until(seat, lambda: len(finals(seat)) == 2, "a repeated start is answered with its end")
    again = seat.placed(1)
    assert [each.node_id for each in seat.news if isinstance(each, ReplicaPlaced)] != []
    assert len(list(bench.processes())) == 1
    end_all(seat, again)


def test_slurmctld_that_is_stopped_while_it_is_asked_starts_each_once(bench, slurm):
    """SL5: an sbatch that times out is unknown until a list decides."""
    seat = Seat(bench, Line.START)
    first = seat.placed(0)
    os.kill(slurm.pid("slurmctld"), signal.SIGSTOP)
    try:
        start = seat.start_of(1)
        seat.do(start)
        until(seat, lambda: bench.executors[-1]._errands._unsure, "an sbatch has timed out")
        assert finals(seat) == []
    finally:
        os.kill(slurm.pid("slurmctld"), signal.SIGCONT)
    until(seat, lambda: seat.told(ReplicaPlaced, start.replica_id), "it is placed")
    for_s(seat, 3.0)
    assert len(list(bench.processes())) == 2
    assert finals(seat) == []
    end_all(seat, first, start.replica_id)


def test_slurmd_that_is_stopped_ends_nobody_and_goes_on(bench, slurm):
    """SL2: what Slurm says of a node that is silent is a suspicion; once its daemon goes on, the end is told and true."""
    seat = Seat(bench, Line.TRUE)
    replica_id = seat.placed(0)
    node_id = next(each.node_id for each in seat.news if isinstance(each, ReplicaPlaced))
    (pid,) = bench.processes(node_id)
    os.kill(slurm.pid(f"slurmd-{node_id}"), signal.SIGSTOP)
    try:
        until(seat, lambda: seat.told(ReplicaUnhealthy, replica_id), "Slurm is in doubt")
        for_s(seat, 10.0)
        assert Path(f"/proc/{pid}").exists()
        assert finals(seat) == []
    finally:
        os.kill(slurm.pid(f"slurmd-{node_id}"), signal.SIGCONT)
    until(seat, lambda: finals(seat) or not seat.bench.executors[-1].replicas[replica_id].doubted, "Slurm has made up its mind")
    assert [type(each) for each in finals(seat)] == ([] if Path(f"/proc/{pid}").exists() else [ReplicaDied])
    end_all(seat, replica_id)
    assert not Path(f"/proc/{pid}").exists()


def test_a_controller_that_is_killed_around_a_submission_leaves_at_most_one_life(bench, slurm):
    """SL4: wherever it dies, its successor finds who lives and ends that; what comes up later, of an sbatch that outlives who
    called it, reads the fence at its birth, and ends before any user code.
    """
    drawn = random.Random(7)
    tried, lived, late = [], 0, 0
    for number in range(TRIALS):
        epoch = 2 * number + 2
        tried.append(f"{bench.name}#{epoch}.0")
        child = os.fork()
        if not child:
            with suppress(BaseException):
                executor = bench.open(epoch)
                executor.execute(StartReplica(tried[-1], 0, "1", None, (), epoch))
                while True:
                    executor.poll()
                    executor.wait(0.05)
            os._exit(1)
        time.sleep(drawn.uniform(0.0, drawn.choice((0.3, 4.0))))  # before sbatch, in it, before the job begins, once it listens
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seat = Seat(bench, Line.START, epoch + 1)
        survivors = set(bench.survivors())
        assert survivors <= set(tried), number
        lived, late = lived + (tried[-1] in survivors), late + len(survivors - {tried[-1]})
        assert {each.replica_id for each in bench.replicas()} <= {tried[-1]}, "no other runs user code"
        end_all(seat, tried[-1])
        assert {type(each) for each in finals(seat) if each.replica_id == tried[-1]} == {ReplicaStopped}
        until(seat, lambda: not list(bench.processes()), f"trial {number}: it is gone")
        bench.crash(bench.executors[-1])
    print(f"of {TRIALS} controllers that were killed {lived} left a replica; {late} came up later, and ended")
    end = time.monotonic() + 8.0
    while time.monotonic() < end:
        assert list(bench.replicas()) == []
        time.sleep(0.1)
    assert list(bench.processes()) == []
