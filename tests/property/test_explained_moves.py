"""A move is explained by whose end or acknowledgement freed the node or local rank in the states, whatever a world does."""

from collections.abc import Iterable
from random import Random
from typing import TypeAlias

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from executors.engine.deployments import Deployed, Entry, Recovered
from executors.explain.facts import Fact
from executors.explain.tracing import Tracer
from rankcore import DeploymentSpec, DeploymentState, Step, step
from rankcore.commands import ReconfigureReplica
from rankcore.events import (
    Event,
    NodeLost,
    ReplicaDied,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReported,
    ReplicaStopped,
    SpecChanged,
)
from rankcore.notes import Note, NoteKind
from rankcore.state import Replica
from rankcore.values import ReplicaId, ReplicaRank, ReplicaState, age_key

NODES = 6
LEVELS = ("rank", "node_rank", "local_rank")

Number: TypeAlias = tuple[str, int] | tuple[str, str, int]
"""A node rank, or a local rank of a node."""


def numbers(replica: Replica, *ranks: ReplicaRank) -> set[Number]:
    """Node and local ranks among these."""
    nodes: set[Number] = {("node_rank", rank.node_rank) for rank in ranks}
    return nodes | {("local_rank", str(replica.node_id), rank.local_rank) for rank in ranks}


def holders(state: DeploymentState) -> dict[Number, set[ReplicaId]]:
    """Who may believe each node rank, and each local rank of a node, by the state alone."""
    found: dict[Number, set[ReplicaId]] = {}
    for replica_id, replica in state.replicas.items():
        for number in numbers(replica, *([] if replica.told is None else [replica.told]), *replica.believed):
            found.setdefault(number, set()).add(replica_id)
    return found


@attrs.frozen
class Freed:
    """In which line a number came to be free, and who had it before that line."""

    line: int
    by: set[ReplicaId]


class World:
    """One deployment on a few nodes, and what its journal is explained to say.

    Attributes:
        moves: Each number that a move was into: its explanation, what the states say freed the number, and the note.
    """

    def __init__(self, target: int, compaction: str) -> None:
        spec = DeploymentSpec(name="llm", target_replicas=target, compaction=compaction, victims="highest_rank")
        self.line, self.now = 1, 0.0
        self.tracer = Tracer("llm")
        self.freed: dict[Number, Freed] = {}
        self.moves: list[tuple[Fact, Freed | None, Note]] = []
        begun = Deployed(spec=spec)
        self.state = begun.step().state
        self._explain(begun, begun.step(), {})

    def tell(self, event: Event) -> None:
        """The core is told, and its answer explained."""
        before = holders(self.state)
        result = step(self.state, event)
        self.state = result.state
        self._explain(event, result, before)

    def _explain(self, cause: Deployed | Recovered | Event, result: Step, before: dict[Number, set[ReplicaId]]) -> None:
        self.line += 1
        said = {"commands": result.commands, "notes": result.notes, "fingerprint": None}
        facts = self.tracer.facts_of(Entry(line=self.line, deployment="llm", cause=cause, **said))
        after = holders(result.state)
        moved = [(note, result.state.replicas[note.replica_id]) for note in result.notes if note.kind is NoteKind.RANK_MOVED]
        into = {number for note, replica in moved for number in numbers(replica, note.after) - numbers(replica, note.before)}
        for number, who in before.items():
            if number not in after or (number in into and not who & after[number]):
                self.freed[number] = Freed(self.line, who)
        for note, replica in moved:
            if note.rule == "R8":
                (fact,) = (each for each in facts if each.replica_ids == (note.replica_id,) and " moved " in each.text)
                for number in numbers(replica, note.after) - numbers(replica, note.before):
                    self.moves.append((fact, self.freed.get(number), note))

    def _some(self, number: int, *states: ReplicaState) -> Iterable[ReplicaId]:
        """One of the replicas that are so, if there is any."""
        found = [who for who, each in self.state.replicas.items() if not states or each.state in states]
        return sorted(found, key=age_key)[number % len(found) :][:1] if found else ()

    # what may happen

    def all_come_up(self, number: int) -> None:
        for who in sorted(self.state.replicas, key=age_key):
            if who in self.state.replicas and self.state.replicas[who].node_id is None:
                number = number * 7 + 3
                self.tell(ReplicaPlaced(replica_id=who, node_id=f"n{number % NODES}", at=self.now))
                self.tell(ReplicaReady(replica_id=who, at=self.now))

    def one_comes_up(self, number: int) -> None:
        for who in self._some(number, ReplicaState.REQUESTED):
            self.tell(ReplicaPlaced(replica_id=who, node_id=f"n{number % NODES}", at=self.now))
            self.tell(ReplicaReady(replica_id=who, at=self.now))

    def one_acknowledges(self, number: int) -> None:
        owing = [who for who, each in self.state.replicas.items() if isinstance(each.pending, ReconfigureReplica)]
        for who in sorted(owing, key=age_key)[number % max(1, len(owing)) :][:1]:
            self.tell(ReplicaReconfigured(replica_id=who, revision=self.state.replicas[who].revision, at=self.now))

    def all_acknowledge(self, number: int) -> None:
        for _ in self.state.replicas:
            self.one_acknowledges(number)

    def one_stops(self, number: int) -> None:
        for who in self._some(number, ReplicaState.DRAINING):
            self.tell(ReplicaStopped(replica_id=who, at=self.now))

    def one_dies(self, number: int) -> None:
        for who in self._some(number):
            self.tell(ReplicaDied(replica_id=who, reason="killed", at=self.now))

    def node_is_lost(self, number: int) -> None:
        self.tell(NodeLost(node_id=f"n{number % NODES}", at=self.now))

    def target_changes(self, number: int) -> None:
        named = list(self._some(number)) if number % 2 else []
        self.tell(SpecChanged(spec=attrs.evolve(self.state.spec, target_replicas=number % 9), stop_first=named, at=self.now))

    def controller_returns(self, number: int) -> None:
        believed = {who: each for who, each in self.state.replicas.items() if each.told is not None}
        epoch = self.state.epoch + 1
        how = Recovered(spec=self.state.spec, replica_ids=tuple(sorted(believed)), at=self.now, epoch=epoch)
        self.freed.clear()  # a new controller knows what is reported, and nothing of before
        self.state = how.step().state
        self._explain(how, how.step(), {})
        for who, replica in sorted(believed.items()):
            rank = (replica.told, *replica.believed)[number % (1 + len(replica.believed))]
            said = {"node_id": replica.node_id, "rank": rank, "version": replica.version, "config_id": replica.config_id}
            self.tell(ReplicaReported(replica_id=who, ready=True, epoch=epoch, at=self.now, **said))


HAPPENINGS = (
    *[World.all_come_up, World.target_changes, World.node_is_lost] * 4,
    *[World.one_acknowledges, World.one_dies] * 3,
    *[World.one_stops] * 2,
    *[World.one_comes_up, World.all_acknowledge, World.controller_returns],
)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_move_is_explained_by_what_freed_the_number(seed):
    chosen = Random(seed)  # lists that hypothesis draws are short, and rarely come to a move
    world = World(chosen.randint(2, 9), chosen.choice(("when_healthy", "immediate")))
    world.all_come_up(seed)
    for happening in chosen.choices(HAPPENINGS, k=30):
        world.now += 1.0
        happening(world, chosen.randrange(1000))
    for fact, freed, note in world.moves:
        if freed is None:
            continue  # nobody has had it since the controller came back
        answers = [cause for cause in fact.causes if _says(cause, freed)]
        assert answers, (fact.line, fact.text, [(each.line, each.text) for each in fact.causes], freed)
        changed = [level for level in LEVELS if getattr(note.before, level) != getattr(note.after, level)]
        if len(changed) == 1 and changed != ["rank"]:
            assert fact.causes[0] is answers[0], (fact.line, fact.text, freed)


def _says(cause: Fact, freed: Freed) -> bool:
    """Whether a fact is the end, in that line, of who had the number, or the move that one of them acknowledged in it."""
    moved = " moved " in cause.text or " reported " in cause.text
    return bool(freed.by & set(cause.replica_ids)) and (moved or cause.line == freed.line)
