"""What every policy can do."""

from typing import Protocol

from rankcore.routing.records import Replica, Request


class Choice(Protocol):
    """An index of the replicas that have room: fewer in flight than their limit.

    Attributes:
        draws: How many choices were drawn, where a policy draws.
    """

    draws: int

    def first(self, request: Request) -> Replica | None:
        """The replica that is to get this request; None: nobody has room."""

    def given(self, replica: Replica) -> None:
        """A replica has been given a request."""

    def update(self, replica: Replica) -> None:
        """A replica's limit has changed, or something that it had in flight has ended."""

    def enter(self, replica: Replica) -> None:
        """A replica is routed from now on; `update` follows."""

    def leave(self, replica: Replica) -> None:
        """A replica is not routed any more, or has another rank from now on; `update` came before."""

    def order(self) -> list[Replica]:
        """Those that have room, in the order in which `update` has to be called to make this index again."""
