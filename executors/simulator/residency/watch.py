"""Watches the memory of all nodes: who holds what, at which level each model is, and how much is used, how much of no use."""

from collections.abc import Mapping

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.outages import DOWN, Outages
from executors.simulator.residency.fragments import Fragments, Need
from executors.simulator.residency.nodes import GpuNode, ResidentProcess
from executors.simulator.residency.port import ModelPort
from executors.simulator.residency.record import CPU, MemoryGauges, SpanBook, SpanPhase
from executors.simulator.scenario.residency.whole import ResidencyScenario

HOT, WARM, COLD = "HOT", "WARM", "COLD"


class MemoryWatch:
    """Is told what changes, and writes it down.

    Attributes:
        spans: Who held which memory when.
        gauges: Bytes of all nodes together along the run.
        outages: When nodes were down.
    """

    def __init__(
        self, loop: EventLoop, scenario: ResidencyScenario, ports: Mapping[str, ModelPort], nodes: Mapping[str, GpuNode]
    ) -> None:
        self.spans = SpanBook()
        self.gauges = MemoryGauges()
        self.outages = Outages()
        self._loop = loop
        self._ports = ports
        self._nodes = nodes
        self._fragments = Fragments(scenario.shapes, _needs(scenario, ports))
        self._used: dict[str, int] = {}
        self._cached: dict[str, int] = {}
        self._fragmented: dict[str, float] = {}
        self._copies: dict[str, tuple[str, str]] = {}

    # -- loads

    def begin_load(self, process: ResidentProcess) -> None:
        """A replica has its memory, and its weights are on their way."""
        tally = self._ports[process.model].tally
        if process.from_cpu:
            tally.loads_from_cpu += 1
        else:
            tally.loads_from_disk += 1
        self._hold(process, SpanPhase.LOADING)

    def become_hot(self, process: ResidentProcess, gpu_bytes: tuple[int, ...]) -> None:
        """Its weights are there, and it takes so much of each GPU."""
        if process.from_cpu:
            self._forget_copy(process.node.shape.node_id, process.replica_id)
        self._hold(process, SpanPhase.HOT, gpu_bytes)
        self._level(process.model, process.replica_id, HOT)

    def fail_load(self, process: ResidentProcess) -> None:
        """It has no memory of a GPU any more; a copy that it came from is still there."""
        self._ports[process.model].tally.load_failures += 1
        self.gone(process)

    # -- what leaves

    def leaving(self, process: ResidentProcess) -> None:
        """It takes no more requests."""
        self._hold(process, SpanPhase.LEAVING, self._held(process))

    def copying(self, process: ResidentProcess, cpu_bytes: int) -> None:
        """Its weights are being copied to CPU memory."""
        node_id = process.node.shape.node_id
        self._copies[process.replica_id] = (node_id, process.model)
        self.spans.hold(self._loop.now, node_id, CPU, process.replica_id, process.model, SpanPhase.LEAVING, cpu_bytes)
        self._changed(process.node)

    def gone(self, process: ResidentProcess) -> None:
        """It holds nothing of any GPU any more; what is left of it is its copy, if there is one."""
        node_id, now = process.node.shape.node_id, self._loop.now
        for gpu in process.gpus:
            self.spans.leave(now, node_id, gpu, process.replica_id)
        copy = self._copies.get(process.replica_id)
        if copy is not None:
            size = self._nodes[copy[0]].memory.cached(process.replica_id)
            self.spans.hold(now, copy[0], CPU, process.replica_id, process.model, SpanPhase.WARM, size)
        self._level(process.model, process.replica_id, COLD if copy is None else WARM)
        self._changed(process.node)

    def leave_cpu(self, node_id: str, replica_id: str, model: str) -> None:
        """A copy in CPU memory was dropped."""
        self._forget_copy(node_id, replica_id)
        levels = self._ports[model].tally.levels
        if levels.of(replica_id) == WARM:
            levels.set(self._loop.now, replica_id, COLD)
        self._changed(self._nodes[node_id])

    def moved(self, process: ResidentProcess) -> None:
        """Bytes have come over, all of them or those that had when it was broken off."""
        if process.transfer is None:
            return
        tally, size = self._ports[process.model].tally, process.transfer.moved_bytes
        if process.hot:
            tally.to_cpu_bytes += size
        elif process.from_cpu:
            tally.from_cpu_bytes += size
        else:
            tally.from_disk_bytes += size

    # -- nodes

    def lose_node(self, node: GpuNode) -> None:
        """All that was on a node is gone: its processes have ended already, and its copies go now."""
        node_id = node.shape.node_id
        for replica_id, (where, model) in list(self._copies.items()):
            if where == node_id:
                self.leave_cpu(node_id, replica_id, model)
        self._changed(node)
        self.count_nodes()

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

    def _hold(self, process: ResidentProcess, phase: SpanPhase, gpu_bytes: tuple[int, ...] | None = None) -> None:
        node_id, now = process.node.shape.node_id, self._loop.now
        for gpu, size in zip(process.gpus, gpu_bytes or self._held(process), strict=True):
            self.spans.hold(now, node_id, gpu, process.replica_id, process.model, phase, size)
        self._changed(process.node)

    def _held(self, process: ResidentProcess) -> tuple[int, ...]:
        held = process.node.memory.held(process.replica_id)
        return tuple(held.get(gpu, 0) for gpu in process.gpus)

    def _level(self, model: str, replica_id: str, level: str) -> None:
        self._ports[model].tally.levels.set(self._loop.now, replica_id, level)

    def _forget_copy(self, node_id: str, replica_id: str) -> None:
        if self._copies.get(replica_id, ("", ""))[0] == node_id:
            del self._copies[replica_id]
        self.spans.leave(self._loop.now, node_id, CPU, replica_id)

    def _changed(self, node: GpuNode) -> None:
        """Sum up what is used and what is of no use."""
        node_id, now, memory = node.shape.node_id, self._loop.now, node.memory
        free = [max(0, there - used) for there, used in zip(memory.capacity, memory.used, strict=True)]
        self._used[node_id] = sum(memory.used)
        self._cached[node_id] = memory.cpu_used
        self._fragmented[node_id] = self._fragments.of(node_id, free) if node.up else 0.0
        self.gauges.used.set(now, sum(self._used.values()))
        self.gauges.cached.set(now, sum(self._cached.values()))
        self.gauges.fragmented.set(now, sum(self._fragmented.values()))


def _needs(scenario: ResidencyScenario, ports: Mapping[str, ModelPort]) -> dict[str, Need]:
    """What may be wanted next: by the requests of the whole run, or all alike where there are none."""
    sizes, found = scenario.sizes, {}
    total = sum(len(port.arrivals) for port in ports.values())
    for model in scenario.models:
        size = sizes[model.name].weight_bytes + sizes[model.name].working_bytes
        found[model.name] = Need(size, model.gpus, len(ports[model.name].arrivals) if total else 1.0)
    return found
