"""A router opens: it knows the limits from here on, and what came before is accepted by them, or turned away.

A process learns of the limits of a deployment, and of the room of its replicas, after its first requests have come. Until then
they wait, and go where they can (Q3); nothing is accepted and nothing rejected. When it opens, what still waits is gone
through in the order of arrival, as if each had come at this moment: so many as may wait are accepted, and the rest is
rejected. That is who would have been rejected had all been known before the first came: room that is there was given to the
oldest, and one that is rejected takes no room. (Among requests for anybody and requests for a rank it is as many, and may be
others: the first room that a router hears of goes to the oldest that can have it.) What has been given to a replica before
counts as accepted.
"""

from rankcore.routing import endings
from rankcore.routing.deadlines import pass_time
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.records import NEVER, Request
from rankcore.routing.tables import Tables


def open_up(tables: Tables) -> None:
    """Go by the limits from now on; what waits already first of all (Q5)."""
    if tables.opened:
        tables.note(RoutingNoteKind.LATE, "Q5", because="the router is open already")
        return
    tables.opened = True
    tables.note(RoutingNoteKind.OPENED, "Q5", because=f"{tables.spec.max_queued_requests} may wait")
    _set_deadlines(tables)
    waiting = endings.those_that_wait(tables)
    begun = [each for each in waiting if has_begun(each)]
    asks = tables.choice.asks  # what nothing was said of is accepted, or not, when it is
    new = [each for each in waiting if not has_begun(each) and (not asks or each.rank is not None or each.ranked is not None)]
    accepted = new[: max(0, tables.spec.max_queued_requests - len(begun))]
    for request in new[len(accepted) :]:
        endings.turn_away(tables, request, len(begun) + len(accepted))


def _set_deadlines(tables: Tables) -> None:
    """Requests that brought no deadline have the spec's, from their arrival on (Q7)."""
    timeout_s = tables.spec.request_timeout_s
    if timeout_s is None:
        return
    for request in tables.requests.values():
        if request.deadline == NEVER and not request.answered:
            request.deadline = request.arrived_at + timeout_s
            tables.deadlines += 1
            tables.set_timer(request.deadline, request)
    pass_time(tables, tables.clock)


def has_begun(whole: Request) -> bool:
    """Whether it, or a part of it, was given to a replica at any time."""
    return any(each.attempt for each in (whole, *(whole.parts or {}).values()))
