"""Requests: who gets which, who waits, who is turned away, and what becomes of them when a replica is lost.

    state = open_router(RoutingSpec(name="llm", max_ongoing_requests=4))
    state, commands, notes = route_step(state, event)

`events` and `commands` hold what goes in and out, `invariants` checks the promises Q1 to Q11, `credits` is the replica's
side of what several routers share. A `Router` is the same machine changed in place, for whoever owns it alone.
docs/routing.md says it all in words.
"""

from typing import TYPE_CHECKING

from rankcore.homes import loading

if TYPE_CHECKING:
    from rankcore.routing.events import FailureKind, RequestId, Route
    from rankcore.routing.image import RouterImage, image_of, router_of
    from rankcore.routing.notes import RoutingNote, RoutingNoteKind
    from rankcore.routing.router import Outcome, Router
    from rankcore.routing.spec import Policy, RoutingSpec
    from rankcore.routing.state import RouterState, RouteStep, open_router, route_step

__all__ = [
    "FailureKind",
    "Outcome",
    "Policy",
    "RequestId",
    "Route",
    "RouteStep",
    "Router",
    "RouterImage",
    "RouterState",
    "RoutingNote",
    "RoutingNoteKind",
    "RoutingSpec",
    "image_of",
    "open_router",
    "route_step",
    "router_of",
]

_HOMES = {
    "FailureKind": "rankcore.routing.events",
    "Outcome": "rankcore.routing.router",
    "Policy": "rankcore.routing.spec",
    "RequestId": "rankcore.routing.events",
    "Route": "rankcore.routing.events",
    "RouteStep": "rankcore.routing.state",
    "Router": "rankcore.routing.router",
    "RouterImage": "rankcore.routing.image",
    "RouterState": "rankcore.routing.state",
    "RoutingNote": "rankcore.routing.notes",
    "RoutingNoteKind": "rankcore.routing.notes",
    "RoutingSpec": "rankcore.routing.spec",
    "image_of": "rankcore.routing.image",
    "open_router": "rankcore.routing.state",
    "route_step": "rankcore.routing.state",
    "router_of": "rankcore.routing.image",
}

__getattr__ = loading(__name__, _HOMES)
"""A replica wants `credits`, and not the router with it."""
