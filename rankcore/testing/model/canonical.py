"""When two worlds are the same: what tells them apart, with every name and number taken relative to the others.

Two worlds are the same if one becomes the other by renaming what the core only compares. Such a renaming commutes with every
move, so it is enough to explore one of them:

- **Replica ids**, and with them births and serials, count only in their order of age: the core breaks ties by age, so a
  renaming keeps the order.
- **Revisions and epochs** count only in their order: the next one is above all that are known.
- **Node ids** count in the order in which the core came to know the nodes, but where bundles or room are on them.
- **Timers** count by how far they are from the clock, and only while something waits for them.
- **The moments of news** count only by their order: how many of those under way are older than a node's last loss, or than
  the newest that is known of a bundle.
- **Indexes** are left out: after each step they are recomputed and compared (`rankcore.invariants`).
- Entries that have lost their meaning (ids of the gone that nobody mentions) are left out.
"""

from typing import Any

import msgspec

from rankcore.commands import Command, InitializeReplica, ReconfigureReplica, StartReplica, StopReplica
from rankcore.events import BundleLost, BundleRestored, Event, NodeChanged, NodeLost, ReplicaPlaced, ReplicaReported
from rankcore.replica.beliefs import RankChange
from rankcore.spec import DeploymentSpec
from rankcore.state import DeploymentState, Ids, Replica, oldest_first
from rankcore.testing.model.names import Names
from rankcore.testing.model.world import RankWorld
from rankcore.values import ReplicaRank, ReplicaState

_encode = msgspec.msgpack.encode


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
            names.nodes[each.node_id],
            names.epochs[each.epoch],
            _rank(each.rank),
            names.revisions[each.stamp[1]],
            each.config_id,
            each.ready,
            each.draining,
            _change(names, each.running),
            _change(names, each.waiting),
            each.failure is not None,
            each.asked,
            each.replica_id in world.excused,
            each.bundles,
            each.group_id,
        )
        for each in world.replicas
    )
    gone = sorted(names.ids[each] for each in world.gone if each in names.ids)
    return _encode((read, replicas, commands, events, gone, world.left, _machines(world)))


def _change(names: Names, change: RankChange | None) -> tuple[bool, int]:
    return (False, -1) if change is None else (change.initialize, names.revisions[change.revision])


def _machines(world: RankWorld) -> tuple[object, ...]:
    return (world.group, world.bundles, world.rooms) if world.bundles or world.rooms else ()


def _command(names: Names, command: Command) -> tuple[object, ...]:
    about = names.ids[getattr(command, "replica_id")]  # noqa: B009 (no command without one is ever under way)
    kind, epoch = type(command).__name__, names.epochs[command.epoch]
    if isinstance(command, (InitializeReplica, ReconfigureReplica)):
        return kind, about, epoch, names.revisions[command.revision], _rank(command.rank), command.config_id
    if isinstance(command, StartReplica):
        node = None if command.node_id is None else names.nodes[command.node_id]
        return kind, about, epoch, command.version, node, command.group_id, command.bundles
    return kind, about, epoch


def _event(names: Names, event: Event) -> tuple[object, ...]:
    kind = type(event).__name__
    if isinstance(event, (BundleLost, BundleRestored)):
        return kind, event.group_id, event.bundles, names.moment(event.at)
    if isinstance(event, NodeLost):
        return kind, names.nodes[event.node_id], names.moment(event.at)
    if isinstance(event, NodeChanged):
        return kind, names.nodes[event.node_id], event.capacity, names.moment(event.at)
    about = names.ids[getattr(event, "replica_id")]  # noqa: B009 (what users want is never under way)
    if isinstance(event, ReplicaPlaced):
        return kind, about, names.nodes[event.node_id], names.moment(event.at)
    if isinstance(event, ReplicaReported):
        says = (event.version, event.ready, event.draining, event.config_id, _rank(event.rank))
        where = names.nodes[event.node_id], event.group_id, event.bundles
        return kind, about, names.moment(event.at), names.epochs[event.epoch], *where, *says
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
            early = rank in tables.rollout.stoppable if slot.successor is not None else rank in tables.ready
            slots.append((rank, holder, successor, slot.failures, slot.failed_build, wait, early))
        nodes = []
        for node_id in self.names.book.nodes:
            node = tables.nodes[node_id]
            room = (node.capacity, self.moment(node.capacity_at))
            lost = self.moment(node.lost_at)
            nodes.append((self.nodes[node_id], node.node_rank, lost, node_id in tables.touched, room))
        due = tables.recovery.reports_due_at
        return (
            state.status,
            _spec(state.spec),
            _spec(tables.proven),
            _spec(tables.previous),
            tables.previous is state.spec,
            sorted(tables.configs),
            due is not None and max(0, int(due) - int(state.clock)),
            [self.ids[each] for each in tables.named if each in self.ids],
            tables.recovery.repaired,
            tables.recovery.routes_complete,
            self.births(
                tables.recovery.unreported,
                tables.recovery.losers,
                tables.recovery.disputed,
                tables.recovery.misplaced,
                tables.compaction_waits_for,
            ),
            replicas,
            slots,
            nodes,
            self.bundles(),
        )

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
            replica.leaving,
            replica.bundles,
            replica.group_id,
        )

    def age(self, replica: Replica) -> int:
        """For how long it has been what it is, where something falls due because of that."""
        spec, age = self.whole.spec, int(self.whole.clock) - int(replica.since)
        if replica.state is ReplicaState.REQUESTED and spec.max_surge:
            return min(age, int(spec.surge_patience_s))  # whether it is a successor, or becomes one
        return age if replica.state is ReplicaState.STARTING or isinstance(replica.pending, StopReplica) else 0


def _rank(rank: ReplicaRank | None) -> tuple[int, int, int] | None:
    return None if rank is None else (rank.rank, rank.node_rank, rank.local_rank)


def _spec(spec: DeploymentSpec | None) -> tuple[object, ...] | None:
    if spec is None:
        return None
    static = spec.static_placement
    place = None if static is None else (static.identity, static.bundles)
    return spec.target_replicas, spec.version, spec.config_id, place
