"""Whom a controller that begins finds: jobs that Slurm lists, and files that replicas have left."""

import time

import pytest

from executors.run.fence import Fence
from executors.slurm import scheduler
from executors.slurm.errands import Listed
from executors.slurm.executor import SlurmExecutor
from executors.slurm.folder import AT, BORN, ENDED, START, claim, identity, prepare, unlisted
from executors.slurm.options import SlurmOptions
from executors.slurm.scheduler import Comment, Job, NodeSeen
from rankcore import DeploymentSpec
from rankcore.commands import StartReplica
from rankcore.events import ReplicaDied, ReplicaPending, ReplicaStopped

UP = NodeSeen("idle", True, 8, "")
SPEC = DeploymentSpec(name="a/m", target_replicas=1)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A controller that finds one job, of a replica that was born here, in a state and of a folder."""
    prepare(tmp_path)
    claim(tmp_path, "1.0")
    (tmp_path / START / "1.0").write_text('{"token": "t"}')
    (tmp_path / AT / "1.0").write_text("")
    monkeypatch.setattr(scheduler, "nodes", lambda partition: {"n0": UP})

    def executor(state, folder, token="t"):
        there = Job("7", state, "n0", "None", Comment("a/m#1.0", 1, token, folder))
        monkeypatch.setattr(scheduler, "jobs", lambda name: {token: there})
        return SlurmExecutor(tmp_path, "m:app", lambda: SPEC, 2, SlurmOptions(), Fence(tmp_path, 2))

    def begin(*given):
        executor = begin.executor(*given)
        found = {each: replica.token for each, replica in executor.replicas.items()}
        executor.close()
        return found

    begin.executor = executor
    return begin


def test_a_job_of_that_name_in_another_folder_is_left_alone(tmp_path, begun, monkeypatch):
    monkeypatch.setattr(scheduler, "end", lambda job_id: pytest.fail("it is somebody else's"))
    assert begun("RUNNING", "another folder", "theirs") == {"a/m#1.0": "t"}, "and ours is a survivor that Slurm does not list"


def test_a_folder_in_which_hundreds_have_lived_is_as_it_was(tmp_path, begun, monkeypatch):
    """Whether they end by themselves or by an order, and also where the order comes after the end."""
    monkeypatch.setattr(scheduler, "submit", lambda *_: "8")
    monkeypatch.setattr(scheduler, "end", lambda job_id: None)
    executor = begun.executor("CANCELLED", identity(tmp_path))
    before = files_in(tmp_path)
    for number in range(300):
        replica_id, serial = f"a/m#2.{number}", f"2.{number}"
        executor.execute(StartReplica(replica_id, 0, "1", None, (), 2))
        replica = executor.replicas[replica_id]
        eventually((tmp_path / START / serial).exists)
        claim(tmp_path, serial)
        (tmp_path / AT / serial).write_text("127.0.0.1 5 7")
        if number % 3:
            executor.kill(replica)
        if number % 3 == 1:
            eventually((tmp_path / ENDED / serial).exists)
        over = Job("8", "CANCELLED", "n0", "None", Comment(replica_id, 2, replica.token, identity(tmp_path)))
        executor._see(Listed({replica.token: over}, {"n0": UP}, frozenset(), {replica_id: 7}))
        told = [executor.poll()]
        assert isinstance(told[-1], ReplicaDied), told
        executor.execute(StartReplica(replica_id, 0, "1", None, (), 2))
        assert isinstance(executor.poll(), ReplicaStopped), "it has had its life"
    executor.close()
    eventually(lambda: not executor._errands._thread.is_alive())
    assert files_in(tmp_path) == before


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def eventually(condition):
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_why_a_job_waits_is_told_in_the_words_of_slurm_whenever_they_change(tmp_path, begun):
    executor = begun.executor("PENDING", identity(tmp_path))
    executor.execute(StartReplica("a/m#2.0", 0, "1", None, (), 2))
    token = executor.replicas["a/m#2.0"].token
    reasons = ("None", "Resources", "Resources", "ReqNodeNotAvail, UnavailableNodes:n0", "JobHeldUser", "BeginTime")
    for reason in reasons:
        waits = Job("8", "PENDING", "", reason, Comment("a/m#2.0", 2, token, identity(tmp_path)))
        executor._see(Listed({token: waits}, {}, frozenset(), {}))
    told = [executor.poll() for _ in range(4)]
    executor.close()
    assert all(isinstance(each, ReplicaPending) for each in told), told
    assert [(each.reason, each.no_room) for each in told] == [
        ("Slurm says Resources", True),
        ("Slurm says ReqNodeNotAvail, UnavailableNodes:n0", True),
        ("Slurm says JobHeldUser", True),
        ("Slurm says BeginTime", False),
    ]


@pytest.mark.parametrize(("state", "survives"), [("CANCELLED", False), ("RUNNING", True)])
def test_whose_job_ended_while_no_controller_was_there_is_no_survivor_once_slurm_has_forgotten_it(
    tmp_path, begun, state, survives
):
    found = begun(state, identity(tmp_path))
    assert found == ({"a/m#1.0": "t"} if survives else {})
    assert [each for each, _ in unlisted(tmp_path, "a/m", {})] == list(found)
    assert [(tmp_path / name / "1.0").exists() for name in (START, BORN)] == [survives, survives]
