"""When two worlds are the same: what tells them apart, with every name and number taken relative to the others.

Two worlds are the same if one becomes the other by renaming what the core only compares. Such a renaming commutes with every
move, so it is enough to explore one of them:

- **Replica ids**, and with them births and serials, count only in their order of age: the core breaks ties by age, so a
  renaming keeps the order.
- **Revisions and epochs** count only in their order: the next one is above all that are known.
- **Node ids** count in the order in which the core came to know the nodes, but where bundles or room are on them.
- **Timers** count by how far they are from the clock, and only while something waits for them.
- **The moments of news** count only by their order: how many of those under way are older than a node's last loss, or than
  the newest that is known of a bundle, or of a replica's readiness where that can be lost.
- **Indexes** are left out: after each step they are recomputed and compared (`rankcore.invariants`).
- Entries that have lost their meaning (ids of the gone that nobody mentions) are left out.
"""

from typing import Any

import msgspec

from rankcore.book.slots import roomless_since
from rankcore.commands import Command, InitializeReplica, PrepareReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import (
    BundleLost,
    BundleRestored,
    Event,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReported,
    ReplicaUnready,
)
from rankcore.replica.beliefs import RankChange
from rankcore.replica.replica import ReplicaHalf
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Ids, Replica, Slot, oldest_first
from rankcore.testing.model.names import Names
from rankcore.testing.model.world import RankWorld
from rankcore.values import ReplicaRank, ReplicaState

_encode = msgspec.msgpack.encode
FOR_EVER_S = 3600.0


def canonical(world: RankWorld) -> bytes:
    """Everything that tells a world from others, as bytes that are equal where two worlds are the same."""
    book = world.steps.book(world.state)
    names = Names(world, book)
    key = names.matter()
    read = book.read.get(key)
    if read is None:
        read = book.read[key] = _encode(_CanonicalReader(world.state, names).read())
    commands = sorted([_encode(_command(names, each)) for each in world.commands])
    events = sorted([_encode(_event(names, each)) for each in world.events])
    replicas = sorted(
        (
            names.ids[each.replica_id],
            each.version,
            each.restart_token,
            names.nodes[each.node_id],
            names.epochs[each.epoch],
            _rank(each.rank),
            names.revisions[each.stamp[1]],
            each.config_id,
            each.constructed,
            each.ready,
            each.draining,
            _change(names, each.running),
            _change(names, each.waiting),
            each.failure is not None,
            each.asked,
            each.unready is not None,
            _ready_for(world, each),
            each.replica_id in world.excused,
            each.bundles,
            each.group_id,
        )
        for each in world.replicas
    )
    gone = sorted(names.ids[each] for each in world.gone if each in names.ids)
    return _encode((read, replicas, commands, events, gone, world.left, _machines(world)))


def _ready_for(world: RankWorld, replica: ReplicaHalf) -> int:
    """For how long it has been ready on its build, as far as a next controller may ask for it; -1: it is not."""
    min_ready_s = int(world.bounds.min_ready_s)
    if replica.ready_since is None or not min_ready_s or not world.bounds.restarts:
        return -1
    return min(int(world.now) - int(replica.ready_since), min_ready_s)


def _change(names: Names, change: RankChange | None) -> tuple[bool, bool, int]:
    return (False, False, -1) if change is None else (change.initialize, change.rank is None, names.revisions[change.revision])


def _machines(world: RankWorld) -> tuple[object, ...]:
    if not (world.bundles or world.rooms or world.cordons):
        return ()
    cordons = [each and (type(each).__name__, _left(getattr(each, "deadline_at", None), world.state)) for each in world.cordons]
    return world.group, world.bundles, world.rooms, cordons


def _left(deadline_at: float | None, state: DeploymentState) -> int | None:
    """How many seconds are left until a deadline."""
    return None if deadline_at is None else max(0, int(deadline_at) - int(state.clock))


def _command(names: Names, command: Command) -> tuple[object, ...]:
    about = names.ids[getattr(command, "replica_id")]  # noqa: B009 (no command without one is ever under way)
    kind, epoch = type(command).__name__, names.epochs[command.epoch]
    if isinstance(command, (PrepareReplica, InitializeReplica, ReconfigureReplica)):
        return kind, about, epoch, names.revisions[command.revision], _rank(command.rank), command.config_id
    if isinstance(command, StartReplica):
        node = None if command.node_id is None else names.nodes[command.node_id]
        return kind, about, epoch, command.version, command.restart_token, node, command.group_id, command.bundles
    return kind, about, epoch


def _event(names: Names, event: Event) -> tuple[object, ...]:
    kind = type(event).__name__
    if isinstance(event, (BundleLost, BundleRestored)):
        return kind, event.group_id, event.bundles, names.moment(event.at)
    if isinstance(event, NodeLost):
        return kind, names.nodes[event.node_id], names.moment(event.at)
    if isinstance(event, NodeChanged):
        return kind, names.nodes[event.node_id], event.capacity, names.moment(event.at)
    if isinstance(event, (NodeCordoned, NodeDrainRequested)):
        deadline_at = getattr(event, "deadline_at", None)
        return kind, names.nodes[event.node_id], _left(deadline_at, names.book.state), names.moment(event.at)
    about = names.ids[getattr(event, "replica_id")]  # noqa: B009 (what users want is never under way)
    if isinstance(event, ReplicaPlaced):
        return kind, about, names.nodes[event.node_id], names.moment(event.at)
    if isinstance(event, ReplicaReported):
        says = (
            event.version,
            event.restart_token,
            event.ready,
            event.unready is not None,
            event.prepared,
            event.draining,
            event.config_id,
            _rank(event.rank),
            -1 if event.ready_for_s is None else min(int(event.ready_for_s), int(names.book.state.spec.min_ready_s)),
        )
        where = names.nodes[event.node_id], event.group_id, event.bundles
        return kind, about, names.moment(event.at), names.epochs[event.epoch], *where, *says
    if isinstance(event, (ReplicaReady, ReplicaUnready)):
        return kind, about, names.moment(event.at) if names.hears else 0
    return kind, about, names.revisions.get(getattr(event, "revision", 0), 0)


class _CanonicalReader:
    """How a state reads under some names."""

    def __init__(self, state: DeploymentState, names: Names) -> None:
        self.whole = state
        self.names = names
        self.ids, self.nodes, self.moment = names.ids, names.nodes, names.moment

    def read(self) -> tuple[object, ...]:
        state, tables = self.whole, self.whole.tables
        replicas = sorted((self.replica(each) for _, each in tables.replicas.items()), key=lambda each: each[0])
        slots = []
        for rank, slot in sorted(tables.slots.items()):
            wait = max(0, int(slot.retry_at) - int(state.clock))
            holder, successor = self.ids.get(slot.holder or ""), self.ids.get(slot.successor or "")
            early: object = rank in tables.rollout.stoppable if slot.successor is not None else rank in tables.ready
            early = (early, rank in tables.rollout.unwanted)
            counted = slot.failures, slot.failed_build, self.served(slot)
            slots.append((rank, holder, successor, *counted, wait, early, self.lacking(rank, slot)))
        former = [
            (rank, slot.failures, slot.failed_build, self.served(slot), max(0, int(slot.retry_at) - int(state.clock)))
            for rank, slot in sorted(tables.former.items())
        ]
        nodes = []
        for node_id in self.names.book.nodes:
            node = tables.nodes[node_id]
            room = (node.capacity, self.moment(node.capacity_at))
            lost = self.moment(node.lost_at)
            cordon = (node.cordoned, node.drain and _left(node.drain.deadline_at, state), self.moment(node.cordon_at))
            nodes.append((self.nodes[node_id], node.node_rank, lost, node_id in tables.touched, room, cordon))
        due = tables.recovery.reports_due_at
        return (
            state.status,
            _spec(state.spec),
            _spec(tables.proven),
            _spec(tables.previous),
            tables.previous is state.spec,
            sorted(tables.configs),
            tables.rollout.full,
            due is not None and max(0, int(due) - int(state.clock)),
            [self.ids[each] for each in tables.named if each in self.ids],
            tables.recovery.repaired,
            tables.recovery.routes_complete,
            self.births(
                tables.recovery.unreported,
                tables.recovery.losers,
                tables.recovery.disputed,
                tables.recovery.misplaced,
                tables.recovery.prepared,
                tables.compaction_waits_for,
            ),
            replicas,
            slots,
            former,
            nodes,
            self.bundles(),
            self.evictions(),
            self.progress(),
        )

    def served(self, slot: Slot) -> int:
        """For how long its holders were ready, as far as it may prove a build; in halves of seconds, since instants add up."""
        return min(round(2 * slot.served_s), round(2 * self.whole.spec.min_ready_s))

    def lacking(self, rank: int, slot: Slot) -> int:
        """For how long a slot has lacked a place, or room, where something falls due because of that."""
        tables, after_s = self.whole.tables, self.whole.spec.scarcity_after_s
        if after_s is None or not (rank in tables.vacant or rank in tables.requested):
            return 0
        since = roomless_since(slot, tables.replicas.get(slot.holder or ""))
        return max(0, min(int(self.whole.clock) - int(since), int(after_s)))

    def waiting(self, replica: Replica) -> int:
        """For how long it has found no room, as far as that counts; -1: nothing of the kind was said."""
        since, after_s = replica.no_room_since, self.whole.spec.scarcity_after_s
        if since is None or after_s is None:
            return -1
        return min(int(self.whole.clock) - int(since), int(after_s))

    def progress(self) -> tuple[int, bool] | None:
        """For how long an update with a deadline has not come forward, as far as that counts, and whether that was said."""
        last, deadline_s = self.whole.tables.progress_at, self.whole.spec.progress_deadline_s
        if last is None or deadline_s is None:
            return None
        return min(int(self.whole.clock) - int(last), int(deadline_s)), self.whole.stalled_since is not None

    def evictions(self) -> tuple[object, ...]:
        """Who is asked to go, in which order, and what is to be forgotten."""
        state, tables = self.whole, self.whole.tables.evictions
        order = sorted({each.since for _, each in tables.asked.items()})
        asked = sorted(
            (self.ids[each], order.index(about.since), about.with_node, _left(about.deadline_at, state))
            for each, about in tables.asked.items()
        )
        if state.spec.node_memory_s >= FOR_EVER_S:
            return (asked,)
        births = [replica.birth for replica in state.replicas.values()]
        departed = [
            (
                self.nodes[each.node_id],
                self.moment(each.lost_at),
                sum(birth < each.births for birth in births),
                int(state.clock) - int(each.at),
            )
            for _, each in sorted(tables.departed.items.items())
        ]
        return asked, departed, self.moment(tables.forgotten_at)

    def bundles(self) -> tuple[object, ...]:
        """What the book says of bundles. That one is there and was lost before counts only while older news is under way."""
        tables = self.whole.tables.bundles
        news = sorted((bundle, news.lost, self.moment(news.at)) for bundle, news in tables.news.items())
        return tables.group_id, tables.group_id and self.moment(tables.since), [each for each in news if any(each[1:])]

    def births(self, *sets: Ids) -> list[list[int]]:
        return [[self.ids[each] for each in oldest_first(ids)] for ids in sets]

    def replica(self, replica: Replica) -> tuple[Any, ...]:
        clock, pending = int(self.whole.clock), replica.pending
        node_id = replica.node_id or replica.reserved_node_id
        came_at = replica.seen_at if replica.node_id is not None else replica.since
        return (
            self.ids[replica.replica_id],
            replica.state,
            replica.version,
            replica.restart_token,
            replica.slot,
            None if replica.node_id is None else self.nodes[replica.node_id],
            None if replica.reserved_node_id is None else self.nodes[replica.reserved_node_id],
            [came_at <= at for lost, at in self.names.losses if lost == node_id],
            _rank(replica.rank),
            _rank(replica.told),
            [_rank(each) for each in replica.believed],
            replica.config_id,
            self.names.revisions[replica.revision],
            None if pending is None else (type(pending).__name__, clock - int(replica.sent_at)),
            self.age(replica),
            self.readiness(replica),
            replica.unready is not None,
            self.waiting(replica),
            self.moment(replica.readiness_at) if self.names.hears else 0,
            replica.leaving,
            replica.bundles,
            replica.group_id,
            replica.routed,
        )

    def readiness(self, replica: Replica) -> float:
        """For how long it has been ready on its build, as far as that counts; -1: it is not."""
        spec, ready_at = self.whole.spec, replica.ready_at
        if ready_at is None or not replica.routed:
            return -1
        return min(int(self.whole.clock) - int(ready_at), spec.min_ready_s)

    def age(self, replica: Replica) -> int:
        """For how long it has been what it is, where something falls due because of that."""
        spec, age = self.whole.spec, int(self.whole.clock) - int(replica.since)
        if replica.state is ReplicaState.REQUESTED and (spec.surge_max or self.whole.tables.rollout.surging):
            return min(age, int(spec.surge_patience_s))  # whether it is a successor, or becomes one
        if replica.state is ReplicaState.PREPARED:
            return min(age, int(spec.min_ready_s))
        begins = replica.state in (ReplicaState.STARTING, ReplicaState.PREPARING)
        return age if begins or isinstance(replica.pending, StopReplica) else 0


def _rank(rank: ReplicaRank | None) -> tuple[int, int, int] | None:
    return None if rank is None else (rank.rank, rank.node_rank, rank.local_rank)


def _spec(spec: DeploymentSpec | None) -> tuple[object, ...] | None:
    if spec is None:
        return None
    static = spec.static_placement
    place = None if static is None else (static.identity, static.bundles)
    return spec.target_replicas, *spec.generation, spec.config_id, spec.partition, place
