"""Nobody serves a deployment, nor is about to: whoever waits is told so at once, and whoever comes meanwhile (Q11).

Without this, a request waits for a replica as long as its deadline allows, which for many is for ever. Whether anybody is
about to serve is nothing that a router can see: the controller says so (`AvailabilityChanged` with a problem), from the moment
when there is no route and nothing of the deployment is being loaded or initialised, and says when that is over.

1. *In that step* everything that waits is declined with the problem for its reason (503), the oldest first; a broadcast of
   which only some parts wait, too. What is in flight goes on, since its replicas may finish it. So at a decline no request is
   left behind that nobody would ever look at again: from then on nothing waits, which is what the invariant checks.
2. Newcomers are declined likewise, and what comes back to be done again (Q6), until it is lifted, or `lasts_s` have passed:
   from then on requests wait, which is the demand that may bring a replica. The Retry-After is what is left of that time.
3. A route lifts it by itself, whoever says what: a replica that takes requests serves. And while there is a route, the news
   that nobody serves is late. So the order in which the two are heard does not matter, and no request is ever declined beside
   a replica that could take it.

It costs O(requests) when it begins, and one comparison for each request that would have to wait.
"""

from rankcore.routing import endings
from rankcore.routing.events import AvailabilityChanged
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.records import NEVER, Unavailability
from rankcore.routing.tables import Tables


def change(tables: Tables, event: AvailabilityChanged) -> None:
    """The controller says whether anybody serves, or is about to."""
    if not event.problem:
        lift(tables, "the controller says so")
        return
    if any_routed(tables):  # 3
        tables.note(RoutingNoteKind.LATE, "Q11", because="a replica is routed")
        return
    until = NEVER if event.lasts_s is None else tables.clock + event.lasts_s
    tables.unavailable = Unavailability(event.problem, event.retry_after_s, until)
    tables.note(RoutingNoteKind.UNAVAILABLE, "Q11", because=event.problem)
    if tables.unavailable_now is not None:
        for whole in endings.those_that_wait(tables):  # 1
            endings.turn_away(tables, whole, 0)


def lift(tables: Tables, because: str) -> None:
    """Requests may wait again, or be served."""
    if tables.unavailable is not None:
        tables.unavailable = None
        tables.note(RoutingNoteKind.AVAILABLE, "Q11", because=because)


def any_routed(tables: Tables) -> bool:
    """Whether there is a replica that takes requests."""
    return any(replica.routed for replica in tables.replicas.values())
