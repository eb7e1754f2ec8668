"""Who is on the routes: the replicas that routers send requests to (`Replica.routed`).

That is a fact of its own, and no state of a replica's life: whoever runs enters the routes when it is ready, and one that is
prepared may enter them before it has a rank (`rules/overlap.py`). Each enters and leaves them here, and nowhere else, in the
step in which that is so; `available` counts who is on them, and `early` those of these that do not run yet.
"""

from collections.abc import Mapping
from operator import attrgetter

from rankcore.book.slots import RUNNING
from rankcore.draft import Draft
from rankcore.state import Replica
from rankcore.values import ReplicaId, age_key


def enter(draft: Draft, replica: Replica) -> None:
    """A replica, whose record says so already, takes requests from now on."""
    draft.available += 1
    if replica.state not in RUNNING:
        draft.early += 1
    draft.routes_added[replica.replica_id] = True


def leave(draft: Draft, replica: Replica) -> None:
    """A replica takes no more requests; `replica`: its record until now."""
    draft.available -= 1
    if replica.state not in RUNNING:
        draft.early -= 1
    if not draft.routes_added.pop(replica.replica_id, False):
        draft.routes_removed[replica.replica_id] = None


def renew(draft: Draft, replica_id: ReplicaId) -> None:
    """A replica that took requests without a rank runs from now on: it is published once more, with its rank (Q9)."""
    draft.early -= 1
    draft.routes_added.setdefault(replica_id, False)


def routed(replicas: Mapping[ReplicaId, Replica]) -> tuple[ReplicaId, ...]:
    """Who takes requests, the oldest first."""
    on_routes = (replica for replica in replicas.values() if replica.routed)
    return tuple(replica.replica_id for replica in sorted(on_routes, key=attrgetter("birth")))


def oldest_first(replica_ids: Mapping[ReplicaId, object]) -> tuple[ReplicaId, ...]:
    """Those that enter or leave the routes in a step, in the order in which they are published."""
    return tuple(sorted(replica_ids, key=age_key)) if len(replica_ids) > 1 else tuple(replica_ids)
