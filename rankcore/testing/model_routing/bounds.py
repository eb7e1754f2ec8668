"""What an adversary may do in one world of routers, and the small series that is explored whole."""

import attrs

from rankcore.routing.spec import Policy, RoutingSpec
from rankcore.testing.explorable import expression


@attrs.frozen(kw_only=True)
class RoutingBounds:
    """The system, and how often something may happen on one path.

    Attributes:
        requests: How many come.
        ranked: Of those, the first so many are for rank 0.
        broadcasts: The last so many are for all ranks.
        replicas: How many there are; replica k has rank k.
        routers: How many share them. One alone fills each replica, several go by credits.
        max_ongoing: Of each replica.
        max_queued: Of each router.
        policy: Of each router.
        idempotent: Whether what is lost is done again.
        timeout: Whether requests have a deadline, which may pass at any moment.
        crashes: Replicas that die.
        failures: Attempts that raise, or are lost with the replica alive.
        begun: Attempts whose answer begins before it ends.
        cancels: Requests that are cancelled.
        router_losses: Routers that die.
        opens_late: Whether requests may come before a router knows the limits.
        routes_late: Whether requests may come before there is a route.
        outages: Times that routers are told that nobody serves, for a second or until it is lifted, be it so or not.
    """

    requests: int = 2
    ranked: int = 0
    broadcasts: int = 0
    replicas: int = 2
    routers: int = 1
    max_ongoing: int = 1
    max_queued: int = 3
    policy: Policy = "least_loaded"
    idempotent: bool = False
    timeout: bool = False
    crashes: int = 0
    failures: int = 0
    begun: int = 0
    cancels: int = 0
    router_losses: int = 0
    opens_late: bool = False
    routes_late: bool = False
    outages: int = 0

    @property
    def spec(self) -> RoutingSpec:
        """What all routers go by."""
        return RoutingSpec(
            name="llm",
            max_ongoing_requests=self.max_ongoing,
            max_queued_requests=self.max_queued,
            policy=self.policy,
            idempotent=self.idempotent,
            max_retries=1,
            request_timeout_s=1.0 if self.timeout else None,
            refusal_backoff_s=2.0,
            by_credits=self.routers > 1,
        )

    def __str__(self) -> str:
        """What differs from the defaults, ready to paste."""
        return expression(self)


SYSTEMS: dict[str, RoutingBounds] = {
    "router-crashes": RoutingBounds(requests=3, idempotent=True, crashes=1),
    "router-crashes-final": RoutingBounds(requests=2, crashes=2, begun=1),
    "router-failures": RoutingBounds(requests=2, failures=2, idempotent=True, begun=1),
    "router-queue": RoutingBounds(requests=3, replicas=1, max_ongoing=2, max_queued=1, cancels=1),
    "router-deadlines": RoutingBounds(requests=2, replicas=1, timeout=True, cancels=1, failures=1),
    "router-ranks": RoutingBounds(requests=3, ranked=1, broadcasts=1, crashes=1, idempotent=True),
    "router-broadcasts": RoutingBounds(requests=2, broadcasts=2, failures=1, cancels=1),
    "router-credits": RoutingBounds(requests=3, replicas=1, routers=2),
    "router-credits-two": RoutingBounds(requests=3, replicas=1, routers=2, max_ongoing=2),
    "router-first-burst": RoutingBounds(
        requests=3, replicas=1, max_queued=1, timeout=True, cancels=1, failures=1, opens_late=True
    ),
    "router-outages": RoutingBounds(requests=3, replicas=1, crashes=1, idempotent=True, routes_late=True, outages=2),
    "router-outages-broadcasts": RoutingBounds(requests=2, broadcasts=1, timeout=True, failures=1, routes_late=True, outages=1),
    "router-credits-lost": RoutingBounds(requests=2, replicas=1, routers=2, max_ongoing=2, router_losses=1, crashes=1),
}
"""The series of `rankcore check --router`."""
