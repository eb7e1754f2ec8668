"""What a controller and a worker say to each other; what may change in it is said in `executors.ray_gpu.messages`."""

import attrs

from executors.ray_gpu.messages import Report, across_releases
from rankcore.residency.levels import Level


@across_releases
@attrs.frozen
class Load:
    """`LoadToGpu`, as it travels: bring the weights to these GPUs, from the node's memory if they are there, else from disk.

    Attributes:
        epoch: Of the controller.
        move: Its number; what is repeated has the same.
        gpus: Their numbers on the node.
        gpu_bytes: What may be taken on each of them.
    """

    epoch: int
    move: int
    gpus: tuple[int, ...]
    gpu_bytes: tuple[int, ...]


@across_releases
@attrs.frozen
class Leave:
    """`OffloadToCpu`, `UnloadFromGpu` or `DropFromCpu`, as it travels: end the tenure, if there is one, then free memory.

    Attributes:
        epoch, move: As for `Load`.
        timeout_s: For how long calls may be finished; those that run longer are cut off.
        keep_copy: Whether the weights are in the node's memory afterwards. If not, the process is of no use afterwards.
        if_idle: Not while a call is under way: then the answer is `MoveEnded(busy=True)`, and nothing has changed.
    """

    epoch: int
    move: int
    timeout_s: float = 0.0
    keep_copy: bool = True
    if_idle: bool = False


@across_releases
@attrs.frozen
class Progressed:
    """So many bytes of a load have arrived."""

    bytes_done: int
    bytes_total: int = 0

    @property
    def percent(self) -> int:
        """The same, from 0 to 100."""
        return min(100, 100 * self.bytes_done // self.bytes_total) if self.bytes_total else 0


@across_releases
@attrs.frozen
class MoveEnded:
    """A move of weights is over.

    Attributes:
        move: Which one.
        failed_because: Why it failed; None: it has not.
        gpu_bytes: What the replica takes on each of its GPUs then.
        poisoned: The process can use its GPU no more.
        busy: It was to be made only where no call is under way, and one is: nothing has changed. A `Leave` that has failed
            otherwise leaves a process that has to end.
        wrong_weights: It was a load, and what is on its node are not the weights of its version.
    """

    move: int
    failed_because: str | None = None
    gpu_bytes: tuple[int, ...] = ()
    poisoned: bool = False
    busy: bool = False
    wrong_weights: bool = False


@across_releases
@attrs.frozen
class WorkerReport:
    """What a worker says about itself.

    Attributes:
        worker_id: Of the process.
        actor_name, node_id, pid, started: Where it is, as in `Endpoint`.
        version: Of its code.
        epoch: The newest that it has seen.
        level: Where its weights are; while they move: where they come from.
        move: The number of the newest move that it was told of; 0: none.
        moving: Whether that is under way.
        ended: How it ended; None: it has not, or there was none.
        progress: Of the newest load.
        gpus, gpu_bytes: The GPUs that the weights are on, or were at last, and what they take on each when they are HOT.
        host_bytes: What they take in the node's memory when they are WARM.
        tenure: What its replica believes; None: it is none.
        protocol: The `names.PROTOCOL` of its process.
        newest: That newest move; None: none, or its process does not say.
        granted: The load by which it may have bytes on GPUs now; None: it has none there.
    """

    worker_id: str
    actor_name: str
    node_id: str
    pid: int
    started: int | None
    version: str
    epoch: int
    level: Level
    move: int
    moving: bool
    ended: MoveEnded | None
    progress: Progressed
    gpus: tuple[int, ...]
    gpu_bytes: tuple[int, ...]
    host_bytes: int
    tenure: Report | None
    protocol: int
    newest: Load | Leave | None = None
    granted: Load | None = None
