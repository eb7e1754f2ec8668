"""The world of a residency scenario: carries out the fleet's commands on nodes with real memory, and tells what became."""

from collections.abc import Callable, Mapping

from executors.simulator.clock import EventLoop
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.record.happenings import Failure, Story
from executors.simulator.residency.control import FLEET, Control
from executors.simulator.residency.links import DISK, TO_CPU, TO_GPU
from executors.simulator.residency.nodes import GpuNode, ResidentProcess
from executors.simulator.residency.notebook import Notebook
from executors.simulator.residency.port import ModelPort
from executors.simulator.residency.record import Together
from executors.simulator.residency.serving import Serving
from executors.simulator.residency.watch import MemoryWatch
from executors.simulator.residency.wire import Wire
from executors.simulator.scenario.residency.happens import ModelChange
from executors.simulator.scenario.residency.models import GB
from executors.simulator.scenario.residency.whole import ResidencyScenario
from executors.simulator.streams import Streams
from rankcore.dispatching.state import Note
from rankcore.residency import Level, ResidencyNote
from rankcore.residency.commands import DropFromCpu, LoadToGpu, OffloadToCpu, UnloadFromGpu
from rankcore.residency.events import (
    Event,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeLost,
    OffloadFinished,
    ReplicaLost,
    UsageReported,
)
from rankcore.routing import RoutingNote
from rankcore.routing.commands import Complete, Dispatch, Expire, Fail, Forget, Reject, Retry


class ModelWorld:
    """Everything that is simulated.

    Attributes:
        loop: Virtual time.
        story: What happened, in words, and the first broken promise.
        control: The fleet: its planner and its routers.
        serving: Requests on their way.
        together: What is measured of all models together.
        ports: What is counted of requests, by model.
        nodes: By id, in the order of the scenario.
        wire: What is under way between the fleet and its nodes.
        watch: Who held what when.
        notebook: What was decided.
    """

    def __init__(self, scenario: ResidencyScenario, arrivals: Mapping[str, Arrivals]) -> None:
        self.scenario = scenario
        self.loop = EventLoop()
        self.story = Story(self.loop.halt)
        self.together = Together()
        self.ports = {model.name: ModelPort(model.name, arrivals[model.name], self.together) for model in scenario.models}
        self.nodes = {shape.node_id: GpuNode(self.loop, shape, scenario.loading) for shape in scenario.shapes}
        self.watch = MemoryWatch(self.loop, scenario, self.ports, self.nodes)
        self.notebook = Notebook()
        self.serving = Serving(self.loop, self.ports)
        self.control = Control(self.loop, scenario, self.story, self)
        self._streams = Streams(scenario.seed)
        self.wire = Wire(self.loop, self._streams, scenario.network, self._check_held)
        self._processes: dict[str, ResidentProcess] = {}
        self._loads: dict[str, int] = {}
        self._to_fail: dict[str, int] = {}
        self._some_lie = any(size.really_working_bytes != size.working_bytes for size in scenario.sizes.values())

    def start(self) -> None:
        """The run begins: nodes are there, models are known, and requests come."""
        self.watch.count_nodes()
        self.serving.begin(self.control, self._report)
        self.control.start(self.scenario.shapes)

    # -- commands of the fleet

    def load(self, command: LoadToGpu) -> None:
        """Bring weights to GPUs."""
        node = self.nodes[command.node_id]
        self.wire.to_node(node, self._load, command, node.told)

    def offload(self, command: OffloadToCpu) -> None:
        """Finish, copy the weights to CPU memory, and free the GPUs."""
        what = (command.replica_id, command.move, command.timeout_s, command.cpu_bytes)
        self.wire.to_node(self.nodes[command.node_id], self._send_away, command.node_id, *what)

    def unload(self, command: UnloadFromGpu) -> None:
        """Finish, and free the GPUs."""
        what = (command.replica_id, command.move, command.timeout_s, None)
        self.wire.to_node(self.nodes[command.node_id], self._send_away, command.node_id, *what)

    def drop(self, command: DropFromCpu) -> None:
        """Free CPU memory."""
        self.wire.to_node(self.nodes[command.node_id], self._drop, command)

    def dispatch(self, command: Dispatch | Retry) -> None:
        """Have a replica work on a request; one that has ended by itself cannot, as the fleet will hear."""
        process = self._processes.get(command.replica_id)
        if process is not None:
            self.wire.to_node(process.node, self._dispatch, process, command)

    def answer(self, command: Complete | Fail | Reject | Expire | Forget) -> None:
        """A request has its one final answer."""
        self.serving.answer(command)

    def noted(self, note: Note) -> None:
        """The fleet decided something."""
        if isinstance(note, RoutingNote):
            self.serving.noted(note)
            return
        if isinstance(note, ResidencyNote) and note.model in self.ports:
            self.notebook.count(note, self.ports[note.model].tally)
        self.notebook.write(self.loop.now, note)

    def placed(self) -> None:
        """Something other than a request may have changed which replicas are HOT."""
        for name, port in self.ports.items():
            if not self.control.is_hot(name):
                port.miss(self.loop.now)

    # -- what becomes of a load

    def _load(self, command: LoadToGpu, believed: tuple[int, ...]) -> None:
        node, model = self.nodes[command.node_id], command.model
        from_cpu = command.source is Level.WARM
        process = ResidentProcess(command.replica_id, model, node, command.gpus, command.gpu_bytes, command.move, from_cpu)
        self._processes[command.replica_id] = process
        process.short = node.memory.take(command.replica_id, command.gpus, command.gpu_bytes)
        if process.short is not None and node.has(believed) and not (self.wire.takes_time and self._some_lie):
            self._broken("T1", f"{command.replica_id} does not fit on GPU {process.short} of {command.node_id}")
        self.watch.begin_load(process)
        self._loads[model] = number = self._loads.get(model, 0) + 1
        stream = self._streams.once("load", model, str(number))
        loading = self.scenario.loading
        start_s = (loading.warm_start_s if from_cpu else loading.cold_start_s).sample(stream)
        fails, after = stream.random() < loading.failure, stream.random()
        if self._to_fail.get(model, 0):
            self._to_fail[model] -= 1
            fails = True
        process.fails_after = after if fails else None
        self.loop.after(start_s, self._move_in, process)

    def _move_in(self, process: ResidentProcess) -> None:
        if not self._is_current(process):
            return
        size = self.scenario.sizes[process.model].weight_bytes
        if process.fails_after is not None:
            size = max(1, int(size * process.fails_after))
        uses = (TO_GPU,) if process.from_cpu else (DISK, TO_GPU)
        process.transfer = process.node.links.begin(uses, size, self._moved_in, process)

    def _moved_in(self, process: ResidentProcess) -> None:
        if process.fails_after is not None:
            self._fail_load(process, "the load failed")
            return
        really = self._really(process)
        short = process.node.memory.take(process.replica_id, process.gpus, really)
        short = short if short is not None else process.short
        if short is not None:
            self._fail_load(process, f"out of memory on GPU {short} of {process.node.shape.node_id}")
            self._measure(process.node)
            return
        self.watch.moved(process)
        process.transfer, process.hot = None, True
        if process.from_cpu:
            process.node.memory.leave_cpu(process.replica_id)
        self.watch.become_hot(process, really)
        self._tell(process.node, LoadFinished(replica_id=process.replica_id, move=process.move, at=self.loop.now))
        if really > process.gpu_bytes:
            self._tell(process.node, UsageReported(replica_id=process.replica_id, gpu_bytes=really, at=self.loop.now))
        self._check_held(process.node)

    def _really(self, process: ResidentProcess) -> tuple[int, ...]:
        """What it turns out to take on each of its GPUs."""
        size = self.scenario.sizes[process.model]
        if size.really_working_bytes == size.working_bytes:
            return process.gpu_bytes
        total = size.weight_bytes + size.really_working_bytes
        return (-(-total // len(process.gpus)),) * len(process.gpus)

    def _fail_load(self, process: ResidentProcess, reason: str) -> None:
        self._end(process)
        self.watch.fail_load(process)
        failed = LoadFailed(replica_id=process.replica_id, move=process.move, reason=reason, at=self.loop.now)
        self._tell(process.node, failed)

    def _measure(self, node: GpuNode) -> None:
        """After a load for which there was no room: how much is there really?"""
        if not node.says_the_truth:
            gpu_bytes = tuple(node.memory.capacity)
            found = MemoryMeasured(node_id=node.shape.node_id, gpu_bytes=gpu_bytes, at=self.loop.now)
            self.wire.to_controller(node, self._measured, node, found)

    def _measured(self, node: GpuNode, found: MemoryMeasured) -> None:
        node.told = found.gpu_bytes
        self.control.tell(found)

    def _dispatch(self, process: ResidentProcess, command: Dispatch | Retry) -> None:
        if self._is_current(process):
            self.serving.dispatch(command)

    # -- what leaves

    def _drop(self, command: DropFromCpu) -> None:
        node = self.nodes[command.node_id]
        node.memory.leave_cpu(command.replica_id)
        self.watch.leave_cpu(command.node_id, command.replica_id, _model_of(command.replica_id))
        self._soon(node, OffloadFinished(replica_id=command.replica_id, move=command.move, at=self.loop.now))

    def _send_away(self, node_id: str, replica_id: str, move: int, timeout_s: float, cpu_bytes: int | None) -> None:
        process = self._processes.get(replica_id)
        if process is None:  # it ended by itself, and the planner will hear of that: an answer to what it does not know
            self._soon(self.nodes[node_id], OffloadFinished(replica_id=replica_id, move=move, at=self.loop.now))
            return
        process.move, process.leaving = move, True
        self.watch.leaving(process)
        self.loop.after(timeout_s, self._go, process, move, cpu_bytes)
        self.serving.drain(replica_id, self._go, process, move, cpu_bytes)

    def _go(self, process: ResidentProcess, move: int, cpu_bytes: int | None) -> None:
        """It has nothing in flight any more, or its time is over."""
        if not self._is_current(process) or process.move != move or (process.hot and process.transfer is not None):
            return
        self.serving.cut_off(process.replica_id)
        if cpu_bytes is None or not process.hot:
            self._end(process)
            self.watch.gone(process)
            self._soon(process.node, OffloadFinished(replica_id=process.replica_id, move=move, at=self.loop.now))
            return
        process.node.memory.take_cpu(process.replica_id, cpu_bytes)
        self.watch.copying(process, cpu_bytes)
        size = self.scenario.sizes[process.model].weight_bytes
        process.transfer = process.node.links.begin((TO_CPU,), size, self._copied, process)

    def _copied(self, process: ResidentProcess) -> None:
        self.watch.moved(process)
        process.transfer = None
        self._end(process)
        self.watch.gone(process)
        self._tell(process.node, OffloadFinished(replica_id=process.replica_id, move=process.move, at=self.loop.now))
        self._check_held(process.node)

    def _end(self, process: ResidentProcess) -> None:
        """Its process is no more, and its GPUs are free of it."""
        if process.transfer is not None:
            process.node.links.cancel(process.transfer)
            self.watch.moved(process)
            process.transfer = None
        process.node.memory.leave_gpu(process.replica_id)
        if self._processes.get(process.replica_id) is process:
            del self._processes[process.replica_id]

    # -- what goes wrong

    def lose_node(self, node_id: str) -> None:
        """A node goes down, with all that is on it; it may have several faults at a time."""
        node = self.nodes[node_id]
        node.faults += 1
        if node.faults > 1:
            return
        node.life += 1
        ended = [process for process in self._processes.values() if process.node is node]
        self._tell_story("fault", f"node {node_id} lost, with {_listed([each.replica_id for each in ended])}", node_id)
        self.watch.begin_outage(node_id)
        node.memory.clear()
        for process in ended:
            self._end(process)
            self.watch.gone(process)
        self.watch.lose_node(node)
        for process in ended:
            self.serving.lose(process.replica_id)
        self._tell(node, NodeLost(node_id=node_id, at=self.loop.now))

    def bring_node_back(self, node_id: str) -> None:
        """One fault of a node is over; without any it is up, empty."""
        node = self.nodes[node_id]
        node.faults -= 1
        if node.up:
            self._tell_story("fault", f"node {node_id} is back, empty", node_id)
            self.watch.end_outage(node_id)
            self.watch.count_nodes()
            self.wire.to_controller(node, self._joined, node, node.life, self.loop.now)

    def _joined(self, node: GpuNode, life: int, at: float) -> None:
        node.told = node.shape.gpu_bytes
        self.wire.meet(node, life)
        self.control.join(node.shape, at)

    def crash(self, model: str) -> None:
        """The process of the oldest replica of a model dies."""
        process = self.oldest(model)
        if process is None:
            self._tell_story("fault", f"a replica of {model} was to crash, but none is on a GPU")
            return
        self._tell_story("fault", f"{process.replica_id} crashed on {process.node.shape.node_id}", process.node.shape.node_id)
        self.ports[model].tally.crashes += 1
        if not process.hot:
            self._fail_load(process, "its process died")
            return
        self._end(process)
        self.watch.gone(process)
        self.serving.lose(process.replica_id)
        lost = ReplicaLost(replica_id=process.replica_id, reason="its process died", at=self.loop.now)
        self._tell(process.node, lost)

    def oldest(self, model: str) -> ResidentProcess | None:
        """The oldest replica of a model that is on GPUs, or on its way there; None: there is none."""
        return next((each for each in self._processes.values() if each.model == model and not each.leaving), None)

    def fail_loads(self, model: str, count: int) -> None:
        """The next loads of a model fail."""
        self._tell_story("fault", f"the next {count} loads of {model} fail" if count > 1 else f"the next load of {model} fails")
        self._to_fail[model] = self._to_fail.get(model, 0) + count

    def shrink(self, node_id: str, gpu_gb: float) -> None:
        """Somebody else takes memory of a node's GPUs, which is measured at once."""
        node = self.nodes[node_id]
        self._tell_story("fault", f"{gpu_gb:g} GB are left of each GPU of {node_id}", node_id)
        node.memory.capacity = [min(there, round(gpu_gb * GB)) for there in node.memory.capacity]
        self.watch.count_nodes()
        if node.up:
            self._measure(node)

    def change(self, change: ModelChange) -> None:
        """Somebody asks for something."""
        model = change.model
        if change.evict is not None:
            self._tell_story("change", f"{model} is to leave the GPUs, and be {change.evict} if it can")
            self.control.evict(model, Level(change.evict))
            return
        assert change.replicas is not None, "the class asks for one of both"
        self._tell_story("change", f"{change.replicas} replicas of {model} wanted")
        self.control.scale(model, change.replicas)

    # -- news

    def check(self) -> None:
        """Look at all books, and whether those serve that ought to."""
        self.control.check()
        for node in self.nodes.values():
            self._check_held(node)
        if not all(map(self.wire.is_quiet, self.nodes.values())):
            return  # the routes follow what is still under way
        for name, served in self.control.state.models.items():
            there = {
                each.replica_id for each in self._processes.values() if each.model == name and each.hot and not each.leaving
            }
            if there != set(served.routed):
                self._broken("D6", f"{name}: {sorted(there)} are HOT, requests go to {sorted(served.routed)}")

    def _tell(self, node: GpuNode, event: Event) -> None:
        """The planner hears news of a node."""
        self.wire.to_controller(node, self.control.tell, event)

    def _soon(self, node: GpuNode, event: Event) -> None:
        """Tell the planner once it has done with what it is doing."""
        self.loop.after(0.0, self._tell, node, event)

    def _report(self, replica_id: str, hear: Callable[..., object], *what: object) -> None:
        """A replica says something of its requests."""
        self.wire.to_controller(self._processes[replica_id].node, hear, *what)

    def _is_current(self, process: ResidentProcess) -> bool:
        return self._processes.get(process.replica_id) is process

    def _check_held(self, node: GpuNode) -> None:
        """T8: what is held on the GPUs of a node is reserved for somebody in the book, once that has all its news."""
        if not self.wire.is_quiet(node):
            return
        book = self.control.residency.nodes.get(node.shape.node_id)
        if book is None or not node.says_the_truth:
            return
        for number, (gpu, used) in enumerate(zip(book.gpus, node.memory.used, strict=True)):
            reserved = gpu.capacity_bytes - gpu.free_bytes
            if used > reserved:
                self._broken("T8", f"GPU {number} of {node.shape.node_id} holds {used} bytes, and {reserved} are reserved")

    def _broken(self, rule: str, text: str) -> None:
        self.story.fail(Failure(self.loop.now, FLEET, "what the nodes hold", rule, text))

    def _tell_story(self, kind: str, text: str, node_id: str | None = None) -> None:
        self.story.tell(self.loop.now, kind, None, text, node=node_id)


def _model_of(replica_id: str) -> str:
    return replica_id.rpartition("#")[0]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "nothing on it"
