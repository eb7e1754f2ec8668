"""When two worlds are the same: what tells them apart, with every name and number taken relative to the others.

Two worlds are the same if one becomes the other by renaming what the core only compares. Such a renaming commutes with every
move, so it is enough to explore one of them:

- **Replica ids**, and with them births and serials, count only in their order of age: the core breaks ties by age, so a
  renaming keeps the order.
- **Revisions and epochs** count only in their order: the next one is above all that are known.
- **Node ids** count in the order in which the core came to know the nodes.
- **Timers** count by how far they are from the clock, and only while something waits for them.
- **The moments of news** count only as instants between which nodes were lost.
- **Indexes** are left out: after each step they are recomputed and compared (`rankcore.invariants`).
- Entries that have lost their meaning (queues of timers with what is acknowledged, ids of the gone that nobody mentions) are
  left out.

A world is kept as a fingerprint of 64 bits: two of n different worlds share one with a probability below n^2 / 2^65, which is
one in 370,000 for ten million worlds.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from rankcore.commands import Command, InitializeReplica, ReconfigureReplica, StopReplica
from rankcore.events import Event, NodeLost, ReplicaPlaced, ReplicaReported
from rankcore.rankset import RankSet
from rankcore.spec import DeploymentSpec
from rankcore.state import Replica
from rankcore.testing.model.world import World, instant_of
from rankcore.values import ReplicaRank, ReplicaState, age_key

_encode = msgspec.msgpack.encode


def fingerprint(world: World) -> int:
    """64 bits that are equal for equal worlds, in every process, and different for different ones, nearly always."""
    return int.from_bytes(blake2b(canonical(world), digest_size=8).digest(), "big")


def canonical(world: World) -> bytes:
    """Everything that tells a world from others, as bytes that are equal where two worlds are the same."""
    names = _Names(world)
    commands = sorted(_encode(names.command(each)) for each in world.commands)
    events = sorted(_encode(names.event(each)) for each in world.events)
    replicas = sorted(
        (
            names.ids[each.replica_id],
            each.version,
            names.nodes[each.node_id],
            names.epochs[each.epoch],
            _rank(each.rank),
            names.revision(each.heard[1]),
            each.config_id,
            each.ready,
            each.draining,
            each.moving is not None,
            each.failed,
            each.asked,
            each.excused,
        )
        for each in world.replicas
    )
    gone = sorted(names.ids[each] for each in world.gone if each in names.ids)
    return _encode((names.state(), replicas, commands, events, gone, world.left))


class _Names:
    """The names that a world gives to its replicas, nodes, revisions and moments."""

    def __init__(self, world: World) -> None:
        self.world = world
        state = world.state
        messages = (*world.commands, *world.events)
        mentioned = {each.replica_id for each in world.replicas} | set(state.replicas)
        mentioned.update(name for each in messages if (name := getattr(each, "replica_id", None)) is not None)
        self.ids = _numbered(sorted(mentioned, key=age_key))
        revisions = {0, *(each.heard[1] for each in world.replicas), *(r.revision for r in state.replicas.values())}
        revisions.update(getattr(each, "revision", 0) for each in messages)
        self.revisions = _numbered(sorted(revisions))
        epochs = {state.epoch, *(each.epoch for each in world.replicas)}
        epochs.update(getattr(each, "epoch", state.epoch) for each in messages)
        self.epochs = _numbered(sorted(epochs, reverse=True))
        known = sorted(state.nodes, key=lambda node_id: state.nodes[node_id].index)
        self.nodes = _numbered(known)
        others = [each.node_id for each in sorted(world.replicas, key=lambda each: self.ids[each.replica_id])]
        others += sorted(each.node_id for each in world.events if hasattr(each, "node_id"))
        for node_id in others:
            self.nodes.setdefault(node_id, len(self.nodes))
        self.losses = [event for event in world.events if isinstance(event, NodeLost)]

    def revision(self, revision: int) -> int:
        return self.revisions[revision]

    def command(self, command: Command) -> tuple[object, ...]:
        about = self.ids[getattr(command, "replica_id")]  # noqa: B009 (no command without one is ever under way)
        kind, epoch = type(command).__name__, self.epochs[command.epoch]
        if isinstance(command, (InitializeReplica, ReconfigureReplica)):
            return kind, about, epoch, self.revisions[command.revision], _rank(command.rank), command.config_id
        return kind, about, epoch, getattr(command, "version", "")

    def event(self, event: Event) -> tuple[object, ...]:
        kind = type(event).__name__
        if isinstance(event, NodeLost):
            return kind, self.nodes[event.node_id], instant_of(event.at)
        about = self.ids[getattr(event, "replica_id")]  # noqa: B009 (what users want is never under way)
        if isinstance(event, ReplicaPlaced):
            return kind, about, self.nodes[event.node_id], instant_of(event.at)
        if isinstance(event, ReplicaReported):
            says = (event.version, event.ready, event.draining, event.config_id, _rank(event.rank))
            return kind, about, self.nodes[event.node_id], instant_of(event.at), self.epochs[event.epoch], *says
        return kind, about, self.revisions.get(getattr(event, "revision", 0), 0)

    def state(self) -> tuple[object, ...]:
        state, tables = self.world.state, self.world.state.tables
        replicas = sorted((self.replica(each) for _, each in tables.replicas.items()), key=lambda each: each[0])
        slots = []
        for rank, slot in sorted(tables.slots.items()):
            wait = max(0.0, slot.retry_at - state.clock)
            holder, successor = self.ids.get(slot.holder or ""), self.ids.get(slot.successor or "")
            early = rank in tables.stoppable if slot.successor is not None else rank in tables.ready
            slots.append((rank, holder, successor, slot.failures, slot.failed_build, wait, early))
        nodes = []
        for node_id in self.nodes:
            node = tables.nodes.get(node_id)
            if node is not None:
                nodes.append((node.node_rank, instant_of(node.lost_at), node.index in tables.touched))
        due = tables.reports_due_at
        return (
            state.status,
            _spec(state.spec),
            _spec(tables.proven),
            _spec(tables.previous),
            tables.previous is state.spec,
            sorted(tables.configs),
            due is not None and max(0.0, due - state.clock),
            [self.ids[each] for each in tables.named if each in self.ids],
            tables.repaired,
            tables.routes_complete,
            self.births(tables.unreported, tables.losers, tables.disputed, tables.misplaced, tables.compaction_waits_for),
            replicas,
            slots,
            nodes,
        )

    def births(self, *sets: RankSet) -> list[list[int]]:
        ids: Mapping[int, str] = self.world.state.tables.ids
        return [[self.ids[ids[birth]] for birth in births] if births.size else [] for births in sets]

    def replica(self, replica: Replica) -> tuple[Any, ...]:
        clock, pending = self.world.state.clock, replica.pending
        return (
            self.ids[replica.replica_id],
            replica.state,
            replica.version,
            replica.slot,
            None if replica.node_id is None else self.nodes[replica.node_id],
            [replica.seen_at <= lost.at for lost in self.losses if lost.node_id == replica.node_id],
            _rank(replica.rank),
            _rank(replica.told),
            [_rank(each) for each in replica.believed],
            replica.config_id,
            self.revisions[replica.revision],
            None if pending is None else (type(pending).__name__, clock - replica.sent_at),
            self.age(replica),
            replica.leaving,
        )

    def age(self, replica: Replica) -> float:
        """For how long it has been what it is, where something falls due because of that."""
        tables = self.world.state.tables
        awaited = (rank for rank in tables.surging if rank not in tables.stoppable)
        timed = (
            replica.state is ReplicaState.STARTING
            or isinstance(replica.pending, StopReplica)
            or any(tables.slots[rank].successor == replica.replica_id for rank in awaited)
        )
        return self.world.state.clock - replica.since if timed else 0.0


def _numbered(names: Iterable[Any]) -> dict[Any, int]:
    return {name: number for number, name in enumerate(names)}


def _rank(rank: ReplicaRank | None) -> tuple[int, int, int] | None:
    return None if rank is None else (rank.rank, rank.node_rank, rank.local_rank)


def _spec(spec: DeploymentSpec | None) -> tuple[object, ...] | None:
    return None if spec is None else (spec.target_replicas, spec.version, spec.config_id)
