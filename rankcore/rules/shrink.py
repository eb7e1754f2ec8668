"""Too many slots: which are given up, and which replicas are stopped for it (R11, sections 2.3 and 2.5)."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice
from operator import attrgetter

from rankcore.book import slots
from rankcore.draft import Draft
from rankcore.rules import leaving, static
from rankcore.state import Replica
from rankcore.values import DRAINING, RELEASE, NodeId

RULE = "R11"


def shrink(draft: Draft) -> None:
    """Give up slots until there are no more than the target: first those for which nobody alive has to be stopped."""
    target = draft.spec.target_replicas
    if draft.spec.static_placement is not None:
        static.shrink(draft)
    if draft.vacant.size and draft.vacant.highest() >= target:
        for rank in draft.vacant.members_from(target):
            leaving.give_up_vacancy(draft, rank, "vacant, and beyond the world size")
    if len(draft.slots) + draft.losers.size + draft.owed.size > target:
        for give_up in (_vacant, _leaving_anyway, _named, _losers, _unstarted, _by_policy):
            excess = _excess(draft)
            if excess <= 0:
                break
            give_up(draft, excess)
    draft.named = ()


def _excess(draft: Draft) -> int:
    return len(draft.slots) + draft.losers.size + draft.owed.size - draft.spec.target_replicas


def _vacant(draft: Draft, excess: int) -> None:
    for rank, _ in zip(draft.vacant.descending(), range(excess), strict=False):
        leaving.give_up_vacancy(draft, rank, "vacant, and the target is lower")


def _leaving_anyway(draft: Draft, excess: int) -> None:
    holders = (slots.holder_of(draft, rank) for rank in draft.leaving.descending())
    unslotted = (draft.replicas[draft.ids[birth]] for birth in draft.owed.descending())
    for replica in list(islice(chain(unslotted, holders), excess)):
        leaving.release(draft, replica, "it is leaving anyway, and the target is lower")


def _named(draft: Draft, excess: int) -> None:
    named = [replica for name in draft.named if (replica := draft.replicas.get(name)) is not None]
    _stop(draft, iter(dict.fromkeys(named)), excess, "named by the caller")


def _losers(draft: Draft, excess: int) -> None:
    losers = [draft.replicas[draft.ids[birth]] for birth in draft.losers.descending()]
    _stop(draft, iter(losers), excess, "its rank is another's, and the target is lower")


def _unstarted(draft: Draft, excess: int) -> None:
    holders = (holder for holder in _holders(draft) if holder.state in slots.UNSTARTED)
    _stop(draft, holders, excess, "not running yet, and the target is lower")


def _by_policy(draft: Draft, _: int) -> None:
    # A successor that is chosen goes too, but gives up no slot: only the count of slots says when it is enough.
    for victim in VICTIMS[draft.spec.victims](draft):
        if _excess(draft) <= 0:
            return
        _stop(draft, iter((victim,)), 1, f"chosen by the policy {draft.spec.victims!r}")


def _holders(draft: Draft) -> Iterator[Replica]:
    """Who holds a slot, from the highest rank down."""
    for rank in draft.taken.taken.descending():
        slot = draft.slots.get(rank)
        if slot is not None and slot.holder is not None:
            yield draft.replicas[slot.holder]


def _highest_rank(draft: Draft) -> Iterator[Replica]:
    return (holder for holder in _holders(draft) if holder.state in slots.RUNNING)


def _newest(draft: Draft) -> Iterator[Replica]:
    running = (replica for replica in draft.replicas.values() if replica.state in slots.RUNNING)
    return iter(sorted(running, key=attrgetter("birth"), reverse=True))


def _on_emptiest_node(draft: Draft) -> Iterator[Replica]:
    """The newest replica on the node that has the fewest, so that the node is soon free; then again.

    Whoever is stopped leaves its node with fewer, and so does the successor that it takes along: both nodes are entered anew.
    """
    heap: list[tuple[int, int, NodeId]] = []

    def entry(node_id: NodeId) -> tuple[int, int, NodeId] | None:
        node = draft.nodes[node_id]
        newest = next((birth for birth in node.members.descending() if birth not in node.leaving), None)
        return (node.staying, -newest, node_id) if newest is not None else None

    def enter(node_id: NodeId | None) -> None:
        found = entry(node_id) if node_id is not None else None
        if found is not None:
            heappush(heap, found)

    for node_id in draft.nodes:
        enter(node_id)
    while heap:
        fewest = heappop(heap)
        if fewest != entry(fewest[2]):
            continue  # it has fewer by now, and another entry
        victim = draft.replicas[draft.ids[-fewest[1]]]
        slot = draft.slots.get(victim.slot) if victim.slot is not None else None
        yield victim
        enter(victim.node_id)
        if slot is not None and slot.successor is not None:
            enter(draft.replicas[slot.successor].node_id)


VICTIMS: dict[str, Callable[[Draft], Iterator[Replica]]] = {
    "any": _on_emptiest_node,
    "highest_rank": _highest_rank,
    "newest": _newest,
}


def _stop(draft: Draft, victims: Iterator[Replica], excess: int, because: str) -> None:
    for each in victims:
        if excess <= 0:
            return
        # Stopping one may have stopped another: a holder takes its successor along.
        victim = draft.replicas[each.replica_id]
        if victim.state is DRAINING:
            continue
        excess -= not leaving.is_successor(draft, victim)
        leaving.stop(draft, victim, RELEASE, RULE, because)
