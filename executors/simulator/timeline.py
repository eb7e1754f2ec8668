"""Who held which global rank when: the raw material of the figures and of the picture."""

from typing import TypeAlias

import attrs

from rankcore.values import NodeId, ReplicaId

Interval: TypeAlias = tuple[float, float]


@attrs.frozen
class Hold:
    """A replica believed to have a global rank, for a time.

    Attributes:
        running: Whether it was started up and not draining.
        until: When it ended, or the end of the run.
    """

    rank: int
    replica_id: ReplicaId
    node_id: NodeId
    running: bool
    since: float
    until: float


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


class Timeline:
    """Collects holds, and knows at each moment whether the running ranks are exactly 0..N-1.

    Attributes:
        holds: Those that are over, in the order in which they ended.
        world_sizes: (since, N), ascending.
        incomplete_s: How long the running ranks were not exactly 0..N-1, after they first had been.
    """

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self.world_sizes: list[tuple[float, int]] = []
        self.incomplete_s = 0.0
        self._open: dict[ReplicaId, Hold] = {}
        self._holders: dict[int, int] = {}
        self._below = 0
        self._was_complete = False
        self._incomplete_since: float | None = None

    @property
    def world_size(self) -> int:
        """N now; 0 before it was ever set."""
        return self.world_sizes[-1][1] if self.world_sizes else 0

    def resize(self, now: float, world_size: int) -> None:
        """N is this from now on."""
        if self.world_sizes and self.world_size == world_size:
            return
        self.world_sizes.append((now, world_size))
        self._below = sum(1 for rank in self._holders if rank < world_size)
        self._judge(now)

    def hold(self, now: float, replica_id: ReplicaId, node_id: NodeId, rank: int, running: bool) -> None:
        """A replica believes to have this rank from now on, and is running or not."""
        before = self._open.get(replica_id)
        if before is not None and (before.rank, before.running) == (rank, running):
            return
        self._close(now, replica_id)
        self._open[replica_id] = Hold(rank, replica_id, node_id, running, now, now)
        if running:
            self._holders[rank] = self._holders.get(rank, 0) + 1
            if self._holders[rank] == 1 and rank < self.world_size:
                self._below += 1
        self._judge(now)

    def release(self, now: float, replica_id: ReplicaId) -> None:
        """A replica is gone."""
        self._close(now, replica_id)
        self._judge(now)

    def finish(self, now: float) -> None:
        """The run is over: close what is open."""
        for replica_id in sorted(self._open):
            hold = self._open.pop(replica_id)
            self.holds.append(attrs.evolve(hold, until=now))
        if self._incomplete_since is not None:
            self.incomplete_s += now - self._incomplete_since
            self._incomplete_since = None
        self.holds.sort(key=lambda hold: (hold.rank, hold.since, hold.replica_id))

    def _close(self, now: float, replica_id: ReplicaId) -> None:
        hold = self._open.pop(replica_id, None)
        if hold is None:
            return
        if now > hold.since:
            self.holds.append(attrs.evolve(hold, until=now))
        if not hold.running:
            return
        self._holders[hold.rank] -= 1
        if not self._holders[hold.rank]:
            del self._holders[hold.rank]
            if hold.rank < self.world_size:
                self._below -= 1

    def _judge(self, now: float) -> None:
        complete = self._below == self.world_size == len(self._holders)
        if complete and self._incomplete_since is not None:
            self.incomplete_s += now - self._incomplete_since
            self._incomplete_since = None
        elif not complete and self._was_complete and self._incomplete_since is None:
            self._incomplete_since = now
        self._was_complete = self._was_complete or complete


def gaps(timeline: Timeline, end: float) -> list[Gap]:
    """All gaps of a finished timeline, by rank and time."""
    running: dict[int, list[Interval]] = {}
    for hold in timeline.holds:
        if hold.running:
            running.setdefault(hold.rank, []).append((hold.since, hold.until))
    found = []
    for rank in sorted(running):
        for since, until in _between(sorted(running[rank]), end):
            for part_since, part_until in _wanted(rank, timeline.world_sizes, end):
                low, high = max(since, part_since), min(until, part_until)
                if low < high:
                    found.append(Gap(rank, low, high))
    return found


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


def _wanted(rank: int, world_sizes: list[tuple[float, int]], end: float) -> list[Interval]:
    """When a rank was below the world size; adjoining stretches are one."""
    found: list[Interval] = []
    ends = [since for since, _ in world_sizes[1:]] + [end]
    for (since, world_size), until in zip(world_sizes, ends, strict=True):
        if rank >= world_size:
            continue
        if found and found[-1][1] == since:
            found[-1] = (found[-1][0], until)
        else:
            found.append((since, until))
    return found
