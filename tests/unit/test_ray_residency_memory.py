"""What `where` says of a replica: how far its load has come, and why it is where it is."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.residency.memory import Memory
from rankcore.dispatching import fleet_step, open_fleet
from rankcore.dispatching.events import LoadProgressed
from rankcore.residency import ModelSpec, Wanted
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import DeployRequested, LoadFinished, NodeJoined


def test_a_load_is_as_far_as_its_weights_and_its_reason_outlives_the_controller():
    spec = ModelSpec(model="m", weight_bytes=40, working_bytes=40)
    state = fleet_step(open_fleet(), NodeJoined(node_id="n1", gpu_bytes=(80,), at=0.0)).state
    state, commands, _ = fleet_step(state, DeployRequested(wanted=(Wanted(spec=spec),), at=0.0))
    (load,) = [command for command in commands if isinstance(command, LoadToGpu)]

    def standing():
        return Memory().standing(state).models[0].replicas[0]

    assert standing().percent == 0
    about = {"replica_id": load.replica_id, "move": load.move}
    state = fleet_step(state, LoadProgressed(bytes_done=30, at=1.0, **about)).state
    assert standing().percent == 75
    state = fleet_step(state, LoadFinished(at=2.0, **about)).state
    assert standing().percent is None
    assert (standing().because, standing().history) == ("it fits on GPU 0, from disk", ())
