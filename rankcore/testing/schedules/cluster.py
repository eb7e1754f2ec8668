"""Replicas with beliefs of their own, the machines they are on, and the messages under way: the executor's half of a world.

It keeps its half of the contract (section 2.4) and nothing beyond it. Messages wait in two bags and arrive in any order,
twice, or never (final news always, in the end).
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from rankcore.commands import (
    Command,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import NEVER_LOST, Event, ReplicaDied, ReplicaMissing, ReplicaPlaced, ReplicaStopped
from rankcore.notes import Note
from rankcore.replica.messages import Message, ReplicaChange, started
from rankcore.testing.model.process import fail as end_badly
from rankcore.testing.model.process import finish, receive
from rankcore.testing.schedules.actor import Actor
from rankcore.testing.schedules.promises import BrokenScheduleError, clash, shared_beliefs, shared_bundles
from rankcore.testing.schedules.specs import BUNDLES, GROUPS
from rankcore.values import ReplicaId

NODES = ("a", "b", "c")
TO_REPLICAS = frozenset({PrepareReplica, InitializeReplica, ReconfigureReplica})
Line: TypeAlias = "str | Event | Answer | tuple[str, *tuple[object, ...]]"
"""What has happened: in words, or as an event, an answer, or a text with values that are written into it when it is told."""
Answer: TypeAlias = tuple[tuple[Command, ...], tuple[Note, ...]]
"""What the core made of the event before it. The states are not kept: who steps in memory that is warm steps faster."""


class Cluster:
    """Everything but the controller. Every public method is one move of the adversary.

    Attributes:
        now: The executor's clock.
        epoch: Of the newest controller: the fence.
        actors: Live replicas, in the order in which they came up.
        gone: Ids that have ended, or may not begin any more.
        commands, events: Under way.
        bad_versions: Whose start-up always fails.
        bundle_nodes: Where each bundle of somebody else's placement groups is; None: it is lost.
        log: What has happened, in order, or the last of it; `story` writes it down.
        remembers: Whether there is anything that `log` may keep.
        seen: Which kinds of faults and wishes have happened.
        moves: How many moves of a schedule have been made, or begun.
    """

    def __init__(self, bad_versions: tuple[str, ...] = (), log_max: int | None = None) -> None:
        self.now = 0.0
        self.epoch = 1
        self.actors: dict[ReplicaId, Actor] = {}
        self.gone: set[ReplicaId] = set()
        self.commands: list[Command] = []
        self.events: list[Event] = []
        self.bad_versions = bad_versions
        self.bundle_nodes: dict[tuple[str, int], str | None] = {
            (group, bundle): NODES[bundle % len(NODES)] for group in GROUPS for bundle in range(BUNDLES)
        }
        self.log: deque[Line] = deque(maxlen=log_max)
        self.remembers = log_max != 0
        self.seen: set[str] = set()
        self.moves = 0

    # messages

    def deliver_command(self, index: int, *, keep: bool = False) -> None:
        """A command arrives, and, kept, will arrive again."""
        if self.commands:
            index %= len(self.commands)
            command = self.commands[index] if keep else self.commands.pop(index)
            if keep:
                self.seen.add("repeated message")
            self.carry_out(command)

    def lose_command(self, index: int) -> None:
        """A command never arrives."""
        if self.commands:
            self.seen.add("lost message")
            self.log.append(("lost: {}", self.commands.pop(index % len(self.commands))))

    def lose_event(self, index: int) -> None:
        """News never arrives, unless it is of those that an executor never loses."""
        if self.events:
            index %= len(self.events)
            if not isinstance(self.events[index], NEVER_LOST):
                self.seen.add("lost message")
                self.log.append(("lost: {}", self.events.pop(index)))

    def carry_out(self, command: Command) -> None:
        """The executor has a command in hand; of an older epoch there are only some to replicas, which have their own fence."""
        carry = _CARRY.get(type(command))
        if carry is not None:
            carry(self, command)

    def _start(self, command: StartReplica) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None:
            if command.replica_id in self.gone:
                # It came and went, with its node perhaps, and the news of its coming was lost.
                self.events.append(ReplicaDied(replica_id=command.replica_id, reason="gone", at=self.now))
                return
            actor = self.actors[command.replica_id] = Actor(started(command, ""), command.node_id)
            self.log.append(("created {}", command.replica_id))
            if command.bundles:
                self.demand(shared_bundles(self.actors.values()))
        if actor.node_id is not None:
            self.events.append(ReplicaPlaced(replica_id=command.replica_id, node_id=actor.node_id, at=self.now))

    def _configure(self, command: ReplicaChange) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None or actor.node_id is None:
            return
        stamp = actor.replica.stamp
        self._hear(actor, command)
        if actor.replica.stamp != stamp:
            # Told anything, it is sound again, unless another still believes the same: a duplicate lasts until one has moved.
            actor.corrupted = actor.corrupted and clash(actor, self.actors.values())
            self.log.append(("{} believes {}", actor.replica_id, actor.rank))
            self.demand(shared_beliefs(self.actors.values()))

    def _stop(self, command: StopReplica | KillReplica) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None:
            self.gone.add(command.replica_id)
            self.events.append(ReplicaStopped(replica_id=command.replica_id, at=self.now))
        elif type(command) is KillReplica:
            self.end(actor, ReplicaStopped(replica_id=actor.replica_id, at=self.now))
        else:
            self._hear(actor, command)

    def _query(self, command: QueryReplica) -> None:
        actor = self.actors.get(command.replica_id)
        if actor is None:
            self.events.append(ReplicaMissing(replica_id=command.replica_id, at=self.now))
        elif actor.node_id is not None:
            self._hear(actor, command)

    def _hear(self, actor: Actor, command: Message) -> None:
        after, said = receive(actor.replica, command, self.now)
        assert after is not None, "only a kill ends a replica at once"
        actor.replica = after
        self.events.extend(said)

    # what replicas do

    def place(self, index: int, where: int) -> bool:
        """A created actor gets a node. Returns whether there is one that can be placed."""
        waiting = []
        for actor in self.actors.values():  # most are somewhere
            if actor.node_id is None and self._can_be_placed(actor):
                waiting.append(actor)
        if not waiting:
            return False
        actor = waiting[index % len(waiting)]
        self.put(actor, self.bundle_node(actor) or actor.wanted_node_id or NODES[where % len(NODES)])
        return True

    def put(self, actor: Actor, node_id: str) -> None:
        """An actor is on this node now."""
        actor.node_id, actor.replica = node_id, replace(actor.replica, node_id=node_id)
        self.log.append(("placed {} on {}", actor.replica_id, node_id))
        self.events.append(ReplicaPlaced(replica_id=actor.replica_id, node_id=node_id, at=self.now))

    def work(self, index: int, *, fail: bool = False) -> bool:
        """A replica gets on with what it is doing: starting, reconfiguring or draining. Returns whether anybody does."""
        busy = []
        for actor in self.actors.values():  # asked so often that a call for each would be felt
            replica = actor.replica
            if replica.draining or replica.running is not None:
                busy.append(actor)
        if not busy:
            return False
        actor = busy[index % len(busy)]
        replica = actor.replica
        if replica.draining:
            self.end(actor, ReplicaStopped(replica_id=replica.replica_id, at=self.now))
            return True
        fails = fail or (replica.starting and replica.version in self.bad_versions)
        if fails:
            self.seen.add("failed start" if replica.starting else "failed reconfigure")
        after, said = (end_badly if fails else finish)(replica, self.now)
        if after is None:
            self.end(actor, *said)
        else:
            actor.replica = after
            self.events.extend(said)
        return True

    def work_through(self) -> None:
        """As many replicas as there are get on with what they are doing, one after the other."""
        for index in range(len(self.actors)):
            if not self.work(index):
                return  # the next one would find nobody either

    def end(self, actor: Actor, news: Event) -> None:
        """A replica is gone, which is never kept secret."""
        self.gone.add(actor.replica_id)
        del self.actors[actor.replica_id]
        self.log.append(("ended: {}", news))
        self.events.append(news)

    def bundle_node(self, actor: Actor) -> str | None:
        """Where an actor has to be; None: anywhere, or its bundle is lost."""
        first = actor.first_bundle
        return self.bundle_nodes[first] if first is not None else None

    def _can_be_placed(self, actor: Actor) -> bool:
        return actor.first_bundle is None or self.bundle_node(actor) is not None

    # promises

    def demand(self, broken: list[str]) -> None:
        """Raise `BrokenScheduleError` if there is anything in this list."""
        if broken:
            raise BrokenScheduleError(tuple(broken), "\n".join(self.story(last=STORY_LINES)))

    def story(self, *, last: int = 0, notes: bool = False) -> list[str]:
        """What has happened, or the last so many happenings of it, with what the core commanded, a line each."""
        lines: list[str] = []
        for entry in list(self.log)[-last:]:
            if isinstance(entry, tuple) and isinstance(entry[0], str):
                lines.append(entry[0].format(*entry[1:]))
            elif isinstance(entry, tuple):
                commands, reasons = entry
                lines += [f"    {each}" for each in (*commands, *(reasons if notes else ()))]
            else:
                lines.append(str(entry))
        return lines


STORY_LINES = 150
_CARRY: dict[type[object], Callable[[Cluster, Any], None]] = {
    StartReplica: Cluster._start,
    **dict.fromkeys(TO_REPLICAS, Cluster._configure),
    StopReplica: Cluster._stop,
    KillReplica: Cluster._stop,
    QueryReplica: Cluster._query,
}
