"""A replica's half of the contract (section 2.4 of the design), whole, for whoever writes a replica.

It knows no clock, no network and no process: a message comes in with the time, reactions go out, and whoever owns it carries
them out. The simulator's replicas and those of `executors.local` are made of it.
"""

from typing import TypeAlias

import attrs

from executors.beliefs import Beliefs, Verdict
from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
)
from rankcore.events import (
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
)
from rankcore.values import NodeId, ReplicaId, ReplicaRank

Change: TypeAlias = InitializeReplica | ReconfigureReplica
Message: TypeAlias = Change | AnnounceWorldSize | QueryReplica | StopReplica | KillReplica


@attrs.frozen
class RunUserCode:
    """The user's code begins to run; call `user_code_ended` when it has.

    Attributes:
        starting: Whether it is the start-up, and not a `reconfigure`.
        command: What is carried out: ranks and user_config.
    """

    starting: bool
    command: Change = attrs.field(eq=False)


@attrs.frozen
class Drain:
    """Take no further request, finish those in flight for `timeout_s` at most, then end."""

    timeout_s: float


@attrs.frozen
class End:
    """The process ends now."""


Answer: TypeAlias = ReplicaReady | ReplicaReconfigured | ReplicaReconfigureFailed
Reaction: TypeAlias = Answer | ReplicaStartFailed | ReplicaReported | RunUserCode | Drain | End
"""Events are to be told, the others to be done. `ReplicaStartFailed` is final: the process ends, and then it is told."""


class ReplicaHalf(Beliefs[ReplicaRank]):
    """One replica's process.

    Promises, beside those of `Beliefs`: a repeated command is carried out once and acknowledged again, with the same outcome;
    a query is answered when no rank change is running, draining or not.

    Attributes:
        bundles, group_id: What it was started on; empty: no static placement.
        ready: Whether start-up is over.
        draining: Whether it was told to stop.
        refused: How many messages of an older epoch it has refused.
    """

    def __init__(self, start: StartReplica, node_id: NodeId) -> None:
        super().__init__(start.epoch)
        self.replica_id: ReplicaId = start.replica_id
        self.version = start.version
        self.bundles, self.group_id = start.bundles, start.group_id
        self.node_id = node_id
        self.ready = False
        self.draining = False
        self.refused = 0
        self._running: Change | None = None
        self._next: Change | None = None
        self._failure: str | None = None  # of the change that was carried out last
        self._query_waits = False

    def receive(self, message: Message, now: float) -> tuple[Reaction, ...]:
        """A message has reached the process."""
        if not self.admit(message.epoch):
            self.refused += 1
            return ()
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

    def user_code_ended(self, now: float, failure: str | None = None) -> tuple[Reaction, ...]:
        """What `RunUserCode` began is over.

        Args:
            now: In seconds on the executor's clock.
            failure: What went wrong, such as a traceback; None: nothing did.
        """
        done = self._running
        assert done is not None, "no user code was running"
        if failure is not None and not self.ready:
            return (ReplicaStartFailed(replica_id=self.replica_id, reason=failure, at=now),)
        self._failure = failure
        reactions: list[Reaction] = [self._acknowledgement(done, now)]
        self._running, self._next = self._next, None
        if self._running is not None:
            reactions.append(RunUserCode(False, self._running))
        elif self._query_waits:
            self._query_waits = False
            reactions.append(self._report(now))
        return tuple(reactions)

    def _change(self, command: Change, now: float) -> tuple[Reaction, ...]:
        stamp, initialize = (command.epoch, command.revision), isinstance(command, InitializeReplica)
        verdict = self.accept(stamp, command.rank, command.world_size, command.config_id, initialize=initialize)
        if verdict is Verdict.REPEATED and command not in (self._running, self._next):
            return (self._acknowledgement(command, now),)
        if verdict is not Verdict.CARRY_OUT:
            return ()  # under way; or overtaken by a newer one, to whose answer the controller looks
        if self._running is not None:
            self._next = command  # a change that never began is superseded: only the newest one is carried out
            return ()
        self._running = command
        return (RunUserCode(not self.ready, command),)

    def _query(self, now: float) -> tuple[Reaction, ...]:
        rank_change_runs = self._next is not None or (self._running is not None and self.ready)
        if rank_change_runs:
            self._query_waits = True
            return ()
        return (self._report(now),)

    def _acknowledgement(self, command: Change, now: float) -> Answer:
        if isinstance(command, InitializeReplica):
            self.ready = True
            return ReplicaReady(replica_id=self.replica_id, at=now)
        revision = command.revision
        if self._failure is not None:
            return ReplicaReconfigureFailed(replica_id=self.replica_id, revision=revision, reason=self._failure, at=now)
        return ReplicaReconfigured(replica_id=self.replica_id, revision=revision, at=now)

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
