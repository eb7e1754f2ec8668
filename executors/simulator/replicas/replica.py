"""A simulated replica: what one process believes, and the replica's half of the contract (section 2.4 of the design).

It knows no clock and no network: a message comes in with the time, reactions go out, and the world carries them out.
"""

from typing import TypeAlias

import attrs

from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import ReplicaReady, ReplicaReconfigured, ReplicaReported
from rankcore.values import NodeId, ReplicaId, ReplicaRank

Stamp: TypeAlias = tuple[int, int]
"""(epoch, revision): what a replica never goes back in."""


@attrs.frozen
class RunUserCode:
    """The user's code begins to run; call `user_code_ended` when it has.

    Attributes:
        starting: Whether it is the start-up, and not a `reconfigure`.
    """

    starting: bool


@attrs.frozen
class Drain:
    """Take no further request, finish those in flight for `timeout_s` at most, then end."""

    timeout_s: float


@attrs.frozen
class End:
    """The process ends now."""


Reaction: TypeAlias = ReplicaReady | ReplicaReconfigured | ReplicaReported | RunUserCode | Drain | End
Message: TypeAlias = InitializeReplica | ReconfigureReplica | AnnounceWorldSize | QueryReplica | StopReplica | KillReplica


@attrs.frozen
class _Change:
    """An accepted command whose user code runs, or is to run."""

    stamp: Stamp
    initialize: bool


class SimulatedReplica:
    """One replica's process.

    Promises: it adopts a new epoch before it does anything else and refuses commands of an older one; it never goes
    back to an older (epoch, revision), counted separately for its ranks and for the world size; its belief changes when
    it accepts a command, before user code runs; a repeated command is carried out once and acknowledged again; a query
    is answered when no rank change is running, draining or not.

    Attributes:
        epoch: The newest that it has seen.
        bundles, group_id: What it was started on; empty: no static placement.
        rank: What it believes; None: never initialised.
        world_size: The newest that it was told; None: none yet.
        config_id: Of the user_config that it has, or is applying.
        ready: Whether start-up is over.
        draining: Whether it was told to stop.
        refused: How many messages of an older epoch it has refused.
    """

    def __init__(self, start: StartReplica, node_id: NodeId) -> None:
        self.replica_id: ReplicaId = start.replica_id
        self.version = start.version
        self.bundles, self.group_id = start.bundles, start.group_id
        self.node_id = node_id
        self.epoch = start.epoch
        self.rank: ReplicaRank | None = None
        self.world_size: int | None = None
        self.config_id: str | None = None
        self.ready = False
        self.draining = False
        self.refused = 0
        self._stamp: Stamp = (-1, -1)
        self._world_stamp: Stamp = (-1, -1)
        self._running: _Change | None = None
        self._next: _Change | None = None
        self._query_waits = False

    def receive(self, message: Message, now: float) -> tuple[Reaction, ...]:
        """A message has reached the process."""
        if message.epoch < self.epoch:
            self.refused += 1
            return ()
        self.epoch = message.epoch
        match message:
            case InitializeReplica() | ReconfigureReplica():
                return self._change(message, now)
            case AnnounceWorldSize():
                self._learn_world_size(message.world_size, (message.epoch, message.revision))
                return ()
            case QueryReplica():
                return self._query(now)
            case StopReplica():
                if self.draining:
                    return ()  # its end, which is on the way, answers this one too
                self.draining = True
                return (Drain(message.timeout_s),)
            case KillReplica():
                return (End(),)

    def user_code_ended(self, now: float) -> tuple[Reaction, ...]:
        """What `RunUserCode` began is over."""
        done = self._running
        assert done is not None, "no user code was running"
        reactions: list[Reaction] = [self._acknowledgement(done, now)]
        self._running, self._next = self._next, None
        if self._running is not None:
            reactions.append(RunUserCode(starting=False))
        elif self._query_waits:
            self._query_waits = False
            reactions.append(self._report(now))
        return tuple(reactions)

    def _change(self, command: InitializeReplica | ReconfigureReplica, now: float) -> tuple[Reaction, ...]:
        stamp = (command.epoch, command.revision)
        self._learn_world_size(command.world_size, stamp)
        initialize = isinstance(command, InitializeReplica)
        if stamp < self._stamp or (self.rank is None and not initialize):
            return ()  # overtaken by a newer one; the controller waits for the answer to that
        change = _Change(stamp, initialize)
        if stamp == self._stamp:
            unfinished = change in (self._running, self._next)
            return () if unfinished else (self._acknowledgement(change, now),)
        self._stamp, self.rank, self.config_id = stamp, command.rank, command.config_id
        if self._running is not None:
            self._next = change  # a change that never began is superseded: only the newest one is carried out
            return ()
        self._running = change
        return (RunUserCode(starting=not self.ready),)

    def _query(self, now: float) -> tuple[Reaction, ...]:
        rank_change_runs = self._next is not None or (self._running is not None and self.ready)
        if rank_change_runs:
            self._query_waits = True
            return ()
        return (self._report(now),)

    def _acknowledgement(self, change: _Change, now: float) -> ReplicaReady | ReplicaReconfigured:
        if change.initialize:
            self.ready = True
            return ReplicaReady(replica_id=self.replica_id, at=now)
        return ReplicaReconfigured(replica_id=self.replica_id, revision=change.stamp[1], at=now)

    def _report(self, now: float) -> ReplicaReported:
        return ReplicaReported(
            replica_id=self.replica_id,
            node_id=self.node_id,
            rank=self.rank,
            version=self.version,
            ready=self.ready,
            draining=self.draining,
            config_id=self.config_id,
            bundles=self.bundles,
            group_id=self.group_id,
            epoch=self.epoch,
            at=now,
        )

    def _learn_world_size(self, world_size: int, stamp: Stamp) -> None:
        if stamp > self._world_stamp:
            self._world_stamp, self.world_size = stamp, world_size
