"""What the machine is told of what a worker says about itself.

| the worker | is reported as | and takes |
|---|---|---|
| loads | LOADING | what it was granted on GPUs, and its copy until it is HOT |
| is HOT | SERVING | what it was granted on GPUs |
| leaves | LEAVING | the same, and the room for the copy that it makes |
| drops its copy | DROPPING | the copy |
| has a copy | RESTING | the copy |
| has none, or could not leave | nothing | a process of no use, which has to end |

Granted is more than the weights take: the rest is for what user code works with, and is nobody else's.
"""

import attrs

from executors.ray_gpu.worker.messages import Leave, Load, WorkerReport
from rankcore.residency.levels import Level, Phase


@attrs.frozen
class HeldMemory:
    """What a worker takes, as `WorkerReported` has it."""

    phase: Phase
    gpus: tuple[int, ...] = ()
    gpu_bytes: tuple[int, ...] = ()
    cpu_bytes: int = 0


def held_by(report: WorkerReport) -> HeldMemory | None:
    """What a worker takes; None: nothing that is of use."""
    newest, granted = report.newest, report.granted
    copied = report.host_bytes if report.level is Level.WARM else 0
    if report.moving and isinstance(newest, Load):
        return HeldMemory(Phase.LOADING, newest.gpus, newest.gpu_bytes, copied)
    if report.level is Level.HOT and granted is not None:
        if report.moving and isinstance(newest, Leave):
            return HeldMemory(Phase.LEAVING, granted.gpus, granted.gpu_bytes, report.host_bytes if newest.keep_copy else 0)
        return HeldMemory(Phase.SERVING, granted.gpus, granted.gpu_bytes) if not _could_not_leave(report) else None
    if not copied:
        return None
    is_dropping = report.moving and isinstance(newest, Leave) and not newest.keep_copy
    return HeldMemory(Phase.DROPPING if is_dropping else Phase.RESTING, cpu_bytes=copied)


def _could_not_leave(report: WorkerReport) -> bool:
    ended = report.ended
    return isinstance(report.newest, Leave) and ended is not None and ended.failed_because is not None and not ended.busy
