"""Worked cases of residency: text files with requests and, worked out by hand, what they come to. Sizes in GB of 10**9.

    node n1 gpus=80,80 cpu=40         a node joins; `node n1 gone`: it is lost
    deploy A 18.4 x2 dedicated; B 30  one request: models with their sizes, numbers of replicas and options
    evict A [cold]                    off the GPUs; cold: out of CPU memory as well
    wait 600                          time passes
    = A HOT on n1 GPU 0,1             a model with one replica: its level, and where; WAITING: it fits nowhere
    = A HOT WAITING COLD              a model with several
    = n1 free 8 8, = n1 cpu free 10   what nobody holds, GPU by GPU
    = displaced A B, = cant A         whom the last request displaced, and what it could not place; `nobody`
    = records A 1                     how many records the model has

Records of replicas that are COLD end. Every command is carried out at once and well, in order; every state and step is
checked against T1 to T10.
"""

from decimal import Decimal
from pathlib import Path

import pytest

from rankcore.events import ClockAdvanced
from rankcore.residency import (
    Level,
    ModelSpec,
    Phase,
    ResidencyNoteKind,
    ResidencyPolicy,
    Wanted,
    open_residency,
)
from rankcore.residency.commands import LoadToGpu, WakeAt
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFinished,
    NodeJoined,
    NodeLost,
    OffloadFinished,
)
from rankcore.residency.invariants import check, check_step
from rankcore.testing.model_residency.driving import DrivenPlanner, driven

CASES = sorted(Path(__file__).parent.glob("*.txt"))
GB = 10**9


def size_of(text):
    size = Decimal(text) * GB
    assert size == int(size)
    return int(size)


def in_gb(size):
    return format((Decimal(size) / GB).normalize(), "f")


class Case:
    """A planner, and an executor that does at once what it is told."""

    def __init__(self):
        self.planner = DrivenPlanner(open_residency(ResidencyPolicy()))
        self.now = 0.0
        self.notes = []

    def ask(self, event):
        """A request or news from outside, and all that follows from it."""
        self.notes = []
        commands = list(self.feed(event))
        while commands:
            command = commands.pop(0)
            if isinstance(command, WakeAt):
                continue
            finished = LoadFinished if isinstance(command, LoadToGpu) else OffloadFinished
            commands += self.feed(finished(replica_id=command.replica_id, move=command.move, at=self.now))

    def feed(self, event):
        self.planner, told = driven(self.planner, event)
        for before, each, step in told:
            assert check(step.state) == []
            assert check_step(before, each, step) == []
            self.notes += step.notes
        return [command for _, _, step in told for command in step.commands]

    @property
    def state(self):
        return self.planner.state

    def node(self, node_id, *options):
        if options == ("gone",):
            self.ask(NodeLost(node_id=node_id, at=self.now))
            return
        given = dict(option.split("=") for option in options)
        gpu_bytes = tuple(size_of(size) for size in given["gpus"].split(","))
        self.ask(NodeJoined(node_id=node_id, gpu_bytes=gpu_bytes, cpu_bytes=size_of(given.get("cpu", "0")), at=self.now))

    def deploy(self, text):
        self.ask(DeployRequested(wanted=tuple(wanted_of(part.split()) for part in text.split(";")), at=self.now))

    def evict(self, model, keep="warm"):
        self.ask(EvictRequested(model=model, keep=Level(keep.upper()), at=self.now))

    def wait(self, seconds):
        self.now += float(seconds)
        self.ask(ClockAdvanced(at=self.now))

    def shown(self, asked):
        """What an expectation says, as it is: of a model without records too, which is COLD."""
        first, *rest = asked
        if first in ("displaced", "cant"):
            kind = ResidencyNoteKind.DISPLACED if first == "displaced" else ResidencyNoteKind.CANT_ACCOMMODATE
            return [first, *(sorted({note.model for note in self.notes if note.kind is kind}) or ["nobody"])]
        if first == "records":
            return [first, rest[0], str(len(self.records(rest[0])))]
        if first in self.state.nodes:
            node = self.state.nodes[first]
            if rest[0] == "cpu":
                return [first, "cpu", "free", in_gb(node.cpu_free_bytes)]
            return [first, "free", *(in_gb(gpu.free_bytes) for gpu in node.gpus)]
        records = self.records(first)
        if len(records) > 1:
            return [first, *sorted(map(level_of, records), key=("HOT", "WARM", "WAITING", "COLD").index)]
        return [first, level_of(records[0]), *place_of(records[0])] if records else [first, "COLD"]

    def records(self, model):
        return [record for _, record in sorted(self.state.replicas.items()) if record.model == model]


def level_of(record):
    return "WAITING" if record.phase is Phase.WAITING else record.level.value


def place_of(record):
    where = ["on", record.node_id] if record.node_id else []
    return where + (["GPU", ",".join(map(str, record.gpus))] if record.gpus else [])


def wanted_of(words):
    model, size, *options = words
    replicas, fields = 1, {}
    for option in options:
        if option.startswith("x"):
            replicas = int(option[1:])
        elif option == "dedicated":
            fields["dedicated"] = True
        else:
            name, value = option.split("=")
            assert name == "min_hot", option
            fields["min_hot_s"] = float(value)
    return Wanted(spec=ModelSpec(model=model, weight_bytes=size_of(size), **fields), replicas=replicas)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_worked_case_comes_to_what_was_worked_out(path):
    case = Case()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        word, _, rest = line.partition(" ")
        if word == "=":
            assert case.shown(rest.split()) == rest.split(), f"{path.name}:{number}"
        elif word == "deploy":
            case.deploy(rest)
        elif word in ("node", "evict", "wait"):
            getattr(case, word)(*rest.split())
        else:
            assert word in ("", "#"), f"{path.name}:{number}: {line}"


def test_all_ten_cases_are_there():
    assert len(CASES) == 10
