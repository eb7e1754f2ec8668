"""The real memory of a simulated node, whatever anybody's book says of it."""

from executors.simulator.scenario.gpu_nodes import NodeShape


class NodeMemory:
    """Who holds how much of each GPU and of the CPU cache of a node. It cannot hold more than there is.

    Attributes:
        capacity: Bytes of each GPU, as it is.
        used: Bytes of each GPU that are held.
        cpu_used: Bytes of the CPU cache that are held.
    """

    def __init__(self, shape: NodeShape) -> None:
        self.capacity = list(shape.really_gpu_bytes)
        self.used = [0] * len(shape.gpu_bytes)
        self.cpu_used = 0
        self._on_gpu: dict[str, dict[int, int]] = {}
        self._on_cpu: dict[str, int] = {}

    def take(self, replica_id: str, gpus: tuple[int, ...], gpu_bytes: tuple[int, ...]) -> int | None:
        """Take memory of GPUs, in place of what it held there: as much as there is of each.

        Returns:
            The first GPU that has not as much as it wants; None: it has all.
        """
        self.leave_gpu(replica_id)
        short = None
        held: dict[int, int] = {}
        for gpu, wanted in zip(gpus, gpu_bytes, strict=True):
            had = min(wanted, max(0, self.capacity[gpu] - self.used[gpu]))
            short = gpu if had < wanted and short is None else short
            self.used[gpu] += had
            held[gpu] = held.get(gpu, 0) + had
        self._on_gpu[replica_id] = held
        return short

    def take_cpu(self, replica_id: str, wanted: int) -> None:
        """Keep its weights in CPU memory."""
        self.leave_cpu(replica_id)
        self._on_cpu[replica_id] = wanted
        self.cpu_used += wanted

    def leave_gpu(self, replica_id: str) -> None:
        """Give back all that it has of the GPUs."""
        for gpu, held in self._on_gpu.pop(replica_id, {}).items():
            self.used[gpu] -= held

    def leave_cpu(self, replica_id: str) -> None:
        """Give back all that it has of CPU memory."""
        self.cpu_used -= self._on_cpu.pop(replica_id, 0)

    def clear(self) -> None:
        """The node went down: nothing is held any more."""
        self._on_gpu.clear()
        self._on_cpu.clear()
        self.used = [0] * len(self.used)
        self.cpu_used = 0

    def held(self, replica_id: str) -> dict[int, int]:
        """What a replica has of which GPU."""
        return dict(self._on_gpu.get(replica_id, {}))

    def cached(self, replica_id: str) -> int:
        """What a replica has of CPU memory."""
        return self._on_cpu.get(replica_id, 0)

    @property
    def on_gpu(self) -> tuple[str, ...]:
        """Who has something of a GPU."""
        return tuple(self._on_gpu)
