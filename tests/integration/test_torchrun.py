"""Stock torchrun with real agents on gloo: who lives keeps its rank, whoever is killed, stopped, added, or restarted."""

import os
import signal
import subprocess
import sys
import tomllib

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.cli import main
from tests.torchrun_runs import ENTRY_POINT, ROOT, WITHOUT_PIDFD, WITHOUT_TORCH, TorchrunJob

SOON = ("--lease", "4", "--last-call", "3")


@pytest.fixture
def job(tmp_path):
    with TorchrunJob(tmp_path) as job:
        yield job


def seated(job, *nodes):
    """Start agents one after another, so that each has the rank of its place, and the others are spares."""
    _, _, high = job.nnodes.partition(":")
    for node in nodes:
        job.agent(node)
    job.until(job.ranks)
    if len(nodes) > int(high):
        job.parked(len(nodes) - int(high))
    return job.ranks()


def killed(job, node):
    os.kill(job.agents.pop(node).pid, signal.SIGKILL)


def holder(ranks, rank):
    return next(node for node, each in ranks.items() if each == rank)


def test_a_spare_takes_the_rank_of_a_killed_agent_and_both_ends_are_good(tmp_path):
    with TorchrunJob(tmp_path, "1:1", train=WITHOUT_TORCH) as job:
        job.agent("a")
        job.agent("b")
        job.serve()
        job.parked(1)
        job.until(job.ranks)
        lost = holder(job.ranks(), 0)
        spare = "b" if lost == "a" else "a"
        killed(job, lost)
        job.until(lambda: job.ranks() == {spare: 0})
        assert job.stop() == {spare: 0}
        assert job.coordinator.wait(60) == 0
        assert "the job is done" in job.text("coordinator")


@pytest.mark.night
def test_the_spare_takes_exactly_rank_0_of_a_killed_agent_and_the_others_keep_theirs(job):
    job.serve()
    before = seated(job, *"abcs")
    spare = ({*"abcs"} - {*before}).pop()
    lost = holder(before, 0)
    killed(job, lost)
    job.until(lambda: spare in job.ranks())
    assert job.ranks() == {**{node: rank for node, rank in before.items() if node != lost}, spare: 0}
    assert {line["restarts"] for line in job.said() if line["kind"] == "began" and line["node"] == spare} == {0}
    assert job.said()[-1]["step"] > 0  # training goes on where it was
    assert set(job.stop().values()) == {0}


@pytest.mark.night
def test_a_spare_to_the_end_ends_well_and_restarts_nobody(job):
    job.serve()
    before = seated(job, *"abcs")
    assert len(job.agents) == 4
    assert set(job.stop().values()) == {0}
    assert job.ranks() == before
    assert len([line for line in job.said() if line["kind"] == "began"]) == 3
    assert job.coordinator.wait(60) == 0


@pytest.mark.night
def test_a_shrink_without_a_spare_moves_only_the_highest(job):
    job.serve(*SOON)
    before = seated(job, *"abc")
    lost, keeps, moves = (holder(before, rank) for rank in range(3))
    killed(job, lost)
    job.until(lambda: lost not in job.ranks() and job.ranks())
    assert job.ranks() == {keeps: 1, moves: 0}
    job.agent("d")
    job.until(lambda: "d" in job.ranks())
    assert job.ranks() == {keeps: 1, moves: 0, "d": 2}
    assert set(job.stop().values()) == {0}


@pytest.mark.night
def test_a_stopped_agent_is_replaced_when_its_lease_has_lapsed_and_ends_when_it_goes_on(job):
    job.serve(*SOON)
    before = seated(job, *"abcs")
    spare = ({*"abcs"} - {*before}).pop()
    stopped = holder(before, 1)
    process = job.agents.pop(stopped)
    os.kill(process.pid, signal.SIGSTOP)
    job.until(lambda: spare in job.ranks())
    assert job.ranks() == {**{node: rank for node, rank in before.items() if node != stopped}, spare: 1}
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(60) != 0
    assert set(job.stop().values()) == {0}


@pytest.mark.night
def test_a_coordinator_that_is_killed_and_started_again_finds_all_ranks_and_no_newcomer_takes_one(job):
    job.serve("--lease", "60")
    before = seated(job, *"abc")
    job.coordinator.kill()
    job.coordinator.wait(60)
    job.agent("n")
    number = len(job.said())
    job.serve("--lease", "60", "--restarted")
    job.until(lambda: len([line for line in job.said()[number:] if line["kind"] == "began"]) >= 3 and job.ranks())
    assert job.ranks() == before
    assert set(job.stop().values()) == {0}


@pytest.mark.night
def test_agents_end_where_no_coordinator_comes_back(job):
    job.serve(*SOON)
    seated(job, *"abc")
    job.coordinator.kill()
    job.coordinator.wait(60)
    assert all(process.wait(60) != 0 for process in job.agents.values())
    job.until(lambda: not any(job.is_worker(line["pid"]) for line in job.said()))


@pytest.mark.night
def test_an_agent_that_is_told_to_end_is_replaced_without_its_lease(job):
    job.serve("--lease", "600", program=("-c", WITHOUT_PIDFD))
    before = seated(job, *"abcs")
    spare = ({*"abcs"} - {*before}).pop()
    job.agents.pop(holder(before, 2)).terminate()
    job.until(lambda: spare in job.ranks())
    assert job.ranks()[spare] == 2
    assert set(job.stop().values()) == {0}


@pytest.mark.night
@pytest.mark.parametrize(
    ("nnodes", "conf", "said"),
    [
        ("1:1", "colour=red,nproc=1", "--rdzv-conf has colour, expected some of node_id, nproc, connect_timeout_s"),
        ("1:2", "nproc=1", "refuses this agent: MAX is 2, expected 1"),
        ("1:1", "nproc=2", "refuses this agent: nproc is 2, expected 1"),
        ("1:1", "nproc=1,node_id=a", "refuses this agent: node a has 1 already, expected no more"),
    ],
)
def test_an_agent_that_cannot_be_of_the_gang_ends_with_status_2_and_one_line(tmp_path, nnodes, conf, said):
    with TorchrunJob(tmp_path, "1:1") as job:
        job.serve("--lease", "4")
        job.agent("a")
        job.until(job.ranks)
        assert job.agent("b", nnodes, conf).wait(60) == 2
        lines = [line for line in job.text("b").splitlines() if not line.startswith("W")]  # torchrun's own warnings
        assert len(lines) == 1
        assert lines[0].startswith("rankcore: error: ")
        assert lines[0].endswith(said)


@pytest.mark.night
def test_the_example_goes_on_as_rank_0_on_the_spare():
    done = subprocess.run([sys.executable, ROOT / "examples" / "torchrun_spare.py"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("node-")]
    assert sorted(row[1:] for row in rows) == [["0", "killed", "-9"], ["1", "1", "0"], ["2", "2", "0"], ["spare", "0", "0"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--nnodes", "3:2"), "--nnodes must be MIN:MAX with 1 <= MIN <= MAX, got 3:2"),
        (("--nnodes", "2", "--run-id", ""), "--run-id must be the --rdzv-id of the job, got an empty one"),
        (("--nnodes", "2", "--lease", "inf"), "'--lease': Input should be less than or equal to 86400 (see"),
    ],
)
def test_a_coordinator_that_cannot_be_says_so_in_one_line(options, said, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rankcore", "gang", "serve", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended.value.code, line.startswith("rankcore: error: "), said in line) == (2, True, True)


def test_agents_here_are_given_the_entry_point_that_the_package_has():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    group, entry = ENTRY_POINT.split("\n", 1)
    assert dict([entry.strip().split(" = ")]) == package[group.strip("[]")]
