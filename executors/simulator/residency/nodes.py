"""A simulated GPU node, and the workers' processes on it."""

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.residency.links import DISK, TO_CPU, TO_GPU, Links, Transfer
from executors.simulator.residency.memory import NodeMemory
from executors.simulator.scenario.gpu_nodes import NodeShape
from executors.simulator.scenario.weights import GB, Loading
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.residency import WorkerId
from rankcore.replica.worker import Worker
from rankcore.residency.levels import Phase
from rankcore.values import ReplicaId


class GpuNode:
    """One node of the world.

    Attributes:
        shape: What it says of itself, and what it is.
        memory: Who holds what there.
        links: What goes over its disk and between its CPU and GPUs.
        faults: How many keep it down at the moment; none: it is up.
        life: How often it has gone down.
        told: What its controller believes that each GPU holds.
    """

    def __init__(self, loop: EventLoop, shape: NodeShape, loading: Loading) -> None:
        rates = {DISK: loading.disk_gb_per_s, TO_GPU: loading.to_gpu_gb_per_s, TO_CPU: loading.to_cpu_gb_per_s}
        self.shape = shape
        self.memory = NodeMemory(shape)
        self.links = Links(loop, {link: rate * GB for link, rate in rates.items()})
        self.faults = 0
        self.life = 0
        self.told = shape.gpu_bytes

    @property
    def node_id(self) -> str:
        """Its name."""
        return self.shape.node_id

    @property
    def up(self) -> bool:
        """Whether anything can be there."""
        return not self.faults

    @property
    def says_the_truth(self) -> bool:
        """Whether all that its controller counts on is there."""
        return self.has(self.told)

    def has(self, gpu_bytes: tuple[int, ...]) -> bool:
        """Whether each GPU holds as much as that."""
        return all(told <= there for told, there in zip(gpu_bytes, self.memory.capacity, strict=True))


@attrs.define(eq=False)
class WorkerProcess:
    """A worker: HOT, on its way there or away, or with a copy in CPU memory.

    Attributes:
        half: Which tenure it has, and what that believes.
        phase: RESTING: a copy; LOADING, LEAVING, DROPPING: its newest move is under way; SERVING: it is HOT.
        move: The number of its newest move.
        given: The replica that it is to be, as the controller says; None: none.
        from_cpu: Whether its weights came, or come, from CPU memory.
        keeps: A leave: what its copy will take; 0: the one that it has stays; None: nothing does.
        fails_after: Which share of its bytes come before its load fails; None: it does not.
        short: The GPU that has not the room that it was to have there; None: all have.
        transfer: What it moves at the moment.
        is_copying: Whether that goes to CPU memory.
        unready: How many faults keep it from taking requests.
    """

    worker_id: WorkerId
    deployment: DeploymentId
    node: GpuNode
    half: Worker
    phase: Phase = Phase.LOADING
    gpus: tuple[int, ...] = ()
    gpu_bytes: tuple[int, ...] = ()
    move: int = 0
    from_cpu: bool = False
    keeps: int | None = None
    fails_after: float | None = None
    short: int | None = None
    transfer: Transfer | None = None
    is_copying: bool = False
    given: ReplicaId | None = None
    unready: int = 0

    @property
    def tenure(self) -> ReplicaId | None:
        """The replica that it is; None: none."""
        return self.half.tenure

    @property
    def is_hot(self) -> bool:
        """Whether it is on its GPUs, and stays."""
        return self.phase is Phase.SERVING
