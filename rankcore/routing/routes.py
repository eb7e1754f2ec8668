"""Replicas come, go, change their ranks and their limits: the router's end of the hand-over of routes.

**What.** The controller publishes who serves; each router adopts that by itself, at some later time. In between routers
differ, from the controller and from each other. Nothing that a router does in that time may break a promise, so:

1. *A route is permission to send, not a claim that the replica takes it.* The limits and credits are between router and
   replica, and a replica that leaves refuses newcomers. A refusal is no attempt of the user's: the request keeps its place and
   goes elsewhere (Q4, Q6).
2. *A removed route ends what begins, not what runs.* `unroute` takes the replica out of the choice at once; its flights go on,
   and it is forgotten with the last of them (`drop_if_gone`).
3. *The first routes of an epoch replace all others* (`complete`): a controller that came back does not know what its
   predecessor had published. Until they come, the old ones are good.
4. *A rank that moves* is a route that closes under one rank and opens under another in the same step. While two replicas are
   routed with one rank, since one router heard of the newcomer before it heard of the leaver, the older one is its holder.

The races, and the line that each is for:

- *The replica dies before its removal is published.* The broken connection is told first: `ReplicaLost` unroutes it, the
  removal that follows is late news.
- *A replica refuses, and is routed all the same.* It is put aside for `refusal_backoff_s` (`put_aside`), so that a router
  which has not heard of its leaving does not ask it in a circle; the next grant, answer or route of it takes it back.
- *It is routed again before its last flight has ended*: the record is the same, and what is in flight counts (Q2).
- *A removal overtakes the addition.* The executor's to prevent: it numbers what it publishes, and hands on nothing that is
  older than what it has handed on. On Ray a whole list goes out each time.

**What it costs.** O(log N) for each route that changes; O(N) where all are replaced or the spec changes.
"""

from bisect import insort

from rankcore.routing import availability, broadcasts, grants, proposals
from rankcore.routing.events import KeysHeld, RoutesChanged
from rankcore.routing.notes import RoutingNoteKind
from rankcore.routing.policies import choice_for
from rankcore.routing.queueing import fill
from rankcore.routing.records import RoutedReplica
from rankcore.routing.spec import RoutingSpec
from rankcore.routing.tables import Tables
from rankcore.values import ReplicaId


def change(tables: Tables, event: RoutesChanged) -> None:
    """Adopt who takes requests from now on."""
    removed = set(event.removed)
    if event.complete:
        kept = {route.replica_id for route in event.added}
        routed = (each.replica_id for each in tables.replicas.values() if each.routed)
        removed.update(replica_id for replica_id in routed if replica_id not in kept)
    for replica_id in sorted(removed):
        unroute(tables, replica_id, "no longer routed")
    if event.added:
        availability.lift(tables, "a replica is routed")
    ranks = [route.rank for route in event.added]
    for route in event.added:
        _route(tables, route.replica_id, route.rank)
    if event.world_size is not None and event.world_size != tables.world_size:
        ranks.extend(broadcasts.resize(tables, event.world_size))
    fill(tables, ranks)
    if tables.spec.by_credits:
        for route in event.added:
            grants.ask_again(tables, tables.replicas[route.replica_id])


def _route(tables: Tables, replica_id: ReplicaId, rank: int | None) -> None:
    replica = tables.replicas.get(replica_id)
    if replica is None:
        tables.births += 1
        replica = tables.replicas[replica_id] = RoutedReplica(replica_id, tables.births)
    elif replica.routed and replica.rank == rank:
        replica.aside_until = 0.0
        reopen(tables, replica)
        return
    elif replica.routed:
        _close(tables, replica)
    replica.rank, replica.routed, replica.aside_until = rank, True, 0.0
    if rank is not None:
        insort(tables.holders.setdefault(rank, []), replica, key=_birth)
    tables.choice.enter(replica)
    grants.may_ask(tables, replica)
    reopen(tables, replica)
    tables.note(RoutingNoteKind.ROUTED, "Q3", None, replica_id, "no rank" if rank is None else f"rank {rank}")


def hold(tables: Tables, event: KeysHeld) -> None:
    """A replica has these ready from now on, and nothing else."""
    replica = tables.replicas.get(event.replica_id)
    if replica is None:
        tables.note(RoutingNoteKind.LATE, "Q10", None, event.replica_id, "nobody knows the replica")
        return
    if replica.routed:
        tables.choice.held(replica, event.keys)
    replica.keys = event.keys
    tables.note(RoutingNoteKind.KEYS_HELD, "Q10", None, event.replica_id, f"{len(event.keys)} keys")


def unroute(tables: Tables, replica_id: ReplicaId, because: str) -> None:
    """A replica is given nothing any more; it is forgotten once it has nothing in flight."""
    replica = tables.replicas.get(replica_id)
    if replica is None or not replica.routed:
        tables.note(RoutingNoteKind.LATE, "Q3", None, replica_id, f"{because}: it was not routed")
        return
    _close(tables, replica)
    replica.routed = False
    grants.may_ask(tables, replica)
    tables.note(RoutingNoteKind.UNROUTED, "Q3", None, replica_id, because)
    drop_if_gone(tables, replica)


def drop_if_gone(tables: Tables, replica: RoutedReplica) -> None:
    """Forget a replica that is not routed and has nothing in flight."""
    if not replica.routed and not replica.flights:
        replica.aside_until = 0.0
        tables.replicas.pop(replica.replica_id, None)


def _close(tables: Tables, replica: RoutedReplica) -> None:
    replica.limit = 0
    tables.choice.update(replica)
    tables.choice.leave(replica)
    if replica.rank is not None:
        holders = tables.holders[replica.rank]
        holders.remove(replica)
        if not holders:
            del tables.holders[replica.rank]


def reopen(tables: Tables, replica: RoutedReplica) -> None:
    """Find out how many a replica may have in flight now (Q2)."""
    spec = tables.spec
    if not replica.routed or replica.aside_until:
        replica.limit = 0
    elif spec.by_credits:
        replica.limit = min(replica.credits, spec.max_ongoing_requests)
    else:
        replica.limit = spec.max_ongoing_requests
    tables.choice.update(replica)


def put_aside(tables: Tables, replica: RoutedReplica, because: str) -> None:
    """A replica that has refused a request, or lost one, is left alone for a while."""
    if not replica.routed:
        return
    replica.aside_until = tables.clock + tables.spec.refusal_backoff_s
    tables.set_timer(replica.aside_until, replica)
    reopen(tables, replica)
    tables.note(RoutingNoteKind.PUT_ASIDE, "Q3", None, replica.replica_id, because)


def take_back(tables: Tables, replica: RoutedReplica) -> None:
    """A replica that was left alone need not be so any longer."""
    replica.aside_until = 0.0
    reopen(tables, replica)


def adopt_spec(tables: Tables, spec: RoutingSpec) -> None:
    """Go by another spec from now on; what waits keeps its place (Q8). Looks at every replica."""
    before, tables.spec = tables.spec, spec
    routed = sorted((each for each in tables.replicas.values() if each.routed), key=_birth)
    if _how(spec) != _how(before):
        draws = tables.choice.draws
        if tables.choice.asks:
            proposals.end(tables)
        tables.choice = choice_for(spec)
        tables.choice.draws = draws
        for replica in routed:
            replica.listed = -1
            tables.choice.enter(replica)
        if tables.choice.asks:
            proposals.begin(tables)
    for replica in routed:
        grants.may_ask(tables, replica)
        reopen(tables, replica)
    tables.note(RoutingNoteKind.SPEC_APPLIED, "Q8", because=f"{spec.policy}, {spec.max_ongoing_requests} ongoing")
    fill(tables, list(tables.ranked))


def _how(spec: RoutingSpec) -> tuple[object, ...]:
    return spec.policy, spec.seed, spec.load_factor, spec.router


def _birth(replica: RoutedReplica) -> int:
    return replica.birth
