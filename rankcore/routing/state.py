"""The router as a value: `open_router` makes one, `route_step` makes the next, and every one stays what it is.

The newest state of a history holds a `Router` that is stepped in place; an older one knows from which image its history
began and which events have come since, and makes its own router from them when it is asked for. So a run that goes
straight on pays for one step in place an event; to go back, or to fork, costs at most as much as the router is big.
States of one history share that router: like any other part of rankcore, use them from one thread at a time.
"""

from typing import Any, TypeAlias

from rankcore import kernel
from rankcore.errors import InvalidEventError
from rankcore.routing.commands import Command
from rankcore.routing.events import Event
from rankcore.routing.image import RouterImage, image_of, router_of
from rankcore.routing.notes import RoutingNote
from rankcore.routing.router import Router
from rankcore.routing.spec import RoutingSpec
from rankcore.values import ReplicaId

HISTORY_MIN = 64


class _History:
    """An image, the events since, and the router that they have led to; None: it has gone on with another history."""

    __slots__ = ("begun", "events", "router")

    def __init__(self, begun: RouterImage, events: list[Event], router: Router | None) -> None:
        self.begun = begun
        self.events = events
        self.router = router

    def taken_to(self, version: int) -> "_History":
        """A history that ends after so many of the events."""
        if self.router is not None and len(self.events) == version:
            return self
        router = router_of(self.begun)
        for event in self.events[:version]:
            router.step(event)
        return _History(self.begun, self.events[:version], router)


class RouterState:
    """A router at one moment: equal to another exactly if both go on alike, hashable, and never changed.

    Attributes:
        waiting: How many requests wait; a broadcast counts as one.
        in_flight: How many attempts are in flight.
        clock: The largest `at` so far.
    """

    __slots__ = ("_history", "_image", "_version", "clock", "in_flight", "waiting")

    def __init__(self, history: Any, version: int, router: Router) -> None:
        """For this module only: use `open_router` or `RouterState.of`."""
        self._history: _History = history
        self._version = version
        self._image: RouterImage | None = None
        self.waiting = router.waiting
        self.in_flight = router.in_flight
        self.clock = router.clock

    @classmethod
    def of(cls, image: RouterImage) -> "RouterState":
        """The state that an image shows, such as one read from JSON."""
        router = router_of(image)
        return cls(_History(image, [], router), 0, router)

    @property
    def image(self) -> RouterImage:
        """All that it is, as records that can be compared and written as JSON. O(its size) the first time."""
        if self._image is None:
            self._image = image_of(self._router())
        return self._image

    @property
    def spec(self) -> RoutingSpec:
        """How requests are routed."""
        return self._router().spec

    @property
    def world_size(self) -> int:
        """How many ranks there are; 0: none, or not known yet."""
        return self._router().world_size

    @property
    def in_flight_by_replica(self) -> dict[ReplicaId, int]:
        """How many attempts each replica has in flight, by id."""
        return {each.replica_id: each.in_flight for each in sorted(self.image.replicas, key=lambda each: each.replica_id)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RouterState) and self.image == other.image

    def __hash__(self) -> int:
        return hash(self.image)

    def __repr__(self) -> str:
        return f"RouterState({self.spec.name!r}, waiting={self.waiting}, in_flight={self.in_flight}, clock={self.clock:g})"

    def _router(self) -> Router:
        self._history = self._history.taken_to(self._version)
        router = self._history.router
        assert router is not None
        return router

    def _step(self, event: Event) -> "RouteStep":
        router = self._router()
        history = self._history
        size = len(router.requests) + len(router.replicas)
        if len(history.events) >= max(HISTORY_MIN, size):
            history.router = None
            history = _History(self.image, [], router)
        commands, notes = router.step(event)
        history.events.append(event)
        return kernel.Step(RouterState(history, len(history.events), router), commands, notes)


RouteStep: TypeAlias = kernel.Step[RouterState, Command, RoutingNote]


def open_router(spec: RoutingSpec, *, at: float = 0.0, opened: bool = True) -> RouterState:
    """A router that knows no replica yet; what arrives waits.

    Args:
        spec: How requests are routed.
        at: The clock to begin with.
        opened: Whether the limits hold at once; False: from `RouterOpened` on, since the spec is not known yet.
    """
    return RouterState.of(image_of(Router(spec, at=at, opened=opened)))


def route_step(state: RouterState, event: Event) -> RouteStep:
    """The machine: what becomes of a router when something has happened.

    Costs O(log N) for N replicas, plus the size of what it changes, where `state` is the newest of its history; else
    O(its size).

    Raises:
        InvalidEventError: The event is none of a router. `state` is as it was.
        UnknownDeploymentError: A spec of another deployment. Likewise.
    """
    if not isinstance(state, RouterState):
        raise InvalidEventError("route_step.state", state, "a RouterState, such as open_router returns")
    return state._step(event)
