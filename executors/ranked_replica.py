"""What the process of a fleet's replica does with `TellReplica` (promise D12), whole, for whoever writes an executor of fleets.

As `executors.replica_half`, which it is made of, it knows no clock, no network and no process: a command comes in with the
time, reactions go out.

    replica = RankedReplica("llama#3", "n1")            # with the process
    for reaction in replica.receive(command, now):      # with each TellReplica for it, in their order
        match reaction:
            case ReplicaSaid(): ...                     # tell the fleet; of a ReplicaStartFailed: once the process has ended
            case RunUserCode(): ...                     # run it, then replica.user_code_ended(reaction, now, failure)
            case End(): ...                             # end the process, then tell ReplicaLost
    replica.leave()                                     # it is off the GPU: before OffloadFinished is told
"""

from collections.abc import Iterable
from typing import TypeAlias

from executors.replica_half import Drain, End, ReplicaHalf, RunUserCode
from executors.replica_half import Reaction as HalfReaction
from rankcore.commands import AnnounceWorldSize, KillReplica, QueryReplica, StartReplica
from rankcore.dispatching import ReplicaSaid
from rankcore.dispatching.commands import RankCommand
from rankcore.events import ReplicaMissing
from rankcore.values import NodeId, ReplicaId, ReplicaRank, age_key

Reaction: TypeAlias = ReplicaSaid | RunUserCode | End
_NONE = (-1, -1, "")


class RankedReplica:
    """The seat that one replica has, and what it believes there.

    Promises: those of `ReplicaHalf`; a command for a seat that it does not have, or of an older controller, changes nothing;
    a seat that it has left, or has said to be missing, is never taken again.
    """

    def __init__(self, replica_id: ReplicaId, node_id: NodeId) -> None:
        self.replica_id = replica_id
        self.node_id = node_id
        self._half: ReplicaHalf | None = None
        self._newest = _NONE
        self._epoch = 0
        self._announced: AnnounceWorldSize | None = None

    @property
    def seat(self) -> ReplicaId | None:
        """The id of its seat; None: it has none."""
        return None if self._half is None else self._half.replica_id

    @property
    def rank(self) -> ReplicaRank | None:
        """What it believes; None: it has no rank."""
        return None if self._half is None else self._half.rank

    @property
    def world_size(self) -> int | None:
        """What it believes; None: it was never told."""
        return None if self._half is None else self._half.world_size

    def receive(self, command: RankCommand, now: float) -> tuple[Reaction, ...]:
        """A command for it has arrived."""
        if command.epoch < self._epoch:
            return ()
        self._epoch = command.epoch
        if isinstance(command, StartReplica):
            self._take(command, now)
            return ()
        if isinstance(command, AnnounceWorldSize):
            self._learn(command, now)
            return ()
        half = self._half
        if half is not None and command.replica_id == half.replica_id:
            return self._said(half.receive(command, now), now)
        if isinstance(command, (QueryReplica, KillReplica)):
            self._newest = max(self._newest, age_key(command.replica_id))
            return self._said((ReplicaMissing(replica_id=command.replica_id, at=now),), now)
        return ()

    def user_code_ended(self, ran: RunUserCode, now: float, failure: str | None = None) -> tuple[Reaction, ...]:
        """What a `RunUserCode` began is over; that of a seat that it has left is of no interest any more."""
        half = self._half
        if half is None or half.replica_id != ran.command.replica_id:
            return ()
        return self._said(half.user_code_ended(now, failure), now)

    def leave(self) -> None:
        """It is off the GPU: it has no rank any more."""
        self._half = None

    def _take(self, start: StartReplica, now: float) -> None:
        age = age_key(start.replica_id)
        if age > self._newest:
            self._newest = age
            self._half = ReplicaHalf(start, self.node_id)
            if self._announced is not None:
                self._half.receive(self._announced, now)

    def _learn(self, announced: AnnounceWorldSize, now: float) -> None:
        """A world size may come before the seat does: the newest is kept for it."""
        known = self._announced
        if known is None or announced.revision > known.revision:
            self._announced = announced
        if self._half is not None:
            self._half.receive(announced, now)

    def _said(self, reactions: Iterable[HalfReaction | ReplicaMissing], now: float) -> tuple[Reaction, ...]:
        found: list[Reaction] = []
        for each in reactions:
            assert not isinstance(each, Drain), "the planner says who leaves the GPU"
            if isinstance(each, (RunUserCode, End)):
                found.append(each)
            else:
                found.append(ReplicaSaid(replica_id=self.replica_id, news=each, at=now))
        return tuple(found)
