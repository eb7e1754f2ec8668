"""Deprecated, for one release: `rankcore.replica.worker` is what the process of a fleet's replica does with `TellReplica`."""

import warnings
from typing import TypeAlias

from rankcore.dispatching import ReplicaSaid
from rankcore.dispatching.commands import RankCommand
from rankcore.replica import messages
from rankcore.replica.replica import Drain, End, Refused, RunUserCode
from rankcore.replica.worker import Worker, leave
from rankcore.values import NodeId, ReplicaId, ReplicaRank

__all__ = ["RankedReplica", "Reaction"]

warnings.warn(f"{__name__} goes in the next release: use rankcore.replica.worker", DeprecationWarning, stacklevel=2)

Reaction: TypeAlias = ReplicaSaid | RunUserCode | End


class RankedReplica:
    """The seat that one replica has, and what it believes there."""

    def __init__(self, replica_id: ReplicaId, node_id: NodeId) -> None:
        self.replica_id = replica_id
        self.node_id = node_id
        self._worker = Worker(replica_id, node_id)

    @property
    def seat(self) -> ReplicaId | None:
        """The id of its seat; None: it has none."""
        return self._worker.tenure

    @property
    def rank(self) -> ReplicaRank | None:
        """What it believes; None: it has no rank."""
        return self._worker.rank

    @property
    def world_size(self) -> int | None:
        """What it believes; None: none was received."""
        return None if self._worker.replica is None else self._worker.replica.world_size

    def receive(self, command: RankCommand, now: float) -> tuple[Reaction, ...]:
        """A command for it has arrived."""
        self._worker, reactions = messages.worker_receive(self._worker, command, now)
        return self._said(reactions, now)

    def user_code_ended(self, ran: RunUserCode, now: float, failure: str | None = None) -> tuple[Reaction, ...]:
        """What a `RunUserCode` began is over; that of a seat that it has left is of no interest any more."""
        self._worker, reactions = messages.worker_user_code_ended(self._worker, ran, now, failure)
        return self._said(reactions, now)

    def leave(self) -> None:
        """It is off the GPU: it has no rank any more."""
        self._worker = leave(self._worker)

    def _said(self, reactions: tuple[messages.Reaction, ...], now: float) -> tuple[Reaction, ...]:
        found: list[Reaction] = []
        for each in reactions:
            if isinstance(each, (RunUserCode, End)):
                found.append(each)
            elif not isinstance(each, (Drain, Refused)):
                found.append(ReplicaSaid(replica_id=self.replica_id, news=each, at=now))
        return tuple(found)
