"""Who held which global rank when: the raw material of the figures and of the picture."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import attrs

from executors.simulator.record.availability import Availability
from executors.simulator.record.series import Gauge
from executors.simulator.record.stopwatch import Stopwatch
from rankcore.rankset import RankCounts
from rankcore.values import NodeId, ReplicaId

Interval: TypeAlias = tuple[float, float]


class Phase(StrEnum):
    """How far a replica is with its rank."""

    WAITING = "waiting for room"
    STARTING = "starting"
    RUNNING = "running"
    MOVING = "moving"
    RECONFIGURING = "reconfiguring"
    HUNG = "hung"
    UNREADY = "unready"
    DRAINING = "draining"


SERVING = frozenset({Phase.RUNNING, Phase.MOVING, Phase.RECONFIGURING})
"""Those in which a replica does its work: told of another rank or configuration, it goes on meanwhile."""


@attrs.frozen
class Hold:
    """A replica had a global rank, for a time: was asked for with it, and from its initialisation on believed to have it.

    Attributes:
        node_id: None: it had no place yet.
        phase: MOVING and RECONFIGURING until the controller has heard that it is done.
        until: When it ended, or the end of the run.
    """

    rank: int
    replica_id: ReplicaId
    node_id: NodeId | None
    phase: Phase
    since: float
    until: float

    @property
    def running(self) -> bool:
        """Whether the rank was served meanwhile: the replica was started up, well and not draining."""
        return self.phase in SERVING

    def __deepcopy__(self, _: object) -> "Hold":
        """Itself: it never changes, so that a fork of a run shares it."""
        return self


@attrs.frozen
class Gap:
    """A rank had no running holder, after it once had one and while it was below the world size."""

    rank: int
    since: float
    until: float

    @property
    def length_s(self) -> float:
        """How long."""
        return self.until - self.since


@attrs.frozen
class Unserved:
    """All gaps of one rank.

    Attributes:
        gaps: How many.
        total_s: How long, together.
    """

    rank: int
    gaps: int
    total_s: float
    longest: Gap


@attrs.frozen
class _Told:
    """A change that a replica was told of and that the controller does not know to be done."""

    revision: int
    phase: Phase


class Timeline:
    """Collects holds, and knows at each moment whether the running ranks have a gap, and whether they are exactly 0..N-1.

    Attributes:
        holds: Those that are over, in the order in which they ended.
        world_sizes: (since, N), ascending.
        rank_gap: How long the k running ranks were not exactly 0..k-1.
        incomplete: How long they were not exactly 0..N-1, from when N was first set.
        running: How many replicas were running.
        availability: Whether they were enough.
    """

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self.world_sizes: list[tuple[float, int]] = []
        self.rank_gap = Stopwatch()
        self.incomplete = Stopwatch()
        self.running = Gauge()
        self.availability = Availability()
        self._open: dict[ReplicaId, Hold] = {}
        self._told: dict[ReplicaId, _Told] = {}
        self._held = RankCounts()
        self._running = 0
        self._early: set[ReplicaId] = set()

    @property
    def world_size(self) -> int:
        """N now; 0 before it was ever set."""
        return self.world_sizes[-1][1] if self.world_sizes else 0

    @property
    def held_now(self) -> tuple[ReplicaId, ...]:
        """Replicas that hold a rank."""
        return tuple(self._open)

    def resize(self, now: float, world_size: int) -> None:
        """N is this from now on."""
        if self.world_sizes and self.world_size == world_size:
            return
        self.world_sizes.append((now, world_size))
        self._judge(now)

    def hold(self, now: float, replica_id: ReplicaId, node_id: NodeId | None, rank: int, phase: Phase) -> None:
        """A replica has this rank from now on, and is this far with it."""
        told = self._told.get(replica_id)
        if told is not None and phase is Phase.RUNNING:
            phase = told.phase
        before = self._open.get(replica_id)
        if before is not None and (before.rank, before.node_id, before.phase) == (rank, node_id, phase):
            return
        self._close(now, replica_id)
        hold = self._open[replica_id] = Hold(rank, replica_id, node_id, phase, now, now)
        if phase is not Phase.STARTING:
            self._early.discard(replica_id)
        if hold.running:
            self._held = self._held.add(rank)
            self._running += 1
        self._judge(now)

    def serves_early(self, now: float, replica_id: ReplicaId, serves: bool) -> None:
        """A replica takes requests from now on, and runs only once it has its rank; or it does no longer."""
        (self._early.add if serves else self._early.discard)(replica_id)
        self._judge(now)

    def told(self, now: float, replica_id: ReplicaId, rank: int, revision: int) -> None:
        """A running replica is told of a change, perhaps of its rank; telling it again changes nothing."""
        hold, told = self._open.get(replica_id), self._told.get(replica_id)
        if hold is None or not hold.running or (told is not None and told.revision >= revision):
            return
        moving = hold.rank != rank or (told is not None and told.phase is Phase.MOVING)
        phase = Phase.MOVING if moving else Phase.RECONFIGURING
        self._told[replica_id] = _Told(revision, phase)
        self.hold(now, replica_id, hold.node_id, hold.rank, Phase.RUNNING)

    def acknowledged(self, now: float, replica_id: ReplicaId, revision: int) -> None:
        """The controller hears that it is done; news of an older change than the last one counts for nothing."""
        told = self._told.get(replica_id)
        if told is None or revision < told.revision:
            return
        del self._told[replica_id]
        hold = self._open.get(replica_id)
        if hold is not None and hold.running:
            self.hold(now, replica_id, hold.node_id, hold.rank, Phase.RUNNING)

    def release(self, now: float, replica_id: ReplicaId) -> None:
        """A replica is gone."""
        self._told.pop(replica_id, None)
        self._early.discard(replica_id)
        self._close(now, replica_id)
        self._judge(now)

    def finish(self, now: float) -> None:
        """The run is over: close what is open."""
        for replica_id in sorted(self._open):
            hold = self._open.pop(replica_id)
            if now > hold.since:
                self.holds.append(attrs.evolve(hold, until=now))
        self.rank_gap.show(now, False)
        self.incomplete.show(now, False)
        self.availability.finish(now)
        self.holds.sort(key=lambda hold: (hold.rank, hold.since, hold.replica_id))

    def _close(self, now: float, replica_id: ReplicaId) -> None:
        hold = self._open.pop(replica_id, None)
        if hold is None:
            return
        if now > hold.since:
            self.holds.append(attrs.evolve(hold, until=now))
        if not hold.running:
            return
        self._running -= 1
        self._held = self._held.discard(hold.rank)

    def _judge(self, now: float) -> None:
        if self.running.value != self._running:
            self.running.set(now, self._running)
        self.availability.runs(now, self._running + len(self._early))
        ranks = self._held.taken
        has_gap = ranks.highest() >= ranks.size
        self.rank_gap.show(now, has_gap)
        self.incomplete.show(now, bool(self.world_sizes) and (has_gap or ranks.size != self.world_size))


def gaps(timeline: Timeline, end: float) -> list[Gap]:
    """All gaps of a finished timeline, by rank and time."""
    running = _served(timeline)
    found = []
    for rank in sorted(running):
        for since, until in _between(sorted(running[rank]), end):
            for part_since, part_until in _wanted(rank, timeline.world_sizes, end):
                low, high = max(since, part_since), min(until, part_until)
                if low < high:
                    found.append(Gap(rank, low, high))
    return found


def unserved(found: Sequence[Gap]) -> tuple[Unserved, ...]:
    """The gaps of a run by rank, each with the first of its longest; ranks that had none are left out."""
    by_rank: dict[int, list[Gap]] = {}
    for gap in found:
        by_rank.setdefault(gap.rank, []).append(gap)
    return tuple(
        Unserved(rank, len(of_rank), math.fsum(gap.length_s for gap in of_rank), max(of_rank, key=lambda gap: gap.length_s))
        for rank, of_rank in sorted(by_rank.items())
    )


def unserved_at_first_s(timeline: Timeline, end: float) -> float:
    """Rank-seconds before ranks below the world size first had a running holder, of those that never had one included."""
    first = {rank: min(since for since, _ in held) for rank, held in _served(timeline).items()}
    return math.fsum(
        max(0.0, min(until, first.get(rank, end)) - since)
        for rank in range(max((size for _, size in timeline.world_sizes), default=0))
        for since, until in _wanted(rank, timeline.world_sizes, end)
    )


def ranks_without_room(timeline: Timeline) -> int:
    """How many ranks nobody ever ran with in a finished timeline, of those for which a replica waited and never had a node."""
    placed = {hold.replica_id for hold in timeline.holds if hold.node_id is not None}
    waited = {hold.replica_id for hold in timeline.holds if hold.phase is Phase.WAITING} - placed
    never = max((size for _, size in timeline.world_sizes), default=0) - len(_served(timeline))
    return max(0, min(never, len(waited)))


def _served(timeline: Timeline) -> dict[int, list[Interval]]:
    """When each rank had a running holder; of several, each for itself."""
    running: dict[int, list[Interval]] = {}
    for hold in timeline.holds:
        if hold.running:
            running.setdefault(hold.rank, []).append((hold.since, hold.until))
    return running


def _between(held: list[Interval], end: float) -> list[Interval]:
    """What lies between intervals, and after the last one."""
    found = []
    covered_until = held[0][1]
    for since, until in held[1:]:
        if since > covered_until:
            found.append((covered_until, since))
        covered_until = max(covered_until, until)
    if covered_until < end:
        found.append((covered_until, end))
    return found


def _wanted(rank: int, world_sizes: Sequence[tuple[float, int]], end: float) -> list[Interval]:
    """When a rank was below the world size; adjoining stretches are one."""
    found: list[Interval] = []
    for index, (since, world_size) in enumerate(world_sizes):
        until = world_sizes[index + 1][0] if index + 1 < len(world_sizes) else end
        if rank >= world_size:
            continue
        if found and found[-1][1] == since:
            found[-1] = (found[-1][0], until)
        else:
            found.append((since, until))
    return found
