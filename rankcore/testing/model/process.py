"""A replica's process in worlds of the checker: what an executor does with the reactions of the replica's half, at once."""

from typing import TypeAlias

from rankcore.events import Event, ReplicaStartFailed, ReplicaStopped
from rankcore.replica.messages import Message, Reaction, readiness_checked, user_code_ended
from rankcore.replica.messages import receive as react
from rankcore.replica.replica import Drain, End, Refused, ReplicaHalf, RunUserCode

Outcome: TypeAlias = tuple[ReplicaHalf | None, tuple[Event, ...]]
"""The replica after a message, None where it has ended, and what it says."""
SILENT = frozenset((RunUserCode, Drain, Refused))
"""What a world does by moves of its own, or not at all."""


def receive(replica: ReplicaHalf, message: Message, at: float) -> Outcome:
    """A message has reached the process, at this time."""
    after, reactions = react(replica, message, at)
    return _carried_out(after, reactions, at) if reactions else (after, ())


def finish(replica: ReplicaHalf, at: float) -> Outcome:
    """What its user code is doing has ended well; ask only one whose user code runs."""
    return _carried_out(*user_code_ended(replica, at), at)


def fail(replica: ReplicaHalf, at: float) -> Outcome:
    """What its user code is doing has failed. A start-up, begun or not, ends the replica; a reconfiguration does not."""
    if replica.rank is None:
        return None, (ReplicaStartFailed(replica_id=replica.replica_id, reason="boom", at=at),)
    return _carried_out(*user_code_ended(replica, at, "boom"), at)


def look(replica: ReplicaHalf, at: float, problem: str | None) -> Outcome:
    """Whether user code can take requests was looked at; `problem`: why it cannot."""
    after, reactions = readiness_checked(replica, at, problem)
    return _carried_out(after, reactions, at) if reactions else (after, ())


def _carried_out(replica: ReplicaHalf, reactions: tuple[Reaction, ...], at: float) -> Outcome:
    kind = type(reactions[0])
    if kind is End:
        return None, (ReplicaStopped(replica_id=replica.replica_id, at=at),)
    after = None if kind is ReplicaStartFailed else replica
    return after, tuple([each for each in reactions if type(each) not in SILENT])  # type: ignore[misc] # only events are left
