"""A planner of residency for tests, driven as in a cluster; an executor answers when it is told to. Every step is checked."""

from rankcore.events import ClockAdvanced
from rankcore.residency import ModelSpec, ResidencyPolicy, Wanted, open_residency
from rankcore.residency.commands import LoadToGpu, WakeAt
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ReplicaUsed,
    UsageReported,
)
from rankcore.residency.invariants import check, check_step
from rankcore.residency.state import serial_of
from rankcore.testing.model_residency.driving import DrivenPlanner, driven

ENDED = ("COLD", "ended", None, ())
"""Where a replica is whose record has ended."""


class Cluster:
    """What a planner knows, what is called for, what was commanded and nobody has answered, and why.

    Attributes:
        pending: Commands without an answer, the oldest first.
        commands, notes: Of the latest request or news.
    """

    def __init__(self, *nodes, cpu=0, **policy):
        weighed = ResidencyPolicy(**{"recent_cost_bytes": 0, "in_flight_cost_bytes": 10, **policy})
        self.planner = DrivenPlanner(open_residency(weighed))
        self.now = 0.0
        self.pending = []
        self.commands = self.notes = ()
        for number, gpu_bytes in enumerate(nodes, 1):
            self.join(f"n{number}", *gpu_bytes, cpu=cpu)

    def feed(self, event):
        self.planner, told = driven(self.planner, event)
        for before, each, step in told:
            assert check(step.state) == []
            assert check_step(before, each, step) == []
        self.commands = tuple(command for _, _, step in told for command in step.commands)
        self.notes = tuple(note for _, _, step in told for note in step.notes)
        self.pending += [command for command in self.commands if not isinstance(command, WakeAt)]
        return self

    @property
    def state(self):
        return self.planner.state

    def answer(self, command=None, *, fails=None, heir=None):
        """Answer one command, the oldest unless one is given; an offload with who succeeds who has left."""
        command = self.pending[0] if command is None else command
        if command in self.pending:
            self.pending.remove(command)
        about = {"replica_id": command.replica_id, "move": command.move, "at": self.now}
        if fails is not None:
            failed = LoadFailed if isinstance(command, LoadToGpu) else OffloadFailed
            return self.feed(failed(reason=fails, **about))
        if heir is not None:
            return self.feed(OffloadFinished(**about, heir=heir))
        return self.feed((LoadFinished if isinstance(command, LoadToGpu) else OffloadFinished)(**about))

    def settle(self):
        """Answer everything; nothing is left to do then."""
        notes = list(self.notes)
        while self.pending:
            notes += self.answer().notes
        self.notes = tuple(notes)
        return self

    def deploy(self, *wanted):
        """One request; each model is a spec, or a pair of a spec and a number of replicas."""
        pairs = [each if isinstance(each, tuple) else (each, 1) for each in wanted]
        self.feed(DeployRequested(wanted=tuple(Wanted(spec=spec, replicas=replicas) for spec, replicas in pairs), at=self.now))
        return self

    def scale(self, model, replicas):
        """So many of a model that was deployed, more or fewer."""
        return self.deploy((self.planner.called_for[model].spec, replicas))

    def evict(self, **what):
        self.feed(EvictRequested(at=self.now, **what))
        return self

    def join(self, node_id, *gpu_bytes, cpu=0, **labels):
        self.feed(NodeJoined(node_id=node_id, gpu_bytes=gpu_bytes, cpu_bytes=cpu, labels=labels, at=self.now))
        return self

    def lose(self, node_id, at=None):
        self.feed(NodeLost(node_id=node_id, at=self.now if at is None else at))
        return self

    def measure(self, node_id, *gpu_bytes):
        self.feed(MemoryMeasured(node_id=node_id, gpu_bytes=gpu_bytes, at=self.now))
        return self

    def use(self, replica_id, in_flight):
        self.feed(ReplicaUsed(replica_id=replica_id, in_flight=in_flight, at=self.now))
        return self

    def report(self, replica_id, *gpu_bytes):
        self.feed(UsageReported(replica_id=replica_id, gpu_bytes=gpu_bytes, at=self.now))
        return self

    def end(self, replica_id, reason=""):
        self.feed(ReplicaLost(replica_id=replica_id, reason=reason, at=self.now))
        return self

    def wait(self, seconds):
        self.now += seconds
        self.feed(ClockAdvanced(at=self.now))
        return self

    def __getitem__(self, replica_id):
        return self.state.replicas[replica_id]

    def where(self, replica_id):
        """Level, phase, node and GPUs, in short."""
        if replica_id not in self.state.replicas and serial_of(replica_id) < self.state.serial:
            return ENDED
        record = self[replica_id]
        return (record.level.value, record.phase.value, record.node_id, record.gpus)

    def free(self, node_id):
        return tuple(gpu.free_bytes for gpu in self.state.nodes[node_id].gpus)

    def kinds(self):
        return [note.kind.value for note in self.notes]

    def sent(self):
        """The names of the commands of the latest step, and whom they are about."""
        return [(type(each).__name__, each.replica_id) for each in self.commands if not isinstance(each, WakeAt)]

    def why(self, replica_id):
        """What the notes of the latest request or news say of a replica."""
        return [note.because for note in self.notes if note.replica_id == replica_id]

    def woken_at(self):
        return [command.at for command in self.commands if isinstance(command, WakeAt)]


def model(name, size, **fields):
    return ModelSpec(model=name, weight_bytes=size, **fields)
