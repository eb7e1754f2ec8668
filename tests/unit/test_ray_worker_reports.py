"""What the machine is told of what a worker says about itself."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.worker.messages import Leave, Load, MoveEnded, Progressed, WorkerReport
from executors.ray_gpu.worker.reports import HeldMemory, held_by
from rankcore.cluster.events import WorkerReported
from rankcore.residency.levels import Level, Phase

LOAD = Load(1, 7, (0, 2), (9, 9))
OFFLOAD, UNLOAD = Leave(1, 8), Leave(1, 8, keep_copy=False)
COPY_BYTES = 5
FAILED, BUSY = MoveEnded(8, "it does not end"), MoveEnded(8, "2 calls", busy=True)


def report(level, newest, granted=None, *, moving=False, ended=None):
    return WorkerReport(
        worker_id="a/m@1#1.0",
        actor_name="",
        node_id="n",
        pid=1,
        started=None,
        version="1",
        epoch=1,
        level=level,
        move=newest.move if newest is not None else 0,
        moving=moving,
        ended=ended,
        progress=Progressed(0),
        gpus=(),
        gpu_bytes=(),
        host_bytes=COPY_BYTES,
        tenure=None,
        protocol=3,
        newest=newest,
        granted=granted,
    )


@pytest.mark.parametrize(
    ("said", "held"),
    [
        (report(Level.COLD, LOAD, LOAD, moving=True), HeldMemory(Phase.LOADING, (0, 2), (9, 9))),
        (report(Level.WARM, LOAD, LOAD, moving=True), HeldMemory(Phase.LOADING, (0, 2), (9, 9), COPY_BYTES)),
        (report(Level.HOT, LOAD, LOAD), HeldMemory(Phase.SERVING, (0, 2), (9, 9))),
        (report(Level.HOT, OFFLOAD, LOAD, moving=True), HeldMemory(Phase.LEAVING, (0, 2), (9, 9), COPY_BYTES)),
        (report(Level.HOT, UNLOAD, LOAD, moving=True), HeldMemory(Phase.LEAVING, (0, 2), (9, 9))),
        (report(Level.HOT, OFFLOAD, LOAD, ended=BUSY), HeldMemory(Phase.SERVING, (0, 2), (9, 9))),
        (report(Level.HOT, OFFLOAD, LOAD, ended=FAILED), None),
        (report(Level.WARM, OFFLOAD), HeldMemory(Phase.RESTING, cpu_bytes=COPY_BYTES)),
        (report(Level.WARM, UNLOAD, moving=True), HeldMemory(Phase.DROPPING, cpu_bytes=COPY_BYTES)),
        (report(Level.COLD, UNLOAD), None),
        (report(Level.COLD, LOAD, ended=MoveEnded(7, "no such file")), None),
        (report(Level.COLD, None), None),
        (report(Level.HOT, None), None),
    ],
)
def test_what_a_worker_takes(said, held):
    found = held_by(said)
    assert found == held
    if found is not None:  # the machine takes it
        fields = {name: getattr(found, name) for name in ("phase", "gpus", "gpu_bytes", "cpu_bytes")}
        WorkerReported(worker_id="a/m@1#1.0", node_id="n", epoch=1, at=0.0, **fields)
