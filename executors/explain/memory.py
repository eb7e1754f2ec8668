"""What the telling of later facts needs to know of earlier ones: O(replicas + ranks), however long the journal is."""

from collections import Counter
from typing import TypeAlias

import attrs

from executors.explain.facts import Fact
from rankcore import DeploymentSpec
from rankcore.values import NodeId, ReplicaId, ReplicaRank

Number: TypeAlias = tuple[str, int] | tuple[str, NodeId, int]
"""A global rank, a node rank, or a local rank on a node."""


@attrs.define
class Life:
    """What is known of a live replica.

    Attributes:
        slot: The global rank that it is to fill.
        rank: What it was told last.
        node_id: Where it is.
        since: When it got its rank, or was asked for.
        requested, given, leaving, moving: The facts of its start, of its first ranks, of its stop, and of its last move.
        given_up: What it had before moves that it has not acknowledged, and may still believe.
    """

    slot: int | None = None
    rank: ReplicaRank | None = None
    node_id: NodeId | None = None
    since: float = 0.0
    requested: Fact | None = None
    given: Fact | None = None
    leaving: Fact | None = None
    moving: Fact | None = None
    given_up: tuple[ReplicaRank, ...] = ()

    @property
    def global_rank(self) -> int | None:
        """The rank that it has, or is to have."""
        return self.rank.rank if self.rank is not None else self.slot

    @property
    def numbers(self) -> set[Number]:
        """All that it holds or may still believe, at the three levels."""
        ranks = (*self.given_up, *(() if self.rank is None else (self.rank,)))
        found: set[Number] = {(level, getattr(rank, level)) for rank in ranks for level in ("rank", "node_rank")}
        if self.node_id is not None:
            found |= {("local_rank", self.node_id, rank.local_rank) for rank in ranks}
        return found


@attrs.define
class Memory:
    """What has happened to one deployment so far, as far as later facts may follow from it.

    Attributes:
        clock, line: Of what is told now.
        resized: What set the target to what it is.
        updated: What asked for the version and user_config in force.
        retargeted: What has just set another target, in the same line; None: the change of the spec says so itself.
        recovered: The last return of a controller.
        deleted: What asked for the end.
        emptied: The last departure that left a node without a replica.
        lives: Live replicas.
        kept: Why a global rank is kept, and whose it was.
        holders: How many live replicas hold each number, or may still believe it: it is free with the last of them (R3).
        freed: What made a number free, and in which line of the journal.
        departed: The last departure from each node.
        failures: The last start failure in each slot.
        lost: The last loss of a bundle of each rank.
        restored: The last return of one.
        duplicates: Who reports a rank that another reports too.
        present: How many replicas are on each node.
    """

    name: str
    spec: DeploymentSpec | None = None
    status: str = ""
    status_since: float = 0.0
    clock: float = 0.0
    line: int = 0
    resized: Fact | None = None
    updated: Fact | None = None
    retargeted: Fact | None = None
    recovered: Fact | None = None
    deleted: Fact | None = None
    emptied: Fact | None = None
    lives: dict[ReplicaId, Life] = attrs.Factory(dict)
    kept: dict[int, Fact] = attrs.Factory(dict)
    holders: Counter[Number] = attrs.Factory(Counter)
    freed: dict[Number, tuple[int, Fact]] = attrs.Factory(dict)
    departed: dict[NodeId, Fact] = attrs.Factory(dict)
    failures: dict[int, Fact] = attrs.Factory(dict)
    lost: dict[int, Fact] = attrs.Factory(dict)
    restored: dict[int, Fact] = attrs.Factory(dict)
    duplicates: dict[int, Fact] = attrs.Factory(dict)
    present: Counter[NodeId] = attrs.Factory(Counter)

    def life(self, replica_id: ReplicaId) -> Life:
        """What is known of a replica, from now on if it is new."""
        return self.lives.setdefault(replica_id, Life(since=self.clock))

    def place(self, replica_id: ReplicaId, node_id: NodeId) -> None:
        """A replica is on a node."""
        life = self.life(replica_id)
        if life.node_id is None:
            before, life.node_id = life.numbers, node_id
            self.holders.update(life.numbers - before)
            self.present[node_id] += 1

    def rank(self, replica_id: ReplicaId, rank: ReplicaRank, by: Fact, given_up: tuple[ReplicaRank, ...] = ()) -> None:
        """A replica was told its ranks; until it acknowledges them it may believe what it has given up (R3)."""
        life = self.life(replica_id)
        before = life.numbers
        life.rank, life.slot, life.since, life.given_up = rank, rank.rank, self.clock, given_up
        self._follow(before, life.numbers, by)

    def report(self, replica_id: ReplicaId, rank: ReplicaRank, by: Fact) -> None:
        """A replica says what it believes. What it was told and has not heard is free by what made it free before."""
        life = self.life(replica_id)
        told = life.numbers - attrs.evolve(life, rank=None).numbers
        freed = {number: self.freed[number] for number in told if number in self.freed}
        self.rank(replica_id, rank, by)
        self.freed.update({number: before for number, before in freed.items() if number not in life.numbers})

    def acknowledge(self, life: Life, by: Fact) -> None:
        """A replica believes what it was told last, and nothing else."""
        before, life.given_up = life.numbers, ()
        self._follow(before, life.numbers, by)

    def end(self, replica_id: ReplicaId, by: Fact) -> None:
        """A replica is gone, and with it what it held and believed."""
        life = self.lives.pop(replica_id, None)
        if life is None:
            return
        self._follow(life.numbers, set(), by)
        node_id = life.node_id
        if node_id is None:
            return
        self.departed[node_id] = by
        self.present[node_id] -= 1
        if not self.present[node_id]:
            del self.present[node_id]
            self.emptied = by

    def _follow(self, before: set[Number], after: set[Number], by: Fact) -> None:
        """One replica has these numbers now, and had those: what nobody else has or believes is free."""
        self.holders.update(after - before)
        for number in before - after:
            self.holders[number] -= 1
            if not self.holders[number]:
                del self.holders[number]
                self.freed[number] = self.line, by

    def freed_since(self, number: Number, change: Fact | None) -> tuple[Fact, ...]:
        """What made a number free, if that was after a change: an older cause is another story, and chains without end."""
        line, fact = self.freed.get(number, (0, None))
        return () if fact is None or (change is not None and line < change.line) else (fact,)

    def freed_last(self, number: Number) -> Fact | None:
        """What made a number free that is free now, however long ago: another end since then did not."""
        return self.freed[number][1] if number in self.freed else None

    def wanted(self) -> Fact | None:
        """Why there are to be as many replicas as the target says: the last resize, or a recovery since."""
        known = [fact for fact in (self.resized, self.recovered) if fact is not None]
        return max(known, key=lambda fact: fact.line, default=None)
