"""What every policy can do."""

from abc import ABC, abstractmethod

from rankcore.routing.records import Request, RoutedReplica


class Choice(ABC):
    """An index of the replicas that have room: fewer in flight than their limit.

    Attributes:
        draws: What the policy counts, where it counts something.
        asks: Whether it has to be told, for each request, who may have it.
    """

    asks = False

    def __init__(self) -> None:
        self.draws = 0

    def take(self, request: Request) -> RoutedReplica | None:
        """The replica that is to get this request, which is in flight there from now on; None: nobody has room."""
        replica = self.first(request)
        if replica is not None:
            replica.flights[request.serial] = request
            self.given(replica)
        return replica

    @abstractmethod
    def first(self, request: Request) -> RoutedReplica | None:
        """The replica that is to get this request; None: nobody has room."""

    def given(self, replica: RoutedReplica) -> None:
        """A replica has been given a request."""
        self.update(replica)

    @abstractmethod
    def update(self, replica: RoutedReplica) -> None:
        """A replica's limit has changed, or something that it had in flight has ended."""

    def enter(self, replica: RoutedReplica) -> None:  # noqa: B027 (most policies need not know)
        """A replica is routed from now on; `update` follows."""

    def leave(self, replica: RoutedReplica) -> None:  # noqa: B027
        """A replica is not routed any more, or has another rank from now on; `update` came before."""

    def held(self, replica: RoutedReplica, keys: tuple[str, ...]) -> None:  # noqa: B027 (only one that goes by keys has to know)
        """A routed replica has these ready in place of `replica.keys`."""

    def waits(self, request: Request) -> None:  # noqa: B027 (only one that `asks` has to know)
        """A request for anybody stands in the line."""

    def waits_no_more(self, request: Request) -> None:  # noqa: B027
        """It has left the line."""

    @abstractmethod
    def order(self) -> list[RoutedReplica]:
        """Those that have room, in the order in which `update` has to be called to make this index again."""
