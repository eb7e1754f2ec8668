"""Who is where, and what falls due when, kept up to date as records change."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import takewhile

from rankcore.frozen import PMap
from rankcore.ordered import Ordered
from rankcore.residency.index import Roster
from rankcore.residency.levels import WANTED, Level, Phase
from rankcore.residency.spec import ModelSpec
from rankcore.residency.state import Resident, serial_of
from rankcore.values import NodeId, ReplicaId

ROUND_TRIP_LOADS = 2.0
"""Who is displaced and comes back costs a round trip: another one's load, taken to be as long as its own, and its own again."""


class Group(StrEnum):
    """Replicas of a model that somebody looks for. A replica may be in several."""

    WANTED = "wanted"
    SERVING = "serving"
    WAITING = "waiting"
    PLACED = "placed"
    """They have a place on GPUs."""
    WARM = "warm"
    """RESTING, with a copy in CPU memory."""
    COLD = "cold"
    """RESTING without one, or with one that is being dropped."""


class RosterDraft:
    """A roster that is changed in place while a step runs."""

    def __init__(self, roster: Roster) -> None:
        self.on_gpus = roster.on_gpus
        self.copies = roster.copies
        self.groups = roster.groups
        self.timers = roster.timers
        self.ages = roster.ages

    def freeze(self) -> Roster:
        """The same as a value."""
        return Roster(
            on_gpus=self.on_gpus,
            copies=self.copies,
            groups=self.groups,
            timers=self.timers,
            ages=self.ages,
        )

    def members(self, model: str, group: Group) -> Ordered[int]:
        """Serial numbers of the replicas of a model in a group."""
        return self.groups.get((model, group), NOBODY)

    def change(self, old: Resident | None, new: Resident, spec: ModelSpec) -> None:
        """A record has changed."""
        before = groups_of(old) if old is not None else ()
        after = groups_of(new)
        if before != after:
            self._regroup(new, before, after)
        self.on_gpus = _moved(self.on_gpus, new.replica_id, _place_of(old), _place_of(new))
        self.copies = _moved(self.copies, new.replica_id, old.copy_node_id if old is not None else None, new.copy_node_id)
        self.time(new.replica_id, due_at(old, spec) if old is not None else None, due_at(new, spec))

    def time(self, replica_id: ReplicaId, before: float | None, after: float | None) -> None:
        """Something about a replica is due at another moment."""
        if before != after:
            if before is not None:
                self.timers = self.timers.discard((before, replica_id))
            if after is not None:
                self.timers = self.timers.add((after, replica_id))

    def ripen(self, replica_id: ReplicaId, before: float | None, after: float | None, clock: float) -> None:
        """A replica will have been HOT for its minimum time at another moment; what has passed is not waited for."""
        if before is not None:
            self.ages = self.ages.discard((before, replica_id))
        if after is not None and after > clock:
            self.ages = self.ages.add((after, replica_id))

    def ripe_by(self, clock: float) -> Iterator[ReplicaId]:
        """Whose minimum time has passed, and that was not looked at since."""
        return (replica_id for _, replica_id in takewhile(lambda each: each[0] <= clock, self.ages))

    def end(self, record: Resident) -> None:
        """A record that is RESTING and COLD is no more."""
        self._regroup(record, groups_of(record), ())

    def _regroup(self, record: Resident, before: tuple[Group, ...], after: tuple[Group, ...]) -> None:
        serial = serial_of(record.replica_id)
        for group in before:
            if group not in after:
                left = self.groups[record.model, group].discard(serial)
                key = (record.model, group)
                self.groups = self.groups.set(key, left) if left else self.groups.delete(key)
        for group in after:
            if group not in before:
                self.groups = self.groups.set((record.model, group), self.members(record.model, group).add(serial))


NOBODY: Ordered[int] = Ordered()


def groups_of(record: Resident) -> tuple[Group, ...]:
    """Where to find it."""
    found = []
    if is_wanted(record):
        found.append(Group.WANTED)
    if record.phase is Phase.SERVING:
        found.append(Group.SERVING)
    elif record.phase is Phase.WAITING:
        found.append(Group.WAITING)
    elif record.phase is Phase.DROPPING:
        found.append(Group.COLD)
    elif record.phase is Phase.RESTING:
        found.append(Group.WARM if record.level is Level.WARM else Group.COLD)
    if record.gpus:
        found.append(Group.PLACED)
    return tuple(found)


def is_wanted(record: Resident) -> bool:
    """Whether it counts for the target of its model (T10)."""
    return record.phase in WANTED


def due_at(record: Resident, spec: ModelSpec) -> float | None:
    """When it will have been idle for too long; None: never."""
    if record.phase is Phase.SERVING and not record.in_flight and spec.idle_to_warm_s is not None:
        return record.last_used + spec.idle_to_warm_s
    if record.phase is Phase.RESTING and record.level is Level.WARM and spec.idle_to_cold_s is not None:
        return record.since + spec.idle_to_cold_s
    return None


def ripe_at(record: Resident, spec: ModelSpec) -> float | None:
    """When its turn is over, as things are: it may be displaced then (T13); None: it has none, or is not HOT.

    It has its minimum time in any case, and with calls `turn_s`. It is over early once it has not been called for that minimum
    time, nor for a round trip.
    """
    if record.phase is not Phase.SERVING or record.hot_since is None:
        return None
    ends = turn_end(record.hot_since, record.turn_s, spec)
    if not record.in_flight:
        ends = min(ends, max(record.hot_since, record.last_used) + max(spec.min_hot_s, ROUND_TRIP_LOADS * record.load_s))
    return ends if ends > record.hot_since else None


def is_over(record: Resident, spec: ModelSpec, clock: float) -> bool:
    """Whether the turn of a replica that serves is over (T13)."""
    ends = ripe_at(record, spec)
    return ends is None or ends <= clock


def turn_end(hot_since: float, turn_s: float, spec: ModelSpec) -> float:
    """When the turn of a replica is over at the latest, however many calls it has."""
    return hot_since + max(spec.min_hot_s, turn_s)


def _place_of(record: Resident | None) -> NodeId | None:
    return record.node_id if record is not None and record.gpus else None


def _moved(
    table: PMap[NodeId, tuple[ReplicaId, ...]], replica_id: ReplicaId, before: NodeId | None, after: NodeId | None
) -> PMap[NodeId, tuple[ReplicaId, ...]]:
    if before == after:
        return table
    if before is not None:
        left = tuple(each for each in table[before] if each != replica_id)
        table = table.set(before, left) if left else table.delete(before)
    if after is not None:
        table = table.set(after, tuple(sorted((*table.get(after, ()), replica_id))))
    return table
