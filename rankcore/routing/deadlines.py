"""Time: what is due is done before anything else happens (Q7)."""

from heapq import heappop

from rankcore.routing import endings
from rankcore.routing.commands import Expire, WakeAt
from rankcore.routing.queueing import fill
from rankcore.routing.records import NEVER, Request
from rankcore.routing.routes import take_back
from rankcore.routing.tables import Tables, is_live


def pass_time(tables: Tables, at: float) -> None:
    """Move the clock; requests whose deadline has come expire, replicas that were left alone are so no longer."""
    if at > tables.clock:
        tables.clock = at
    if tables.wake_at <= tables.clock:
        tables.wake_at = NEVER
    ranks = []
    while tables.due <= tables.clock:
        timer = heappop(tables.timers)
        tables.due = tables.timers[0][0] if tables.timers else NEVER
        if not is_live(timer):
            continue
        subject = timer[-1]
        if isinstance(subject, Request):
            expire(tables, subject)
        else:
            take_back(tables, subject)
            ranks.append(subject.rank)
    if ranks:
        fill(tables, ranks)


def expire(tables: Tables, request: Request) -> None:
    """The deadline of a request has passed: it is answered so, and what is in flight of it is told to stop."""
    where = "while it waited" if request.replica_id is None and not request.parts_flying else "while it was in flight"
    why = f"its deadline, {request.deadline - request.arrived_at:g} s after it came, passed {where}"
    endings.answer(tables, request, Expire(request.request_id, why), why)


def ask_to_wake(tables: Tables) -> None:
    """Ask for the clock at the next time at which something is due, unless that was asked for."""
    tables.drop_stale_timers()
    if tables.due < tables.wake_at:
        tables.wake_at = tables.due
        tables.commands.append(WakeAt(tables.due))
