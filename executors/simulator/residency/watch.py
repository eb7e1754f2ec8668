"""Watches the memory of all nodes: who holds what, at which level each model is, and how much is used, how much of no use."""

from collections.abc import Mapping, Sequence

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.outages import DOWN, Outages
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.residency.fragments import Fragments, Need
from executors.simulator.residency.nodes import GpuNode, WorkerProcess
from executors.simulator.residency.record import CPU, DeploymentTally, MemoryGauges, SpanBook, SpanPhase
from executors.simulator.scenario.entries import shown
from executors.simulator.scenario.gpu_nodes import NodeShape
from rankcore.cluster import EntrySpec

HOT, WARM, COLD = "HOT", "WARM", "COLD"


class MemoryWatch:
    """Is told what changes, and writes it down.

    Attributes:
        spans: Who held which memory when.
        gauges: Bytes of all nodes together along the run.
        outages: When nodes were down.
    """

    def __init__(
        self,
        loop: EventLoop,
        shapes: Sequence[NodeShape],
        entries: Sequence[EntrySpec],
        tallies: Mapping[str, DeploymentTally],
        nodes: Mapping[str, GpuNode],
        arrivals: Mapping[str, Arrivals],
    ) -> None:
        self.spans = SpanBook()
        self.gauges = MemoryGauges()
        self.outages = Outages()
        self._loop = loop
        self._tallies = tallies
        self._nodes = nodes
        self._fragments = Fragments(shapes, _needs(entries, arrivals))
        self._used: dict[str, int] = {}
        self._cached: dict[str, int] = {}
        self._fragmented: dict[str, float] = {}
        self._copies: dict[str, str] = {}

    # -- loads

    def begin_load(self, worker: WorkerProcess) -> None:
        """A replica has its memory, and its weights are on their way."""
        tally = self._tallies[worker.deployment]
        if worker.from_cpu:
            tally.loads_from_cpu += 1
        else:
            tally.loads_from_disk += 1
        self._hold(worker, SpanPhase.LOADING)

    def become_hot(self, worker: WorkerProcess, gpu_bytes: tuple[int, ...]) -> None:
        """Its weights are there, and it takes so much of each GPU."""
        if worker.from_cpu:
            self._forget_copy(worker.node.node_id, worker.worker_id)
        self._hold(worker, SpanPhase.HOT, gpu_bytes)
        self._level(worker, HOT)

    def fail_load(self, worker: WorkerProcess) -> None:
        """It has no memory of a GPU any more; a copy that it came from is still there."""
        self._tallies[worker.deployment].load_failures += 1
        self.gone(worker)

    # -- what leaves

    def leaving(self, worker: WorkerProcess) -> None:
        """It takes no more requests."""
        self._hold(worker, SpanPhase.LEAVING, self._held(worker))

    def copying(self, worker: WorkerProcess, cpu_bytes: int) -> None:
        """Its weights are being copied to CPU memory."""
        node_id = worker.node.node_id
        self._copies[worker.worker_id] = node_id
        self._span(worker, CPU, SpanPhase.LEAVING, cpu_bytes)
        self._changed(worker.node)

    def gone(self, worker: WorkerProcess) -> None:
        """It holds nothing of any GPU any more; what is left of it is its copy, if there is one."""
        node_id, now = worker.node.node_id, self._loop.now
        for gpu in worker.gpus:
            self.spans.leave(now, node_id, gpu, shown(worker.worker_id))
        copy = self._copies.get(worker.worker_id)
        if copy is not None:
            self._span(worker, CPU, SpanPhase.WARM, worker.node.memory.cached(worker.worker_id))
        self._level(worker, COLD if copy is None else WARM)
        self._changed(worker.node)

    def leave_cpu(self, node: GpuNode, worker: WorkerProcess) -> None:
        """A copy in CPU memory is no more, if there was one."""
        self._forget_copy(node.node_id, worker.worker_id)
        levels = self._tallies[worker.deployment].levels
        if levels.of(worker.worker_id) == WARM:
            levels.set(self._loop.now, worker.worker_id, COLD)
        self._changed(node)

    def moved(self, worker: WorkerProcess) -> None:
        """Bytes have come over, all of them or those that had when it was broken off."""
        if worker.transfer is None:
            return
        tally, size = self._tallies[worker.deployment], worker.transfer.moved_bytes
        if worker.is_copying:
            tally.to_cpu_bytes += size
        elif worker.from_cpu:
            tally.from_cpu_bytes += size
        else:
            tally.from_disk_bytes += size

    # -- nodes

    def begin_outage(self, node_id: str) -> None:
        """A node is down."""
        self.outages.begin(self._loop.now, node_id, DOWN)

    def end_outage(self, node_id: str) -> None:
        """It is up again."""
        self.outages.end(self._loop.now, node_id, DOWN)

    def count_nodes(self) -> None:
        """How much memory there is may have changed."""
        up = [node for node in self._nodes.values() if node.up]
        self.gauges.capacity.set(self._loop.now, sum(sum(node.memory.capacity) for node in up))
        for node in self._nodes.values():
            self._changed(node)

    # -- bookkeeping

    def _hold(self, worker: WorkerProcess, phase: SpanPhase, gpu_bytes: tuple[int, ...] | None = None) -> None:
        for gpu, size in zip(worker.gpus, gpu_bytes or self._held(worker), strict=True):
            self._span(worker, gpu, phase, size)
        self._changed(worker.node)

    def _span(self, worker: WorkerProcess, gpu: int, phase: SpanPhase, size_bytes: int) -> None:
        who, whose = shown(worker.worker_id), shown(worker.deployment)
        self.spans.hold(self._loop.now, worker.node.node_id, gpu, who, whose, phase, size_bytes)

    def _held(self, worker: WorkerProcess) -> tuple[int, ...]:
        held = worker.node.memory.held(worker.worker_id)
        return tuple(held.get(gpu, 0) for gpu in worker.gpus)

    def _level(self, worker: WorkerProcess, level: str) -> None:
        self._tallies[worker.deployment].levels.set(self._loop.now, worker.worker_id, level)

    def _forget_copy(self, node_id: str, worker_id: str) -> None:
        if self._copies.get(worker_id) == node_id:
            del self._copies[worker_id]
        self.spans.leave(self._loop.now, node_id, CPU, shown(worker_id))

    def _changed(self, node: GpuNode) -> None:
        """Sum up what is used and what is of no use."""
        node_id, now, memory = node.node_id, self._loop.now, node.memory
        free = [max(0, there - used) for there, used in zip(memory.capacity, memory.used, strict=True)]
        self._used[node_id] = sum(memory.used)
        self._cached[node_id] = memory.cpu_used
        self._fragmented[node_id] = self._fragments.of(node_id, free) if node.up else 0.0
        self.gauges.used.set(now, sum(self._used.values()))
        self.gauges.cached.set(now, sum(self._cached.values()))
        self.gauges.fragmented.set(now, sum(self._fragmented.values()))


def _needs(entries: Sequence[EntrySpec], arrivals: Mapping[str, Arrivals]) -> dict[str, Need]:
    """What may be wanted next: by the requests of the whole run, or all alike where there are none."""
    total = sum(map(len, arrivals.values()))
    found = {}
    for spec in entries:
        assert spec.residency is not None, f"{spec.deployment} has no residency"
        size = spec.residency.weight_bytes + spec.residency.working_bytes
        found[spec.deployment] = Need(size, spec.residency.gpus, len(arrivals[spec.deployment]) if total else 1.0)
    return found
