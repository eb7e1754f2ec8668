"""A real Slurm of three nodes, for some seconds: two ranks leave a drained node. All else on Slurm is tried by night."""

import time
from functools import partial

import pytest

from executors.controller import Controller
from executors.slurm.options import SlurmOptions
from executors.slurm.plugin import begin, fence
from rankcore import DeploymentSpec, DeploymentStatus
from tests.slurm_local import MISSING, REASON, local_slurm

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=REASON)]
SHARD = "from executors.ray_gpu import deployment\n\n@deployment\nclass Shard:\n    pass\n\napp = Shard.bind()\n"


def test_ranks_leave_a_node_of_slurm_that_is_drained(tmp_path):
    (tmp_path / "shard.py").write_text(SHARD)
    spec = DeploymentSpec(name="day/Shard", target_replicas=2)
    options = SlurmOptions(folder=str(tmp_path / "shared"), allow_weak_proctrack=True, poll_s=0.2)
    with local_slurm(tmp_path / "cluster") as slurm:
        where, makes = fence("day", spec.name, options), partial(begin, options=options)
        (tmp_path / "here").mkdir()
        controller = Controller(tmp_path / "here", f"{tmp_path / 'shard.py'}:app", spec, where, makes, executor_name="slurm")
        try:

            def seats_once(done):
                end = time.monotonic() + 60.0
                while True:
                    controller.run_for(0.1)
                    ranks = controller.entry.ranks
                    found = {each.rank.rank: each.node_id for each in ranks.replicas.values() if each.rank is not None}
                    if ranks.status is DeploymentStatus.HEALTHY and len(found) == 2 and done(set(found.values())):
                        return found
                    assert time.monotonic() < end, (ranks.status, found)

            drained = seats_once(lambda _: True)[0]
            slurm.run("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=fan")
            seats_once(lambda nodes: drained not in nodes)
            controller.stop(30.0)
        finally:
            controller.leave()
        assert slurm.run("squeue", "--noheader") == ""
