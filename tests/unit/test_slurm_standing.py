"""What Slurm says of a job, and what is made of it: an end only where its processes are gone."""

import pytest

from executors.slurm.folder import claim, prepare, renewed_at_ns, serial_of
from executors.slurm.options import SlurmError, SlurmOptions
from executors.slurm.scheduler import Comment, Job, NodeSeen, Where
from executors.slurm.standing import STANDINGS, JobStanding, standing

UP, SILENT, DOWN = (NodeSeen("idle", True, 8, ""), NodeSeen("idle", False, 8, ""), NodeSeen("down", False, 8, "Not responding"))


def job(state: str, node_id: str = "n0") -> Job:
    return Job("7", state, node_id, "None", Comment("app#1.0", 1, "token"))


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


def test_a_node_that_is_named_is_meant_and_others_keep_to_what_is_cordoned():
    assert Where("n0", ("n0", "n1")).arguments() == ["--nodelist=n0"]
    assert Where(None, ("n0", "n1")).arguments() == ["--exclude=n0,n1"]
    assert Where(None, ()).arguments() == []


@pytest.mark.parametrize(("option", "value"), [("lease_s", 1.0), ("poll_s", 0.0), ("cpus", 0), ("notice_s", float("nan"))])
def test_an_option_that_cannot_be_says_what_can(option, value):
    with pytest.raises(SlurmError, match=f"option {option} must be a number of at least"):
        SlurmOptions(**{option: value})
    assert SlurmOptions(partition="gpu", gres="gpu:1").arguments() == ["--cpus-per-task=1", "--partition=gpu", "--gres=gpu:1"]
