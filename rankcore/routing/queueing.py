"""Who is next: requests come in, wait in order, and go to whoever has room."""

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from rankcore.routing import endings, grants, proposals
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.records import Request, RoutedReplica
from rankcore.routing.tables import Tables


def has_room(replica: RoutedReplica | None) -> bool:
    """Whether a replica may be given one more."""
    return replica is not None and len(replica.flights) < replica.limit


def may_wait(tables: Tables) -> bool:
    """Whether one more request may wait."""
    if tables.closed or tables.unavailable_now is not None:
        return False
    return not tables.opened or tables.waiting < tables.spec.max_queued_requests


def admit(tables: Tables, request: Request) -> None:
    """A new request, for anybody or for a rank: to a replica, or into its line, or turned away (Q4, Q5)."""
    rank = request.rank
    if rank is None and tables.choice.asks:
        if may_wait(tables) or (tables.choice.order() and not tables.closed and tables.unavailable_now is None):
            tables.enqueue(request)
            proposals.ask(tables, request)
        else:
            endings.turn_away(tables, request, tables.waiting)
        return
    if rank is None:
        # While anybody waits, nobody has room (Q3).
        replica = None if tables.waiting and tables.anyone else tables.choice.take(request)
        if replica is not None:
            tables.dispatch(request, replica)
            return
    elif tables.world_size and rank >= tables.world_size:
        endings.fail_beyond(tables, request, rank)
        return
    else:
        replica = tables.holder_of(rank)
        if replica is not None and has_room(replica):
            tables.give(request, replica)
            return
    if may_wait(tables):
        line_up(tables, request)
    else:
        endings.turn_away(tables, request, tables.waiting)


def line_up(tables: Tables, request: Request) -> None:
    """Nobody has room for it: it waits, and replicas that give out credits are asked for more."""
    tables.enqueue(request)
    if tables.explains:
        why = "nobody has room" if request.rank is None else f"rank {request.rank} has no room"
        tables.note(RoutingNoteKind.QUEUED, "Q4", request.request_id, None, why)
    if tables.spec.by_credits:
        grants.ask_for(tables, request)


def fill(tables: Tables, ranks: Iterable[int | None] = ()) -> None:
    """Somebody may have room: what waits for it, or for anybody, goes there, the oldest first (Q3, Q4).

    Args:
        ranks: Of the replicas that may have room since the last time.
    """
    if tables.choice.asks:
        proposals.fill(tables)
        return
    anyone, ranked = tables.anyone, tables.ranked
    heads = [(ranked[rank].head().serial, rank) for rank in sorted({each for each in ranks if each in ranked})]
    heapify(heads)
    while anyone or heads:
        if heads and not (anyone and anyone.head().serial < heads[0][0]):
            rank = heads[0][1]
            replica = tables.holder_of(rank)
            if replica is None or not has_room(replica):
                heappop(heads)
                continue
            request = ranked[rank].head()
            tables.dequeue(request)
            tables.give(request, replica)
        else:
            request = anyone.head()
            first = tables.choice.take(request)
            if first is None:
                return
            tables.dequeue(request)
            tables.dispatch(request, first)
        if heads and request.rank is not None:
            if request.rank in ranked:
                heapreplace(heads, (ranked[request.rank].head().serial, request.rank))
            else:
                heappop(heads)
