"""Whether jobs can be run, and can write to the folder: what is made of what `srun` says of one of a moment."""

import os

import pytest

from executors.slurm.folder import AT, prepare
from executors.slurm.options import SlurmError, SlurmOptions
from executors.slurm.scheduler import probe

OPTIONS = SlurmOptions(gres="gpu:1")
BUSY = "srun: job 7 queued and waiting for resources\nsrun: error: Unable to allocate resources: Requested nodes are busy"


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """Makes one that does what it is told, and returns the folder of a deployment."""

    def made(script):
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "srun").write_text(f"#!/bin/sh\n{script}\n")
        (programs / "srun").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        prepare(tmp_path)
        return tmp_path

    return made


def refused(said, code=1):
    return f"cat >&2 <<'END'\n{said}\nEND\nexit {code}"


def test_a_job_that_writes_to_the_folder_leaves_nothing_there(srun):
    folder = srun('for last; do :; done; touch "$last"')
    probe(OPTIONS, folder)
    assert not (folder / "probe").exists()


def test_a_job_that_slurm_does_not_take_is_refused_with_its_words_and_not_called_a_matter_of_the_folder(srun):
    with pytest.raises(SlurmError, match=r"--gres=gpu:1: srun: error: Invalid generic resource") as caught:
        probe(OPTIONS, srun(refused("srun: error: Invalid generic resource (gres) specification")))
    assert "share" not in str(caught.value)


@pytest.mark.parametrize(
    "script", ["exit 0", refused("touch: cannot touch '/x': No such file\nsrun: error: n0: task 0: Exited with exit code 1")]
)
def test_a_job_that_cannot_write_to_the_folder_is_told_which_folder_could(srun, script):
    with pytest.raises(SlurmError, match="use a folder on a file system that login and compute nodes share"):
        probe(OPTIONS, srun(script))


def test_a_cluster_that_is_full_now_keeps_no_controller_from_its_deployment(srun):
    probe(OPTIONS, srun(refused(BUSY)))


@pytest.mark.parametrize("would_be_taken", [True, False])
def test_where_a_replica_has_written_no_job_is_run_and_options_are_looked_at_all_the_same(srun, monkeypatch, would_be_taken):
    folder = srun(refused("srun: error: Invalid generic resource (gres) specification"))
    (folder / "bin" / "sbatch").write_text("#!/bin/sh\n" + ("exit 0\n" if would_be_taken else refused("allocation failure")))
    (folder / "bin" / "sbatch").chmod(0o755)
    (folder / AT / "1.0").write_text("127.0.0.1 5 7")
    if would_be_taken:
        return probe(OPTIONS, folder)
    with pytest.raises(SlurmError, match="Invalid generic resource"):
        probe(OPTIONS, folder)
