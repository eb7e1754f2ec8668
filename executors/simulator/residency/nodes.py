"""A simulated GPU node, and the processes of replicas on it."""

import attrs

from executors.simulator.clock import EventLoop
from executors.simulator.residency.links import DISK, TO_CPU, TO_GPU, Links, Transfer
from executors.simulator.residency.memory import NodeMemory
from executors.simulator.scenario.residency.hardware import Loading, NodeShape
from executors.simulator.scenario.residency.models import GB


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
class ResidentProcess:
    """A replica on GPUs, or on its way there or away.

    Attributes:
        move: Of the command that it carries out.
        from_cpu: Whether its weights came, or come, from CPU memory.
        hot: Whether its weights are on its GPUs.
        leaving: Whether it has been told to leave.
        fails_after: Which share of its bytes come before its load fails; None: it does not.
        short: The GPU that has not the room that it was to have there; None: all have.
        transfer: What it moves at the moment.
    """

    replica_id: str
    model: str
    node: GpuNode
    gpus: tuple[int, ...]
    gpu_bytes: tuple[int, ...]
    move: int
    from_cpu: bool
    hot: bool = False
    leaving: bool = False
    fails_after: float | None = None
    short: int | None = None
    transfer: Transfer | None = None
