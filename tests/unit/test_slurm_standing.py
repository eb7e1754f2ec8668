"""What Slurm says of a job, and what is made of it: an end only where its processes are gone."""

import subprocess
import sys

import pytest

from executors.private_folder import PlaceError
from executors.slurm.folder import claim, forget, listens_at, prepare, renewed_at_ns, serial_of, unlisted
from executors.slurm.options import SlurmError, SlurmOptions
from executors.slurm.plugin import fence
from executors.slurm.scheduler import Comment, Job, NodeSeen, Where
from executors.slurm.standing import STANDINGS, JobStanding, standing

UP, SILENT, DOWN = (NodeSeen("idle", True, 8, ""), NodeSeen("idle", False, 8, ""), NodeSeen("down", False, 8, "Not responding"))


def job(state: str, node_id: str = "n0") -> Job:
    return Job("7", state, node_id, "None", Comment("app#1.0", 1, "token", "f"))


@pytest.mark.parametrize("state", [*STANDINGS, "A_STATE_OF_A_LATER_SLURM"])
def test_no_end_is_believed_while_the_node_is_silent_or_slurm_is_in_doubt(state):
    assert standing(job(state), {"n0": UP}) is STANDINGS.get(state, JobStanding.DOUBTFUL)
    for nodes in ({"n0": SILENT}, {"n0": DOWN}, {}):
        found = standing(job(state), nodes)
        assert found is not JobStanding.OVER
        assert found in (JobStanding.DOUBTFUL, JobStanding.WAITING)


def test_who_never_had_a_node_has_ended_where_slurm_says_so():
    assert standing(job("CANCELLED", ""), {}) is JobStanding.OVER
    assert standing(None, {"n0": UP}) is JobStanding.UNKNOWN


def test_a_life_is_taken_once(tmp_path):
    prepare(tmp_path)
    assert renewed_at_ns(tmp_path, "1.0") is None
    assert claim(tmp_path, serial_of("app/model#1.0"))
    assert not claim(tmp_path, "1.0")
    assert renewed_at_ns(tmp_path, "1.0") is not None


def test_who_was_born_is_a_survivor_though_slurm_has_forgotten_it_until_it_has_ended(tmp_path):
    prepare(tmp_path)
    for serial in ("1.0", "1.1", "1.2", "1.3"):
        (tmp_path / "start" / serial).write_text(f'{{"token": "t{serial}"}}')
        assert serial == "1.3" or claim(tmp_path, serial)  # which has not begun
    (tmp_path / "start" / "1.2").write_text('{"tok')  # cut off
    (tmp_path / "start" / "1.3.77.new").write_text("")
    assert list(unlisted(tmp_path, "a/m", {"t1.0"})) == [("a/m#1.1", "t1.1")]
    forget(tmp_path, "1.1")
    forget(tmp_path, "1.1")
    assert list(unlisted(tmp_path, "a/m", {"t1.0"})) == []


def test_a_job_that_comes_back_from_the_dead_has_nothing_to_start_with_and_leaves_nothing(tmp_path):
    prepare(tmp_path)
    begun = [sys.executable, "-P", "-m", "executors.slurm.replica", str(tmp_path), "1.0", "its token"]
    for there_are in ([], ["start/1.0"]):
        for name in there_are:
            (tmp_path / name).write_text('{"token": "of another job"}')
        done = subprocess.run(begun, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert files_in(tmp_path) == there_are


def test_what_is_left_of_replicas_that_were_forgotten_is_gone_with_the_next_controller(tmp_path):
    prepare(tmp_path)
    (tmp_path / "start" / "1.1").write_text("{}")
    for name in ("born", "ended", "at"):
        for serial in ("1.0", "1.1"):
            (tmp_path / name / serial).touch()
    prepare(tmp_path)
    assert files_in(tmp_path) == ["at/1.1", "born/1.1", "ended/1.1", "start/1.1"]


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_replica_says_where_it_listens_whole_or_not_yet(tmp_path):
    prepare(tmp_path)
    for serial, said in (("1.0", "127.0.0.1 5 7"), ("1.1", "127.0."), ("1.2", "127.0.0.1 5 7")):
        (tmp_path / "at" / serial).write_text(said)
        (tmp_path / "start" / serial).write_text("{}" if serial == "1.2" else '{"secret": "s"}')
    found = [listens_at(tmp_path, serial) for serial in ("1.0", "1.1", "1.2", "1.3")]
    assert found == [(("127.0.0.1", 5), "s"), None, None, None]


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(PlaceError, match=f"{shared}"):
        fence("default", "a/m", SlurmOptions(folder=str(shared)))
    shared.chmod(0o700)
    assert fence("default", "a/m", SlurmOptions(folder=str(shared))).newest() == 0


def test_a_node_that_is_named_is_meant_and_others_keep_to_what_is_cordoned():
    assert Where("n0", ("n0", "n1")).arguments() == ["--nodelist=n0"]
    assert Where(None, ("n0", "n1")).arguments() == ["--exclude=n0,n1"]
    assert Where(None, ()).arguments() == []


@pytest.mark.parametrize(("option", "value"), [("lease_s", 1.0), ("poll_s", 0.0), ("cpus", 0), ("notice_s", float("nan"))])
def test_an_option_that_cannot_be_says_what_can(option, value):
    with pytest.raises(SlurmError, match=f"option {option} must be a number of at least"):
        SlurmOptions(**{option: value})
    with pytest.raises(SlurmError, match=r"option folder must be a path on .* found nothing"):
        SlurmOptions(folder=" ")
    assert SlurmOptions(partition="gpu", gres="gpu:1").arguments() == ["--cpus-per-task=1", "--partition=gpu", "--gres=gpu:1"]
