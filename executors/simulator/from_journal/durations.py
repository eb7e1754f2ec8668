"""How long it took, in a journal, until what was asked for was done."""

from collections import defaultdict
from typing import NamedTuple

from executors.engine.deployments import Entry
from executors.simulator.load.distributions import SAMPLES_MAX
from rankcore.commands import InitializeReplica, PrepareReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import FINAL, ReplicaPlaced, ReplicaPrepared, ReplicaReady, ReplicaReconfigured, ReplicaStopped
from rankcore.values import ReplicaId

Asked = StartReplica | PrepareReplica | InitializeReplica | ReconfigureReplica | StopReplica
Answered = ReplicaPlaced | ReplicaPrepared | ReplicaReady | ReplicaReconfigured | ReplicaStopped

FIELDS: dict[type, str] = {
    StartReplica: "start_s",
    ReplicaPlaced: "start_s",
    PrepareReplica: "init_s",
    ReplicaPrepared: "init_s",
    InitializeReplica: "init_s",
    ReplicaReady: "init_s",
    ReconfigureReplica: "reconfigure_s",
    ReplicaReconfigured: "reconfigure_s",
    StopReplica: "drain_s",
    ReplicaStopped: "drain_s",
}
"""Which field of a scenario's deployment says how long it takes from this command to this event."""


class Measured(NamedTuple):
    """How long something took one replica: `field` from `asked_at` on, with so many messages on their ways meanwhile."""

    deployment: str
    replica_id: ReplicaId
    field: str
    asked_at: float
    took_s: float
    ways: int = 0


class Durations:
    """Measures while a journal is read; a command that is repeated counts from the first time.

    Attributes:
        measured: In seconds, by deployment and field, in the order of the journal.
        each: The same with the replicas.
    """

    def __init__(self) -> None:
        self.measured: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.each: list[Measured] = []
        self._asked_at: defaultdict[ReplicaId, dict[tuple[str, int], tuple[float, int]]] = defaultdict(dict)
        self._prepared: set[ReplicaId] = set()

    def look(self, entry: Entry) -> None:
        """One line."""
        event = entry.cause
        if isinstance(event, Answered):
            key = self._key(event)
            asked_at, ways = self._asked_at[event.replica_id].pop(key, (None, 0))
            samples = self.measured[entry.deployment][key[0]]
            if asked_at is not None and len(samples) < SAMPLES_MAX:
                took_s = max(0.0, event.at - asked_at)
                samples.append(took_s)
                self.each.append(Measured(entry.deployment, event.replica_id, key[0], asked_at, took_s, ways))
        if isinstance(event, FINAL):
            self._asked_at.pop(getattr(event, "replica_id", ""), None)
            self._prepared.discard(getattr(event, "replica_id", ""))
        news = hasattr(event, "replica_id") or hasattr(event, "node_id")  # its time is when it was sent
        for command in entry.commands:
            if isinstance(command, Asked):
                self._asked_at[command.replica_id].setdefault(self._key(command), (entry.at, news + _is_sent(command)))

    def _key(self, about: Asked | Answered) -> tuple[str, int]:
        """A replica has each of these once in its life, but for reconfigurations: one that was prepared is only told ranks."""
        if isinstance(about, PrepareReplica):
            self._prepared.add(about.replica_id)
        if isinstance(about, (InitializeReplica, ReplicaReady)) and about.replica_id in self._prepared:
            return FIELDS[ReconfigureReplica], 0
        revision = about.revision if isinstance(about, (ReconfigureReplica, ReplicaReconfigured)) else 0
        return FIELDS[type(about)], revision


def _is_sent(command: Asked) -> bool:
    """Whether it goes to the replica: a start goes to who places it."""
    return not isinstance(command, StartReplica)
