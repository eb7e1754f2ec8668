"""Deprecated, for one release: `rankcore.replica` is a replica's half of the contract, as a value that this holds."""

import warnings
from typing import Any

from rankcore.commands import StartReplica
from rankcore.replica import messages
from rankcore.replica.messages import Message, Reaction
from rankcore.replica.replica import Drain, End, Refused, RunUserCode
from rankcore.values import NodeId

__all__ = ["Drain", "End", "Message", "Reaction", "ReplicaHalf", "RunUserCode"]

warnings.warn(f"{__name__} goes in the next release: use rankcore.replica.messages", DeprecationWarning, stacklevel=2)


class ReplicaHalf:
    """One replica's process. What it is by now, such as `rank`, is asked of its value.

    Attributes:
        refused: How many messages of an older epoch it has refused.
    """

    def __init__(self, start: StartReplica, node_id: NodeId) -> None:
        self.refused = 0
        self._value = messages.started(start, node_id)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._value, name)

    def receive(self, message: Message, now: float) -> tuple[Reaction, ...]:
        """A message has reached the process."""
        self._value, reactions = messages.receive(self._value, message, now)
        said = tuple(each for each in reactions if not isinstance(each, Refused))
        self.refused += len(reactions) - len(said)
        return said

    def user_code_ended(self, now: float, failure: str | None = None) -> tuple[Reaction, ...]:
        """What `RunUserCode` began is over; `failure`: what went wrong, such as a traceback; None: nothing did."""
        self._value, reactions = messages.user_code_ended(self._value, now, failure)
        return reactions
