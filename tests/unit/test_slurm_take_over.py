"""Whom a controller that begins finds: jobs that Slurm lists, and files that replicas have left."""

import pytest

from executors.run.fence import Fence
from executors.slurm import scheduler
from executors.slurm.executor import SlurmExecutor
from executors.slurm.folder import AT, START, claim, prepare, unlisted
from executors.slurm.options import SlurmOptions
from executors.slurm.scheduler import Comment, Job, NodeSeen
from rankcore import DeploymentSpec

SPEC = DeploymentSpec(name="a/m", target_replicas=1)


@pytest.mark.parametrize(("state", "survives"), [("CANCELLED", False), ("RUNNING", True)])
def test_whose_job_ended_while_no_controller_was_there_is_no_survivor_once_slurm_has_forgotten_it(
    tmp_path, monkeypatch, state, survives
):
    prepare(tmp_path)
    claim(tmp_path, "1.0")
    (tmp_path / START / "1.0").write_text('{"token": "t"}')
    (tmp_path / AT / "1.0").write_text("")
    there = Job("7", state, "n0", "None", Comment("a/m#1.0", 1, "t"))
    monkeypatch.setattr(scheduler, "jobs", lambda name: {"t": there})
    monkeypatch.setattr(scheduler, "nodes", lambda partition: {"n0": NodeSeen("idle", True, 8, "")})
    executor = SlurmExecutor(tmp_path, "m:app", lambda: SPEC, 2, SlurmOptions(), Fence(tmp_path, 2))
    found = list(executor.survivors())
    executor.close()
    assert found == (["a/m#1.0"] if survives else [])
    assert [each for each, _ in unlisted(tmp_path, "a/m", {})] == found
    assert not claim(tmp_path, "1.0"), "there is no second life"
