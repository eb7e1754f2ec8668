"""Proposals: a user's code says who may have a request, in the place of a policy; the router who of these gets it, and when.

The code may be slow, may raise, may be random; so it is no part of the machine. The machine asks (`Propose`), and hears what
was said (`ReplicasProposed`): groups of replicas, the preferred ones first. Equal events give equal commands, as ever.

1. *A request for anybody waits from its arrival on*, and is asked about. It is turned away only as any other (Q5): at once,
   where no replica at all has room and as many wait as may; or else by its first proposal, if nobody in that has room. What has
   no proposal yet does not count there: it may well be given away with the next one.
2. *A proposal stands until the next one for the same request, or until it leaves the line.* The request goes to the first group
   in which anybody has room; if nobody has, to whichever of them has room first. So nobody has to ask in a circle: Q3 is that
   nothing waits while a replica *that was proposed for it* has room, and Q4 that of those who wait for one replica the oldest
   goes first, whether it is for that rank or was proposed.
3. *Whoever asks again, and when, is outside*: a request that nobody could take is proposed for again after a while, by whoever
   carries out `Propose`, which is said once each time that a request enters the line. A proposal for what has left the line,
   or under another policy, is late.
4. *What is refused, or lost and done again*, keeps its place, and is asked about anew.
5. *Another policy than before*: what waits is asked about, or goes by the new policy at once. It stays accepted (Q8).
6. *Credits* are asked for where they were proposed for, in the order of the proposal; of anybody, where the proposal is empty:
   code that looks at who has room sees nobody until somebody has granted something.

It costs O(N) for each proposal, and for each request that ends while others wait; N replicas.
"""

from typing import cast

from rankcore.routing import endings, grants
from rankcore.routing.commands import Propose
from rankcore.routing.events import ReplicasProposed
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.policies.proposed import Proposed
from rankcore.routing.records import Request
from rankcore.routing.tables import Tables


def ask(tables: Tables, request: Request) -> None:
    """A request is in the line, and nobody has said who may have it."""
    tables.commands.append(Propose(request.request_id))
    tables.note(RoutingNoteKind.ASKED, "Q4", request.request_id, None, "who may have it")


def propose(tables: Tables, event: ReplicasProposed) -> None:
    """It was said who may have a request."""
    request, choice = tables.requests.get(event.request_id), tables.choice
    if request is None or not request.waits or request.rank is not None or not isinstance(choice, Proposed):
        tables.note(RoutingNoteKind.LATE, "Q10", event.request_id, None, "it does not wait for a proposal (any more)")
        return
    is_new = request.ranked is None and not request.attempt and tables.opened
    routed = tables.replicas
    ranked = tuple(tuple(each for each in group if each in routed and routed[each].routed) for group in event.ranked)
    choice.waits_no_more(request)
    request.ranked = ranked
    choice.waits(request)
    replica = choice.take(request)
    if replica is not None:
        tables.dequeue(request)
        tables.dispatch(request, replica)
        return
    others = tables.waiting - len(choice.undecided) - 1
    if is_new and others >= tables.spec.max_queued_requests:
        endings.turn_away(tables, request, others)
        return
    tables.note(RoutingNoteKind.QUEUED, "Q4", request.request_id, None, "nobody who was proposed has room")
    if tables.spec.by_credits:
        grants.ask_for(tables, request)


def fill(tables: Tables) -> None:
    """Somebody may have room: what waits for it goes there, the oldest first, whether for its rank or since it was proposed."""
    choice = cast(Proposed, tables.choice)
    while True:
        heads = []
        for replica in choice.order():
            if replica.replica_id in choice.lines:
                heads.append(choice.lines[replica.replica_id].head())
            if replica.rank in tables.ranked and tables.holder_of(replica.rank) is replica:
                heads.append(tables.ranked[replica.rank].head())
        if not heads:
            return
        request = min(heads, key=_serial)
        if request.rank is None:
            taker = choice.take(request)
            assert taker is not None, "one that was proposed for it has room"
            tables.dequeue(request)
            tables.dispatch(request, taker)
        else:
            holder = tables.holder_of(request.rank)
            assert holder is not None, "it has room"
            tables.dequeue(request)
            tables.give(request, holder)


def begin(tables: Tables) -> None:
    """This is the policy from now on: whoever waits for anybody is asked about."""
    choice = cast(Proposed, tables.choice)
    for request in tables.anyone:
        request.ranked = () if tables.opened else None
        choice.waits(request)
        ask(tables, request)


def end(tables: Tables) -> None:
    """It is so no longer."""
    for request in tables.anyone:
        request.ranked = None


def _serial(request: Request) -> int:
    return request.serial
